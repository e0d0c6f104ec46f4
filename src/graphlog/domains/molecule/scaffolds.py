"""Bemis-Murcko scaffolds of molecules, and splits that keep molecules of one scaffold together."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from graphlog.data.split import (
    DEFAULT_FRACTIONS,
    GroupRule,
    Split,
    check_fractions,
    group_split,
    random_split,
)
from graphlog.data.workers import spread_texts
from graphlog.domains.molecule.parse import is_flat, parse_smiles, parsed
from graphlog.errors import DataError, check_name

SPLITS: dict[str, GroupRule | None] = {
    "scaffold": "largest-first",
    "scaffold-balanced": "balanced",
    "random-scaffold": "random",
    "random": None,
}
"""Kinds of split of molecules, and how each assigns scaffolds to sets; ``random`` ignores them."""
_MAX_RINGS = 250
"""Largest number of rings for which RDKit finds scaffolds quickly; beyond it, a molecule is its own
scaffold."""


def scaffolds(smiles: Sequence[str], canonical_first: bool = False) -> list[str | None]:
    """Return the SMILES of the scaffold of each molecule: its rings and the chains between them.

    It is empty for a molecule without rings, and None if parsing fails. Chirality is kept.

    Args:
        smiles: The molecules.
        canonical_first: Whether to compute scaffolds from canonical SMILES. Otherwise it may depend
            on how a SMILES is written whether RDKit keeps the stereo of a scaffold.

    Example:
        >>> scaffolds(["CCc1ccccc1", "CC", "C1CC"])
        ['c1ccccc1', '', None]
    """
    found: list[str | None] = []
    for text, mol in zip(smiles, parsed(smiles), strict=True):
        if canonical_first and not isinstance(mol, str) and not is_flat(text):
            mol = parse_smiles(Chem.MolToSmiles(mol))
        found.append(None if isinstance(mol, str) else _scaffold_of(mol))
    return found


def _scaffold_of(mol: Chem.Mol) -> str:
    rings = mol.GetRingInfo().NumRings()
    if not rings:
        return ""
    if rings > _MAX_RINGS:
        return Chem.MolToSmiles(mol)
    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=True)


def scaffold_split(
    smiles: Sequence[str],
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    kind: str = "scaffold",
    seed: int = 0,
    workers: int | None = None,
    canonical: bool = False,
) -> Split:
    """Return training, validation and test rows; molecules with one Murcko scaffold stay together.

    Molecules are split as they are written, as in the pre-train-GNNs family. In contrast, tables
    for fine-tuning and probing are split by the parents of salts and charged forms.

    Args:
        smiles: Molecules; one that cannot be parsed is a group of its own.
        fractions: Fractions of the three sets; they sum to 1.
        kind: ``scaffold`` (largest first), ``scaffold-balanced``, ``random-scaffold``, ``random``.
        seed: Random seed of the kinds that shuffle.
        workers: Number of processes that find scaffolds; None uses every core, or a single process
            for few molecules.
        canonical: Whether to compute scaffolds from canonical SMILES, as the pre-train-GNNs family
            does for BBBP, ClinTox and ToxCast. They can differ in the chirality that is kept.

    Raises:
        ConfigError: If the kind is unknown or the fractions are not valid.
        DataError: If the training set would be empty, or ``smiles`` is not a list or column.

    Example:
        >>> smiles = ["c1ccccc1C", "c1ccccc1", "CCO", "CCN", "C1CCCCC1"]
        >>> split = scaffold_split(smiles, fractions=(0.6, 0.2, 0.2))
        >>> [len(part) for part in split]  # a group that does not fit goes to the next set
        [3, 2, 0]
    """
    is_table = hasattr(smiles, "columns") or hasattr(smiles, "texts")  # a frame, a store
    if is_table or isinstance(smiles, str | bytes | Path | dict):
        raise DataError(
            f"cannot split a {type(smiles).__name__}; give a list or column of SMILES (of a store: "
            "its `texts()`), or split a file or data set with `graphlog.split_file`."
        )
    check_name("split of molecules", kind, SPLITS)
    check_fractions(fractions)
    if not len(smiles):
        raise DataError("there are no molecules to split; give at least one.")
    rule = SPLITS[kind]
    if rule is None:
        return random_split(len(smiles), fractions, seed)
    parts = spread_texts(partial(scaffolds, canonical_first=canonical), smiles, workers)
    return group_split([scaffold for part in parts for scaffold in part], fractions, rule, seed)
