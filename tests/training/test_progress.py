"""What a terminal shows of a run."""

import io

import pytest
from rich.console import Console

from graphlog.training import log
from graphlog.training.log import Bar, Lines


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the clock of the display; a test moves it."""
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    return now


def drawn(bar: Bar, screen: io.StringIO) -> str:
    """Return the newest state of the bar."""
    screen.truncate(0)
    bar._bar.refresh()
    return screen.getvalue()


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def bar(screen: io.StringIO) -> Bar:
    return Bar(Console(file=screen, width=80, force_terminal=True, color_system=None))


def test_percent_and_time_left_stay_at_80_columns(bar: Bar, screen: io.StringIO):
    bar.begin(1000)
    bar.stage("joint, epoch 2 of 11")
    bar.report({f"loss_{name}": 1.234 for name in ("graph", "subgraph", "attribute", "global")})
    bar.advance(250)
    line = drawn(bar, screen)
    bar.end()
    assert "25 %" in line
    assert "graphs/s" in line
    assert "0:00:0" in line or "-:--:--" in line
    assert "loss_graph" in line
    assert "…" in line


def test_the_bar_never_stands_at_its_end_while_work_goes_on(
    bar: Bar, screen: io.StringIO, clock: list[float]
):
    bar.begin(10)
    bar.stage("descriptors")
    assert "%" not in drawn(bar, screen)
    clock[0] += 40
    bar.advance(4)
    assert "40 %, 0.1 graphs/s" in drawn(bar, screen)
    bar.advance(6)
    line = drawn(bar, screen)
    assert "descriptors" in line
    assert "finishing" in line
    assert "%" not in line
    assert "graphs/s" not in line
    bar.begin(100, done=50)
    assert "finishing" not in drawn(bar, screen)
    bar.end()
    assert drawn(bar, screen).strip() == ""


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


def test_readers_call_the_display_with_the_rows_read(
    clock: list[float], capsys: pytest.CaptureFixture[str]
):
    lines = Lines(every_s=10)
    for done in (0, 1000, 2000, 3000):
        lines(done, 7)
        clock[0] += 6
    assert capsys.readouterr().err == "read 2,000 rows, 7 rejected, 167 rows/s\n"
