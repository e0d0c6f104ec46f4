"""Targets that records carry by themselves, worked out once and kept beside the store."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float32

from graphlog.data.store import GraphStore
from graphlog.data.workers import available_workers, map_in_order
from graphlog.domains import DOMAINS
from graphlog.files import acquire_lock, beside
from graphlog.training.log import Progress

_LARGEST = 10.0
"""Standardised targets are clipped here: a few molecules of a million lie dozens of deviations out."""
_RECORDS_A_PIECE = 250


def with_targets(store: GraphStore, progress: Progress, run_dir: Path | None = None) -> GraphStore:
    """Return a view of the same graphs whose labels are the targets of their domain, standardised over the store.

    A column that never varies is 0. The raw values are kept in a file beside a store that is on disk, else in the folder of the run, under
    a name that depends on the content; what a killed process had worked out is not worked out again. The digest stays that of the graphs.

    Args:
        store: Graphs with their texts.
        progress: Follows the work where the targets are not there yet.
        run_dir: Folder of the run, for a store that is in memory.

    Raises:
        DataError: If the store was built without texts.
        ConfigError: If the domain has no targets.
    """
    whole = GraphStore(store.contents)
    domain = DOMAINS[store.schema.domain]
    wanted = (
        store if whole.path is None else whole
    )  # what is kept beside a store serves every view of it
    rows = np.arange(len(whole)) if wanted.indices is None else np.unique(wanted.indices)
    kept = _kept_at(wanted, [*domain.targets, domain.targets_version()], run_dir)
    values = _read(kept, (len(rows), len(domain.targets)))
    if values is None:
        values = _compute(whole.texts(rows), store.schema.domain, progress, kept)
    raw = values
    if len(rows) < len(whole):
        raw = np.full((len(whole), len(domain.targets)), np.nan, dtype=np.float32)
        raw[rows] = values
    arrays = {**store.contents.arrays, "labels": _standardised(raw, store.indices)}
    manifest = store.contents.manifest.model_copy(update={"tasks": domain.targets})
    return GraphStore(replace(store.contents, manifest=manifest, arrays=arrays), store.indices)


def _standardised(
    raw: Float32[np.ndarray, "M K"], indices: np.ndarray | None
) -> Float32[np.ndarray, "M K"]:
    """Return the columns with mean 0 and deviation 1 over the graphs that are trained on."""
    seen = (raw if indices is None else raw[indices]).astype(np.float64)
    known = ~np.isnan(seen)
    count = known.sum(axis=0).clip(min=1)
    mean = np.where(known, seen, 0.0).sum(axis=0) / count
    spread = np.sqrt((np.where(known, seen - mean, 0.0) ** 2).sum(axis=0) / count)
    scale = np.where(spread > 1e-6 * (1 + np.abs(mean)), spread, np.inf)
    return ((raw - mean) / scale).clip(-_LARGEST, _LARGEST).astype(np.float32)


def _compute(
    texts: Sequence[str], domain: str, progress: Progress, kept: Path | None
) -> Float32[np.ndarray, "M K"]:
    """Work out the targets of every record and keep them; go on where a process that was killed had got to."""
    names = DOMAINS[domain].targets
    values = np.empty((len(texts), len(names)), dtype=np.float32)
    with _growing(kept) as file:
        done = 0 if file is None else _take_over(file, values)
        progress.begin(len(texts), done)
        progress.stage(f"working out {len(names)} descriptors of {len(texts):,} records")
        try:
            pieces = (
                (start, texts[start : start + _RECORDS_A_PIECE])
                for start in range(done, len(texts), _RECORDS_A_PIECE)
            )
            for start, found in map_in_order(partial(_values, domain), pieces, available_workers()):
                values[start : start + len(found)] = found
                file = file if file is not None and _append(file, found) else None
                progress.advance(len(found))
        finally:
            progress.end()
        _write(kept, values)
    return values


@contextmanager
def _growing(kept: Path | None) -> Generator[BinaryIO | None]:
    """Give the file that grows until the values are whole; None where it cannot be written, or another process is at it."""
    if kept is None:
        yield None
        return
    path, file, lock = kept.with_suffix(".growing"), None, None
    with suppress(OSError):  # nothing can be kept here: computed again next time
        lock = acquire_lock(path)
        file = path.open("a+b", buffering=0) if lock is not None else None
    try:
        yield file
    finally:
        if file is not None:
            file.close()
        if lock is not None:
            if kept.exists():
                with suppress(OSError):
                    path.unlink()
            lock.release()


def _append(file: BinaryIO, values: np.ndarray) -> bool:
    """Write rows to the disk and return whether all arrived; after a part of them, no other row may follow."""
    try:
        whole = file.write(values.tobytes()) == values.nbytes
        os.fsync(file.fileno())
    except OSError:
        return False
    return whole


def _take_over(file: BinaryIO, values: Float32[np.ndarray, "M K"]) -> int:
    """Fill in the rows that the file holds, cut off what is not a whole row, and return their number."""
    file.seek(0)
    width = max(values.shape[1], 1)
    found = np.frombuffer(file.read(values.nbytes), dtype=np.uint8)
    rows = len(found) // (width * values.itemsize)
    values[:rows] = (
        found[: rows * width * values.itemsize].view(np.float32).reshape(rows, values.shape[1])
    )
    file.truncate(rows * width * values.itemsize)
    return rows


def _values(domain: str, texts: Sequence[str]) -> Float32[np.ndarray, "M K"]:
    return DOMAINS[domain].target_values(texts)


def _kept_at(store: GraphStore, what: Sequence[str], run_dir: Path | None) -> Path | None:
    key = sha256("\n".join([store.digest, *what]).encode()).hexdigest()[:16]
    if store.path is not None:
        whole = store.path.resolve()  # "." has no name
        return whole.with_name(f"{whole.name}.targets-{key}.npy")
    return None if run_dir is None else run_dir / f"targets-{key}.npy"


def _read(path: Path | None, shape: tuple[int, int]) -> Float32[np.ndarray, "M K"] | None:
    """Return what is in the file, or None where there is none or it is damaged."""
    try:
        found = None if path is None else np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None
    return (
        found
        if isinstance(found, np.ndarray) and found.shape == shape and found.dtype == np.float32
        else None
    )


def _write(path: Path | None, values: np.ndarray) -> None:
    """Keep the values; where the folder cannot be written to, they are worked out again next time."""
    if path is None:
        return
    with suppress(OSError), beside(path) as unfinished, unfinished.open("wb") as file:
        np.save(file, values, allow_pickle=False)
