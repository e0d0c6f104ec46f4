"""Lines of a table with a header, split and counted, with errors that name the file and the line."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from graphlog.errors import DataError
from graphlog.files import open_text

_LINES_A_BLOCK = 100_000


class Block(NamedTuple):
    """Consecutive lines, column by column."""

    first_line: int
    """Number of the first of them in the file, from 1."""
    columns: list[tuple[str, ...]]
    """The wanted columns."""


class Columns(NamedTuple):
    """An open table."""

    where: str
    """The file."""
    header: tuple[str, ...]
    """Names of all columns, as written, in lower case."""
    delimiter: str
    """What stands between them."""
    lines: Iterator[str]
    """The lines behind the header."""

    def place(self, *names: str) -> int | None:
        """Return the place of the first of ``names`` that is a column."""
        return next((self.header.index(name) for name in names if name in self.header), None)

    def blocks(self, places: Sequence[int]) -> Iterator[Block]:
        """Yield the columns at ``places``, many lines at a time; blank lines are passed over.

        Raises:
            DataError: If a line has another number of fields than the header.
        """
        number, width = 2, len(self.header)
        while lines := list(islice(self.lines, _LINES_A_BLOCK)):
            rows = [line.rstrip("\r\n").split(self.delimiter) for line in lines]
            if any(len(row) != width for row in rows):
                for k, row in enumerate(rows):
                    if len(row) != width and row != [""]:
                        raise DataError(
                            f"{self.where}, line {number + k}: has {len(row)} fields, not {width} as the header; mend it."
                        )
                # numbers of lines stay right: a blank line ends a block
                for start, stop in _runs(rows):
                    yield Block(
                        number + start, [tuple(row[p] for row in rows[start:stop]) for p in places]
                    )
            else:
                yield Block(number, [tuple(row[p] for row in rows) for p in places])
            number += len(lines)


@contextmanager
def open_columns(path: Path | str) -> Generator[Columns]:
    """Open a table with a header line; fields are separated by tabs, commas or single blanks.

    Raises:
        DataError: If it cannot be read or is empty.
    """
    with open_text(path) as lines:
        first = next(lines, "").rstrip("\r\n")
        if not first.strip():
            raise DataError(f"{path}: is empty; it must begin with a line of column names.")
        delimiter = next((d for d in ("\t", ",", " ") if d in first), "\t")
        header = tuple(name.strip().lstrip("#").lower() for name in first.split(delimiter))
        yield Columns(str(path), header, delimiter, lines)


def peek(lines: Iterator[str]) -> tuple[str, Iterator[str]]:
    """Return the first line and all lines."""
    first = next(lines, "")
    return first, chain([first] if first else [], lines)


def _runs(rows: list[list[str]]) -> Iterator[tuple[int, int]]:
    start = 0
    for k in [k for k, row in enumerate(rows) if row == [""]] + [len(rows)]:
        if k > start:
            yield start, k
        start = k + 1
