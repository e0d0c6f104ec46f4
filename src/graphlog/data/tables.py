"""Tables as streams of rows: CSV, TSV, lists, Parquet, Excel, standard input, columns in memory.

And which of their columns hold the records and the labels.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Integer

from graphlog.errors import DataError, MissingExtraError, setting
from graphlog.files import COMPRESSED, LONGEST_LINE, open_text

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
    twice = [n for n in names if names.count(n) > 1 or table.header.count(n) > 1]
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


ENDINGS = {
    **{".csv": ",", ".tsv": "\t", ".tab": "\t"},
    **dict.fromkeys((".smi", ".smiles", ".ism", ".can", ".cxsmiles", ".txt"), " "),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".xlsx": "xlsx",
}
"""Endings of tables and what separates their columns; .gz or .zst may follow those of text."""
_NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "vertical bar"}
_ROWS_A_BATCH = 4096
_ROWS_LOOKED_AT = 100
"""Rows of a sheet of which one must have a cell for the sheet to count."""
_DECODED = 1 << 26
"""Bytes of a column of a Parquet file that are turned into text at once."""
_LONGEST_CELL = 1 << 20
"""Characters of a text in a Parquet file."""
_WHOLE_GROUP, _MOST_EXPANSION = 1 << 30, 200
"""Bytes that any row group of a Parquet file may expand to, and the largest ratio above that."""
_MOST_LINES = 1000
"""Lines of one CSV record; more mean that a quote was opened and never closed."""


@contextmanager
def open_table(
    path: Path | str,
    wanted: str | None = None,
    header: Sequence[str] | None = None,
    delimiter: str | None = None,
    rule: RecordColumn = SMILES,
    sheet: str | None = None,
) -> Generator[Table]:
    """Open a table, or standard input for ``-``.

    Args:
        path: The file.
        wanted: Name of the column of records; None finds it.
        header: Names of the columns of a file that has no header line.
        delimiter: What separates the columns, where the ending of the file's name is wrong about
            it.
        rule: How the column of records is found.
        sheet: Sheet of an Excel file, which must be named where there are several.

    Raises:
        DataError: If it cannot be read, is empty, or has no or more than one column of records.
    """
    where = "standard input" if str(path) == "-" else str(path)
    kind = delimiter or (None if str(path) == "-" else kind_of(Path(path)))
    if kind in ("parquet", "xlsx"):
        opened = _open_parquet(Path(path)) if kind == "parquet" else _open_excel(Path(path), sheet)
        with opened as (columns, records):
            yield _table(where, columns, records, rule.find(columns, wanted, where))
        return
    with open_text(path) as lines:
        first = next((line for line in lines if line.strip("\r\n\t ,;\0")), None)
        if first is None:
            raise DataError(f"{where}: is empty; it must hold at least one row.")
        everything = chain([first], lines)
        kind = _kind_by_content(first, kind, wanted, rule) if header is None else kind or " "
        if kind == " ":
            yield _list(everything, where, wanted, header, rule)
            return
        columns, records = _delimited(everything, where, kind, header)
        yield _table(where, columns, records, rule.find(columns, wanted, where))


def open_columns(
    columns: Mapping[str, Sequence[Any]],
    where: str,
    wanted: str | None = None,
    rule: RecordColumn = SMILES,
    text_of: Callable[[Any], str | None] | None = None,
) -> Table:
    """Return columns in memory, such as those of a data frame, as a table.

    Args:
        columns: Values by name, all of one length; None and NaN are empty cells.
        where: What to call it in messages.
        wanted: Name of the column of records; None finds it.
        rule: How the column of records is found.
        text_of: Turns a record into text.

    Raises:
        DataError: If columns differ in length, or no or more than one may hold records.
    """
    names = list(columns)
    if len({len(values) for values in columns.values()}) > 1:
        raise DataError(f"{where}: its columns differ in length; give one value a row in each.")
    k = rule.find(names, wanted, where)

    def text(column: int, value: Any) -> str:
        found = text_of(value) if text_of is not None and column == k else None
        return cell_text(value) if found is None else found

    rows = (
        [text(column, value) for column, value in enumerate(values)]
        for values in zip(*columns.values(), strict=True)
    )
    return _table(where, names, rows, k)


def _table(where: str, columns: Sequence[str], records: Iterable[list[str]], k: int) -> Table:
    names, width = distinct(columns), len(columns)

    def rows() -> Iterator[Row]:
        number = -1
        for number, values in enumerate(records):
            problem = None
            if len(values) != width:  # usable if only empty cells are too many
                if len(values) < width or any(value.strip() for value in values[width:]):
                    problem = f"has {len(values)} cells where the header has {width}"
                values = (values + [""] * width)[:width]
            yield Row(number, values[k].strip(), dict(zip(names, values, strict=True)), problem)
        if number < 0:
            raise DataError(f"{where}: has a header but no rows; it must hold at least one row.")

    return Table(where, columns, k, rows())


def kind_of(path: Path) -> str:
    """Return what the ending of a file's name says about its columns.

    Raises:
        DataError: If it says nothing.
    """
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    if suffixes and suffixes[-1] in ENDINGS:
        return ENDINGS[suffixes[-1]]
    if not path.exists():
        raise DataError(f"no such file: {path}; check the path.", file=path)
    raise DataError(
        f"{path}: cannot tell what kind of file this is; name it {', '.join(ENDINGS)} (those of "
        "text also .gz or .zst)."
    )


def _kind_by_content(first: str, kind: str | None, wanted: str | None, rule: RecordColumn) -> str:
    """Return what separates the columns of a table with this first line.

    A list of records may turn out to be a table, and one separated by semicolons is often named
    .csv.
    """
    if kind not in (None, " ") and len(first.split(kind)) > 1:
        return kind
    for delimiter in (",", "\t", ";"):
        cells = [cell.strip().strip('"') for cell in first.split(delimiter)]
        if len(cells) > 1 and any(cell == wanted or rule.is_heading(cell) for cell in cells):
            return delimiter
    return kind or " "


def _list(
    lines: Iterator[str],
    where: str,
    wanted: str | None,
    header: Sequence[str] | None,
    rule: RecordColumn,
) -> Table:
    """Read lines of a record and, after a blank, a name; a first line that is a heading is one."""
    first = next(lines)
    head = first.split()
    is_heading = header is None and (
        rule.is_heading(head[0]) or (wanted is not None and wanted in head)
    )
    if header is None:
        header = (
            head if is_heading and len(head) > 1 else (head[0] if is_heading else rule.word, "name")
        )
    columns = tuple(header)
    k = rule.find(columns, wanted, where) if is_heading or wanted is not None else 0

    def records() -> Iterator[list[str]]:
        for line in lines if is_heading else chain([first], lines):
            if line.isspace():
                continue
            cells = line.rstrip("\r\n").split(None, len(columns) - 1)
            if len(cells) > 1 and cells[1].startswith("|") and k == 0:
                cells = _with_extension(line)
            yield (cells + [""] * len(columns))[: len(columns)]

    return _table(where, columns, records(), k)


def _with_extension(line: str) -> list[str]:
    """Split a line whose SMILES carries a CXSMILES extension, ``SMILES |...| name``."""
    smiles, rest = line.split(None, 1)
    end = rest.find("|", 1)
    return (
        [f"{smiles} {rest[: end + 1]}", rest[end + 1 :].strip()]
        if end > 0
        else [smiles, rest.strip()]
    )


def _delimited(
    lines: Iterator[str], where: str, delimiter: str, header: Sequence[str] | None
) -> tuple[Sequence[str], Iterator[list[str]]]:
    """Return the columns and the rows of a table."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    records = _records(lines, where, delimiter)
    columns = list(header) if header is not None else [name.strip() for name in next(records)]
    while header is None and len(columns) > 1 and not columns[-1]:
        columns.pop()  # a comma at the end of every line
    _refuse_other_delimiter(columns, where, delimiter)
    return columns, records


def _records(lines: Iterator[str], where: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the records that are not blank lines."""
    taken = 0

    def counted() -> Iterator[str]:
        nonlocal taken
        for line in lines:
            taken += 1
            if taken > _MOST_LINES:
                raise DataError(
                    f"{where}: a quote opened in data row {number - 1} is never closed; close it "
                    "or double it."
                )
            yield line

    number = 0
    reader = csv.reader(counted(), delimiter=delimiter)
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as e:
            raise DataError(f"{where}: data row {number - 1} is not valid CSV ({e}).") from None
        taken = 0
        if record:
            number += 1
            yield record


def _refuse_other_delimiter(columns: Sequence[str], where: str, delimiter: str) -> None:
    if len(columns) > 1:
        return
    for other, name in _NAMES.items():
        cells = [cell.strip().strip('"') for cell in columns[0].split(other)]
        if other != delimiter and len(cells) > 1:
            ending = {"\t": ".tsv", ",": ".csv"}.get(other)
            remedy = f"name it {ending}" if ending else f"save it with {_NAMES[delimiter]}s"
            raise DataError(
                f"{where}: its columns ({listed(cells)}) are separated by {name}s, not "
                f"{_NAMES[delimiter]}s; {remedy}."
            )


@contextmanager
def _open_parquet(path: Path) -> Generator[tuple[list[str], Iterator[list[str]]]]:
    """Give the columns and the rows of a Parquet file, a null as empty text."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    library: Any = pq
    try:
        # as dictionaries: a long text that stands in a thousand rows is not copied for each
        names = [f.name for f in library.read_schema(path) if pa.types.is_string(f.type)]
        table = library.ParquetFile(path, read_dictionary=names)
        _refuse_expanding(table.metadata, path)
    except FileNotFoundError:
        raise DataError(f"no such file: {path}; check the path.", file=path) from None
    except (pa.ArrowException, OSError) as e:
        raise DataError(
            f"{path}: not a readable Parquet file ({str(e).splitlines()[0].rstrip('.')}); fetch or "
            "write it again."
        ) from None
    with table:
        yield list(table.schema_arrow.names), _rows(table, path, pa.ArrowException)


def _refuse_expanding(metadata: Any, path: Path) -> None:
    """Refuse a file of which a row group is far larger than what is stored of it."""
    for k in range(metadata.num_row_groups):
        # not the sizes of its columns: of a damaged column, asking ends the process
        expanded, stored = metadata.row_group(k).total_byte_size, path.stat().st_size
        if expanded > max(_WHOLE_GROUP, _MOST_EXPANSION * stored):
            raise DataError(
                f"{path}: row group {k} expands from {stored:,} to {expanded:,} bytes, more than "
                f"{_MOST_EXPANSION} times; if you trust it, write it again in smaller row groups."
            )


def _rows(table: Any, path: Path, failure: type[Exception]) -> Iterator[list[str]]:
    try:
        # an error in one of pyarrow's own threads would end the process
        for batch in table.iter_batches(batch_size=_ROWS_A_BATCH, use_threads=False):
            step = _rows_at_once(batch, path)
            for start in range(0, batch.num_rows, step):
                columns = [_texts(column) for column in batch.slice(start, step).columns]
                yield from (list(row) for row in zip(*columns, strict=True))
    except (failure, OSError, UnicodeDecodeError) as e:
        raise DataError(
            f"{path}: the Parquet data is damaged ({str(e).splitlines()[0]}); fetch it again."
        ) from None


def _rows_at_once(batch: Any, path: Path) -> int:
    """Return how many rows of a batch may become text at once, by the longest text in it."""
    import pyarrow.compute as pc

    compute: Any = pc
    texts = [c.dictionary for c in batch.columns if hasattr(c, "dictionary")]
    longest = max(
        (compute.max(compute.binary_length(t)).as_py() or 0 for t in texts if t.type == "string"),
        default=0,
    )
    if longest > _LONGEST_CELL:
        raise DataError(
            f"{path}: has a cell of {longest:,} bytes, and may have {_LONGEST_CELL:,}; drop the "
            "column."
        )
    return max(1, min(_ROWS_A_BATCH, _DECODED // max(longest, 1)))


def _texts(column: Any) -> list[str]:
    values = column.dictionary_decode() if hasattr(column, "dictionary") else column
    return [cell_text(value) for value in values.to_pylist()]


@contextmanager
def _open_excel(path: Path, sheet: str | None) -> Generator[tuple[list[str], Iterator[list[str]]]]:
    """Give the columns and the rows of a sheet of an Excel file."""
    if not path.exists():
        raise DataError(f"no such file: {path}; check the path.", file=path)
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError("openpyxl", "excel") from None
    library: Any = openpyxl
    try:
        book = library.load_workbook(path, read_only=True, data_only=True)
    except Exception as e:  # zipfile, XML and openpyxl raise errors of their own
        raise _no_workbook(path, e) from None
    try:
        rows = _cells(book, path, sheet)
        columns = [cell_text(value) for value in next(rows, ())]
        width = len(columns)
        filled = (
            [cell_text(v) for v in row[:width]] for row in rows if any(v is not None for v in row)
        )
        yield columns, (values + [""] * (width - len(values)) for values in filled)
    finally:
        book.close()


def _cells(book: Any, path: Path, sheet: str | None) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the sheet called so, or of the only one that has cells; parsed only now."""
    try:
        if not book.worksheets:
            raise ValueError("it has no sheet of cells")
        sheets = {s.title: s for s in book.worksheets}
        found = [sheet] if sheet is not None else [t for t, s in sheets.items() if _has_cells(s)]
        if sheet is not None and sheet not in sheets:
            raise DataError(f"{path}: no sheet '{sheet}'; sheets: {listed([*sheets])}.")
        if len(found) > 1:
            raise DataError(
                f"{path}: has {len(found)} sheets: {listed(found)}; choose one with "
                f"{setting('sheet')}.",
                option="sheet",
            )
        yield from sheets[found[0] if found else next(iter(sheets))].iter_rows(values_only=True)
    except DataError:
        raise
    except Exception as e:  # as above
        raise _no_workbook(path, e) from None


def _has_cells(sheet: Any) -> bool:
    rows = islice(sheet.iter_rows(values_only=True), _ROWS_LOOKED_AT)
    return any(value is not None for row in rows for value in row)


def _no_workbook(path: Path, error: Exception) -> DataError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return DataError(
        f"{path}: not a readable Excel file ({reason}); save it again as .xlsx or .csv."
    )


def cell_text(value: Any) -> str:
    """Return a value of a table as text; empty where it is missing."""
    if isinstance(value, str):
        return value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, float | np.floating) and value != value:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
