"""When two SMILES are the same molecule, and when two molecules share a Murcko scaffold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt64
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from graphlog.data.split import group_numbers
from graphlog.domains.molecule.parents import constitution_key
from graphlog.domains.molecule.parse import parse_smiles, parsed
from graphlog.errors import DataError

_MOST_RINGS = 250
"""Rings beyond which RDKit takes seconds to minutes for a scaffold; such a molecule is its own."""


def scaffold(smiles: str) -> str:
    """Return the SMILES of the molecule's rings and the chains that join them; empty without rings.

    Chirality is kept.

    Raises:
        DataError: If it cannot be parsed.

    Example:
        >>> scaffold("CCc1ccccc1")
        'c1ccccc1'
    """
    key = scaffolds([smiles])[0]
    if key is None:
        raise DataError(f"no scaffold for {smiles[:80]!r}: it cannot be parsed.")
    return key


def scaffolds(smiles: Sequence[str], canonical_first: bool = False) -> list[str | None]:
    """Return :func:`scaffold` of each SMILES, or its canonical SMILES; None where parsing fails."""
    keys: list[str | None] = []
    for mol in parsed(smiles):
        if canonical_first and not isinstance(mol, str):
            mol = parse_smiles(Chem.MolToSmiles(mol))
        keys.append(None if isinstance(mol, str) else _scaffold_of(mol))
    return keys


def _scaffold_of(mol: Any) -> str:
    rings = mol.GetRingInfo().NumRings()
    if not rings:
        return ""
    if rings > _MOST_RINGS:
        return Chem.MolToSmiles(mol)
    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=True)


def scaffold_groups(smiles: Sequence[str]) -> Int64[np.ndarray, "N"]:
    """Return a number for each molecule, equal for equal scaffolds, in order of first appearance.

    A SMILES that cannot be parsed has no scaffold and makes a group of its own; molecules without
    rings share the empty one.

    Example:
        >>> scaffold_groups(["Cc1ccccc1", "CC", "C1CC", "CCc1ccccc1", "CCC"]).tolist()
        [0, 1, 2, 0, 1]
    """
    return group_numbers(scaffolds(smiles))


def constitution_keys(smiles: Sequence[str]) -> UInt64[np.ndarray, "N"]:
    """Return a number for each SMILES, equal for equal molecules; 0 where it cannot be parsed.

    Molecules are equal where the canonical SMILES of their parents without stereo and isotopes
    are. The numbers are the first eight bytes of a hash: among a billion molecules one pair in
    forty such lists would share one by chance.
    """
    mols = zip(parsed(smiles), smiles, strict=True)
    keys = [0 if isinstance(mol, str) else constitution_key(mol, text) for mol, text in mols]
    return np.array(keys, dtype=np.uint64)
