"""Standard output and standard error: tables, JSON, messages and progress."""

import csv
import json
import math
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from graphlog.cli import options as o
from graphlog.cli.exit_codes import INTERRUPTED, printable, say
from graphlog.processes import is_first

if TYPE_CHECKING:
    from graphlog.downstream.report import Report
    from graphlog.training.log import Progress


@dataclass(frozen=True, slots=True)
class Console:
    """Output of one command; its fields are options of every verb."""

    quiet: o.Quiet = False
    """Whether to print neither messages nor the summary of what was written."""
    as_json: o.Json = False
    """Whether to print results as one JSON document instead of tables."""

    def say(self, text: str) -> None:
        """Print a message to standard error unless quiet."""
        if not self.quiet:
            say(text)

    def progress(self) -> "Progress":
        """Return the progress display of training, embedding and predicting."""
        from graphlog.training.log import make_progress

        return make_progress(self.quiet)

    def summary(self, fields: Mapping[str, Any], to: TextIO | None = None) -> None:
        """Print what a command has written, as JSON or as a table; nothing if quiet."""
        if self.as_json or not self.quiet:
            self.result(fields, fields_table(fields), to=to)

    def result(
        self, value: Mapping[str, Any] | Sequence[Any], *tables: "Table", to: TextIO | None = None
    ) -> None:
        """Print what was asked for: ``value`` as JSON with ``--json``, ``tables`` otherwise."""
        if self.as_json:
            print(json.dumps(value, indent=2, default=_plain), file=to)
            return
        for table in tables:
            table.print(to)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names; drawn by rich on a terminal, as aligned plain text elsewhere."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""

    def print(self, to: TextIO | None = None) -> None:
        """Write the table to a stream, by default to standard output."""
        cells = [[_text(c) for c in row] for row in self.rows]
        if (to or sys.stdout).isatty():
            self._print_rich(cells, to)
        else:
            self._print_plain(cells, to)

    def _print_rich(self, cells: list[list[str]], to: TextIO | None) -> None:
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
        RichConsole(file=to).print(table)

    def _print_plain(self, cells: list[list[str]], to: TextIO | None) -> None:
        head = [list(self.columns)] if any(self.columns) else []
        widths = [
            max((len(r[i]) for r in (*head, *cells)), default=0) for i in range(len(self.columns))
        ]
        right = self._right_aligned(cells)
        if self.title:
            print(self.title, file=to)
        for row in (*head, *cells):
            line = (
                c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
            )
            print("  ".join(line).rstrip(), file=to)

    def _right_aligned(self, cells: list[list[str]]) -> list[bool]:
        columns = ([row[i] for row in cells if row[i]] for i in range(len(self.columns)))
        return [
            bool(column) and all(c[0].isdigit() or c[0] in "-+." for c in column)
            for column in columns
        ]


def beside_output(out: Path) -> TextIO | None:
    """Return where a summary goes: to standard error where ``out`` is standard output."""
    return sys.stderr if str(out) == "-" else None


def fields_table(fields: Mapping[str, object], title: str = "") -> Table:
    """Return a two-column table of names and values; fields that are None are left out."""
    return Table(("", ""), [(k, v) for k, v in fields.items() if v is not None], title)


def report_tables(report: "Report") -> list[Table]:
    """Return the tables of a report; areas under curves are shown in percent."""
    from graphlog.downstream.metrics import LOWER_IS_BETTER

    metric = report.metric
    percent = metric not in LOWER_IS_BETTER and metric != "r2"
    scale, unit = (100.0, " (%)") if percent else (1.0, "")
    sizes = ", ".join(f"{name} {count:,}" for name, count in report.sizes.items())
    metric_name = metric.replace("_", "-").upper()
    title = f"{report.dataset}: {metric_name}{unit}, {report.split} split ({sizes})"

    def number(value: float) -> str:
        return "-" if math.isnan(value) else f"{value * scale:.2f}"

    rows = [
        (
            r.model,
            r.rule,
            number(r.mean(metric)),
            number(r.sd(metric)),
            number(r.mean(metric, "valid")),
            len(r.test.get(metric, [])),
        )
        for r in report.rows
    ]
    tables = [Table(("model", "rule", "test", "SD", "valid", "seeds"), rows, title)]
    first = report.rows[0]
    if first.halves:
        names = tuple(half.replace("_", " ") for half in first.halves)
        shown = [
            (r.model, r.rule, *(number(r.mean(metric, half)) for half in first.halves))
            for r in report.rows
            if r.halves
        ]
        tables.append(Table(("model", "rule", *names), shown, "\nrandom halves of the test fold"))
    if len(report.tasks) > 1 and first.per_task:
        per_task = [(task, number(first.per_task.get(task, math.nan))) for task in report.tasks]
        tables.append(Table(("task", "test"), per_task, f"\n{first.model}, {first.rule}, by task"))
    if report.calibration:
        columns = tuple(report.calibration[0])
        shown = [tuple(row.values()) for row in report.calibration]
        heads = tuple(name.replace("_", " ") for name in columns)
        tables.append(Table(heads, shown, "\nintervals or probabilities on the test fold"))
    if report.notes:
        tables.append(Table(("", ""), [("note", note) for note in report.notes]))
    return tables


def row_progress(progress: "Progress") -> Callable[[int, int], None]:
    """Return a callback that shows the rows read and rejected; on a terminal often, else rarely."""
    from graphlog.training.log import LINE_EVERY_S

    interval = 0.5 if sys.stderr.isatty() else LINE_EVERY_S
    started = shown = time.monotonic()

    def show(done: int, rejected: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < interval:
            return
        if shown == started:
            progress.begin(0)
        shown = now
        rate = done / (now - started)
        progress.stage(f"read {done:,} rows, {rejected:,} rejected, {rate:,.0f} rows/s")

    return show


def rejected_rows(folder: Path) -> tuple[int, Path | None]:
    """Return how many rows of a run's input were rejected, and their list if there are any."""
    from graphlog.downstream.embed import rejects_of_output

    path = rejects_of_output(folder, folder.absolute().name)
    if not path.is_file():
        return 0, None
    with path.open(encoding="utf-8", newline="") as file:
        count = sum(1 for _ in csv.reader(file)) - 1
    return (count, path) if count > 0 else (0, None)


@contextmanager
def interruptible() -> Generator[None]:
    """Exit with code 130, and say how to resume, when training was stopped by Ctrl-C."""
    from graphlog.training import TrainingInterrupted

    try:
        yield
    except TrainingInterrupted as e:
        if is_first():
            say(f"graphlog: {e}")
        raise typer.Exit(INTERRUPTED) from None


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
        case list() | tuple():
            return ", ".join(_text(v) for v in value)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return printable(" ".join(str(value).split()))


def _plain(value: object) -> object:
    for method in ("to_dict", "model_dump", "tolist"):
        convert = getattr(value, method, None)
        if convert is not None:
            return convert()
    return str(value)
