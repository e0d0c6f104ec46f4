"""Drawings of molecules and of their largest common substructures."""

import re
from collections.abc import Sequence

from rdkit import Chem, rdBase
from rdkit.Chem import rdFMCS
from rdkit.Chem.Draw import rdMolDraw2D

from graphlog.domains.base import CommonPart
from graphlog.domains.molecule.parse import parsed
from graphlog.errors import DataError, first_line

_HIGHLIGHT = (0.62, 0.81, 0.95)
_POSITIVE, _NEGATIVE = (0.84, 0.37, 0.0), (0.0, 0.45, 0.70)
"""Orange and blue of Okabe and Ito, which color-blind readers can distinguish."""
_BOND_LENGTH, _FONT_SIZE = 55, 10
"""Largest bond length, which keeps small molecules small, and smallest font size, in pixels."""
_MAX_STEPS = 20_000
"""Largest number of steps of a search (about a second); a limit of time would not be repeatable."""
_MIN_COMMON_ATOMS = 4
"""Smallest number of atoms of a common substructure that is shown."""
_MAX_ATOMS = 80
"""Largest number of atoms of a molecule in a search for a common substructure."""
_REDUNDANT = (
    r"<!--.*?-->| (?:class|xmlns:\w+|xml:space|version|baseProfile)='[^']*'|"
    r"(?:fill-rule:evenodd|stroke-linecap:butt|stroke-linejoin:miter);|;?stroke-opacity:1(?=')"
)
"""Parts of an SVG without effect, two thirds of its text: comments, default styles, class names."""


def draw_svg(
    smiles: str,
    width: int,
    height: int,
    highlight: Sequence[int] = (),
    weights: Sequence[float] | None = None,
) -> str:
    """Return the structure as a short ``<svg>`` element for use in HTML.

    Args:
        smiles: The molecule.
        width: Width of the drawing in pixels.
        height: Height of the drawing in pixels.
        highlight: Indices of atoms to highlight, with the bonds between them.
        weights: Weights from -1 (blue) over 0 (white) to 1 (orange) that color the atoms instead of
            ``highlight``. There is one for each atom, or for each but hydrogens of an isotope
            (such as deuterium), which are then white. A bond has the mean of its two atoms.

    Raises:
        DataError: If the SMILES cannot be parsed, or its number of atoms does not match.
    """
    (mol,) = parsed([smiles])
    if isinstance(mol, str):
        raise DataError(f"{smiles[:80]!r} cannot be drawn: {mol}.")
    canvas = rdMolDraw2D.MolDraw2DSVG(width, height)
    options = canvas.drawOptions()
    options.clearBackground, options.padding = False, 0.03
    options.fixedBondLength, options.minFontSize = _BOND_LENGTH, _FONT_SIZE
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
    if weights is None:
        atoms = dict.fromkeys(highlight, _HIGHLIGHT)
        bonds = {k: _HIGHLIGHT for k, pair in enumerate(ends) if atoms.keys() >= set(pair)}
    else:
        weight = _atom_weights(mol, smiles, weights)
        atoms = {k: _shade(value) for k, value in weight.items()}
        bonds = {k: _shade((weight[a] + weight[b]) / 2) for k, (a, b) in enumerate(ends)}
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
        raise DataError(f"{smiles[:80]!r} cannot be drawn: {first_line(e)}.") from None
    drawing: str = re.sub(_REDUNDANT, "", canvas.GetDrawingText())
    drawing = re.sub(r"(\d\.\d)\d+", r"\1", drawing)  # a tenth of a pixel is enough
    drawing = re.sub(r"> <", "><", re.sub(r"\s+", " ", drawing))
    return drawing[drawing.index("<svg") :].strip()


def _atom_weights(mol: Chem.Mol, smiles: str, weights: Sequence[float]) -> dict[int, float]:
    """Return the weight of each atom by index; 0 for atoms without one."""
    atoms = list(mol.GetAtoms())
    if len(atoms) != len(weights):
        atoms = [a for a in atoms if a.GetAtomicNum() != 1 or not a.GetIsotope()]
    if len(atoms) != len(weights):
        raise DataError(f"{smiles[:80]!r} has {mol.GetNumAtoms()} atoms, not {len(weights)}.")
    given = {a.GetIdx(): w for a, w in zip(atoms, weights, strict=True)}
    return dict.fromkeys(range(mol.GetNumAtoms()), 0.0) | given


def _shade(weight: float) -> tuple[float, float, float]:
    """Return the color of a weight: red, green and blue from 0 to 1."""
    color, share = (_POSITIVE if weight > 0 else _NEGATIVE), min(abs(weight), 1.0)
    red, green, blue = (1 - share * (1 - part) for part in color)
    return red, green, blue


class _StepLimit(rdFMCS.MCSProgress):
    """Callback that stops a search after ``_MAX_STEPS`` steps."""

    steps = 0

    def __call__(self, state: object, search: object) -> bool:
        """Return whether to continue."""
        self.steps += 1
        return self.steps <= _MAX_STEPS


def common_part(smiles: Sequence[str], width: int, height: int) -> CommonPart | None:
    """Return the largest substructure that all molecules have, drawn in the first of them.

    A ring is matched as a whole or not at all. The result is None for fewer than two molecules, if
    a molecule cannot be parsed or is too large, if fewer than four atoms are common, or if the
    search takes too many steps.
    """
    mols = [mol for mol in parsed(smiles) if not isinstance(mol, str)]
    mols = [mol for mol in mols if mol.GetNumAtoms() <= _MAX_ATOMS]
    if len(mols) < max(len(smiles), 2):
        return None
    parameters, limit = rdFMCS.MCSParameters(), _StepLimit()
    parameters.ProgressCallback = limit
    parameters.BondCompareParameters.RingMatchesRingOnly = True
    parameters.BondCompareParameters.CompleteRingsOnly = True
    result = rdFMCS.FindMCS(mols, parameters)
    if result.canceled or result.numAtoms < _MIN_COMMON_ATOMS:
        return None
    atoms = mols[0].GetSubstructMatch(Chem.MolFromSmarts(result.smartsString))
    text = Chem.MolFragmentToSmiles(mols[0], atoms, isomericSmiles=False)
    return CommonPart(len(atoms), text, draw_svg(smiles[0], width, height, highlight=atoms))
