"""Targets of classes: which they are, a column for each, and where their numbers mean nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from graphlog.data.store import GraphStore
from graphlog.errors import ConfigError, DataError, setting

MOST_CLASSES = 1000


def is_multiclass(task: str, store: GraphStore, targets: Sequence[str]) -> bool:
    """Return whether one target of several classes is to be learned."""
    if task == "multiclass" and len(targets) > 1:
        raise ConfigError(
            f"task 'multiclass' is for one target, found {len(targets)}; name it with "
            f"{setting('targets')}.",
            option="targets",
        )
    return task == "multiclass" or (
        task == "auto" and len(targets) == 1 and len(_classes(store).get(targets[0], ())) > 2
    )


def refuse_class_numbers(task: str, store: GraphStore, targets: Sequence[str]) -> None:
    """Refuse targets whose numbers only stand for classes where these are not what is predicted.

    Raises:
        DataError: If they would be quantities, or more than two classes would be two.
    """
    for name in targets:
        classes = list(map(str, _classes(store).get(name, ())))
        is_many = len(classes) > 2
        if task == "regression":  # classes called 0, 1, ... are the numbers of the input
            is_wrong = classes != [str(k) for k in range(len(classes))]
        else:
            is_wrong = is_many
        if is_wrong:
            count = f"{len(classes)} class{'es' if len(classes) > 1 else ''}"
            shown = ", ".join(classes[:3]) + (", ..." if len(classes) > 3 else "")
            wanted = "quantities" if task == "regression" else "two"
            choice = f"choose {setting('task', 'multiclass' if is_many else 'classification')}"
            alone = (
                f"name it alone with {setting('targets')}, and "
                if is_many and len(targets) > 1
                else ""
            )
            raise DataError(
                f"the labels of target '{name}' are {count} ({shown}), not {wanted}; "
                f"{alone}{choice}."
            )


def one_hot_classes(
    labels: Float[np.ndarray, "M 1"], targets: Sequence[str], store: GraphStore
) -> tuple[Float[np.ndarray, "M C"], tuple[str, ...]]:
    """Return a column per class, NaN in rows without one, and names such as ``label=4``.

    Raises:
        DataError: If the labels are no classes.
    """
    found = np.unique(labels[~np.isnan(labels)])
    if not np.array_equal(found, found.round()) or len(found) > MOST_CLASSES:
        raise DataError(
            f"target '{targets[0]}' holds quantities, not classes; choose "
            f"{setting('task', 'regression')}.",
            option="task",
        )
    if len(found) < 2:
        raise DataError(
            f"every label of target '{targets[0]}' is one class, or missing, so there is nothing "
            "to learn."
        )
    names = _classes(store).get(targets[0])
    columns = np.arange(len(names)) if names else found
    one_hot = (labels == columns).astype(np.float32)
    one_hot[np.isnan(labels[:, 0])] = np.nan
    return one_hot, tuple(f"{targets[0]}={names[int(c)] if names else f'{c:g}'}" for c in columns)


def class_numbers(labels: Float[np.ndarray, "M T"]) -> Int64[np.ndarray, "M"]:
    """Return a number for each row, equal where all labels are equal, missing ones included."""
    numbers = np.unique(np.nan_to_num(labels, nan=-1.0), axis=0, return_inverse=True)[1]
    return numbers.reshape(-1).astype(np.int64)


def _classes(store: GraphStore) -> dict[str, list[Any]]:
    return dict(store.source.get("classes", {}))
