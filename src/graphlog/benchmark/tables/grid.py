"""A grid of scores: rows and columns, the paper's numbers beside, and what follows from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphlog.benchmark.paper import Printed
from graphlog.benchmark.tables.stats import Series, Spread, mean_over, mean_ranks, paired, spread
from graphlog.downstream.metrics import LOWER_IS_BETTER

UNITLESS = LOWER_IS_BETTER | {"r2"}
"""Metrics printed as they are; the others are printed in per cent."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a grid."""

    key: str
    heads: tuple[str, ...]
    """What its first columns say."""
    label: str
    """Its name in figures."""
    group: int = 0
    """Rows of another group stand under a rule."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Scores of rows on columns under one stage and selection rule, all in one metric."""

    name: str
    """Stem of its files."""
    kind: str
    """What it holds: ``methods``, ``halves``, ``backbones``, ``detail``, ``ablation``, ``depth``, ``batch_size`` or ``speed``."""
    title: str
    heads: tuple[str, ...]
    """Heads of the columns that name a row."""
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    labels: Mapping[str, str]
    """How columns are printed."""
    metric: str
    series: Mapping[tuple[str, str], Series]
    """Scores by row key and column, as fractions; absent where not measured."""
    printed: Mapping[tuple[str, str], Printed] = field(
        default_factory=dict[tuple[str, str], Printed]
    )
    """The paper's numbers in per cent, by row key and column; printed as rows of their own."""
    printed_average: Mapping[str, float] = field(default_factory=dict[str, float])
    """The paper's printed average over all its columns, by row key."""
    printed_rows: Mapping[str, Printed] = field(default_factory=dict[str, Printed])
    """The paper's number of a whole row, where its data differ from ours; printed as a column of its own."""
    printed_head: str = "paper"
    """What the paper's numbers are of."""
    reference: str | None = None
    """Key of the row that the others are compared with."""
    reference_label: str = ""
    averaged: bool = True
    """Whether the columns may be averaged: data sets may, folds and backbones may not."""
    notes: tuple[str, ...] = ()

    @property
    def factor(self) -> float:
        """What a score is multiplied by for printing."""
        return 1.0 if self.metric in UNITLESS else 100.0

    def at(self, row: str, column: str) -> Series:
        """Return the printed scores of a place; empty where not measured."""
        return {
            seed: value * self.factor for seed, value in self.series.get((row, column), {}).items()
        }

    def measured(self, row: str) -> list[str]:
        """Return the columns that a row has scores of."""
        return [c for c in self.columns if self.series.get((row, c))]

    def average(self, row: str, without: Sequence[str] = ()) -> Series:
        """Return the mean over columns for each seed that has them all; empty if a column was not measured."""
        return mean_over([self.at(row, c) for c in self.columns if c not in without])

    def paper_average(self, row: str, without: Sequence[str] = ()) -> float:
        """Return the mean of the paper's numbers over our columns; NaN where it lacks one."""
        found = [self.printed.get((row, c)) for c in self.columns if c not in without]
        known = [value[0] for value in found if value is not None]
        return float(np.mean(known)) if known and len(known) == len(found) else math.nan

    def difference(self, row: str, column: str | None = None) -> Spread:
        """Return the paired difference of a row to the reference over seeds, in one column or in the average of all."""
        if self.reference is None or row == self.reference:
            return spread({})
        if column is None:
            return spread(paired(self.average(row), self.average(self.reference)))
        return spread(paired(self.at(row, column), self.at(self.reference, column)))

    def ranks(self) -> dict[str, float]:
        """Return the mean rank over the columns of every row measured in full."""
        means = {
            row.key: [spread(self.at(row.key, c)).mean for c in self.columns] for row in self.rows
        }
        full = {key: values for key, values in means.items() if not any(map(math.isnan, values))}
        if len(full) < 2:
            return {}
        ranks = mean_ranks(
            np.array(list(full.values()), dtype=np.float64), self.metric in LOWER_IS_BETTER
        )
        return dict(zip(full, ranks.tolist(), strict=True))

    def best(self, column: str) -> str | None:
        """Return the row with the best mean in a column; None if nothing was measured."""
        means = {row.key: spread(self.at(row.key, column)).mean for row in self.rows}
        known = {key: mean for key, mean in means.items() if not math.isnan(mean)}
        choose = min if self.metric in LOWER_IS_BETTER else max
        return choose(known, key=lambda key: known[key]) if known else None
