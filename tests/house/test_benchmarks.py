"""What the scripts in benchmarks/ must not write."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from house_support import ROOT


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / f"benchmarks/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _keep(work: Path, model: str, collection: str) -> None:
    np.savez_compressed(
        work / f"test d {model}.npz",
        **{"collection": collection, "task": "classification", "c/fixed 0": 0.1},
        **{
            "labels/fixed 0": np.array([[0.0], [1.0]]),
            "predicted/fixed 0": np.array([[0.2], [0.9]]),
        },
    )


def test_the_pages_show_the_tables_of_groups():
    groups = _script("groups")
    pages = [ROOT / "docs/results/groups.md", *(ROOT / "docs/two-losses").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    for table in groups.tables(pd.read_csv(groups.RESULTS)).strip().split("\n\n"):
        assert table in text


def test_the_page_shows_the_table_of_tu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    results = ROOT / "benchmarks/results"
    assert (results / "tu.md").read_text() == _script("tu").table(results / "tu.jsonl.gz") + "\n"


def test_the_page_shows_the_counts_of_reliability():
    rows = pd.read_csv(ROOT / "benchmarks/results/reliability.csv.gz", keep_default_na=False)
    page = (ROOT / "docs/measured/reliability.md").read_text()
    counts = _script("reliability/harness").counts
    assert counts(rows) in page
    assert counts(rows[rows["commit"].isin(["4c48b8fe", "032afb55"])]) in page


def test_rows_calibrated_on_different_graphs_are_not_written_into_one_table(tmp_path: Path):
    frozen = _script("frozen")
    _keep(tmp_path, "ecfp4", "")  # has no batch norm
    _keep(tmp_path, "mol", "one store")
    _keep(tmp_path, "untrained0", "one store")
    assert set(frozen.write_rows(tmp_path)["collection"]) == {"", "one store"}
    (tmp_path / "rows.csv.gz").unlink()
    _keep(tmp_path, "untrained1", "the training set")
    with pytest.raises(SystemExit, match="untrained1 on d were calibrated on different"):
        frozen.write_rows(tmp_path)
    assert not (tmp_path / "rows.csv.gz").exists()
