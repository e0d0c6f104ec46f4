"""An open table: its rows, the column of its records and the columns of its labels."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Integer

from graphlog.errors import DataError, setting

ABSENT = frozenset({"", "nan", "na", "n/a", "null", "none", "-", "?", "<na>"})
"""What stands in a cell without a label, in any case."""
WORDS = {
    **dict.fromkeys(("true", "yes", "active", "positive"), 1.0),
    **dict.fromkeys(("false", "no", "inactive", "negative"), 0.0),
}
"""Words that stand for the two classes, in any case."""
DECIMALS = (".", ",")
"""What may stand before the decimals of a label."""
_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
"""Of the cells with a comma, those in which it may stand between thousands."""
_NUMBERS_NOT_LABELS = frozenset({"id", "index", "row", "cid", "num", "number", "no"})
_SHOWN = 20


class RecordColumn(NamedTuple):
    """How a domain recognizes the column of a table that holds its records."""

    what: str = "SMILES"
    """What the records are, for messages."""
    sure: frozenset[str] = frozenset({"smiles", "smile", "smi", "mol", "cxsmiles"})
    """Names that can hold nothing else, in lower case, words joined by underscores."""
    word: str = "smiles"
    """A first or last word that says the same."""
    likely: tuple[str, ...] = ()
    """Names that are taken where none of the above is there."""

    def is_name(self, name: str) -> bool:
        """Return whether a column of this name holds the records by its name alone.

        Example:
            >>> names = ("SMILES", "Structure (SMILES)", "mol", "mol_id")
            >>> [RecordColumn().is_name(n) for n in names]
            [True, True, True, False]
        """
        plain = _plain(name)
        return plain in self.sure or plain.endswith(self.word) or plain.split("_")[0] == self.word

    def is_heading(self, name: str) -> bool:
        """Return whether a first cell of this text is the name of the column, not a record."""
        return self.is_name(name) or _plain(name) in self.likely

    def find(self, columns: Sequence[str], wanted: str | None, where: str) -> int:
        """Return the index of the column.

        Args:
            columns: The header.
            wanted: Its name, where the user gave one; upper and lower case may differ.
            where: The file, for messages.

        Raises:
            DataError: If there is none, or more than one; lists what there is.
        """
        if wanted is not None:
            return _named(columns, wanted, where)
        matches = [k for k, name in enumerate(columns) if self.is_name(name)]
        if not matches:
            matches = [k for k, name in enumerate(columns) if _plain(name) in self.likely]
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(columns[k] for k in matches)
            raise DataError(
                f"{where}: more than one column may hold {self.what}: {names}; choose one with "
                f"{setting('smiles_column')}.",
                option="smiles_column",
            )
        raise DataError(
            f"{where}: no {self.what} column found; name one with {setting('smiles_column')} "
            f"(or, if the file has no header, save it as .smi). Columns: {listed(columns)}",
            option="smiles_column",
        )


SMILES = RecordColumn(
    likely=("molecule", "structure", "compound_structure", "ligand", "drug", "compound")
)
"""The column of SMILES."""


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name.strip().lower()).strip("_")


def _named(columns: Sequence[str], wanted: str, where: str) -> int:
    exact = [k for k, name in enumerate(columns) if name.strip() == wanted.strip()]
    matches = exact or [k for k, name in enumerate(columns) if _plain(name) == _plain(wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise DataError(
            f"{where}: {len(matches)} columns are named '{wanted}'; rename all but one."
        )
    raise no_such_column(columns, wanted, where)


def no_such_column(columns: Sequence[str], wanted: str, where: str) -> DataError:
    """Return the error for a column that is not there, with the nearest one that is."""
    near = get_close_matches(wanted, columns, n=1, cutoff=0.6)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return DataError(f"{where}: no column '{wanted}'; {hint}Columns: {listed(columns)}")


def listed(columns: Sequence[str]) -> str:
    """Return the names for a message: on one line, printable, the first 20."""
    shown = [
        (name if name.isprintable() else ascii(name)[1:-1])[:60] or "(no name)"
        for name in columns[:_SHOWN]
    ]
    more = len(columns) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def listed_rows(rows: Integer[np.ndarray, "R"]) -> str:
    """Return row numbers for a message, the first five.

    Example:
        >>> listed_rows(np.arange(8))
        '0, 1, 2, 3, 4, ...'
    """
    return ", ".join(map(str, rows[:5].tolist())) + (", ..." if len(rows) > 5 else "")


def distinct(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names with repeated ones numbered, so that no column hides another.

    Example:
        >>> distinct(["smiles", "v", "v", "v.2"])
        ('smiles', 'v', 'v.3', 'v.2')
    """
    seen = Counter[str]()
    taken = set(columns)
    names: list[str] = []
    for name in columns:
        seen[name] += 1
        free = name
        while seen[name] > 1 and free in taken:
            free = f"{name}.{seen[name]}"
            seen[name] += free in taken
        taken.add(free)
        names.append(free)
    return tuple(names)


def repeated(columns: Sequence[str]) -> set[str]:
    """Return the names that stand in a header more than once."""
    return {name for name, count in Counter(columns).items() if count > 1}


class Row(NamedTuple):
    """One data row."""

    row: int
    """Number from 0; the header and wholly blank lines are not counted."""
    record: str
    """Content of the column of records."""
    fields: Mapping[str, str]
    """All columns by name."""
    problem: str | None = None
    """Why the row cannot be used, where that shows before parsing."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """An open table: its columns, and its rows once, in order."""

    where: str
    """What messages call it."""
    header: Sequence[str]
    """Names of its columns as they are written."""
    record_index: int
    """Which of them holds the records."""
    rows: Iterator[Row]
    """Its rows; they can be read once."""
    tasks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns of labels, and what the labels are called."""
    is_list: bool = False
    """Whether it is a list of records, which may hold anything; else most must be usable."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, repeated ones numbered."""
        return distinct(self.header)

    @property
    def record_column(self) -> str:
        """The column that holds the records."""
        return self.columns[self.record_index]


@lru_cache(maxsize=1 << 14)
def label(text: str, decimal: str = ".") -> float | None:
    """Return the number in a cell, NaN for an absent one, None for text that is no finite number.

    Args:
        text: The cell.
        decimal: What stands before its decimals: ``.`` or ``,``.

    Example:
        >>> label(" 1.5 "), label("N/A"), label("Active"), label("strong"), label("inf")
        (1.5, nan, 1.0, None, None)
        >>> label("0,79"), label("0,79", ","), label("1.5", ",")
        (None, 0.79, None)
    """
    plain = text.strip().lower()
    if plain in ABSENT:
        return math.nan
    if plain in WORDS:
        return WORDS[plain]
    if decimal == ",":
        if "." in plain:
            return None
        plain = plain.replace(",", ".")
    try:
        value = float(plain)
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) < 3e38 and "_" not in plain else None


class LabelReader:
    """Reads the label columns of a table and remembers what a user should be told about them.

    Args:
        tasks: Names of the columns.
        where: The table, for messages.
        decimal: Decimal mark of all columns; None takes a comma where the first number with a
            decimal mark has one, and a point otherwise.
    """

    def __init__(self, tasks: Iterable[str], where: str, decimal: str | None = None) -> None:
        self._tasks, self._where = tuple(tasks), where
        self._decimal, self._comma = decimal, ""
        self._first_comma: tuple[Row, str] | None = None
        self._words: dict[str, set[str]] = {}
        self._numbers: set[str] = set()

    def read(self, rows: Sequence[Row]) -> Float64[np.ndarray, "N T"]:
        """Return the labels of ``rows``.

        Raises:
            DataError: Naming the first row and column whose text is not a number, or a column that
                has words for classes beside other numbers.
        """
        if self._decimal is None:
            self._find_decimal(rows)
        decimal = self._decimal or "."
        columns: list[list[float | None]] = []
        for task in self._tasks:
            # a ragged row's cells may be in wrong columns
            cells = [row.fields[task] if row.problem is None else "" for row in rows]
            values = [label(cell, decimal) for cell in cells]
            columns.append(values)
            words = {cell.strip() for cell in set(cells) if cell.strip().lower() in WORDS}
            if words:
                self._words.setdefault(task, set()).update(words)
            if not {0.0, 1.0}.issuperset(v for v in values if v == v):
                self._numbers.add(task)
        bad = [
            (v.index(None), task) for v, task in zip(columns, self._tasks, strict=True) if None in v
        ]
        if bad:
            raise self._not_a_number(*min(bad, key=itemgetter(0)), rows)
        for task in self._words.keys() & self._numbers:
            raise DataError(  # a word would silently count as 0 or 1 among measurements
                f"{self._where}: column '{task}' holds numbers and words for classes "
                f"('{min(self._words[task])}'); write numbers only and leave the other cells empty."
            )
        return np.array(columns, dtype=np.float64).reshape(-1, len(rows)).T

    @property
    def classes(self) -> dict[str, list[str]]:
        """Words for class 0 and class 1 of the columns that have any, those of one class joined."""
        return {
            task: [
                "/".join(sorted(w for w in words if WORDS[w.lower()] == number)) or str(number)
                for number in (0, 1)
            ]
            for task, words in self._words.items()
        }

    def notes(self) -> list[str]:
        """Return one line for each column that was not taken literally."""
        lines: list[str] = []
        for task, words in self._words.items():
            meaning = ", ".join(f"{w} = {WORDS[w.lower()]:g}" for w in sorted(words))
            lines.append(f"target '{task}': words are read as classes ({meaning})")
        if self._comma:
            value = label(self._comma, ",")
            lines.append(f"labels have decimal commas: '{self._comma}' is read as {value:g}")
        return lines

    def _find_decimal(self, rows: Sequence[Row]) -> None:
        """Take the decimal mark of the first number that has one."""
        for row in rows:
            cells = [row.fields[task].strip() for task in self._tasks if row.problem is None]
            marked = [cell for cell in cells if "," in cell or "." in cell]
            numbers = [cell for cell in marked if _COMMA.fullmatch(cell)]
            if numbers and self._first_comma is None:
                self._first_comma = (row, numbers[0])
            if any(label(cell) is not None for cell in marked):
                self._decimal = "."
            elif any(not _THOUSANDS.fullmatch(cell) for cell in numbers):
                self._decimal, self._comma = ",", numbers[0]
            if self._decimal is not None:
                return
        if self._first_comma is not None:
            row, cell = self._first_comma
            raise DataError(
                f"{self._where}, data row {row.row}: '{cell}' may have a decimal comma or a comma "
                f"between thousands; choose {setting('decimal', ',')}, or take the commas out.",
                option="decimal",
            )

    def _not_a_number(self, first: int, task: str, rows: Sequence[Row]) -> DataError:
        decimal = self._decimal or "."
        found = [r.fields[task].strip() for r in rows[first:] if r.problem is None]
        bad = [cell for cell in found if label(cell, decimal) is None]
        others = ", ".join(f"{c[:20]!a}" for c in list(dict.fromkeys(bad))[1:4])
        cells = "cell has" if len(bad) == 2 else "cells have"
        shown = f", e.g. {others}" if others else ""
        more = f" ({len(bad) - 1:,} other {cells} the same problem{shown})" if len(bad) > 1 else ""
        mark = {".": "comma as a point", ",": "point as a comma"}[decimal]
        return DataError(
            f"{self._where}, data row {rows[first].row}: label '{task}' must be a number, 0/1, "
            "yes/no, true/false, active/inactive, positive/negative, or empty, found "
            f"{bad[0][:40]!a}{more}; leave out units and bounds such as >, "
            f"write a decimal {mark}, or choose other {setting('targets')}.",
            option="targets",
            row=rows[first].row,
        )


def choose_tasks(
    table: Table, targets: str | Sequence[str] | None, first: Sequence[Row]
) -> tuple[str, ...]:
    """Return the label columns of a table.

    Args:
        table: The open table.
        targets: Their names; ``auto`` takes every column of numbers that is no running number;
            None takes none.
        first: The first rows, to look at for ``auto``.

    Raises:
        DataError: If a name is no column, is the SMILES column, or stands in the header twice;
            or if ``auto`` finds none.
    """
    if targets is None:
        return ()
    columns, record = table.columns, table.record_column
    if targets == "auto":
        fields = [row.fields for row in first]
        found = tuple(c for c in columns if c != record and _looks_like_labels(c, fields))
        if not found:
            raise DataError(
                f"{table.where}: no column of numbers to take as labels; name the columns with "
                f"{setting('targets')}.",
                option="targets",
            )
        return found
    names = [targets] if isinstance(targets, str) else list(targets)
    for name in names:
        if name not in columns:
            raise no_such_column(columns, name, table.where)
        if name == record:
            raise DataError(
                f"{table.where}: '{name}' is the SMILES column and cannot be a label too; choose "
                "another target."
            )
    twice = repeated(names) | (repeated(table.header) & set(names))
    if twice:
        raise DataError(
            f"{table.where}: label column '{min(twice)}' is given more than once; give each once, "
            "under a name of its own."
        )
    return tuple(names)


def _looks_like_labels(column: str, rows: Sequence[Mapping[str, str]]) -> bool:
    plain = column.strip().lower()
    if (
        not plain
        or plain in _NUMBERS_NOT_LABELS
        or plain.endswith(("_id", " id"))
        or plain.startswith("unnamed")
    ):
        return False
    values = [
        label(cell, "," if _COMMA.fullmatch(cell.strip()) else ".")
        for cell in (fields[column] for fields in rows)
    ]
    return None not in values and not all(value is None or math.isnan(value) for value in values)
