"""The search for settings: by validation alone, continued after a kill, refitted once."""

import os
import re
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from downstream_support import CHAINS, IS_ALCOHOL, LENGTH, labeled, lengths, tiny_encoder, write_csv
from graphlog.cli.main import main
from graphlog.config import read_toml
from graphlog.downstream.finetune import SeedJob
from graphlog.downstream.predictor import Predictor
from graphlog.errors import ConfigError, GraphLoGError, MissingExtraError
from graphlog.extras.tune import Tuned, tune
from graphlog.inputs import recall_input
from graphlog.training.runfolder import RunFolder
from graphlog.training.trainer import TrainingInterrupted

optuna = pytest.importorskip("optuna")
FIXED: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 8,
    "hidden": 0,
    "device": "cpu",
    "seeds": (0,),
    "baselines": (),
}


def _search(out: Path, trials: int = 3, data: Any = None, **more: Any) -> Tuned:
    data = lengths() if data is None else data
    return tune(tiny_encoder(), data, out, trials=trials, **(FIXED | more))


def test_a_search_ends_in_a_predictor_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    found = _search(tmp_path / "out", progress=True)
    said = capsys.readouterr().err
    numbers = [int(number) for number in re.findall(r"^ *trial (\d+), ", said, re.MULTILINE)]
    assert numbers == sorted(t.number for t in found.trials) == [0, 1, 2]
    assert f"with the settings of trial {found.trials[0].number}" in said
    assert all(set(t.settings) == set(found.trials[0].settings) for t in found.trials)
    assert set(found.trials[0].settings) == {
        *("learning_rate", "encoder_rate", "dropout", "weight_decay")
    }
    complete = [t.score for t in found.trials if t.state == "complete"]
    assert complete == sorted(complete)  # RMSE: the lowest first
    settings = read_toml(tmp_path / "out" / "best.toml")["finetune"]
    assert settings["dropout"] == found.trials[0].settings["dropout"]
    assert settings["epochs"] == 2
    again = Predictor.load(tmp_path / "out" / "best")
    assert again.info["finetune"]["learning_rate"] == settings["learning_rate"]
    first = next(t for t in found.trials if t.number == 0)
    assert first.settings["learning_rate"] == 1e-3  # the defaults come first


def test_areas_are_told_in_per_cent_as_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = write_csv(tmp_path / "m.csv", CHAINS, y=[int(n > 6) for n in LENGTH])
    told = f"tune {source} -m random -o {tmp_path / 'out'} --targets y --trials 1"
    told += " --split random --set epochs=1 --seeds 0 --baselines none --device cpu"
    assert main(told.split()) == 0
    said = capsys.readouterr()
    (score,) = re.findall(r"valid roc_auc (\d+\.\d\d) %", said.err)
    table = said.out.partition("valid ROC-AUC (%)")[2].splitlines()[1]
    assert score in table


def test_trials_of_several_quantities_are_judged_in_deviations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = write_csv(tmp_path / "m.csv", CHAINS, y=LENGTH, z=1e4 * LENGTH)
    told = f"tune {source} -m random -o {tmp_path / 'out'} --targets y,z --trials 1 --split random"
    told += " --set protocol=paper --set epochs=1 --seeds 0 --baselines none --device cpu"
    assert main(told.split()) == 0
    said = capsys.readouterr()
    (score,) = re.findall(r"valid rmse_in_sd (\d+\.\d{4})", said.err)
    assert f"{float(score):.2f}" in said.out.partition("valid RMSE-IN-SD")[2].splitlines()[1]


def test_the_first_trial_is_that_of_the_protocol(tmp_path: Path):
    (trial,) = _search(tmp_path, 1, protocol="paper").trials
    assert [trial.settings[n] for n in ("dropout", "encoder_rate")] == [0.5, 1e-3]


def test_what_the_final_run_would_refuse_is_refused_first(tmp_path: Path):
    with pytest.raises(ConfigError, match="`seeds` must be 1 or more different whole numbers"):
        _search(tmp_path / "out", seeds=())
    with pytest.raises(ConfigError, match="baseline 'ecfp'"):
        _search(tmp_path / "out", baselines=("ecfp",))
    with pytest.raises(ConfigError, match="did you mean 'dropout'"):
        _search(tmp_path / "out", dropuot=0.1)
    assert not (tmp_path / "out").exists()


def test_a_search_is_replaced_only_once_all_is_checked(tmp_path: Path):
    _search(tmp_path, 1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert {"study.db", "best.toml", "trials.json"} <= before.keys()
    wrong: tuple[dict[str, Any], ...] = (
        *({"seeds": ()}, {"dropuot": 0.1}, {"select": "best"}),
        {"data": write_csv(tmp_path / "m.csv", CHAINS, y=LENGTH), "targets": ["nope"]},
    )
    for choice in wrong:
        with pytest.raises(GraphLoGError):
            _search(tmp_path, overwrite=True, **choice)
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content
    (tmp_path / "split.json").write_text("mine")
    assert len(_search(tmp_path, 1, overwrite=True).trials) == 1
    assert (tmp_path / "split.json").read_text() == "mine"


def test_two_searches_do_not_share_a_folder(tmp_path: Path):
    _search(tmp_path, 1)
    before = (tmp_path / "study.db").read_bytes()
    with closing(RunFolder.open(tmp_path, "search", resume=True)):
        for choice in ("resume", "overwrite"):
            with pytest.raises(ConfigError, match=f"in use by process {os.getpid()}; wait"):
                _search(tmp_path, 2, **{choice: True})
    assert (tmp_path / "study.db").read_bytes() == before


def test_the_best_run_knows_its_input(tmp_path: Path):
    path = write_csv(tmp_path / "m.csv", ["no molecule", *CHAINS], y=[0, *LENGTH])
    _search(tmp_path / "out", 1, path, targets=["y"], split="random")
    source, reading = recall_input(tmp_path / "out" / "best") or ("", {})
    assert (Path(source), reading) == (path, {"targets": ["y"]})
    assert "no molecule" in (tmp_path / "out" / "best" / "rejects.csv").read_text()


def test_trials_never_see_the_test_fold(tmp_path: Path):
    data = lengths()
    labels = data.labels.copy()
    labels[data.split.test] = 1e6 * np.random.default_rng(0).normal(size=(len(data.split.test), 1))
    other = _search(tmp_path / "b", 2, replace(data, labels=labels))
    assert _search(tmp_path / "a", 2, data).trials == other.trials
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


def test_a_search_goes_on_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out, loss, steps = tmp_path / "out", SeedJob.loss, list[int]()

    def failing(self: SeedJob, batch: Any, step: int) -> Any:
        steps.append(step)
        if len(steps) == 10:  # a trial has 8 steps
            raise KeyboardInterrupt
        return loss(self, batch, step)

    with monkeypatch.context() as patch:
        patch.setattr(SeedJob, "loss", failing)
        with pytest.raises(TrainingInterrupted, match="in trial 1; continue with `resume=True`"):
            _search(out)
    assert _states(out) == ["COMPLETE", "FAIL"]
    with pytest.raises(ConfigError, match="`resume=True` or replace it with `overwrite=True`"):
        _search(out)
    with pytest.raises(ConfigError, match="other settings, model or data"):
        _search(out, resume=True, epochs=3)
    found = _search(out, resume=True)
    finished = [t for t in found.trials if t.state != "fail"]
    assert len(finished) == 3
    assert len({t.settings["learning_rate"] for t in finished}) == 3
    whole = _search(tmp_path / "undisturbed")
    assert [(t.settings, t.score) for t in finished] == [
        (t.settings, t.score) for t in whole.trials
    ]
    for file in (out / "best").iterdir():  # as after a kill before the final run began
        if file.is_file() and file.name != "graphlog.json":
            file.unlink()
    again = _search(out, resume=True)
    assert again.trials == found.trials
    assert len(_search(out, resume=True, trials=4).trials) == 4


def test_a_search_killed_before_it_signed_its_folder_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "graphlog.json.0123456789abcdef.partial").write_text("{")
    assert len(_search(tmp_path, trials=1, resume=True).trials) == 1


def test_a_study_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("mine")
    for choice in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(ConfigError, match="holds other files, not a search"):
            _search(tmp_path, **choice)
    assert (tmp_path / "study.db").read_text() == "mine"


def test_trials_that_fall_behind_are_pruned(tmp_path: Path):
    chosen: dict[str, Any] = {"epochs": 6, "freeze": True, "seeds": (2,)}
    found = _search(tmp_path / "out", trials=14, data=labeled(IS_ALCOHOL), **chosen)
    pruned = [t for t in found.trials if t.state == "pruned"]
    assert pruned
    assert all(t.epochs < 6 for t in pruned)
    assert {"encoder_rate", "dropout"}.isdisjoint(found.trials[0].settings)


def test_without_optuna_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"graphlog-torch\[tune\]"):
        _search(tmp_path / "out")
