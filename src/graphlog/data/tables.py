"""Molecule files as a stream of rows: CSV, TSV, SMILES lists, Parquet, standard input."""

import csv
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from graphlog.data.columns import (
    distinct,
    find_smiles_column,
    is_smiles_name,
    listed,
    repeated,
)
from graphlog.errors import DataError, MissingExtraError
from graphlog.files import COMPRESSED, LONGEST_LINE, open_text

ENDINGS = {
    **{".csv": ",", ".tsv": "\t", ".tab": "\t"},
    **dict.fromkeys((".smi", ".smiles", ".ism", ".can", ".cxsmiles", ".txt"), " "),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
"""Endings of molecule files and what parts their columns; each but Parquet may be followed by .gz or .zst."""
_NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "vertical bar"}
_ROWS_A_BATCH = 4096
_MOST_LINES = 1000
"""Lines of one CSV record; more mean that a quote was opened and never closed."""


class Row(NamedTuple):
    """One data row."""

    row: int
    """Number from 0; the header and wholly blank lines are not counted."""
    smiles: str
    """What stands in the SMILES column."""
    fields: Mapping[str, str]
    """All columns by name."""
    problem: str | None = None
    """Why the row cannot be used, where that shows before parsing."""


class Table:
    """An open table: its columns, and its rows once, in order."""

    def __init__(
        self, where: str, columns: Sequence[str], smiles_index: int, rows: Iterator[Row]
    ) -> None:
        self.where, self.columns, self._rows = where, distinct(columns), rows
        self.repeated = repeated(columns)
        self.smiles_column = self.columns[smiles_index]

    def __iter__(self) -> Iterator[Row]:
        """Return the rows; a table can be read once."""
        return self._rows


@contextmanager
def open_table(
    path: Path | str,
    smiles_column: str | None = None,
    header: Sequence[str] | None = None,
    delimiter: str | None = None,
) -> Generator[Table]:
    """Open a molecule file, or standard input for ``-``.

    Args:
        path: The file.
        smiles_column: Name of the SMILES column; None finds it.
        header: Names of the columns of a file that has no header line.
        delimiter: What parts the columns, where the ending of the file's name is wrong about it.

    Raises:
        DataError: If it cannot be read, is empty, or has no or more than one SMILES column.
    """
    where = "standard input" if str(path) == "-" else str(path)
    kind = delimiter or (None if str(path) == "-" else kind_of(Path(path)))
    if kind == "parquet":
        with open_parquet(Path(path)) as (columns, records):
            k = find_smiles_column(columns, smiles_column, where)
            names = distinct(columns)
            rows = (
                Row(n, values[k].strip(), dict(zip(names, values, strict=True)))
                for n, values in enumerate(records)
            )
            yield Table(where, columns, k, _not_empty(rows, where))
        return
    with open_text(path) as lines:
        first = next((line for line in lines if line.strip("\r\n\t ,;\0")), None)
        if first is None:
            raise DataError(f"{where}: is empty; it must hold at least one molecule.")
        kind = _kind_by_content(first, kind, smiles_column)
        everything = chain([first], lines)
        if kind == " ":
            yield _smiles_list(everything, where, smiles_column, header)
        else:
            yield _delimited(everything, where, kind, smiles_column, header)


def read_table(path: Path | str, smiles_column: str | None = None) -> Iterator[Row]:
    """Yield the rows of a molecule file; see :func:`open_table`."""
    with open_table(path, smiles_column) as table:
        yield from table


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
        raise DataError(f"no such file: {path}; check the path.")
    raise DataError(
        f"{path}: cannot tell what kind of file this is; name it {', '.join(ENDINGS)} (those of text also .gz or .zst)."
    )


def _kind_by_content(first: str, kind: str | None, wanted: str | None) -> str:
    """Settle what the name leaves open: a list of SMILES may turn out to be a table by the names in its first line."""
    if kind not in (None, " "):
        return kind
    for delimiter in (",", "\t", ";"):
        cells = [cell.strip().strip('"') for cell in first.split(delimiter)]
        if len(cells) > 1 and any(cell == wanted or is_smiles_name(cell) for cell in cells):
            return delimiter
    return " "


def _smiles_list(
    lines: Iterator[str], where: str, wanted: str | None, header: Sequence[str] | None
) -> Table:
    """Read lines of a SMILES and, after a blank, a name; a first line that is a heading is one."""
    first = next(lines)
    head = first.split()
    is_heading = header is None and (
        is_smiles_name(head[0]) or (wanted is not None and wanted in head)
    )
    columns = tuple(
        header
        or (head if is_heading and len(head) > 1 else (head[0] if is_heading else "smiles", "name"))
    )
    k = find_smiles_column(columns, wanted, where) if is_heading or wanted is not None else 0
    names = distinct(columns)
    rest = lines if is_heading else chain([first], lines)

    def rows() -> Iterator[Row]:
        number = 0
        for line in rest:
            if line.isspace():
                continue
            cells = line.rstrip("\r\n").split(None, len(columns) - 1)
            if len(cells) > 1 and cells[1].startswith("|") and k == 0:
                cells = _with_extension(line)
            smiles = cells[k].strip() if k < len(cells) else ""
            yield Row(
                number,
                smiles,
                dict(zip(names, cells + [""] * (len(columns) - len(cells)), strict=False)),
            )
            number += 1

    return Table(where, columns, k, _not_empty(rows(), where))


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
    lines: Iterator[str],
    where: str,
    delimiter: str,
    wanted: str | None,
    header: Sequence[str] | None,
) -> Table:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    records = _records(lines, where, delimiter)
    columns = list(header) if header is not None else [name.strip() for name in next(records)]
    while header is None and len(columns) > 1 and not columns[-1]:
        columns.pop()  # a comma at the end of every line
    _refuse_other_delimiter(columns, where, delimiter)
    k = find_smiles_column(columns, wanted, where)
    names = distinct(columns)

    def rows() -> Iterator[Row]:
        width = len(columns)
        for number, values in enumerate(records):
            if len(values) == width:
                yield Row(number, values[k].strip(), dict(zip(names, values, strict=True)))
            else:
                yield _ragged(number, values, names, k)

    return Table(where, columns, k, _not_empty(rows(), where))


def _records(lines: Iterator[str], where: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the records that are not blank lines."""
    taken = 0

    def counted() -> Iterator[str]:
        nonlocal taken
        for line in lines:
            taken += 1
            if taken > _MOST_LINES:
                raise DataError(
                    f"{where}: a quote opened in data row {number - 1} is never closed; close it or double it."
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


def _ragged(number: int, values: list[str], columns: Sequence[str], k: int) -> Row:
    """Return a row of another length than the header: usable if only empty cells are too many."""
    width = len(columns)
    fields = dict(zip(columns, values + [""] * (width - len(values)), strict=False))
    smiles = values[k].strip() if k < len(values) else ""
    if len(values) > width and not any(value.strip() for value in values[width:]):
        return Row(number, smiles, fields)
    return Row(number, smiles, fields, f"has {len(values)} cells where the header has {width}")


def _refuse_other_delimiter(columns: Sequence[str], where: str, delimiter: str) -> None:
    if len(columns) > 1:
        return
    for other, name in _NAMES.items():
        cells = [cell.strip().strip('"') for cell in columns[0].split(other)]
        if other != delimiter and len(cells) > 1:
            remedy = (
                "name it .tsv"
                if other == "\t"
                else "name it .csv"
                if other == ","
                else f"save it with {_NAMES[delimiter]}s"
            )
            raise DataError(
                f"{where}: its columns ({listed(cells)}) are parted by {name}s, not {_NAMES[delimiter]}s; {remedy}."
            )


def _not_empty(rows: Iterator[Row], where: str) -> Iterator[Row]:
    first = list(islice(rows, 1))
    if not first:
        raise DataError(f"{where}: has a header but no rows; it must hold at least one molecule.")
    yield from chain(first, rows)


@contextmanager
def open_parquet(path: Path) -> Generator[tuple[list[str], Iterator[list[str]]]]:
    """Give the columns and the rows of a Parquet file, a null as empty text.

    Raises:
        MissingExtraError: If pyarrow is not installed.
        DataError: If it cannot be read.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    library: Any = pq
    try:
        table = library.ParquetFile(path)
    except FileNotFoundError:
        raise DataError(f"no such file: {path}; check the path.") from None
    except (pa.ArrowException, OSError) as e:
        raise DataError(
            f"{path}: not a readable Parquet file ({str(e).splitlines()[0].rstrip('.')}); fetch or write it again."
        ) from None
    with table:
        yield list(table.schema_arrow.names), _rows(table, path, pa.ArrowException)


def _rows(table: Any, path: Path, failure: type[Exception]) -> Iterator[list[str]]:
    try:
        for batch in table.iter_batches(batch_size=_ROWS_A_BATCH):
            columns = [[_text(value) for value in column.to_pylist()] for column in batch.columns]
            yield from (list(row) for row in zip(*columns, strict=True))
    except (failure, OSError) as e:
        raise DataError(
            f"{path}: the Parquet data is damaged ({str(e).splitlines()[0]}); fetch it again."
        ) from None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
