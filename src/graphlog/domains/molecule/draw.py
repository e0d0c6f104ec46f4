"""Molecules as pictures."""

from rdkit import Chem, rdBase
from rdkit.Chem.Draw import rdMolDraw2D

from graphlog.domains.molecule.refuse import parse_smiles
from graphlog.errors import DataError


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
        rdMolDraw2D.PrepareAndDrawMolecule(canvas, Chem.Mol(mol))
        canvas.FinishDrawing()
    finally:
        del quiet
    drawing: str = canvas.GetDrawingText()
    return drawing[drawing.index("<svg") :].strip()
