"""Figures: what is drawn, that colors stay apart for all eyes, and that files appear whole."""

import json
from itertools import combinations
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

import graphlog
from graphlog.errors import GraphLoGError
from graphlog.inputs import remember_input, resolve
from graphlog.report.drawings import draw_map, embedding_map, tree_figure
from graphlog.report.hierarchy import project, sample_rows
from graphlog.report.run import draw_log, finetuning_curves, pretraining_curves
from graphlog.report.style import HUES, MARKERS, QUANTITIES, save_figure
from graphs_support import ring_store

IN_USE = {
    "prototypes_total_0": 4.0,
    "prototypes_used_nearest_0": 2.0,
    "prototypes_used_estep_0": 3.0,
    "posterior_perplexity_0": 3.5,
}
ROWS = [
    {"step": s, "phase": "local" if s < 30 else "joint", "loss": 1 / s, "loss_graph": 1 / s}
    | {"rank": 30 - s / 5, "alignment": 0.1, "uniformity": -2.0}
    | (IN_USE if s >= 30 else {})
    | ({"alarms": ["alarm: collapse"]} if s == 50 else {})
    for s in range(10, 70, 10)
]

TO_CONES = np.array(
    [[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]]
)
EYES = {
    "all cones": np.eye(3),
    "no green cones": np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]]),
    "no red cones": np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]]),
}
"""Vienot, Brettel & Mollon (1999)."""


def _lab(color: str, eye: np.ndarray) -> np.ndarray:
    """Return the CIE L*a*b* coordinates of a color as seen by an eye."""
    value = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.linalg.solve(TO_CONES, eye @ TO_CONES @ linear), 0, 1)
    xyz = (
        np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        @ seen
        / [0.9505, 1, 1.089]
    )
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eye", EYES)
def test_hues_stay_apart_for_every_eye(eye: str):
    seen = [_lab(h, EYES[eye]) for h in HUES]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15
    assert len(set(MARKERS)) == len(HUES)


def _texts(figure) -> str:
    return " ".join(
        t.get_text() for t in figure.findobj(lambda artist: hasattr(artist, "get_text"))
    )


def test_curves_show_losses_watch_phases_and_alarms():
    said = _texts(pretraining_curves(ROWS, 64, 256))
    words = (
        "Losses",
        "RankMe, of 64",
        "Alignment",
        "Uniformity",
        "Prototypes in use",
        "leaves (4)",
    )
    assert all(word in said for word in (*words, "local", "joint", "Red lines: alarms"))
    assert "Cosine" not in said


def test_curves_of_concatenated_layers_have_the_rank_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("graphlog.report.run.save_figure", lambda figure, _: [figure])
    (tmp_path / "config.toml").write_text('[encoder]\ndim = 8\nlayers = 2\njk = "concat"\n')
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    assert "RankMe, of 24" in _texts(draw_log(tmp_path, tmp_path)[0])


def test_losses_of_different_size_share_a_logarithmic_axis():
    for graph, said in ((0.1, "log"), (0.7, "linear"), (-0.1, "linear")):
        rows = [{"step": s, "loss_graph": graph / s, "loss_node": 1 / s} for s in (1, 2)]
        figure = pretraining_curves(rows, 64)
        assert figure.axes[0].get_yscale() == said
        assert ("Losses, logarithmic" in _texts(figure)) == (said == "log")
    alone = [{"epoch": e, "step": e, "loss": 10.0**-e} for e in (1, 2, 3)]
    assert finetuning_curves(alone).axes[0].get_yscale() == "linear"


def test_names_of_phases_stand_above_the_curves():
    figure = pretraining_curves(ROWS, 64)
    figure.draw_without_rendering()
    for axes in (a for a in figure.axes if a.axison):
        curves = [line for line in axes.lines if len(line.get_xdata()) > 2]
        names = [t for t in axes.texts if t.get_text() in ("local", "joint")]
        assert len(names) == 2
        highest = max(axes.transData.transform(line.get_xydata())[:, 1].max() for line in curves)
        assert all(name.get_window_extent().y0 > highest for name in names)
        assert all(name.get_bbox_patch().get_facecolor()[:3] == (1, 1, 1) for name in names)


def test_curves_and_tree_call_the_layers_by_the_same_names():
    keys = ("prototypes_total", "posterior_perplexity")
    shared = {f"{key}_{layer}": 2.0 + layer for key in keys for layer in range(4)}
    said = _texts(pretraining_curves([row | shared for row in ROWS], 64))
    assert all(f"{name} (" in said for name in ("roots", "layer 2", "layer 3", "leaves"))
    ticks = tree_figure([], 1, 4).axes[0].get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["roots", "layer 2", "layer 3", "leaves"]


def test_the_axis_of_a_single_epoch_has_whole_numbers():
    rows = [{"step": 1, "epoch": 1, "seed": 0, "loss": 0.5, "valid/rmse": 0.5, "test/rmse": 0.7}]
    figure = finetuning_curves(rows)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert all(place == int(place) for place in axes.get_xticks())


def test_fine_tuning_curves_average_over_seeds():
    rows = [
        {"step": e, "epoch": e, "seed": s, "loss": 1.0 + s, "valid/rmse": 0.5, "test/rmse": 0.7}
        for s in (0, 1)
        for e in (1, 2, 3)
    ]
    figure = finetuning_curves(rows)
    loss = figure.axes[0].lines[0]
    assert loss.get_xdata().tolist() == [1, 2, 3]
    assert loss.get_ydata().tolist() == [1.5, 1.5, 1.5]
    assert "RMSE" in _texts(figure)
    assert "Lower is better." in _texts(figure)


def test_a_sentence_tells_what_each_panel_shows():
    figure = pretraining_curves(ROWS, 64, 256)
    figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.axison]
    assert len(panels) > 3
    for axes in panels:
        (sentence,) = (t for t in axes.texts if t.get_text().endswith("."))
        own, title = sentence.get_window_extent(), axes._left_title.get_window_extent()
        assert own.y0 >= axes.get_window_extent().y1  # between title and curves
        assert own.y1 <= title.y0
        assert own.x1 <= axes.get_window_extent().x1


def test_the_largest_groups_get_hues_and_the_rest_is_counted():
    rng = np.random.default_rng(0)
    groups = [f"g{k}" for k in range(12) for _ in range(12 - k)]
    said = _texts(embedding_map(rng.normal(size=(len(groups), 2)), groups, title="t"))
    assert "g0 (12)" in said
    assert "5 others (15)" in said
    long = [f"{'C' * 40}{end}" for end in "NNO"]  # cut in the legend, not before they are counted
    said = _texts(embedding_map(rng.normal(size=(3, 2)), long, title="t"))
    assert f"{'C' * 33}… (2)" in said
    assert f"{'C' * 33}… (1)" in said


@pytest.mark.usefixtures("coarse")
def test_points_are_shapes_without_edges(tmp_path: Path):
    """Which are written once a group, not once a point."""
    points = np.random.default_rng(0).normal(size=(60, 2))
    groups = [f"g{k % 12}" for k in range(60)]
    by_group = embedding_map(points, groups, title="t")
    for figure in (by_group, embedding_map(points, values=points[:, 0], title="t")):
        clouds = figure.findobj(PathCollection)
        assert all([*cloud.get_linewidths()] == [0] for cloud in clouds)
        assert clouds
    save_figure(by_group, tmp_path / "map")
    assert "<image" not in (tmp_path / "map.svg").read_text()


def test_a_map_of_values_or_of_nothing_is_drawn():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 2))
    values = rng.normal(size=30)
    values[3] = np.nan
    assert "pIC50" in _texts(embedding_map(points, values=values, title="t", legend="pIC50"))
    embedding_map(points, values=np.full(30, np.nan), title="t")
    lightest = max(_lab(to_hex(color), np.eye(3))[0] for color in QUANTITIES(np.arange(256)))
    assert lightest < 75  # seen on white
    embedding_map(points[:1], title="one")


def test_a_map_names_classes_and_the_groups_of_the_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("graphlog.report.drawings.save_figure", lambda figure, _: [figure])
    model = Mock(embed=lambda store: np.random.default_rng(0).normal(size=(len(store), 3)))

    def said(store: graphlog.GraphStore, **options: str) -> str:
        return _texts(draw_map(model, store, tmp_path, **options)[0])

    store = ring_store(tmp_path, count=20, classes=10)
    by_label = said(store, target="y")
    assert "20 graphs by y" in by_label
    assert "class0 (2)" in by_label
    plain = said(store)
    assert "20 graphs" in plain
    assert " by " not in plain
    molecules = said(graphlog.read_molecules(["CCO", "c1ccccc1"]))
    assert "by scaffold" in molecules
    assert "no scaffold (1)" in molecules


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 40])
def test_any_number_of_graphs_is_laid_out(rows: int):
    embeddings = np.random.default_rng(0).normal(size=(rows, 6)).astype(np.float32)
    placed = project(embeddings)
    assert placed.shape == (rows, 2)
    assert np.isfinite(placed).all()
    assert np.array_equal(placed, project(embeddings))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_graphs_are_laid_out_at_one_place(value: float):
    placed = project(np.full((10, 6), value, dtype=np.float32))
    np.testing.assert_allclose(placed, np.zeros((10, 2)), atol=1e-6)


def test_samples_are_in_order_and_repeatable():
    assert sample_rows(5, 10).tolist() == [0, 1, 2, 3, 4]
    chosen = sample_rows(1000, 10, seed=1)
    assert len(set(chosen.tolist())) == 10
    assert sorted(chosen) == chosen.tolist() == sample_rows(1000, 10, seed=1).tolist()


@pytest.mark.usefixtures("coarse")
def test_files_are_whole_and_the_same_each_time(tmp_path: Path):
    paths = save_figure(pretraining_curves(ROWS, 64), tmp_path / "new" / "curves")
    assert [p.name for p in paths] == ["curves.png", "curves.svg"]
    assert {p.name for p in (tmp_path / "new").iterdir()} == {"curves.png", "curves.svg"}
    first = paths[1].read_bytes()
    save_figure(pretraining_curves(ROWS, 64), tmp_path / "new" / "curves")
    assert paths[1].read_bytes() == first


def test_a_full_disk_is_one_line_and_leaves_no_half_of_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(_: object, path: Path, **__: object) -> None:
        path.write_text("half of a fig")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(
        GraphLoGError, match=r"curves\.png: No space left on device; free some space"
    ):
        save_figure(pretraining_curves(ROWS, 64), tmp_path / "curves")
    assert list(tmp_path.iterdir()) == []


def test_the_note_of_an_input_neither_fails_a_run_nor_hides_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = resolve("bbbp")
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError(28, "No space left")))
    remember_input(tmp_path, source, limit=3)
    assert list(tmp_path.iterdir()) == []
