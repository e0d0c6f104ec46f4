"""How far a job has come: a bar on a terminal, a line every ten seconds elsewhere, nothing if quiet."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Self

import typer
from rich.console import Console as RichConsole
from rich.progress import Progress as RichProgress
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from graphlog.cli.console import Console
from graphlog.cli.endings import INTERRUPTED, say
from graphlog.training import TrainingInterrupted
from graphlog.training.log import LINE_EVERY_S, Progress, make_progress


def job_progress(console: Console) -> Progress:
    """Return what follows training, embedding and predicting."""
    return make_progress(console.quiet)


@contextmanager
def reading_progress(console: Console) -> Generator[Callable[[int, int], None] | None]:
    """Give a function that is told of rows done and rows rejected."""
    if console.quiet:
        yield None
    elif sys.stderr.isatty():
        with _RowBar() as bar:
            yield bar
    else:
        yield _RowLines()


@contextmanager
def interruptible() -> Generator[None]:
    """Turn training stopped by Ctrl-C, its state saved, into exit code 130 and the line that says how to go on."""
    try:
        yield
    except TrainingInterrupted as e:
        say(f"graphlog: {e}")
        raise typer.Exit(INTERRUPTED) from None


class _RowLines:
    """A line on standard error every ten seconds of reading."""

    def __init__(self) -> None:
        self._started = self._said = time.monotonic()

    def __call__(self, done: int, rejected: int) -> None:
        now = time.monotonic()
        if now - self._said >= LINE_EVERY_S:
            self._said = now
            print(
                f"read {done:,} rows, {rejected:,} rejected, {done / (now - self._started):,.0f} rows/s",
                file=sys.stderr,
                flush=True,
            )


class _RowBar:
    """A line on the terminal that counts the rows read."""

    def __enter__(self) -> Self:

        text = TextColumn(
            "read {task.completed:,.0f} rows, {task.fields[rejected]:,} rejected, {task.fields[rate]:,.0f} rows/s"
        )
        self._bar = RichProgress(
            SpinnerColumn(),
            text,
            TimeElapsedColumn(),
            console=RichConsole(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, rejected=0, rate=0.0)
        self._started = time.monotonic()
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, rejected: int) -> None:
        rate = done / max(time.monotonic() - self._started, 1e-9)
        self._bar.update(self._task, completed=done, rejected=rejected, rate=rate)
