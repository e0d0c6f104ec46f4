"""Folds of a list of molecules: by scaffold, the way the field reports its scores, or at random."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from graphlog.data.split import DEFAULT_FRACTIONS, Split, check_fractions, group_split, random_split
from graphlog.data.workers import check_workers, map_in_order
from graphlog.domains.molecule.murcko import group_numbers, scaffolds
from graphlog.errors import DataError, unknown_name

KINDS = {
    "scaffold": "largest-first",
    "scaffold-balanced": "balanced",
    "random-scaffold": "random",
    "random": None,
}
"""Kinds of split of molecules, and how whole scaffolds are dealt out in each."""
_SMILES_A_PIECE = 1000


def scaffold_split(smiles: Sequence[str], fractions: Sequence[float] = DEFAULT_FRACTIONS) -> Split:
    """Return the deterministic scaffold split of the pre-train-GNNs family: largest scaffolds first.

    Args:
        smiles: Molecules; one that cannot be parsed is a group of its own.
        fractions: Shares of train, valid and test; sum to 1.

    Raises:
        ConfigError: If the fractions do not fit.
        DataError: If there is nothing to train on.

    Example:
        >>> split = scaffold_split(["c1ccccc1C", "c1ccccc1", "CC", "C1CC1"], (0.5, 0.25, 0.25))
        >>> [part.tolist() for part in split]
        [[0, 1], [3], [2]]
    """
    return split_dataset(smiles, "scaffold", fractions)


def split_dataset(
    smiles: Sequence[str],
    kind: str = "scaffold",
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    workers: int | None = None,
    canonical: bool = False,
) -> Split:
    """Return the indices of the three folds.

    Args:
        smiles: Molecules; one that cannot be parsed is a group of its own.
        kind: ``scaffold`` (largest first, no chance), ``scaffold-balanced``, ``random-scaffold`` or ``random``.
        fractions: Shares of train, valid and test; sum to 1.
        seed: Seed of the kinds that shuffle.
        workers: Processes for the scaffolds; None takes every core, and none for few molecules.
        canonical: Whether to take the scaffold of the canonical SMILES, as the family does for BBBP, ClinTox and ToxCast;
            the two can differ in the chirality that a scaffold keeps.

    Raises:
        ConfigError: If the kind is unknown or the fractions do not fit.
        DataError: If there is nothing to train on.
    """
    if kind not in KINDS:
        raise unknown_name("split of molecules", kind, KINDS)
    check_fractions(fractions)
    if not len(smiles):
        raise DataError("there are no molecules to split; give at least one.")
    rule = KINDS[kind]
    if rule is None:
        return random_split(len(smiles), fractions, seed)
    return group_split(parallel_scaffold_groups(smiles, workers, canonical), fractions, rule, seed)


def parallel_scaffold_groups(
    smiles: Sequence[str], workers: int | None = None, canonical: bool = False
) -> Int64[np.ndarray, "N"]:
    """Return a number for each molecule, equal where scaffolds are equal, by first appearance, computed by several processes.

    Args:
        smiles: Molecules; one that cannot be parsed is a group of its own.
        workers: Processes; None takes every core, and none for few molecules.
        canonical: Whether to take the scaffold of the canonical SMILES.
    """
    starts = range(0, len(smiles), _SMILES_A_PIECE)
    pieces = ((None, [str(s) for s in smiles[k : k + _SMILES_A_PIECE]]) for k in starts)
    work = _canonical_scaffolds if canonical else scaffolds
    keys: list[str | None] = []
    for _, found in map_in_order(work, pieces, check_workers(workers)):
        keys.extend(found)
    return group_numbers(keys)


def _canonical_scaffolds(smiles: list[str]) -> list[str | None]:
    return scaffolds(smiles, canonical_first=True)
