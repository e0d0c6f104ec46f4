"""Standard output and standard error: tables, JSON, messages and progress."""

import json
import math
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from graphlog.cli.exit_codes import INTERRUPTED, say
from graphlog.errors import ConfigError

if TYPE_CHECKING:
    from graphlog.data.schema import FeatureSchema
    from graphlog.data.store import GraphStore
    from graphlog.downstream.report import Report
    from graphlog.training.log import Progress


@dataclass(frozen=True, slots=True)
class Console:
    """How one run of a verb talks to its user."""

    quiet: bool = False
    """No messages; results and errors only."""
    as_json: bool = False
    """The result is one JSON document instead of tables."""

    def say(self, text: str) -> None:
        """Print a message to standard error unless quiet."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def result(self, summary: Mapping[str, Any] | Sequence[Any], *tables: "Table") -> None:
        """Print what the verb found: ``summary`` as JSON where asked, ``tables`` otherwise."""
        if self.as_json:
            print(json.dumps(summary, indent=2, default=_plain))
            return
        for table in tables:
            table.print()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; drawn by rich on a terminal, as aligned plain text elsewhere."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""

    def print(self) -> None:
        """Write the table to standard output."""
        cells = [[_text(c) for c in row] for row in self.rows]
        if sys.stdout.isatty():
            self._print_rich(cells)
        else:
            self._print_plain(cells)

    def _print_rich(self, cells: list[list[str]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console as RichConsole
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=self.title or None,
            title_justify="left",
            box=SIMPLE_HEAD,
            show_header=any(self.columns),
        )
        for name, right in zip(self.columns, self._right_aligned(cells), strict=True):
            table.add_column(name, justify="right" if right else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(c) for c in row))
        RichConsole().print(table)

    def _print_plain(self, cells: list[list[str]]) -> None:
        head = [list(self.columns)] if any(self.columns) else []
        widths = [
            max((len(r[i]) for r in (*head, *cells)), default=0) for i in range(len(self.columns))
        ]
        right = self._right_aligned(cells)
        if self.title:
            print(self.title)
        for row in (*head, *cells):
            line = (
                c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
            )
            print("  ".join(line).rstrip())

    def _right_aligned(self, cells: list[list[str]]) -> list[bool]:
        columns = ([row[i] for row in cells if row[i]] for i in range(len(self.columns)))
        return [
            bool(column) and all(c[0].isdigit() or c[0] in "-+." for c in column)
            for column in columns
        ]


def fields_table(fields: Mapping[str, object], title: str = "") -> Table:
    """Return a two-column table of names and values."""
    return Table(("", ""), [(k, v) for k, v in fields.items() if v is not None], title)


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case _:
            return " ".join(str(value).split())


def _plain(value: object) -> object:
    for method in ("to_dict", "model_dump", "tolist"):
        convert = getattr(value, method, None)
        if convert is not None:
            return convert()
    return str(value)


def job_progress(console: Console) -> "Progress":
    """Return what follows training, embedding and predicting."""
    from graphlog.training.log import make_progress

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
    from graphlog.training import TrainingInterrupted

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
        from graphlog.training.log import LINE_EVERY_S

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
        from rich.console import Console as RichConsole
        from rich.progress import Progress as RichProgress
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

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


def report_tables(report: "Report") -> list[Table]:
    """Return the tables of a report; areas under curves are shown in per cent."""
    from graphlog.downstream.metrics import LOWER_IS_BETTER

    metric = report.metric
    percent = metric not in LOWER_IS_BETTER and metric != "r2"
    scale, unit = (100.0, " (%)") if percent else (1.0, "")
    sizes = ", ".join(f"{name} {count:,}" for name, count in report.sizes.items())
    title = f"{report.dataset}: {metric.replace('_', '-').upper()}{unit}, {report.split} split ({sizes})"
    seeds = [len(r.test.get(metric, [])) for r in report.rows]
    rows = [
        (
            r.model,
            r.rule,
            _number(r.mean(metric) * scale),
            _number(r.sd(metric) * scale),
            _number(r.mean(metric, "valid") * scale),
            n,
        )
        for r, n in zip(report.rows, seeds, strict=True)
    ]
    tables = [Table(("model", "rule", "test", "SD", "valid", "seeds"), rows, title)]
    halves = [half for half in report.rows[0].halves]
    if halves:
        shown = [
            (r.model, r.rule, *(_number(r.mean(metric, half) * scale) for half in halves))
            for r in report.rows
            if r.halves
        ]
        tables.append(
            Table(
                ("model", "rule", *(half.replace("_", " ") for half in halves)),
                shown,
                "\nrandom halves of the test fold",
            )
        )
    best = report.rows[0]
    if len(report.tasks) > 1 and best.per_task:
        per_task = [
            (task, _number(best.per_task.get(task, math.nan) * scale)) for task in report.tasks
        ]
        tables.append(
            Table(("task", "test"), per_task, f"\n{best.model}, {best.rule}, task by task")
        )
    if report.notes:
        tables.append(Table(("", ""), [("note", note) for note in report.notes]))
    return tables


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def read_graphs(
    source: str,
    schema: str,
    console: Console,
    *,
    limit: int | None = None,
    like: "FeatureSchema | None" = None,
    **reading: Any,
) -> "GraphStore":
    """Return the graphs of a store, or those of a file or data set in ``schema``; named proteins are in their own.

    Any graphs are read in the schema ``like``, or in what is found out about them.
    """
    import numpy as np

    from graphlog.data.store import is_store, open_store
    from graphlog.datasets.featurize import read_molecules
    from graphlog.domains.graph.reading import is_graphs
    from graphlog.domains.protein.stores import open_proteins
    from graphlog.downstream.sources import domain_of, open_graphs

    if is_store(source):
        store = open_store(source)
        return store if limit is None else store.subset(np.arange(min(limit, len(store))))
    with reading_progress(console) as progress:
        if is_graphs(source):
            store = open_graphs(source, like, progress=progress, limit=limit, **reading)
        elif schema == "protein" or domain_of(source) == "protein":
            store = open_proteins(source, progress=progress, limit=limit, **reading)
        else:
            store = read_molecules(source, schema=schema, progress=progress, limit=limit, **reading)
    console.say(
        f"read {len(store):,} graphs from {source}; {len(store.rejects):,} of {store.num_rows:,} rows rejected"
    )
    return store


def refuse_existing_run(folder: Path, resume: bool, overwrite: bool) -> None:
    """Refuse a run folder before its input is read, which may take long.

    Raises:
        ConfigError: If there is a run and neither ``resume`` nor ``overwrite`` is given, or both are.
    """
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other; choose one.")
    if (folder / "config.toml").is_file() and not (resume or overwrite):
        raise ConfigError(
            f"run folder {folder} exists; continue it with --resume or replace it with --overwrite."
        )
