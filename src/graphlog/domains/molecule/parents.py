"""The parent of a molecule: its largest organic fragment but common counter-ions, neutral.

Salts, solvates and protonated forms of one compound have one parent, so folds and repeats go by
it. RDKit's standardization takes longer than all the rest of reading, so it is asked only about
texts in which something shows that there may be a fragment, a charge or a metal to remove.
"""

import re
from functools import cache
from hashlib import blake2b

from rdkit import Chem
from rdkit.Chem import rdMolDescriptors
from rdkit.Chem.MolStandardize import rdMolStandardize

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


_COUNTERIONS = (
    *("OC=O", "CC(O)=O", "OC(=O)C(F)(F)F", "OC(=O)C(O)=O", "OC(=O)CC(O)=O", "OC(=O)CCC(O)=O"),
    *("OC(=O)C=CC(O)=O", "CC(O)C(O)=O", "OC(=O)CC(O)C(O)=O", "OC(=O)C(O)C(O)C(O)=O"),
    *("OC(=O)CC(O)(CC(O)=O)C(O)=O", "OC(=O)C(O)c1ccccc1", "OC(=O)c1ccccc1", "OC(=O)c1ccccc1O"),
    *("OCC(O)C(O)C(O)C(O)C(O)=O", "CS(O)(=O)=O", "CCS(O)(=O)=O", "OCCS(O)(=O)=O"),
    *("OS(=O)(=O)CCS(O)(=O)=O", "OS(=O)(=O)C(F)(F)F", "OS(=O)(=O)c1ccccc1"),
    *("Cc1ccc(cc1)S(O)(=O)=O", "OS(=O)(=O)c1ccc2ccccc2c1", "COS(O)(=O)=O"),
    *("CC1(C)C2CCC1(CS(O)(=O)=O)C(=O)C2", "Oc1c(cc(cc1[N+](=O)[O-])[N+](=O)[O-])[N+](=O)[O-]"),
    "OC(=O)c1cc2ccccc2c(Cc2c(O)c(cc3ccccc23)C(O)=O)c1O",
    *("CCNCC", "CCN(CC)CC", "NCCO", "OCCNCCO", "OCCN(CCO)CCO", "NCC(CO)(CO)CO", "NC(CO)(CO)CO"),
    *("CNCC(O)C(O)C(O)C(O)CO", "C[N+](C)(C)CCO", "CO", "CCO", "CC(C)O", "CC(C)=O", "CC#N"),
    *("CS(C)=O", "CN(C)C=O", "CCOC(C)=O", "C1CCOC1", "C1COCCO1", "ClCCl", "ClC(Cl)Cl"),
)
"""Acids, bases and solvents that accompany a compound, even one smaller than they are."""


def parent_of(mol: Chem.Mol, standardize: str = "parent") -> str | None:
    """Return the SMILES of a molecule's parent; None where RDKit cannot tell.

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
    tools = _tools()
    try:
        mol = _main_fragment(tools.metals.Disconnect(mol), tools)
        if mol.GetNumAtoms() <= _MOST_ATOMS:
            if any(map(Chem.Atom.GetFormalCharge, mol.GetAtoms())):
                mol = _with_plain_sulfoxides(tools.charges.uncharge(tools.groups.normalize(mol)))
            if standardize == "parent-tautomer":
                mol = tools.tautomers.Canonicalize(mol)
        return Chem.MolToSmiles(mol)
    except Exception:  # RDKit's own types, on molecules that standardization was not made for
        return None


class _Tools:
    """RDKit's standardizers, which take longer to make than to use."""

    def __init__(self) -> None:
        self.metals = rdMolStandardize.MetalDisconnector()
        self.groups = rdMolStandardize.Normalizer()
        self.charges = rdMolStandardize.Uncharger()
        self.tautomers = rdMolStandardize.TautomerEnumerator()
        self.counterions = {self.name(Chem.MolFromSmiles(text)) for text in _COUNTERIONS}

    def name(self, fragment: Chem.Mol) -> str:
        """Return what is the same for all charges and stereoisomers of a fragment."""
        return Chem.MolToSmiles(self.charges.uncharge(fragment), isomericSmiles=False)


@cache
def _tools() -> _Tools:
    return _Tools()


def _main_fragment(mol: Chem.Mol, tools: _Tools) -> Chem.Mol:
    """Return the largest fragment with carbon that is no counter-ion, else the largest."""
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
        is_compound = is_organic and not (is_small and tools.name(fragment) in tools.counterions)
        weight = rdMolDescriptors.CalcExactMolWt(fragment)
        return is_compound, is_organic, size, weight, Chem.MolToSmiles(fragment)

    return max(fragments, key=rank)


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
    name = Chem.MolToSmiles(whole or mol, isomericSmiles=False)
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1
