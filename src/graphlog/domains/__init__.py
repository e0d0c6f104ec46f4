"""From raw records to features: one module or package a domain; the tables below are all there is to register."""

from collections.abc import Mapping

from graphlog.data.schema import FeatureSchema
from graphlog.domains.base import Domain
from graphlog.domains.molecule.domain import MoleculeDomain
from graphlog.domains.protein.domain import ProteinDomain

__all__ = ["DOMAINS", "SCHEMAS", "Domain"]

DOMAINS: Mapping[str, Domain] = {"molecule": MoleculeDomain(), "protein": ProteinDomain()}
"""Every domain by name."""

SCHEMAS: Mapping[str, FeatureSchema] = {
    name: schema for domain in DOMAINS.values() for name, schema in domain.schemas.items()
}
"""Every fixed schema by name."""
