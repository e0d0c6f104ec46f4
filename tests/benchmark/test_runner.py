"""Suites computed, whatever fails or dies: the report is the same however it was computed."""

import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from benchmark_support import METHODS, job, read_table, report_of, untimed
from encoder_support import DegreePred
from graphlog.benchmark import Request, preview, run_benchmark
from graphlog.benchmark.cells import SCALES, Cell, plan_cells
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.stages import Work
from graphlog.datasets import DATASETS
from graphlog.errors import ConfigError
from graphlog.files import hash_file
from graphlog.objectives import OBJECTIVES
from graphlog.training.log import Progress
from training_support import spawn

pytestmark = pytest.mark.usefixtures("tiny")

ONE = Request("molecules", "smoke", seeds=[0], methods=["attrmasking"])


class Whole(NamedTuple):
    """A benchmark left alone: its folder, what it computed, and how long it took."""

    folder: Path
    computed: list[str]
    seconds: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("undisturbed")
    began = time.monotonic()
    process = spawn(job, str(folder / "bench"), str(folder / "computed.json"))
    process.join()
    assert process.exitcode == 0
    computed = json.loads((folder / "computed.json").read_text())
    return Whole(folder / "bench", computed, time.monotonic() - began)


def test_cells_are_complete_and_calibrated_on_the_graphs_of_pretraining(whole: Whole) -> None:
    # one pre-trained method, one untrained; one linear model
    assert len(whole.computed) == len(set(whole.computed)) == (3 + 2) + 1
    rows = read_table(whole.folder / "molecules.csv.gz")
    assert rows["cell"].nunique() == 6
    scored = rows[rows["fold"] == "test"]
    assert set(scored["rule"]) == {"fixed", "validated"}
    assert scored["value"].between(0, 10).all()
    names = rows.groupby("method")["calibrated_on"].unique()
    assert names["graphlog"].tolist() == names["untrained"].tolist()
    assert names["graphlog"][0].startswith("64 graphs of nci5k (")
    assert names["ecfp-lr"].tolist() == [""]
    layers = rows["prototypes"].str.split().str.len().groupby(rows["method"]).unique()
    assert layers.map(list).to_dict() == {"ecfp-lr": [0], "graphlog": [3], "untrained": [0]}
    assert len(list((whole.folder / "models").iterdir())) == 1
    assert not list((whole.folder / "runs").iterdir())
    assert not list(whole.folder.rglob("*.partial"))
    assert "molecules.md" in report_of(whole.folder)


def test_an_untrained_encoder_never_sees_the_labeled_graphs(tmp_path: Path) -> None:
    work = Work(BenchmarkFolder(tmp_path), Progress())
    work.folder.make()
    cells = plan_cells(replace(ONE, methods=["untrained"], datasets=["bbbp", "bace"]))
    found = [work.encoder(cell)[0].state_dict() for cell in cells if cell.stage == "probe"]
    assert len(found) == 2
    assert all(torch.equal(found[0][name], value) for name, value in found[1].items())


def test_a_cell_with_prototypes_fails_if_training_ends_before_they_are_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = SCALES["smoke"]["molecule"]
    short = tiny.updated({"pretrain": {**tiny.pretrain, "epochs": 1}})  # the local phase alone
    monkeypatch.setitem(SCALES, "smoke", {"molecule": short})
    outcome = run_benchmark(replace(ONE, methods=["graphlog"]), tmp_path)
    assert not outcome.computed
    assert any("training ended before prototypes" in why for why in outcome.failed.values())
    assert not list(tmp_path.glob("*.csv.gz"))


def test_nothing_is_done_twice_and_other_graphs_need_another_folder(whole: Whole) -> None:
    request = Request("molecules", "smoke", methods=METHODS)
    plan = preview(request, whole.folder)
    assert (len(plan), all(done for _, done in plan)) == (6, True)
    assert run_benchmark(request, whole.folder).computed == []
    before = len(list((whole.folder / "models").iterdir()))
    with pytest.raises(ConfigError, match="cannot be in one table"):
        run_benchmark(replace(ONE, source="wehi10k"), whole.folder)
    with pytest.raises(ConfigError, match="of scale paper and of scale smoke"):
        run_benchmark(replace(ONE, scale="paper"), whole.folder)
    assert len(list((whole.folder / "models").iterdir())) == before  # before any work


def test_killed_alone_and_beside_others(whole: Whole, tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    for moment in (0.3, 0.6):
        outs = ("killed", "1", "2") if moment > 0.5 else ("killed",)
        process, *others = (spawn(job, str(bench), str(tmp_path / f"{n}.json")) for n in outs)
        time.sleep(moment * whole.seconds)
        process.kill()
        process.join()
        for other in others:
            other.join()
            assert other.exitcode == 0
    files = list(tmp_path.glob("*.json"))
    done = [cell for file in files for cell in json.loads(file.read_text())]
    assert len(done) == len(set(done))
    assert set(done) <= set(whole.computed)
    pd.testing.assert_frame_equal(untimed(bench), untimed(whole.folder))
    assert report_of(bench) == report_of(whole.folder)


def test_a_method_whose_package_is_missing_is_left_out_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    request = Request("molecules", "smoke", stages=["pretrain"])
    outcome = run_benchmark(request, tmp_path)
    assert not outcome.failed
    assert list(outcome.skipped) == ["pretrain graphpartition gin seed 0"]
    assert "pip install" in outcome.skipped["pretrain graphpartition gin seed 0"]
    assert len(outcome.computed) == 6
    asked = run_benchmark(replace(request, methods=["graphpartition"]), tmp_path)
    assert len(asked.failed) == 1
    timed = run_benchmark(Request("speed", "smoke", methods=["graphpartition"]), tmp_path)
    assert "pip install" in timed.failed["speed 1 methods gin seed 0"]


def test_stages_apart_and_a_model_that_is_gone_is_trained_again(tmp_path: Path) -> None:
    assert len(run_benchmark(replace(ONE, stages=["pretrain"]), tmp_path).computed) == 1
    assert len(run_benchmark(replace(ONE, stages=["probe"]), tmp_path).computed) == 1
    shutil.rmtree(tmp_path / "models")
    assert run_benchmark(replace(ONE, stages=["pretrain", "probe"]), tmp_path).computed == []
    assert not list((tmp_path / "models").iterdir())  # nothing needs it
    assert run_benchmark(ONE, tmp_path).computed == [
        "finetune attrmasking gin chembl2321810 seed 0"
    ]
    assert len(list((tmp_path / "models").iterdir())) == 1


def test_maps_have_graphs_and_a_tree(tmp_path: Path) -> None:
    request = Request("embedding-map", "smoke")
    assert not run_benchmark(request, tmp_path).failed
    maps: list[Cell] = [c for c in plan_cells(request) if c.stage == "map"]
    learned: list[bool] = []
    for cell in maps:
        with np.load(tmp_path / "maps" / f"{cell.hash}.npz", allow_pickle=False) as arrays:
            sizes = np.bincount(arrays["layer"])
            assert arrays["coordinates"].shape == (30, 2)
            assert arrays["cluster"].max() < sizes[0]
            below = arrays["layer"] > 0
            assert (arrays["layer"][arrays["parent"][below]] == arrays["layer"][below] - 1).all()
            assert np.isfinite(arrays["prototypes"]).all()
            learned.append(bool(arrays["learned"]))
    assert learned == [False, False, True]
    page = (tmp_path / "report" / "embedding-map.md").read_text()
    assert page.count("| none ") == 2


def test_speed_of_each_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "degree-pred", DegreePred)
    methods = ["attrmasking", "graphlog", "graphcl", "infograph", "degree-pred"]
    request = Request("speed", "smoke", seeds=[0], methods=methods)
    assert not run_benchmark(request, tmp_path).failed
    rows = read_table(tmp_path / "speed.csv.gz")
    rates = rows[rows["metric"] == "graphs_per_s"].set_index("method")["value"]
    assert {*rates.index} == {*methods}
    assert (rates > 0).all()


def test_each_task_has_the_measures_of_its_kind(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every tenth row of two data sets."""
    for name in ("freesolv", "bace"):
        few = tmp_path / str(DATASETS[name].path)
        few.parent.mkdir(parents=True, exist_ok=True)
        pd.read_csv(mirror / str(DATASETS[name].path))[::10].to_csv(few, index=False)
        own = {"sha256": hash_file(few)}
        monkeypatch.setitem(DATASETS, name, DATASETS[name].updated(own))
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path))
    request = Request("moleculenet", "smoke", methods=["ecfp4"], datasets=["freesolv", "bace"])
    run_benchmark(request, tmp_path, progress=Progress())
    rows = pd.read_csv(tmp_path / "moleculenet.csv.gz").query("task.isna() and metric != 'seconds'")
    measures = rows.groupby("dataset")["metric"].unique().map(list).to_dict()
    assert measures == {"freesolv": ["r2"], "bace": ["roc_auc"]}
