"""Morgan (ECFP) fingerprints: the baseline that every learned embedding is shown beside."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from rdkit import rdBase
from rdkit.Chem import rdFingerprintGenerator

from graphlog.domains.molecule.refuse import parse_smiles
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
    quiet = rdBase.BlockLogs()
    try:
        for row, text in enumerate(smiles):
            mol = parse_smiles(text)
            if isinstance(mol, str):
                raise DataError(f"no fingerprint for {str(text)[:80]!r} (row {row}): {mol}.")
            out[row] = generator.GetFingerprintAsNumPy(mol)
    finally:
        del quiet
    return out
