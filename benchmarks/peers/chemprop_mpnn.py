"""Chemprop's network trained from scratch by its own command line, where it is installed."""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

INSTALLED = importlib.util.find_spec("chemprop") is not None
EPOCHS = 50


def fit_predict(
    smiles: Sequence[str], labels: Sequence[float], folds: np.ndarray, seed: int
) -> np.ndarray:
    """Return predictions for the rows whose fold is ``test``, by chemprop's default settings.

    Folds are ``train``, ``val`` and ``test``; the epoch with the best validation loss predicts.
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
