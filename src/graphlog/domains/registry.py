"""The domains there are, and their schemas."""

from graphlog.data.schema import FeatureSchema
from graphlog.domains.base import Domain
from graphlog.domains.graph.domain import GraphDomain
from graphlog.domains.molecule.domain import MoleculeDomain
from graphlog.domains.protein.domain import ProteinDomain
from graphlog.errors import ConfigError, unknown_name
from graphlog.plugins import Registry


def _fits(name: str, part: object) -> str | None:
    fits = isinstance(part, Domain) and part.name == name
    return None if fits else f"an object derived from graphlog.domains.Domain named '{name}'"


_OWN = (MoleculeDomain(), ProteinDomain(), GraphDomain())
DOMAINS: Registry[Domain] = Registry("domain", {domain.name: domain for domain in _OWN}, _fits)
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
        known = ", ".join(sorted(DOMAINS))
        raise ConfigError(
            f"no installed package provides the domain '{schema.domain}' that graphs of schema "
            f"'{schema.name}' belong to; install the one that made them. Known: {known}"
        )
    return DOMAINS[schema.domain]


def schema_named(name: str) -> FeatureSchema:
    """Return a fixed schema.

    Raises:
        ConfigError: If there is none of that name.
    """
    if name not in SCHEMAS:
        raise unknown_name("schema", name, SCHEMAS)
    return SCHEMAS[name]


for _domain in DOMAINS.values():
    SCHEMAS.update(_domain.schemas)
