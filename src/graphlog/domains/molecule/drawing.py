"""Molecules as pictures."""

import re

from rdkit import Chem, rdBase
from rdkit.Chem.Draw import rdMolDraw2D

from graphlog.domains.molecule.parse import one_line, parse_smiles
from graphlog.errors import DataError

_IDLE = (
    r"<!--.*?-->| (?:class|xmlns:\w+|xml:space|version|baseProfile)='[^']*'|"
    r"(?:fill-rule:evenodd|stroke-linecap:butt|stroke-linejoin:miter);|;?stroke-opacity:1(?=')"
)
"""What a browser need not be told, two thirds of a drawing: default styles, names of parts.

A tenth of a pixel is enough, too.
"""


def draw_svg(smiles: str, width: int = 220, height: int = 160) -> str:
    """Return the structure as an ``<svg>`` element that can stand inside HTML (no XML declaration).

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
        try:
            rdMolDraw2D.PrepareAndDrawMolecule(canvas, Chem.Mol(mol))
            canvas.FinishDrawing()
        except Exception as e:  # RDKit raises errors of its own
            raise DataError(f"{smiles[:80]!r} cannot be drawn: {one_line(e)}.") from None
    finally:
        del quiet
    drawing: str = canvas.GetDrawingText()
    return drawing[drawing.index("<svg") :].strip()


def compact_svg(smiles: str, width: int, height: int) -> str:
    """Return :func:`draw_svg` in a third of its length, for pages with many drawings.

    Raises:
        DataError: If the SMILES cannot be parsed.
    """
    drawing = re.sub(r"(\d\.\d)\d+", r"\1", draw_svg(smiles, width, height))
    return re.sub(r"> <", "><", re.sub(r"\s+", " ", re.sub(_IDLE, "", drawing)))
