"""The domains there are, and their schemas."""

from graphlog.data.schema import FeatureSchema
from graphlog.domains.base import Domain
from graphlog.domains.graph.domain import GraphDomain
from graphlog.domains.molecule.domain import MoleculeDomain
from graphlog.domains.protein.domain import ProteinDomain
from graphlog.errors import unknown_name

DOMAINS: dict[str, Domain] = {}
"""Every domain by name."""
SCHEMAS: dict[str, FeatureSchema] = {}
"""Every fixed schema by name."""


def register(domain: Domain) -> None:
    """Make a domain known to every verb and every public call."""
    DOMAINS[domain.name] = domain
    SCHEMAS.update(domain.schemas)


def domain_of(schema: FeatureSchema) -> Domain:
    """Return the domain that graphs of a schema belong to.

    Raises:
        ConfigError: If it is not registered.
    """
    if schema.domain not in DOMAINS:
        raise unknown_name("domain", schema.domain, DOMAINS)
    return DOMAINS[schema.domain]


def schema_named(name: str) -> FeatureSchema:
    """Return a fixed schema.

    Raises:
        ConfigError: If there is none of that name.
    """
    if name not in SCHEMAS:
        raise unknown_name("schema", name, SCHEMAS)
    return SCHEMAS[name]


for _domain in (MoleculeDomain(), ProteinDomain(), GraphDomain()):
    register(_domain)
