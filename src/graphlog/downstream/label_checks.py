"""What looks wrong about quantities before they are learned: outliers, stand-ins, two units."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from graphlog.data.columns import listed_rows
from graphlog.errors import out_of_range, setting

_FEWEST = 10
"""Labels below which nothing is said."""
_FARTHEST = 10.0
"""Robust standard deviations from the median beyond which a value is named."""
_STAND_INS = tuple(sign * (10.0**k - 1) for k in range(2, 7) for sign in (-1, 1))
"""99, 999, ... and their negatives: what programs write where a value is missing."""
_TWO_UNITS = 0.85
"""Share of the variance of logarithms between two groups above which they are two modes.

It is 0.64 for a normal and 0.75 for a uniform distribution.
"""


def within_range(
    labels: Float[np.ndarray, "M T"],
    names: Sequence[str],
    rows: Int[np.ndarray, "M"],
    labels_range: Sequence[float],
) -> tuple[Float[np.ndarray, "M T"], list[str]]:
    """Return the labels with those outside a range missing, and a line for each target with any.

    Raises:
        ConfigError: If the range is none.
    """
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
    """Return one line for each target whose values look wrong, with their rows."""
    notes: list[str] = []
    for name, column in zip(names, labels.T, strict=True):
        known = np.flatnonzero(np.isfinite(column))
        if len(known) < _FEWEST:
            continue
        if found := _unusual(column[known], rows[known]):
            advice = f"check them; {setting('labels_range')} leaves out what is outside a range"
            notes.append(f"target '{name}': {'; '.join(found)}: {advice}")
    return notes


def _unusual(values: Float[np.ndarray, "n"], rows: Int[np.ndarray, "n"]) -> list[str]:
    found: list[str] = []
    stand_ins = np.zeros(len(values), dtype=bool)
    for value in (*_STAND_INS, -1.0):
        here = values == value
        if here.sum() > 1 and _stands_out(values, here, value):
            stand_ins |= here
            found.append(
                f"{value:g} occurs {here.sum():,} times (rows {listed_rows(rows[here])}) and may "
                "stand for a missing value"
            )
    rest = np.flatnonzero(~stand_ins)
    is_far = _far(values[rest])
    far = rest[is_far]
    if is_two := _second_unit(values[rest]):
        found.append(is_two)
    elif len(far):
        examples = ", ".join(f"{v:g}" for v in values[far[:3]])
        found.append(
            f"{_counted(is_far)} more than {_FARTHEST:g} robust standard deviations from the "
            f"median {np.median(values[rest]):g} (rows {listed_rows(rows[far])}, e.g. {examples})"
        )
    return found


def _counted(chosen: Bool[np.ndarray, "n"]) -> str:
    count = int(chosen.sum())
    return f"{count:,} value is" if count == 1 else f"{count:,} values are"


def _far(values: Float[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Return which values are far from the median, in deviations estimated from quantiles."""
    distances = np.abs(values - np.median(values))
    deviation = 1.4826 * float(np.median(distances))
    if deviation == 0:  # more than half of the values are one
        return np.zeros(len(values), dtype=bool)
    return distances > _FARTHEST * deviation


def _stands_out(values: Float[np.ndarray, "n"], here: Bool[np.ndarray, "n"], value: float) -> bool:
    """Return whether a value is unlike all others: beyond them, or negative among positive ones."""
    others = values[~here]
    if not len(others):
        return False
    if value == -1:
        return bool((others >= 0).all())
    low, high = float(others.min()), float(others.max())
    gap = low - value if value < 0 else value - high
    return gap > high - low


def _second_unit(values: Float[np.ndarray, "n"]) -> str | None:
    """Return a line if the logarithms have two modes about three apart; None otherwise."""
    logs = np.sort(np.log10(np.abs(values[values != 0])))
    count = len(logs)
    if count < _FEWEST or not logs.var():
        return None
    first = np.arange(1, count)
    means = np.cumsum(logs)[:-1] / first
    above = (logs.sum() - means * first) / (count - first)
    between = first * (count - first) * (above - means) ** 2 / count**2
    cut = int(between.argmax())
    apart = float(np.median(logs[cut + 1 :]) - np.median(logs[: cut + 1]))
    smaller = min(cut + 1, count - cut - 1)
    if between[cut] < _TWO_UNITS * logs.var() or smaller < 3 or not 2.5 <= apart <= 3.5:
        return None
    low, high = (10 ** np.median(part) for part in np.split(logs, [cut + 1]))
    return (
        f"{cut + 1:,} values are around {low:.3g} and {count - cut - 1:,} around {high:.3g}, a "
        "factor of about 1,000 apart, as in two units"
    )
