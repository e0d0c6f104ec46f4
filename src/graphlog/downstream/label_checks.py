"""Checks of labels before training: unusual values, and graphs that occur more than once."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from graphlog.data.graphs import ragged_ranges
from graphlog.data.split import Split, group_numbers
from graphlog.data.store import GraphStore
from graphlog.data.tables import listed_rows
from graphlog.domains import domain_of
from graphlog.domains.repeats import Kinds, repeat_kinds
from graphlog.downstream.metrics import TaskKind
from graphlog.errors import ConfigError, DataError, out_of_range, setting

_MIN_LABELS = 10
"""Smallest number of labels that are checked for unusual values."""
_FARTHEST = 10.0
"""Robust standard deviations from the median beyond which a value is unusual."""
_STAND_INS = tuple(sign * (10.0**k - 1) for k in range(2, 7) for sign in (-1, 1))
"""99, 999, ... and their negatives, which programs write for missing values."""
_BETWEEN_MODES = 0.85
"""Smallest share of the variance of logarithms that is between two groups, if these are two modes;
0.64 for a normal and 0.75 for a uniform distribution."""


def drop_outside_range(
    labels: Float[np.ndarray, "M T"],
    names: Sequence[str],
    rows: Int[np.ndarray, "M"],
    labels_range: Sequence[float],
) -> tuple[Float[np.ndarray, "M T"], list[str]]:
    """Return labels, NaN outside a range, and a note for each target with labels outside of it."""
    if len(labels_range) != 2 or not labels_range[0] < labels_range[1]:
        raise out_of_range("labels_range", "the lowest and the highest label", labels_range)
    low, high = labels_range
    outside = (labels < low) | (labels > high)
    notes = [
        f"target '{name}': {_counted(column)} outside {low:g} to {high:g} and left out "
        f"(rows {listed_rows(rows[column])})"
        for name, column in zip(names, outside.T, strict=True)
        if column.any()
    ]
    return np.where(outside, np.nan, labels), notes


def unusual_labels(
    labels: Float[np.ndarray, "M T"], names: Sequence[str], rows: Int[np.ndarray, "M"]
) -> list[str]:
    """Return a note for each target with values that look wrong, with their rows."""
    notes: list[str] = []
    for name, column in zip(names, labels.T, strict=True):
        known = np.flatnonzero(np.isfinite(column))
        if len(known) < _MIN_LABELS:
            continue
        if found := _unusual(column[known], rows[known]):
            advice = f"check them; {setting('labels_range')} leaves out what is outside a range"
            notes.append(f"target '{name}': {'; '.join(found)}: {advice}")
    return notes


def _unusual(values: Float[np.ndarray, "n"], rows: Int[np.ndarray, "n"]) -> list[str]:
    found: list[str] = []
    is_real = np.ones(len(values), dtype=bool)
    for value in (*_STAND_INS, -1.0):
        here = values == value
        count, fewest = int(here.sum()), 2 if value == -1 else 1  # a single -1 is a number
        if count >= fewest and _stands_out(value, values[~here]):
            is_real &= ~here
            times = "once" if count == 1 else f"{count:,} times"
            found.append(
                f"{value:g} occurs {times} (rows {listed_rows(rows[here])}) and may stand for a "
                "missing value"
            )
    values, rows = values[is_real], rows[is_real]
    if not len(values):
        return found
    distances = np.abs(values - np.median(values))
    # if half of the values are equal, such as the limit of an assay, the others show the spread
    spread = distances if np.median(distances) else distances[distances > 0]
    farthest = _FARTHEST * 1.4826 * float(np.median(spread)) if len(spread) else 0.0
    is_far = distances > farthest
    if note := _second_unit(values):
        found.append(note)
    elif is_far.any():
        examples = ", ".join(f"{v:g}" for v in values[is_far][:3])
        found.append(
            f"{_counted(is_far)} more than {_FARTHEST:g} robust standard deviations from the "
            f"median {np.median(values):g} (rows {listed_rows(rows[is_far])}, e.g. {examples})"
        )
    return found


def _counted(chosen: Bool[np.ndarray, "n"]) -> str:
    count = int(chosen.sum())
    return f"{count:,} value is" if count == 1 else f"{count:,} values are"


def _stands_out(value: float, others: Float[np.ndarray, "n"]) -> bool:
    """Return whether a value is far outside the others, or is -1 and no other is negative."""
    if not len(others):
        return False
    low, high = float(others.min()), float(others.max())
    if value == -1:
        return low >= 0
    gap = low - value if value < 0 else value - high
    return gap > high - low


def _second_unit(values: Float[np.ndarray, "n"]) -> str | None:
    """Return a note if the base-10 logarithms have two modes that are about 3 apart, else None."""
    logs = np.sort(np.log10(np.abs(values[values != 0])))
    count = len(logs)
    if count < _MIN_LABELS or not logs.var():
        return None
    first = np.arange(1, count)
    means = np.cumsum(logs)[:-1] / first
    above = (logs.sum() - means * first) / (count - first)
    between = first * (count - first) * (above - means) ** 2 / count**2
    cut = int(between.argmax())
    apart = float(np.median(logs[cut + 1 :]) - np.median(logs[: cut + 1]))
    smaller = min(cut + 1, count - cut - 1)
    if between[cut] < _BETWEEN_MODES * logs.var() or smaller < 3 or not 2.5 <= apart <= 3.5:
        return None
    low, high = (10 ** np.median(part) for part in np.split(logs, [cut + 1]))
    return (
        f"{cut + 1:,} values are around {low:.3g} and {count - cut - 1:,} around {high:.3g}, a "
        "factor of about 1,000 apart, as if in two units"
    )


OnRepeats = Literal["keep", "mean", "drop", "fail"]
SET_NAMES = {"train": "training", "valid": "validation", "test": "test"}


def with_repeats(split: Split, kinds: Kinds) -> Split:
    """Return a split of all graphs from a split of their kinds, numbered in order of appearance.

    Example:
        >>> split = Split(np.array([1]), np.array([2]), np.array([0]))
        >>> [part.tolist() for part in with_repeats(split, np.array([7, 7, 5, 6, 5]))]
        [[2, 4], [3], [0, 1]]
    """
    number = group_numbers(kinds.tolist())
    order = np.argsort(number, kind="stable")
    counts = np.bincount(number)
    starts = np.cumsum(counts) - counts
    return Split(*(order[ragged_ranges(starts[part], counts[part])] for part in split))


def merge_repeats(
    labels: Float[np.ndarray, "M T"],
    store: GraphStore,
    how: OnRepeats,
    task: TaskKind,
    weights: Float[np.ndarray, "M"] | None = None,
) -> tuple[Float[np.ndarray, "M T"], Float[np.ndarray, "M"] | None, list[str]]:
    """Return labels that only the first graph of each kind has, their weights, and notes.

    Each graph must have a label. With ``mean``, the first graph has the mean label of each target,
    which is missing if classes contradict each other, and the sum of the weights of its kind, even
    of graphs without a label of that target. With ``drop``, it has the first known label of each
    target and the first weight. Graphs of weight 0 are ignored if others of their kind have a
    weight. See ``open_labeled``.

    Raises:
        DataError: If ``how`` is ``fail`` and there are repeats, or no label is left.
        ConfigError: If the graphs' domain does not define repeats.
    """
    import pandas as pd  # slow to import

    kinds, records = repeat_kinds(store), domain_of(store.schema).records
    if kinds is None:
        raise ConfigError(
            f"{records} of one structure are no repeats; leave {setting('on_repeats')} out.",
            option="on_repeats",
        )
    if not (is_repeat := np.asarray(pd.Series(kinds).duplicated())).any():
        return labels, weights, []
    if how == "fail":
        rows = store.rows[is_repeat]
        raise DataError(
            f"{len(rows):,} {records} repeat an earlier one (rows {listed_rows(rows)}): remove "
            f"them, or choose {setting('on_repeats', 'mean')} or {setting('on_repeats', 'drop')}.",
            option="on_repeats",
        )

    def of_kind(values: np.ndarray, which: Literal["max", "sum", "first"]) -> np.ndarray:
        return pd.DataFrame(values).groupby(kinds).transform(which).to_numpy(copy=True)

    is_several = np.asarray(pd.Series(kinds).duplicated(keep=False))
    given = np.ones((len(kinds), 1)) if weights is None else weights[:, None].astype(np.float64)
    counts = (given > 0) | (of_kind(given, "max") == 0)
    known, notes = np.where(counts, labels, np.nan), list[str]()
    if how == "mean":
        rule = "the mean of all labels" if weights is None else "the weighted mean of all labels"
        shares = np.where(given > 0, given, 1.0) * np.isfinite(known)
        total = of_kind(shares, "sum")
        merged = of_kind(shares * np.nan_to_num(known), "sum") / np.where(total > 0, total, np.nan)
        if task != "regression":
            differ = (merged > 0) & (merged < 1)
            if task == "multiclass":  # all columns belong to one target
                differ |= differ.any(axis=1, keepdims=True)
            merged[differ] = np.nan
            contradict = differ.any(axis=1)
            if count := int((contradict & ~is_repeat).sum()):
                have = "structures have" if count > 1 else "structure has"
                rows = listed_rows(store.rows[contradict & counts[:, 0]])
                notes.append(
                    f"{count:,} {have} classes that contradict each other, which are left out "
                    f"(rows {rows})"
                )
    else:
        rule, merged = "the first known label of each target", of_kind(known, "first")
    settled = np.where(is_several[:, None], merged, labels).astype(labels.dtype)
    settled[is_repeat] = np.nan
    if np.isnan(settled).all():
        raise DataError(
            f"the classes of all {records} contradict those of their repeats, and none is left; "
            f"choose another value of {setting('on_repeats')}.",
            option="on_repeats",
        )
    if weights is not None:
        which = "sum" if how == "mean" else "first"
        merged_weights = np.nan_to_num(of_kind(np.where(counts, given, np.nan), which))[:, 0]
        weights = np.where(is_several, merged_weights, weights).astype(weights.dtype)
    left_out = (
        f"{is_repeat.sum():,} of {len(kinds):,} {records} repeat an earlier one and are left out; "
        f"{rule} is used for all"
    )
    return settled, weights, [left_out, *notes]


def repeats_between(
    kinds: Kinds, splits: Sequence[Split]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many graphs of a set repeat one of an earlier set, and the size of the set.

    Keys are pairs of the names of the set and the earlier set; empty sets have none. Of several
    splits, graphs count that repeat one in any of them.
    """
    counts = dict[tuple[str, str], tuple[int, int]]()
    for earlier, later in combinations(Split._fields, 2):
        graphs, repeats = set[int](), set[int]()
        for split in splits:
            found, others = getattr(split, later), getattr(split, earlier)
            graphs |= {*found.tolist()}
            repeats |= {*found[np.isin(kinds[found], kinds[others])].tolist()}
        if graphs:
            counts[later, earlier] = len(repeats), len(graphs)
    return counts


def repeat_notes(
    store: GraphStore, labels: Float[np.ndarray, "M T"], splits: Sequence[Split]
) -> list[str]:
    """Return notes on graphs that occur more than once, for readers of scores."""
    kinds = repeat_kinds(store)
    if kinds is None:
        return []
    records = domain_of(store.schema).records
    effects = {
        ("valid", "train"): "intervals and choices made on it are too optimistic",
        ("test", "train"): f"scores are too optimistic for new {records}",
        ("test", "valid"): "scores after a choice on the validation set are too optimistic",
    }
    notes = [
        f"{known:,} of {size:,} {records} of the {SET_NAMES[later]} set repeat one of the "
        f"{SET_NAMES[earlier]} set: {effects[later, earlier]}; choose "
        f"{setting('on_repeats', 'mean')} or {setting('on_repeats', 'drop')}, or another split"
        for (later, earlier), (known, size) in repeats_between(kinds, splits).items()
        if known
    ]
    counts = np.bincount(kinds)
    repeated = counts[counts > 1]
    if len(repeated):
        notes.append(
            f"{repeated.sum():,} of {len(kinds):,} labeled {records} repeat each other "
            f"({len(repeated):,} structure{'s' if len(repeated) > 1 else ''})"
        )
    import pandas as pd  # slow to import

    contradict = (pd.DataFrame(labels).groupby(kinds).nunique() > 1).any(axis=1).to_numpy()
    if contradict.any():
        rows = store.rows[contradict[kinds]]
        several = "structures occur" if contradict.sum() > 1 else "structure occurs"
        notes.append(
            f"{contradict.sum():,} {several} more than once with different labels "
            f"(rows {listed_rows(rows)}); check these rows, or choose {setting('on_repeats')}"
        )
    return notes
