"""Targets that records carry by themselves, worked out once and kept beside the store."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from graphlog.data.store import GraphStore
from graphlog.datasets.pool import available_workers, map_in_order
from graphlog.domains import DOMAINS
from graphlog.files import beside
from graphlog.training.log import Progress

_LARGEST = 10.0
"""Standardised targets are clipped here: a few molecules of a million lie dozens of deviations out."""
_RECORDS_A_PIECE = 250


def with_targets(store: GraphStore, progress: Progress) -> GraphStore:
    """Return a view of the same graphs whose labels are the targets of their domain, standardised over the store.

    A column that never varies is 0. The raw values are kept in a file beside a store that is on disk, under a name that depends on the
    store's content; the digest stays that of the graphs.

    Args:
        store: Graphs with their texts.
        progress: Is told when the targets have to be worked out.

    Raises:
        DataError: If the store was built without texts.
        ConfigError: If the domain has no targets.
    """
    whole = GraphStore(store.contents)
    domain = DOMAINS[store.schema.domain]
    kept = _kept_at(whole, domain.targets)
    raw = _read(kept, (len(whole), len(domain.targets)))
    if raw is None and kept is None:  # nowhere to keep them: only those of the view
        raw = np.full((len(whole), len(domain.targets)), np.nan, dtype=np.float32)
        rows = np.arange(len(whole)) if store.indices is None else np.unique(store.indices)
        raw[rows] = _compute(whole.texts(rows), store.schema.domain, progress)
    elif raw is None:
        raw = _compute(whole.texts(), store.schema.domain, progress)
        _write(kept, raw)
    arrays = {**store.contents.arrays, "labels": _standardised(raw, store.indices)}
    manifest = store.contents.manifest.model_copy(update={"tasks": domain.targets})
    return GraphStore(replace(store.contents, manifest=manifest, arrays=arrays), store.indices)


def _standardised(raw: Float32[np.ndarray, "M K"], indices: np.ndarray | None) -> Float32[np.ndarray, "M K"]:
    """Return the columns with mean 0 and deviation 1 over the graphs that are trained on."""
    seen = (raw if indices is None else raw[indices]).astype(np.float64)
    known = ~np.isnan(seen)
    count = known.sum(axis=0).clip(min=1)
    mean = np.where(known, seen, 0.0).sum(axis=0) / count
    spread = np.sqrt((np.where(known, seen - mean, 0.0) ** 2).sum(axis=0) / count)
    scale = np.where(spread > 1e-6 * (1 + np.abs(mean)), spread, np.inf)
    return ((raw - mean) / scale).clip(-_LARGEST, _LARGEST).astype(np.float32)


def _compute(texts: Sequence[str], domain: str, progress: Progress) -> Float32[np.ndarray, "M K"]:
    progress.stage(f"working out {len(DOMAINS[domain].targets)} descriptors of {len(texts):,} records")
    starts = range(0, len(texts), _RECORDS_A_PIECE)
    pieces = ((None, texts[start : start + _RECORDS_A_PIECE]) for start in starts)
    parts = [values for _, values in map_in_order(partial(_values, domain), pieces, available_workers())]
    return np.concatenate(parts) if parts else np.empty((0, len(DOMAINS[domain].targets)), np.float32)


def _values(domain: str, texts: Sequence[str]) -> Float32[np.ndarray, "M K"]:
    return DOMAINS[domain].target_values(texts)


def _kept_at(whole: GraphStore, names: Sequence[str]) -> Path | None:
    if whole.path is None:
        return None
    key = sha256("\n".join([whole.digest, *names]).encode()).hexdigest()[:16]
    return whole.path.with_name(f"{whole.path.name}.targets-{key}.npy")


def _read(path: Path | None, shape: tuple[int, int]) -> Float32[np.ndarray, "M K"] | None:
    """Return what is in the file, or None where there is none or it is damaged."""
    try:
        found = None if path is None else np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if isinstance(found, np.ndarray) and found.shape == shape and found.dtype == np.float32 else None


def _write(path: Path | None, values: np.ndarray) -> None:
    """Keep the values; where the folder cannot be written to, they are worked out again next time."""
    if path is None:
        return
    with suppress(OSError), beside(path) as unfinished, unfinished.open("wb") as file:
        np.save(file, values, allow_pickle=False)
