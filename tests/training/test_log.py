"""What a run says, and the rows it writes."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch

from graphlog.training.log import (
    Bar,
    Lines,
    Meter,
    MetricsFile,
    Progress,
    as_progress,
    read_metrics,
)


def follow(progress: Progress) -> None:
    progress.begin(100, done=50)
    progress.stage("phase 'local', epoch 1 of 2")
    progress.report({"loss": 1.5, "graph": 0.25})
    progress.advance(25)
    progress.say("[a line] that stays")
    progress.end()


def test_lines_say_share_rate_losses_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    follow(Lines(every_s=0.0))
    out, lines = capsys.readouterr()
    assert out == ""
    first, progress, stays = lines.splitlines()
    assert first == "phase 'local', epoch 1 of 2"
    assert progress.startswith("phase 'local', epoch 1 of 2: 75 %, ")
    assert "graphs/s, loss 1.500 graph 0.250, 0:00:0" in progress
    assert stays == "[a line] that stays"


def test_the_bar_draws_on_standard_error_only(capsys: pytest.CaptureFixture[str]) -> None:
    follow(Bar())
    out, lines = capsys.readouterr()
    assert out == ""
    assert lines.strip() == "[a line] that stays"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    follow(as_progress(False))
    assert capsys.readouterr() == ("", "")
    assert type(as_progress(False)) is Progress


def test_the_display_suits_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(as_progress(True), Lines)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(as_progress(True), Bar)


def test_a_row_averages_over_the_steps_that_had_the_value() -> None:
    meter = Meter()
    meter.add({"loss": torch.tensor(1.0)})
    meter.add({"loss": torch.tensor(3.0), "loss_global": torch.tensor(5.0)})
    saved, order = meter.state(), list(meter.state())
    assert meter.read() == {"loss": 2.0, "loss_global": 5.0}
    assert meter.read() == {}
    meter.load_state(saved, order, torch.device("cpu"))
    assert meter.read() == {"loss": 2.0, "loss_global": 5.0}


def test_rows_of_steps_to_be_repeated_and_cut_lines_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": s}) + "\n" for s in (1, 2, 3)) + '{"step": 4, "lo')
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3]
    file = MetricsFile(path, keep_until_step=2)
    file.write({"step": 3, "loss": 0.5})
    file.close()
    assert read_metrics(path) == [{"step": 1}, {"step": 2}, {"step": 3, "loss": 0.5}]
    assert read_metrics(tmp_path / "none.jsonl") == []


def test_a_refused_row_is_told_once(tmp_path: Path) -> None:
    """An error of `close` would hide the first one, which says how to go on."""
    resource = pytest.importorskip("resource", reason="limits of a process are posix")
    file = MetricsFile(tmp_path / "metrics.jsonl", keep_until_step=0)
    file.write({"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            file.write({"step": 2, "loss": 0.25})
        file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1}]


def test_without_progress_no_time_left_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Lines(every_s=0.0)
    progress.begin(100)
    progress.advance(0)
    assert "left" not in capsys.readouterr().err
