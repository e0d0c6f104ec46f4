"""Conversion of SMILES to RDKit molecules, their parents, and graphs with attribute codes.

Calls into RDKit from Python are slow. So atoms and bonds are accessed by index (half the cost of
iterating), stereo is read only if the text can contain any, and a parent (by which splits and
repeats are decided) is computed only if the text can contain fragments, charges or metals.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, SupportsInt

import numpy as np
from jaxtyping import Integer, UInt64
from rdkit import Chem, rdBase
from rdkit.Chem import rdCIPLabeler, rdMolDescriptors
from rdkit.Chem.MolStandardize import rdMolStandardize

from graphlog.data.graphs import FeatureSchema, GraphChunk, Refused, RejectKind
from graphlog.domains.molecule.schema import (
    MOLECULE,
    MOLECULE_CIP,
    MOLECULE_ISOTOPES,
    OTHER_BOND,
    OTHER_CHIRALITY,
    OTHER_DIRECTION,
    WILDCARD,
)
from graphlog.errors import first_line

_NONMETAL_SYMBOL = "A[rst]|Br?|Cl?|F|Ge|He?|I|Kr|N[e]?|O|P|Rn|S[ei]?|Te|Xe|[a-z*#]"
_METAL_ATOM = rf"\[\d*(?!(?:{_NONMETAL_SYMBOL})(?![a-z])|[a-z]{{2}})"
"""Pattern of the beginning of a metal atom in a SMILES."""
_PARENT_HINT = re.compile(rf"[.+]|\[[^\]]*-|{_METAL_ATOM}|^InChI=.*/[pq]")
"""Pattern of several fragments, a charge, or a metal in brackets."""
_NEUTRAL_GROUPS = re.compile(
    r"\[N\+\]\(=O\)\(?\[O-\]|\[O-\]\[N\+\]\(=O\)|\[N\+\]\(\[O-\]\)=O|O=\[N\+\]\(\[O-\]\)"
    r"|\[n\+\]\(\[O-\]\)|\[O-\]\[n\+\]|N=\[N\+\]=\[N-\]|\[N-\]=\[N\+\]=N"
)
"""Pattern of nitro groups, N-oxides and azides, whose charges cannot be removed."""
_MAX_ATOMS = 1000
"""Largest number of atoms for which charges and tautomers are standardized, in quadratic time."""
_MAX_FRAGMENTS, _MAX_COUNTERION_ATOMS = 100, 40


def may_have_parent(text: str) -> bool:
    """Return whether a SMILES may differ from its parent.

    Example:
        >>> [may_have_parent(s) for s in ("CCO", "CC[N+](=O)[O-]", "CCN.Cl", "C[NH3+]", "[Na]OC")]
        [False, False, True, True, True]
    """
    if _PARENT_HINT.search(text) is None:
        return False
    return _PARENT_HINT.search(_NEUTRAL_GROUPS.sub("", text.split(maxsplit=1)[0])) is not None


with rdBase.BlockLogs():  # their constructors log messages
    _METAL_DISCONNECTOR = rdMolStandardize.MetalDisconnector()
    _NORMALIZER = rdMolStandardize.Normalizer()
    _UNCHARGER = rdMolStandardize.Uncharger()
    _TAUTOMER_ENUMERATOR = rdMolStandardize.TautomerEnumerator()


_COUNTERIONS = frozenset(
    Chem.CanonSmiles(text)
    for text in """
    OC=O CC(O)=O OC(=O)C(F)(F)F OC(=O)C(O)=O OC(=O)CC(O)=O OC(=O)CCC(O)=O OC(=O)C=CC(O)=O
    CC(O)C(O)=O OC(=O)CC(O)C(O)=O OC(=O)C(O)C(O)C(O)=O OC(=O)CC(O)(CC(O)=O)C(O)=O
    OC(=O)C(O)c1ccccc1 OC(=O)c1ccccc1 OC(=O)c1ccccc1O OCC(O)C(O)C(O)C(O)C(O)=O CS(O)(=O)=O
    CCS(O)(=O)=O OCCS(O)(=O)=O OS(=O)(=O)CCS(O)(=O)=O OS(=O)(=O)C(F)(F)F OS(=O)(=O)c1ccccc1
    Cc1ccc(cc1)S(O)(=O)=O OS(=O)(=O)c1ccc2ccccc2c1 COS(O)(=O)=O
    CC1(C)C2CCC1(CS(O)(=O)=O)C(=O)C2 Oc1c(cc(cc1[N+](=O)[O-])[N+](=O)[O-])[N+](=O)[O-]
    OC(=O)c1cc2ccccc2c(Cc2c(O)c(cc3ccccc23)C(O)=O)c1O CCNCC CCN(CC)CC NCCO OCCNCCO
    OCCN(CCO)CCO NCC(CO)(CO)CO NC(CO)(CO)CO CNCC(O)C(O)C(O)C(O)CO C[N+](C)(C)CCO CO CCO CC(C)O
    CC(C)=O CC#N CS(C)=O CN(C)C=O CCOC(C)=O C1CCOC1 C1COCCO1 ClCCl ClC(Cl)Cl
""".split()
)
"""Acids, bases and solvents that are not the main fragment, even if they are larger."""


def parent_of(mol: Chem.Mol, standardize: str = "parent") -> str | None:
    """Return the SMILES of a molecule's parent; None if the molecule is its own parent as written.

    A molecule is its own parent if it has no carbon, if it has a metal that is not of groups 1 and
    2 (complexes of two metals are two compounds), or if RDKit fails to standardize it.

    Args:
        mol: An RDKit molecule.
        standardize: ``parent``, or ``parent-tautomer`` for the canonical tautomer of the parent.

    Example:
        >>> [
        ...     parent_of(Chem.MolFromSmiles(s))
        ...     for s in ("CC[NH3+].[Cl-]", "CCC[NH2+]C.[O-]C(=O)c1ccccc1")
        ... ]
        ['CCN', 'CCCNC']
    """
    elements = set(map(Chem.Atom.GetAtomicNum, mol.GetAtoms()))
    if 6 not in elements or not elements <= _PARENT_ELEMENTS:
        return None
    try:
        mol = _main_fragment(_METAL_DISCONNECTOR.Disconnect(mol))
        if mol.GetNumAtoms() <= _MAX_ATOMS:
            if any(map(Chem.Atom.GetFormalCharge, mol.GetAtoms())):
                mol = _with_neutral_sulfoxides(_UNCHARGER.uncharge(_NORMALIZER.normalize(mol)))
            if standardize == "parent-tautomer":
                mol = _TAUTOMER_ENUMERATOR.Canonicalize(mol)
        return Chem.MolToSmiles(mol)
    except Exception:  # RDKit raises errors of various types on unusual molecules
        return None


def _main_fragment(mol: Chem.Mol) -> Chem.Mol:
    """Return the largest fragment with carbon, preferably not a counter-ion."""
    count = len(Chem.GetMolFrags(mol))
    if count == 1:
        return mol
    if count > _MAX_FRAGMENTS:
        raise ValueError(f"{count} fragments")
    fragments = Chem.GetMolFrags(mol, asMols=True)

    def rank(fragment: Chem.Mol) -> tuple[bool, bool, int, float, str]:
        size = fragment.GetNumAtoms()
        is_organic = any(atom.GetAtomicNum() == 6 for atom in fragment.GetAtoms())
        is_compound = is_organic and not (
            size <= _MAX_COUNTERION_ATOMS
            and _constitution_smiles(_UNCHARGER.uncharge(fragment)) in _COUNTERIONS
        )
        weight = rdMolDescriptors.CalcExactMolWt(fragment)
        return is_compound, is_organic, size, weight, Chem.MolToSmiles(fragment)

    return max(fragments, key=rank)


def _constitution_smiles(mol: Chem.Mol) -> str:
    """Return the SMILES without stereo and isotopes, in one form of bonds to metals."""
    atoms = mol.GetAtoms()  # deuterium is an atom in RDKit
    if any(atom.GetIsotope() or atom.GetAtomicNum() not in _NONMETALS for atom in atoms):
        mol = in_one_form(mol)
    return Chem.MolToSmiles(mol, isomericSmiles=False)


def _with_neutral_sulfoxides(mol: Chem.Mol) -> Chem.Mol:
    """Return the molecule with S=O, as in tables, where normalization has made S+ and O-."""
    editable = Chem.RWMol(mol)
    for bond in editable.GetBonds():
        ends = sorted((bond.GetBeginAtom(), bond.GetEndAtom()), key=Chem.Atom.GetAtomicNum)
        charges = [(atom.GetAtomicNum(), atom.GetFormalCharge()) for atom in ends]
        if charges == [(8, -1), (16, 1)]:
            bond.SetBondType(Chem.BondType.DOUBLE)
            for atom in ends:
                atom.SetFormalCharge(0)
    Chem.SanitizeMol(editable)
    return editable.GetMol()


def constitution_key(mol: Chem.Mol, text: str) -> int:
    """Return the key of a molecule that was read from ``text``; see :func:`constitution_keys`."""
    parent = parent_of(mol) if may_have_parent(text) else None
    parent_mol = mol if parent is None else Chem.MolFromSmiles(parent)
    smiles = _constitution_smiles(parent_mol or mol)
    return int.from_bytes(blake2b(smiles.encode(), digest_size=8).digest(), "little") or 1


Codes = Integer[np.ndarray, "_"]
MAX_CHARACTERS = 20_000
"""Largest length of a SMILES; RDKit's ring search can take hours for a longer one."""
_MAX_RINGS, _MAX_FUSED_RINGS = 1000, 200
"""Largest number of rings of a molecule, and of a fused system; more take seconds to minutes."""
_FEW_RINGS = 60
"""Number of rings that RDKit finds quickly in any molecule."""
_NOT_FLAT = re.compile(r"[^!-~]|[@/\\<>~]|\[(?:\d*H|#)")
"""Pattern of a CXSMILES extension, a character that is not ASCII, stereo, a dative or unspecified
bond, an explicit hydrogen, or an element by its number."""
_HAS_VARIANTS = re.compile(rf"^InChI=|->|<-|\[\d|{_METAL_ATOM}")
"""Pattern of dative bonds, isotopes and metals, which can be written in several ways."""
_NOT_ASCII = re.compile(r"[^!-~]")
_ATOM_MAP = re.compile(r":\d+\]")
"""Pattern of the end of an atom with a map number."""
_INCHI = "InChI="
_OTHER_NOTATIONS = {
    re.compile(r"(?<!-)>.*(?<!-)>"): "a reaction, not a molecule",
    # in brackets: an element by its number, a logical operator, a nested pattern
    re.compile(r"\[[^\]]*(?:#\d|[;,!&]|\$\()"): "a SMARTS pattern, not a SMILES",
    re.compile(r"^[A-Z]{14}-[A-Z]{10}-[A-Z]$"): (
        "an InChIKey, which names a molecule and does not describe it; give its SMILES"
    ),
}
"""Reasons to reject texts in similar notations, by pattern."""
_WORD = re.compile(r"[A-Za-z]*[adefghijklmqrtuvwxyz][a-z]{2,}")
"""Pattern of a sequence of letters that does not occur in a SMILES."""
_IN_NO_SMILES = re.compile(r"[,;\"'`_!?{}]")
"""Pattern of characters that do not occur in a SMILES."""

_NO_SANITIZATION = Chem.SmilesParserParams()
_NO_SANITIZATION.sanitize = _NO_SANITIZATION.removeHs = False


def _unsanitized(text: str) -> Chem.Mol | None:
    """Return the molecule of a SMILES without chemistry checks; None if its syntax is wrong."""
    return Chem.MolFromSmiles(_without_maps(text), _NO_SANITIZATION)


def _without_maps(text: str) -> str:
    """Return a SMILES without atom map numbers, which would make equal atoms differ."""
    return _ATOM_MAP.sub("]", text) if ":" in text else text


def is_flat(text: str) -> bool:
    """Return whether a SMILES surely has no stereo, unusual bonds or explicit hydrogen atoms."""
    return _NOT_FLAT.search(text) is None


def parse_smiles(text: object) -> Chem.Mol | str:
    """Return the molecule without atom map numbers, or the reason (a str) why it cannot be read.

    The caller may silence the messages that RDKit logs.
    """
    if not isinstance(text, str):
        return f"not text but {type(text).__name__}"
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        return f"longer than {MAX_CHARACTERS:,} characters ({len(text):,})"
    if not text:
        return "empty"
    if "\0" in text:
        return "contains a NUL byte"
    if "\n" in text or "\r" in text:
        return "contains a line break"
    word, is_inchi = text.split(maxsplit=1)[0], text.startswith(_INCHI)
    for pattern, reason in _OTHER_NOTATIONS.items():
        if not is_inchi and pattern.search(word):
            return reason
    character = _NOT_ASCII.search(word)
    if character is not None:  # RDKit silently ignores some of them at the end of a SMILES
        return f"not a SMILES character: {character[0]!a}"
    try:
        if (reason := _complexity(text)) is not None:
            return reason
        mol = _from_inchi(text) if is_inchi else Chem.MolFromSmiles(_without_maps(text))
        if mol is None and is_inchi:
            return "RDKit cannot parse: not a valid InChI"
        if mol is None:
            return f"RDKit cannot parse: {_diagnose(text)}"
    except Exception as e:  # errors of Boost.Python for lone surrogates and elements beyond 118
        return f"RDKit cannot parse: {first_line(e)[:200]}"
    return mol if mol.GetNumAtoms() else "empty"


_MISPLACED_HYDROGENS = tuple(
    map(Chem.MolFromSmarts, ("[O,S;D1H][#6X3]=,:[#7X2+0]", "[nD2H]:c=[NX2+0;!R]"))
)
"""Patterns of misplaced hydrogens (amides and lactams, aromatic amines).

The atoms are the one with the hydrogen, the one between, and the one where tables write it.
"""


def _from_inchi(text: str) -> Chem.Mol | None:
    """Return the molecule of an InChI, with mobile hydrogens where tables write them.

    An InChI does not say where they are, and RDKit writes amides as imidic acids. The canonical
    tautomer would move other hydrogens too, and takes ten to a hundred times as long.
    """
    mol = Chem.MolFromInchi(text)
    while mol is not None:
        matches = (
            match for pattern in _MISPLACED_HYDROGENS for match in mol.GetSubstructMatches(pattern)
        )
        moved = next(filter(None, (_with_moved_hydrogen(mol, *match) for match in matches)), None)
        if moved is None:
            break
        mol = moved
    return mol


def _with_moved_hydrogen(mol: Chem.Mol, donor: int, middle: int, acceptor: int) -> Chem.Mol | None:
    """Return a molecule with a hydrogen moved over two bonds; None if the result is invalid."""
    editable = Chem.RWMol(mol)
    for end, kind, hydrogens in ((donor, _TYPE.DOUBLE, -1), (acceptor, _TYPE.SINGLE, 1)):
        atom, bond = editable.GetAtomWithIdx(end), editable.GetBondBetweenAtoms(end, middle)
        atom.SetNumExplicitHs(atom.GetNumExplicitHs() + hydrogens)
        bond.SetStereo(_STEREO.STEREONONE)
        if bond.GetBondType() != _TYPE.AROMATIC:
            bond.SetBondType(kind)
    with suppress(Exception):  # RDKit raises errors of various types
        Chem.SanitizeMol(editable)
        return editable.GetMol()
    return None


def _parse_fast(text: object) -> tuple[Chem.Mol | str, bool]:
    """Return the result of :func:`parse_smiles`, and whether it was read as flat (:func:`is_flat`).

    Flat texts are read without a search for stereo, which saves a third of the time.
    """
    if isinstance(text, str) and len(text) <= MAX_CHARACTERS and is_flat(text):
        with suppress(Exception):  # parse_smiles returns the reason
            mol = _unsanitized(text)
            if mol is not None and mol.GetNumAtoms() and _complexity(text) is None:
                Chem.SanitizeMol(mol)
                return mol, True
    return parse_smiles(text), False


def parsed(texts: Iterable[object]) -> Iterator[Chem.Mol | str]:
    """Yield the result of :func:`parse_smiles` for each text, with RDKit's messages silenced."""
    with rdBase.BlockLogs():
        yield from map(parse_smiles, texts)


def parsed_in_one_form(texts: Sequence[str]) -> Iterator[Chem.Mol | str]:
    """Yield the results of :func:`parsed`, the molecules in the form of :func:`in_one_form`."""
    for text, mol in zip(texts, parsed(texts), strict=True):
        has_variants = not isinstance(mol, str) and _HAS_VARIANTS.search(text)
        yield in_one_form(mol) if has_variants else mol


def _complexity(text: str) -> str | None:
    """Return why RDKit's ring search would take seconds and gigabytes; None if it is fast."""
    few = 2 * _FEW_RINGS
    closures = sum(map(text.count, "0123456789")) if len(text) > few else 0
    mol = _unsanitized(text) if closures > few else None
    if mol is None:
        return None
    rings = mol.GetNumBonds() - mol.GetNumAtoms() + len(Chem.GetMolFrags(mol))
    if rings <= _FEW_RINGS:
        return None
    if rings > _MAX_RINGS:
        return f"has more than {_MAX_RINGS:,} rings ({rings:,})"
    import networkx as nx  # imported here, since few molecules need it

    graph: Any = nx.Graph([(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()])
    graph.remove_edges_from(list(nx.bridges(graph)))
    for system in nx.connected_components(graph):
        atoms = len(system)
        fused = graph.subgraph(system).number_of_edges() - atoms + 1
        if fused > _MAX_FUSED_RINGS or (fused > _FEW_RINGS and fused > 2 * atoms):
            return f"has a system of {fused:,} fused rings on {atoms:,} atoms, too complex"
    return None


def _diagnose(text: str) -> str:
    """Return what is wrong with a SMILES that RDKit cannot parse."""
    mol = _unsanitized(text)
    if mol is not None:
        problems = Chem.DetectChemistryProblems(mol)
        return problems[0].Message() if problems else "not a valid molecule"
    # The following reasons are guesses, since RDKit writes syntax errors to its log only.
    smiles = text.split(maxsplit=1)[0]
    if _WORD.search(smiles):
        return "not a SMILES; it looks like a name"
    character = _IN_NO_SMILES.search(smiles)
    if character is not None:
        return f"not a SMILES character: {character[0]!a}"
    for brackets, kind in (("[]", "square brackets"), ("()", "parentheses")):
        if smiles.count(brackets[0]) != smiles.count(brackets[1]):
            return f"unbalanced {kind}"
    outside = re.sub(r"\[[^\]]*\]", "", smiles)
    numbers = Counter(int(label.strip("%")) for label in re.findall(r"%[0-9]{2}|[0-9]", outside))
    # a ring closure has two ends
    return "unclosed ring" if any(n % 2 for n in numbers.values()) else "not a SMILES"


def _code_table(values: Iterable[SupportsInt], other: int) -> Codes:
    """Return an array whose entry at each of ``values`` is its position in them, else ``other``.

    Negative values are counted from the end of the array; the entry in the middle is ``other``.
    """
    positions = {int(value): position for position, value in enumerate(values)}
    limit = max(map(abs, positions)) + 1
    table = np.full(2 * limit + 1, other)
    table[list(positions)] = list(positions.values())
    return table.astype(np.min_scalar_type(table.max()))


def _codes(values: list[int], table: Codes) -> Codes:
    limit = len(table) // 2
    return table[np.fromiter(values, dtype=np.int64, count=len(values)).clip(-limit, limit)]


_TAG, _TYPE, _DIR = Chem.ChiralType, Chem.BondType, Chem.BondDir
_STEREO, _HYB = Chem.BondStereo, Chem.HybridizationType
_TETRAHEDRAL_TAGS = (_TAG.CHI_TETRAHEDRAL_CW, _TAG.CHI_TETRAHEDRAL_CCW)
_PLANAR = (_STEREO.STEREOZ, _STEREO.STEREOE, _STEREO.STEREOCIS, _STEREO.STEREOTRANS)
_BOND = (_TYPE.SINGLE, _TYPE.DOUBLE, _TYPE.TRIPLE, _TYPE.AROMATIC)
_BY_ORDER = dict(zip((1.0, 2.0, 3.0, 1.5), map(int, _BOND), strict=True))
_NONMETALS = frozenset({0, 1, 2, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 34, 35, 36, 53, 54})

_PARENT_ELEMENTS = _NONMETALS | {32, 33, 52, 85} | {3, 11, 19, 37, 55, 87} | {4, 12, 20, 38, 56, 88}
"""Elements of molecules that may have a parent: nonmetals, metalloids, metals of groups 1, 2."""

_ELEMENT = _code_table(range(1, 119), WILDCARD)
_CHIRALITY = _code_table((_TAG.CHI_UNSPECIFIED, *_TETRAHEDRAL_TAGS), OTHER_CHIRALITY)
_RICH_CHIRALITY = _code_table((_TAG.CHI_UNSPECIFIED, *_TETRAHEDRAL_TAGS, _TAG.CHI_OTHER), 4)
_DIRECTION = _code_table((_DIR.NONE, _DIR.ENDUPRIGHT, _DIR.ENDDOWNRIGHT), OTHER_DIRECTION)
_BOND_STEREO = _code_table((_STEREO.STEREONONE, *_PLANAR, _STEREO.STEREOANY), 6)
_CIP = _code_table(range(6), 0)
"""Table that leaves the codes of ``cip_codes`` unchanged."""
_YES_NO = _code_table(range(2), 0)
_RICH_ATOM: Mapping[Callable[[Chem.Atom], int], Codes] = {
    Chem.Atom.GetTotalDegree: _code_table(range(11), 11),
    Chem.Atom.GetFormalCharge: _code_table(range(-5, 6), 11),
    Chem.Atom.GetTotalNumHs: _code_table(range(9), 9),
    Chem.Atom.GetNumRadicalElectrons: _code_table(range(5), 5),
    Chem.Atom.GetHybridization: _code_table(
        (_HYB.SP, _HYB.SP2, _HYB.SP3, _HYB.SP3D, _HYB.SP3D2), 5
    ),
    Chem.Atom.GetIsAromatic: _YES_NO,
    Chem.Atom.IsInRing: _YES_NO,
}
"""Getters of atom attributes in all schemas but ``molecule``, with the codes of their values."""


class _Columns:
    """Values that RDKit returns for the molecules of a chunk, one flat list per attribute."""

    def __init__(self, schema: FeatureSchema) -> None:
        rich = schema != MOLECULE
        self.cip = schema in (MOLECULE_CIP, MOLECULE_ISOTOPES)
        self.keeps_isotopes = schema == MOLECULE_ISOTOPES
        atom_tables = {**_RICH_ATOM} if rich else {}
        if self.keeps_isotopes:
            atom_tables[Chem.Atom.GetIsotope] = _code_table(range(300), 300)
        bond_tables = {Chem.Bond.GetIsConjugated: _YES_NO} if rich else {}
        self._atom_getters, self._bond_getters = [*atom_tables], [*bond_tables]
        self._bond_stereo = Chem.Bond.GetStereo if rich else Chem.Bond.GetBondDir
        bond_types = _code_table(_BOND, 4 if rich else OTHER_BOND)
        atom_stereo, bond_stereo = _CHIRALITY, _DIRECTION
        if rich:
            atom_stereo, bond_stereo = (_CIP, _CIP) if self.cip else (_RICH_CHIRALITY, _BOND_STEREO)
        self._atom_codes = [_ELEMENT, atom_stereo, *atom_tables.values()]
        self._bond_codes = [bond_types, bond_stereo, *bond_tables.values()]
        num_columns = len(schema.node) + len(schema.edge) + 2
        self._columns: list[list[int]] = [[] for _ in range(num_columns)]
        self._counts: list[tuple[int, int]] = []

    def add(self, mol: Chem.Mol, flat: bool) -> str | None:
        """Add a molecule, which has no stereo if ``flat``; return the reason if that fails."""
        try:
            attributes = self._attributes(mol, flat)
        except Exception as e:  # RDKit raises errors of various types on unusual molecules
            return f"RDKit cannot describe it: {first_line(e)[:200]}"
        for column, values in zip(self._columns, attributes, strict=True):
            column.extend(values)
        self._counts.append((mol.GetNumAtoms(), mol.GetNumBonds()))
        return None

    def _attributes(self, mol: Chem.Mol, flat: bool) -> list[Sequence[int]]:
        atoms = list(map(mol.GetAtomWithIdx, range(mol.GetNumAtoms())))
        bonds = list(map(mol.GetBondWithIdx, range(mol.GetNumBonds())))
        elements = list(map(Chem.Atom.GetAtomicNum, atoms))
        bond_types = _bond_types(bonds, flat and _NONMETALS.issuperset(elements))
        if flat:
            atom_stereo, bond_stereo = [0] * len(atoms), [0] * len(bonds)
        elif self.cip:
            atom_stereo, bond_stereo = cip_codes(mol, atoms, bonds)
        else:
            atom_stereo = list(map(Chem.Atom.GetChiralTag, atoms))
            bond_stereo = list(map(self._bond_stereo, bonds))
        return [
            elements,
            atom_stereo,
            *(list(map(getter, atoms)) for getter in self._atom_getters),
            bond_types,
            bond_stereo,
            *(list(map(getter, bonds)) for getter in self._bond_getters),
            list(map(Chem.Bond.GetBeginAtomIdx, bonds)),
            list(map(Chem.Bond.GetEndAtomIdx, bonds)),
        ]

    def chunk(self, rows: list[int], texts: list[str], parents: dict[int, str]) -> GraphChunk:
        """Return the graphs of the molecules; each bond is listed once."""
        counts = np.array(self._counts, dtype=np.int64).reshape(-1, 2)
        count = len(self._atom_codes)
        atoms, bonds = self._columns[:count], self._columns[count:]
        return GraphChunk(
            node_counts=counts[:, 0],
            edge_counts=counts[:, 1],
            x=np.stack(list(map(_codes, atoms, self._atom_codes)), 1),
            edge_index=np.array(bonds[-2:], dtype=np.int32),
            edge_attr=np.stack(list(map(_codes, bonds, self._bond_codes)), 1),
            rows=np.array(rows, dtype=np.int64),
            texts=texts,
            parents=parents,
        )


def _bond_types(bonds: list[Chem.Bond], by_order: bool) -> list[int]:
    """Return RDKit's bond types.

    ``by_order`` finds them by the bond orders, at a third of the cost; dative bonds must not occur.
    """
    if by_order:
        with suppress(KeyError):  # a quadruple or unspecified bond
            return [_BY_ORDER[order] for order in map(Chem.Bond.GetBondTypeAsDouble, bonds)]
    return list(map(Chem.Bond.GetBondType, bonds))


_EXCLUDED_REASON = "excluded: the molecule occurs in a list of those to leave out"


def featurize_smiles(
    texts: Sequence[object],
    schema: FeatureSchema = MOLECULE,
    standardize: str | None = None,
    with_parents: bool = True,
    unwanted: UInt64[np.ndarray, "K"] | None = None,
) -> tuple[GraphChunk, list[tuple[int, str] | Refused]]:
    """Return the graphs of ``texts`` and ``(position, reason)`` of each text that is rejected.

    Atoms and bonds have RDKit's order, which is that of the SMILES; each bond is listed once as
    (begin, end). ``rows`` of the chunk are positions in ``texts``.

    Args:
        texts: SMILES, with or without CXSMILES extensions; a value that is not a str is rejected.
        schema: ``MOLECULE``, ``MOLECULE_RICH``, ``MOLECULE_CIP`` or ``MOLECULE_ISOTOPES``.
        standardize: ``parent`` or ``parent-tautomer`` reads that instead of the molecule; where it
            differs, its SMILES is the text of the graph.
        with_parents: Whether to return the parents of molecules that are read as written.
        unwanted: Sorted keys (:func:`constitution_keys`) of molecules that are rejected.

    Example:
        >>> chunk, rejects = featurize_smiles(["C=O", "C1CC"])
        >>> chunk.x.tolist(), chunk.edge_attr.tolist(), rejects
        ([[5, 0], [7, 0]], [[1, 0]], [(1, 'RDKit cannot parse: unclosed ring')])
    """
    columns = _Columns(schema)
    kept: list[int] = []
    kept_texts: list[str] = []
    parents: dict[int, str] = {}
    rejects: list[tuple[int, str] | Refused] = []
    with rdBase.BlockLogs():
        for position, given in enumerate(texts):
            mol, flat = _parse_fast(given)
            if isinstance(mol, str):
                rejects.append((position, mol))
                continue
            text = str(given)  # it is a str, since it was parsed
            if unwanted is not None:
                key = np.uint64(constitution_key(mol, text))
                if key in unwanted[unwanted.searchsorted(key) :][:1]:
                    rejects.append(Refused(position, _EXCLUDED_REASON, RejectKind.EXCLUDED))
                    continue
            parent = None
            if standardize == "parent-tautomer" or (
                (with_parents or standardize) and may_have_parent(text)
            ):
                parent = parent_of(mol, standardize or "parent")
            if standardize and parent is not None:
                text, parent = parent, None
                mol, flat = _parse_fast(text)
            if columns.cip and not isinstance(mol, str) and _HAS_VARIANTS.search(text):
                mol = in_one_form(mol, columns.keeps_isotopes)
            reason = mol if isinstance(mol, str) else columns.add(mol, flat)
            if reason is not None:
                rejects.append((position, reason))
                continue
            if parent is not None and parent != text:
                parents[len(kept)] = parent
            kept.append(position)
            kept_texts.append(text)
    return columns.chunk(kept, kept_texts, parents), rejects


def constitution_keys(smiles: Sequence[str]) -> UInt64[np.ndarray, "N"]:
    """Return a key for each SMILES, equal for equal molecules; 0 if it cannot be parsed.

    Molecules are equal if the canonical SMILES of their parents without stereo and isotopes are.
    The keys are 64-bit hashes: a list of a billion molecules has two different molecules with one
    key with a probability of about 1/40.
    """
    mols = zip(parsed(smiles), smiles, strict=True)
    keys = [0 if isinstance(mol, str) else constitution_key(mol, text) for mol, text in mols]
    return np.array(keys, dtype=np.uint64)


_DONORS = frozenset({7, 8, 15, 16, 33, 34})
_HALOGENS = frozenset({9, 17, 35, 53})


def in_one_form(mol: Chem.Mol, keep_isotopes: bool = False) -> Chem.Mol:
    """Return the form of a molecule in ``molecule-cip``, however bonds to metals are written.

    N, O, P, S, As and Se have dative bonds to a metal, and the hydrogens and charges of free
    ligands; halogens have single bonds. Isotopes, and stereo that depends on them, are removed
    unless ``keep_isotopes``.
    """
    editable = Chem.RWMol(mol)
    labeled = [atom for atom in editable.GetAtoms() if atom.GetIsotope() and not keep_isotopes]
    for atom in labeled:
        atom.SetIsotope(0)
    as_written = Chem.Mol(editable)
    for ends in [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in editable.GetBonds()]:
        _coordinate(editable, *ends)
    try:
        Chem.SanitizeMol(editable)
        return Chem.RemoveHs(editable) if labeled else editable.GetMol()
    except Exception:  # RDKit accepts no valences of this form
        return as_written


def _coordinate(editable: Chem.RWMol, begin: int, end: int) -> None:
    """Make a bond between a metal and a donor dative, or single if the donor is a halogen."""
    bond = editable.GetBondBetweenAtoms(begin, end)
    kind = bond.GetBondType()
    first, second = editable.GetAtomWithIdx(begin), editable.GetAtomWithIdx(end)
    metals = [atom for atom in (first, second) if atom.GetAtomicNum() not in _NONMETALS]
    if len(metals) != 1 or kind not in (_TYPE.SINGLE, _TYPE.DATIVE):
        return
    metal, donor = metals[0], second if metals[0].GetIdx() == begin else first
    charge, number = donor.GetFormalCharge(), donor.GetAtomicNum()
    is_dative = kind == _TYPE.DATIVE
    if number in _HALOGENS and is_dative and charge == -1:
        bond.SetBondType(_TYPE.SINGLE)
        donor.SetFormalCharge(0)
        metal.SetFormalCharge(metal.GetFormalCharge() - 1)
    elif number in _DONORS:
        # the donor gets the charge and the hydrogens of the free ligand
        gains_hydrogen = charge == (-1 if is_dative else 0)
        moved = charge if charge == (-1 if is_dative else 1) else 0
        donor.SetFormalCharge(charge - moved)
        metal.SetFormalCharge(metal.GetFormalCharge() + moved)
        hydrogens = donor.GetTotalNumHs() + gains_hydrogen
        donor.SetNoImplicit(True)
        donor.SetNumExplicitHs(hydrogens)
        editable.RemoveBond(begin, end)
        editable.AddBond(donor.GetIdx(), metal.GetIdx(), _TYPE.DATIVE)


_UNKNOWN_CENTER, _UNKNOWN_BOND = 5, 3
"""Codes of ``molecule-cip`` for stereo without a label.

These are centers that are not tetrahedral, axial bonds, and all stereo of molecules that are too
symmetric to rank their branches.
"""

_MAX_COMPARISONS = 125_000
"""Largest number of comparisons of branches in a molecule (0.1 s); most need fewer than 10,000."""
_FEW_STEREO_ELEMENTS, _MAX_STEREO_ELEMENTS = 200, 1000
"""Numbers of stereo elements beyond which fewer comparisons are made, and none at all.

A molecule with 2,400 of them took 3 GB of memory.
"""
_CENTERS = {"R": 1, "S": 2, "r": 3, "s": 4}
_BONDS = {"Z": 1, "z": 1, "E": 2, "e": 2}
_LABEL = "_CIPCode"
_NO_TAG, _NO_STEREO = _TAG.CHI_UNSPECIFIED, _STEREO.STEREONONE


def cip_codes(
    mol: Chem.Mol, atoms: list[Chem.Atom], bonds: list[Chem.Bond]
) -> tuple[list[int], list[int]]:
    """Return the code of each atom (0 none, R, S, r, s, unknown) and bond (0 none, Z, E, unknown).

    The code is 0 for a tagged atom or bond that is not a stereo element, since two of its branches
    are equal. RDKit's older labels are not used: they depend on how some molecules are written. The
    stereo properties of ``mol`` are overwritten.
    """
    tags, stereo = list(map(Chem.Atom.GetChiralTag, atoms)), list(map(Chem.Bond.GetStereo, bonds))
    atom_codes, bond_codes = [0] * len(atoms), [0] * len(bonds)
    centers = [k for k, tag in enumerate(tags) if tag != _NO_TAG]
    stereo_bonds = [k for k, kind in enumerate(stereo) if kind != _NO_STEREO]
    if not centers and not stereo_bonds:
        return atom_codes, bond_codes
    for element in (*(atoms[k] for k in centers), *(bonds[k] for k in stereo_bonds)):
        element.ClearProp(_LABEL)
    count = len(centers) + len(stereo_bonds)
    limit = _MAX_COMPARISONS * _FEW_STEREO_ELEMENTS // max(count, _FEW_STEREO_ELEMENTS)
    is_labeled = count <= _MAX_STEREO_ELEMENTS
    try:
        if is_labeled:
            rdCIPLabeler.AssignCIPLabels(mol, maxRecursiveIterations=limit)
    except Exception:  # RDKit raises various errors: too many comparisons, unusual elements
        is_labeled = False

    def code(element: Chem.Atom | Chem.Bond, codes: dict[str, int], unknown: int) -> int:
        return codes.get(element.GetProp(_LABEL), unknown) if element.HasProp(_LABEL) else 0

    for k in centers:
        can_tell = is_labeled and tags[k] in _TETRAHEDRAL_TAGS
        atom_codes[k] = code(atoms[k], _CENTERS, _UNKNOWN_CENTER) if can_tell else _UNKNOWN_CENTER
    for k in stereo_bonds:
        can_tell = is_labeled and stereo[k] in _PLANAR
        bond_codes[k] = code(bonds[k], _BONDS, _UNKNOWN_BOND) if can_tell else _UNKNOWN_BOND
    return atom_codes, bond_codes
