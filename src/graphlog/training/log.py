"""What a run tells the person in front of it: a bar on a terminal, plain lines elsewhere, or nothing."""

import sys
import time
from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

LINE_EVERY_S = 10.0


class Progress(Protocol):
    """Follows one run."""

    def begin(self, total: int, done: int = 0) -> None:
        """Say that ``total`` graphs are to be processed, ``done`` of which were by an earlier process."""
        ...

    def stage(self, text: str) -> None:
        """Say what the run is doing now."""
        ...

    def advance(self, graphs: int) -> None:
        """Count graphs of one step."""
        ...

    def report(self, values: Mapping[str, float]) -> None:
        """Show the newest means of the losses."""
        ...

    def say(self, line: str) -> None:
        """Print one line that stays."""
        ...

    def end(self) -> None:
        """Take the bar away."""
        ...


class Silent:
    """Says nothing."""

    def begin(self, total: int, done: int = 0) -> None:
        """Ignore."""

    def stage(self, text: str) -> None:
        """Ignore."""

    def advance(self, graphs: int) -> None:
        """Ignore."""

    def report(self, values: Mapping[str, float]) -> None:
        """Ignore."""

    def say(self, line: str) -> None:
        """Ignore."""

    def end(self) -> None:
        """Ignore."""


class Lines:
    """Plain lines on standard error, one about every ten seconds."""

    def __init__(self, every_s: float = LINE_EVERY_S) -> None:
        """Wait ``every_s`` seconds between two lines of progress."""
        self.every_s = every_s
        self._total = self._done = self._first = 0
        self._started = self._said = time.monotonic()
        self._values: Mapping[str, float] = {}
        self._stage = ""

    def begin(self, total: int, done: int = 0) -> None:
        """Start counting."""
        self._total, self._done, self._first = total, done, done
        self._started = self._said = time.monotonic()

    def stage(self, text: str) -> None:
        """Print the new stage."""
        self._stage = text
        self.say(text)

    def advance(self, graphs: int) -> None:
        """Count, and print a line when one is due."""
        self._done += graphs
        now = time.monotonic()
        if now - self._said < self.every_s:
            return
        self._said = now
        rate = (self._done - self._first) / max(now - self._started, 1e-9)
        left = (self._total - self._done) / max(rate, 1e-9)
        share = 100 * self._done / max(self._total, 1)
        self.say(f"{self._stage}: {share:.0f} %, {rate:.0f} graphs/s, {_losses(self._values)}, {_duration(left)} left")

    def report(self, values: Mapping[str, float]) -> None:
        """Keep the values for the next line."""
        self._values = dict(values)

    def say(self, line: str) -> None:
        """Print ``line``."""
        print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Nothing to take away."""


class Bar:
    """A progress bar on standard error with rate, losses and time left."""

    def __init__(self) -> None:
        """Prepare the bar; it appears at :meth:`begin`."""
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rate]} graphs/s"),
            TextColumn("{task.fields[losses]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            refresh_per_second=2,
        )
        self._task: TaskID | None = None
        self._done = 0
        self._started = time.monotonic()

    def begin(self, total: int, done: int = 0) -> None:
        """Show the bar."""
        self._done, self._started = 0, time.monotonic()
        self._task = self._bar.add_task("", total=total, completed=done, rate="-", losses="")
        self._bar.start()

    def stage(self, text: str) -> None:
        """Write the stage before the bar."""
        if self._task is not None:
            self._bar.update(self._task, description=text)

    def advance(self, graphs: int) -> None:
        """Move the bar."""
        self._done += graphs
        if self._task is not None:
            rate = self._done / max(time.monotonic() - self._started, 1e-9)
            self._bar.update(self._task, advance=graphs, rate=f"{rate:.0f}")

    def report(self, values: Mapping[str, float]) -> None:
        """Write the losses behind the bar."""
        if self._task is not None:
            self._bar.update(self._task, losses=_losses(values))

    def say(self, line: str) -> None:
        """Print ``line`` above the bar."""
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Take the bar away."""
        self._bar.stop()


def make_progress(quiet: bool = False) -> Progress:
    """Return the progress display that suits standard error."""
    if quiet:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()


def _losses(values: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.3f}" for name, value in values.items())


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
