"""What molecules are described by without learning: descriptors and fingerprints.

The descriptors are RDKit's, all at once in a fraction of the time: whatever several of them are
made of (contributions of atoms, paths, degrees) is worked out once. Both see a molecule as
``molecule-cip`` does: without isotopes, and bonds to metals in one form.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, UInt8
from rdkit import Chem
from rdkit.Chem import Descriptors, Fragments, rdFingerprintGenerator, rdMolDescriptors
from rdkit.Chem.EState.EState import GetPrincipleQuantumNumber
from rdkit.Chem.EState.EState_VSA import estateBins, vsaBins
from rdkit.Chem.MolSurf import logpBins, mrBins
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from graphlog.data.graphs import ragged_ranges
from graphlog.domains.molecule.parse import parsed_in_one_form
from graphlog.domains.molecule.schema import FRAGMENTS, ONE_BY_ONE, TARGETS
from graphlog.errors import DataError

Array = np.ndarray

_LARGEST = 65504.0
"""The largest number of two bytes, in which the values are kept."""
_FAR = 1e6
"""RDKit's distance between two parts of a salt, and more."""
_TABLE = Chem.GetPeriodicTable()
_OUTER = np.array([0, *(_TABLE.GetNOuterElecs(z) for z in range(1, 119))])
_SHELL = np.array([GetPrincipleQuantumNumber(z) for z in range(119)])
_CORE = np.maximum(np.arange(119) - _OUTER - 1, 1)
"""Hall and Kier divide an atom's delta by this from sodium on."""
_ESTATE_BINS, _VSA_BINS = np.array(estateBins), np.array(vsaBins)
_LOGP_BINS, _REFRACTIVITY_BINS = np.array(logpBins), np.array(mrBins)
_FEW_ATOMS = 300
"""Atoms up to which distances are RDKit's, which take time by the third power."""
MOST_DESCRIBED = 5000
"""Atoms beyond which electrotopological states count as 0: they take time by the second power."""
MOST_PAIRED = 500
"""Atoms beyond which there are no atom pairs: RDKit's take time by the third power, here 0.3 s."""
_CONNECTIVITY = 10
"""The first of the descriptors asked for one by one: made of paths here."""
_SINGLE = [getattr(rdMolDescriptors, function) for _, function in ONE_BY_ONE[_CONNECTIVITY:]]
_PATTERNS = [getattr(Fragments, name).__defaults__[1] for name in FRAGMENTS]
_area_contributions: Any = getattr(rdMolDescriptors, "_CalcLabuteASAContribs")  # noqa: B009 - private only in name: RDKit's own Python uses it
_crippen_contributions: Any = getattr(rdMolDescriptors, "_CalcCrippenContribs")  # noqa: B009
_molecular_weight: Any = getattr(Descriptors, "MolWt")  # noqa: B009 - without types
_heavy_weight: Any = getattr(Descriptors, "HeavyAtomMolWt")  # noqa: B009


def target_values(smiles: Sequence[str]) -> Float32[np.ndarray, "N K"]:
    """Return the descriptors ``TARGETS`` of each molecule, finite; a NaN row where parsing fails.

    A group of descriptors that fails on a molecule it was not made for counts as 0.
    """
    out = np.full((len(smiles), len(TARGETS)), np.nan, dtype=np.float32)
    for row, mol in enumerate(parsed_in_one_form(smiles)):
        if not isinstance(mol, str):
            out[row] = np.clip(np.nan_to_num(_values(mol)), -_LARGEST, _LARGEST)
    return out


Trails = list[tuple[Int[Array, "_ _"], int]]
"""Trails of one number of bonds, each a row of atoms, and how often each is listed."""


def find_trails(ends: Int[Array, "B 2"], num_atoms: int) -> list[Trails]:
    """Return the trails of 0, 1, 2, 3 and 4 bonds, and how often each is listed.

    A trail is listed in both directions. One that ends where it began, a ring of three or four, is
    listed without its last atom, from every atom in both directions: six or eight times.
    """
    bonds = np.concatenate([ends, ends[:, ::-1]])
    bonds = bonds[np.argsort(bonds[:, 0], kind="stable")]
    degree = np.bincount(bonds[:, 0], minlength=num_atoms)
    first = np.cumsum(degree) - degree

    def longer(trails: Array) -> Array:
        last = trails[:, -1]
        row = np.repeat(np.arange(len(trails)), degree[last])
        grown = bonds[ragged_ranges(first[last], degree[last]), 1:]
        grown = np.concatenate([trails[row], grown], axis=1)
        return grown[grown[:, -1] != trails[row, -2]]

    two = longer(bonds)
    three = longer(two)
    is_triangle = three[:, 3] == three[:, 0]
    four = longer(three[~is_triangle])
    is_square = four[:, 4] == four[:, 0]
    return [
        [(np.arange(num_atoms)[:, None], 1)],
        [(ends, 1)],
        [(two, 2)],
        [(three[~is_triangle], 2), (three[is_triangle, :3], 6)],
        [(four[~is_square], 2), (four[is_square, :4], 8)],
    ]


def connectivity(trails: list[Trails], delta: Float[Array, "V"]) -> list[float]:
    r"""Return the indices of order 0 to 4: sums over trails of :math:`\prod_v \delta_v^{-1/2}`.

    An atom with a delta of 0 counts as 0. In a ring of three with a tail the atom that both share
    is counted twice, as RDKit has it.
    """
    weight = np.zeros(len(delta))
    np.power(delta, -0.5, out=weight, where=delta > 0)
    return [sum(weight[t].prod(axis=1).sum().item() / times for t, times in of) for of in trails]


class _Facts:
    """What the groups of descriptors are made of."""

    def __init__(self, mol: Chem.Mol) -> None:
        self.mol = mol
        atoms = list(map(mol.GetAtomWithIdx, range(mol.GetNumAtoms())))
        bonds = list(map(mol.GetBondWithIdx, range(mol.GetNumBonds())))
        self.number = np.array(list(map(Chem.Atom.GetAtomicNum, atoms)))
        self.degree = np.array(list(map(Chem.Atom.GetDegree, atoms)))
        self.hydrogens = np.array(list(map(Chem.Atom.GetTotalNumHs, atoms)))
        self.charge = sum(map(Chem.Atom.GetFormalCharge, atoms))
        self.radicals = sum(map(Chem.Atom.GetNumRadicalElectrons, atoms))
        begin = list(map(Chem.Bond.GetBeginAtomIdx, bonds))
        self.ends = np.array([begin, list(map(Chem.Bond.GetEndAtomIdx, bonds))], dtype=np.int64).T
        self.trails = find_trails(self.ends, len(atoms))
        self.areas = np.array(_area_contributions(mol, includeHs=True)[0])
        self.heavy = int((self.number > 1).sum())


def _values(mol: Chem.Mol) -> np.ndarray:
    facts = _Facts(mol)
    values: list[float] = []
    for width, group in _GROUPS:
        try:
            values += group(facts)
        except Exception:  # each of RDKit's functions fails in its own way on odd molecules
            values += [0.0] * width
    return np.array(values, dtype=np.float64)


def _binned(bins: np.ndarray, by: np.ndarray, values: np.ndarray) -> list[float]:
    """Return the sums of ``values`` by where ``by`` falls between ``bins``."""
    return np.bincount(np.searchsorted(bins, by, "right"), values, len(bins) + 1).tolist()


def _surface(facts: _Facts) -> list[float]:
    """Crippen's logP and refractivity, and the surface by logP, by refractivity and by charge."""
    every = np.array(_crippen_contributions(Chem.AddHs(facts.mol))).reshape(-1, 2)
    own = every[: len(facts.number)]  # an atom's type is the same without the hydrogens drawn
    by_logp = _binned(_LOGP_BINS, own[:, 0], facts.areas)
    by_refractivity = _binned(_REFRACTIVITY_BINS, own[:, 1], facts.areas)
    by_charge = rdMolDescriptors.PEOE_VSA_(facts.mol)
    return [*every.sum(axis=0).tolist(), *by_logp, *by_refractivity, *by_charge]


def _electrotopology(facts: _Facts) -> list[float]:
    """Hall and Kier's electrotopological states: extremes, sums by surface, surface by state."""
    valence = _OUTER[facts.number] - facts.hydrogens
    degree = np.maximum(facts.degree, 1)
    intrinsic = (4.0 / _SHELL[facts.number] ** 2 * valence + 1) / degree * (facts.degree > 0)
    state = intrinsic + np.concatenate(
        [
            np.where(distance < _FAR, (own[:, None] - intrinsic) / (distance + 1) ** 2, 0.0).sum(1)
            for own, distance in _distances(facts, intrinsic)
        ]
    )
    size = np.abs(state)
    extremes = [float(state.max()), float(state.min()), float(size.max()), float(size.min())]
    by_state = _binned(_ESTATE_BINS, state, facts.areas)
    return [*extremes, *by_state, *_binned(_VSA_BINS, facts.areas, state)]


def _distances(
    facts: _Facts, values: Float[Array, "V"]
) -> Iterator[tuple[Float[Array, "R"], Float[Array, "R V"]]]:
    """Yield the values of some atoms and their distances from all, in bonds; infinite if apart."""
    size = len(facts.number)
    if size <= _FEW_ATOMS:
        yield values, Chem.GetDistanceMatrix(facts.mol, useBO=False, useAtomWts=False)
        return
    if size > MOST_DESCRIBED:
        raise DataError(f"{size:,} atoms are too many for electrotopological states.")
    ones = np.ones(len(facts.ends))
    bonds = csr_matrix((ones, (facts.ends[:, 0], facts.ends[:, 1])), shape=(size, size))
    for start in range(0, size, _FEW_ATOMS):
        some = np.arange(start, min(start + _FEW_ATOMS, size))
        yield values[some], dijkstra(bonds, directed=False, indices=some, unweighted=True)


def _counted(facts: _Facts) -> list[float]:
    """Two connectivity indices and six counts, from degrees, elements, charges and hydrogens."""
    degree = facts.degree[facts.degree > 0]
    n_or_o = (facts.number == 7) | (facts.number == 8)
    return [
        float((degree**-0.5).sum()),
        float((facts.degree[facts.ends].prod(axis=1) ** -0.5).sum()),
        int(_OUTER[facts.number].sum()) - facts.charge + int(facts.hydrogens.sum()),
        facts.radicals,
        facts.heavy,
        int(facts.hydrogens[n_or_o].sum()),
        int(n_or_o.sum()),
        int(((facts.number != 1) & (facts.number != 6)).sum()),
    ]


def _shape(facts: _Facts) -> list[float]:
    """Kier's kappas, and the flexibility made of the first two."""
    alpha = rdMolDescriptors.CalcHallKierAlpha(facts.mol)
    size = facts.heavy + alpha
    one, two, three = (sum(len(t) / times for t, times in of) for of in facts.trails[1:4])
    first = _ratio(size * (size - 1) ** 2, one + alpha)
    second = _ratio((size - 1) * (size - 2) ** 2, two + alpha)
    third = _ratio((size - 2 + facts.heavy % 2) * (size - 3) ** 2, three + alpha)
    return [first, second, third, first * second / max(facts.heavy, 1)]


def _ratio(above: float, below: float) -> float:
    return above / below**2 if below else 0.0


def _indices(facts: _Facts) -> list[float]:
    """Kier and Hall's connectivity indices of order 0 to 4, by sigma electrons and by valence."""
    simple = (_OUTER[facts.number] - facts.hydrogens).astype(float)
    valence = np.where(facts.number > 10, simple / _CORE[facts.number], simple * (facts.number > 1))
    return connectivity(facts.trails, simple) + connectivity(facts.trails, valence)


_GROUPS: tuple[tuple[int, Callable[[_Facts], list[float]]], ...] = (
    (38, _surface),
    (25, _electrotopology),
    (8, _counted),
    (4, _shape),
    (_CONNECTIVITY, _indices),
    (len(_SINGLE), lambda facts: [function(facts.mol) for function in _SINGLE]),
    (2, lambda facts: [_molecular_weight(facts.mol), _heavy_weight(facts.mol)]),
    (len(FRAGMENTS), lambda facts: [len(facts.mol.GetSubstructMatches(p)) for p in _PATTERNS]),
)


BITS = 2048
"""Length of a fingerprint."""


def morgan_fingerprints(smiles: Sequence[str]) -> UInt8[np.ndarray, "N 2048"]:
    """Return the 0/1 Morgan fingerprint of radius 2 (ECFP4) of each molecule.

    Raises:
        DataError: Naming the first SMILES that cannot be parsed.
    """
    out = np.zeros((len(smiles), BITS), dtype=np.uint8)
    for row, bits in enumerate(_fingerprints(smiles, "GetFingerprintAsNumPy")):
        out[row] = bits
    return out


def morgan_counts(smiles: Sequence[str]) -> csr_matrix:
    """Return how often each of 2048 hashed Morgan environments of radius 2 occurs (ECFP4 counts).

    Raises:
        DataError: Naming the first SMILES that cannot be parsed.
    """
    return _sparse(_fingerprints(smiles, "GetCountFingerprintAsNumPy"), BITS)


def _fingerprints(smiles: Sequence[str], kind: str) -> Iterator[np.ndarray]:
    make = getattr(rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS), kind)
    for row, mol in enumerate(parsed_in_one_form(smiles)):
        if isinstance(mol, str):
            raise DataError(f"no fingerprint for {str(smiles[row])[:80]!r} (row {row}): {mol}.")
        yield make(mol)


def count_fingerprints(smiles: Sequence[str]) -> csr_matrix:
    """Return log(1 + count) of hashed Morgan environments (radius 2), atom pairs and torsions.

    Molecules of more than :data:`MOST_PAIRED` atoms have no atom pairs, and what cannot be parsed
    has an empty row.
    """
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS)
    pairs = rdFingerprintGenerator.GetAtomPairGenerator(fpSize=BITS)
    torsions = rdFingerprintGenerator.GetTopologicalTorsionGenerator(fpSize=BITS)

    def counts(mol: Chem.Mol) -> np.ndarray:
        found = np.zeros((3, BITS), dtype=np.uint32)
        if not isinstance(mol, str):
            found[0] = morgan.GetCountFingerprintAsNumPy(mol)
            if mol.GetNumAtoms() <= MOST_PAIRED:
                found[1] = pairs.GetCountFingerprintAsNumPy(mol)
            found[2] = torsions.GetCountFingerprintAsNumPy(mol)
        return found.reshape(-1)

    found = _sparse(map(counts, parsed_in_one_form(smiles)), 3 * BITS)
    logs = np.log1p(found.data).astype(np.float32)
    return csr_matrix((logs, found.indices, found.indptr), shape=found.shape)


def _sparse(rows: Iterable[np.ndarray], width: int) -> csr_matrix:
    """Return rows of counts, most of them 0, as one matrix."""
    columns, counts, ends = [np.zeros(0, np.int32)], [np.zeros(0, np.uint32)], [0]
    for row in rows:
        present = np.flatnonzero(row).astype(np.int32)
        columns.append(present)
        counts.append(row[present])
        ends.append(ends[-1] + len(present))
    shape = len(ends) - 1, width
    return csr_matrix((np.concatenate(counts), np.concatenate(columns), ends), shape=shape)
