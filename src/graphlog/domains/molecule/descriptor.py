"""RDKit's descriptors and fingerprints: baselines beside every embedding, and counts to learn from.

Some descriptors describe a group of molecules to a chemist.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, UInt8
from rdkit.Chem import Descriptors, rdFingerprintGenerator
from scipy.sparse import csr_matrix

from graphlog.domains.base import GraphFeature
from graphlog.domains.molecule.parse import parsed
from graphlog.errors import DataError

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
    for row, mol in enumerate(parsed(smiles)):
        if not isinstance(mol, str):
            values = np.nan_to_num(
                [_value(f, mol) for f in chosen], posinf=_LARGEST, neginf=-_LARGEST
            )
            out[row] = np.clip(values, -_LARGEST, _LARGEST)
    return out


def _value(f: object, mol: object) -> float:
    try:
        return float(f(mol))  # pyright: ignore[reportCallIssue]
    except Exception:  # each of 200 third-party functions fails in its own way on odd molecules
        return 0.0


_PROPERTIES = {
    "MolWt": "molecular weight",
    "MolLogP": "logP",
    "TPSA": "polar surface area",
    "NumHDonors": "hydrogen-bond donors",
    "NumHAcceptors": "hydrogen-bond acceptors",
    "NumRotatableBonds": "rotatable bonds",
    "NumAromaticRings": "aromatic rings",
    "NumAliphaticRings": "aliphatic rings",
    "FractionCSP3": "sp3 carbons, share",
    "qed": "drug-likeness (QED)",
}
_FRAGMENTS = {
    "fr_halogen": "halogen",
    "fr_amide": "amide",
    "fr_ester": "ester",
    "fr_ether": "ether",
    "fr_nitro": "nitro group",
    "fr_nitrile": "nitrile",
    "fr_sulfonamd": "sulfonamide",
    "fr_sulfide": "thioether",
    "fr_COO": "carboxylic acid",
    "fr_Al_OH": "aliphatic hydroxyl",
    "fr_phenol": "phenol",
    "fr_NH2": "primary amine",
    "fr_aniline": "aniline",
    "fr_urea": "urea",
    "fr_ketone": "ketone",
    "fr_piperzine": "piperazine",
    "fr_piperdine": "piperidine",
    "fr_morpholine": "morpholine",
    "fr_pyridine": "pyridine",
    "fr_imidazole": "imidazole",
    "fr_thiazole": "thiazole",
    "fr_thiophene": "thiophene",
    "fr_furan": "furan",
    "fr_tetrazole": "tetrazole",
    "fr_bicyclic": "fused rings",
}


def traits(smiles: Sequence[str]) -> list[GraphFeature]:
    """Return properties and functional groups of each molecule; some thousand take seconds."""
    table = descriptors(smiles, [*_PROPERTIES, *_FRAGMENTS]).astype(np.float64)
    count = len(_PROPERTIES)
    present = np.where(np.isnan(table[:, count:]), np.nan, table[:, count:] > 0)
    return [
        *(GraphFeature(name, "mean", table[:, k]) for k, name in enumerate(_PROPERTIES.values())),
        *(
            GraphFeature(f"with {name}", "share", present[:, k])
            for k, name in enumerate(_FRAGMENTS.values())
        ),
    ]


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
