"""Reader of large tables with a header line, column by column; errors name the file and line."""

import csv
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from graphlog.data.tables import listed
from graphlog.errors import DataError
from graphlog.files import open_text

_LINES_PER_BLOCK = 100_000


class ColumnTable(NamedTuple):
    """An open table."""

    path: Path | str
    """Path of the file."""
    header: tuple[str, ...]
    """Names of all columns, as written."""
    delimiter: str
    """Separator of the fields: a tab, a comma, a semicolon or a space."""
    has_quotes: bool
    """Whether fields may be quoted; in tables with tabs, quotes may belong to the aliases."""
    lines: Iterator[str]
    """Lines after the header."""

    def find(self, name: str) -> int | None:
        """Return the index of a column in any case, or None; ``a|b`` finds ``a`` or else ``b``."""
        header = [column.lower() for column in self.header]
        return next((header.index(n) for n in name.split("|") if n in header), None)

    def find_all(self, names: Sequence[str], advice: str) -> list[int]:
        """Return the indices of columns; the error for a missing column ends with ``advice``."""
        missing = [n.partition("|")[0] for n in names if self.find(n) is None]
        if missing:
            problem = f"has no column {', '.join(missing)} (found {listed(self.header)})"
            raise DataError(f"{self.path}: {problem}; {advice}.")
        return [k for name in names if (k := self.find(name)) is not None]

    def blocks(
        self, indices: Sequence[int]
    ) -> Iterator[tuple[Int[np.ndarray, "B"], list[tuple[str, ...]]]]:
        """Yield the line numbers and some columns of many lines at a time, without blank lines."""
        first, width = 2, len(self.header)
        while lines := list(islice(self.lines, _LINES_PER_BLOCK)):
            text = "".join(lines)
            if self.has_quotes and '"' in text:
                numbered = enumerate(lines, start=first)
                rows = [_quoted_fields(self.path, k, line, self.delimiter) for k, line in numbered]
            else:
                rows = [line.rstrip("\r\n").split(self.delimiter) for line in lines]
            if self.delimiter != " " and " " in text:
                rows = [[field.strip() for field in row] for row in rows]
            numbers = np.arange(first, first + len(rows))
            first += len(rows)
            if any(len(row) != width for row in rows):
                numbers = numbers[[row != [""] for row in rows]]
                rows = [row for row in rows if row != [""]]
                for line, row in zip(numbers.tolist(), rows, strict=True):
                    if len(row) != width:
                        problem = f"has {len(row)} fields, but the header has {width}; fix the line"
                        raise line_error(self.path, line, problem)
            yield numbers, [tuple(row[k] for row in rows) for k in indices]


@contextmanager
def open_columns(path: Path | str) -> Generator[ColumnTable]:
    """Open a table with a header line."""
    with open_text(path) as lines:
        first = next(lines, "").rstrip("\r\n")
        if not first.strip():
            raise DataError(f"{path}: is empty; the first line must hold the column names.")
        delimiter = next((d for d in ("\t", ",", ";", " ") if d in first), "\t")
        has_quotes = '"' in first
        fields = _quoted_fields(path, 1, first, delimiter) if has_quotes else first.split(delimiter)
        header = tuple(name.strip().lstrip("#") for name in fields)
        yield ColumnTable(path, header, delimiter, has_quotes or delimiter != "\t", lines)


def _quoted_fields(path: Path | str, number: int, line: str, delimiter: str) -> list[str]:
    """Return the fields of a line without their quotes."""
    rows = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        return next(rows, []) or [""]
    except csv.Error as e:
        raise line_error(path, number, f"{e}; fix its quotes") from None


def line_error(path: Path | str, line: int, problem: str) -> DataError:
    """Return the error for a problem in a line of a file."""
    return DataError(f"{path}, line {line}: {problem}.")
