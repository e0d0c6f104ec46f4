"""One target of several classes, as one column a class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from graphlog.data.store import GraphStore
from graphlog.errors import ConfigError, DataError

MOST_CLASSES = 1000


def is_multiclass(task: str, store: GraphStore, targets: Sequence[str]) -> bool:
    """Return whether one target of several classes is to be learnt: asked for, or known from the labels' own names."""
    if task == "multiclass" and len(targets) > 1:
        raise ConfigError(
            f"task 'multiclass' is for one target, found {len(targets)}; name it with --targets."
        )
    return task == "multiclass" or (
        task == "auto" and len(targets) == 1 and len(_classes(store).get(targets[0], ())) > 2
    )


def one_hot_classes(
    labels: Float[np.ndarray, "M 1"], targets: Sequence[str], store: GraphStore
) -> tuple[Float[np.ndarray, "M C"], tuple[str, ...]]:
    """Return a column for each class, NaN in rows without one, and their names, such as ``label=4``.

    Raises:
        DataError: If the labels are no classes.
    """
    found = np.unique(labels[~np.isnan(labels)])
    if not np.array_equal(found, found.round()) or len(found) > MOST_CLASSES:
        raise DataError(
            f"target '{targets[0]}' holds quantities, not classes; choose --task regression."
        )
    if len(found) < 2:
        raise DataError(
            f"every label of target '{targets[0]}' is one class, or missing, so there is nothing to learn."
        )
    names = _classes(store).get(targets[0])
    columns = np.arange(len(names)) if names else found
    one_hot = (labels == columns).astype(np.float32)
    one_hot[np.isnan(labels[:, 0])] = np.nan
    return one_hot, tuple(f"{targets[0]}={names[int(c)] if names else f'{c:g}'}" for c in columns)


def class_numbers(labels: Float[np.ndarray, "M T"]) -> Int64[np.ndarray, "M"]:
    """Return a number for each row, equal where all labels are; missing ones are a value of their own."""
    return (
        np.unique(np.nan_to_num(labels, nan=-1.0), axis=0, return_inverse=True)[1]
        .reshape(-1)
        .astype(np.int64)
    )


def _classes(store: GraphStore) -> dict[str, list[Any]]:
    return dict(store.source.get("classes", {}))
