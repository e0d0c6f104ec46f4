"""Embeddings written to a file: row i of the output is row i of the input, whatever its size."""

import csv
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.data.chunk import is_reject_list, write_rejects
from graphlog.domains import Input
from graphlog.downstream.encoder import Encoder
from graphlog.errors import ConfigError, MissingExtraError
from graphlog.files import scratch_folder, writing
from graphlog.inputs import InputLike, read_streamed, resolve
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

FORMATS = (".npz", ".parquet", ".csv")
REJECTS = "rejects.csv"
"""The list of rows that could not be used, beside what was made of the others."""
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
    """``rejects.csv`` beside the file; None where every row could be used."""


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
    """Write the embeddings of ``source`` to ``out``, whole or not at all, without holding them in memory.

    ``.npz`` holds ``embeddings`` (float32, one row an input row) and ``status``; ``.parquet`` one column
    ``embedding`` of lists and ``status``; ``.csv`` ``row``, ``status`` and one column a dimension.

    Args:
        encoder: What embeds.
        source: A path, the name of a data set, a store, or a list of SMILES.
        out: The file; its ending decides the format.
        layer: ``jk`` or ``last``; None takes the model's own.
        batch_size: Graphs a forward pass.
        precision: Format of matrix products.
        progress: Told of every batch.
        reading: Passed to ``read_molecules``.

    Raises:
        ConfigError: If the ending of ``out`` is unknown.
        DataError: If the source cannot be read.
    """
    found = resolve(source, encoder.schema)
    check_output(out, FORMATS, found)
    with read_streamed(found, encoder.schema, **reading) as store, scratch_folder(out) as folder:
        rows, total = store.output_rows, store.num_output_rows
        with writing(out):
            embeddings = _empty(folder / "embeddings.npy", total, encoder.width(layer))
            for graphs, values in encoder.embed_batches(
                store, layer, batch_size, precision=precision, progress=progress
            ):
                embeddings[rows[graphs]] = values
            status = store.output_status()
            finished = {".npz": _write_npz, ".parquet": _write_parquet, ".csv": _write_csv}[
                out.suffix
            ](folder, embeddings, status)
            rejects = save_rejects(out.parent, store.output_rejects)
            os.replace(finished, out)
        return Written(out, total, total - len(store), rejects)


def check_output(out: Path, formats: tuple[str, ...], source: Input | str | None = None) -> None:
    """Refuse an output file that could not or should not be written, before any work.

    Raises:
        ConfigError: If its ending is none of ``formats``, its folder does not exist, or it is a folder; if it is ``source`` itself, or
            a ``rejects.csv`` beside it is somebody else's.
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
    check_rejects(out.absolute().parent, source)
    if out.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError:
            raise MissingExtraError("pyarrow", "parquet") from None


def save_rejects(folder: Path, rejects: list[Any]) -> Path | None:
    """Write ``rejects.csv`` into ``folder`` if there are any, or to empty a list that is out of date; return it if there are any."""
    path = folder / REJECTS
    if rejects or path.exists():
        write_rejects(path, rejects)
    return path if rejects else None


def check_rejects(folder: Path, source: Input | str | None = None) -> None:
    """Refuse to write a list of rejected rows over ``source``, or over a file that is no such list.

    Raises:
        ConfigError: If there is one in ``folder``.
    """
    path = folder / REJECTS
    if not path.exists():
        return
    if _is_input(path, source):
        raise ConfigError(
            f"rejected rows would be listed in {path}, which is the input; rename it, or write elsewhere."
        )
    if not is_reject_list(path):
        raise ConfigError(
            f"rejected rows would be listed in {path}, which holds something else; rename it, or write elsewhere."
        )


def _is_input(path: Path, source: Input | str | None) -> bool:
    given = source.path if isinstance(source, Input) else None if source is None else Path(source)
    return given is not None and given.exists() and path.exists() and path.samefile(given)


def _empty(path: Path, rows: int, width: int) -> Float[np.ndarray, "M W"]:
    """Return a file of NaN as an array; written before it is mapped, for a disk that fills up under a mapped file kills the process."""
    missing = np.full((_ROWS_AT_ONCE, width), np.nan, dtype=np.float32)
    _write_npy(
        path,
        missing.dtype,
        (rows, width),
        (missing[: rows - start] for start in range(0, rows, _ROWS_AT_ONCE)),
    )
    return np.lib.format.open_memmap(path, mode="r+")


def _write_npy(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[np.ndarray]
) -> None:
    """Write an array of ``shape`` block by block."""
    with path.open("wb") as file:
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).tobytes())


def _write_npz(folder: Path, embeddings: np.ndarray, status: list[str]) -> Path:
    widest = max((len(text) for text in set(status)), default=2)
    blocks = (
        np.array(status[start : start + _ROWS_AT_ONCE])
        for start in range(0, len(status), _ROWS_AT_ONCE)
    )
    _write_npy(folder / "status.npy", np.dtype(f"<U{widest}"), (len(status),), blocks)
    path = folder / "out.npz"
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        archive.write(folder / "embeddings.npy", "embeddings.npy", zipfile.ZIP_STORED)
        archive.write(folder / "status.npy", "status.npy", zipfile.ZIP_DEFLATED)
    return path


def _write_parquet(folder: Path, embeddings: np.ndarray, status: list[str]) -> Path:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingImports]

    width = embeddings.shape[1]
    schema = pa.schema(
        [("row", pa.int64()), ("status", pa.string()), ("embedding", pa.list_(pa.float32(), width))]
    )
    path = folder / "out.parquet"
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, len(status), _ROWS_AT_ONCE):
            part = np.asarray(embeddings[start : start + _ROWS_AT_ONCE])
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), width)
            rows = pa.array(np.arange(start, start + len(part)))
            writer.write_table(
                pa.Table.from_arrays(
                    [rows, pa.array(status[start : start + len(part)]), vectors], schema=schema
                )
            )
    return path


def _write_csv(folder: Path, embeddings: np.ndarray, status: list[str]) -> Path:
    path = folder / "out.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "status", *(f"e{k}" for k in range(embeddings.shape[1]))])
        for row, (text, vector) in enumerate(zip(status, embeddings, strict=True)):
            values = [f"{v:.7g}" for v in vector.tolist()] if text == "ok" else [""] * len(vector)
            table.writerow([row, text, *values])
    return path
