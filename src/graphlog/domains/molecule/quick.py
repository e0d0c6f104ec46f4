"""All target descriptors of a molecule at once: RDKit's values, at a fraction of the time of asking for one after the other.

Whatever several descriptors are made of (contributions of atoms, distances, degrees) is worked out once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32
from rdkit import Chem, rdBase
from rdkit.Chem import Descriptors, Fragments, rdMolDescriptors
from rdkit.Chem.EState.EState import GetPrincipleQuantumNumber
from rdkit.Chem.EState.EState_VSA import estateBins, vsaBins

from graphlog.domains.molecule.refuse import parse_smiles
from graphlog.domains.molecule.targets import FRAGMENTS, ONE_BY_ONE, TARGETS

_LARGEST = 65504.0
"""The largest number of two bytes, in which the values are kept."""
_FAR = 1e6
"""RDKit's distance between two parts of a salt, and more."""
_HETERO = frozenset({1, 6})
_TABLE = Chem.GetPeriodicTable()
_OUTER = [0, *(_TABLE.GetNOuterElecs(z) for z in range(1, 119))]
_SHELL = [GetPrincipleQuantumNumber(z) for z in range(119)]
_ESTATE_BINS, _VSA_BINS = np.array(estateBins), np.array(vsaBins)
_SINGLE = [getattr(rdMolDescriptors, function) for _, function in ONE_BY_ONE]
_PATTERNS = [getattr(Fragments, name) for name in FRAGMENTS]


def target_values(smiles: Sequence[str]) -> Float32[np.ndarray, "N K"]:
    """Return the descriptors ``TARGETS`` of each molecule, finite; a NaN row where it cannot be parsed.

    A group of descriptors that fails on a molecule it was not made for counts as 0.
    """
    out = np.full((len(smiles), len(TARGETS)), np.nan, dtype=np.float32)
    quiet = rdBase.BlockLogs()
    try:
        for row, text in enumerate(smiles):
            mol = parse_smiles(text)
            if not isinstance(mol, str):
                out[row] = np.clip(
                    np.nan_to_num(_values(mol), nan=0.0, posinf=_LARGEST, neginf=-_LARGEST),
                    -_LARGEST,
                    _LARGEST,
                )
    finally:
        del quiet
    return out


def _values(mol: Any) -> np.ndarray:
    values: list[float] = []
    for width, group in _GROUPS:
        try:
            values += group(mol)
        except Exception:  # each of RDKit's functions fails in its own way on odd molecules
            values += [0.0] * width
    return np.array(values, dtype=np.float64)


def _areas(mol: Any) -> list[float]:
    """Crippen's logP and refractivity, and the surface by logP, by refractivity and by charge."""
    crippen = rdMolDescriptors.CalcCrippenDescriptors(mol)
    by_logp, by_refractivity = rdMolDescriptors.SlogP_VSA_(mol), rdMolDescriptors.SMR_VSA_(mol)
    return [*crippen, *by_logp, *by_refractivity, *rdMolDescriptors.PEOE_VSA_(mol)]


def _electrotopology(mol: Any) -> list[float]:
    """Hall and Kier's electrotopological states: their extremes, and their sums by surface and the other way round."""
    atoms = list(mol.GetAtoms())
    degree = np.array([a.GetDegree() for a in atoms])
    number = [a.GetAtomicNum() for a in atoms]
    intrinsic = np.zeros(len(atoms))
    for k, atom in enumerate(atoms):
        if degree[k] > 0:
            valence = _OUTER[number[k]] - atom.GetTotalNumHs()
            intrinsic[k] = (4.0 / _SHELL[number[k]] ** 2 * valence + 1) / degree[k]
    distance = Chem.GetDistanceMatrix(mol, useBO=False, useAtomWts=False) + 1
    pull = np.where(distance < _FAR, (intrinsic[:, None] - intrinsic) / distance**2, 0.0)
    state = intrinsic + pull.sum(axis=1)
    area = np.array(rdMolDescriptors._CalcLabuteASAContribs(mol, includeHs=True)[0])
    size = np.abs(state)
    by_state = np.bincount(
        np.searchsorted(_ESTATE_BINS, state, "right"), area, len(_ESTATE_BINS) + 1
    )
    by_area = np.bincount(np.searchsorted(_VSA_BINS, area, "right"), state, len(_VSA_BINS) + 1)
    return [
        float(state.max()),
        float(state.min()),
        float(size.max()),
        float(size.min()),
        *by_state.tolist(),
        *by_area.tolist(),
    ]


def _counted(mol: Any) -> list[float]:
    """What follows from degrees, elements, charges and hydrogens: two connectivity indices and six counts."""
    atoms = list(mol.GetAtoms())
    degree = [a.GetDegree() for a in atoms]
    number = [a.GetAtomicNum() for a in atoms]
    hydrogens = [a.GetTotalNumHs() for a in atoms]
    ends = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()]
    outer = sum(_OUTER[z] for z in number)
    charge = sum(a.GetFormalCharge() for a in atoms)
    return [
        sum(d**-0.5 for d in degree if d),
        sum((degree[a] * degree[b]) ** -0.5 for a, b in ends),
        outer - charge + sum(hydrogens),
        sum(a.GetNumRadicalElectrons() for a in atoms),
        sum(z > 1 for z in number),
        sum(h for z, h in zip(number, hydrogens, strict=True) if z in (7, 8)),
        sum(z in (7, 8) for z in number),
        sum(z not in _HETERO for z in number),
    ]


def _shape(mol: Any) -> list[float]:
    """Kier's kappas, and the flexibility made of the first two."""
    first, second = rdMolDescriptors.CalcKappa1(mol), rdMolDescriptors.CalcKappa2(mol)
    return [first, second, rdMolDescriptors.CalcKappa3(mol), first * second / mol.GetNumAtoms()]


def _single(mol: Any) -> list[float]:
    return [function(mol) for function in _SINGLE]


def _weights(mol: Any) -> list[float]:
    return [Descriptors.MolWt(mol), Descriptors.HeavyAtomMolWt(mol)]


def _fragments(mol: Any) -> list[float]:
    return [pattern(mol) for pattern in _PATTERNS]


_GROUPS = (
    (38, _areas),
    (25, _electrotopology),
    (8, _counted),
    (4, _shape),
    (len(_SINGLE), _single),
    (2, _weights),
    (len(FRAGMENTS), _fragments),
)
