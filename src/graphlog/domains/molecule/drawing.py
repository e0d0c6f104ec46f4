"""Molecules as pictures."""

import re
from collections.abc import Sequence

from rdkit import Chem, rdBase
from rdkit.Chem.Draw import rdMolDraw2D

from graphlog.domains.molecule.parse import one_line, parse_smiles
from graphlog.errors import DataError

_HIGHLIGHT = (0.62, 0.81, 0.95)
_IDLE = (
    r"<!--.*?-->| (?:class|xmlns:\w+|xml:space|version|baseProfile)='[^']*'|"
    r"(?:fill-rule:evenodd|stroke-linecap:butt|stroke-linejoin:miter);|;?stroke-opacity:1(?=')"
)
"""What a browser need not be told, two thirds of a drawing: default styles, names of parts.

A tenth of a pixel is enough, too.
"""


def draw_svg(
    smiles: str, width: int = 220, height: int = 160, highlight: Sequence[int] = ()
) -> str:
    """Return the structure as an ``<svg>`` element that can stand inside HTML (no XML declaration).

    Args:
        smiles: The molecule.
        width: Of the drawing, in pixels.
        height: Of the drawing, in pixels.
        highlight: Atoms to highlight, with the bonds between them.

    Raises:
        DataError: If the SMILES cannot be parsed.
    """
    quiet = rdBase.BlockLogs()
    try:
        mol = parse_smiles(smiles)
        if isinstance(mol, str):
            raise DataError(f"{smiles[:80]!r} cannot be drawn: {mol}.")
        canvas = rdMolDraw2D.MolDraw2DSVG(width, height)
        canvas.drawOptions().clearBackground = False
        canvas.drawOptions().setHighlightColour(_HIGHLIGHT)
        try:
            chosen = set(highlight)
            bonds = [
                bond.GetIdx()
                for bond in mol.GetBonds()
                if {bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()} <= chosen
            ]
            rdMolDraw2D.PrepareAndDrawMolecule(
                canvas, Chem.Mol(mol), highlightAtoms=list(highlight), highlightBonds=bonds
            )
            canvas.FinishDrawing()
        except Exception as e:  # RDKit raises errors of its own
            raise DataError(f"{smiles[:80]!r} cannot be drawn: {one_line(e)}.") from None
    finally:
        del quiet
    drawing: str = canvas.GetDrawingText()
    return drawing[drawing.index("<svg") :].strip()


def compact_svg(smiles: str, width: int, height: int, highlight: Sequence[int] = ()) -> str:
    """Return :func:`draw_svg` in a third of its length, for pages with many drawings.

    Raises:
        DataError: If the SMILES cannot be parsed.
    """
    drawing = re.sub(r"(\d\.\d)\d+", r"\1", draw_svg(smiles, width, height, highlight))
    return re.sub(r"> <", "><", re.sub(r"\s+", " ", re.sub(_IDLE, "", drawing)))
