"""The tour, cut short: everything it promises is there, with and without matplotlib."""

import hashlib
import sys
from pathlib import Path

import pytest

import graphlog
from graphlog.datasets import DATASETS, DatasetSpec
from graphlog.errors import ConfigError
from graphlog.extras import tour


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A small encoder, one epoch, and the first molecules of each labeled set."""
    monkeypatch.setattr(tour, "FINETUNE_EPOCHS", 1)
    monkeypatch.setattr(tour, "SMALL_ENCODER", {"dim": 8, "layers": 2})
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path))
    monkeypatch.setattr(DATASETS, "data", dict(DATASETS.data))
    few = {f"few-{name}": name for name in tour.QUESTIONS}
    for short_name, name in few.items():
        _add_dataset(short_name, name, tmp_path / f"{short_name}.csv")
    monkeypatch.setattr(tour, "QUESTIONS", few)
    monkeypatch.setattr(tour, "KEPT", f"few-{tour.KEPT}")
    monkeypatch.setattr(tour, "TUNED", f"few-{tour.TUNED}")


def _add_dataset(name: str, source: str, path: Path) -> None:
    """Add the first 120 molecules of a data set as another."""
    graphs = graphlog.read_molecules(source, limit=120)
    assert graphs.labels is not None
    rows = [f"{s},{y}" for s, y in zip(graphs.texts(), graphs.labels[:, 0], strict=True)]
    path.write_text("\n".join(["smiles,value", *rows]) + "\n")
    DATASETS[name] = DatasetSpec(
        name=name,
        description=f"The first rows of {source}.",
        domain="molecule",
        rows=len(rows),
        path=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        tasks=("value",),
        num_tasks=1,
        task="regression",
        metric="rmse",
        license=DATASETS[source].license,
        source=DATASETS[source].source,
    )


@pytest.mark.usefixtures("short", "blank")
def test_the_tour_leaves_models_scores_embeddings_and_figures(tmp_path: Path):
    said: list[str] = []
    found = tour.run_quickstart(tmp_path / "tour", molecules=120, epochs=2, say=said.append)
    assert all(Path(path).exists() for path in found.written)
    assert {*"pretrain probe finetune embeddings.npz tree figures quickstart.json".split()} <= {
        p.name for p in (tmp_path / "tour").iterdir()
    }
    shipped = tour.SHIPPED_MODEL
    rows = (
        "mean of the training fold",
        "small encoder",
        "untrained encoder",
        "ECFP4 + ridge regression",
    )
    for name in found.questions:
        models = [s.model for s in found.scores if s.dataset == name]
        assert {*rows, shipped, f"{shipped} + descriptors + substructure counts"} <= {*models}
    assert all(s.rmse > 0 and s.r2 < 1 for s in found.scores)
    mean = next(s for s in found.scores if s.model == rows[0])
    assert mean.r2 <= 0
    assert {"coverage", "half_width"} <= found.certainty.keys()
    predicted = (tmp_path / "tour" / "predictions.csv").read_text().splitlines()
    assert "predicted_value_low" in predicted[0]
    assert len(predicted) == 121
    assert said[0].startswith("1/4")
    assert any("graphlog predict" in line for line in found.next_steps)


def test_without_matplotlib_the_tour_goes_on_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module in [m for m in sys.modules if m.startswith(("matplotlib", "graphlog.report."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said: list[str] = []
    assert not tour.can_draw(said.append)
    assert "graphlog-torch[plot]" in said[0]


def test_other_people_s_files_are_left_alone(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigError, match="other files"):
        tour.run_quickstart(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
