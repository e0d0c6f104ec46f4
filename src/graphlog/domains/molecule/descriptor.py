"""RDKit's descriptors, and those of them that describe a group of molecules to a chemist."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32
from rdkit.Chem import Descriptors

from graphlog.domains.base import GraphFeature
from graphlog.domains.molecule.parse import parsed

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
