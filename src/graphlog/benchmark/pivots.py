"""Scores of rows on columns, and what follows from them: averages, ranks, paired differences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from scipy.special import stdtrit

from graphlog.benchmark.methods import BASELINES, METHOD_LABELS, REFERENCE
from graphlog.benchmark.table import NO_SEED, PROTOCOL
from graphlog.downstream.metrics import LOWER_IS_BETTER

UNITLESS = LOWER_IS_BETTER | {"r2", "graphs_per_s", "speed"}
"""Metrics printed as they are; the others are printed in per cent."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds and its spread."""

    mean: float
    sd: float
    """Sample standard deviation (n - 1); NaN for a single value."""
    count: int

    def interval(self, level: float = 0.95) -> Interval:
        r"""Return the Student-t interval :math:`\bar x \pm t_{n-1} s/\sqrt n`; NaNs if n < 2."""
        if self.count < 2:
            return math.nan, math.nan
        quantile = float(stdtrit(self.count - 1, 0.5 + level / 2))
        half = quantile * self.sd / math.sqrt(self.count)
        return self.mean - half, self.mean + half


def spread(scores: pd.Series) -> Spread:
    """Return mean and sample SD of scores by seed; NaN as soon as one of them is."""
    values = scores.to_numpy()
    if not len(values):
        return Spread(math.nan, math.nan, 0)
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(values.mean()), sd, len(values))


def mean_over(parts: Sequence[pd.Series]) -> pd.Series:
    """Return the mean over parts for each seed that all have; empty where a part is.

    A part without seeds meets every seed.
    """
    if not parts or any(part.empty for part in parts):
        return _NOTHING
    return sum(_on_shared_seeds(parts)) / len(parts)  # pyright: ignore[reportReturnType]


def paired(scores: pd.Series, reference: pd.Series) -> pd.Series:
    """Return ``scores - reference`` for each seed that both have."""
    if scores.empty or reference.empty:
        return _NOTHING
    first, second = _on_shared_seeds([scores, reference])
    return first - second


_NOTHING = pd.Series({}, dtype="float64")
_NONE = (math.nan, math.nan)


def _on_shared_seeds(parts: Sequence[pd.Series]) -> list[pd.Series]:
    drawn = [set(part.index) for part in parts if NO_SEED not in part.index]
    seeds = sorted(set.intersection(*drawn)) if drawn else [NO_SEED]
    return [
        pd.Series(part.iloc[0], index=seeds) if NO_SEED in part.index else part.loc[seeds]
        for part in parts
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    key: str
    heads: tuple[str, ...]
    """Its first columns."""
    label: str = ""
    """Its name in figures; empty: its heads."""
    group: int = 0
    """Rows of different groups are separated by a rule in figures."""

    @property
    def name(self) -> str:
        """How figures call it."""
        return self.label or ", ".join(self.heads)


@dataclass(frozen=True)
class Table:
    """Scores of rows on columns under one stage and selection rule, all in one metric."""

    topic: str
    """Page that it belongs to."""
    name: str
    kind: str
    """What it shows.

    ``methods``, ``halves``, ``backbones``, ``ablation``, ``depth``, ``batch_size``, ``speed``,
    ``stages``, ``limits`` or ``batch-rates``.
    """
    title: str
    heads: tuple[str, ...]
    """Heads of the columns that name a row."""
    rows: tuple[Row, ...]
    columns: Mapping[str, str]
    """Columns and how they are printed."""
    metric: str
    rule: str
    """Selection rule."""
    scores: pd.DataFrame
    """Columns ``row``, ``column``, ``seed``, ``value`` (as printed), ``cell``, ``protocol``."""
    paper: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict[Any, Any])
    """The paper's mean and SD by row and column, printed as rows of their own.

    Column ``""`` has the average that the paper prints of these columns.
    """
    paper_rows: Mapping[str, tuple[float, float]] = field(default_factory=dict[Any, Any])
    """The paper's number of a whole row, where its data differ; printed as a column."""
    paper_head: str = "paper"
    """How the paper's numbers are labeled."""
    reference: str | None = None
    """Row that the others are compared with."""
    reference_label: str = METHOD_LABELS[REFERENCE]
    averaged: bool = True
    """Whether the columns may be averaged: data sets may, halves and backbones may not."""
    notes: tuple[str, ...] = ()

    @cached_property
    def _by_place(self) -> dict[Any, pd.Series]:
        groups = self.scores.groupby(["row", "column"], sort=False)
        return {place: part.set_index("seed")["value"].sort_index() for place, part in groups}

    @cached_property
    def _averages(self) -> dict[tuple[str, ...], pd.Series]:
        return {}

    @cached_property
    def old_rows(self) -> frozenset[str]:
        """Rows of encoders with a score of an older protocol."""
        old = self.scores.loc[self.scores["protocol"] < PROTOCOL, "row"]
        return frozenset(old) - set(BASELINES)

    @cached_property
    def is_mixed(self) -> bool:
        """Whether only some rows of encoders were measured under an older protocol."""
        encoders = set(self.scores["row"]) - set(BASELINES)
        return bool(self.old_rows) and not encoders <= self.old_rows

    @property
    def is_primary(self) -> bool:
        """Whether the rule takes no look at the validation fold."""
        return self.rule in ("last", "fixed-C", "")

    @property
    def percent(self) -> bool:
        """Whether scores are printed in per cent."""
        return self.metric not in UNITLESS

    @property
    def compares(self) -> bool:
        """Whether rows are ranked and compared with the reference."""
        return self.averaged and self.reference is not None and len(self.rows) > 1

    def at(self, row: str, column: str) -> pd.Series:
        """Return the scores of a place by seed; empty where not measured."""
        return self._by_place.get((row, column), _NOTHING)

    def measured(self, row: str) -> list[str]:
        """Return the columns that a row has scores of."""
        return [column for column in self.columns if not self.at(row, column).empty]

    def averages(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the heads of the average columns and the columns that each leaves out."""
        count = len(self.columns)
        if not self.averaged or count < 2:
            return []
        whole: tuple[str, tuple[str, ...]] = (f"Average of {count}", ())
        if "clintox" not in self.columns or count == 2:
            return [whole]
        return [whole, (f"without {self.columns['clintox']}", ("clintox",))]  # it swings most

    def average(self, row: str, without: Sequence[str] = ()) -> pd.Series:
        """Return the mean over columns for each seed that has them all."""
        if (row, *without) not in self._averages:
            parts = [self.at(row, c) for c in self.columns if c not in without]
            self._averages[row, *without] = mean_over(parts)
        return self._averages[row, *without]

    def average_of_paper(self, row: str, without: Sequence[str] = ()) -> float:
        """Return the mean of the paper's numbers over our columns; NaN where it lacks one."""
        if not without and (row, "") in self.paper:
            return self.paper[row, ""][0]
        means = [self.paper.get((row, c), _NONE)[0] for c in self.columns if c not in without]
        return sum(means) / len(means) if means else math.nan

    def difference(self, row: str, column: str | None = None) -> Spread:
        """Return the paired difference to the reference, in one column or in the average of all."""
        if self.reference is None or row == self.reference:
            return spread(_NOTHING)
        own, other = (
            self.average(key) if column is None else self.at(key, column)
            for key in (row, self.reference)
        )
        return spread(paired(own, other))

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean over seeds of every row and column; NaN where not measured or undefined."""
        return pd.DataFrame(
            {c: {r.key: spread(self.at(r.key, c)).mean for r in self.rows} for c in self.columns}
        )

    def ranks(self) -> Mapping[str, float]:
        """Return the mean rank over the columns of every row measured in full, 1 for the best."""
        complete = self.means.dropna()
        if len(complete) < 2 or not len(complete.columns):
            return {}
        ranks = complete.rank(ascending=self.metric in LOWER_IS_BETTER, method="average")
        return {str(row): float(rank) for row, rank in ranks.mean(axis=1).items()}

    def best(self, column: str) -> str | None:
        """Return the row with the best mean in a column."""
        known = self.means[column].dropna()
        if known.empty:
            return None
        return str(known.idxmin() if self.metric in LOWER_IS_BETTER else known.idxmax())
