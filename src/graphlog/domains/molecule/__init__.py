"""Molecules: SMILES in, graphs out. Only this package loads RDKit, and only when first needed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphlog.domains.molecule.schema import MOLECULE, MOLECULE_CIP, MOLECULE_RICH

if TYPE_CHECKING:
    from graphlog.domains.molecule.bundled import rdkit_file
    from graphlog.domains.molecule.descriptor import DESCRIPTORS, descriptors
    from graphlog.domains.molecule.drawing import draw_svg
    from graphlog.domains.molecule.fingerprint import morgan_fingerprints
    from graphlog.domains.molecule.identity import constitution_keys
    from graphlog.domains.molecule.murcko import canonical, scaffold, scaffold_groups
    from graphlog.domains.molecule.parse import featurize_smiles

__all__ = [
    "DESCRIPTORS",
    "MOLECULE",
    "MOLECULE_CIP",
    "MOLECULE_RICH",
    "canonical",
    "constitution_keys",
    "descriptors",
    "draw_svg",
    "featurize_smiles",
    "morgan_fingerprints",
    "rdkit_file",
    "scaffold",
    "scaffold_groups",
]

_HOMES = {
    "DESCRIPTORS": "descriptor",
    "canonical": "murcko",
    "constitution_keys": "identity",
    "descriptors": "descriptor",
    "draw_svg": "drawing",
    "featurize_smiles": "parse",
    "morgan_fingerprints": "fingerprint",
    "rdkit_file": "bundled",
    "scaffold": "murcko",
    "scaffold_groups": "murcko",
}


def __getattr__(name: str) -> Any:
    """Load the module that holds ``name`` on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return globals()[name]
