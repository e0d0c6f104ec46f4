"""The folder: cells whole or not at all, a table a suite, equal cells shared, old folders read."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmark import factory
from graphlog.benchmark.cells import CellSpec
from graphlog.benchmark.folder import COLUMNS, PROTOCOL, BenchmarkFolder, cell_details, newest_cells
from graphlog.benchmark.plan import Request, plan_cells
from graphlog.errors import ConfigError, DataError, ModelFileError

RESULT = {
    "scores": {
        "last": {"test": 0.1 + 0.2, "valid": float("nan"), "per_task": {"a, b": 0.5, "NA": None}}
    },
    "metric": "roc_auc",
    "seconds": 2.0,
    "graphs_per_s": None,
    "notes": [],
}


@pytest.fixture
def folder(tmp_path: Path) -> BenchmarkFolder:
    made = BenchmarkFolder(tmp_path / "bench")
    made.make()
    return made


@pytest.fixture(scope="module")
def specs() -> list[CellSpec]:
    return plan_cells(Request("molecules", "small", methods=["graphlog", "ecfp-rf"], seeds=[0]))


def reopened(folder: BenchmarkFolder) -> BenchmarkFolder:
    """Return the folder as another process sees it."""
    return BenchmarkFolder(folder.path)


@pytest.mark.parametrize("merged", [False, True])
def test_a_cell_is_rows_that_say_what_it_is(
    folder: BenchmarkFolder, specs: list[CellSpec], merged: bool
):
    spec = next(s for s in specs if s.stage == "finetune")
    assert not folder.has(spec)
    folder.write(spec, RESULT)
    assert [p.name for p in folder.rows.iterdir()] == [f"{spec.key}.csv"]
    if merged:
        folder.merge()
        assert not list(folder.rows.iterdir())
        assert (folder.path / "molecules.csv.gz").is_file()
    assert reopened(folder).has(spec)
    rows = folder.load()
    assert tuple(rows.columns) == COLUMNS
    assert set(rows["method"]) == {"graphlog"}
    assert set(rows["dataset"]) == {"bbbp"}
    assert set(rows["seed"]) == {0}
    scores = {
        (fold, task): value
        for fold, task, value in zip(rows["fold"], rows["task"], rows["value"], strict=True)
    }
    assert scores["test", ""] == 0.1 + 0.2  # to the last bit
    assert scores["test", "a, b"] == 0.5
    assert math.isnan(scores["valid", ""])
    assert math.isnan(scores["test", "NA"])
    details = cell_details(rows)
    assert details["config_hash"] == spec.config_hash
    assert details["config"]["finetune"]["epochs"] == 10
    assert (rows["details"] != "").sum() == 1


def test_a_table_can_be_read_by_pandas_alone(folder: BenchmarkFolder, specs: list[CellSpec]):
    for spec in specs:
        folder.write(spec, RESULT)
    folder.merge()
    rows = pd.read_csv(folder.path / "molecules.csv.gz")
    scores = rows[(rows["rule"] == "last") & (rows["fold"] == "valid")]
    assert len(scores) == len(specs)


def test_merging_the_same_rows_gives_the_same_bytes(
    folder: BenchmarkFolder, specs: list[CellSpec], tmp_path: Path
):
    other = BenchmarkFolder(tmp_path / "other")
    other.make()
    for spec in specs:
        folder.write(spec, RESULT)
    folder.merge()
    for number, spec in enumerate(reversed(specs)):
        other.write(spec, RESULT)
        if number % 3 == 0:
            other.merge()
    other.merge()
    other.merge()
    name = "molecules.csv.gz"
    assert (folder.path / name).read_bytes() == (other.path / name).read_bytes()


def test_a_process_that_dies_while_merging_loses_and_doubles_nothing(
    folder: BenchmarkFolder, specs: list[CellSpec]
):
    for spec in specs[:2]:
        folder.write(spec, RESULT)
    before = {path.name: path.read_bytes() for path in folder.rows.iterdir()}
    folder.merge()
    for name, content in before.items():  # killed before it could remove them
        (folder.rows / name).write_bytes(content)
    assert len(folder.load()) == 2 * 5
    folder.merge()
    assert len(folder.load()) == 2 * 5
    assert all(reopened(folder).has(spec) for spec in specs[:2])


def test_another_process_sees_what_is_merged(folder: BenchmarkFolder, specs: list[CellSpec]):
    other = reopened(folder)
    assert not other.has(specs[0])
    folder.write(specs[0], RESULT)
    folder.merge()
    assert other.has(specs[0])


@pytest.mark.parametrize("damage", ["", "{", "cell,suite\n", None])
def test_damaged_rows_are_no_cell(
    folder: BenchmarkFolder, specs: list[CellSpec], damage: str | None
):
    folder.write(specs[0], RESULT)
    path = folder.rows / f"{specs[0].key}.csv"
    path.write_text(path.read_text()[:-200] if damage is None else damage)
    assert not folder.has(specs[0])
    with pytest.raises(DataError, match=path.name):
        folder.load()
    folder.write(specs[0], RESULT)  # computed again
    assert folder.has(specs[0])
    assert len(folder.load()) == 5


def test_a_damaged_table_is_named_and_never_replaced(
    folder: BenchmarkFolder, specs: list[CellSpec]
):
    folder.write(specs[0], RESULT)
    folder.merge()
    path = folder.path / "molecules.csv.gz"
    content = path.read_bytes()[:-30]
    path.write_bytes(content)
    folder.write(specs[1], RESULT)
    for call in (folder.load, folder.merge, lambda: reopened(folder).has(specs[0])):
        with pytest.raises(DataError, match=r"molecules\.csv\.gz is damaged"):
            call()
    assert path.read_bytes() == content


def test_other_tables_and_newer_ones_are_refused(folder: BenchmarkFolder, specs: list[CellSpec]):
    path = folder.path / "mine.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(DataError, match="not a table of a benchmark; move it elsewhere"):
        folder.load()
    path.write_bytes(gzip.compress((",".join([*COLUMNS, "later"]) + "\n").encode()))
    with pytest.raises(ModelFileError, match="update graphlog"):
        folder.load()


def test_other_settings_are_another_cell_and_unknown_ones_do_not_matter(
    folder: BenchmarkFolder, specs: list[CellSpec]
):
    def write(config: dict[str, Any]) -> None:
        changed = json.loads(json.dumps(config))
        folder.write(spec, RESULT)
        rows = pd.read_csv(folder.rows / f"{spec.key}.csv", keep_default_na=False, dtype=str)
        details = {**json.loads(rows["details"].iloc[-1]), "config": changed}
        rows.loc[rows.index[-1], "details"] = json.dumps(details)
        rows.to_csv(folder.rows / f"{spec.key}.csv", index=False)

    spec = specs[0]
    config = json.loads(json.dumps(spec.config))
    del config["pretrain"]["watch_every"]  # written before there was such a setting
    write(config)
    assert reopened(folder).has(spec)
    config["pretrain"]["epochs"] = 3
    write(config)
    assert not reopened(folder).has(spec)


def test_the_same_work_under_another_name_is_not_done_again(folder: BenchmarkFolder):
    (done,) = plan_cells(
        Request("molecules", methods=["untrained"], seeds=[0], datasets=["bace"], stages=["probe"])
    )
    curve = plan_cells(Request("sensitivity", seeds=[0], datasets=["bace"]))
    first, second = (
        next(s for s in curve if s.variant == variant and s.stage == "probe")
        for variant in ((("depth", 3),), (("batch_size", 256),))
    )
    same = next(s for s in curve if s.key == done.key)
    assert not folder.has(same)
    folder.write(done, RESULT)
    assert reopened(folder).has(same)
    folder.write(first, RESULT)
    preview = reopened(folder)
    assert preview.is_finished(second)
    assert not (folder.rows / f"{second.key}.csv").exists()
    assert folder.has(second)
    folder.merge()
    rows = reopened(folder).load()
    copied = rows[rows["cell"] == second.key]
    assert set(copied["variant"]) == {"batch_size=256"}
    assert set(copied["suite"]) == {"sensitivity"}
    assert copied["value"].tolist()[:1] == [0.1 + 0.2]


def test_only_one_claims_a_name_at_a_time(folder: BenchmarkFolder):
    with folder.claimed("a") as first, folder.claimed("a") as second, folder.claimed("b") as other:
        assert (first, second, other) == (True, False, True)
    with folder.claimed("a") as again:
        assert again


def test_failures_are_lines(folder: BenchmarkFolder, specs: list[CellSpec]):
    folder.fail(specs[0], DataError("no\nsuch file"))
    folder.fail(specs[1], DataError("nor this"))
    rows = [json.loads(line) for line in folder.failures.read_text().splitlines()]
    assert [row["cell"] for row in rows] == [specs[0].key, specs[1].key]
    assert rows[0]["error"] == "no\nsuch file"


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        BenchmarkFolder(tmp_path / "taken")


def test_a_finished_cell_stays_finished_on_another_device(folder: BenchmarkFolder):
    choose: dict[str, Any] = {"methods": ["graphlog"], "datasets": ["bbbp"], "seeds": [0]}
    for done, asked in zip(
        plan_cells(Request("molecules", **choose)),
        plan_cells(Request("molecules", device="cpu", **choose)),
        strict=True,
    ):
        assert done.config_hash == asked.config_hash
        folder.write(done, RESULT)
        assert reopened(folder).has(asked)


def test_cells_of_an_old_folder_are_imported_once(tmp_path: Path):
    factory.write_molecules(tmp_path, datasets=("bbbp", "bace"), methods=("untrained", "graphlog"))
    factory.write_maps(tmp_path, graphs=20)
    folder = BenchmarkFolder(tmp_path)
    before = folder.load()  # without writing anything
    assert [p.name for p in tmp_path.iterdir()] == ["cells"]
    assert set(before["protocol"]) == {1}
    names = {path.name for path in folder.old_cells.glob("*.json")}
    folder.make()
    folder.merge()
    assert not folder.old_cells.exists()
    assert {p.name for p in (tmp_path / "cells.imported").iterdir()} == names
    assert len(list(folder.maps.glob("*.npz"))) == 3
    pd.testing.assert_frame_equal(
        folder.load().reset_index(drop=True), before.reset_index(drop=True)
    )
    folder.merge()
    assert len(folder.load()) == len(before)


def test_old_cells_keep_every_number(tmp_path: Path):
    factory.write_molecules(tmp_path, datasets=("bbbp",), methods=("graphlog",))
    folder = BenchmarkFolder(tmp_path)
    rows = folder.load()
    for path in folder.old_cells.glob("*.json"):
        fields = json.loads(path.read_text())
        part = rows[rows["cell"] == path.stem]
        for rule, values in fields["scores"].items():
            here = part[(part["rule"] == rule) & (part["task"] == "")].set_index("fold")["value"]
            assert here["test"] == values["test"]
            assert here["valid"] == values["valid"]
        assert cell_details(part)["config"] == fields["config"]


def test_a_cell_of_the_old_protocol_is_computed_again_and_then_counts(
    folder: BenchmarkFolder, specs: list[CellSpec]
):
    spec, baseline = specs[0], next(s for s in specs if s.backbone is None)
    for each in (spec, baseline):
        folder.write(each, RESULT)
        path = folder.rows / f"{each.key}.csv"
        rows = pd.read_csv(path, keep_default_na=False, dtype=str).assign(protocol="1")
        rows.to_csv(path, index=False)
    assert not folder.has(spec)
    assert folder.has(baseline)  # nothing changed for fingerprints
    folder.merge()
    folder.write(spec, {**RESULT, "seconds": 9.0})
    folder.merge()
    rows = folder.load()
    part = rows[rows["cell"] == spec.key]
    assert set(part["protocol"]) == {PROTOCOL}
    assert part.loc[part["metric"] == "seconds", "value"].item() == 9.0


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ('{"format": "graphlog-cell", "ver', DataError, "not a whole cell"),
        ("[1, 2]", DataError, "not a whole cell"),
        ('{"format": "other", "version": 1}', DataError, "not a cell of a benchmark"),
        ('{"format": "graphlog-cell", "version": 99}', ModelFileError, "update graphlog"),
        ('{"format": "graphlog-cell", "version": 1}', DataError, "KeyError"),
    ],
)
def test_a_file_that_is_no_cell_is_named(
    folder: BenchmarkFolder, text: str, error: type[Exception], words: str
):
    folder.old_cells.mkdir()
    (folder.old_cells / "bad.json").write_text(text)
    with pytest.raises(error, match=words) as caught:
        folder.load()
    assert "bad.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_settings_for_one_place_are_refused(tmp_path: Path):
    fields = factory.cell("finetune", "graphlog", "bbbp", 0, {"last": {"test": 0.7}})
    factory.write(tmp_path, fields)
    factory.write(tmp_path, {**fields, "config_hash": "f" * 64})
    with pytest.raises(DataError, match="same cell with different settings"):
        newest_cells(BenchmarkFolder(tmp_path).load())


def test_the_timing_with_more_methods_counts(tmp_path: Path):
    def timed(rate: float, *together: str) -> dict[str, Any]:
        fields = {
            "suite": "speed",
            "graphs_per_s": rate,
            "together": list(together),
            "config_hash": f"{len(together):064x}",
            "domain": "molecule",
        }
        return factory.cell("speed", "graphcl", None, 0, {}, **fields)

    factory.write(tmp_path, timed(9.0, "attrmasking", "graphcl"))
    factory.write(tmp_path, timed(7.0, "attrmasking", "graphcl", "graphlog"))
    rows, _ = newest_cells(BenchmarkFolder(tmp_path).load())
    assert rows.loc[rows["metric"] == "graphs_per_s", "value"].tolist() == [7.0]
