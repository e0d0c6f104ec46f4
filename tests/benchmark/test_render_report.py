"""A folder of cells rendered whole: the same bytes each time, every picture, and what happens without matplotlib."""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmark import factory
from graphlog.benchmark import draw_figures
from graphlog.benchmark.report import render
from graphlog.benchmark.tables import read_cells, score_grids
from graphlog.errors import DataError


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw with few dots: what is drawn matters here, not how finely."""
    style = pytest.importorskip("graphlog.report.style")
    monkeypatch.setitem(style._STYLE, "savefig.dpi", 20)


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        n
        for n in sys.modules
        if n.startswith(("matplotlib", "graphlog.report.style", "graphlog.benchmark.figures"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("graphlog.benchmark.figures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def _small(folder: Path) -> Path:
    for method, dataset, seed in product(("untrained", "graphlog"), ("bbbp", "bace"), (0, 1)):
        found = factory.scores(("last",), 0.7, method, dataset, seed)
        factory.write(folder, factory.cell("finetune", method, dataset, seed, found))
    factory.write_maps(folder, graphs=60)
    factory.write_speed(folder)
    return folder


@pytest.mark.usefixtures("coarse")
def test_the_same_cells_give_the_same_bytes(tmp_path: Path):
    cells = _small(tmp_path / "cells")
    first, second = render(cells, tmp_path / "a"), render(cells, tmp_path / "b")
    assert [p.name for p in first] == [p.name for p in second]
    assert len({p.name for p in first}) == len(first)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in first)
    for ours, theirs in zip(first, second, strict=True):
        assert ours.read_bytes() == theirs.read_bytes(), ours.name
    assert {
        "molecules-finetune-last.tex",
        "molecules-finetune-last-differences.svg",
        "speed-molecules.png",
        "timing.csv",
    } <= {p.name for p in first}
    page = first[-1].read_text(encoding="utf-8")
    assert first[-1].name == "index.md"
    for path in first:
        if path.suffix == ".png":
            assert f"]({path.name})" in page
    assert "<dc:date>" not in (tmp_path / "a" / "speed-molecules.svg").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_tables_are_written_and_the_page_says_what_is_missing(tmp_path: Path):
    written = render(_small(tmp_path / "cells"), tmp_path / "out")
    assert {p.suffix for p in written} == {".md", ".csv", ".tex"}
    assert "Figures were not drawn: `matplotlib` is not installed" in written[-1].read_text(
        encoding="utf-8"
    )


@pytest.mark.usefixtures("no_matplotlib")
def test_clocks_touch_no_table_of_scores(tmp_path: Path):
    cells = _small(tmp_path / "cells")
    before = {p.name: p.read_bytes() for p in render(cells, tmp_path / "a")}
    for path in cells.glob("*.json"):
        fields = json.loads(path.read_text())
        rate = fields["graphs_per_s"]
        path.write_text(
            json.dumps(
                {**fields, "seconds": fields["seconds"] * 2, "graphs_per_s": rate and rate * 2}
            )
        )
    after = {p.name: p.read_bytes() for p in render(cells, tmp_path / "b")}
    assert {name.split(".")[0] for name in before if before[name] != after[name]} == {
        "speed-molecules",
        "timing",
    }


@pytest.mark.usefixtures("no_matplotlib")
def test_scales_are_rendered_apart(tmp_path: Path):
    for scale, test in (("smoke", 0.5), ("small", 0.8)):
        factory.write(
            tmp_path,
            factory.cell("finetune", "graphlog", "bbbp", 0, {"last": {"test": test}}, scale=scale),
        )
    written = {p.name: p.read_text(encoding="utf-8") for p in render(tmp_path, tmp_path / "out")}
    assert "50.0" in written["molecules-finetune-last-smoke.md"]
    assert "80.0" in written["molecules-finetune-last-small.md"]
    assert (
        r"\label{tab:molecules-finetune-last-small}" in written["molecules-finetune-last-small.tex"]
    )


@pytest.mark.usefixtures("coarse")
def test_the_figures_alone_are_those_of_the_report(tmp_path: Path):
    whole = render(_small(tmp_path / "cells"), tmp_path / "report")
    drawn = draw_figures(tmp_path, tmp_path / "figures")
    assert {p.name for p in drawn} == {p.name for p in whole if p.suffix in (".png", ".svg")}
    assert all(p.stat().st_size > 0 for p in drawn)


def test_a_folder_without_cells_says_what_to_run(tmp_path: Path):
    with pytest.raises(DataError, match="graphlog benchmark SUITE"):
        render(tmp_path, tmp_path / "out")


def test_every_kind_of_grid_is_drawn(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from graphlog.benchmark.figures import difference_forest, score_dots, sensitivity_figure

    factory.write_biology(tmp_path)
    factory.write_backbones(tmp_path)
    factory.write_ablation(tmp_path)
    factory.write_sensitivity(tmp_path)
    grids = {g.name: g for g in score_grids(read_cells(tmp_path))}
    titles = _texts(score_dots(grids["biology-finetune-last"]))
    assert "paper (biology, 8 species)" in titles
    assert "GraphSAGE" in _texts(score_dots(grids["molecules-backbones-finetune-last"]))
    forest = difference_forest(grids["molecules-ablation-finetune-last"])
    assert "all three" in _texts(forest)
    curves = sensitivity_figure(
        [grids[f"molecules-sensitivity-{name}-finetune-last"] for name in ("depth", "batch-size")]
    )
    assert "higher from 3 on" in _texts(curves)
    assert "higher from 256 on" in _texts(curves)
    line = next(line for line in curves.axes[0].lines if line.get_label() == "mean over seeds")
    assert len(line.get_xdata()) == 5


def test_gaps_and_single_seeds_are_drawn_as_such(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from graphlog.benchmark.figures import difference_forest, score_dots

    for method in ("graphcl", "graphlog"):
        for dataset in ("bbbp", "bace")[: 1 if method == "graphcl" else 2]:
            factory.write(
                tmp_path, factory.cell("finetune", method, dataset, 0, {"last": {"test": 0.7}})
            )
    (grid,) = score_grids(read_cells(tmp_path))
    assert "not measured in full" in _texts(difference_forest(grid))
    assert "not measured" in _texts(score_dots(grid))


def test_maps_stand_side_by_side_and_a_missing_one_says_so(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from graphlog.benchmark.figures import map_figure
    from graphlog.benchmark.figures.maps import read_maps

    factory.write_maps(tmp_path, graphs=50)
    next(tmp_path.glob("map-*-lossessubgraph-*.json")).unlink()
    ((name, maps),) = read_maps(read_cells(tmp_path)).items()
    assert name == "molecules-embedding-map-gin-zinc250k-seed0"
    assert [m is None for m in maps] == [True, False, False]
    figure = map_figure(maps)
    assert "not measured" in _texts(figure)
    assert "prototypes learnt" in _texts(figure)
    assert "silhouette 0.7" in _texts(figure)
    assert len(figure.axes[2].lines) == 18


def test_a_damaged_map_is_named(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from graphlog.benchmark.figures.maps import read_maps

    factory.write_maps(tmp_path, graphs=20)
    cells = read_cells(tmp_path)
    path = next(tmp_path.glob("*.npz"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"\.npz, the map of"):
        read_maps(cells)
    np.savez(path, coordinates=np.zeros((2, 2)))
    with pytest.raises(DataError, match="delete the cell"):
        read_maps(cells)


def _texts(figure) -> str:
    return " ".join(
        t.get_text() for t in figure.findobj(lambda artist: hasattr(artist, "get_text"))
    )
