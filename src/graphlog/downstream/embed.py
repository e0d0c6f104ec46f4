"""Files whose row i is row i of the input: embeddings, and what all such outputs share."""

import csv
import os
import zipfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.data.chunk import Reject, is_reject_list, rejects_owner, write_rejects
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore
from graphlog.domains import Input, domain_of
from graphlog.downstream.encoder import Encoder
from graphlog.errors import ConfigError, MissingExtraError
from graphlog.files import scratch_folder, writing
from graphlog.inputs import InputLike, read_streamed, rereadable, resolve
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

FORMATS = (".npz", ".parquet", ".csv")
REJECTS = "rejects.csv"
"""The list of rows that could not be used, beside the output."""
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for an input."""

    path: Path
    """The file."""
    rows: int
    """Rows of input and output."""
    rejected: int
    """Rows that could not be used: NaN or empty, with the reason in the status column."""
    rejects: Path | None
    """The list of them beside the file; None if every row could be used."""
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the columns are: width and layer of embeddings, or targets and task."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return {
            "output": str(self.path),
            "rows": self.rows,
            "rejected": self.rejected,
            **self.content,
            "rejects": None if self.rejects is None else str(self.rejects),
        }


@dataclass(frozen=True, slots=True, eq=False)
class OpenOutput:
    """An output file in progress, and the graphs that it is about."""

    store: GraphStore
    """The graphs of the input."""
    folder: Path
    """For unfinished files."""
    columns: Iterable[Mapping[str, str]]
    """The input's own columns, row by row; to be read once."""

    def aligned(
        self, values: np.ndarray, batches: Iterable[tuple[slice, np.ndarray]]
    ) -> np.ndarray:
        """Write the results of consecutive graphs into the rows of the input, and return all."""
        for graphs, results in batches:
            values[self.store.output_rows[graphs]] = results
        return values


@contextmanager
def open_output(
    source: InputLike, schema: FeatureSchema, out: Path, formats: tuple[str, ...], **reading: Any
) -> Generator[OpenOutput]:
    """Give the graphs of ``source``, to be written to ``out`` row for row.

    Standard input is copied to a temporary file, since it is read twice.

    Args:
        source: What to read.
        schema: Features the model reads.
        out: The output; checked before any work.
        formats: Endings that it may have.
        reading: Options of the reader.

    Raises:
        ConfigError: If ``out`` cannot or should not be written.
        DataError: If the source cannot be read.
    """
    given = resolve(source, schema)
    check_output(out, formats, given)
    with (
        rereadable(given) as found,
        read_streamed(found, schema, **reading) as store,
        scratch_folder(out) as folder,
        writing(out),
    ):
        yield OpenOutput(store, folder, domain_of(schema).rows(found, store, **reading))


def finish_output(output: OpenOutput, finished: Path, out: Path) -> Written:
    """Move a finished file into its place and list the rejected rows beside it."""
    store = output.store
    rejects = save_rejects(out.parent, store.output_rejects, out.name)
    os.replace(finished, out)
    total = store.num_output_rows
    return Written(out, total, total - len(store), rejects)


def embed_file(
    encoder: Encoder,
    source: InputLike,
    out: Path,
    *,
    layer: str | None = None,
    batch_size: int = 512,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    **reading: Any,
) -> Written:
    """Write the embeddings of ``source`` to ``out``, whole or not at all, in bounded memory.

    ``.npz`` holds ``embeddings`` (float32, one row per input row) and ``status``; ``.parquet`` and
    ``.csv`` hold ``row``, ``status``, the columns of the input, and a column ``embedding`` of
    lists, or one column ``e0``, ``e1``, ... per dimension.

    Args:
        encoder: What embeds.
        source: A path, the name of a data set, a store, or a list of SMILES.
        out: The file; its ending decides the format.
        layer: ``jk`` or ``last``; None takes the model's own.
        batch_size: Graphs per forward pass.
        precision: Format of matrix products.
        progress: Follows the batches.
        reading: Options of the reader (``smiles_column``, ``on_error``, ...).

    Raises:
        ConfigError: If the ending of ``out`` is unknown.
        DataError: If the source cannot be read.
    """
    with open_output(source, encoder.schema, out, FORMATS, **reading) as output:
        store, width = output.store, encoder.width(layer)
        embeddings = _empty(output.folder / "embeddings.npy", store.num_output_rows, width)
        output.aligned(
            embeddings,
            encoder.embed_batches(store, layer, batch_size, precision=precision, progress=progress),
        )
        write = {".npz": _write_npz, ".parquet": _write_parquet, ".csv": _write_csv}[out.suffix]
        written = finish_output(output, write(output, embeddings, store.output_status()), out)
        return replace(written, content={"width": width, "layer": layer or encoder.layer})


def check_output(out: Path, formats: tuple[str, ...], source: Input | str | None = None) -> None:
    """Refuse an output file that could not or should not be written, before any work.

    Raises:
        ConfigError: If its ending is none of ``formats``, its folder does not exist, it is a
            folder or ``source`` itself, or a ``rejects.csv`` beside it is no list of rejected rows.
        MissingExtraError: If its format needs a package that is not installed.
    """
    if out.suffix not in formats:
        raise ConfigError(
            f"cannot tell what format {out} is to have; let its name end in {', '.join(formats)}."
        )
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; name a file.")
    if not out.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no folder {out.absolute().parent}; make it, or choose another place."
        )
    if _is_input(out, source):
        raise ConfigError(
            f"{out} is the input itself and would be lost; name another file with -o."
        )
    check_rejects(out.absolute().parent, out.name, source)
    if out.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError:
            raise MissingExtraError("pyarrow", "parquet") from None


def rejects_of_output(folder: Path, output: str) -> Path:
    """Return where the rejected rows of ``output`` are listed.

    That is ``rejects.csv``, unless it lists those of another output in the same folder.
    """
    shared, own = folder / REJECTS, folder / f"{output}.{REJECTS}"
    if own.exists():
        return own
    foreign = is_reject_list(shared) and rejects_owner(shared) not in (None, output)
    return own if foreign else shared


def save_rejects(folder: Path, rejects: list[Reject], output: str) -> Path | None:
    """List the rejected rows of ``output``, or empty a list that is out of date.

    Returns:
        The list; None if no row was rejected.
    """
    path = rejects_of_output(folder, output)
    if rejects or path.exists():
        write_rejects(path, rejects, output)
    return path if rejects else None


def check_rejects(folder: Path, output: str, source: Input | str | None = None) -> None:
    """Refuse to list rejected rows of ``output`` in the input, or in a file that is no such list.

    Raises:
        ConfigError: If they would be.
    """
    path = rejects_of_output(folder, output)
    if not path.exists():
        return
    reason = None if is_reject_list(path) else "holds something else"
    if _is_input(path, source):
        reason = "is the input"
    if reason:
        raise ConfigError(
            f"rejected rows would be listed in {path}, which {reason}; rename it, or write "
            "elsewhere."
        )


def _is_input(path: Path, source: Input | str | None) -> bool:
    given = source.path if isinstance(source, Input) else None if source is None else Path(source)
    return given is not None and given.exists() and path.exists() and path.samefile(given)


def free_names(names: Iterable[str], taken: Iterable[str], prefix: str) -> list[str]:
    """Return ``names``, with ``prefix`` before those that are taken already."""
    used, free = set(taken), list[str]()
    for name in names:
        while name in used:
            name = f"{prefix}{name}"
        used.add(name)
        free.append(name)
    return free


def _empty(path: Path, rows: int, width: int) -> Float[np.ndarray, "M W"]:
    """Return a file of NaN as an array.

    It is written before it is mapped: a disk that fills up under a mapped file kills the process.
    """
    missing = np.full((_ROWS_AT_ONCE, width), np.nan, dtype=np.float32)
    blocks = (missing[: rows - start] for start in range(0, rows, _ROWS_AT_ONCE))
    _write_npy(path, missing.dtype, (rows, width), blocks)
    return np.lib.format.open_memmap(path, mode="r+")


def _write_npy(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[np.ndarray]
) -> None:
    """Write an array of ``shape`` block by block."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).tobytes())


def _write_npz(output: OpenOutput, embeddings: np.ndarray, status: list[str]) -> Path:
    widest = max((len(text) for text in set(status)), default=2)
    blocks = (
        np.array(status[start : start + _ROWS_AT_ONCE])
        for start in range(0, len(status), _ROWS_AT_ONCE)
    )
    folder = output.folder
    _write_npy(folder / "status.npy", np.dtype(f"<U{widest}"), (len(status),), blocks)
    path = folder / "out.npz"
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        archive.write(folder / "embeddings.npy", "embeddings.npy", zipfile.ZIP_STORED)
        archive.write(folder / "status.npy", "status.npy", zipfile.ZIP_DEFLATED)
    return path


def _write_parquet(output: OpenOutput, embeddings: np.ndarray, status: list[str]) -> Path:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingImports]

    width, records = embeddings.shape[1], iter(output.columns)
    first = next(records, {})
    own = [name for name in first if name != "row"]
    names = free_names(own, ("row", "status", "embedding"), "input_")
    schema = pa.schema(
        [
            ("row", pa.int64()),
            ("status", pa.string()),
            *((name, pa.string()) for name in names),
            ("embedding", pa.list_(pa.float32(), width)),
        ]
    )
    records, path = chain([first] if first else [], records), output.folder / "out.parquet"
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, len(status), _ROWS_AT_ONCE):
            part = np.asarray(embeddings[start : start + _ROWS_AT_ONCE])
            fields = list(islice(records, len(part)))
            columns = [
                pa.array(np.arange(start, start + len(part))),
                pa.array(status[start : start + len(part)]),
                *(pa.array([_storable(f[name]) for f in fields], pa.string()) for name in own),
                pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), width),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    return path


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _write_csv(output: OpenOutput, embeddings: np.ndarray, status: list[str]) -> Path:
    path = output.folder / "out.csv"
    with path.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        table = csv.writer(file)
        added = [f"e{k}" for k in range(embeddings.shape[1])]
        own: list[str] | None = None
        rows = zip(status, output.columns, embeddings, strict=True)
        for row, (text, fields, vector) in enumerate(rows):
            if own is None:
                own = [name for name in fields if name != "row"]
                names = free_names(own, ("row", "status", *added), "input_")
                table.writerow(["row", "status", *names, *added])
            values = [f"{v:.7g}" for v in vector.tolist()] if text == "ok" else [""] * len(vector)
            table.writerow([row, text, *(fields[name] for name in own), *values])
        if own is None:
            table.writerow(["row", "status", *added])
    return path
