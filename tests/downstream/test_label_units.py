"""Labels in other units, far from 0 or tiny, are learned and predicted alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import graphlog
from downstream_support import CHAINS, lengths, probed, tuned, write_csv

SPLIT = lengths().split
VALUES = np.array([round(0.37 * s.count("C") - 1.3 * s.count("O"), 2) for s in CHAINS])
UNITS = [(offset, 1.0) for offset in (0.0, 1e3, 1e7, 1e9, -1e9, 1e12)]
UNITS += [(0.0, scale) for scale in (1e-9, 1e-3, 1e6, 1e12)] + [(1e12, 1e6), (1.0, 1e-9)]


def table(offset: float, scale: float, folder: Path) -> tuple[Path, np.ndarray]:
    y = VALUES * scale + offset
    return write_csv(folder / "units.csv", CHAINS, y=y.tolist()), y


def exactness(offset: float, scale: float) -> float:
    """Return the share of the labels' deviation that float64 may lose beside their size."""
    return float(np.spacing(abs(offset) + scale * 10) / (scale * VALUES.std()))


def score(source: Path | dict[str, list[Any]]) -> float:
    report = probed(source, split=SPLIT, targets=["y"])
    return report.rows[0].test["r2"][0]


@pytest.fixture(scope="module")
def wanted() -> float:
    return score({"smiles": CHAINS, "y": VALUES.tolist()})


@pytest.mark.parametrize(("offset", "scale"), UNITS)
def test_a_probe_scores_alike_in_all_units(
    offset: float, scale: float, tmp_path: Path, wanted: float
):
    path, y = table(offset, scale, tmp_path)
    assert graphlog.read_molecules(path, targets=["y"]).labels[:, 0].tolist() == y.tolist()
    assert wanted > 0.5
    tolerance = 1e-5 + 10 * exactness(offset, scale)
    for source in (path, {"smiles": CHAINS, "y": y.tolist()}):
        assert score(source) == pytest.approx(wanted, abs=tolerance)


@pytest.mark.parametrize(("offset", "scale"), [(1e9, 1.0), (0.0, 1e-9), (1e12, 1e6)])
def test_a_fine_tuned_model_predicts_in_all_units(offset: float, scale: float, tmp_path: Path):
    path, _ = table(offset, scale, tmp_path)
    plain = {"smiles": CHAINS, "y": VALUES.tolist()}
    how = {"targets": ["y"], "split": SPLIT, "seeds": (0,), "config": {"epochs": 2}}
    wanted = tuned(plain, **how).predict(CHAINS)
    tuned(path, run_dir=tmp_path / "run", **how)
    graphlog.predict_file(tmp_path / "run", path, tmp_path / "out.csv")
    written = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True, usecols=(1, 2))
    found = (written["predicted_y"] - offset) / scale
    tolerance = 1e-4 + 10 * exactness(offset, scale)
    np.testing.assert_allclose(found, wanted[:, 0], atol=tolerance)


def test_a_kept_probe_predicts_far_from_zero(tmp_path: Path):
    path, y = table(1e9, 1.0, tmp_path)
    probed(path, split=SPLIT, targets=["y"], run_dir=tmp_path / "run")
    found = graphlog.predict(tmp_path / "run", CHAINS)[:, 0]
    assert np.abs(found - y).max() < 2 * VALUES.std()
    assert np.corrcoef(found, y)[0, 1] > 0.7
    for name in ("npy", "npz", "parquet"):
        graphlog.predict_file(tmp_path / "run", CHAINS, path := tmp_path / f"out.{name}")
        if name == "parquet":
            kept = pd.read_parquet(path)["predicted_y"].to_numpy()
        else:
            kept = np.load(path) if name == "npy" else np.load(path)["predictions"]
        np.testing.assert_array_equal(kept.reshape(len(y), -1)[:, 0], found)


@pytest.mark.parametrize(
    ("labels", "kind"), [([0.0, 1.0, np.nan], "<f4"), ([0.1, 0.2, np.nan], "<f8")]
)
def test_classes_take_four_bytes_and_exact_numbers_eight(tmp_path: Path, labels: Any, kind: str):
    table, path = {"smiles": ["C", "CC", "CCC"], "y": labels}, tmp_path / "store"
    store = graphlog.read_molecules(table, targets=["y"], store_path=path)
    assert store.contents.manifest.files["labels"].dtype == kind
    np.testing.assert_array_equal(graphlog.open_store(path).labels[:, 0], labels)
