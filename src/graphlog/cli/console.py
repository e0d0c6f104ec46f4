"""Where words go: results to standard output, messages to standard error, JSON where asked."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
