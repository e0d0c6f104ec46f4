"""The tables and the figure of the stages, of made-up cells."""

from pathlib import Path
from typing import Any

import pytest

from benchmark import factory
from graphlog.benchmark.folder import BenchmarkFolder, newest_cells
from graphlog.benchmark.methods import OF_A_STEP
from graphlog.benchmark.pages import write_pages
from graphlog.benchmark.paper_tables import stage_tables
from graphlog.benchmark.table import DASH, LATEX, MARKDOWN, table_frame, table_latex, table_records


def _write(folder: Path, seed: int, **sides: dict[str, float]) -> None:
    scores: dict[str, Any] = {
        "fp32": {**dict.fromkeys(OF_A_STEP, 0.25 + seed), "step": 1.0 + seed, "kmeans": 0.01},
        "limits": {"copy": 12.34, "product-fp32": 210.4},
        "batches fp32": {"128": 30.0, "64": 20.0, "32": 10.0},
        **sides,
    }
    cell = factory.cell("stage-speed", "graphlog", None, seed, scores, suite="speed")
    factory.write(folder, cell)


def _tables(folder: Path) -> dict[str, Any]:
    rows, _ = newest_cells(BenchmarkFolder(folder).load())
    return {table.kind: table for table in stage_tables(rows)}


def test_seconds_stand_beside_rates_and_missing_sides_are_dashes(tmp_path: Path):
    _write(tmp_path, 0)
    tables = _tables(tmp_path)
    frame = table_frame(tables["stages"], MARKDOWN)
    assert frame.columns[0] == "Stage"
    assert len(frame.columns) == 1 + 2 + 2  # no format that was not measured, but torch_geometric
    by_stage = {line[0]: list(line[1:]) for line in frame.itertuples(index=False)}
    assert by_stage["Backward"] == ["0.25", "4,000", DASH, DASH]
    assert by_stage["Fit the prototypes (K-means)"] == ["0.01", "100,000", DASH, DASH]
    assert "Parse SMILES" not in by_stage
    limits = table_frame(tables["limits"], MARKDOWN).to_numpy().tolist()
    assert [line[1:] for line in limits] == [["GFLOP/s", "210"], ["GB/s", "12.3"]]
    assert [row.key for row in tables["batch-rates"].rows] == ["32", "64", "128"]


def test_seeds_are_summarized(tmp_path: Path):
    for seed in (0, 1):
        _write(tmp_path, seed, torch_geometric=dict.fromkeys(OF_A_STEP, 2.0))
    table = _tables(tmp_path)["stages"]
    (line,) = (v for v in table_frame(table, MARKDOWN).to_numpy().tolist() if v[0] == "Backward")
    assert line[1] == "0.75 ± 0.707"
    assert line[3] == "2 ± 0"
    records = table_records(table)
    kept = records[(records["row"] == "backward") & (records["column"] == "rate torch_geometric")]
    assert kept["mean"].tolist() == [500.0]
    assert r"torch\_geometric" in table_latex(table)
    assert not table_frame(table, LATEX).isna().to_numpy().any()


def test_shares_and_rates_are_drawn(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from graphlog.benchmark.figures import draw_tables, stages_figure

    _write(tmp_path, 0)
    tables = _tables(tmp_path)
    bars, curve = stages_figure(tables["stages"], tables["batch-rates"]).axes
    assert [patch.get_width() for patch in bars.patches] == [25.0] * 4
    (line,) = curve.lines
    assert line.get_xydata().tolist() == [[32, 10], [64, 20], [128, 30]]
    drawn = draw_tables(list(tables.values()), tmp_path)
    assert {name: len(paths) for name, paths in drawn.items()} == {"speed-batch-rates-molecules": 2}


def test_the_page_of_speed_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphlog.benchmark.pages._load_figures", lambda: (None, "not here"))
    _write(tmp_path, 0)
    write_pages(BenchmarkFolder(tmp_path), tmp_path / "out")
    page = (tmp_path / "out" / "speed.md").read_text(encoding="utf-8")
    assert "## Stages, molecules" in page
    assert "| stage-speed |" in page
