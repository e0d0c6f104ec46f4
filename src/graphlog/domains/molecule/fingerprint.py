"""Fingerprints: the baseline shown beside every learned embedding, and counts to learn from."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from rdkit.Chem import rdFingerprintGenerator
from scipy.sparse import csr_matrix

from graphlog.domains.molecule.parse import parsed
from graphlog.errors import DataError


def morgan_fingerprints(
    smiles: Sequence[str], radius: int = 2, bits: int = 2048
) -> UInt8[np.ndarray, "N B"]:
    """Return the 0/1 Morgan fingerprint of each molecule; radius 2 is ECFP4.

    Args:
        smiles: SMILES that can be parsed.
        radius: Bonds around each atom, 0 or more.
        bits: Length of the fingerprint, 1 or more.

    Raises:
        DataError: Naming the first SMILES that cannot be parsed.
    """
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=bits)
    out = np.zeros((len(smiles), bits), dtype=np.uint8)
    for row, mol in enumerate(parsed(smiles)):
        if isinstance(mol, str):
            raise DataError(f"no fingerprint for {str(smiles[row])[:80]!r} (row {row}): {mol}.")
        out[row] = generator.GetFingerprintAsNumPy(mol)
    return out


def count_fingerprints(smiles: Sequence[str], bits: int = 2048) -> csr_matrix:
    """Return log(1 + count) of hashed Morgan environments (radius 2), atom pairs and torsions.

    Args:
        smiles: Any texts; one that cannot be parsed has an empty row.
        bits: Columns of each of the three.
    """
    generators = (
        rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=bits),
        rdFingerprintGenerator.GetAtomPairGenerator(fpSize=bits),
        rdFingerprintGenerator.GetTopologicalTorsionGenerator(fpSize=bits),
    )
    columns: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    lengths: list[int] = []
    for mol in parsed(smiles):
        present = np.zeros(0, dtype=np.int64)
        if not isinstance(mol, str):
            count = np.concatenate([g.GetCountFingerprintAsNumPy(mol) for g in generators])
            present = np.flatnonzero(count)
            counts.append(np.log1p(count[present]))
        columns.append(present)
        lengths.append(len(present))
    return csr_matrix(
        (
            np.concatenate([*counts, np.zeros(0)]).astype(np.float32),
            np.concatenate([*columns, np.zeros(0, dtype=np.int64)]).astype(np.int32),
            np.cumsum([0, *lengths]),
        ),
        shape=(len(smiles), 3 * bits),
    )
