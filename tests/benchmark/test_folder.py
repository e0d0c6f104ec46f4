"""The folder: a table a suite, replaced in one piece; equal cells shared; damage named."""

import gzip
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark_support import read_table
from graphlog.benchmark import Request
from graphlog.benchmark.cells import Cell, plan_cells
from graphlog.benchmark.folder import COLUMNS, BenchmarkFolder
from graphlog.errors import ConfigError, DataError

ABOUT = {"prototypes": "", "calibrated_on": "9 graphs of a (1)"}
ROWS: list[dict[str, Any]] = [
    {**ABOUT, "rule": "fixed", "fold": "test", "metric": "roc_auc", "value": 0.1 + 0.2},
    {**ABOUT, "rule": "fixed", "fold": "valid", "metric": "roc_auc", "value": math.nan},
    {**ABOUT, "fold": "test", "task": "a, b", "metric": "roc_auc", "value": 0.5},
    {**ABOUT, "metric": "seconds", "value": 2.0},
]


@pytest.fixture
def folder(tmp_path: Path) -> BenchmarkFolder:
    made = BenchmarkFolder(tmp_path / "bench")
    made.make()
    return made


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return plan_cells(Request("molecules", "small", methods=["graphlog", "ecfp-rf"], seeds=[0]))


def test_a_cell_is_rows_that_say_what_it_is(folder: BenchmarkFolder, cells: list[Cell]):
    cell = next(c for c in cells if c.stage == "finetune")
    assert not folder.has(cell)
    folder.write(cell, ROWS, {"machine": {"cores": 2}})
    assert BenchmarkFolder(folder.path).has(cell)  # as another process sees it
    rows = read_table(folder.path / "molecules.csv.gz")
    assert tuple(rows.columns) == COLUMNS
    assert set(rows["method"]) == {"graphlog"}
    assert set(rows["dataset"]) == {"bbbp"}
    assert set(rows["seed"]) == {"0"}
    assert set(rows["calibrated_on"]) == {"9 graphs of a (1)"}
    assert rows["value"][0] == 0.1 + 0.2  # to the last bit
    assert math.isnan(rows["value"][1])
    assert rows["task"][2] == "a, b"
    (details,) = [json.loads(text) for text in rows["details"] if text]
    assert details["settings"]["finetune"]["epochs"] == 10
    assert details["machine"] == {"cores": 2}


def test_the_order_of_cells_does_not_matter(
    folder: BenchmarkFolder, cells: list[Cell], tmp_path: Path
):
    other = BenchmarkFolder(tmp_path / "other")
    other.make()
    for cell in cells[:4]:
        folder.write(cell, ROWS, {})
    for cell in reversed(cells[:4]):
        other.write(cell, ROWS, {})
        other.write(cell, ROWS, {})  # again: in place of the rows before
    name = "molecules.csv.gz"
    assert (folder.path / name).read_bytes() == (other.path / name).read_bytes()


def test_methods_that_are_not_timed_again_keep_their_rates(folder: BenchmarkFolder):
    """So do the rows without a method, which describe the machines."""
    for methods in (["attrmasking", "graphlog"], ["infomax", "graphlog"], ["infomax", "graphlog"]):
        (cell,) = plan_cells(Request("speed", methods=methods, seeds=[0]))
        rates = [{"method": m, "metric": "graphs_per_s", "value": 1.0} for m in methods]
        folder.write(cell, [*rates, {"metric": "seconds", "value": 1.0}], {})
    found = folder.rows("speed")["method"].tolist()
    assert found == ["", "", "attrmasking", "graphlog", "infomax"]


def test_rows_of_two_processes_are_all_kept_where_times_of_files_are_coarse(
    folder: BenchmarkFolder, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
):
    """Some file systems know whole seconds: a table that was replaced looks as old as before."""
    other, stat = BenchmarkFolder(folder.path), Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: _coarse(stat(path, **how)))
    for number, cell in enumerate(cells[:4]):
        (folder, other)[number % 2].write(cell, ROWS, {})
        folder.has(cells[-1])
    again = BenchmarkFolder(folder.path)
    assert all(again.is_finished(cell) for cell in cells[:4])


def _coarse(status: os.stat_result) -> os.stat_result:
    # ino, size and time alike for all
    return os.stat_result((status.st_mode, 7, *status[2:6], 99, 5, 5, 5))


def test_rows_of_other_scales_or_graphs_cannot_stand_in_one_table(
    folder: BenchmarkFolder, cells: list[Cell]
):
    folder.write(cells[0], ROWS, {})
    before = (folder.path / "molecules.csv.gz").read_bytes()
    other = [{**row, "calibrated_on": "9 graphs of b (2)"} for row in ROWS]
    with pytest.raises(ConfigError, match=r"on 9 graphs of a \(1\) and .* 9 graphs of b \(2\)"):
        folder.write(cells[1], other, {})
    smoke = plan_cells(Request("molecules", "smoke", methods=["graphlog"]))
    with pytest.raises(ConfigError, match="of scale small and of scale smoke"):
        folder.write(smoke[0], ROWS, {})
    assert (folder.path / "molecules.csv.gz").read_bytes() == before
    without = [{**row, "calibrated_on": ""} for row in ROWS]
    folder.write(cells[1], without, {})  # fingerprints have no batch norm


def test_the_same_work_under_other_labels_is_not_done_again(folder: BenchmarkFolder):
    (done,) = plan_cells(
        Request("molecules", methods=["untrained"], seeds=[0], datasets=["bace"], stages=["probe"])
    )
    curve = plan_cells(Request("sensitivity", seeds=[0], datasets=["bace"]))

    def found(**labels: str) -> Iterator[Cell]:
        return (c for c in curve if c.stage == "probe" and labels.items() <= c.labels.items())

    same = next(found(method="untrained"))
    assert not folder.is_finished(same)
    folder.write(done, ROWS, {})
    assert folder.is_finished(same)
    assert folder.names() == ["molecules"]  # looking writes nothing
    assert folder.has(same)
    first, second = next(found(variant="depth=3")), next(found(variant="batch_size=256"))
    folder.write(first, ROWS, {})
    assert folder.has(second)
    rows = folder.rows("sensitivity")
    assert set(rows.loc[rows["cell"] == first.hash, "variant"]) == {"depth=3", "batch_size=256"}
    assert len(rows) == 3 * len(ROWS)
    assert folder.has(second)
    assert len(folder.rows("sensitivity")) == len(rows)


@pytest.mark.parametrize("damage", [b"", b"{", None])
def test_a_damaged_table_is_named_and_never_replaced(
    folder: BenchmarkFolder, cells: list[Cell], damage: bytes | None
):
    folder.write(cells[0], ROWS, {})
    path = folder.path / "molecules.csv.gz"
    content = path.read_bytes()[:-30] if damage is None else damage
    path.write_bytes(content)
    for call in (
        lambda: folder.has(cells[0]),
        lambda: folder.write(cells[1], ROWS, {}),
        lambda: BenchmarkFolder(folder.path).is_finished(cells[0]),
    ):
        with pytest.raises(DataError, match=r"molecules\.csv\.gz is damaged"):
            call()
    assert path.read_bytes() == content


def test_other_tables_are_refused(folder: BenchmarkFolder):
    (folder.path / "mine.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(DataError, match="is not a table of this version"):
        folder.rows("mine")
    assert not BenchmarkFolder.is_at(folder.path)


def test_only_one_claims_a_name_at_a_time(folder: BenchmarkFolder):
    with folder.claimed("a") as first, folder.claimed("a") as second, folder.claimed("b") as other:
        assert (first, second, other) == (True, False, True)
    with folder.claimed("a") as again:
        assert again


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        BenchmarkFolder(tmp_path / "taken")
