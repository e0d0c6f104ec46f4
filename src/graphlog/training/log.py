"""Progress display of a run, its log ``metrics.jsonl``, and callbacks that receive the rows."""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text
from torch import Tensor
from torch.nn import functional as F

from graphlog.errors import ConfigError, MissingExtraError, check_list, check_name, first_line
from graphlog.files import beside

LINE_EVERY_S = 10.0
"""Seconds between two lines of progress."""
_MAX_WIDTH, _MIN_WIDTH = 20, 4
"""Largest and smallest width of a bar, in characters."""


class Progress:
    """Counts the graphs of a run; subclasses display the progress, this class displays nothing."""

    every_s = float("inf")
    """Seconds between two updates of the display."""
    _total = _done = _skipped = 0
    _started = _shown_at = 0.0
    _reading_since: float | None = None
    _is_reading = False
    _stage = _losses = ""

    def __call__(self, done: int, rejected: int) -> None:
        """Show how many rows of an input have been read and rejected so far."""
        if self._reading_since is None:
            self._reading_since = self._shown_at = time.monotonic()
        if self._is_due():
            since = self._reading_since
            if not self._is_reading:
                self.begin(0)  # this resets both attributes
                self._reading_since, self._is_reading = since, True
            speed = _rate(done, since)
            self.stage(f"read {done:,} rows, {rejected:,} rejected, {speed} rows/s")

    def begin(self, total: int, done: int = 0) -> None:
        """Start to count to ``total`` (0: unknown), of which ``done`` were done before."""
        self._total, self._done, self._skipped, self._losses = total, done, done, ""
        self._started = self._shown_at = time.monotonic()
        self._reading_since, self._is_reading = None, False
        self._show()

    def stage(self, text: str) -> None:
        """Show what the run is doing now."""
        self._stage = text
        self._show()

    def advance(self, graphs: int) -> None:
        """Count the graphs of a step."""
        self._done += graphs
        self._show()

    def skip(self, graphs: int) -> None:
        """Count graphs that need no work, which are ignored in the speed."""
        self._skipped += graphs
        self.advance(graphs)

    def report(self, values: Mapping[str, float]) -> None:
        """Show the latest mean losses."""
        self._losses = " ".join(f"{name} {value:.3f}" for name, value in values.items())
        self._show()

    def say(self, line: str) -> None:
        """Print a line that remains on the terminal."""

    def end(self) -> None:
        """Remove the display."""

    @contextmanager
    def shown(self, total: int, stage: str = "") -> Generator[None]:
        """Show the progress of the block: begin before it and end after it."""
        self.begin(total)
        if stage:
            self.stage(stage)
        try:
            yield
        finally:
            self.end()

    def _show(self) -> None:
        """Update the display."""

    def _is_due(self) -> bool:
        is_due = time.monotonic() - self._shown_at >= self.every_s
        if is_due:
            self._shown_at = time.monotonic()
        return is_due

    def _is_all_done(self) -> bool:
        return 0 < self._total <= self._done

    def _speed(self) -> str:
        """Return the share of graphs done and the speed."""
        if self._done == self._skipped:
            return ""
        share = f"{self._done:,} graphs"
        if self._total:
            share = f"{100 * self._done / self._total:.0f} %"
        return f"{share}, {_rate(self._done - self._skipped, self._started)} graphs/s"


class Lines(Progress):
    """Displays the progress as lines on standard error, about one every ten seconds."""

    def __init__(self, every_s: float = LINE_EVERY_S) -> None:
        """Set the number of seconds between two lines of progress."""
        self.every_s = every_s

    def stage(self, text: str) -> None:
        """Print what the run is doing now."""
        super().stage(text)
        self.say(text)

    def advance(self, graphs: int) -> None:
        """Count the graphs of a step, and print a line if one is due."""
        super().advance(graphs)
        if not self._is_due():
            return
        state, left, timed = self._speed(), "", self._done - self._skipped
        if self._is_all_done():
            state = "all graphs done, finishing"
        elif timed and self._total:
            seconds = (self._total - self._done) * (time.monotonic() - self._started) / timed
            left = f"{timedelta(seconds=int(seconds))} left"
        self.say(f"{self._stage}: {', '.join(filter(None, [state, self._losses, left]))}")

    def say(self, line: str) -> None:
        """Print ``line``."""
        print(line, file=sys.stderr, flush=True)


class _LossColumn(ProgressColumn):
    """The losses, which are cut first on a narrow terminal."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["losses"], no_wrap=True, overflow="ellipsis")


class _TimeLeftColumn(TimeRemainingColumn):
    """The remaining time in hours, minutes and seconds, if it is known."""

    def render(self, task: Task) -> Text:
        time = super().render(task)
        return time.append(" left") if time.plain[:1].isdigit() else Text("")


class Bar(Progress):
    """A progress bar on standard error with speed, losses and remaining time.

    It is removed at the end. Before the first graphs and after the last, it moves without a
    percentage.
    """

    every_s = 0.5

    def __init__(self, console: Console | None = None) -> None:
        """Prepare the bar, which appears at :meth:`begin`."""
        self._blocks = BarColumn(bar_width=_MAX_WIDTH)
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            self._blocks,
            TextColumn("{task.fields[speed]}"),
            _TimeLeftColumn(table_column=Column(no_wrap=True)),
            _LossColumn(),
            console=console or Console(stderr=True),
            refresh_per_second=2,
            transient=True,
        )

    def begin(self, total: int, done: int = 0) -> None:
        """Show a new bar."""
        for previous in self._bar.task_ids:
            self._bar.remove_task(previous)
        self._bar.add_task("", total=total or None, speed="", losses="")
        super().begin(total, done)
        self._bar.start()

    def say(self, line: str) -> None:
        """Print ``line`` above the bar."""
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Remove the bar."""
        self._bar.stop()

    def _show(self) -> None:
        for task in self._bar.tasks:  # empty before `begin`
            speed = self._speed()
            if self._is_all_done():
                speed, task.total = "finishing", None
            # on a narrow terminal the bar is shortened first
            words = f"{self._stage} {speed} 00:00:00 left {self._losses} "
            room = self._bar.console.width - cell_len(words)
            self._blocks.bar_width = min(max(room, _MIN_WIDTH), _MAX_WIDTH)
            self._bar.update(
                task.id,
                description=self._stage,
                completed=self._done,
                speed=speed,
                losses=self._losses,
            )


def as_progress(progress: Progress | bool | None, every_s: float = LINE_EVERY_S) -> Progress:
    """Return the progress display for an argument ``progress``; False and None display nothing.

    True selects a bar on a terminal or in a notebook, else lines.
    """
    if isinstance(progress, Progress):
        return progress
    if not progress:
        return Progress()
    # rich needs ipywidgets to draw bars in notebooks
    in_notebook = Console().is_jupyter and find_spec("ipywidgets") is not None
    return Bar() if sys.stderr.isatty() or in_notebook else Lines(every_s)


def _rate(count: int, since: float) -> str:
    """Return the speed with at least two significant digits."""
    rate = count / max(time.monotonic() - since, 1e-9)
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


class Meter:
    """Running sums of the scalars of each step, kept on their device until a row is written."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sums = torch.zeros(0, dtype=torch.float64)
        self._counts: list[int] = []

    def add(self, scalars: Mapping[str, Tensor]) -> None:
        """Add the scalars of a step, at least one, in a single float64 addition."""
        values = torch.stack([value.detach() for value in scalars.values()]).double()
        if new := [name for name in scalars if name not in self._names]:
            self._names += new
            self._counts += [0] * len(new)
            self._sums = F.pad(self._sums.to(values.device), (0, len(new)))
        if list(scalars) != self._names:
            columns = torch.tensor([self._names.index(name) for name in scalars])
            values = torch.zeros_like(self._sums).index_copy(0, columns.to(values.device), values)
        self._sums = self._sums + values
        self._counts = [
            count + (name in scalars) for name, count in zip(self._names, self._counts, strict=True)
        ]

    def read(self) -> dict[str, float]:
        """Return the means since the last call, and reset the sums."""
        sums = zip(self._names, self._sums.tolist(), self._counts, strict=True)
        means = {name: total / count for name, total, count in sums}
        self.__init__()
        return means

    def state(self) -> dict[str, Tensor]:
        """Return sum and count of each scalar by name, in order of first appearance."""
        counts = torch.tensor(self._counts, dtype=torch.float64, device=self._sums.device)
        pairs = torch.stack([self._sums, counts], dim=1)
        return dict(zip(self._names, pairs, strict=True))

    def load_state(
        self, state: Mapping[str, Tensor], order: list[str], device: torch.device
    ) -> None:
        """Restore the sums from the result of :meth:`state`, whose names in order are ``order``."""
        self._names = list(order)
        self._counts = [int(state[name][1]) for name in order]
        sums = [float(state[name][0]) for name in order]
        self._sums = torch.tensor(sums, dtype=torch.float64, device=device)


class MetricsFile:
    """An append-only file of JSON rows, each with the ``step`` at which it was written."""

    def __init__(self, path: Path, keep_until_step: int) -> None:
        """Open ``path`` and remove the rows after ``keep_until_step``, which will be repeated."""
        self.path = path
        rows = [row for row in read_metrics(path) if row["step"] <= keep_until_step]
        with beside(path) as unfinished:
            unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        # unbuffered: after an error of a full disk, `close` would try to write again, and its error
        # would hide the first one
        self._file = path.open("ab", buffering=0)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row, which is kept even if the process is killed immediately afterwards."""
        remaining = (json.dumps(dict(row)) + "\n").encode()
        while remaining:
            remaining = remaining[self._file.write(remaining) :]

    def sync(self) -> None:
        """Flush the rows to the disk, so that no checkpoint is ahead of them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows of ``metrics.jsonl`` without damaged lines."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        row: Any = None
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
        if isinstance(row, dict) and type(row.get("step")) is int:  # pyright: ignore[reportUnknownMemberType]
            rows.append(row)  # pyright: ignore[reportUnknownArgumentType]
    return rows


@runtime_checkable
class Callback(Protocol):
    """An object whose method ``on_row`` is called with each row of ``metrics.jsonl``.

    A callback that raises an exception is removed with a warning; the run continues.
    """

    def on_row(self, row: Mapping[str, Any]) -> None:
        """Process a row: ``step``, ``epoch``, losses, scores; in fine-tuning also ``seed``."""


TakeRow = Callable[[dict[str, Any]], object]


def check_callbacks(callbacks: Sequence[Any] | Callback) -> list[Callback | str]:
    """Return the callbacks of a run as a list, before anything of it is written.

    Raises:
        ConfigError: If a name is unknown or an object is not a callback.
        MissingExtraError: If the library of a tracker is not installed.
    """
    if isinstance(callbacks, Callback) or callable(callbacks):
        callbacks = [callbacks]
    check_list("callbacks", callbacks)
    callbacks = list(callbacks)
    for callback in callbacks:
        if isinstance(callback, Callback):
            continue
        if not isinstance(callback, str):
            raise ConfigError(
                f"a callback needs a method `on_row(row)`, found {type(callback).__name__}; "
                f"trackers by name are {', '.join(TRACKERS)}."
            )
        check_name("tracker", callback, TRACKERS)
        spec = find_spec(callback)
        if spec is None or spec.origin is None:  # a folder of this name, which wandb itself makes
            raise MissingExtraError(callback, callback)
    return callbacks


class Callbacks:
    """The callbacks of one run; none of them can stop it."""

    def __init__(
        self, callbacks: Sequence[Callback | str] = (), folder: Path | None = None
    ) -> None:
        """Start the trackers given by name."""
        self._active: list[tuple[str, TakeRow]] = []
        self._ends = ExitStack()
        for callback in callbacks:
            if isinstance(callback, Callback):
                self._active.append((type(callback).__name__, callback.on_row))
                continue
            opened = ExitStack()
            try:
                take = opened.enter_context(TRACKERS[callback](folder))
            except Exception as e:  # no server or account, for example; the run does not need it
                _warn(callback, e)
            else:
                self._active.append((callback, take))
                self._ends.callback(opened.close)

    def on_row(self, row: Mapping[str, Any]) -> None:
        """Call every callback; one that fails is removed with a warning."""
        for name, take in list(self._active):
            try:
                take(dict(row))
            except Exception as e:
                self._active.remove((name, take))
                _warn(name, e)

    def close(self) -> None:
        """Stop the trackers that were given by name."""
        self._active = []
        with suppress(Exception):
            self._ends.close()


def _warn(name: str, error: Exception) -> None:
    message = f"{name} failed and gets no more rows: {first_line(error)}"
    warnings.warn(message, RuntimeWarning, stacklevel=2)


@contextmanager
def _tensorboard(folder: Path | None) -> Generator[TakeRow]:
    """Write event files to the folder ``tensorboard`` in the run folder."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(None if folder is None else str(folder / "tensorboard"))

    def take(row: dict[str, Any]) -> None:
        for name, value in numbers(row).items():
            writer.add_scalar(name, value, row["step"])

    with writer:
        yield take


@contextmanager
def _wandb(folder: Path | None) -> Generator[TakeRow]:
    """Send rows to the project named by ``$WANDB_PROJECT``, by default ``graphlog``."""
    import wandb  # pyright: ignore[reportMissingImports]

    # by default it also sends the printed output, the command, and data on machine and packages
    rows_only = {
        "console": "off",
        "disable_code": True,
        "disable_git": True,
        "x_disable_machine_info": True,
        "x_disable_meta": True,
        "x_disable_stats": True,
        "x_save_requirements": False,
    }
    project = os.environ.get("WANDB_PROJECT", "graphlog")
    run: Any = wandb.init(project=project, name=_run_name(folder), settings=rows_only)
    # the steps of each seed start at 1, so that ``step`` is sent as a value
    yield lambda row: run.log({**numbers(row), "step": row["step"]})
    run.finish()


@contextmanager
def _mlflow(folder: Path | None) -> Generator[TakeRow]:
    """Send rows to the experiment named by the environment variables of MLflow."""
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    client: Any = MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "graphlog")
    existing = client.get_experiment_by_name(name)
    experiment_id = existing.experiment_id if existing else client.create_experiment(name)
    run = client.create_run(experiment_id, run_name=_run_name(folder)).info.run_id

    def take(row: dict[str, Any]) -> None:
        for name, value in numbers(row).items():
            client.log_metric(run, name, value, step=row["step"])

    yield take
    client.set_terminated(run)


TRACKERS: Mapping[str, Callable[[Path | None], AbstractContextManager[TakeRow]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
"""Trackers by name, which is also the name of the extra that installs the library."""


def _run_name(folder: Path | None) -> str | None:
    return None if folder is None else folder.name


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row by name; in fine-tuning, names start with the seed.

    Example:
        >>> numbers({"seed": 1, "step": 4, "loss": 0.5, "phase": "local"})
        {'seed-1/loss': 0.5}
    """
    prefix = f"seed-{row['seed']}/" if "seed" in row else ""
    return {
        prefix + name: float(value)
        for name, value in row.items()
        if name not in ("seed", "step") and type(value) in (int, float)
    }
