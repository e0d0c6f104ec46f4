"""Graphs that occur more than once in labeled data: kept together, settled, and said."""

from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int64

from graphlog.data.chunk import ragged_ranges
from graphlog.data.columns import listed_rows
from graphlog.data.split import Split, group_numbers
from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.subtrees import same_structure
from graphlog.errors import DataError, setting

OnRepeats = Literal["keep", "mean", "drop", "fail"]
Kinds = Int64[np.ndarray, "M"]
"""A number for each graph, equal for graphs that repeat each other."""
_FOLDS = {"train": "training", "valid": "validation", "test": "test"}


@lru_cache(maxsize=1)
def repeat_kinds(store: GraphStore) -> Kinds | None:
    """Return which graphs repeat each other: those whose parents have one structure.

    None where attributes are measured: only categories are compared.
    """
    schema = store.schema
    if not all(column.is_categorical for column in (*schema.node, *schema.edge)):
        return None
    return same_structure(domain_of(schema).parents(store))


def with_repeats(split: Split, kinds: Kinds) -> Split:
    """Return folds of the first graphs of each kind as folds of all graphs.

    Args:
        split: Folds of the distinct kinds, by position among their first graphs.
        kinds: Of all graphs.

    Example:
        >>> split = Split(np.array([1]), np.array([2]), np.array([0]))
        >>> [fold.tolist() for fold in with_repeats(split, np.array([7, 7, 5, 6, 5]))]
        [[2, 4], [3], [0, 1]]
    """
    number = group_numbers(kinds.tolist())
    order = np.argsort(number, kind="stable")
    counts = np.bincount(number)
    starts = np.cumsum(counts) - counts
    return Split(*(order[ragged_ranges(starts[fold], counts[fold])] for fold in split))


def settle_repeats(
    labels: Float[np.ndarray, "M T"], store: GraphStore, how: OnRepeats, is_regression: bool
) -> tuple[Float[np.ndarray, "M T"], list[str]]:
    """Return labels of which only the first graph of each kind has any, and a note that says so.

    Args:
        labels: Labels, NaN where missing.
        store: The graphs.
        how: ``keep`` changes nothing; ``mean`` gives the first graph the mean of all labels, none
            where classes contradict each other; ``drop`` leaves the first its own; ``fail``
            refuses repeats.
        is_regression: Whether labels are quantities.

    Raises:
        DataError: If there are repeats and none may be.
    """
    kinds = None if how == "keep" else repeat_kinds(store)
    if kinds is None:
        return labels, []
    first, inverse, counts = np.unique(
        kinds, return_index=True, return_inverse=True, return_counts=True
    )[1:]
    is_repeat = first[inverse] != np.arange(len(kinds))
    if not is_repeat.any():
        return labels, []
    records = domain_of(store.schema).records
    if how == "fail":
        rows = store.rows[is_repeat]
        raise DataError(
            f"{len(rows):,} {records} repeat an earlier one (rows {listed_rows(rows)}): remove "
            f"them, or choose {setting('on_repeats', 'mean')} or {setting('on_repeats', 'drop')}.",
            option="on_repeats",
        )
    settled = labels.copy()
    if how == "mean":
        known = np.isfinite(labels)
        for column, is_known in zip(settled.T, known.T, strict=True):
            total = np.bincount(inverse, np.where(is_known, column, 0), len(counts))
            number = np.bincount(inverse, is_known, len(counts))
            with np.errstate(invalid="ignore"):
                mean = total / number
            if not is_regression:
                mean[(mean != 0) & (mean != 1)] = np.nan
            is_several = (counts > 1)[inverse]
            column[is_several] = mean[inverse][is_several]
    settled[is_repeat] = np.nan
    rule = "the mean of all labels" if how == "mean" else "the label of the first row"
    return settled, [
        f"{int(is_repeat.sum()):,} of {len(kinds):,} {records} repeat an earlier one and are left "
        f"out; {rule} stands for all"
    ]


def repeats_between(
    kinds: Kinds, labels: Float[np.ndarray, "M T"], split: Split
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return, for a fold and an earlier one, how many of its graphs repeat one there, of how many.

    Graphs without a label are not counted.
    """
    has_label = np.flatnonzero(np.isfinite(labels).any(axis=1))
    folds = {name: np.intersect1d(f, has_label) for name, f in split._asdict().items()}
    return {
        (later, earlier): (int(np.isin(kinds[folds[later]], kinds[folds[earlier]]).sum()), size)
        for earlier, later in combinations(folds, 2)
        if (size := len(folds[later]))
    }


def repeat_notes(store: GraphStore, labels: Float[np.ndarray, "M T"], split: Split) -> list[str]:
    """Return what a reader of scores must know about graphs that occur more than once."""
    kinds = repeat_kinds(store)
    if kinds is None:
        return []
    records = domain_of(store.schema).records
    effects = {
        ("valid", "train"): "intervals and what is chosen by validation are too good",
        ("test", "train"): f"scores are too good for new {records}",
        ("test", "valid"): "scores after a choice by validation are too good",
    }
    notes = [
        f"{known:,} of {size:,} {records} of the {_FOLDS[later]} fold repeat one of the "
        f"{_FOLDS[earlier]} fold: {effects[later, earlier]}; choose "
        f"{setting('on_repeats', 'mean')} or {setting('on_repeats', 'drop')}, or another split"
        for (later, earlier), (known, size) in repeats_between(kinds, labels, split).items()
        if known
    ]
    has_label = np.isfinite(labels).any(axis=1)
    counts = np.bincount(kinds[has_label], minlength=int(kinds.max(initial=-1)) + 1)
    repeated = int(counts[counts > 1].sum())
    if repeated:
        notes.append(
            f"{repeated:,} of {int(has_label.sum()):,} labeled {records} repeat each other "
            f"({int((counts > 1).sum()):,} structures)"
        )
    contradict = _contradicting(kinds, labels)
    if contradict.any():
        rows = store.rows[contradict[kinds] & has_label]
        notes.append(
            f"{int(contradict.sum()):,} structures occur more than once with different labels "
            f"(rows {listed_rows(rows)}); check these rows, or choose {setting('on_repeats')}"
        )
    return notes


def _contradicting(kinds: Kinds, labels: Float[np.ndarray, "M T"]) -> Bool[np.ndarray, "K"]:
    """Return which structures have two labels of one target that differ."""
    differs = np.zeros(int(kinds.max(initial=-1)) + 1, dtype=bool)
    for column in labels.T:
        known = ~np.isnan(column)
        lowest, highest = np.full(len(differs), np.inf), np.full(len(differs), -np.inf)
        np.minimum.at(lowest, kinds[known], column[known])
        np.maximum.at(highest, kinds[known], column[known])
        differs |= highest > lowest
    return differs
