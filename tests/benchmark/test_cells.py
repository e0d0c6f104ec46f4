"""The folder: cells whole or not at all, shared under other names, claimed by one process."""

import json
from pathlib import Path

import pytest

from graphlog.benchmark.cells import Folder
from graphlog.benchmark.estimate import Estimate, in_words, work
from graphlog.benchmark.grid import CellSpec
from graphlog.benchmark.suites import Request, cells_of
from graphlog.errors import ConfigError, DataError

FOUND = {
    "scores": {"last": {"test": 0.7, "valid": float("nan"), "per_task": {"a": None}}},
    "seconds": 2.0,
    "notes": [],
}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "bench")
    made.make()
    return made


@pytest.fixture(scope="module")
def specs() -> list[CellSpec]:
    return cells_of(Request("molecules", "small", methods=["graphlog", "ecfp-rf"], seeds=[0]))


def test_a_cell_comes_back_and_says_what_it_is(folder: Folder, specs: list[CellSpec]):
    spec = next(s for s in specs if s.stage == "finetune")
    assert folder.read(spec) is None
    assert not folder.has(spec)
    folder.write(spec, FOUND)
    cell = folder.read(spec)
    assert cell is not None
    assert (cell["format"], cell["version"], cell["method"], cell["dataset"], cell["seed"]) == (
        "graphlog-cell",
        1,
        "graphlog",
        "bbbp",
        0,
    )
    assert cell["scores"]["last"]["valid"] is None
    assert cell["config_hash"] == spec.config_hash
    assert cell["config"]["pretrain"]["epochs"] == 2
    assert cell["config"]["finetune"]["epochs"] == 10
    assert [p.name for p in folder.cells.iterdir()] == [f"{spec.key}.json"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": "other"}'])
def test_a_damaged_cell_is_none(folder: Folder, specs: list[CellSpec], damage: str):
    folder.write(specs[0], FOUND)
    (folder.cells / f"{specs[0].key}.json").write_text(damage)
    assert folder.read(specs[0]) is None


def test_other_settings_are_another_cell_and_unknown_ones_do_not_matter(
    folder: Folder, specs: list[CellSpec]
):
    spec = specs[0]
    folder.write(spec, FOUND)
    path = folder.cells / f"{spec.key}.json"
    cell = json.loads(path.read_text())
    del cell["config"]["pretrain"]["watch_every"]  # written before there was such a setting
    path.write_text(json.dumps(cell))
    assert folder.read(spec) is not None
    cell["config"]["pretrain"]["epochs"] = 3
    path.write_text(json.dumps(cell))
    assert folder.read(spec) is None


def test_the_same_work_under_another_name_is_not_done_again(folder: Folder, specs: list[CellSpec]):
    done = next(s for s in specs if s.stage == "finetune" and s.dataset == "bace")
    curve = cells_of(Request("sensitivity", "small", seeds=[0]))
    twin = next(
        s for s in curve if s.config_hash == done.config_hash and dict(s.variant) == {"depth": 3}
    )
    assert not folder.has(twin)
    folder.write(done, FOUND)
    assert folder.has(twin)
    copied = folder.read(twin)
    assert copied is not None
    assert (copied["suite"], copied["variant"], copied["seconds"]) == (
        "sensitivity",
        {"depth": 3},
        2.0,
    )


def test_only_one_claims_a_name_at_a_time(folder: Folder):
    with folder.claimed("a") as first, folder.claimed("a") as second, folder.claimed("b") as other:
        assert (first, second, other) == (True, False, True)
    with folder.claimed("a") as again:
        assert again


def test_failures_are_lines(folder: Folder, specs: list[CellSpec]):
    folder.fail(specs[0], DataError("no\nsuch file"))
    folder.fail(specs[1], DataError("nor this"))
    rows = [json.loads(line) for line in folder.failures.read_text().splitlines()]
    assert [row["cell"] for row in rows] == [specs[0].key, specs[1].key]
    assert rows[0]["error"] == "no\nsuch file"


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        Folder(tmp_path / "taken")


def test_the_time_left_is_learnt_from_near_kin(specs: list[CellSpec]):
    estimate = Estimate()
    tuned = {s.dataset: s for s in specs if s.stage == "finetune"}
    assert estimate.seconds(tuned["bbbp"]) is None
    estimate.learn(tuned["bbbp"], 100.0)
    assert estimate.seconds(tuned["bbbp"]) == pytest.approx(100.0)
    assert estimate.seconds(tuned["bace"]) == pytest.approx(
        100.0 * work(tuned["bace"]) / work(tuned["bbbp"])
    )
    estimate.learn(tuned["bace"], 1.0)
    assert estimate.seconds(tuned["bace"]) == pytest.approx(1.0)
    assert estimate.seconds(next(s for s in specs if s.stage == "probe")) is None
    assert in_words(3599.6) == "1:00 h"


def test_a_finished_cell_stays_finished_on_another_device(folder: Folder):
    choose = {"methods": ["graphlog"], "datasets": ["bbbp"], "seeds": [0]}
    for done, asked in zip(
        cells_of(Request("molecules", **choose)),
        cells_of(Request("molecules", device="cpu", **choose)),
        strict=True,
    ):
        assert done.config_hash == asked.config_hash
        folder.write(done, FOUND)
        assert folder.read(asked) is not None
