"""Stereo as a property of the molecule, however written: Cahn-Ingold-Prelog labels."""

from typing import Any

from rdkit import Chem
from rdkit.Chem import rdCIPLabeler

UNKNOWN_CENTER, UNKNOWN_BOND = 5, 3
"""Codes of ``molecule-cip`` for stereo that is specified but has no such label.

These are octahedral and other centers that are not tetrahedral, axial bonds, and molecules so
symmetric that ranking their branches was given up.
"""

_MOST_COMPARISONS = 125_000
"""Of branches in one molecule, about a tenth of a second; nearly all need fewer than 10,000."""
_CENTERS = {"R": 1, "S": 2, "r": 3, "s": 4}
_BONDS = {"Z": 1, "z": 1, "E": 2, "e": 2}
_LABEL = "_CIPCode"
_NO_TAG, _NO_STEREO = Chem.ChiralType.CHI_UNSPECIFIED, Chem.BondStereo.STEREONONE
_TETRAHEDRAL = (Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW)
_PLANAR = (
    Chem.BondStereo.STEREOZ,
    Chem.BondStereo.STEREOE,
    Chem.BondStereo.STEREOCIS,
    Chem.BondStereo.STEREOTRANS,
)


def cip_codes(mol: Any, atoms: list[Any], bonds: list[Any]) -> tuple[list[int], list[int]]:
    """Return the code of each atom (0 none, R, S, r, s, unknown) and bond (0 none, Z, E, unknown).

    What carries a tag but is no stereo element by the rules, since two of its branches are the
    same, has code 0. RDKit's older labels are not looked at: they differ between two ways of
    writing some molecules.

    Args:
        mol: An RDKit molecule; its stereo properties are overwritten.
        atoms: Its atoms, by index.
        bonds: Its bonds, by index.
    """
    tags, stereo = list(map(Chem.Atom.GetChiralTag, atoms)), list(map(Chem.Bond.GetStereo, bonds))
    centers, axes = [0] * len(atoms), [0] * len(bonds)
    tagged = [k for k, tag in enumerate(tags) if tag != _NO_TAG]
    marked = [k for k, kind in enumerate(stereo) if kind != _NO_STEREO]
    if not tagged and not marked:
        return centers, axes
    for element in (*(atoms[k] for k in tagged), *(bonds[k] for k in marked)):
        element.ClearProp(_LABEL)
    try:
        rdCIPLabeler.AssignCIPLabels(mol, maxRecursiveIterations=_MOST_COMPARISONS)
        is_labeled = True
    except Exception:  # RDKit's own types: too many comparisons, or an element it was not made for
        is_labeled = False
    for k in tagged:
        has_label = is_labeled and tags[k] in _TETRAHEDRAL
        centers[k] = _code(atoms[k], _CENTERS, UNKNOWN_CENTER) if has_label else UNKNOWN_CENTER
    for k in marked:
        axes[k] = (
            _code(bonds[k], _BONDS, UNKNOWN_BOND)
            if is_labeled and stereo[k] in _PLANAR
            else UNKNOWN_BOND
        )
    return centers, axes


def _code(element: Any, codes: dict[str, int], other: int) -> int:
    return codes.get(element.GetProp(_LABEL), other) if element.HasProp(_LABEL) else 0
