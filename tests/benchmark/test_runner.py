"""Suites computed: shared pre-training, failures that stop nothing, processes, sudden death.

However it was computed, the report is the same.
"""

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark_support import (
    METHODS,
    cells,
    no_figures,
    own_objective,
    rules,
    start,
    tables,
    tiny_scale,
)
from graphlog.benchmark import preview, run_benchmark
from graphlog.benchmark.folder import BenchmarkFolder, cell_details
from graphlog.benchmark.methods import SCALES
from graphlog.data.schema import FeatureSchema
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALES, "smoke", tiny_scale())  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr("graphlog.benchmark.pages._load_figures", no_figures)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], float]:
    """The folder of a benchmark left alone, what it computed, and how long it took."""
    folder = tmp_path_factory.mktemp("undisturbed")
    began = time.monotonic()
    process = start(folder / "bench", folder / "computed.json")
    process.join()
    assert process.exitcode == 0
    return (
        folder / "bench",
        json.loads((folder / "computed.json").read_text()),
        time.monotonic() - began,
    )


def test_cells_are_complete(undisturbed: tuple[Path, list[str], float]) -> None:
    folder, computed, _ = undisturbed
    found = cells(folder)
    assert set(found) == set(computed)
    assert (
        len(computed) == len(set(computed)) == (3 + 2) + 1
    )  # one pre-trained method, one untrained; one linear model
    scored = [c for c in found.values() if c["stage"] == "finetune"]
    assert all(rules(c) == {"last", "best-valid"} for c in scored)
    assert all(
        rules(c) == {"fixed-C", "validated-C"} for c in found.values() if c["stage"] == "probe"
    )
    assert all(c["data"]["pretrain"]["graphs"] == 64 for c in scored if c["method"] != "untrained")
    assert all(c["data"]["dataset"]["sizes"]["train"] > 100 for c in scored)
    assert {c["command"] for c in found.values()} == {
        "graphlog benchmark molecules -o DIR --scale smoke"
    }
    assert len(list((folder / "models").iterdir())) == 1
    assert not list((folder / "runs").iterdir())
    assert not list(folder.rglob("*.partial"))
    assert tables(folder)


def test_nothing_is_done_twice(undisturbed: tuple[Path, list[str], float]) -> None:
    assert run_benchmark("molecules", undisturbed[0], scale="smoke", methods=METHODS).computed == []


def test_killed_again_and_again(undisturbed: tuple[Path, list[str], float], tmp_path: Path) -> None:
    whole, _, took = undisturbed
    luck = random.Random(0)
    for _ in range(3):
        process = start(tmp_path / "bench", tmp_path / "computed.json")
        time.sleep(luck.uniform(0.1, 0.6) * took)
        process.kill()
        process.join()
    last = start(tmp_path / "bench", tmp_path / "computed.json")
    last.join()
    assert last.exitcode == 0
    assert cells(tmp_path / "bench") == cells(whole)
    assert tables(tmp_path / "bench") == tables(whole)


def test_three_processes_one_of_them_killed(
    undisturbed: tuple[Path, list[str], float], tmp_path: Path
) -> None:
    whole, computed, took = undisturbed
    bench = tmp_path / "bench"
    doomed = start(bench, tmp_path / "0.json")
    others = [start(bench, tmp_path / f"{n}.json") for n in (1, 2)]
    time.sleep(0.5 * took)
    doomed.kill()
    doomed.join()
    for process in others:
        process.join()
        assert process.exitcode == 0
    done = [
        key
        for n in (0, 1, 2)
        if (tmp_path / f"{n}.json").exists()
        for key in json.loads((tmp_path / f"{n}.json").read_text())
    ]
    assert len(done) == len(set(done))
    assert set(done) <= set(computed)
    assert cells(bench) == cells(whole)
    assert tables(bench) == tables(whole)


def test_a_cell_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(own_objective().DegreePred):
        @classmethod
        def check_schema(cls, schema: FeatureSchema) -> None:
            raise ConfigError(f"no such thing as {schema.name}.")

    monkeypatch.setitem(OBJECTIVES, "picky", Picky)
    choices: dict[str, Any] = {"scale": "smoke", "seeds": [0]}
    outcome = run_benchmark("molecules", tmp_path, methods=["picky", "untrained"], **choices)
    assert len(outcome.failed) == 3
    assert len(outcome.computed) == 2
    rows = [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()]
    assert [row["error"] for row in rows] == [
        "no such thing as molecule."
    ]  # what hangs on it is not listed too
    monkeypatch.setitem(OBJECTIVES, "picky", own_objective().DegreePred)
    mended = run_benchmark("molecules", tmp_path, methods=["picky", "untrained"], **choices)
    assert not mended.failed
    assert len(mended.computed) == 3
    report = (tmp_path / "report" / "molecules.md").read_text()
    assert "picky" in report  # an objective of one's own has its row


def test_stages_apart(tmp_path: Path) -> None:
    choices: dict[str, Any] = {"scale": "smoke", "seeds": [0], "methods": ["attrmasking"]}
    waiting = run_benchmark("molecules", tmp_path, stages=["finetune"], **choices)
    assert (len(waiting.waiting), waiting.computed) == (1, [])
    assert len(run_benchmark("molecules", tmp_path, stages=["pretrain"], **choices).computed) == 1
    assert len(run_benchmark("molecules", tmp_path, **choices).computed) == 2


def test_a_model_that_is_gone_is_trained_again_where_it_is_needed(tmp_path: Path) -> None:
    choices: dict[str, Any] = {"scale": "smoke", "seeds": [0], "methods": ["attrmasking"]}
    run_benchmark("molecules", tmp_path, stages=["pretrain", "probe"], **choices)
    shutil.rmtree(tmp_path / "models")
    assert (
        run_benchmark("molecules", tmp_path, stages=["pretrain", "probe"], **choices).computed == []
    )  # nothing needs it
    outcome = run_benchmark("molecules", tmp_path, **choices)
    assert not outcome.waiting
    assert sorted(key.partition("-")[0] for key in outcome.computed) == ["finetune", "pretrain"]


def test_fine_tuning_that_goes_on_counts_the_seconds_before(tmp_path: Path) -> None:
    choices: dict[str, Any] = {
        "scale": "smoke",
        "seeds": [0],
        "methods": ["untrained"],
        "stages": ["finetune"],
    }
    (spec,) = preview("molecules", tmp_path, **choices).cells
    (tmp_path / "runs" / spec.work_key / "checkpoint").mkdir(parents=True)
    run_benchmark("molecules", tmp_path, **choices)
    rows = BenchmarkFolder(tmp_path).load()
    notes = cell_details(rows)["timing_notes"]
    assert notes == ["seconds are those of the epochs: the run was interrupted"]
    assert rows.loc[rows["metric"] == "seconds", "value"].item() > 0


def test_a_preview_counts_and_leaves_no_trace(
    undisturbed: tuple[Path, list[str], float], tmp_path: Path
) -> None:
    plan = preview("molecules", tmp_path / "none", scale="smoke", methods=METHODS)
    assert not (tmp_path / "none").exists()
    assert plan.stages() == [("pretrain", 1, 0), ("finetune", 2, 0), ("probe", 3, 0)]
    there = preview("molecules", undisturbed[0], scale="smoke", methods=METHODS)
    assert sum(done for _, _, done in there.stages()) == len(there.cells)


def test_maps_have_graphs_and_a_tree(tmp_path: Path) -> None:
    outcome = run_benchmark("embedding-map", tmp_path, scale="smoke")
    assert not outcome.failed
    found = {json.dumps(c["variant"]): c for c in cells(tmp_path).values() if c["stage"] == "map"}
    assert len(found) == 3
    for cell in found.values():
        with np.load(tmp_path / "maps" / cell["map"], allow_pickle=False) as arrays:
            sizes = cell["prototypes"]["sizes"]
            assert arrays["coordinates"].shape == (30, 2)
            assert arrays["cluster"].max() < sizes[0]
            assert np.bincount(arrays["layer"]).tolist() == sizes
            below = arrays["layer"] > 0
            assert (arrays["layer"][arrays["parent"][below]] == arrays["layer"][below] - 1).all()
            assert np.isfinite(arrays["prototypes"]).all()
    assert sorted(c["prototypes"]["origin"] for c in found.values()) == [
        "fitted afterwards",
        "fitted afterwards",
        "learned",
    ]


def test_speed_counts_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "degree-pred", own_objective().DegreePred)
    outcome = run_benchmark(
        "speed",
        tmp_path,
        scale="smoke",
        seeds=[0],
        stages=["speed"],
        methods=["attrmasking", "graphlog", "graphcl", "infograph", "degree-pred"],
    )
    assert not outcome.failed
    views = {c["method"]: c["views"] for c in cells(tmp_path).values()}
    assert views == {
        "attrmasking": 1.0,
        "graphlog": 2.0,
        "graphcl": 2.0,
        "infograph": 1.0,
        "degree-pred": 1.0,
    }
    rows = BenchmarkFolder(tmp_path).load()
    assert (rows.loc[rows["metric"] == "graphs_per_s", "value"] > 0).all()
