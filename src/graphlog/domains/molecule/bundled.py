"""Where RDKit keeps the molecules it brings along."""

from pathlib import Path

from rdkit import RDConfig


def rdkit_file(origin: str, path: str) -> Path:
    """Return a file below RDKit's folder of data (``rdkit-data``) or ``rdkit-contrib``."""
    folder: str = RDConfig.RDContribDir if origin == "rdkit-contrib" else RDConfig.RDDataDir
    return Path(folder) / path
