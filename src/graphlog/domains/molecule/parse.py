"""SMILES to attribute codes, many molecules at a time.

RDKit's parser takes most of the time and every call into it from Python a share, so this module
asks for as little as it can: atoms and bonds by index (half the cost of iterating), stereo only
where the text can hold any, numbers rather than enumerations; and the answers of a whole chunk go
through NumPy look-up tables at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rdkit import Chem, rdBase

from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import FeatureSchema
from graphlog.domains.molecule.refuse import LONGEST, is_flat, one_line, parse_flat, parse_smiles
from graphlog.domains.molecule.schema import (
    MOLECULE,
    MOLECULE_CIP,
    MOLECULE_RICH,
    OTHER_BOND,
    OTHER_CHIRALITY,
    OTHER_DIRECTION,
    WILDCARD,
)
from graphlog.domains.molecule.stereo import cip_codes
from graphlog.errors import ConfigError

Codes = np.ndarray[Any, np.dtype[np.uint8]]


def _lookup(codes: dict[Any, int], other: int, low: int = 0) -> Codes:
    """Return the table of ``code`` by ``value - low``.

    It has ``other`` where no code is given and in a spare row at the end.
    """
    table = np.full(max(int(v) for v in codes) - low + 2, other, dtype=np.uint8)
    for value, code in codes.items():
        table[int(value) - low] = code
    return table


def _encode(values: list[int], table: Codes, low: int = 0) -> Codes:
    """Look values up; one beyond the table's ends gets the code of its last row, ``other``."""
    raw = np.fromiter(values, dtype=np.int64, count=len(values)) - low
    return table[np.where((raw < 0) | (raw >= len(table)), len(table) - 1, raw)]


def _series(first: int, last: int) -> dict[int, int]:
    return {value: code for code, value in enumerate(range(first, last + 1))}


_TAG, _TYPE, _DIR, _CIS, _HYB = (
    Chem.ChiralType,
    Chem.BondType,
    Chem.BondDir,
    Chem.BondStereo,
    Chem.HybridizationType,
)
_ELEMENT = _lookup({0: WILDCARD, **{z: z - 1 for z in range(1, 119)}}, WILDCARD)
_TETRAHEDRAL: dict[Any, int] = {
    _TAG.CHI_UNSPECIFIED: 0,
    _TAG.CHI_TETRAHEDRAL_CW: 1,
    _TAG.CHI_TETRAHEDRAL_CCW: 2,
}
_CHIRALITY = _lookup(_TETRAHEDRAL, OTHER_CHIRALITY)
_BOND: dict[Any, int] = {_TYPE.SINGLE: 0, _TYPE.DOUBLE: 1, _TYPE.TRIPLE: 2, _TYPE.AROMATIC: 3}
_BOND_TYPE = _lookup(_BOND, OTHER_BOND)
_BY_ORDER = {
    1.0: int(_TYPE.SINGLE),
    2.0: int(_TYPE.DOUBLE),
    3.0: int(_TYPE.TRIPLE),
    1.5: int(_TYPE.AROMATIC),
}
_NONMETALS = frozenset({0, 1, 2, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 34, 35, 36, 53, 54})
_DIRECTION = _lookup({_DIR.NONE: 0, _DIR.ENDUPRIGHT: 1, _DIR.ENDDOWNRIGHT: 2}, OTHER_DIRECTION)

_RICH_CHIRALITY = _lookup({**_TETRAHEDRAL, _TAG.CHI_OTHER: 3}, 4)
_RICH_BOND_TYPE = _lookup(_BOND, 4)
_STEREO_NAMES = (
    _CIS.STEREONONE,
    _CIS.STEREOZ,
    _CIS.STEREOE,
    _CIS.STEREOCIS,
    _CIS.STEREOTRANS,
    _CIS.STEREOANY,
)
_BOND_STEREO = _lookup({stereo: code for code, stereo in enumerate(_STEREO_NAMES)}, 6)
_DEGREE = _lookup(_series(0, 10), 11)
_CHARGE = _lookup(_series(-5, 5), 11, low=-5)
_HYDROGENS = _lookup(_series(0, 8), 9)
_RADICALS = _lookup(_series(0, 4), 5)
_HYBRIDIZATION = _lookup(
    {h: code for code, h in enumerate((_HYB.SP, _HYB.SP2, _HYB.SP3, _HYB.SP3D, _HYB.SP3D2))}, 5
)
_YES_NO = _lookup({0: 0, 1: 1}, 0)
_PLAIN: list[tuple[Callable[[Any], int], Codes, int]] = [
    (Chem.Atom.GetTotalDegree, _DEGREE, 0),
    (Chem.Atom.GetFormalCharge, _CHARGE, -5),
    (Chem.Atom.GetTotalNumHs, _HYDROGENS, 0),
    (Chem.Atom.GetNumRadicalElectrons, _RADICALS, 0),
    (Chem.Atom.GetHybridization, _HYBRIDIZATION, 0),
    (Chem.Atom.GetIsAromatic, _YES_NO, 0),
    (Chem.Atom.IsInRing, _YES_NO, 0),
]


class _Columns:
    """The raw answers of RDKit for the molecules of a chunk, one flat list an attribute."""

    def __init__(self, schema: FeatureSchema) -> None:
        self.rich = schema != MOLECULE
        self.cip = schema == MOLECULE_CIP
        self.node_counts: list[int] = []
        self.edge_counts: list[int] = []
        self.element: list[int] = []
        self.chirality: list[int] = []
        self.plain: list[list[int]] = [[] for _ in _PLAIN]
        self.begin: list[int] = []
        self.end: list[int] = []
        self.bond_type: list[int] = []
        self.bond_stereo: list[int] = []
        self.conjugated: list[int] = []

    def add(self, mol: Any, flat: bool) -> str | None:
        """Take one molecule's attributes, if ``flat`` without stereo; return why that failed."""
        nodes, edges = len(self.element), len(self.begin)
        try:
            self._add(mol, flat)
        except Exception as e:  # RDKit raises errors of its own on molecules nobody has seen before
            for column in (self.element, self.chirality, *self.plain):
                del column[nodes:]
            for column in (self.begin, self.end, self.bond_type, self.bond_stereo, self.conjugated):
                del column[edges:]
            return f"RDKit cannot describe it: {one_line(e)}"
        self.node_counts.append(mol.GetNumAtoms())
        self.edge_counts.append(mol.GetNumBonds())
        return None

    def _add(self, mol: Any, flat: bool) -> None:
        num_atoms, num_bonds = mol.GetNumAtoms(), mol.GetNumBonds()
        atoms = list(map(mol.GetAtomWithIdx, range(num_atoms)))
        bonds = list(map(mol.GetBondWithIdx, range(num_bonds)))
        elements = list(map(Chem.Atom.GetAtomicNum, atoms))
        self.element.extend(elements)
        self.begin.extend(map(Chem.Bond.GetBeginAtomIdx, bonds))
        self.end.extend(map(Chem.Bond.GetEndAtomIdx, bonds))
        self.bond_type.extend(_bond_types(bonds, flat and _NONMETALS.issuperset(elements)))
        if flat:
            self.chirality.extend([0] * num_atoms)
            self.bond_stereo.extend([0] * num_bonds)
        elif self.cip:
            centres, axes = cip_codes(mol, atoms, bonds)
            self.chirality.extend(centres)
            self.bond_stereo.extend(axes)
        else:
            self.chirality.extend(map(Chem.Atom.GetChiralTag, atoms))
            self.bond_stereo.extend(
                map(Chem.Bond.GetStereo if self.rich else Chem.Bond.GetBondDir, bonds)
            )
        if self.rich:
            for values, (ask, _, _) in zip(self.plain, _PLAIN, strict=True):
                values.extend(map(ask, atoms))
            self.conjugated.extend(map(Chem.Bond.GetIsConjugated, bonds))

    def atoms(self) -> Codes:
        """Return the codes of all atoms, one row an atom."""
        columns = [
            _encode(self.element, _ELEMENT),
            self._stereo(self.chirality, _RICH_CHIRALITY if self.rich else _CHIRALITY),
        ]
        if self.rich:
            columns += [
                _encode(values, table, low)
                for values, (_, table, low) in zip(self.plain, _PLAIN, strict=True)
            ]
        return np.stack(columns, axis=1)

    def bonds(self) -> Codes:
        """Return the codes of all bonds, one row a bond."""
        if self.rich:
            stereo, conjugated = (
                self._stereo(self.bond_stereo, _BOND_STEREO),
                _encode(self.conjugated, _YES_NO),
            )
            return np.stack([_encode(self.bond_type, _RICH_BOND_TYPE), stereo, conjugated], axis=1)
        return np.stack(
            [_encode(self.bond_type, _BOND_TYPE), _encode(self.bond_stereo, _DIRECTION)], axis=1
        )

    def _stereo(self, values: list[int], table: Codes) -> Codes:
        """Return the codes of RDKit's stereo tags; CIP labels are codes already."""
        return np.array(values, dtype=np.uint8) if self.cip else _encode(values, table)


def _bond_types(bonds: list[Any], by_order: bool) -> list[int]:
    """Return RDKit's bond types.

    They are read off the bond orders, at a third of the cost, where those tell (a dative bond's
    order is 1 too).
    """
    if by_order:
        try:
            return [_BY_ORDER[order] for order in map(Chem.Bond.GetBondTypeAsDouble, bonds)]
        except KeyError:  # quadruple, unspecified
            pass
    return list(map(Chem.Bond.GetBondType, bonds))


def featurize_smiles(
    texts: Sequence[Any], schema: FeatureSchema = MOLECULE
) -> tuple[GraphChunk, list[tuple[int, str]]]:
    """Return the graphs of ``texts`` and ``(position, reason)`` of each text that is no molecule.

    Atoms and bonds keep RDKit's order, which is that of the SMILES; each bond is listed once as
    (begin, end). ``rows`` of the chunk are positions in ``texts``.

    Args:
        texts: SMILES, CXSMILES extensions allowed; what is not text is refused like any other.
        schema: ``MOLECULE``, ``MOLECULE_RICH`` or ``MOLECULE_CIP``.

    Raises:
        ConfigError: If the schema is another one.

    Example:
        >>> chunk, rejects = featurize_smiles(["C=O", "C1CC"])
        >>> chunk.x.tolist(), chunk.edge_attr.tolist(), rejects
        ([[5, 0], [7, 0]], [[1, 0]], [(1, 'RDKit cannot parse: unclosed ring')])
    """
    if schema not in (MOLECULE, MOLECULE_RICH, MOLECULE_CIP):
        raise ConfigError(
            "SMILES become graphs of schema 'molecule', 'molecule-rich' or 'molecule-cip', not "
            f"'{schema.name}'."
        )
    columns = _Columns(schema)
    kept: list[int] = []
    rejects: list[tuple[int, str]] = []
    quiet = rdBase.BlockLogs()
    try:
        for position, text in enumerate(texts):
            flat = isinstance(text, str) and 0 < len(text) <= LONGEST and is_flat(text)
            mol = parse_flat(text) if flat else parse_smiles(text)
            reason = mol if isinstance(mol, str) else columns.add(mol, flat)
            if reason is None:
                kept.append(position)
            else:
                rejects.append((position, reason))
    finally:
        del quiet
    chunk = GraphChunk(
        node_counts=np.array(columns.node_counts, dtype=np.int64),
        edge_counts=np.array(columns.edge_counts, dtype=np.int64),
        x=columns.atoms(),
        edge_index=np.array([columns.begin, columns.end], dtype=np.int32),
        edge_attr=columns.bonds(),
        rows=np.array(kept, dtype=np.int64),
        texts=[texts[k] for k in kept],
    )
    return chunk, rejects
