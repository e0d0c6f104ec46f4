"""Targets to predict in pre-training: descriptors, counts of substructures, or given vectors."""

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Float32, Int, Real

from graphlog.data.store import GraphStore
from graphlog.data.workers import available_workers, map_in_order
from graphlog.domains import DOMAINS
from graphlog.encoders.modelfile import read_tensors, write_tensors
from graphlog.errors import DataError, ModelFileError
from graphlog.objectives.base import COMPONENTS
from graphlog.training.log import Progress

_CLIP = 6.0
"""Largest absolute value of standardized targets; larger ones, which are rare, are clipped."""
_TAIL = 0.001
"""Share of the values at each end that are clipped before mean and scale are computed."""
_SAMPLE = 100_000
"""Largest number of records, evenly spaced, used for mean and standard deviation."""
_RULE = f"tail {_TAIL}, sample {_SAMPLE}, clip {_CLIP}"
"""Part of the cache key: files written with other rules are not used."""
_MAX_INPUT = 1e150
"""Largest absolute value of given vectors, so that squares are finite in float64."""
_MAX_FLOAT16 = float(np.finfo(np.float16).max)
_COLUMNS_PER_BLOCK = 16
_SVD_SAMPLE = 30_000
"""Largest number of records used to compute the principal components."""
_COMPONENT_RULE = f"sample {_SVD_SAMPLE}, components {COMPONENTS}, clip {_CLIP}"
_RECORDS_PER_TASK = 250
_NPZ_ERRORS = (
    *(OSError, ValueError, AttributeError, EOFError),
    *(BadZipFile, zlib.error, NotImplementedError),  # unknown compression, or damaged
)
"""Errors of NumPy when it reads a file that is not an ``.npz`` file, or a damaged one."""


def check_texts(store: GraphStore, substructures: bool, descriptors: bool = True) -> None:
    """Check that a store has the texts needed to compute descriptors or substructures.

    Raises:
        DataError: If it was built without them.
    """
    domain = DOMAINS[store.schema.domain]
    from_texts = descriptors and domain.graph_targets(store.subset(np.arange(0))) is None
    if store.has_texts or not (substructures or from_texts):
        return
    name = "texts (SMILES)" if domain.name == "molecule" else "texts"
    raise DataError(
        f"this store was built without its {name}, from which its targets are computed; build it "
        "again with them kept."
    )


def read_vectors(path: Path, store: GraphStore) -> Float16[np.ndarray, "M K"]:
    """Return the standardized vectors in a file, one row for each graph of a store.

    The file is written by :func:`graphlog.embed_file`, or is any ``.npz`` file with one array of
    two dimensions. If another array contains the texts of graphs (SMILES), vectors are assigned to
    graphs by text, else by the row of the input; also by row if reading has standardized the graphs
    and most known texts are in the rows of their graphs. NaN is an unknown value. A column whose
    variation is not larger than rounding errors becomes 0.

    Raises:
        DataError: If the file cannot be read or has no such array, if values are infinite, too
            large or all unknown, or if a graph has no vector.
    """

    def refused(problem: str) -> DataError:
        return DataError(f"{path}: {problem}", file=path)

    try:
        with path.open("rb") as file:
            if not is_zipfile(file):  # numpy would suggest to unpickle it
                raise BadZipFile
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
    except _NPZ_ERRORS as e:
        reason = getattr(e, "strerror", None) or "no .npz of plain arrays, or a damaged one"
        raise refused(f"{reason.lower()}; write one with `graphlog embed`.") from None
    tables = [a for a in arrays.values() if a.ndim == 2 and a.dtype.kind in "fiu"]
    if len(tables) != 1 or 0 in tables[0].shape:
        shapes = ", ".join(f"{k} {a.shape}" for k, a in arrays.items()) or "nothing"
        raise refused(
            "needs one array of numbers with a row for each row of the input and a column for each "
            f"target, found {shapes}."
        )
    vectors = tables[0]
    # compare in float64, since the limit is not representable in float32
    if (large := (np.abs(vectors) > np.array([_MAX_INPUT])).any(axis=1)).any():
        raise refused(f"row {large.argmax()} has a value that is infinite or beyond 1e150.")
    texts = [a for a in arrays.values() if a.dtype.kind == "U" and a.shape == vectors.shape[:1]]
    try:
        rows = _rows_of(store, len(vectors), texts)
    except DataError as e:
        raise refused(f"{e}; give one for each row of the input, NaN where unknown.") from None
    targets = _standardized(vectors[rows])
    if not np.nan_to_num(targets).any():
        raise refused("no column varies by more than its rounding, so there is nothing to predict.")
    return targets


def _rows_of(store: GraphStore, size: int, columns: Sequence[np.ndarray]) -> Int[np.ndarray, "M"]:
    """Return the row of each graph in a file of ``size`` rows that has these columns of texts."""
    import pandas as pd

    rows = store.output_rows
    texts = pd.Series(store.texts() if store.has_texts else [None] * len(store), dtype=object)
    stripped = [pd.Series(np.char.strip(column), dtype=object) for column in columns]
    column = max(stripped, key=lambda c: texts.isin(c).sum(), default=pd.Series(dtype=object))
    known = texts.isin(column)
    in_same_row = (column.reindex(rows).to_numpy() == texts.to_numpy()) & known
    has_all_rows = size == store.num_output_rows
    # the file has texts before standardization, which changed only some of them
    is_aligned = has_all_rows and 2 * in_same_row.sum() > known.sum()
    if not known.any() or (store.source.standardize and is_aligned):
        if not has_all_rows:
            raise DataError(f"{size:,} vectors for {store.num_output_rows:,} rows")
        return rows
    ambiguous = ~in_same_row & texts.isin(column[column.duplicated()])
    for wrong, problem in ((~known, "no vector"), (ambiguous, "several vectors")):
        if wrong.any():
            graph = int(wrong.argmax())
            raise DataError(f"{problem} for {texts[graph][:80]!r} (row {rows[graph]})")
    unique = column.drop_duplicates()
    return np.where(in_same_row, rows, unique.index[pd.Index(unique).get_indexer(pd.Index(texts))])


def targets_of(
    store: GraphStore,
    progress: Progress,
    run_dir: Path | None = None,
    substructures: bool = False,
    vectors: Float16[np.ndarray, "M K"] | None = None,
) -> Float16[np.ndarray, "M K"]:
    """Return the standardized targets of the graphs of a store, one row each.

    A constant column becomes 0. The values before standardization are cached as float16 in a file
    next to a store on disk, else in the run folder. The name of the file depends on the graphs, the
    names of the targets, the code that computes them and the settings of the standardization.

    Args:
        store: Graphs, with texts unless their domain needs none (:func:`check_texts`).
        progress: Display for the computation of targets that are not cached.
        run_dir: Run folder, for a store that is in memory.
        substructures: Whether to append :data:`COMPONENTS` columns: the whitened principal
            components of the counts of substructures.
        vectors: Standardized vectors of :func:`read_vectors`, which replace the descriptors.
    """
    whole, domain = GraphStore(store.contents), DOMAINS[store.schema.domain]
    used = np.arange(len(whole)) if store.indices is None else np.unique(store.indices)
    # a cache next to a store contains all its graphs, so that every subset can use it
    rows = used if whole.path is None else np.arange(len(whole))
    version = domain.targets_version()

    def cached(width: int, about: Sequence[str], compute: Callable[[], np.ndarray]) -> np.ndarray:
        digest = store.digest if whole.path is None else whole.digest
        key = sha256("\n".join([digest, *about]).encode()).hexdigest()[:16]
        path = None if run_dir is None else run_dir / f"targets-{key}.safetensors"
        if whole.path is not None:
            resolved = whole.path.resolve()  # "." has no name
            path = resolved.with_name(f"{resolved.name}.targets-{key}.safetensors")
        values = _cached(path, key, (len(rows), width), compute)
        return values if len(rows) == len(used) else values[used]

    def map_records(function: Callable[[str, Sequence[str]], Any], work: str) -> list[Any]:
        texts, starts = whole.texts(rows), range(0, len(rows), _RECORDS_PER_TASK)
        tasks = ((None, texts[start : start + _RECORDS_PER_TASK]) for start in starts)
        parts: list[Any] = []
        with progress.shown(len(rows), f"{work} of {len(rows):,} records"):
            for _, part in map_in_order(partial(function, domain.name), tasks, available_workers()):
                parts.append(part)
                progress.advance(part.shape[0])
        return parts

    def descriptors() -> np.ndarray:
        values = domain.graph_targets(whole.subset(rows))
        if values is not None:
            return _as_float16(values)
        parts = map_records(_descriptors, f"computing {len(domain.targets)} descriptors")
        return np.concatenate([np.empty((0, len(domain.targets)), np.float16), *parts])

    def components() -> np.ndarray:
        return _components(map_records(_substructure_counts, "counting substructures"))

    computed: list[np.ndarray] = []
    if vectors is None:
        about = [*domain.targets, version, _RULE]
        computed.append(_standardized(cached(len(domain.targets), about, descriptors)))
    if substructures:
        about = ["substructures", version, _COMPONENT_RULE]
        computed.append(cached(COMPONENTS, about, components))
    if store.indices is not None:
        computed = [values[np.searchsorted(used, store.indices)] for values in computed]
    columns = computed if vectors is None else [vectors, *computed]
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _descriptors(domain: str, texts: Sequence[str]) -> Float16[np.ndarray, "M K"]:
    return _as_float16(DOMAINS[domain].target_values(texts))


def _substructure_counts(domain: str, texts: Sequence[str]) -> Any:
    return DOMAINS[domain].substructure_counts(texts)


def _components(counts: list[Any]) -> Float16[np.ndarray, "M 256"]:
    """Return principal components of log counts of substructures with variance 1, clipped.

    They are computed from an evenly spaced sample. If there are fewer than :data:`COMPONENTS`, the
    other columns are 0.
    """
    from scipy.sparse import vstack
    from sklearn.utils.extmath import randomized_svd

    table: Any = vstack(counts, format="csr")
    total = table.shape[0]
    sample = table[np.linspace(0, total - 1, min(total, _SVD_SAMPLE)).astype(np.int64)]
    width = min(COMPONENTS, sample.shape[0] - 1, sample.shape[1] - 1)
    out = np.zeros((total, COMPONENTS), dtype=np.float16)
    if width < 1:
        return out
    svd: Any = randomized_svd  # its type annotations are wrong
    axes = svd(sample, width, n_iter=4, random_state=0)[2].T
    projected = sample @ axes
    # rotate to the principal axes of the centered counts: the decomposition did not center them
    variances, rotation = np.linalg.eigh(np.atleast_2d(np.cov(projected.T)))
    variances, axes = variances[::-1], axes @ rotation[:, ::-1]
    mean = projected.mean(axis=0) @ rotation[:, ::-1]
    is_used = variances > 1e-6 * max(float(variances[0]), 1e-12)
    scale = np.sqrt(np.where(is_used, variances, np.inf))
    for start in range(0, total, _SVD_SAMPLE):
        values = (table[start : start + _SVD_SAMPLE] @ axes - mean) / scale
        out[start : start + _SVD_SAMPLE, :width] = values.clip(-_CLIP, _CLIP)
    return out


def _standardized(raw: Real[np.ndarray, "M K"]) -> Float16[np.ndarray, "M K"]:
    """Return the columns scaled to mean 0 and standard deviation 1, and clipped.

    Both are computed after clipping the lowest and highest thousandth of the values, so that
    outliers have little influence. If a column, such as the count of a rare fragment, is then
    constant, both are computed from all values.
    """
    sample = np.linspace(0, len(raw) - 1, min(len(raw), _SAMPLE)).astype(np.int64)
    out = np.zeros(raw.shape, dtype=np.float16)
    for start in range(0, raw.shape[1], _COLUMNS_PER_BLOCK):
        columns = slice(start, start + _COLUMNS_PER_BLOCK)
        mean, scale = _statistics(raw[sample, columns])
        out[:, columns] = ((raw[:, columns] - mean) / scale).clip(-_CLIP, _CLIP)
    return out


def _statistics(
    raw: Real[np.ndarray, "S K"],
) -> tuple[Float[np.ndarray, "K"], Float[np.ndarray, "K"]]:
    """Return mean and standard deviation of each column; inf replaces that of a constant column."""
    # values that differ in float16 differ by more than rounding errors: use the noise of float32
    kind = np.promote_types(raw.dtype, np.float32) if raw.dtype.kind == "f" else np.float64
    noise = 8 * float(np.finfo(kind).eps)
    values = raw.astype(np.float64)
    values = np.where(np.isnan(values).all(axis=0), 0.0, values)
    low, high = np.nanquantile(values, (_TAIL, 1 - _TAIL), axis=0)
    clipped = np.clip(values, low, high)
    clipped = np.where(_varies(clipped, noise), clipped, values)
    scale = np.where(_varies(clipped, noise), np.nanstd(clipped, axis=0), np.inf)
    return np.nanmean(clipped, axis=0), scale


def _varies(values: Float[np.ndarray, "S K"], noise: float) -> Bool[np.ndarray, "K"]:
    return np.nanstd(values, axis=0) > noise * np.nanmax(np.abs(values), axis=0)


def _as_float16(values: Float32[np.ndarray, "M K"]) -> Float16[np.ndarray, "M K"]:
    return values.clip(-_MAX_FLOAT16, _MAX_FLOAT16).astype(np.float16)


def _cached(
    path: Path | None,
    key: str,
    shape: tuple[int, int],
    compute: Callable[[], Float16[np.ndarray, "M K"]],
) -> Float16[np.ndarray, "M K"]:
    """Return the values in the file; if there is none, compute them and try to write it."""
    if path is None:
        return compute()
    if path.is_file():
        with suppress(ModelFileError, KeyError):
            about, tensors = read_tensors(path, "targets")
            values = tensors["values"].numpy()
            # the file may have been copied from another store
            if about["key"] == key and values.shape == shape and values.dtype == np.float16:
                return values
    values = compute()
    with suppress(OSError):
        write_tensors(path, "targets", {"key": key}, {"values": torch.from_numpy(values)})
    return values
