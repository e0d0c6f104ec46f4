"""The search for settings: by validation alone, continued after a kill, refitted once."""

import json
import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from cli_support import Cli
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    LENGTH,
    labeled,
    lengths,
    tiny_encoder,
    watch_steps,
    write_csv,
)
from graphlog.config import read_toml
from graphlog.downstream.finetune import SeedJob
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.tasks import with_validation_set, without_validation_set
from graphlog.errors import ConfigError, DataError, GraphLoGError, MissingExtraError
from graphlog.extras.tune import Tuned, tune
from graphlog.inputs import recall_input
from graphlog.training.runfolder import RunFolder
from graphlog.training.trainer import TrainingInterrupted

optuna = pytest.importorskip("optuna")
FIXED: dict[str, Any] = {"protocol": "paper", "epochs": 2, "batch_size": 8, "hidden": 0}
FIXED |= {"device": "cpu", "seeds": (0,), "baselines": ()}


def _search(out: Path, trials: int = 3, data: Any = None, **more: Any) -> Tuned:
    data = lengths() if data is None else data
    return tune(tiny_encoder(), data, out, trials=trials, **(FIXED | more))


def test_a_search_ends_in_a_predictor_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with torch.inference_mode():  # the caller, not the training
        found = _search(tmp_path, progress=True)
    said = capsys.readouterr().err
    numbers = [int(number) for number in re.findall(r"^ *trial (\d+), ", said, re.MULTILINE)]
    assert numbers == sorted(t.number for t in found.trials) == [0, 1, 2]
    best = found.trials[0]
    assert f"with the settings of trial {best.number}" in said
    names = {"learning_rate", "encoder_rate", "dropout", "weight_decay"}
    assert all(set(trial.settings) == names for trial in found.trials)
    complete = [t.score for t in found.trials if t.state == "complete"]
    assert complete == sorted(complete)  # RMSE: the lowest first
    settings = read_toml(tmp_path / "best.toml")["finetune"]
    assert (settings["dropout"], settings["epochs"]) == (best.settings["dropout"], 2)
    again = Predictor.load(tmp_path / "best")
    assert again.info["finetune"]["learning_rate"] == settings["learning_rate"]
    chose = "the validation set chose these settings, the best of 3 trials"
    assert sum(chose in note for note in again.report.notes) == 1
    first = next(t for t in found.trials if t.number == 0)
    assert first.settings["learning_rate"] == 1e-3  # the defaults come first


@pytest.mark.parametrize(
    ("columns", "score", "title"),
    [
        ({"y": (LENGTH > 6).astype(int)}, r"valid roc_auc (\d+\.\d\d) %", "valid ROC-AUC (%)"),
        ({"y": LENGTH, "z": 1e4 * LENGTH}, r"valid rmse_in_sd (\d+\.\d{4})", "valid RMSE-IN-SD"),
    ],
)
def test_trials_are_told_as_in_the_report(columns: Any, score: str, title: str, cli: Cli):
    """Areas in per cent, several quantities in deviations."""
    write_csv(Path("m.csv"), CHAINS, **columns)
    how = "--trials 1 --split random --seeds 0 --baselines none --device cpu"
    how += " --set schedule=constant --set epochs=1"
    said = cli(f"tune m.csv -m random -o out --targets {','.join(columns)}", how)
    (found,) = re.findall(score, said.err)
    assert f"{float(found):.2f}" in said.out.partition(title)[2].splitlines()[1]


@pytest.fixture(scope="module")
def of_one_trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("search")
    _search(out, 1)
    return out


@pytest.fixture
def searched(tmp_path: Path, of_one_trial: Path) -> Path:
    """The folder of a search of one trial, each time as new."""
    return shutil.copytree(of_one_trial, tmp_path / "searched")


def test_the_first_trial_is_that_of_the_protocol(searched: Path):
    (trial,) = json.loads((searched / "trials.json").read_text())
    assert [trial["settings"][name] for name in ("dropout", "encoder_rate")] == [0.5, 1e-3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seeds": ()}, "`seeds` must be 1 or more different whole numbers"),
        ({"baselines": ("ecfp",)}, "baseline 'ecfp'"),
        ({"dropuot": 0.1}, "did you mean 'dropout'"),
        ({"select": "best"}, "select"),
        ({"data": {"smiles": CHAINS, "y": LENGTH}, "targets": ["nope"]}, "nope"),
    ],
)
def test_what_the_final_run_would_refuse_is_refused_first(
    tmp_path: Path, searched: Path, options: dict[str, Any], words: str
):
    with pytest.raises(GraphLoGError, match=words):
        _search(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    before = {path.name: path.read_bytes() for path in searched.iterdir() if path.is_file()}
    assert {"study.db", "best.toml", "trials.json"} <= before.keys()
    with pytest.raises(GraphLoGError, match=words):
        _search(searched, overwrite=True, **options)
    for name, content in before.items():
        assert (searched / name).read_bytes() == content


def test_a_search_is_replaced_but_not_what_others_have_written(searched: Path):
    (searched / "split.json").write_text("mine")
    assert len(_search(searched, 1, overwrite=True).trials) == 1
    assert (searched / "split.json").read_text() == "mine"


def test_two_searches_do_not_share_a_folder(searched: Path):
    before = (searched / "study.db").read_bytes()
    with closing(RunFolder.open(searched, "search", resume=True)):
        for choice in ("resume", "overwrite"):
            with pytest.raises(ConfigError, match=f"in use by process {os.getpid()}; wait"):
                _search(searched, 2, **{choice: True})
    assert (searched / "study.db").read_bytes() == before


def test_the_best_run_knows_its_input(tmp_path: Path):
    path = write_csv(tmp_path / "m.csv", ["no molecule", *CHAINS], y=[0, *LENGTH])
    _search(tmp_path / "out", 1, path, targets=["y"], split="random")
    best = tmp_path / "out" / "best"
    assert recall_input(best) == (str(path), {"targets": ["y"]})
    assert "no molecule" in (best / "rejects.csv").read_text()


def test_trials_never_see_the_test_fold(tmp_path: Path):
    data, other = lengths(), lengths()
    other.labels[data.split.test] *= 1e6
    found, other = (_search(tmp_path / str(k), 2, each) for k, each in enumerate((data, other)))
    assert found.trials == other.trials
    assert other.predictor.report.mean > 1e5


def _states(out: Path) -> list[str]:
    """Return how the trials of a search have ended."""
    storage = f"sqlite:///{out / 'study.db'}"
    study = optuna.load_study(study_name="finetune", storage=storage)
    return [trial.state.name for trial in study.trials]


def test_a_trial_that_crashes_or_has_no_score_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(SeedJob, "loss", Mock(side_effect=RuntimeError("no")))
        with pytest.raises(RuntimeError, match="no"):
            _search(tmp_path / "a")
    assert _states(tmp_path / "a") == ["FAIL"]
    monkeypatch.setattr(SeedJob, "valid_score", lambda *_: float("nan"))
    with pytest.raises(ConfigError, match="no trial was completed"):
        _search(tmp_path / "b", trials=2)
    assert _states(tmp_path / "b") == ["FAIL", "FAIL"]


def test_a_search_goes_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"

    def interrupt(step: int):
        if step == 10:  # a trial has 8 steps
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        watch_steps(patch, interrupt)
        with pytest.raises(TrainingInterrupted, match="in trial 1; continue with `resume=True`"):
            _search(out)
    assert _states(out) == ["COMPLETE", "FAIL"]
    with pytest.raises(ConfigError, match="`resume=True` or replace it with `overwrite=True`"):
        _search(out)
    with pytest.raises(ConfigError, match="other settings, model or data"):
        _search(out, resume=True, epochs=3)
    capsys.readouterr()
    found = _search(out, resume=True, progress=True)
    numbers = re.findall(r"^ *trial (\d+), \1 of 3 done", capsys.readouterr().err, re.MULTILINE)
    assert numbers == ["1", "2"]
    finished = [t for t in found.trials if t.state != "fail"]
    assert len({t.settings["learning_rate"] for t in finished}) == len(finished) == 3
    whole = _search(tmp_path / "undisturbed").trials
    assert list(finished) == list(whole)
    for file in (out / "best").iterdir():  # as after a kill before the final run began
        if file.is_file() and file.name != "graphlog.json":
            file.unlink()
    assert _search(out, resume=True).trials == found.trials
    assert len(_search(out, resume=True, trials=4).trials) == 4


def test_a_search_killed_before_a_failed_trial_is_told_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(SeedJob, "valid_score", lambda *_: float("nan"))
        patch.setattr(optuna.Study, "tell", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            _search(tmp_path, trials=1)
    assert [trial.state for trial in _search(tmp_path, trials=1, resume=True).trials] == [
        "complete"
    ]


def test_a_search_killed_before_it_signed_its_folder_begins_anew(tmp_path: Path):
    (tmp_path / "graphlog.json.0123456789abcdef.partial").write_text("{")
    assert len(_search(tmp_path, trials=1, resume=True).trials) == 1


def test_the_study_is_in_its_folder_whatever_its_name(tmp_path: Path):
    """In a URL, which SQLite's tools take as well, ? begins options and %20 is a space."""
    for name in ("q?v=1", "q?v=2", "a%20b"):
        assert len(_search(tmp_path / name, trials=1).trials) == 1
        assert (tmp_path / name / "study.db").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a%20b", "q?v=1", "q?v=2"]


def test_a_damaged_study_is_named(tmp_path: Path):
    _search(tmp_path, trials=1)
    (tmp_path / "study.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(GraphLoGError, match=r"study\.db: file is not a database; if the disk"):
        _search(tmp_path, trials=1, resume=True)
    assert len(_search(tmp_path, trials=1, overwrite=True).trials) == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE trial_params SET distribution_json = 'no JSON'",
        "DELETE FROM study_user_attributes",
        "UPDATE alembic_version SET version_num = 'v0.0.1'",
    ],
)
def test_a_study_that_cannot_be_read_is_refused(tmp_path: Path, change: str):
    _search(tmp_path, trials=2)
    with closing(sqlite3.connect(tmp_path / "study.db")) as study:
        study.execute(change)
        study.commit()
    with pytest.raises(
        GraphLoGError, match=r"study\.db: .*; if the disk is full|holds a search of other"
    ):
        _search(tmp_path, trials=3, resume=True)


def test_a_study_of_another_program_is_not_replaced(tmp_path: Path):
    (tmp_path / "study.db").write_text("mine")
    for choice in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(ConfigError, match="holds other files, not a search"):
            _search(tmp_path, **choice)
    assert (tmp_path / "study.db").read_text() == "mine"


def test_trials_that_fall_behind_are_pruned(tmp_path: Path):
    chosen: dict[str, Any] = {"epochs": 6, "freeze": True, "seeds": (2,)}
    found = _search(tmp_path / "out", trials=10, data=labeled(IS_ALCOHOL), **chosen)
    pruned = [t for t in found.trials if t.state == "pruned"]
    assert pruned
    assert all(t.epochs < 6 for t in pruned)
    assert "encoder_rate" not in found.trials[0].settings


def test_validation_sets_of_the_seeds_are_checked_before_the_search(tmp_path: Path):
    data = labeled(IS_ALCOHOL)
    drawn = with_validation_set(without_validation_set(data), 2).split.valid
    rare = np.zeros(48)
    rare[np.intersect1d(drawn, data.split.train)[0]] = 1.0
    both = labeled(np.stack([IS_ALCOHOL, rare], axis=1), targets=("y", "z"))
    with pytest.raises(DataError, match=r"^seed 2 drew .* the target z has too few labels"):
        _search(tmp_path / "out", 1, both, resample_validation=True, seeds=(0, 2))
    assert not (tmp_path / "out").exists()


def test_without_optuna_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"graphlog-torch\[tune\]"):
        _search(tmp_path / "out")
