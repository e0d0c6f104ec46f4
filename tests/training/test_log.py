"""What a run says, the rows it writes, and callbacks that get them and cannot stop it."""

import io
import json
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from rich.console import Console

import graphlog
from cli_support import short_files
from downstream_support import tiny_encoder, tuned
from graphlog.errors import ConfigError, MissingExtraError
from graphlog.training import log
from graphlog.training.log import (
    TRACKERS,
    Bar,
    Callbacks,
    Lines,
    Meter,
    MetricsFile,
    Progress,
    as_progress,
    check_callbacks,
    numbers,
    read_metrics,
)


def follow(progress: Progress) -> None:
    progress.begin(100, done=50)
    progress.stage("phase 'local', epoch 1 of 2")
    progress.report({"loss": 1.5, "graph": 0.25})
    progress.advance(25)
    progress.say("[a line] that stays")
    progress.end()


def test_lines_say_share_rate_losses_and_time_left(capsys: pytest.CaptureFixture[str]):
    follow(Lines(every_s=0.0))
    out, lines = capsys.readouterr()
    assert out == ""
    first, progress, stays = lines.splitlines()
    assert first == "phase 'local', epoch 1 of 2"
    assert progress.startswith("phase 'local', epoch 1 of 2: 75 %, ")
    assert "graphs/s, loss 1.500 graph 0.250, 0:00:0" in progress
    assert stays == "[a line] that stays"


@pytest.mark.parametrize(("make", "said"), [(Bar, "[a line] that stays"), (Progress, "")])
def test_bars_and_silence_leave_only_what_was_said(
    make: type[Progress], said: str, capsys: pytest.CaptureFixture[str]
):
    follow(make())
    out, err = capsys.readouterr()
    assert (out, err.strip()) == ("", said)


def test_the_display_suits_standard_error(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    bar = Lines()
    assert as_progress(bar) is bar
    assert type(as_progress(None)) is type(as_progress(False)) is Progress
    for screen, display in ((io.StringIO(), Lines), (Terminal(), Bar)):
        monkeypatch.setattr(sys, "stderr", screen)
        assert isinstance(as_progress(True), display)
    monkeypatch.setattr(sys, "stderr", screen := io.StringIO())
    tiny_encoder().embed(["CCO"], progress=True)
    assert "embedding" in screen.getvalue()


def test_a_row_averages_over_the_steps_that_had_the_value():
    meter = Meter()
    meter.add({"loss": torch.tensor(1.0)})
    meter.add({"loss": torch.tensor(3.0), "loss_global": torch.tensor(5.0)})
    saved, order = meter.state(), list(meter.state())
    assert meter.read() == {"loss": 2.0, "loss_global": 5.0}
    assert meter.read() == {}
    meter.load_state(saved, order, torch.device("cpu"))
    assert meter.read() == {"loss": 2.0, "loss_global": 5.0}


def test_rows_of_steps_to_be_repeated_and_cut_lines_are_dropped(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": s}) + "\n" for s in (1, 2, 3)) + '{"step": 4, "lo')
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3]
    file = MetricsFile(path, keep_until_step=2)
    file.write({"step": 3, "loss": 0.5})
    file.close()
    assert read_metrics(path) == [{"step": 1}, {"step": 2}, {"step": 3, "loss": 0.5}]
    assert read_metrics(tmp_path / "none.jsonl") == []


def test_a_refused_row_is_told_once(tmp_path: Path):
    """An error of `close` would hide the first one, which says how to go on."""
    file = MetricsFile(tmp_path / "metrics.jsonl", keep_until_step=0)
    file.write({"step": 1})
    with short_files(20):
        with pytest.raises(OSError, match="too large"):
            file.write({"step": 2, "loss": 0.25})
        file.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1}]


def test_without_progress_no_time_left_is_made_up(capsys: pytest.CaptureFixture[str]):
    progress = Lines(every_s=0.0)
    progress.begin(100)
    progress.advance(0)
    assert "left" not in capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the clock of the display; a test moves it."""
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    return now


class Screen:
    """A bar on a terminal of 80 columns."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        self.bar = Bar(Console(file=self.file, width=80, force_terminal=True, color_system=None))

    def drawn(self) -> str:
        """Return the newest state of the bar."""
        self.file.truncate(0)
        self.bar._bar.refresh()
        return self.file.getvalue()


def test_percent_and_time_left_stay_at_80_columns():
    screen = Screen()
    bar = screen.bar
    bar.begin(1000)
    bar.stage("joint, epoch 2 of 11")
    bar.report({f"loss_{name}": 1.234 for name in ("graph", "subgraph", "attribute", "global")})
    bar.advance(250)
    line = screen.drawn()
    bar.end()
    assert all(part in line for part in ("25 %", "graphs/s", "loss_graph", "…"))
    assert "-:--:--" not in line  # not known yet


def test_the_bar_gives_way_before_the_losses_are_cut(clock: list[float]):
    screen = Screen()
    bar = screen.bar
    bar.begin(1000)
    bar.stage("seed 0")
    bar.report({"loss": 0.204, "valid roc_auc": 0.945})
    for _ in range(3):
        clock[0] += 10
        bar.advance(180)
        line = screen.drawn()
    bar.end()
    assert re.search(r"\d:\d\d:\d\d left loss 0.204 valid roc_auc 0.945", line)
    assert 4 <= len(re.findall("[━╺╸]", line)) < 20


def test_the_bar_never_stands_at_its_end_while_work_goes_on(clock: list[float]):
    screen = Screen()
    bar = screen.bar
    bar.begin(10)
    bar.stage("descriptors")
    assert "%" not in screen.drawn()
    clock[0] += 40
    bar.advance(4)
    assert "40 %, 0.1 graphs/s" in screen.drawn()
    bar.advance(6)
    line = screen.drawn()
    assert all(part in line for part in ("descriptors", "finishing"))
    assert not any(part in line for part in ("%", "graphs/s"))
    bar.begin(100, done=50)
    assert "finishing" not in screen.drawn()
    bar.end()
    assert screen.drawn().strip() == ""


def test_lines_tell_slow_work_from_none_and_the_end_from_both(
    clock: list[float], capsys: pytest.CaptureFixture[str]
):
    lines = Lines(every_s=10)
    lines.begin(10)
    lines.stage("embedding")
    for graphs, seconds in ((1, 100), (9, 400), (0, 20)):
        clock[0] += seconds
        lines.advance(graphs)
    assert capsys.readouterr().err.splitlines() == [
        "embedding",
        "embedding: 10 %, 0.01 graphs/s, 0:15:00 left",
        "embedding: all graphs done, finishing",
        "embedding: all graphs done, finishing",
    ]


def test_what_an_earlier_process_did_says_nothing_about_the_speed(
    clock: list[float], capsys: pytest.CaptureFixture[str]
):
    lines = Lines(every_s=10)
    lines.begin(1000)
    lines.skip(800)
    clock[0] += 10
    lines.advance(100)
    assert capsys.readouterr().err == ": 90 %, 10 graphs/s, 0:00:10 left\n"


def test_readers_call_the_display_with_the_rows_read(
    clock: list[float], capsys: pytest.CaptureFixture[str]
):
    lines = Lines(every_s=10)
    for done in (0, 1000, 2000, 3000):
        lines(done, 7)
        clock[0] += 6
    assert capsys.readouterr().err == "read 2,000 rows, 7 rejected, 167 rows/s\n"


def test_a_second_input_has_a_speed_of_its_own(
    clock: list[float], capsys: pytest.CaptureFixture[str]
):
    lines = Lines(every_s=10)
    lines(100, 0)
    clock[0] += 1000
    with lines.shown(10, "embedding"):
        lines.advance(1)
    for done in (0, 1000):
        clock[0] += 10
        lines(done, 0)
    assert capsys.readouterr().err.splitlines() == [
        "embedding",
        "read 1,000 rows, 0 rejected, 100 rows/s",
    ]


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


class Changing:
    def on_row(self, row: dict[str, Any]) -> None:
        row.clear()


class Failing(Kept):
    def on_row(self, row: dict[str, Any]) -> None:
        super().on_row(row)
        raise OSError("no route to host")


def test_finetuning_passes_every_row_on(tmp_path: Path):
    kept, run = Kept(), tmp_path / "run"
    given: dict[str, Any] = {"baselines": ("random",), "run_dir": run}
    tuned(callbacks=[kept], **given)
    assert kept.rows == read_metrics(run / "metrics.jsonl")  # the baseline's rows are no part of it
    assert {"seed", "epoch", "loss", "valid/roc_auc"} <= kept.rows[0].keys()
    again = Kept()
    tuned(callbacks=[again], resume=True, **given)
    assert again.rows == []  # nothing is computed again


def test_a_run_stays_in_its_folder_if_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (elsewhere := tmp_path / "elsewhere").mkdir()
    leaving = Mock(on_row=lambda _: monkeypatch.chdir(elsewhere))
    monkeypatch.chdir(tmp_path)
    graphlog.pretrain(SMILES, "attrmasking", run_dir="run", callbacks=leaving, **SMALL)
    monkeypatch.chdir(tmp_path)
    tuned(run_dir="tuned", callbacks=leaving)
    assert not list(elsewhere.iterdir())
    assert all((tmp_path / run / "model.safetensors").is_file() for run in ("run", "tuned"))


def test_what_fails_is_dropped_with_one_warning():
    failing, kept = Failing(), Kept()
    with pytest.warns(RuntimeWarning, match="Failing failed .* no route to host") as warned:
        graphlog.pretrain(SMILES, "attrmasking", callbacks=[failing, kept], **SMALL)
    assert len(warned) == 1
    assert (len(failing.rows), len(kept.rows)) == (1, 4)


def test_a_callback_may_change_its_row_only():
    kept = Kept()
    Callbacks([Changing(), kept]).on_row({"step": 1})
    assert kept.rows == [{"step": 1}]


def test_what_is_no_callback_is_refused():
    for given in (print, [print]):
        with pytest.raises(ConfigError, match="needs a method `on_row"):
            check_callbacks(given)
    with pytest.raises(ConfigError, match="did you mean 'wandb'"):
        check_callbacks(["wanbd"])
    kept = Kept()
    assert list(check_callbacks(kept)) == [kept]  # one needs no list


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_library_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"graphlog-torch\[{name}\]"):
        check_callbacks([name])


def test_a_tracker_that_cannot_be_ended_leaves_the_others_to_end(monkeypatch: pytest.MonkeyPatch):
    ended: list[str] = []

    def tracker(name: str) -> Any:
        @contextmanager
        def opened(_folder: Path | None) -> Generator[Any]:
            yield print
            ended.append(name)
            raise OSError("no route to host")

        return opened

    for name in ("tensorboard", "mlflow"):
        monkeypatch.setitem(TRACKERS, name, tracker(name))
    Callbacks(["tensorboard", "mlflow"]).close()
    assert sorted(ended) == ["mlflow", "tensorboard"]


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
