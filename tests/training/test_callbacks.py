"""Callbacks get the rows of the log and cannot stop a run."""

import sys
from pathlib import Path
from typing import Any

import pytest

import graphlog
from downstream_support import IS_ALCOHOL, QUICK, labeled, tiny_encoder
from graphlog.downstream.finetune import finetune
from graphlog.errors import ConfigError, MissingExtraError
from graphlog.training.log import Callbacks, numbers, read_metrics

SMALL: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 4,
    "log_every": 1,
    "encoder": {"dim": 8, "layers": 2},
    "precision": "fp32",
}
SMILES = ["CCO", "CCN", "c1ccccc1", "CCCl", "CCCO", "CO", "CN", "CC(C)O"]


class Kept:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def on_row(self, row: dict[str, Any]) -> None:
        self.rows.append(row)


class Failing(Kept):
    def on_row(self, row: dict[str, Any]) -> None:
        super().on_row(row)
        raise OSError("no route to host")


def test_pretraining_passes_every_row_on(tmp_path: Path):
    kept = Kept()
    graphlog.pretrain(SMILES, "attrmasking", run_dir=tmp_path / "run", callbacks=[kept], **SMALL)
    assert kept.rows == read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in kept.rows] == [1, 2, 3, 4]


def test_finetuning_passes_every_row_on(tmp_path: Path):
    kept, run = Kept(), tmp_path / "run"
    given: dict[str, Any] = {"seeds": (0, 1), "baselines": ("random",), "run_dir": run}
    finetune(tiny_encoder(), labeled(IS_ALCOHOL), config=QUICK, callbacks=[kept], **given)
    assert kept.rows == read_metrics(run / "metrics.jsonl")  # the baseline's rows are no part of it
    assert {"seed", "epoch", "loss", "valid/roc_auc"} <= kept.rows[0].keys()
    again = Kept()
    finetune(
        tiny_encoder(), labeled(IS_ALCOHOL), config=QUICK, callbacks=[again], resume=True, **given
    )
    assert again.rows == []  # nothing is computed again


def test_what_fails_is_dropped_with_one_warning():
    failing, kept = Failing(), Kept()
    with pytest.warns(RuntimeWarning, match="Failing failed .* no route to host") as warned:
        graphlog.pretrain(SMILES, "attrmasking", callbacks=[failing, kept], **SMALL)
    assert len(warned) == 1
    assert (len(failing.rows), len(kept.rows)) == (1, 4)


def test_a_callback_may_change_its_row_only():
    class Changing(Kept):
        def on_row(self, row: dict[str, Any]) -> None:
            row.clear()

    kept = Kept()
    callbacks = Callbacks([Changing(), kept])
    callbacks.on_row({"step": 1})
    assert kept.rows == [{"step": 1}]


def test_what_is_no_callback_is_refused():
    with pytest.raises(ConfigError, match="needs a method `on_row"):
        Callbacks([print])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="did you mean 'wandb'"):
        Callbacks(["wanbd"])


@pytest.mark.parametrize(
    ("name", "module"),
    [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")],
)
def test_a_missing_library_is_one_line(name: str, module: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"graphlog-torch\[{name}\]"):
        Callbacks([name])


def test_wandb_gets_the_numbers_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = tmp_path / "run"
    graphlog.pretrain(SMILES, "attrmasking", run_dir=run, callbacks=["wandb"], **SMALL)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    sent = file.read_bytes()
    for row in read_metrics(run / "metrics.jsonl"):
        assert repr(row["loss"]).encode() in sent
    words = [word for word in sys.argv[1:] if len(word) > 3]  # shorter ones occur by chance
    for private in (sys.executable, "c1ccccc1", "rdkit", *words):
        assert private.encode() not in sent
    assert not list(tmp_path.glob("wandb/offline-run-*/files/*"))


def test_only_numbers_travel():
    row = {"step": 3, "seed": 1, "epoch": 2, "loss": 0.5, "phase": "x", "alarms": ["CCO"]}
    assert numbers(row) == {"seed-1/epoch": 2.0, "seed-1/loss": 0.5}
