"""Descriptors and fingerprints of molecules.

The descriptors are RDKit's. They are computed together, which takes a fraction of the time: what
several of them are made of (contributions of atoms, paths, degrees) is computed once. Descriptors
and fingerprints see a molecule as the schema ``molecule-cip`` does: without isotopes, and with
bonds to metals in one form.
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

_FLOAT16_MAX = 65504.0
"""Largest finite 16-bit float: the values are stored in 16 bits."""
_INFINITE_DISTANCE = 1e6
"""Distance from which atoms count as unconnected; RDKit's matrices have larger values for them."""
_TABLE = Chem.GetPeriodicTable()
_OUTER_ELECTRONS = np.array([0, *(_TABLE.GetNOuterElecs(z) for z in range(1, 119))])
_SHELL = np.array([GetPrincipleQuantumNumber(z) for z in range(119)])
_CORE_ELECTRONS = np.maximum(np.arange(119) - _OUTER_ELECTRONS - 1, 1)
"""Numbers by which Hall and Kier divide the delta of an atom, from sodium on."""
_ESTATE_BINS, _VSA_BINS = np.array(estateBins), np.array(vsaBins)
_LOGP_BINS, _REFRACTIVITY_BINS = np.array(logpBins), np.array(mrBins)
_FEW_ATOMS = 300
"""Largest number of atoms for which RDKit computes all distances at once, in cubic time."""
MAX_ESTATE_ATOMS = 5000
"""Largest number of atoms with electrotopological states, which take quadratic time; 0 beyond."""
MAX_PAIR_ATOMS = 500
"""Largest number of atoms for which atom pairs are counted, in cubic time (here 0.3 s)."""
_NUM_CONNECTIVITY = 10
"""Number of connectivity indices, the first of ``ONE_BY_ONE``; they are computed from trails."""
_SINGLE = [getattr(rdMolDescriptors, function) for _, function in ONE_BY_ONE[_NUM_CONNECTIVITY:]]
_PATTERNS = [getattr(Fragments, name).__defaults__[1] for name in FRAGMENTS]
_area_contributions: Any = getattr(rdMolDescriptors, "_CalcLabuteASAContribs")  # noqa: B009 - private only in name: RDKit's own Python uses it
_crippen_contributions: Any = getattr(rdMolDescriptors, "_CalcCrippenContribs")  # noqa: B009
_molecular_weight: Any = getattr(Descriptors, "MolWt")  # noqa: B009 - without types
_heavy_weight: Any = getattr(Descriptors, "HeavyAtomMolWt")  # noqa: B009


def target_values(smiles: Sequence[str]) -> Float32[np.ndarray, "N K"]:
    """Return the descriptors ``TARGETS`` of each molecule, finite; a NaN row where parsing fails.

    The descriptors of a group are 0 if their computation fails, as it may for unusual molecules.
    """
    out = np.full((len(smiles), len(TARGETS)), np.nan, dtype=np.float32)
    for row, mol in enumerate(parsed_in_one_form(smiles)):
        if not isinstance(mol, str):
            out[row] = np.clip(np.nan_to_num(_values(mol)), -_FLOAT16_MAX, _FLOAT16_MAX)
    return out


Trails = list[tuple[Int[Array, "_ _"], int]]
"""Trails of one length: arrays with an atom sequence per row, and the times that each is listed."""


def find_trails(ends: Int[Array, "B 2"], num_atoms: int) -> list[Trails]:
    """Return the trails of 0, 1, 2, 3 and 4 bonds and the number of times that each is listed.

    A trail is listed in both directions. A closed trail, a ring of three or four atoms, is listed
    without its last atom, from every atom in both directions: six or eight times.
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

    The factor of an atom with a delta of 0 is 0. In a ring of three with a tail, the atom that both
    share is counted twice, as in RDKit.
    """
    weight = np.zeros(len(delta))
    np.power(delta, -0.5, out=weight, where=delta > 0)
    return [
        sum(weight[t].prod(axis=1).sum().item() / times for t, times in part) for part in trails
    ]


class _Properties:
    """Properties of a molecule that several groups of descriptors are made of."""

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
    properties = _Properties(mol)
    values: list[float] = []
    for width, compute in _GROUPS:
        try:
            values += compute(properties)
        except Exception:  # RDKit's functions raise various errors on unusual molecules
            values += [0.0] * width
    return np.array(values, dtype=np.float64)


def _binned(bins: np.ndarray, by: np.ndarray, values: np.ndarray) -> list[float]:
    """Return the sum of ``values`` in each bin; ``by`` decides the bin of each value."""
    return np.bincount(np.searchsorted(bins, by, "right"), values, len(bins) + 1).tolist()


def _surface(p: _Properties) -> list[float]:
    """Return Crippen's logP and refractivity, and surface areas by logP, refractivity, charge."""
    contributions = np.array(_crippen_contributions(Chem.AddHs(p.mol))).reshape(-1, 2)
    of_atoms = contributions[: len(p.number)]  # the same as without explicit hydrogens
    by_logp = _binned(_LOGP_BINS, of_atoms[:, 0], p.areas)
    by_refractivity = _binned(_REFRACTIVITY_BINS, of_atoms[:, 1], p.areas)
    by_charge = rdMolDescriptors.PEOE_VSA_(p.mol)
    return [*contributions.sum(axis=0).tolist(), *by_logp, *by_refractivity, *by_charge]


def _electrotopology(p: _Properties) -> list[float]:
    """Return extremes of Hall and Kier's states, areas binned by state, states binned by area."""
    valence = _OUTER_ELECTRONS[p.number] - p.hydrogens
    degree = np.maximum(p.degree, 1)
    intrinsic = (4.0 / _SHELL[p.number] ** 2 * valence + 1) / degree * (p.degree > 0)
    changes: list[np.ndarray] = []
    for values, distance in _distances(p, intrinsic):
        change = (values[:, None] - intrinsic) / (distance + 1) ** 2
        changes.append(np.where(distance < _INFINITE_DISTANCE, change, 0.0).sum(1))
    state = intrinsic + np.concatenate(changes)
    size = np.abs(state)
    extremes = [float(state.max()), float(state.min()), float(size.max()), float(size.min())]
    by_state = _binned(_ESTATE_BINS, state, p.areas)
    return [*extremes, *by_state, *_binned(_VSA_BINS, p.areas, state)]


def _distances(
    p: _Properties, values: Float[Array, "V"]
) -> Iterator[tuple[Float[Array, "R"], Float[Array, "R V"]]]:
    """Yield, for blocks of atoms, their ``values`` and their distances in bonds from all atoms.

    Distances between unconnected atoms are infinite or very large.
    """
    size = len(p.number)
    if size <= _FEW_ATOMS:
        yield values, Chem.GetDistanceMatrix(p.mol, useBO=False, useAtomWts=False)
        return
    if size > MAX_ESTATE_ATOMS:
        raise DataError(f"{size:,} atoms are too many for electrotopological states.")
    bonds = csr_matrix((np.ones(len(p.ends)), tuple(p.ends.T)), shape=(size, size))
    for start in range(0, size, _FEW_ATOMS):
        block = np.arange(start, min(start + _FEW_ATOMS, size))
        yield values[block], dijkstra(bonds, directed=False, indices=block, unweighted=True)


def _counted(p: _Properties) -> list[float]:
    """Return two connectivity indices and six counts of electrons, atoms and hydrogens."""
    degree = p.degree[p.degree > 0]
    n_or_o = (p.number == 7) | (p.number == 8)
    return [
        float((degree**-0.5).sum()),
        float((p.degree[p.ends].prod(axis=1) ** -0.5).sum()),
        int(_OUTER_ELECTRONS[p.number].sum()) - p.charge + int(p.hydrogens.sum()),
        p.radicals,
        p.heavy,
        int(p.hydrogens[n_or_o].sum()),
        int(n_or_o.sum()),
        int(((p.number != 1) & (p.number != 6)).sum()),
    ]


def _shape(p: _Properties) -> list[float]:
    """Return Kier's three kappa indices and his index of flexibility."""
    alpha = rdMolDescriptors.CalcHallKierAlpha(p.mol)
    size = p.heavy + alpha
    one, two, three = (sum(len(atoms) / times for atoms, times in part) for part in p.trails[1:4])
    first = _ratio(size * (size - 1) ** 2, one + alpha)
    second = _ratio((size - 1) * (size - 2) ** 2, two + alpha)
    third = _ratio((size - 2 + p.heavy % 2) * (size - 3) ** 2, three + alpha)
    return [first, second, third, first * second / max(p.heavy, 1)]


def _ratio(above: float, below: float) -> float:
    return above / below**2 if below else 0.0


def _indices(p: _Properties) -> list[float]:
    """Return Kier and Hall's connectivity indices of order 0 to 4, simple and by valence."""
    simple = (_OUTER_ELECTRONS[p.number] - p.hydrogens).astype(float)
    valence = np.where(p.number > 10, simple / _CORE_ELECTRONS[p.number], simple * (p.number > 1))
    return connectivity(p.trails, simple) + connectivity(p.trails, valence)


_GROUPS: tuple[tuple[int, Callable[[_Properties], list[float]]], ...] = (
    (38, _surface),
    (25, _electrotopology),
    (8, _counted),
    (4, _shape),
    (_NUM_CONNECTIVITY, _indices),
    (len(_SINGLE), lambda p: [function(p.mol) for function in _SINGLE]),
    (2, lambda p: [_molecular_weight(p.mol), _heavy_weight(p.mol)]),
    (len(FRAGMENTS), lambda p: [len(p.mol.GetSubstructMatches(x)) for x in _PATTERNS]),
)
"""Number of descriptors and function of each group, in the order of ``TARGETS``."""


BITS = 2048
"""Length of a fingerprint."""


def morgan_fingerprints(smiles: Sequence[str]) -> UInt8[np.ndarray, "N 2048"]:
    """Return the 0/1 Morgan fingerprint of radius 2 (ECFP4) of each molecule.

    Raises:
        DataError: If a SMILES cannot be parsed; the message names the first.
    """
    rows = _fingerprints(smiles, "GetFingerprintAsNumPy")
    return np.fromiter(rows, dtype=np.dtype((np.uint8, BITS)), count=len(smiles))


def morgan_counts(smiles: Sequence[str]) -> csr_matrix:
    """Return the counts of 2048 hashed Morgan environments of radius 2 (ECFP4 counts).

    Raises:
        DataError: If a SMILES cannot be parsed; the message names the first.
    """
    return _sparse(_fingerprints(smiles, "GetCountFingerprintAsNumPy"), BITS)


def _fingerprints(smiles: Sequence[str], method: str) -> Iterator[np.ndarray]:
    make = getattr(rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS), method)
    for row, mol in enumerate(parsed_in_one_form(smiles)):
        if isinstance(mol, str):
            raise DataError(f"no fingerprint for {str(smiles[row])[:80]!r} (row {row}): {mol}.")
        yield make(mol)


def count_fingerprints(smiles: Sequence[str]) -> csr_matrix:
    """Return log(1 + count) of hashed Morgan environments (radius 2), atom pairs and torsions.

    Atom pairs are left out for molecules of more than :data:`MAX_PAIR_ATOMS` atoms. The row of a
    SMILES that cannot be parsed is empty.
    """
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS)
    pairs = rdFingerprintGenerator.GetAtomPairGenerator(fpSize=BITS)
    torsions = rdFingerprintGenerator.GetTopologicalTorsionGenerator(fpSize=BITS)

    def counts(mol: Chem.Mol) -> np.ndarray:
        out = np.zeros((3, BITS), dtype=np.uint32)
        if not isinstance(mol, str):
            out[0] = morgan.GetCountFingerprintAsNumPy(mol)
            if mol.GetNumAtoms() <= MAX_PAIR_ATOMS:
                out[1] = pairs.GetCountFingerprintAsNumPy(mol)
            out[2] = torsions.GetCountFingerprintAsNumPy(mol)
        return out.reshape(-1)

    matrix = _sparse(map(counts, parsed_in_one_form(smiles)), 3 * BITS)
    logs = np.log1p(matrix.data).astype(np.float32)
    return csr_matrix((logs, matrix.indices, matrix.indptr), shape=matrix.shape)


def _sparse(rows: Iterable[np.ndarray], width: int) -> csr_matrix:
    """Return rows of counts, most of which are 0, as a sparse matrix."""
    columns, counts, ends = [np.zeros(0, np.int32)], [np.zeros(0, np.uint32)], [0]
    for row in rows:
        present = np.flatnonzero(row).astype(np.int32)
        columns.append(present)
        counts.append(row[present])
        ends.append(ends[-1] + len(present))
    shape = len(ends) - 1, width
    return csr_matrix((np.concatenate(counts), np.concatenate(columns), ends), shape=shape)
