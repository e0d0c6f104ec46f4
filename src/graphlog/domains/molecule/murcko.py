"""Bemis-Murcko scaffolds, which a scaffold split must not tear apart, and canonical SMILES."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64
from rdkit import Chem, rdBase
from rdkit.Chem.Scaffolds import MurckoScaffold

from graphlog.domains.molecule.refuse import parse_smiles
from graphlog.errors import DataError

_MOST_RINGS = 250
"""Rings beyond which RDKit takes seconds to minutes for a scaffold; such a molecule is its own."""


def scaffold(smiles: str, chirality: bool = True) -> str:
    """Return the SMILES of the molecule's rings and the chains that join them; empty without rings.

    Raises:
        DataError: If it cannot be parsed.

    Example:
        >>> scaffold("CCc1ccccc1")
        'c1ccccc1'
    """
    key = scaffolds([smiles], chirality)[0]
    if key is None:
        raise DataError(f"no scaffold for {smiles[:80]!r}: it cannot be parsed.")
    return key


def scaffolds(
    smiles: Sequence[str], chirality: bool = True, canonical_first: bool = False
) -> list[str | None]:
    """Return :func:`scaffold` of each SMILES, or its canonical SMILES; None where parsing fails."""
    found: list[str | None] = []
    quiet = rdBase.BlockLogs()
    try:
        for text in smiles:
            mol = parse_smiles(text)
            if canonical_first and not isinstance(mol, str):
                mol = parse_smiles(Chem.MolToSmiles(mol))
            found.append(None if isinstance(mol, str) else _scaffold_of(mol, chirality))
    finally:
        del quiet
    return found


def _scaffold_of(mol: Any, chirality: bool) -> str:
    rings = mol.GetRingInfo().NumRings()
    if not rings:
        return ""
    if rings > _MOST_RINGS:
        return Chem.MolToSmiles(mol, isomericSmiles=chirality)
    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=chirality)


def scaffold_groups(smiles: Sequence[str], chirality: bool = True) -> Int64[np.ndarray, "N"]:
    """Return a number for each molecule, equal for equal scaffolds, in order of first appearance.

    A SMILES that cannot be parsed has no scaffold and makes a group of its own; molecules without
    rings share the empty one.

    Example:
        >>> scaffold_groups(["Cc1ccccc1", "CC", "C1CC", "CCc1ccccc1", "CCC"]).tolist()
        [0, 1, 2, 0, 1]
    """
    return group_numbers(scaffolds(smiles, chirality))


def group_numbers(keys: Sequence[str | None]) -> Int64[np.ndarray, "N"]:
    """Number the keys by first appearance, equal keys alike; None is equal to nothing."""
    numbers: dict[object, int] = {}
    return np.array(
        [
            numbers.setdefault((row,) if key is None else key, len(numbers))
            for row, key in enumerate(keys)
        ],
        dtype=np.int64,
    )


def canonical(smiles: str) -> str:
    """Return RDKit's canonical SMILES, stereo kept.

    Raises:
        DataError: If it cannot be parsed.
    """
    quiet = rdBase.BlockLogs()
    try:
        mol = parse_smiles(smiles)
    finally:
        del quiet
    if isinstance(mol, str):
        raise DataError(f"{smiles[:80]!r} cannot be made canonical: {mol}.")
    return Chem.MolToSmiles(mol)
