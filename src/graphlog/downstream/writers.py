"""Write files with one row per input row: the input's columns, the results, and a status."""

import json
import math
import os
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.data.graphs import (
    FeatureSchema,
    Reject,
    is_reject_list,
    rejects_of_output,
    save_rejects,
)
from graphlog.data.manifest import MANIFEST, is_store
from graphlog.domains import Input, domain_of
from graphlog.errors import ConfigError, optional, setting, unknown_name
from graphlog.files import (
    create_text,
    link_target,
    open_csv,
    put,
    scratch_folder,
    storable,
    writing,
)
from graphlog.inputs import Part, temporary_folder
from graphlog.training.runfolder import is_of_run

STATUS = "graphlog_status"
"""Name of the column that contains ``ok``, or the reason why a row could not be used."""
RESULT_PREFIX = "graphlog_"
"""Prefix for the name of a result if a column of the input already has this name."""
_ROWS_AT_ONCE = 4096
_WIDEST_COLUMN = 1 << 31
"""Maximum bytes of a text column in an ``.npz``, where every text is as wide as the longest."""

Fields = Mapping[str, str]
Records = Callable[[Iterable[tuple[str, Fields]]], Iterator[str]]
"""Function from the text and the data fields of every row to the SDF records."""


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Numbers for every row of an input, in parts."""

    parts: Iterable[tuple[Part, Float[np.ndarray, "M K"]]]
    """Parts of the input and their numbers, NaN where missing; an empty input has one part."""
    names: Sequence[str]
    """Names of the columns of numbers."""
    array: str
    """Name of the array of numbers in an ``.npz``: ``embeddings``, ``predictions``."""
    vector: str | None = None
    """Name of the single column of lists that replaces the columns in formats with lists; None
    writes the columns."""
    digits: int = 7
    """Number of significant digits in text formats."""
    records: Records | None = None
    """Function that makes SDF records; None for other formats."""
    input_columns: Sequence[str] = ()
    """Names of the columns of the input."""

    @property
    def dtype(self) -> str:
        """NumPy type of the numbers in binary files; predictions may be as large as labels."""
        return "<f4" if self.array == "embeddings" else "<f8"

    @property
    def added(self) -> list[str]:
        """Names of the added columns in formats with lists; the status is the last."""
        names = self.names if self.vector is None else [self.vector]
        return result_names([*names, STATUS], self.input_columns)

    def rows(self) -> Iterator[tuple[str, Fields, list[str], str]]:
        """Yield text, columns, numbers as text (empty if missing) and status of each row."""
        for part, values in self.parts:
            texts = part.texts() if self.records is not None else repeat("")
            rows = zip(texts, part.fields, values, part.status, strict=False)
            for text, fields, row, status in rows:
                cells = [f"{v:.{self.digits}g}" if math.isfinite(v) else "" for v in row.tolist()]
                yield text, fields, cells, status


def result_names(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return the names of added columns, which differ from those that are already ``taken``.

    Names without the prefix of results change together, so that a prediction and its interval keep
    matching names.

    Example:
        >>> result_names(["predicted_y", "predicted_y_low", "graphlog_status"], ["predicted_y"])
        ['graphlog_predicted_y', 'graphlog_predicted_y_low', 'graphlog_status']
    """
    plain = [name for name in names if not name.startswith(RESULT_PREFIX)]
    ends = chain([""], (f"_{number}" for number in count(2)))
    changes = chain([("", "")], ((RESULT_PREFIX, end) for end in ends))
    start, end = next((s, e) for s, e in changes if not {*taken} & {f"{s}{n}{e}" for n in plain})
    changed = {name: f"{start}{name}{end}" for name in plain}
    return free_names([changed.get(name, name) for name in names], taken)


def free_names(
    names: Iterable[str], taken: Iterable[str], prefix: str = RESULT_PREFIX
) -> list[str]:
    """Return ``names``, with ``prefix``, then a number, added to those that are already taken.

    Example:
        >>> free_names(["predicted_y", "graphlog_status"], ["predicted_y", "graphlog_status"])
        ['graphlog_predicted_y', 'graphlog_status_2']
    """
    used, free = set(taken), list[str]()
    for name in names:
        if name in used and not name.startswith(prefix):
            name = f"{prefix}{name}"
        numbered = (f"{name}_{number}" for number in count(2))
        name = next(free_name for free_name in chain([name], numbered) if free_name not in used)
        used.add(name)
        free.append(name)
    return free


def _csv(results: Results, folder: Path) -> Path:
    path = folder / "out.csv"
    with open_csv(path) as table:
        columns = results.input_columns
        table.writerow([*columns, *result_names([*results.names, STATUS], columns)])
        for _, fields, numbers, status in results.rows():
            table.writerow([*fields.values(), *numbers, status])
    return path


def _jsonl(results: Results, folder: Path) -> Path:
    path = folder / "out.jsonl"
    names = [json.dumps(name, ensure_ascii=False) for name in results.added]
    # a lone surrogate is escaped, as \ud800
    with create_text(path) as file:
        for _, fields, cells, status in results.rows():
            numbers = [text or "null" for text in cells]
            if results.vector is not None:
                numbers = [f"[{', '.join(numbers)}]" if "null" not in numbers else "null"]
            members = json.dumps(dict(fields), ensure_ascii=False)[1:-1]
            values = zip(names, [*numbers, json.dumps(status, ensure_ascii=False)], strict=True)
            pairs = [members, *(f"{name}: {value}" for name, value in values)]
            file.write(f"{{{', '.join(p for p in pairs if p)}}}\n")
    return path


def _parquet(results: Results, folder: Path) -> Path:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingImports]

    path, width = folder / "out.parquet", len(results.names)
    number = pa.from_numpy_dtype(np.dtype(results.dtype))
    # an embedding is one cell, predictions are columns
    kinds = [pa.list_(number, width)] if results.vector else [number] * width
    *names, status = results.added
    numbers = zip(names, kinds, strict=True)
    texts = [(name, pa.string()) for name in results.input_columns]
    schema = pa.schema([*texts, *numbers, (status, pa.string())])
    # pyarrow cannot open a path that is not UTF-8
    with path.open("wb") as file, pq.ParquetWriter(file, schema) as writer:
        for part, values in results.parts:
            values = np.ascontiguousarray(values, dtype=results.dtype)
            cells = (
                [pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)]
                if results.vector
                else [pa.array(column, from_pandas=True) for column in values.T]
            )
            inputs = [
                pa.array([storable(fields[name]) for fields in part.fields]) for name, _ in texts
            ]
            columns = [*inputs, *cells, pa.array(part.status, pa.string())]
            writer.write_table(pa.Table.from_arrays(columns, schema=writer.schema))
    return path


def _npy(results: Results, folder: Path) -> Path:
    path, width, rows = folder / "out.npy", len(results.names), 0
    header: dict[str, Any] = {"descr": results.dtype, "fortran_order": False}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, width)})
        for _, values in results.parts:
            file.write(np.ascontiguousarray(values, dtype=results.dtype).tobytes())
            rows += len(values)
        file.seek(0)  # the header keeps room for any number of rows
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, width)})
    return path


def _npz(results: Results, folder: Path) -> Path:
    """Write the numbers, the names of their columns, status and row, and the input's columns."""
    status, names = list[str](), results.input_columns
    columns = {name: _TextColumn(folder / f"column{k}") for k, name in enumerate(names)}

    def collected() -> Iterator[tuple[Part, np.ndarray]]:
        for part, values in results.parts:
            for name, column in columns.items():
                column.add([storable(fields[name]) for fields in part.fields])
            status.extend(part.status)
            yield part, values

    numbers = _npy(replace(results, parts=collected()), folder)
    if "row" in columns and columns["row"].is_count:  # the same as the array `row` below
        del columns["row"]
    for name, column in list(columns.items()):
        if column.width * 4 * len(status) > _WIDEST_COLUMN:
            warnings.warn(
                f"column '{name[:80]}' is left out of the .npz: its longest text has "
                f"{column.width:,} characters, and every row would be as wide; .parquet keeps it",
                stacklevel=2,
            )
            del columns[name]
    arrays: dict[str, np.ndarray] = {
        "names": np.array(results.names, np.str_),
        "status": np.array(status, np.str_),
        "row": np.arange(len(status)),
    }
    members = free_names(columns, [results.array, *arrays], "input_")
    path = folder / "out.npz"
    with zipfile.ZipFile(path, "w") as archive:
        add = partial(archive.open, mode="w", force_zip64=True)
        with numbers.open("rb") as source, add(_member(results.array)) as file:
            shutil.copyfileobj(source, file, 1 << 20)
        for name, values in arrays.items():
            with add(_member(name)) as file:
                np.lib.format.write_array(file, values, allow_pickle=False)
        for name, column in zip(members, columns.values(), strict=True):
            member = _member(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            with add(member) as file:
                header = {"descr": f"<U{column.width}", "fortran_order": False}
                np.lib.format.write_array_header_1_0(file, {**header, "shape": (len(status),)})
                for block in column.blocks():
                    file.write(block.tobytes())
    return path


def _member(name: str) -> zipfile.ZipInfo:
    """Return an archive member without a time, so that equal results give equal bytes."""
    return zipfile.ZipInfo(f"{name}.npy")


class _TextColumn:
    """A column of texts, stored in a file until the width of the longest text is known."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows = path, 0
        self.width, self.is_count = 1, True

    def add(self, texts: list[str]) -> None:
        self.width = max([self.width, *map(len, texts)])
        self.is_count &= texts == [str(k) for k in range(self._rows, self._rows + len(texts))]
        self._rows += len(texts)
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(text)}\n" for text in texts)

    def blocks(self) -> Iterator[np.ndarray]:
        with self._path.open(encoding="utf-8") as file:
            while lines := list(islice(file, _ROWS_AT_ONCE)):
                yield np.array([json.loads(line) for line in lines], dtype=f"<U{self.width}")


def _sdf(results: Results, folder: Path) -> Path:
    def rows() -> Iterator[tuple[str, Fields]]:
        names = results.added
        for text, fields, numbers, status in results.rows():
            cells = numbers if results.vector is None else [" ".join(numbers).strip()]
            yield text, {**fields, **dict(zip(names, [*cells, status], strict=True))}

    assert results.records is not None, "SDF needs a function that makes records"
    path = folder / "out.sdf"
    with create_text(path) as file:
        file.writelines(results.records(rows()))
    return path


WRITERS: Mapping[str, Callable[[Results, Path], Path]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "npz": _npz,
    "npy": _npy,
    "parquet": _parquet,
    "sdf": _sdf,
}
"""Function for each format (file ending) that writes results to a folder and returns the file."""
TEXTS = ("csv", "jsonl", "sdf")
"""Text formats, which may be written to standard output."""


@dataclass(frozen=True, slots=True)
class Written:
    """Summary of a written file or folder."""

    path: Path
    """The file or folder; ``-`` for standard output."""
    rows: int
    """Number of rows of the input and of the file."""
    rejected: int
    """Number of rows that could not be used; the status column contains the reasons."""
    rejects: Path | None
    """Path of the list of rejected rows, next to the file; None if there are none."""
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was written: width and layer of embeddings, targets and task, or prototypes."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return {
            "output": str(self.path),
            "rows": self.rows,
            "rejected": self.rejected,
            **self.content,
            "rejects": None if self.rejects is None else str(self.rejects),
        }


def write_aligned(
    results: Results, source: Input, schema: FeatureSchema, out: Path, format: str, **content: Any
) -> Written:
    """Write results to ``out``, completely or not at all, and list the rejected rows next to it.

    ``format`` is from :func:`choose_format`; ``content`` becomes :attr:`Written.content`.
    """
    rows, rejects, rejects_path, parts = 0, list[Reject](), None, iter(results.parts)

    def counted() -> Iterator[tuple[Part, np.ndarray]]:
        nonlocal rows
        for part, values in chain([first], parts):
            rows += len(part.status)
            rejects.extend(part.rejects)
            yield part, values

    is_stream = is_standard_output(out)
    records = domain_of(schema).sdf_writer(source) if format == "sdf" else None
    target = link_target(out)
    scratch: AbstractContextManager[Path] = (
        temporary_folder() if is_stream else scratch_folder(target)
    )
    with scratch as folder, writing(out):
        first = next(parts)
        columns = [*(first[0].fields[0] if first[0].fields else source.columns or ())]
        results = replace(results, parts=counted(), records=records, input_columns=columns)
        finished = WRITERS[format](results, folder)
        if is_stream:
            copy_to_standard_output(finished)
        else:
            rejects_path = save_rejects(out.parent, rejects, out.name)
            put(finished, target)
    return Written(out, rows, len(rejects), rejects_path, content)


def is_standard_output(out: Path) -> bool:
    """Return whether ``out`` is ``-``."""
    return str(out) == "-"


def check_standard_output() -> None:
    """Raise a ConfigError if standard output is closed."""
    # the command line replaces a closed stream by the null device
    is_replaced = sys.__stdout__ is None and getattr(sys.stdout, "name", "") == os.devnull
    if sys.stdout is None or is_replaced:
        raise ConfigError(
            f"standard output is closed; name a file with {setting('out')}.", option="out"
        )


def choose_format(out: Path, format: str | None = None, source: Input | str | None = None) -> str:
    """Return the format of an output file, after checking that the file may be written.

    Without a ``format``, the ending of the file decides; standard output is ``csv``.

    Raises:
        ConfigError: If the format is unknown, is not text and goes to standard output, or for a
            reason of :func:`check_output`.
        MissingExtraError: If the format needs a package that is not installed.
    """
    if is_stream := is_standard_output(out):
        check_standard_output()
    chosen = format or ("csv" if is_stream else out.suffix.removeprefix(".").lower())
    if chosen not in WRITERS and format is not None:
        raise unknown_name("format", format, WRITERS)
    if is_stream and chosen not in TEXTS:
        raise ConfigError(
            f"{chosen} is not text and cannot go to standard output; choose {', '.join(TEXTS)}, or "
            f"name a file with {setting('out')}.",
            option="out",
        )
    if not is_stream:
        endings = tuple(f".{name}" for name in WRITERS)
        check_output(out, endings if format is None else (out.suffix.lower(),), source)
    if chosen == "parquet":
        with optional("pyarrow", "parquet"):
            import pyarrow  # noqa: F401  # pyright: ignore[reportUnusedImport]
    return chosen


def check_output(out: Path, formats: tuple[str, ...], *sources: object) -> None:
    """Refuse an output file that cannot be written, or would replace something else.

    Raises:
        ConfigError: If its ending is none of ``formats``, its folder does not exist, it is a
            folder, a device, one of the ``sources`` that are read, a model or a file of a run,
            store or index, or a ``rejects.csv`` next to it is not a list of rejected rows.
    """
    if out.suffix.lower() not in formats:
        name = "standard output" if is_standard_output(out) else str(out)
        raise ConfigError(
            f"{name}: the ending of a file decides its format; name one that ends in "
            f"{' or '.join(formats)}.",
            option="out",
        )
    with writing(out):  # its name may be too long
        is_folder = out.is_dir()
    if is_folder:
        raise ConfigError(f"{out} is a folder; name a file.")
    target = link_target(out)
    if out.exists() and not out.is_file():
        raise ConfigError(
            f"{out} is a device or a pipe; name a file (- is standard output, where a command can "
            "write to it).",
            option="out",
        )
    if not target.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no folder {target.absolute().parent}; create it, or choose another one."
        )
    lost = None
    if _is_input(out, *sources):
        lost = "the input itself"
    elif out.exists() and (target.suffix.lower() == ".safetensors" or _is_of_folder(target)):
        lost = "a model or a file of a run, store or index"
    if lost is not None:
        raise ConfigError(
            f"{out} is {lost} and would be lost; name another file with {setting('out')}.",
            option="out",
        )
    check_rejects(out.absolute().parent, out.name, *sources)


def copy_to_standard_output(file: Path) -> None:
    """Copy a file to standard output."""
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)  # standard output of a notebook has no buffer
    if binary is None:
        with file.open(encoding="utf-8", newline="") as text:
            shutil.copyfileobj(text, sys.stdout)
        return
    with file.open("rb") as finished:
        shutil.copyfileobj(finished, binary)
    binary.flush()


def check_rejects(folder: Path, output: str, *sources: object) -> None:
    """Refuse an output whose list of rejected rows would replace an input or another file.

    Raises:
        ConfigError: If it would.
    """
    path = rejects_of_output(folder, output)
    if not path.exists():
        return
    reason = None if is_reject_list(path) else "holds something else"
    if _is_input(path, *sources):
        reason = "is the input"
    if reason:
        raise ConfigError(
            f"rejected rows would be listed in {path}, which {reason}; rename it, or write "
            "elsewhere."
        )


def _is_of_folder(file: Path) -> bool:
    """Return whether a file is part of a run, store or index."""
    folder = file.absolute().parent
    is_of_index = file.name == "vectors.npy" and (folder / "index.safetensors").is_file()
    return is_of_index or is_of_run(file) or (file.name == MANIFEST and is_store(folder))


def _is_input(path: Path, *sources: object) -> bool:
    """Return whether ``path`` is the file of one of the sources."""
    paths = (source.path if isinstance(source, Input) else source for source in sources)
    files = (Path(file) for file in paths if isinstance(file, str | os.PathLike))
    return path.exists() and any(file.exists() and path.samefile(file) for file in files)
