"""SMILES to RDKit molecules, or to the reason for refusing them, and on to attribute codes.

Every call into RDKit from Python takes time, so atoms and bonds are asked for by index (half the
cost of iterating), stereo only where the text can contain any, and a parent, by which folds and
repeats go, only where a text shows that there may be a fragment, a charge or a metal to remove.
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

_NONMETAL = "A[rst]|Br?|Cl?|F|Ge|He?|I|Kr|N[e]?|O|P|Rn|S[ei]?|Te|Xe|[a-z*#]"
METAL = rf"\[\d*(?!(?:{_NONMETAL})(?![a-z])|[a-z]{{2}})"
"""Pattern of the beginning of a metal atom in a SMILES."""
_CANDIDATE = re.compile(rf"[.+]|\[[^\]]*-|{METAL}")
"""Several fragments, a charge, or a metal in brackets."""
_NEUTRAL_GROUPS = re.compile(
    r"\[N\+\]\(=O\)\(?\[O-\]|\[O-\]\[N\+\]\(=O\)|\[N\+\]\(\[O-\]\)=O|O=\[N\+\]\(\[O-\]\)"
    r"|\[n\+\]\(\[O-\]\)|\[O-\]\[n\+\]|N=\[N\+\]=\[N-\]|\[N-\]=\[N\+\]=N"
)
"""Nitro groups, N-oxides and azides: charges that every form of a molecule has."""
_MOST_ATOMS = 1000
"""Atoms beyond which only fragments are looked at: the time of the rest grows with the square."""
_MOST_FRAGMENTS, _LARGEST_COUNTERION = 100, 40


def may_have_parent(text: str) -> bool:
    """Return whether a SMILES may differ from its parent.

    Example:
        >>> [may_have_parent(s) for s in ("CCO", "CC[N+](=O)[O-]", "CCN.Cl", "C[NH3+]", "[Na]OC")]
        [False, False, True, True, True]
    """
    if _CANDIDATE.search(text) is None:
        return False
    return _CANDIDATE.search(_NEUTRAL_GROUPS.sub("", text.split(maxsplit=1)[0])) is not None


with rdBase.BlockLogs():  # they announce themselves
    _METALS, _GROUPS = rdMolStandardize.MetalDisconnector(), rdMolStandardize.Normalizer()
    _CHARGES, _TAUTOMERS = rdMolStandardize.Uncharger(), rdMolStandardize.TautomerEnumerator()


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
"""Acids, bases and solvents that accompany a compound, even one smaller than they are."""


def parent_of(mol: Chem.Mol, standardize: str = "parent") -> str | None:
    """Return the SMILES of a molecule's parent; None where it is the molecule as it is written.

    That is so without carbon, with a metal that does not only make salts, for complexes of two
    metals are two compounds, and if RDKit cannot tell.

    Args:
        mol: An RDKit molecule.
        standardize: ``parent``, or ``parent-tautomer``: its canonical tautomer.

    Example:
        >>> [
        ...     parent_of(Chem.MolFromSmiles(s))
        ...     for s in ("CC[NH3+].[Cl-]", "CCC[NH2+]C.[O-]C(=O)c1ccccc1")
        ... ]
        ['CCN', 'CCCNC']
    """
    elements = set(map(Chem.Atom.GetAtomicNum, mol.GetAtoms()))
    if 6 not in elements or not elements <= _IN_PARENTS:
        return None
    try:
        mol = _main_fragment(_METALS.Disconnect(mol))
        if mol.GetNumAtoms() <= _MOST_ATOMS:
            if any(map(Chem.Atom.GetFormalCharge, mol.GetAtoms())):
                mol = _with_plain_sulfoxides(_CHARGES.uncharge(_GROUPS.normalize(mol)))
            if standardize == "parent-tautomer":
                mol = _TAUTOMERS.Canonicalize(mol)
        return Chem.MolToSmiles(mol)
    except Exception:  # RDKit's own types, on molecules that standardization was not made for
        return None


def _main_fragment(mol: Chem.Mol) -> Chem.Mol:
    """Return the largest fragment with carbon, one that is no counter-ion if there is one."""
    count = len(Chem.GetMolFrags(mol))
    if count == 1:
        return mol
    if count > _MOST_FRAGMENTS:
        raise ValueError(f"{count} fragments")
    fragments = Chem.GetMolFrags(mol, asMols=True)

    def rank(fragment: Chem.Mol) -> tuple[bool, bool, int, float, str]:
        size = fragment.GetNumAtoms()
        is_organic = any(atom.GetAtomicNum() == 6 for atom in fragment.GetAtoms())
        is_small = size <= _LARGEST_COUNTERION
        is_compound = is_organic and not (is_small and _is_counterion(fragment))
        weight = rdMolDescriptors.CalcExactMolWt(fragment)
        return is_compound, is_organic, size, weight, Chem.MolToSmiles(fragment)

    return max(fragments, key=rank)


def _is_counterion(fragment: Chem.Mol) -> bool:
    return _plain_name(_CHARGES.uncharge(fragment)) in _COUNTERIONS


def _plain_name(mol: Chem.Mol) -> str:
    """Return what is the same for all stereoisomers, isotopes and forms of bonds to a metal."""
    atoms = mol.GetAtoms()  # deuterium is an atom to RDKit
    if any(atom.GetIsotope() or atom.GetAtomicNum() not in _NONMETALS for atom in atoms):
        mol = in_one_form(mol)
    return Chem.MolToSmiles(mol, isomericSmiles=False)


def _with_plain_sulfoxides(mol: Chem.Mol) -> Chem.Mol:
    """Return the molecule with S=O where normalization has written S+ and O-, as tables do."""
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
    """Return the number of a molecule that was written as ``text``; see ``constitution_keys``."""
    parent = parent_of(mol) if may_have_parent(text) else None
    whole = mol if parent is None else Chem.MolFromSmiles(parent)
    name = _plain_name(whole or mol)
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1


Codes = Integer[np.ndarray, "_"]

LONGEST = 20_000
"""Characters of a SMILES: beyond it RDKit's ring search can take hours on a single row."""

MOST_RINGS, MOST_FUSED = 1000, 200
"""Rings of a molecule, and of a fused system, beyond which reading takes seconds to minutes."""
_FEW_RINGS = 60

_NEEDS_CARE = re.compile(r"[^!-~]|[@/\\<>~]|\[(?:\d*H|#)")
"""CXSMILES extension, foreign character, stereo, dative or unspecified bond, explicit hydrogen,
an element by its number."""
_HAS_VARIANTS = re.compile(rf"^InChI=|->|<-|\[\d|{METAL}")
"""Dative bonds, isotopes, metals: what can be written in several ways."""
_FOREIGN = re.compile(r"[^!-~]")
_MAP = re.compile(r":\d+\]")
"""The end of an atom in a SMILES that has a map number."""

_INCHI = "InChI="
_OTHER_NOTATIONS = {
    re.compile(r"(?<!-)>.*(?<!-)>"): "a reaction, not a molecule",
    # in brackets: an element by its number, logic, a pattern within
    re.compile(r"\[[^\]]*(?:#\d|[;,!&]|\$\()"): "a SMARTS pattern, not a SMILES",
    re.compile(r"^[A-Z]{14}-[A-Z]{10}-[A-Z]$"): (
        "an InChIKey, which names a molecule and does not describe it; give its SMILES"
    ),
}
"""What looks like a SMILES or is taken for one."""
_NAME = re.compile(r"[A-Za-z]*[adefghijklmqrtuvwxyz][a-z]{2,}")
"""Letters in a row that no SMILES has."""
_IN_NO_SMILES = re.compile(r"[,;\"'`_!?{}]")
"""Characters that a SMILES never holds; looked for where RDKit has refused it."""

_BARE = Chem.SmilesParserParams()
_BARE.sanitize = False
_BARE.removeHs = False


def _unchecked(text: str) -> Chem.Mol | None:
    """Return the molecule of a SMILES whatever its chemistry; None where its syntax is wrong."""
    return Chem.MolFromSmiles(_without_maps(text), _BARE)


def _without_maps(text: str) -> str:
    """Return a SMILES without atom map numbers: they would tell equal atoms apart."""
    return _MAP.sub("]", text) if ":" in text else text


def is_flat(text: str) -> bool:
    """Return whether a SMILES surely has no stereo, unusual intended bonds or hydrogens to drop."""
    return _NEEDS_CARE.search(text) is None


def parse_smiles(text: object) -> Chem.Mol | str:
    """Return RDKit's molecule without atom map numbers, or the reason (a str) why there is none.

    RDKit's own messages are left to the caller to silence.
    """
    if not isinstance(text, str):
        return f"not text but {type(text).__name__}"
    text = text.strip()
    if len(text) > LONGEST:
        return f"longer than {LONGEST:,} characters ({len(text):,})"
    if not text:
        return "empty"
    if "\0" in text:
        return "contains a NUL byte"
    if "\n" in text or "\r" in text:
        return "contains a line break"
    word, is_inchi = text.split(maxsplit=1)[0], text.startswith(_INCHI)
    for pattern, found in _OTHER_NOTATIONS.items():
        if not is_inchi and pattern.search(word):
            return found
    foreign = _FOREIGN.search(word)
    if foreign is not None:  # RDKit drops some of them at the end of a SMILES without a word
        return f"not a SMILES character: {foreign[0]!a}"
    try:
        if (reason := _complexity(text)) is not None:
            return reason
        mol = _from_inchi(text) if is_inchi else Chem.MolFromSmiles(_without_maps(text))
        if mol is None and is_inchi:
            return "RDKit cannot parse: not a valid InChI"
        if mol is None:
            return f"RDKit cannot parse: {_diagnose(text)}"
    except Exception as e:  # Boost.Python: of lone surrogates, of elements beyond 118
        return f"RDKit cannot parse: {one_line(e)}"
    return mol if mol.GetNumAtoms() else "empty"


_MISPLACED = tuple(map(Chem.MolFromSmarts, ("[O,S;D1H][#6X3]=,:[#7X2+0]", "[nD2H]:c=[NX2+0;!R]")))
"""Hydrogen, the atom between, and where tables write it: amides and lactams, aromatic amines."""


def _from_inchi(text: str) -> Chem.Mol | None:
    """Return the molecule of an InChI, with mobile hydrogens where tables write them.

    An InChI does not say where they are, and RDKit makes imidic acids of amides. Its canonical
    tautomer instead would move other hydrogens as well, and takes ten to a hundred times as long.
    """
    mol = Chem.MolFromInchi(text)
    while mol is not None:
        matches = (match for pattern in _MISPLACED for match in mol.GetSubstructMatches(pattern))
        moved = next(filter(None, (_with_moved_hydrogen(mol, *match) for match in matches)), None)
        if moved is None:
            break
        mol = moved
    return mol


def _with_moved_hydrogen(mol: Chem.Mol, donor: int, middle: int, taker: int) -> Chem.Mol | None:
    """Return a molecule with a hydrogen moved over two bonds; None where that makes no molecule."""
    editable = Chem.RWMol(mol)
    for end, kind, hydrogens in ((donor, _TYPE.DOUBLE, -1), (taker, _TYPE.SINGLE, 1)):
        atom, bond = editable.GetAtomWithIdx(end), editable.GetBondBetweenAtoms(end, middle)
        atom.SetNumExplicitHs(atom.GetNumExplicitHs() + hydrogens)
        bond.SetStereo(_CIS.STEREONONE)
        if bond.GetBondType() != _TYPE.AROMATIC:
            bond.SetBondType(kind)
    with suppress(Exception):  # RDKit's own types: bonds of its rings cannot be set
        Chem.SanitizeMol(editable)
        return editable.GetMol()
    return None


def _parsed(text: object) -> tuple[Chem.Mol | str, bool]:
    """Return :func:`parse_smiles` of a text, and whether it was read without a search for stereo.

    That takes a third less.
    """
    if isinstance(text, str) and len(text) <= LONGEST and is_flat(text):
        with suppress(Exception):  # whatever RDKit raises, the careful way says it better
            mol = _unchecked(text)
            if mol is not None and mol.GetNumAtoms() and _complexity(text) is None:
                Chem.SanitizeMol(mol)
                return mol, True
    return parse_smiles(text), False


def parsed(texts: Iterable[object]) -> Iterator[Chem.Mol | str]:
    """Yield :func:`parse_smiles` of each text, with RDKit's messages silenced meanwhile."""
    with rdBase.BlockLogs():
        yield from map(parse_smiles, texts)


def parsed_in_one_form(texts: Sequence[str]) -> Iterator[Chem.Mol | str]:
    """Yield the molecules of :func:`parsed` by :func:`in_one_form`."""
    for text, mol in zip(texts, parsed(texts), strict=True):
        has_variants = not isinstance(mol, str) and _HAS_VARIANTS.search(text)
        yield in_one_form(mol) if has_variants else mol


def _complexity(text: str) -> str | None:
    """Return why RDKit's ring search would take seconds and gigabytes; None where it would not."""
    few = 2 * _FEW_RINGS
    closures = sum(map(text.count, "0123456789")) if len(text) > few else 0
    mol = _unchecked(text) if closures > few else None
    if mol is None:
        return None
    rings = mol.GetNumBonds() - mol.GetNumAtoms() + len(Chem.GetMolFrags(mol))
    if rings <= _FEW_RINGS:
        return None
    if rings > MOST_RINGS:
        return f"has more than {MOST_RINGS:,} rings ({rings:,})"
    import networkx as nx  # few molecules need it

    graph: Any = nx.Graph([(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()])
    graph.remove_edges_from(list(nx.bridges(graph)))
    for system in nx.connected_components(graph):
        atoms = len(system)
        fused = graph.subgraph(system).number_of_edges() - atoms + 1
        if fused > MOST_FUSED or (fused > _FEW_RINGS and fused > 2 * atoms):
            return f"has a system of {fused:,} fused rings on {atoms:,} atoms, too complex"
    return None


def one_line(error: Exception) -> str:
    """Return the first line of an error of RDKit."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def _diagnose(text: str) -> str:
    """Return what is wrong with a SMILES that RDKit refused."""
    mol = _unchecked(text)
    if mol is not None:
        problems = Chem.DetectChemistryProblems(mol)
        return problems[0].Message() if problems else "not a valid molecule"
    # the rest guesses: RDKit tells the log alone, whose settings are the user's
    smiles = text.split(maxsplit=1)[0]
    if _NAME.search(smiles):
        return "not a SMILES; it looks like a name"
    foreign = _IN_NO_SMILES.search(smiles)
    if foreign is not None:
        return f"not a SMILES character: {foreign[0]!a}"
    for brackets, kind in (("[]", "square brackets"), ("()", "parentheses")):
        if smiles.count(brackets[0]) != smiles.count(brackets[1]):
            return f"unbalanced {kind}"
    outside = re.sub(r"\[[^\]]*\]", "", smiles)
    numbers = Counter(int(label.strip("%")) for label in re.findall(r"%[0-9]{2}|[0-9]", outside))
    is_open = any(count % 2 for count in numbers.values())  # a ring has two ends
    return "unclosed ring" if is_open else "not a SMILES"


def _lookup(values: Iterable[SupportsInt], other: int) -> Codes:
    """Return a table from values to their places; all others give ``other``, as its middle does."""
    places = {int(value): place for place, value in enumerate(values)}
    beyond = max(map(abs, places)) + 1
    table = np.full(2 * beyond + 1, other)
    table[list(places)] = list(places.values())  # negative values are counted from the end
    return table.astype(np.min_scalar_type(table.max()))


def _codes(values: list[int], table: Codes) -> Codes:
    beyond = len(table) // 2
    return table[np.fromiter(values, dtype=np.int64, count=len(values)).clip(-beyond, beyond)]


_TAG, _TYPE, _DIR = Chem.ChiralType, Chem.BondType, Chem.BondDir
_CIS, _HYB = Chem.BondStereo, Chem.HybridizationType
_TETRAHEDRAL_TAGS = (_TAG.CHI_TETRAHEDRAL_CW, _TAG.CHI_TETRAHEDRAL_CCW)
_PLANAR = (_CIS.STEREOZ, _CIS.STEREOE, _CIS.STEREOCIS, _CIS.STEREOTRANS)
_BOND = (_TYPE.SINGLE, _TYPE.DOUBLE, _TYPE.TRIPLE, _TYPE.AROMATIC)
_BY_ORDER = dict(zip((1.0, 2.0, 3.0, 1.5), map(int, _BOND), strict=True))
_NONMETALS = frozenset({0, 1, 2, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 34, 35, 36, 53, 54})

_IN_PARENTS = _NONMETALS | {32, 33, 52, 85} | {3, 11, 19, 37, 55, 87} | {4, 12, 20, 38, 56, 88}
"""Elements of molecules with a parent: germanium, arsenic and their like, and metals of salts."""

_ELEMENT = _lookup(range(1, 119), WILDCARD)
_CHIRALITY = _lookup((_TAG.CHI_UNSPECIFIED, *_TETRAHEDRAL_TAGS), OTHER_CHIRALITY)
_RICH_CHIRALITY = _lookup((_TAG.CHI_UNSPECIFIED, *_TETRAHEDRAL_TAGS, _TAG.CHI_OTHER), 4)
_DIRECTION = _lookup((_DIR.NONE, _DIR.ENDUPRIGHT, _DIR.ENDDOWNRIGHT), OTHER_DIRECTION)
_BOND_STEREO = _lookup((_CIS.STEREONONE, *_PLANAR, _CIS.STEREOANY), 6)
_CIP = _lookup(range(6), 0)
"""Leaves the codes of ``cip_codes`` as they are."""
_YES_NO = _lookup(range(2), 0)
_RICH_ATOM: Mapping[Callable[[Chem.Atom], int], Codes] = {
    Chem.Atom.GetTotalDegree: _lookup(range(11), 11),
    Chem.Atom.GetFormalCharge: _lookup(range(-5, 6), 11),
    Chem.Atom.GetTotalNumHs: _lookup(range(9), 9),
    Chem.Atom.GetNumRadicalElectrons: _lookup(range(5), 5),
    Chem.Atom.GetHybridization: _lookup((_HYB.SP, _HYB.SP2, _HYB.SP3, _HYB.SP3D, _HYB.SP3D2), 5),
    Chem.Atom.GetIsAromatic: _YES_NO,
    Chem.Atom.IsInRing: _YES_NO,
}
"""What the atoms of all schemas but ``molecule`` are asked, and the codes of the answers."""


class _Columns:
    """The raw answers of RDKit for the molecules of a chunk, one flat list an attribute."""

    def __init__(self, schema: FeatureSchema) -> None:
        rich = schema != MOLECULE
        self.cip = schema in (MOLECULE_CIP, MOLECULE_ISOTOPES)
        self.keeps_isotopes = schema == MOLECULE_ISOTOPES
        of_atoms = {**_RICH_ATOM} if rich else {}
        if self.keeps_isotopes:
            of_atoms[Chem.Atom.GetIsotope] = _lookup(range(300), 300)
        of_bonds = {Chem.Bond.GetIsConjugated: _YES_NO} if rich else {}
        self._of_atoms, self._of_bonds = [*of_atoms], [*of_bonds]
        self._axis = Chem.Bond.GetStereo if rich else Chem.Bond.GetBondDir
        kinds = _lookup(_BOND, 4 if rich else OTHER_BOND)
        centers, axes = (_RICH_CHIRALITY, _BOND_STEREO) if rich else (_CHIRALITY, _DIRECTION)
        if self.cip:
            centers = axes = _CIP
        self._atom_codes = [_ELEMENT, centers, *of_atoms.values()]
        self._bond_codes = [kinds, axes, *of_bonds.values()]
        self._atoms: list[list[int]] = [[] for _ in schema.node]
        self._bonds: list[list[int]] = [[] for _ in schema.edge]
        self._ends: list[list[int]] = [[], []]
        self._counts: list[tuple[int, int]] = []

    def add(self, mol: Chem.Mol, flat: bool) -> str | None:
        """Take one molecule's attributes, if ``flat`` without stereo; return why that failed."""
        try:
            answers = self._answers(mol, flat)
        except Exception as e:  # RDKit raises errors of its own on molecules nobody has seen before
            return f"RDKit cannot describe it: {one_line(e)}"
        columns = (*self._atoms, *self._bonds, *self._ends)
        for column, values in zip(columns, answers, strict=True):
            column.extend(values)
        self._counts.append((mol.GetNumAtoms(), mol.GetNumBonds()))
        return None

    def _answers(self, mol: Chem.Mol, flat: bool) -> list[Sequence[int]]:
        atoms = list(map(mol.GetAtomWithIdx, range(mol.GetNumAtoms())))
        bonds = list(map(mol.GetBondWithIdx, range(mol.GetNumBonds())))
        elements = list(map(Chem.Atom.GetAtomicNum, atoms))
        kinds = _bond_types(bonds, flat and _NONMETALS.issuperset(elements))
        if flat:
            centers, axes = [0] * len(atoms), [0] * len(bonds)
        elif self.cip:
            centers, axes = cip_codes(mol, atoms, bonds)
        else:
            centers = list(map(Chem.Atom.GetChiralTag, atoms))
            axes = list(map(self._axis, bonds))
        return [
            elements,
            centers,
            *(list(map(ask, atoms)) for ask in self._of_atoms),
            kinds,
            axes,
            *(list(map(ask, bonds)) for ask in self._of_bonds),
            list(map(Chem.Bond.GetBeginAtomIdx, bonds)),
            list(map(Chem.Bond.GetEndAtomIdx, bonds)),
        ]

    def chunk(self, rows: list[int], texts: list[str], parents: dict[int, str]) -> GraphChunk:
        """Return the molecules; each bond is listed once."""
        counts = np.array(self._counts, dtype=np.int64).reshape(-1, 2)
        return GraphChunk(
            node_counts=counts[:, 0],
            edge_counts=counts[:, 1],
            x=np.stack(list(map(_codes, self._atoms, self._atom_codes)), 1),
            edge_index=np.array(self._ends, dtype=np.int32),
            edge_attr=np.stack(list(map(_codes, self._bonds, self._bond_codes)), 1),
            rows=np.array(rows, dtype=np.int64),
            texts=texts,
            parents=parents,
        )


def _bond_types(bonds: list[Chem.Bond], by_order: bool) -> list[int]:
    """Return RDKit's bond types, at a third of the cost where the orders tell (not if dative)."""
    if by_order:
        with suppress(KeyError):  # quadruple, unspecified
            return [_BY_ORDER[order] for order in map(Chem.Bond.GetBondTypeAsDouble, bonds)]
    return list(map(Chem.Bond.GetBondType, bonds))


_EXCLUDED = "excluded: the molecule occurs in a list of those to leave out"


def featurize_smiles(
    texts: Sequence[object],
    schema: FeatureSchema = MOLECULE,
    standardize: str | None = None,
    with_parents: bool = True,
    unwanted: UInt64[np.ndarray, "K"] | None = None,
) -> tuple[GraphChunk, list[tuple[int, str] | Refused]]:
    """Return the graphs of ``texts`` and ``(position, reason)`` of each text that is no molecule.

    Atoms and bonds keep RDKit's order, which is that of the SMILES; each bond is listed once as
    (begin, end). ``rows`` of the chunk are positions in ``texts``.

    Args:
        texts: SMILES, CXSMILES extensions allowed; what is not text is refused like any other.
        schema: ``MOLECULE``, ``MOLECULE_RICH``, ``MOLECULE_CIP`` or ``MOLECULE_ISOTOPES``.
        standardize: ``parent`` or ``parent-tautomer`` reads that in place of the molecule; the
            texts are then its SMILES where it differs.
        with_parents: Whether to find the parents of molecules that are read as they are.
        unwanted: Keys of molecules that are refused (``constitution_keys``), in ascending order.

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
            mol, flat = _parsed(given)
            if isinstance(mol, str):
                rejects.append((position, mol))
                continue
            text = str(given)  # nothing else has a molecule
            if unwanted is not None:
                key = np.uint64(constitution_key(mol, text))
                if key in unwanted[unwanted.searchsorted(key) :][:1]:
                    rejects.append(Refused(position, _EXCLUDED, RejectKind.EXCLUDED))
                    continue
            parent = None
            if standardize == "parent-tautomer" or (
                (with_parents or standardize) and may_have_parent(text)
            ):
                parent = parent_of(mol, standardize or "parent")
            if standardize and parent is not None:
                text, parent = parent, None
                mol, flat = _parsed(text)
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
    """Return a number for each SMILES, equal for equal molecules; 0 where it cannot be parsed.

    Molecules are equal where the canonical SMILES of their parents without stereo and isotopes
    are. The numbers are the first eight bytes of a hash: among a billion molecules one pair in
    forty such lists would share one by chance.
    """
    mols = zip(parsed(smiles), smiles, strict=True)
    keys = [0 if isinstance(mol, str) else constitution_key(mol, text) for mol, text in mols]
    return np.array(keys, dtype=np.uint64)


_DONORS = frozenset({7, 8, 15, 16, 33, 34})
_HALOGENS = frozenset({9, 17, 35, 53})


def in_one_form(mol: Chem.Mol, keep_isotopes: bool = False) -> Chem.Mol:
    """Return a molecule as ``molecule-cip`` sees it, however bonds to metals are written.

    N, O, P, S, As and Se are bound to a metal by dative bonds, and have the hydrogens and charges
    of free ligands; halogens are bound by single bonds. There are no isotopes, and so no stereo
    by them, unless ``keep_isotopes``.
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
    except Exception:  # no valence model fits it in this form: it stays as it is written
        return as_written


def _coordinate(editable: Chem.RWMol, begin: int, end: int) -> None:
    """Make a bond between a metal and a donor dative, or single where the donor is a halogen."""
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
        moved = {(True, -1): -1, (False, 1): 1}.get((is_dative, charge), 0)
        gains_hydrogen = moved == -1 or (not is_dative and charge == 0)
        donor.SetFormalCharge(charge - moved if moved > 0 else charge + (moved == -1))
        metal.SetFormalCharge(metal.GetFormalCharge() + moved)
        hydrogens = donor.GetTotalNumHs() + gains_hydrogen
        donor.SetNoImplicit(True)
        donor.SetNumExplicitHs(hydrogens)
        editable.RemoveBond(begin, end)
        editable.AddBond(donor.GetIdx(), metal.GetIdx(), _TYPE.DATIVE)


UNKNOWN_CENTER, UNKNOWN_BOND = 5, 3
"""Codes of ``molecule-cip`` for stereo without a label.

It is at centers that are not tetrahedral, at axial bonds, or in molecules too symmetric to rank
their branches.
"""

_MOST_COMPARISONS = 125_000
"""Of branches in one molecule, about a tenth of a second; nearly all need fewer than 10,000."""
_FEW_ELEMENTS, _MOST_ELEMENTS = 200, 1000
"""Stereo elements from which fewer comparisons are made, and none: 2,400 took 3 GB of memory."""
_CENTERS = {"R": 1, "S": 2, "r": 3, "s": 4}
_BONDS = {"Z": 1, "z": 1, "E": 2, "e": 2}
_LABEL = "_CIPCode"
_NO_TAG, _NO_STEREO = _TAG.CHI_UNSPECIFIED, _CIS.STEREONONE


def cip_codes(
    mol: Chem.Mol, atoms: list[Chem.Atom], bonds: list[Chem.Bond]
) -> tuple[list[int], list[int]]:
    """Return the code of each atom (0 none, R, S, r, s, unknown) and bond (0 none, Z, E, unknown).

    What carries a tag but is no stereo element by the rules, since two of its branches are the
    same, has code 0. RDKit's older labels are not looked at: they differ between two ways of
    writing some molecules. The stereo properties of ``mol`` are overwritten.
    """
    tags, stereo = list(map(Chem.Atom.GetChiralTag, atoms)), list(map(Chem.Bond.GetStereo, bonds))
    centers, axes = [0] * len(atoms), [0] * len(bonds)
    tagged = [k for k, tag in enumerate(tags) if tag != _NO_TAG]
    marked = [k for k, kind in enumerate(stereo) if kind != _NO_STEREO]
    if not tagged and not marked:
        return centers, axes
    for element in (*(atoms[k] for k in tagged), *(bonds[k] for k in marked)):
        element.ClearProp(_LABEL)
    elements = len(tagged) + len(marked)
    most = _MOST_COMPARISONS * _FEW_ELEMENTS // max(elements, _FEW_ELEMENTS)
    is_labeled = elements <= _MOST_ELEMENTS
    try:
        if is_labeled:
            rdCIPLabeler.AssignCIPLabels(mol, maxRecursiveIterations=most)
    except Exception:  # RDKit's own types: too many comparisons, or an element it was not made for
        is_labeled = False
    for k in tagged:
        has_label = is_labeled and tags[k] in _TETRAHEDRAL_TAGS
        centers[k] = _code(atoms[k], _CENTERS, UNKNOWN_CENTER) if has_label else UNKNOWN_CENTER
    for k in marked:
        has_label = is_labeled and stereo[k] in _PLANAR
        axes[k] = _code(bonds[k], _BONDS, UNKNOWN_BOND) if has_label else UNKNOWN_BOND
    return centers, axes


def _code(element: Chem.Atom | Chem.Bond, codes: dict[str, int], other: int) -> int:
    return codes.get(element.GetProp(_LABEL), other) if element.HasProp(_LABEL) else 0
