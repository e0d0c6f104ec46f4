"""The tour, cut short: everything it promises is there, with and without matplotlib."""

import sys
from pathlib import Path

import pytest

import graphlog
from cli_support import left_in, read_table
from downstream_support import write_csv
from graphlog.datasets import DATASETS
from graphlog.errors import ConfigError
from graphlog.extras import tour
from graphlog.files import hash_file

FEW = 120


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A small encoder, one epoch, and the first molecules of each labeled set."""
    monkeypatch.setattr(tour, "FINETUNE_EPOCHS", 1)
    monkeypatch.setattr(tour, "SMALL_ENCODER", {"dim": 8, "layers": 2})
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path))
    monkeypatch.setattr(DATASETS, "data", dict(DATASETS.data))
    few = {f"few-{name}": name for name in tour.QUESTIONS}
    for name, source in few.items():
        _add_dataset(name, source, tmp_path / f"{name}.csv")
    monkeypatch.setattr(tour, "QUESTIONS", few)
    monkeypatch.setattr(tour, "KEPT", f"few-{tour.KEPT}")
    monkeypatch.setattr(tour, "TUNED", f"few-{tour.TUNED}")


def _add_dataset(name: str, source: str, path: Path) -> None:
    """Add the first molecules of a data set as another."""
    graphs = graphlog.read_molecules(source, limit=FEW)
    write_csv(path, graphs.texts(), value=graphs.labels[:, 0])
    changes = {"name": name, "rows": FEW, "tasks": ("value",), "origin": "file", "details": {}}
    file = {"path": path.name, "sha256": hash_file(path)}
    DATASETS[name] = DATASETS[source].updated(changes | file)


@pytest.mark.usefixtures("short", "blank")
def test_the_tour_leaves_models_scores_embeddings_and_figures(tmp_path: Path):
    said: list[str] = []
    found = tour.run_quickstart(tmp_path / "tour", molecules=60, epochs=2, say=said.append)
    assert all(Path(path).exists() for path in found.written)
    files = "pretrain probe finetune embeddings.npz tree figures quickstart.json"
    assert {*files.split()} <= left_in(tmp_path / "tour")
    shipped, mean = tour.SHIPPED_MODEL, "mean of the training set"
    rows = {mean, "small encoder", "untrained encoder", "ECFP4 + ridge regression"}
    rows |= {shipped, f"{shipped} + descriptors + ECFP4 counts"}
    for name in found.questions:
        assert rows <= {s.model for s in found.scores if s.dataset == name}
    assert all(s.rmse > 0 and s.r2 < 1 for s in found.scores)
    assert all(s.r2 <= 0 for s in found.scores if s.model == mean)
    assert {"coverage", "half_width"} <= found.certainty.keys()
    predicted = read_table(tmp_path / "tour" / "predictions.csv")
    assert "predicted_value_low" in predicted[0]
    assert len(predicted) == FEW
    assert said[0].startswith("1/4")
    assert any("graphlog predict" in line for line in found.next_steps)


def test_without_matplotlib_the_tour_goes_on_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module in [m for m in sys.modules if m.startswith(("matplotlib", "graphlog.report."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said: list[str] = []
    assert tour.draw(tmp_path, None, None, said.append) == {}
    assert "graphlog-torch[plot]" in said[0]


def test_other_people_s_files_are_left_alone(tmp_path: Path):
    for name in ("quickstart.json", "thesis.tex"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(ConfigError, match="other files"):
            tour.run_quickstart(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"thesis.tex", "quickstart.json"}
