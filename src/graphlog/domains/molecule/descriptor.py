"""Descriptors that RDKit computes from the structure alone: labels that cost nothing."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32
from rdkit import rdBase
from rdkit.Chem import Descriptors

from graphlog.domains.molecule.refuse import parse_smiles

_UNSTEADY = ("Ipc", "SPS")
"""Left out: ``Ipc`` outgrows float32 with size; ``SPS`` is slow and absent in older releases."""
_CHARGES = ("MaxPartialCharge", "MinPartialCharge", "MaxAbsPartialCharge", "MinAbsPartialCharge")
"""Left out: not a number wherever an element has no Gasteiger parameters."""
_BCUT = "BCUT2D_"
"""Left out by prefix: fails on the same elements."""
_LARGEST = 1e6

_TABLE = [
    (name, f)
    for name, f in Descriptors.descList
    if name not in (*_UNSTEADY, *_CHARGES) and not name.startswith(_BCUT)
]
DESCRIPTORS: tuple[str, ...] = tuple(name for name, _ in _TABLE)
"""Names of the columns of :func:`descriptors`, in order."""


def descriptors(
    smiles: Sequence[str], names: Sequence[str] = DESCRIPTORS
) -> Float32[np.ndarray, "N K"]:
    """Return RDKit's descriptors of each molecule; a NaN row where it cannot be parsed.

    Values are finite, clipped to plus or minus 1e6. A single descriptor that fails on a molecule it
    was not made for counts as 0.

    Args:
        smiles: Any texts.
        names: Which descriptors; all of ``DESCRIPTORS`` by default.
    """
    functions = dict(_TABLE)
    chosen = [functions[name] for name in names]
    out = np.full((len(smiles), len(chosen)), np.nan, dtype=np.float32)
    quiet = rdBase.BlockLogs()
    try:
        for row, text in enumerate(smiles):
            mol = parse_smiles(text)
            if not isinstance(mol, str):
                values = np.array([_value(f, mol) for f in chosen], dtype=np.float64)
                out[row] = np.clip(
                    np.nan_to_num(values, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST),
                    -_LARGEST,
                    _LARGEST,
                )
    finally:
        del quiet
    return out


def _value(f: object, mol: object) -> float:
    try:
        return float(f(mol))  # pyright: ignore[reportCallIssue]
    except Exception:  # each of 200 third-party functions fails in its own way on odd molecules
        return 0.0
