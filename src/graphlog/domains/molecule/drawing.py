"""Molecules as pictures, also of the largest part that several have in common."""

import re
from collections.abc import Sequence

from rdkit import Chem, rdBase
from rdkit.Chem import rdFMCS
from rdkit.Chem.Draw import rdMolDraw2D

from graphlog.domains.base import CommonPart
from graphlog.domains.molecule.parse import one_line, parsed
from graphlog.errors import DataError

_HIGHLIGHT = (0.62, 0.81, 0.95)
_RAISES, _LOWERS = (0.84, 0.37, 0.0), (0.0, 0.45, 0.70)
"""Orange and blue that all can tell apart (Okabe and Ito)."""
_LONGEST_BOND, _SMALLEST_LABEL = 55, 10
"""Pixels: small molecules are not blown up, and labels of large ones can be read."""
_MOST_STEPS = 20_000
"""Steps of a search, about a second; a limit of time would give other trees elsewhere."""
_SMALLEST = 4
"""Atoms from which a common substructure says something."""
_LARGEST_COMMON = 80
_IDLE = (
    r"<!--.*?-->| (?:class|xmlns:\w+|xml:space|version|baseProfile)='[^']*'|"
    r"(?:fill-rule:evenodd|stroke-linecap:butt|stroke-linejoin:miter);|;?stroke-opacity:1(?=')"
)
"""What a browser need not be told, two thirds of a drawing: default styles, names of parts."""


def draw_svg(
    smiles: str,
    width: int,
    height: int,
    highlight: Sequence[int] = (),
    weights: Sequence[float] | None = None,
) -> str:
    """Return the structure as a short ``<svg>`` element that can stand inside HTML.

    Args:
        smiles: The molecule.
        width: Of the drawing, in pixels.
        height: Of the drawing, in pixels.
        highlight: Atoms to highlight, with the bonds between them.
        weights: Colors atoms from blue (-1) over white (0) to orange (1), instead: one an atom, or
            one for each but hydrogens of an isotope (white). A bond has the mean of its two atoms.

    Raises:
        DataError: If the SMILES cannot be parsed or has another number of atoms.
    """
    (mol,) = parsed([smiles])
    if isinstance(mol, str):
        raise DataError(f"{smiles[:80]!r} cannot be drawn: {mol}.")
    canvas = rdMolDraw2D.MolDraw2DSVG(width, height)
    options = canvas.drawOptions()
    options.clearBackground, options.padding = False, 0.03
    options.fixedBondLength, options.minFontSize = _LONGEST_BOND, _SMALLEST_LABEL
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
    if weights is None:
        atoms = dict.fromkeys(highlight, _HIGHLIGHT)
        bonds = {k: _HIGHLIGHT for k, pair in enumerate(ends) if atoms.keys() >= set(pair)}
    else:
        of_atom = _weight_of_each(mol, smiles, weights)
        atoms = {k: _shade(weight) for k, weight in of_atom.items()}
        bonds = {k: _shade((of_atom[a] + of_atom[b]) / 2) for k, (a, b) in enumerate(ends)}
    try:
        with rdBase.BlockLogs():
            rdMolDraw2D.PrepareAndDrawMolecule(
                canvas,
                Chem.Mol(mol),
                highlightAtoms=list(atoms),
                highlightBonds=list(bonds),
                highlightAtomColors=atoms,
                highlightBondColors=bonds,
            )
            canvas.FinishDrawing()
    except Exception as e:  # RDKit raises errors of its own
        raise DataError(f"{smiles[:80]!r} cannot be drawn: {one_line(e)}.") from None
    drawing: str = re.sub(_IDLE, "", canvas.GetDrawingText())
    drawing = re.sub(r"(\d\.\d)\d+", r"\1", drawing)  # a tenth of a pixel is enough
    drawing = re.sub(r"> <", "><", re.sub(r"\s+", " ", drawing))
    return drawing[drawing.index("<svg") :].strip()


def _weight_of_each(mol: Chem.Mol, smiles: str, weights: Sequence[float]) -> dict[int, float]:
    atoms = list(mol.GetAtoms())
    if len(atoms) != len(weights):
        atoms = [a for a in atoms if a.GetAtomicNum() != 1 or not a.GetIsotope()]
    if len(atoms) != len(weights):
        raise DataError(f"{smiles[:80]!r} has {mol.GetNumAtoms()} atoms, not {len(weights)}.")
    known = {a.GetIdx(): w for a, w in zip(atoms, weights, strict=True)}
    return dict.fromkeys(range(mol.GetNumAtoms()), 0.0) | known


def _shade(weight: float) -> tuple[float, float, float]:
    full, share = (_RAISES if weight > 0 else _LOWERS), min(abs(weight), 1.0)
    red, green, blue = (1 - share * (1 - part) for part in full)
    return red, green, blue


class _Budget(rdFMCS.MCSProgress):
    """Stops a search after a number of steps."""

    steps = 0

    def __call__(self, state: object, search: object) -> bool:
        """Return whether to go on."""
        self.steps += 1
        return self.steps <= _MOST_STEPS


def common_part(smiles: Sequence[str], width: int, height: int) -> CommonPart | None:
    """Return the largest substructure that all molecules have, drawn in the first of them.

    Rings are matched whole. None for fewer than two molecules, if fewer than four atoms are common,
    or if the search is too long.
    """
    mols = [mol for mol in parsed(smiles) if not isinstance(mol, str)]
    known = [mol for mol in mols if mol.GetNumAtoms() <= _LARGEST_COMMON]
    if len(known) < max(len(smiles), 2):
        return None
    search, budget = rdFMCS.MCSParameters(), _Budget()
    search.ProgressCallback = budget
    search.BondCompareParameters.RingMatchesRingOnly = True
    search.BondCompareParameters.CompleteRingsOnly = True
    found = rdFMCS.FindMCS(known, search)
    if found.canceled or found.numAtoms < _SMALLEST:
        return None
    atoms = known[0].GetSubstructMatch(Chem.MolFromSmarts(found.smartsString))
    text = Chem.MolFragmentToSmiles(known[0], atoms, isomericSmiles=False)
    return CommonPart(len(atoms), text, draw_svg(smiles[0], width, height, highlight=atoms))
