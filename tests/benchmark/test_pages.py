"""The report of a folder: the same bytes each time, every figure, none without matplotlib."""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmark import factory
from graphlog.benchmark import draw_figures
from graphlog.benchmark.folder import PROTOCOL, BenchmarkFolder, newest_cells
from graphlog.benchmark.pages import write_pages
from graphlog.benchmark.paper_tables import score_tables
from graphlog.benchmark.table import Table
from graphlog.errors import DataError


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        n
        for n in sys.modules
        if n.startswith(
            (
                "matplotlib",
                "graphlog.report.style",
                "graphlog.benchmark.figures",
                "graphlog.benchmark.map_figure",
            )
        )
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


def render(folder: Path, out: Path) -> list[Path]:
    return write_pages(BenchmarkFolder(folder), out)


@pytest.mark.usefixtures("coarse")
def test_the_same_cells_give_the_same_bytes_and_figures_alone_those_of_the_report(tmp_path: Path):
    folder = _small(tmp_path / "bench")
    first, second = render(folder, tmp_path / "a"), render(folder, tmp_path / "b")
    drawn = draw_figures(folder, tmp_path / "c")
    assert [p.name for p in first] == [p.name for p in second]
    assert len({p.name for p in first}) == len(first)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in first)
    for ours, theirs in zip(first, second, strict=True):
        assert ours.read_bytes() == theirs.read_bytes(), ours.name
    names = {p.name for p in first}
    assert {p.name for p in drawn} == {p.name for p in first if p.suffix in (".png", ".svg")}
    assert all(p.stat().st_size > 0 for p in drawn)
    assert {
        "molecules.md",
        "molecules.tex",
        "molecules.csv",
        "molecules-finetune-last-differences.svg",
        "embedding-map.md",
        "speed-molecules.png",
        "speed.csv",
    } <= names
    assert first[-1].name == "index.md"
    index = first[-1].read_text(encoding="utf-8")
    pages = [p for p in first[:-1] if p.suffix == ".md"]
    assert all(f"]({page.name})" in index for page in pages)
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for path in first:
        if path.suffix == ".png":
            assert f"]({path.name})" in text
    assert "<dc:date>" not in (tmp_path / "a" / "speed-molecules.svg").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_tables_are_written_and_the_index_says_what_is_missing(tmp_path: Path):
    written = render(_small(tmp_path / "bench"), tmp_path / "out")
    assert {p.suffix for p in written} == {".md", ".csv", ".tex"}
    assert "Figures were not drawn: `matplotlib` is not installed" in written[-1].read_text(
        encoding="utf-8"
    )


@pytest.mark.usefixtures("no_matplotlib")
def test_times_touch_no_page_of_scores(tmp_path: Path):
    folder = _small(tmp_path / "bench")
    before = {p.name: p.read_bytes() for p in render(folder, tmp_path / "a")}
    for path in (folder / "cells").glob("*.json"):
        fields = json.loads(path.read_text())
        rate = fields["graphs_per_s"]
        fields |= {"seconds": fields["seconds"] * 2, "graphs_per_s": rate and rate * 2}
        path.write_text(json.dumps(fields))
    after = {p.name: p.read_bytes() for p in render(folder, tmp_path / "b")}
    assert {n.split(".")[0] for n in before if before[n] != after[n]} == {"speed"}


@pytest.mark.usefixtures("no_matplotlib")
def test_scales_are_rendered_apart(tmp_path: Path):
    for scale, test in (("smoke", 0.5), ("small", 0.8)):
        found = {"last": {"test": test}}
        factory.write(tmp_path, factory.cell("finetune", "graphlog", "bbbp", 0, found, scale=scale))
    written = {p.name: p.read_text(encoding="utf-8") for p in render(tmp_path, tmp_path / "out")}
    assert "50.0" in written["molecules-smoke.md"]
    assert "80.0" in written["molecules-small.md"]
    assert "80.0" not in written["molecules-smoke.md"]


@pytest.mark.usefixtures("no_matplotlib")
def test_another_source_and_split_are_rendered_apart(tmp_path: Path):
    for changes, test in (("", 0.5), ("source=string-50 split=species", 0.8)):
        found, words = {"last": {"test": test}}, {"domain": "protein", "changes": changes}
        hashed = f"{len(changes):064x}"
        cell = factory.cell(
            "finetune", "graphlog", "worm-go40", 0, found, config_hash=hashed, **words
        )
        factory.write(tmp_path, cell)
    written = {p.name: p.read_text(encoding="utf-8") for p in render(tmp_path, tmp_path / "out")}
    assert "50.0" in written["biology-small.md"]
    assert "80.0" in written["biology-small-source-string-50-split-species.md"]


@pytest.mark.usefixtures("no_matplotlib")
def test_a_page_says_which_rows_are_of_the_old_protocol(tmp_path: Path):
    factory.write_molecules(tmp_path, datasets=("bbbp",), methods=("untrained", "graphlog"))
    folder = BenchmarkFolder(tmp_path)
    page = write_pages(folder, tmp_path / "a")[0].read_text(encoding="utf-8")
    assert "> All rows were measured under protocol 1" in page
    folder.make()
    folder.merge()
    (table,) = tmp_path.glob("*.csv.gz")
    rows = pd.read_csv(table, keep_default_na=False, dtype=str)
    rows.loc[rows["method"] == "graphlog", "protocol"] = str(PROTOCOL)
    rows.to_csv(table, index=False)
    page = write_pages(folder, tmp_path / "a")[0].read_text(encoding="utf-8")
    assert "> Rows marked † were measured under protocol 1" in page
    assert "| Untrained † " in page
    rows["protocol"] = str(PROTOCOL)
    rows.to_csv(table, index=False)
    page = write_pages(folder, tmp_path / "a")[0].read_text(encoding="utf-8")
    assert "protocol 1" not in page


def test_a_folder_without_cells_says_what_to_run(tmp_path: Path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="graphlog benchmark SUITE"):
            render(folder, tmp_path / "out")


def test_every_kind_of_table_is_drawn(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from graphlog.benchmark.figures import difference_forest, score_dots, sensitivity_figure

    factory.write_biology(tmp_path)
    factory.write_backbones(tmp_path)
    factory.write_ablation(tmp_path)
    factory.write_sensitivity(tmp_path)
    grids = {table.name: table for table in _tables(tmp_path)}
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
    (grid,) = _tables(tmp_path)
    assert "not measured in full" in _texts(difference_forest(grid))
    assert "not measured" in _texts(score_dots(grid))


def test_maps_stand_side_by_side_and_a_missing_one_says_so(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from graphlog.benchmark.map_figure import map_figure, read_maps

    factory.write_maps(tmp_path, graphs=50)
    next((tmp_path / "cells").glob("map-*-lossessubgraph-*.json")).unlink()
    folder = BenchmarkFolder(tmp_path)
    ((name, maps),) = read_maps(*newest_cells(folder.load()), folder).items()
    assert name == "molecules-embedding-map-gin-zinc250k-seed0"
    assert [m is None for m in maps] == [True, False, False]
    figure = map_figure(maps)
    assert "not measured" in _texts(figure)
    assert "prototypes learned" in _texts(figure)
    assert "silhouette 0.7" in _texts(figure)
    assert len(figure.axes[2].lines) == 18


def test_a_damaged_map_is_named(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from graphlog.benchmark.map_figure import read_maps

    factory.write_maps(tmp_path, graphs=20)
    folder = BenchmarkFolder(tmp_path)
    rows, details = newest_cells(folder.load())
    path = next((tmp_path / "cells").glob("*.npz"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"\.npz, a map of the benchmark"):
        read_maps(rows, details, folder)
    np.savez(path, coordinates=np.zeros((2, 2)))
    with pytest.raises(DataError, match="restore it"):
        read_maps(rows, details, folder)


def _tables(folder: Path) -> list[Table]:
    return score_tables(newest_cells(BenchmarkFolder(folder).load())[0])


def _texts(figure) -> str:
    return " ".join(
        t.get_text() for t in figure.findobj(lambda artist: hasattr(artist, "get_text"))
    )
