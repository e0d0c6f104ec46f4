"""Text to RDKit molecule, or in a few words why not, which goes into the table of rejects."""

import re
from collections import Counter
from typing import Any

from rdkit import Chem

LONGEST = 20_000
"""Characters of a SMILES: beyond it RDKit's ring search can take hours on a single row."""

MOST_RINGS, MOST_FUSED = 1000, 200
"""Rings of a molecule, and of a system of fused rings.

Beyond them a molecule of a few thousand characters takes seconds to minutes.
"""
_FEW_RINGS = 60

_NEEDS_CARE = re.compile(r"[^!-~]|[@/\\<>~]|\[\d*H")
"""CXSMILES extension, foreign character, stereo, dative or unspecified bond, explicit hydrogen."""
_FOREIGN = re.compile(r"[^!-~]")

_IN_NO_SMILES = re.compile(r"[,;\"'`_!?{}]")
"""Characters that a SMILES never holds; looked for where RDKit has refused it."""

_BARE = Chem.SmilesParserParams()
_BARE.sanitize = False
_BARE.removeHs = False


def is_flat(text: str) -> bool:
    """Return whether a SMILES surely has no stereo, unusual intended bonds or hydrogens to drop."""
    return _NEEDS_CARE.search(text) is None


def parse_flat(text: str) -> Any:
    """Return what :func:`parse_smiles` returns, in two thirds of its time: no search for stereo.

    Only for texts that :func:`is_flat` and are shorter than ``LONGEST``; properties that no
    attribute is made of may differ.
    """
    try:
        mol: Any = Chem.MolFromSmiles(text, _BARE)
        if mol is None or not mol.GetNumAtoms():
            return parse_smiles(text)
        if _may_be_complex(text) and (reason := _complexity(mol)) is not None:
            return reason
        Chem.SanitizeMol(mol)
    except Exception:  # whatever RDKit raises, the careful way says it better
        return parse_smiles(text)
    return mol


def parse_smiles(text: Any) -> Any:
    """Return RDKit's molecule, or the reason (a str) why there is none.

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
    foreign = _FOREIGN.search(text.split(maxsplit=1)[0])
    if foreign is not None:  # RDKit drops some of them at the end of a SMILES without a word
        return f"not a SMILES character: {foreign[0]!a}"
    try:
        bare: Any = Chem.MolFromSmiles(text, _BARE) if _may_be_complex(text) else None
        if bare is not None and (reason := _complexity(bare)) is not None:
            return reason
        mol: Any = Chem.MolFromSmiles(text)
        if mol is None:
            return f"RDKit cannot parse: {_diagnose(text)}"
    except (
        Exception
    ) as e:  # Boost.Python raises what it likes: lone surrogates, elements beyond 118
        return f"RDKit cannot parse: {one_line(e)}"
    return mol if mol.GetNumAtoms() else "empty"


def _may_be_complex(text: str) -> bool:
    """Return whether a SMILES has enough ring closures to be looked at by :func:`_complexity`."""
    few = 2 * _FEW_RINGS
    return len(text) > few and sum(map(text.count, "0123456789")) > few


def _complexity(mol: Any) -> str | None:
    """Return why RDKit's ring search would take seconds and gigabytes; None where it would not."""
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()]
    rings = len(bonds) - mol.GetNumAtoms() + len(Chem.GetMolFrags(mol))
    if rings <= _FEW_RINGS:
        return None
    if rings > MOST_RINGS:
        return f"has more than {MOST_RINGS:,} rings ({rings:,})"
    for atoms, fused in _ring_systems(bonds, mol.GetNumAtoms()):
        if fused > MOST_FUSED or (fused > _FEW_RINGS and fused > 2 * atoms):
            return f"has a system of {fused:,} fused rings on {atoms:,} atoms, too complex"
    return None


def _ring_systems(bonds: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Return numbers of atoms and independent rings of parts that no single bond cuts in two."""
    ends: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for k, (a, b) in enumerate(bonds):
        ends[a].append((b, k))
        ends[b].append((a, k))
    order, low, parent = [-1] * count, [0] * count, [-1] * count
    visited: list[int] = []
    for root in range(count):
        stack = [(root, -1)] if order[root] < 0 else []
        while stack:
            atom, bond = stack.pop()
            if order[atom] >= 0:
                continue
            order[atom], parent[atom] = len(visited), bond
            visited.append(atom)
            stack += [(other, k) for other, k in ends[atom] if order[other] < 0]
    # depth-first numbers: a bond to the parent is a bridge if nothing below reaches above it
    low = order[:]
    system = list(range(count))
    for atom in reversed(visited):
        for other, k in ends[atom]:
            if k != parent[atom]:
                low[atom] = min(low[atom], low[other] if parent[other] == k else order[other])
    for atom in visited:
        k = parent[atom]
        if k >= 0 and low[atom] < order[atom]:
            above = bonds[k][0] if bonds[k][1] == atom else bonds[k][1]
            system[atom] = system[above]
    atoms, inside = Counter(system), Counter(system[a] for a, b in bonds if system[a] == system[b])
    return [(atoms[s], inside[s] - atoms[s] + 1) for s in atoms]


def one_line(error: Exception) -> str:
    """Return the first line of an error of RDKit."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def _diagnose(text: str) -> str:
    """Return what is wrong with a SMILES that RDKit refused.

    That is its chemistry if its syntax is right, else a guess at the syntax.
    """
    mol: Any = Chem.MolFromSmiles(text, _BARE)
    if mol is None:
        return _syntax(text.split(maxsplit=1)[0])
    problems: Any = Chem.DetectChemistryProblems(mol)
    return problems[0].Message() if problems else "not a valid molecule"


def _syntax(smiles: str) -> str:
    # RDKit tells the log and nobody else, and the log cannot be redirected without touching the
    # user's settings
    foreign = _IN_NO_SMILES.search(smiles)
    if foreign is not None:
        return f"not a SMILES character: {foreign[0]!a}"
    if smiles.count("[") != smiles.count("]"):
        return "unbalanced square brackets"
    if smiles.count("(") != smiles.count(")"):
        return "unbalanced parentheses"
    return "unclosed ring" if _open_rings(smiles) else "not a SMILES"


def _open_rings(smiles: str) -> bool:
    """Return whether a ring-closure number occurs an odd number of times outside brackets."""
    is_open: set[str] = set()
    depth, k = 0, 0
    while k < len(smiles):
        c = smiles[k]
        depth += (c == "[") - (c == "]")
        if depth == 0 and (c.isdigit() or c == "%"):
            label = smiles[k + 1 : k + 3] if c == "%" else c
            k += 2 if c == "%" else 0
            is_open ^= {label.lstrip("0") or "0"}
        k += 1
    return bool(is_open)
