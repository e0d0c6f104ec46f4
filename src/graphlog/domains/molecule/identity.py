"""When two SMILES count as one molecule in keeping sets apart: whatever stereo and isotopes."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
from jaxtyping import UInt64
from rdkit import Chem, rdBase

from graphlog.data.chunk import EXCLUDED, GraphChunk
from graphlog.data.schema import FeatureSchema
from graphlog.domains.molecule.parse import featurize_smiles
from graphlog.domains.molecule.refuse import parse_smiles


def constitution_keys(smiles: Sequence[str]) -> UInt64[np.ndarray, "N"]:
    """Return a number for each SMILES, equal for equal molecules; 0 where it cannot be parsed.

    Molecules are equal where their canonical SMILES without stereo and isotopes are. The numbers
    are the first eight bytes of a hash: among a billion molecules one pair in forty such lists
    would share one by chance.
    """
    keys = np.zeros(len(smiles), dtype=np.uint64)
    quiet = rdBase.BlockLogs()
    try:
        for row, text in enumerate(smiles):
            mol = parse_smiles(text)
            if not isinstance(mol, str):
                name = Chem.MolToSmiles(mol, isomericSmiles=False)
                keys[row] = (
                    int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1
                )
    finally:
        del quiet
    return keys


def featurize_unless(
    texts: Sequence[str], schema: FeatureSchema, unwanted: UInt64[np.ndarray, "K"]
) -> tuple[GraphChunk, list[tuple[int, str]]]:
    """Do what ``featurize_smiles`` does with the molecules whose keys are not ``unwanted``."""
    is_unwanted = np.isin(constitution_keys(texts), unwanted)
    wanted = np.flatnonzero(~is_unwanted)
    chunk, refused = featurize_smiles([texts[k] for k in wanted.tolist()], schema)
    rejects = [(int(wanted[k]), reason) for k, reason in refused]
    rejects += [(int(k), EXCLUDED) for k in np.flatnonzero(is_unwanted)]
    return replace(chunk, rows=wanted[chunk.rows]), rejects
