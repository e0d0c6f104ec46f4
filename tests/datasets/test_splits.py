"""Splits of molecules deal the same rows as ever: else scores of versions are incomparable."""

import hashlib

import numpy as np
import pytest

from graphlog.api import read_molecules
from graphlog.domains.molecule.scaffolds import SPLITS, scaffold_split

PINNED = {
    "scaffold": "2b7d78711645d83ec3c704708ce9e846b63ffd9db2b44d79822d54b19a0b7852",
    "scaffold-balanced": "8cb25580b14536ad0cd1fa7d3b9d89b88ed256445aa2a0d8862af2a02cd3c4f5",
    "random-scaffold": "e0ed58db7ad36f07adf065c0b43ca6ec40bcc9cd3d9a5844ea564d609e01ea74",
    "random": "bcc08153d05335dfade83c0434ce901435d8ce4fd805e907465d1a664fdbcbc0",
}
"""Hash of train, valid and test, one after the other as little-endian int64.

Of the first 1,000 molecules of nci5k with seed 0.
"""


@pytest.fixture(scope="module")
def smiles() -> list[str]:
    return list(read_molecules("nci5k", limit=1000, workers=1).texts())


@pytest.mark.parametrize("kind", SPLITS)
def test_rows_of_a_kind_are_pinned(kind: str, smiles: list[str]) -> None:
    rows = np.concatenate(scaffold_split(smiles, (0.8, 0.1, 0.1), kind, seed=0, workers=1))
    assert hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest() == PINNED[kind]
