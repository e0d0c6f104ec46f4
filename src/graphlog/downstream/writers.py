"""Formats of row-aligned results: the columns of the input, what was worked out, and the status."""

import json
import math
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.files import open_csv

STATUS = "graphlog_status"
"""Column that says what became of a row: ``ok``, or why it could not be used."""
OWN_PREFIX = "graphlog_"
"""Before the name of a result that a column of the input already has."""
_ROWS_AT_ONCE = 4096
_WIDEST_COLUMN = 1 << 31
"""Bytes of a column of texts in an ``.npz``, where every text is as wide as the longest."""

Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Numbers worked out for every row of an input."""

    values: Float[np.ndarray, "M K"]
    """One row a row of the input; NaN where there is none."""
    names: list[str]
    """Names of the columns."""
    status: list[str]
    """``ok``, or why a row could not be used."""
    array: str
    """Name of ``values`` in an ``.npz``: ``embeddings``, ``predictions``."""
    vector: str | None = None
    """Name of the one cell that holds a row's values where a cell may hold a list."""
    digits: int = 7
    """Significant digits of a number in a text."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns where a cell may hold a list."""
        return self.names if self.vector is None else [self.vector]

    def shown(self, row: np.ndarray) -> list[str]:
        """Return the numbers of a row as text; empty where there is none."""
        return [f"{v:.{self.digits}g}" if math.isfinite(v) else "" for v in row.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Destination:
    """What a writer is given beside the results."""

    folder: Path
    """For the finished file and what it is made of."""
    fields: Callable[[], Iterable[Fields]]
    """Returns the columns of the input, row by row; may be called again."""
    records: Callable[[Iterable[Fields]], Iterator[str]] | None = None
    """Makes the SDF record of every row of its data fields; None unless SDF is written."""


def free_names(names: Iterable[str], taken: Iterable[str], prefix: str = OWN_PREFIX) -> list[str]:
    """Return ``names``, with ``prefix`` before those that are taken already.

    Example:
        >>> free_names(["predicted_y", "graphlog_status"], ["smiles", "predicted_y"])
        ['graphlog_predicted_y', 'graphlog_status']
    """
    used, free = set(taken), list[str]()
    for name in names:
        while name in used:
            name = f"{prefix}{name}"
        used.add(name)
        free.append(name)
    return free


def write_npy(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[np.ndarray]
) -> None:
    """Write an array of ``shape`` block by block."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).tobytes())


def _rows(results: Results, to: Destination) -> Iterator[tuple[Fields, np.ndarray, str]]:
    yield from zip(to.fields(), results.values, results.status, strict=True)


def _blocks(values: Any) -> Iterator[Any]:
    for start in range(0, len(values), _ROWS_AT_ONCE):
        yield values[start : start + _ROWS_AT_ONCE]


def _csv(results: Results, to: Destination) -> Path:
    path, added = to.folder / "out.csv", [*results.names, STATUS]
    with open_csv(path) as table:
        number = -1
        for number, (fields, values, status) in enumerate(_rows(results, to)):
            if number == 0:
                table.writerow([*fields, *free_names(added, fields)])
            table.writerow([*fields.values(), *results.shown(values), status])
        if number < 0:
            table.writerow(added)
    return path


def _jsonl(results: Results, to: Destination) -> Path:
    path, names = to.folder / "out.jsonl", list[str]()
    added = [*results.columns, STATUS]
    # a lone surrogate is written as \ud800, which is what JSON calls it
    with path.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        for number, (fields, values, status) in enumerate(_rows(results, to)):
            if number == 0:
                names = [json.dumps(n, ensure_ascii=False) for n in free_names(added, fields)]
            numbers = [text or "null" for text in results.shown(values)]
            if results.vector is not None:
                numbers = [f"[{', '.join(numbers)}]" if "null" not in numbers else "null"]
            own = json.dumps(dict(fields), ensure_ascii=False)[1:-1]
            cells = zip(names, [*numbers, json.dumps(status, ensure_ascii=False)], strict=True)
            pairs = [own, *(f"{name}: {cell}" for name, cell in cells)]
            file.write(f"{{{', '.join(p for p in pairs if p)}}}\n")
    return path


def _parquet(results: Results, to: Destination) -> Path:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingImports]

    width = results.values.shape[1]
    records = iter(to.fields())
    part = list(islice(records, _ROWS_AT_ONCE))
    own = list(part[0]) if part else []
    # an embedding is one cell of float32, predictions are columns
    kinds = [pa.list_(pa.float32(), width)] if results.vector else [pa.float32()] * width
    names = free_names([*results.columns, STATUS], own)
    schema = pa.schema(
        [
            *((name, pa.string()) for name in own),
            *zip(names[:-1], kinds, strict=True),
            (names[-1], pa.string()),
        ]
    )
    path, start = to.folder / "out.parquet", 0
    with pq.ParquetWriter(path, schema) as writer:
        while part:
            rows = slice(start, start + len(part))
            values = np.ascontiguousarray(results.values[rows], dtype=np.float32)
            cells = (
                [pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)]
                if results.vector
                else [pa.array(column, from_pandas=True) for column in values.T]
            )
            texts = ([_storable(fields[name]) for fields in part] for name in own)
            columns = [*texts, *cells, pa.array(results.status[rows], pa.string())]
            writer.write_table(pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema))
            start, part = rows.stop, list(islice(records, _ROWS_AT_ONCE))
    return path


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _npy(results: Results, to: Destination) -> Path:
    path, values = to.folder / "out.npy", results.values
    write_npy(path, np.dtype(np.float32), values.shape, _blocks(values))
    return path


def _npz(results: Results, to: Destination) -> Path:
    """Write the array, the names of its columns, status and row, and the columns of the input."""
    folder, rows = to.folder, len(results.status)
    widths, is_number = dict[str, int](), True
    for row, fields in enumerate(to.fields()):
        is_number &= fields.get("row") == str(row)
        for name, text in fields.items():
            widths[name] = max(widths.get(name, 1), len(_storable(text)))
    if is_number:  # the column `row` of a list or store says nothing new
        widths.pop("row", None)
    kept = [name for name, width in widths.items() if width * 4 * rows <= _WIDEST_COLUMN]
    for name in widths.keys() - kept:
        warnings.warn(
            f"column '{name[:80]}' is left out of the .npz: its longest text has {widths[name]:,} "
            "characters, and every row would be as wide; .parquet keeps it",
            stacklevel=2,
        )
    fixed = [results.array, "names", "status", "row"]
    members = dict(zip(kept, free_names(kept, fixed, "input_"), strict=True))
    files = {name: folder / f"column{k}.npy" for k, name in enumerate(kept)}
    for name, file in files.items():
        write_npy(file, np.dtype(f"<U{widths[name]}"), (rows,), ())
    records = iter(to.fields())
    while part := list(islice(records, _ROWS_AT_ONCE)):
        for name, file in files.items():
            with file.open("ab") as column:
                texts = [_storable(fields[name]) for fields in part]
                column.write(np.array(texts, dtype=f"<U{widths[name]}").tobytes())
    status = np.array(results.status or [], dtype=np.str_)
    arrays = {"names": np.array(results.names, dtype=np.str_), "status": status}
    path = folder / "out.npz"
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        _add(archive, f"{results.array}.npy", _npy(results, to), zipfile.ZIP_STORED)
        for name, array in {**arrays, "row": np.arange(rows)}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        for name, file in files.items():
            _add(archive, f"{members[name]}.npy", file, zipfile.ZIP_DEFLATED)
    return path


def _add(archive: zipfile.ZipFile, name: str, file: Path, packing: int) -> None:
    """Add a file without its time, so that the same rows give the same bytes."""
    member = zipfile.ZipInfo(name)
    member.compress_type = packing
    with file.open("rb") as source, archive.open(member, "w", force_zip64=True) as packed:
        shutil.copyfileobj(source, packed, 1 << 20)


def _sdf(results: Results, to: Destination) -> Path:
    added = [*results.columns, STATUS]

    def rows() -> Iterator[Fields]:
        names = list[str]()
        for fields, values, status in _rows(results, to):
            names = names or free_names(added, fields)
            cells = results.shown(values)
            cells = cells if results.vector is None else [" ".join(cells).strip()]
            yield {**fields, **dict(zip(names, [*cells, status], strict=True))}

    path = to.folder / "out.sdf"
    with path.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        for record in to.records(rows()) if to.records is not None else ():
            file.write(record)
    return path


WRITERS: Mapping[str, Callable[[Results, Destination], Path]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "npz": _npz,
    "npy": _npy,
    "parquet": _parquet,
    "sdf": _sdf,
}
"""Every format by the ending of its files."""
TEXTS = ("csv", "jsonl", "sdf")
"""Formats that may go to standard output."""
