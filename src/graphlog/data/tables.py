"""Tables as streams of rows: CSV, TSV, lists, Parquet, Excel, standard input, columns in memory."""

import csv
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.data.columns import SMILES, RecordColumn, Row, Table, distinct, listed
from graphlog.errors import DataError, MissingExtraError, setting
from graphlog.files import COMPRESSED, LONGEST_LINE, open_text

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
