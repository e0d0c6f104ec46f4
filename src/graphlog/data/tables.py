"""Read tables row by row, and find their columns of records and labels.

A table is a CSV, TSV, Parquet or Excel file, a list of records, standard input, or columns in
memory.
"""

import csv
import math
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Integer

from graphlog.errors import DataError, first_line, optional, setting
from graphlog.files import COMPRESSED, open_text

ColumnNames = str | Collection[Hashable]
"""Name of one column, or names of several; data frames may use numbers as names."""
ABSENT = frozenset({"", "nan", "na", "n/a", "null", "none", "-", "?", "<na>", "#n/a"})
"""Content of a cell without a label, in lower case."""
WORDS = {
    **dict.fromkeys(("true", "yes", "active", "positive"), 1.0),
    **dict.fromkeys(("false", "no", "inactive", "negative"), 0.0),
}
"""Words for the two classes, in lower case."""
DECIMALS = (".", ",")
"""Allowed decimal marks of labels."""
_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
"""Numbers whose comma may separate thousands."""
_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
"""Numbers whose point may separate thousands."""
_CODE = re.compile(r"0\d+")
"""Whole numbers with a zero in front, which may be codes."""
_SHORT, _LONG = re.compile(r"[+-]?\d{1,3}"), re.compile(r"[+-]?\d{4,}")
"""Whole numbers of at most three digits, and of more."""
_ADVICE = {
    "=": "open and save the file in Excel, so that it holds the values of formulas",
    r"[+-]?[1-9]\d{0,2}([.,' ])\d{3}(\1\d{3})*([.,]\d+)?$": "remove the thousands separators",
    r"\d{4}-\d\d-\d\d": "enter the number again (Excel may have made a date of it)",
    r"#[A-Z/0]+[!?]$": "correct the formula or empty the cell",
    r"[\d.,]+ ?%$": "leave out the percent sign",
}
"""Advice on cells that are no numbers, by patterns of their text."""
_EXCEL_HINT = re.compile(r"sep=(.)[\r\n]*")
"""First line that names the delimiter for Excel."""
_UNCOMPUTED = re.compile(rb"(</f>|<f[^>]*/>)\s*(<v>\s*</v>|<v\s*/>)?\s*</c>")
"""XML of a cell with a formula but without its value."""
_NUMBERS_NOT_LABELS = frozenset({"id", "index", "row", "cid", "num", "number", "no"})
_ROWS_AT_A_TIME = 1000
"""Number of rows of each block in which label columns are searched."""
_MOST_CELLS = 2_000_000
"""Largest number of cells in which label columns are searched."""


class RecordColumn(NamedTuple):
    """Rule by which a domain recognizes the column of a table that holds its records."""

    what: str = "SMILES"
    """Name of the records in messages."""
    sure: frozenset[str] = frozenset({"smiles", "smile", "smi", "mol", "cxsmiles"})
    """Names of columns of records, in lower case, with words joined by underscores."""
    word: str = "smiles"
    """Word that also identifies such a column if its name starts or ends with it."""
    likely: tuple[str, ...] = ()
    """Names that are accepted if no column is found by the rules above."""

    def is_name(self, name: str) -> bool:
        """Return whether a column of this name certainly holds the records.

        Example:
            >>> names = ("SMILES", "Structure (SMILES)", "mol", "mol_id")
            >>> [RecordColumn().is_name(n) for n in names]
            [True, True, True, False]
        """
        plain = _normalized(name)
        return plain in self.sure or plain.endswith(self.word) or plain.split("_")[0] == self.word

    def is_heading(self, name: str) -> bool:
        """Return whether the first cell of a column is its name, not a record."""
        return self.is_name(name) or _normalized(name) in self.likely

    def find(self, columns: Sequence[str], wanted: str | None, where: str) -> int:
        """Return the index of the only column that fits, by its name if ``wanted`` is not None."""
        rules: list[Callable[[str], bool]] = [self.is_name, self.is_heading]
        if wanted is not None:
            rules = [
                lambda name: name.strip() == wanted.strip(),
                lambda name: _normalized(name) == _normalized(wanted),
            ]
        for rule in rules:
            matches = [k for k, name in enumerate(columns) if rule(name)]
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise DataError(
                    f"{where}: more than one column may hold {self.what}: "
                    f"{', '.join(columns[k] for k in matches)}; choose one with "
                    f"{setting('smiles_column')}, or rename those of the same name.",
                    option="smiles_column",
                )
        if wanted is not None:
            raise no_such_column(columns, wanted, where, "smiles_column")
        if "graph" in columns[:1]:
            raise DataError(
                f"{where}: is one of several tables of graphs; name their folder, which must hold "
                f"edges.csv. Columns: {listed(columns)}"
            )
        raise DataError(
            f"{where}: no {self.what} column found; name one with {setting('smiles_column')} (the "
            "first line must name the columns; save a file without such a line as .smi; separate "
            f"columns by commas in a .csv, by tabs in a .tsv). Columns: {listed(columns)}",
            option="smiles_column",
        )


SMILES = RecordColumn(
    likely=("molecule", "structure", "compound_structure", "ligand", "drug", "compound")
)
"""Rule for the column of SMILES."""


def _normalized(name: str) -> str:
    """Return a name in lower case with words joined by underscores."""
    return re.sub(r"[\W_]+", "_", name.strip().lower()).strip("_")


def no_such_column(columns: Sequence[str], wanted: str, where: str, option: str) -> DataError:
    """Return the error for a column that does not exist, which suggests the most similar name."""
    similar = get_close_matches(wanted, columns, n=1, cutoff=0.6)
    hint = f"did you mean '{similar[0]}'? " if similar else ""
    message = f"{where}: no column '{wanted}'; {hint}Columns: {listed(columns)}"
    return DataError(message, option=option)


def listed(columns: Sequence[str], most: int = 20) -> str:
    """Return the first ``most`` names for a message, on one line and printable."""
    shown = [
        (name if name.isprintable() else ascii(name)[1:-1])[:60] or "(no name)"
        for name in columns[:most]
    ]
    more = len(columns) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def listed_rows(rows: Integer[np.ndarray, "R"]) -> str:
    """Return the first five row numbers for a message.

    Example:
        >>> listed_rows(np.arange(8))
        '0, 1, 2, 3, 4, ...'
    """
    return ", ".join(map(str, rows[:5].tolist())) + (", ..." if len(rows) > 5 else "")


def distinct(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns, with numbers added to repeated ones.

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


class NumberText(str):
    """Text of a cell that holds a number, whose decimal mark is a point in any table."""

    __slots__ = ()


class Row(NamedTuple):
    """A data row of a table."""

    row: int
    """Number of the row from 0; the header and blank lines of text are not counted."""
    record: str
    """Content of the column of records."""
    fields: Mapping[str, str]
    """Cells by the names of their columns."""
    problem: str | None = None
    """Reason for which the row cannot be used, if known before its record is parsed."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """An open table, whose rows can be read once, in order."""

    where: str
    """Name of the table in messages."""
    header: Sequence[str]
    """Names of the columns as they are written."""
    record_index: int
    """Index of the column of records."""
    rows: Iterator[Row]
    """The rows; they can be read once."""
    tasks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of labels, by the names of their columns."""
    is_list: bool = False
    """Whether it is a list of records, of which any number may be bad; else at most half."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, with numbers added to repeated ones."""
        return distinct(self.header)

    @property
    def record_column(self) -> str:
        """Name of the column of records."""
        return self.columns[self.record_index]


@lru_cache(maxsize=1 << 14)
def label(text: str, decimal: str = ".") -> float | None:
    """Return the number in a cell, NaN for a missing label, None for anything else.

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
    """Reader of the label columns ``tasks`` of a table, which collects notes for the user.

    If ``decimal`` is None, the decimal mark of all columns is that of the first number with one.
    """

    def __init__(self, tasks: Iterable[str], where: str, decimal: str | None = None) -> None:
        self._where, self._decimal = where, decimal
        self._comma_example = ""
        """First cell with a decimal comma, if the mark was found to be a comma."""
        self._words: dict[str, set[str]] = {task: set() for task in tasks}
        """Words for classes in each column."""
        self._numeric: set[str] = set()
        """Columns with other numbers than 0 and 1."""
        self._codes = dict.fromkeys(self._words, "")
        """First cell that may be a code in each column."""
        self._points = dict.fromkeys(self._words if decimal is None else (), "")
        """First cell with a point, for columns in which all points may separate thousands."""
        self._small: set[str] = set()
        """Columns of ``_points`` with a whole number below a thousand."""

    def read(self, rows: Sequence[Row]) -> Float64[np.ndarray, "N T"]:
        """Return the labels of ``rows``; raise a DataError for a cell that is not a label."""
        if self._decimal is None and self._words:
            self._find_decimal(rows)
        labels = np.empty((len(rows), len(self._words)))
        for column, (task, words) in enumerate(self._words.items()):
            # in a row with too few or many cells, they may be in wrong columns
            cells = [row.fields[task] if row.problem is None else "" for row in rows]
            marks = ["." if isinstance(c, NumberText) else self._decimal or "." for c in cells]
            values = [*map(label, cells, marks)]
            bad = [k for k, value in enumerate(values) if value is None]
            if bad:
                raise self._not_a_number(task, rows[bad[0]].row, [cells[k].strip() for k in bad])
            labels[:, column] = values
            distinct_cells = {c.strip(): None for c in cells if not isinstance(c, NumberText)}
            if task in self._points:
                long = [cell for cell in distinct_cells if "." in cell or _LONG.fullmatch(cell)]
                if all(map(_POINTS.fullmatch, long)):
                    self._points[task] = self._points[task] or next(iter(long), "")
                else:
                    del self._points[task]
                if task not in self._small and any(map(_SHORT.fullmatch, distinct_cells)):
                    self._small.add(task)
            if not self._codes[task]:
                self._codes[task] = next(filter(_CODE.fullmatch, distinct_cells), "")
            words.update(cell for cell in distinct_cells if cell.lower() in WORDS)
            if not {0.0, 1.0}.issuperset(v for v in values if v == v):
                self._numeric.add(task)
            if words and task in self._numeric:
                raise DataError(  # the word would be read as 0 or 1 among measurements
                    f"{self._where}: column '{task}' holds numbers and words for classes "
                    f"('{min(words)}'); write numbers only and leave the other cells empty."
                )
        return labels

    @property
    def classes(self) -> dict[str, list[str]]:
        """Words for class 0 and for class 1, joined by slashes, of the columns that have any."""
        return {
            task: [
                "/".join(sorted(w for w in words if WORDS[w.lower()] == number)) or str(number)
                for number in (0, 1)
            ]
            for task, words in self._words.items()
            if words
        }

    def notes(self) -> list[str]:
        """Return a line about each column with words, decimal commas, codes or ambiguous points."""
        lines: list[str] = []
        for task, words in self._words.items():
            meaning = ", ".join(f"{w} = {WORDS[w.lower()]:g}" for w in sorted(words))
            if words:
                lines.append(f"target '{task}': words are read as classes ({meaning})")
        if cell := self._comma_example:
            lines.append(f"labels have decimal commas: '{cell}' is read as {label(cell, ','):g}")
        for task, cell in self._codes.items():
            if cell:
                lines.append(code_note(f"target '{task}'", cell))
        for task, cell in self._points.items():
            if cell and task in self._small:
                lines.append(
                    f"target '{task}': '{cell}' is read as {label(cell):g}; if its point "
                    "separates thousands, remove the points"
                )
        return lines

    def _find_decimal(self, rows: Sequence[Row]) -> None:
        """Set the decimal mark to that of the first number with an unambiguous one."""
        unclear = None
        for row in rows:
            used = [row.fields[task] for task in self._words if row.problem is None]
            cells = [cell.strip() for cell in used if not isinstance(cell, NumberText)]
            with_comma = [cell for cell in cells if _COMMA.fullmatch(cell)]
            if any("." in cell and label(cell) is not None for cell in cells):
                self._decimal = "."
                return
            if any(not _THOUSANDS.fullmatch(cell) for cell in with_comma):
                self._decimal, self._comma_example = ",", with_comma[0]
                return
            if with_comma and unclear is None:
                unclear = row.row, with_comma[0]
        if unclear is not None:
            raise DataError(
                f"{self._where}, data row {unclear[0]}: '{unclear[1]}' may have a decimal comma or "
                f"a thousands separator; choose {setting('decimal', ',')}, or remove the commas.",
                option="decimal",
            )

    def _not_a_number(self, task: str, row: int, bad: Sequence[str]) -> DataError:
        """Return the error for the cells ``bad`` of a column, of which the first is in ``row``."""
        others = ", ".join(f"{cell[:20]!a}" for cell in list(dict.fromkeys(bad))[1:4])
        more = f" (and further down {others})" if others else ""
        wrong, right = ("point", "comma") if self._decimal == "," else ("comma", "point")
        general = f"leave out units and bounds such as >, write a decimal {wrong} as a {right}"
        found = (advice for pattern, advice in _ADVICE.items() if re.match(pattern, bad[0]))
        return DataError(
            f"{self._where}, data row {row}: label '{task}' must be a number, 0/1, yes/no, "
            "true/false, active/inactive, positive/negative, or empty, found "
            f"{bad[0][:40]!a}{more}; {next(found, general)}, or choose other "
            f"{setting('targets')}.",
            option="targets",
            row=row,
        )


def code_note(column: str, code: str) -> str:
    """Return a note on a label such as ``01``, which is read as the number 1."""
    number = f"'{code}' is read as the number {float(code):.15g}"
    return f"{column}: {number}; if they are different classes, write different numbers"


def find_labels(table: Table) -> tuple[tuple[str, ...], list[Row]]:
    """Find the columns of labels by their content; return them and the rows read for this.

    Rows are read in blocks of a thousand. A column of labels holds only numbers in the first block
    in which it is not empty, and its name is not that of a running number. It may be empty before,
    if one assay follows another in the table. A DataError is raised if no column is found.
    """
    names = zip(table.columns, table.header, strict=True)
    undecided = [c for c, name in names if c != table.record_column and _may_be_labels(name)]
    label_columns, rows = set[str](), list[Row]()
    most_rows = max(_ROWS_AT_A_TIME, _MOST_CELLS // len(table.columns))
    while undecided and len(rows) < most_rows and (more := [*islice(table.rows, _ROWS_AT_A_TIME)]):
        rows += more
        for column in tuple(undecided):
            cells = [row.fields[column] for row in more if row.problem is None]
            values = [label(cell, "," if _COMMA.fullmatch(cell.strip()) else ".") for cell in cells]
            if any(value == value for value in values):  # NaN is missing, None is not a number
                undecided.remove(column)
                if None not in values:
                    label_columns.add(column)
    if not label_columns:
        raise DataError(
            f"{table.where}: no column of numbers to take as labels; name the columns with "
            f"{setting('targets')}.",
            option="targets",
        )
    return tuple(c for c in table.columns if c in label_columns), rows


def _may_be_labels(column: str) -> bool:
    """Return whether a column of this name, as written in the header, may hold labels."""
    plain = column.strip().lower()
    is_number = plain in _NUMBERS_NOT_LABELS or plain.endswith(("_id", " id"))
    # names that pandas gives to an index without a name
    is_index = plain.startswith(("unnamed", "__index_level_"))
    return bool(plain) and not is_number and not is_index


def choose_tasks(table: Table, targets: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the named label columns; refuse unknown and repeated ones, and that of the records."""
    columns, record = table.columns, table.record_column
    names = [targets] if isinstance(targets, str) else list(targets or ())
    for name in names:
        if name not in columns:
            raise no_such_column(columns, name, table.where, "targets")
        if name == record:
            raise DataError(
                f"{table.where}: '{name}' is the SMILES column and cannot be a label too; choose "
                "another target."
            )
        if names.count(name) > 1 or table.header.count(name) > 1:
            raise DataError(
                f"{table.where}: label column '{name}' is given more than once; give each once, "
                "under a name of its own."
            )
    return tuple(names)


ENDINGS = {
    **{".csv": ",", ".tsv": "\t", ".tab": "\t"},
    **dict.fromkeys((".smi", ".smiles", ".ism", ".can", ".cxsmiles", ".txt"), " "),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".xlsm", ".xlsx"), "xlsx"),
}
"""Extensions of table files, and their delimiter or kind; for text, COMPRESSED may follow."""
_NOT_READ = {
    ".zip": "is a zip archive; unpack it, and name the file in it",
    **dict.fromkeys((".xls", ".xlsb", ".ods"), "is not read; save it as .xlsx"),
    **dict.fromkeys((".cdx", ".cdxml", ".mol", ".rdf"), "is not read; export it as SDF or SMILES"),
}
"""Extensions of other files, and what is told of them."""
_ROWS_LOOKED_AT = 100
"""Number of rows of a sheet of which one must have a cell, or the sheet counts as empty."""
_ROWS_A_BATCH = 4096
_DECODED = 1 << 26
"""Largest number of bytes of a column of a Parquet file that are converted to text at a time."""
_LONGEST_CELL = 1 << 20
"""Largest number of bytes of a text in a Parquet file."""
_WHOLE_GROUP, _MOST_EXPANSION = 1 << 30, 200
"""Bytes to which any row group of a Parquet file may expand, and the largest ratio above that."""
_HEADING_LINES = 20
"""Number of lines in which the end of a heading with quotes is searched."""
_MOST_LINES = 1000
"""Largest number of lines of one CSV record; with more, a closing quote is probably missing."""


@contextmanager
def open_table(
    path: Path | str,
    wanted: str | None = None,
    header: Sequence[str] | None = None,
    delimiter: str | None = None,
    rule: RecordColumn = SMILES,
    sheet: str | None = None,
) -> Generator[Table]:
    """Open a table; ``-`` is standard input.

    The column of records has the name ``wanted`` or, for None, is found by ``rule``. The ``header``
    names the columns of a file without a header line. The ``delimiter`` replaces the one that the
    file name implies. A ``sheet`` must be named if an Excel file has several. A DataError is raised
    if the table cannot be read, is empty, or does not have one column of records.
    """
    is_stream = str(path) == "-"
    where = "standard input" if is_stream else str(path)
    kind = delimiter or (" " if is_stream else kind_of(Path(path)))
    if kind in ("parquet", "xlsx"):
        opened = _open_parquet(Path(path)) if kind == "parquet" else _open_excel(Path(path), sheet)
        with closing(opened) as records:
            columns = [name.strip() for name in next(records, [])]
            yield _table(where, columns, records, rule.find(columns, wanted, where))
        return
    with open_text(path) as lines:
        filled = (line for line in lines if line.strip("\r\n\t ,;\0"))
        first = next(filled, None)
        if first and header is None and (hint := _EXCEL_HINT.fullmatch(first)):
            kind, first = hint[1], next(filled, None)
        if first is None:
            raise DataError(f"{where}: is empty; it must hold at least one row.")
        if header is None:
            more = list(islice(lines, _HEADING_LINES if '"' in first else 0))
            kind, lines = _kind_by_content([first, *more], kind, wanted, rule), chain(more, lines)
        if kind == " ":
            yield _read_list(first, lines, where, wanted, header, rule)
            return
        with closing(_delimited(chain([first], lines), where, kind)) as records:
            columns = list(header or [name.strip() for name in next(records)])
            while header is None and len(columns) > 1 and not columns[-1]:
                columns.pop()  # a comma at the end of every line
            yield _table(where, columns, records, rule.find(columns, wanted, where))


def open_columns(
    columns: Mapping[str, Sequence[Any]],
    where: str,
    wanted: str | None = None,
    rule: RecordColumn = SMILES,
    text_of: Callable[[Any], str | None] | None = None,
) -> Table:
    """Return a table of columns in memory, such as those of a data frame; see :func:`open_table`.

    None and NaN are empty cells. The function ``text_of`` converts a record to text.
    """
    names = list(columns)
    if len({len(values) for values in columns.values()}) > 1:
        raise DataError(f"{where}: its columns differ in length; give one value a row in each.")
    k = rule.find(names, wanted, where)

    def text(column: int, value: Any) -> str:
        converted = text_of(value) if text_of is not None and column == k else None
        return cell_text(value) if converted is None else converted

    rows = (
        [text(column, value) for column, value in enumerate(values)]
        for values in zip(*columns.values(), strict=True)
    )
    return _table(where, names, rows, k, may_be_empty=True)


def _table(
    where: str,
    columns: Sequence[str],
    records: Iterable[list[str]],
    k: int,
    may_be_empty: bool = False,
) -> Table:
    """Return the table of the cells of each row, in which column ``k`` holds the records."""
    names, width = distinct(columns), len(columns)

    def rows() -> Iterator[Row]:
        number = -1
        for number, values in enumerate(records):
            problem = None
            if len(values) != width:  # additional cells that are empty are ignored
                if len(values) < width or any(value.strip() for value in values[width:]):
                    problem = f"has {len(values)} cells where the header has {width}"
                values = (values + [""] * width)[:width]
            yield Row(number, values[k].strip(), dict(zip(names, values, strict=True)), problem)
        if number < 0 and not may_be_empty:
            raise DataError(f"{where}: has a header but no rows; it must hold at least one row.")

    return Table(where, columns, k, rows())


def kind_of(path: Path) -> str:
    """Return the delimiter of a table file, or ``parquet`` or ``xlsx``, by its extension."""
    is_packed = path.suffix.lower() in COMPRESSED
    ending = (path.with_suffix("") if is_packed else path).suffix.lower()
    if ending in ENDINGS:
        return ENDINGS[ending]
    _check_exists(path)
    if ending in _NOT_READ:
        raise DataError(f"{path}: {_NOT_READ[ending]}.")
    raise DataError(
        f"{path}: cannot tell what kind of file this is; name it {', '.join(ENDINGS)} or .sdf "
        f"(those of text also {', '.join(COMPRESSED)}); files of graphs: .jsonl, .ndjson, .zip, or "
        "a folder of tables."
    )


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise DataError(f"no such file: {path}; check the path.", file=path)


def _kind_by_content(
    heading: Sequence[str], kind: str, wanted: str | None, rule: RecordColumn
) -> str:
    """Return the delimiter of a table with these first lines; ``kind`` if none is recognized.

    A file named as a list of records may be a table, and one with semicolons is often named .csv. A
    vertical bar in a list may be part of a record (CXSMILES).
    """
    others = ",\t;" if kind == " " or kind in heading[0] else ",\t;|"
    for delimiter in dict.fromkeys(others if kind == " " else kind + others):
        cells = [cell.strip() for cell in next(csv.reader(heading, delimiter=delimiter))]
        # a cell that contains another delimiter is more than one name
        names = [cell for cell in cells if not {*others} & {*cell} - {delimiter}]
        if len(cells) > 1 and (wanted in cells or any(map(rule.is_heading, names))):
            return delimiter
    return kind


def _read_list(
    first: str,
    lines: Iterator[str],
    where: str,
    wanted: str | None,
    header: Sequence[str] | None,
    rule: RecordColumn,
) -> Table:
    """Return the table of a list: lines of a record and, after a space, a name."""
    head = first.split()
    is_heading = header is None and (rule.is_heading(head[0]) or wanted in head)
    if is_heading:
        columns = head if len(head) > 1 else [head[0], "name"]
    else:
        columns = list(header or (rule.word, "name"))
        lines = chain([first], lines)
    k = rule.find(columns, wanted, where) if is_heading or wanted is not None else 0

    def records() -> Iterator[list[str]]:
        for line in lines:
            cells = line.split(None, len(columns) - 1)
            if len(cells) > 1 and cells[1].startswith("|") and k == 0:
                # the extension of CXSMILES (SMILES |...| name) is part of the SMILES
                smiles, rest = line.split(None, 1)
                end = rest.find("|", 1) + 1
                others = rest[end:].strip().split(None, len(columns) - 2)
                cells = [f"{smiles} {rest[:end]}".strip(), *others]
            if cells:
                cells[-1] = cells[-1].rstrip("\r\n")
                if len(cells) < len(columns) == 2:
                    cells.append("")  # the name; of more columns, any may be the missing one
                yield cells

    return _table(where, columns, records(), k)


def _delimited(lines: Iterator[str], where: str, delimiter: str) -> Generator[list[str]]:
    """Yield the records, including a header; blank lines between them are skipped."""
    lines_of_record = number = 0
    blanks = " \t\r\n".replace(delimiter, "")

    def counted() -> Iterator[str]:
        nonlocal lines_of_record
        for line in lines:
            if not lines_of_record and line.isspace() and not line.strip(blanks):
                continue
            lines_of_record += 1
            if lines_of_record > _MOST_LINES:
                raise never_closed()
            yield line
        if lines_of_record > 1:  # the file ends inside a record
            raise never_closed()

    def never_closed() -> DataError:
        return DataError(
            f"{where}: a quote opened in data row {number - 1} is never closed; close it or double "
            "it."
        )

    try:
        for record in csv.reader(counted(), delimiter=delimiter):
            is_long = lines_of_record > 1 and delimiter == "\t"
            if is_long and any("\t" in cell for cell in record):
                warnings.warn(
                    f"{where}: a quoted cell of data row {number - 1} holds {lines_of_record} "
                    "lines with tabs; if these are rows, a quote is not closed: close it or "
                    "double it",
                    stacklevel=2,
                )
            lines_of_record = 0
            number += 1
            yield record
    except csv.Error as e:
        raise DataError(f"{where}: data row {number - 1} is not valid CSV ({e}).") from None


@contextmanager
def _readable(path: Path, kind: str, *errors: type[Exception]) -> Generator[None]:
    """Turn the ``errors`` that a library raises for a file into a DataError of one line."""
    try:
        yield
    except DataError:
        raise
    except errors as e:
        raise DataError(
            f"{path}: not a readable {kind} file ({first_line(e).rstrip('.')}); save it again, or "
            "fetch it anew."
        ) from None


def _open_parquet(path: Path) -> Generator[list[str]]:
    """Yield the names of the columns of a Parquet file, then its rows, with "" for nulls."""
    with optional("pyarrow", "parquet"):
        import pyarrow as pa
        from pyarrow import compute, parquet
    untyped_parquet: Any = parquet
    untyped_compute: Any = compute
    _check_exists(path)
    with _readable(path, "Parquet", pa.ArrowException, OSError, UnicodeDecodeError):
        # dictionaries store a long text that occurs in many rows once
        schema = untyped_parquet.read_schema(path)
        names = [field.name for field in schema if pa.types.is_string(field.type)]
        with untyped_parquet.ParquetFile(path, read_dictionary=names) as table:
            _refuse_expanding(table.metadata, path)
            yield list(table.schema_arrow.names)
            # an error in one of pyarrow's threads would end the process
            for batch in table.iter_batches(batch_size=_ROWS_A_BATCH, use_threads=False):
                texts = [c.dictionary for c in batch.columns if hasattr(c, "dictionary")]
                texts = [text for text in texts if text.type == "string"]
                lengths = [untyped_compute.max(untyped_compute.binary_length(t)) for t in texts]
                longest = max((length.as_py() or 1 for length in lengths), default=1)
                if longest > _LONGEST_CELL:
                    raise DataError(
                        f"{path}: has a cell of {longest:,} bytes, and may have {_LONGEST_CELL:,}; "
                        "drop the column."
                    )
                step = max(1, min(_ROWS_A_BATCH, _DECODED // longest))
                for start in range(0, batch.num_rows, step):
                    columns = [_texts(column) for column in batch.slice(start, step).columns]
                    yield from map(list, zip(*columns, strict=True))


def _refuse_expanding(metadata: Any, path: Path) -> None:
    """Raise a DataError for a file with a row group that expands to far more than its size."""
    stored = path.stat().st_size
    for k in range(metadata.num_row_groups):
        # not the sizes of its columns, since reading that of a damaged column ends the process
        expanded = metadata.row_group(k).total_byte_size
        if expanded > max(_WHOLE_GROUP, _MOST_EXPANSION * stored):
            raise DataError(
                f"{path}: row group {k} expands from {stored:,} to {expanded:,} bytes, more than "
                f"{_MOST_EXPANSION} times; if you trust it, write it again in smaller row groups."
            )


def _texts(column: Any) -> list[str]:
    values = column.dictionary_decode() if hasattr(column, "dictionary") else column
    return [cell_text(value) for value in values.to_pylist()]


def _open_excel(path: Path, wanted: str | None) -> Generator[list[str]]:
    """Yield the names of the columns of a sheet, then its rows up to the last nonempty one."""
    with optional("openpyxl", "excel"):
        import openpyxl
    load: Any = openpyxl.load_workbook
    _check_exists(path)
    # zipfile, the XML parser and openpyxl raise many kinds of errors
    with _readable(path, "Excel", Exception), ExitStack() as opened:
        book = opened.enter_context(closing(load(path, read_only=True, data_only=True)))
        sheets = {sheet.title: sheet for sheet in book.worksheets}
        for sheet in sheets.values():
            sheet.reset_dimensions()  # rows beyond the dimensions in the file would be lost
        if not sheets:
            raise ValueError("it has no sheet of cells")
        if wanted is not None and wanted not in sheets:
            known = listed([*sheets])
            raise DataError(f"{path}: no sheet '{wanted}'; sheets: {known}.", option="sheet")
        filled = [name for name, sheet in sheets.items() if _has_cells(sheet)]
        filled = [name for name in filled if sheets[name].sheet_state == "visible"] or filled
        if wanted is None and len(filled) > 1:
            raise DataError(
                f"{path}: has {len(filled)} sheets: {listed(filled)}; choose one with "
                f"{setting('sheet')}.",
                option="sheet",
            )
        chosen = wanted or next(iter([*filled, *sheets]))
        width = blank = 0
        rows = sheets[chosen].iter_rows(values_only=True)
        if _has_formulas(path):
            with_formulas = opened.enter_context(closing(load(path, read_only=True)))[chosen]
            with_formulas.reset_dimensions()
            rows = _values_or_formulas(sheets[chosen], with_formulas)
        for values in rows:
            if all(value is None for value in values):
                blank += width > 0  # blank rows above the heading are ignored
                continue
            yield from repeat([""] * width, blank)
            row = [cell_text(value) for value in values]
            width = width or len(row)
            yield (row + [""] * width)[:width]  # cells beyond the headings are of no column
            blank = 0


def _has_formulas(path: Path) -> bool:
    """Return whether a workbook has formulas without values, much faster than by reading it."""
    with zipfile.ZipFile(path) as book:
        for name in book.namelist():
            if name.startswith("xl/worksheets/"):
                with book.open(name) as sheet:
                    end_of_last = b""
                    while block := sheet.read(1 << 20):
                        if _UNCOMPUTED.search(end_of_last + block):
                            return True
                        end_of_last = block[-1000:]
    return False


def _values_or_formulas(sheet: Any, with_formulas: Any) -> Generator[list[Any]]:
    """Yield the rows of a sheet, with formulas as text if no program has computed their values."""
    rows = zip(sheet.iter_rows(), with_formulas.iter_rows(values_only=True), strict=True)
    for cells, texts in rows:
        # a formula whose value is "" has the type "str"; a cell that is not in the file has no row
        yield [
            getattr(text, "text", text)
            if cell.value is None and cell.data_type == "n" and hasattr(cell, "row")
            else cell.value
            for cell, text in zip(cells, texts, strict=True)
        ]


def _has_cells(sheet: Any) -> bool:
    """Return whether one of the first rows of a sheet has a cell."""
    cells = chain.from_iterable(islice(sheet.iter_rows(values_only=True), _ROWS_LOOKED_AT))
    return any(value is not None for value in cells)


def cell_text(value: Any) -> str:
    """Return a value of a table as text, "" for a missing value."""
    if isinstance(value, str):
        return value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, float | np.floating | Decimal):
        return NumberText(value) if value == value else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
