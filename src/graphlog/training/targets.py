"""Targets that records carry by themselves, computed once and kept beside the store."""

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

_LARGEST = 6.0
"""Standardized targets are clipped here; a few molecules lie dozens of deviations out."""
_TAIL = 0.001
"""Share of the values at either end that have no say in how far out they are themselves."""
_SAMPLE = 100_000
"""Records that mean and deviation are taken from, evenly spaced."""
_RULE = f"tail {_TAIL}, sample {_SAMPLE}, clip {_LARGEST}"
"""Statistics of the standardization: what is kept under another rule is not used."""
_LARGEST_GIVEN = 1e150
_LARGEST_KEPT = float(np.finfo(np.float16).max)
_COLUMNS_AT_ONCE = 16
_SVD_SAMPLE = 30_000
"""Records that the components are found on."""
_COMPONENT_RULE = f"sample {_SVD_SAMPLE}, components {COMPONENTS}, clip {_LARGEST}"
_RECORDS_A_PIECE = 250
_UNREADABLE = (
    *(OSError, ValueError, AttributeError, EOFError),
    *(BadZipFile, zlib.error, NotImplementedError),  # of another compression, or damaged
)
"""What reading an ``.npz`` raises that is none."""


def check_texts(store: GraphStore, substructures: bool, descriptors: bool = True) -> None:
    """Check that a store has the texts that descriptors, or substructures, are computed from.

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
    """Return the standardized vectors of a file, a row for each graph of a store.

    The file is one that :func:`graphlog.embed_file` writes, or any ``.npz`` with one array of two
    dimensions. Where an array of texts holds those of the graphs (their SMILES), vectors belong to
    graphs by them, else by the row of the input. NaN is an unknown value; a column that never
    varies by more than the noise of a computation in its number format becomes 0.

    Raises:
        DataError: If the file cannot be read, has no such array, infinite, huge or no known values,
            or no vector for a graph.
    """

    def refused(problem: str) -> DataError:
        return DataError(f"{path}: {problem}", file=path)

    try:
        with path.open("rb") as file:
            if not is_zipfile(file):  # numpy would advise to unpickle it
                raise BadZipFile
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
    except _UNREADABLE as e:
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
    # compared in float64, in which squares up to there are finite
    if (large := (np.abs(vectors) > np.array([_LARGEST_GIVEN])).any(axis=1)).any():
        raise refused(f"row {large.argmax()} has a value that is infinite or beyond 1e150.")
    texts = [a for a in arrays.values() if a.dtype.kind == "U" and a.shape == vectors.shape[:1]]
    try:
        rows = _rows_of(store, len(vectors), texts)
    except DataError as e:
        raise refused(f"{e}; give one for each row of the input, NaN where unknown.") from None
    found = _standardized(vectors[rows])
    if not np.nan_to_num(found).any():
        raise refused("no column varies by more than its rounding, so there is nothing to predict.")
    return found


def _rows_of(store: GraphStore, size: int, columns: Sequence[np.ndarray]) -> Int[np.ndarray, "M"]:
    """Return the row of each graph in a file of ``size`` rows with these columns of texts."""
    import pandas as pd

    rows = store.output_rows
    own = pd.Series(store.texts() if store.has_texts else [], dtype=object)
    texts = [pd.Series(np.char.strip(column), dtype=object) for column in columns]  # as read
    column = max(texts, key=lambda column: own.isin(column).sum(), default=pd.Series(dtype=object))
    known = own.isin(column)
    if not known.any():  # other texts, such as those before standardization
        if size != store.num_output_rows:
            raise DataError(f"{size:,} vectors for {store.num_output_rows:,} rows")
        return rows
    in_place = (column.reindex(rows).to_numpy() == own.to_numpy()) & known
    twice = ~in_place & own.isin(column[column.duplicated()])
    for problem, what in ((~known, "no vector"), (twice, "several vectors")):
        if problem.any():
            graph = int(problem.argmax())
            raise DataError(f"{what} for {own[graph][:80]!r} (row {rows[graph]})")
    once = column.drop_duplicates()
    return np.where(in_place, rows, once.index[pd.Index(once).get_indexer(pd.Index(own))])


def targets_of(
    store: GraphStore,
    progress: Progress,
    run_dir: Path | None = None,
    substructures: bool = False,
    given: Float16[np.ndarray, "M K"] | None = None,
) -> Float16[np.ndarray, "M K"]:
    """Return the standardized targets of the graphs of a store, a row each.

    A column that never varies is 0. The raw values are kept, two bytes each, in a file beside a
    store that is on disk, else in the folder of the run. Its name depends on the graphs, the names
    of the targets, the code that computes them and how they are standardized.

    Args:
        store: Graphs, with their texts unless their domain needs none (:func:`check_texts`).
        progress: Follows the work where the targets are not there yet.
        run_dir: Folder of the run, for a store that is in memory.
        substructures: Whether :data:`COMPONENTS` further columns follow: the whitened principal
            components of the counts of substructures.
        given: Standardized vectors in place of the descriptors, from :func:`read_vectors`.
    """
    whole, domain = GraphStore(store.contents), DOMAINS[store.schema.domain]
    seen = np.arange(len(whole)) if store.indices is None else np.unique(store.indices)
    # what is kept beside a store serves every view of it
    rows = seen if whole.path is None else np.arange(len(whole))
    version = domain.targets_version()

    def kept(width: int, what: Sequence[str], compute: Callable[[], np.ndarray]) -> np.ndarray:
        digest = store.digest if whole.path is None else whole.digest
        key = sha256("\n".join([digest, *what]).encode()).hexdigest()[:16]
        path = None if run_dir is None else run_dir / f"targets-{key}.safetensors"
        if whole.path is not None:
            beside = whole.path.resolve()  # "." has no name
            path = beside.with_name(f"{beside.name}.targets-{key}.safetensors")
        values = _kept(path, key, (len(rows), width), compute)
        return values if len(rows) == len(seen) else values[seen]

    def of_records(find: Callable[[str, Sequence[str]], Any], work: str) -> list[Any]:
        texts, starts = whole.texts(rows), range(0, len(rows), _RECORDS_A_PIECE)
        pieces = ((None, texts[start : start + _RECORDS_A_PIECE]) for start in starts)
        found: list[Any] = []
        with progress.shown(len(rows), f"{work} of {len(rows):,} records"):
            for _, each in map_in_order(partial(find, domain.name), pieces, available_workers()):
                found.append(each)
                progress.advance(each.shape[0])
        return found

    def descriptors() -> np.ndarray:
        found = domain.graph_targets(whole.subset(rows))
        if found is not None:
            return _stored(found)
        parts = of_records(_values, f"computing {len(domain.targets)} descriptors")
        return np.concatenate([np.empty((0, len(domain.targets)), np.float16), *parts])

    def components() -> np.ndarray:
        return _components(of_records(_counts, "counting substructures"))

    columns: list[np.ndarray] = []
    if given is None:
        what = [*domain.targets, version, _RULE]
        columns.append(_standardized(kept(len(domain.targets), what, descriptors)))
    if substructures:
        what = ["substructures", version, _COMPONENT_RULE]
        columns.append(kept(COMPONENTS, what, components))
    if store.indices is not None:
        columns = [found[np.searchsorted(seen, store.indices)] for found in columns]
    columns = columns if given is None else [given, *columns]
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _values(domain: str, texts: Sequence[str]) -> Float16[np.ndarray, "M K"]:
    return _stored(DOMAINS[domain].target_values(texts))


def _counts(domain: str, texts: Sequence[str]) -> Any:
    return DOMAINS[domain].substructure_counts(texts)


def _components(counts: list[Any]) -> Float16[np.ndarray, "M 256"]:
    """Return principal components of log counts of substructures, each with variance 1, clipped.

    They are found on a sample, evenly spaced; fewer than :data:`COMPONENTS`, as few records have,
    are followed by zeros.
    """
    from scipy.sparse import vstack
    from sklearn.utils.extmath import randomized_svd

    every: Any = vstack(counts, format="csr")
    total = every.shape[0]
    sample = every[np.linspace(0, total - 1, min(total, _SVD_SAMPLE)).astype(np.int64)]
    width = min(COMPONENTS, sample.shape[0] - 1, sample.shape[1] - 1)
    out = np.zeros((total, COMPONENTS), dtype=np.float16)
    if width < 1:
        return out
    find: Any = randomized_svd  # its signature is mistyped
    axes = find(sample, width, n_iter=4, random_state=0)[2].T
    seen = sample @ axes
    # the axes are not those of the centered counts
    sizes, turn = np.linalg.eigh(np.atleast_2d(np.cov(seen.T)))
    sizes, axes = sizes[::-1], axes @ turn[:, ::-1]
    mean = seen.mean(axis=0) @ turn[:, ::-1]
    scale = np.sqrt(np.where(sizes > 1e-6 * max(float(sizes[0]), 1e-12), sizes, np.inf))
    for start in range(0, total, _SVD_SAMPLE):
        shown = (every[start : start + _SVD_SAMPLE] @ axes - mean) / scale
        out[start : start + _SVD_SAMPLE, :width] = shown.clip(-_LARGEST, _LARGEST)
    return out


def _standardized(raw: Real[np.ndarray, "M K"]) -> Float16[np.ndarray, "M K"]:
    """Return the columns with mean 0 and deviation 1, clipped.

    Both are those of the values between the outermost thousandths, so that a few outliers do not
    squeeze all others together; of all values where nothing varies in between, as with a rare
    fragment.
    """
    sample = np.linspace(0, len(raw) - 1, min(len(raw), _SAMPLE)).astype(np.int64)
    out = np.zeros(raw.shape, dtype=np.float16)
    for start in range(0, raw.shape[1], _COLUMNS_AT_ONCE):
        columns = slice(start, start + _COLUMNS_AT_ONCE)
        mean, scale = _statistics(raw[sample, columns])
        out[:, columns] = ((raw[:, columns] - mean) / scale).clip(-_LARGEST, _LARGEST)
    return out


def _statistics(
    raw: Real[np.ndarray, "S K"],
) -> tuple[Float[np.ndarray, "K"], Float[np.ndarray, "K"]]:
    """Return mean and deviation of each column; the deviation is infinite where it never varies."""
    # two numbers of 16 bits that differ do not by the noise of a computation
    kind = np.promote_types(raw.dtype, np.float32) if raw.dtype.kind == "f" else np.float64
    noise = 8 * float(np.finfo(kind).eps)
    seen = raw.astype(np.float64)
    seen = np.where(np.isnan(seen).all(axis=0), 0.0, seen)
    low, high = np.nanquantile(seen, (_TAIL, 1 - _TAIL), axis=0)
    inner = np.clip(seen, low, high)
    inner = np.where(_varies(inner, noise), inner, seen)
    deviation = np.where(_varies(inner, noise), np.nanstd(inner, axis=0), np.inf)
    return np.nanmean(inner, axis=0), deviation


def _varies(values: Float[np.ndarray, "S K"], noise: float) -> Bool[np.ndarray, "K"]:
    return np.nanstd(values, axis=0) > noise * np.nanmax(np.abs(values), axis=0)


def _stored(values: Float32[np.ndarray, "M K"]) -> Float16[np.ndarray, "M K"]:
    return values.clip(-_LARGEST_KEPT, _LARGEST_KEPT).astype(np.float16)


def _kept(
    path: Path | None,
    key: str,
    shape: tuple[int, int],
    compute: Callable[[], Float16[np.ndarray, "M K"]],
) -> Float16[np.ndarray, "M K"]:
    """Return what is in the file; else compute it and keep it, where the folder allows that."""
    if path is None:
        return compute()
    if path.is_file():
        with suppress(ModelFileError, KeyError):
            about, tensors = read_tensors(path, "targets")
            values = tensors["values"].numpy()
            # a file of another store may have been given this name
            if about["key"] == key and values.shape == shape and values.dtype == np.float16:
                return values
    values = compute()
    with suppress(OSError):
        write_tensors(path, "targets", {"key": key}, {"values": torch.from_numpy(values)})
    return values
