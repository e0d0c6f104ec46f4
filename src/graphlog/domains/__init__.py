"""Kinds of graphs: one package a domain, registered in ``DOMAINS``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphlog.domains.base import Domain, Input
    from graphlog.domains.registry import DOMAINS, SCHEMAS, domain_of, register, schema_named

__all__ = ["DOMAINS", "SCHEMAS", "Domain", "Input", "domain_of", "register", "schema_named"]


def __getattr__(name: str) -> Any:
    """Load the domains on first use: processes that only parse SMILES need no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from graphlog.domains import base, registry

    return getattr(base if name in ("Domain", "Input") else registry, name)
