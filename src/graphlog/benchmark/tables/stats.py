"""Means, spreads, intervals, paired differences and ranks over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit
from scipy.stats import rankdata

Series = Mapping[int | None, float]
"""A score for each seed. The key None stands for a score without randomness, which meets every seed."""

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds with what is known of its spread."""

    mean: float
    sd: float
    """Sample standard deviation (n - 1); NaN for a single value."""
    count: int

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        r"""Return the Student-t interval :math:`\bar x \pm t_{n-1}\,s/\sqrt n`; NaNs for a single value."""
        if self.count < 2:
            return math.nan, math.nan
        half = float(stdtrit(self.count - 1, 0.5 + level / 2)) * self.sd / math.sqrt(self.count)
        return self.mean - half, self.mean + half


def spread(series: Series) -> Spread:
    """Return mean and sample SD of a series; NaN as soon as one of its values is."""
    values = np.array(list(series.values()), dtype=np.float64)
    if len(values) == 0:
        return Spread(math.nan, math.nan, 0)
    return Spread(
        float(values.mean()),
        float(values.std(ddof=1)) if len(values) > 1 else math.nan,
        len(values),
    )


def mean_over(parts: Sequence[Series]) -> Series:
    """Return, for each seed that every part has, the mean over the parts; empty where a part is.

    Example:
        >>> mean_over([{0: 1.0, 1: 2.0}, {0: 3.0}, {None: 5.0}])
        {0: 3.0}
    """
    if not parts or not all(parts):
        return {}
    return {
        seed: float(np.mean([_at(part, seed) for part in parts])) for seed in _shared_seeds(parts)
    }


def paired(ours: Series, reference: Series) -> Series:
    """Return ``ours - reference`` for each seed that both have.

    Example:
        >>> paired({0: 3.0, 1: 4.0}, {1: 1.5, 2: 9.0})
        {1: 2.5}
    """
    if not ours or not reference:
        return {}
    return {
        seed: _at(ours, seed) - _at(reference, seed) for seed in _shared_seeds([ours, reference])
    }


def mean_ranks(
    means: Float[np.ndarray, "rows columns"], lower_is_better: bool
) -> Float[np.ndarray, "rows"]:
    """Return the mean rank of each row over the columns, 1 for the best; rows of equal score share their ranks' mean."""
    return rankdata(means if lower_is_better else -means, axis=0).mean(axis=1)


def _shared_seeds(parts: Sequence[Series]) -> list[int | None]:
    drawn = [set(part) for part in parts if None not in part]
    if not drawn:
        return [None]
    return list(sorted(set.intersection(*drawn), key=lambda seed: seed or 0))


def _at(part: Series, seed: int | None) -> float:
    return part[None] if None in part else part[seed]
