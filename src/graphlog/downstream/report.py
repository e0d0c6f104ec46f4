"""Scores of a probe or a fine-tuning run: one row per model and rule, as JSON and as text."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import BeforeValidator, TypeAdapter
from pydantic_core import from_json, to_json
from tabulate import tabulate

from graphlog.config import read_json
from graphlog.data.html import Table, html_table
from graphlog.downstream.metrics import IN_PERCENT, means_of_known, paired_interval, shown_score
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.errors import DataError

DDOF = 1
"""Standard deviations are those of a sample (divided by n - 1); the reference code divides by n."""
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A score, which is None in JSON where it is undefined."""


class Source(StrEnum):
    """What a row of a probe sees of the graphs."""

    EMBEDDING = "embedding"
    UNTRAINED = "untrained"
    FEATURES = "features"


class Model(StrEnum):
    """What is fitted to it."""

    LINEAR = "linear"
    KERNEL = "kernel"
    FOREST = "forest"
    BOOSTING = "boosting"


class Rule(StrEnum):
    """How its settings are found."""

    FIXED = "fixed"
    VALIDATION = "validation"
    FOLDS = "folds"
    """Cross-validation within the training set."""


@dataclass(frozen=True, slots=True)
class RowKey:
    """Which row of a probe it is, whatever it is called."""

    source: Source
    features: tuple[str, ...] = ()
    """Names of joined features; of features alone, empty for the baseline of the domain."""
    model: Model = Model.LINEAR
    rule: Rule = Rule.FIXED


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """The scores of one model under one selection rule."""

    model: str
    """What predicted: ``fine-tuned``, ``untrained encoder``, ``ECFP4 + random forest``, ..."""
    rule: str
    """How the scored state was chosen: ``last epoch``, ``best validation``, ``C = 0.1``, ..."""
    test: dict[str, list[Number]]
    """Each metric on the test set, one value a seed."""
    valid: dict[str, list[Number]]
    """The same on the validation set."""
    per_task: dict[str, Number] = field(default_factory=dict[str, float])
    """The report's metric on the test set by task, mean over seeds; NaN where undefined."""
    halves: dict[str, dict[str, list[Number]]] = field(
        default_factory=dict[str, dict[str, list[float]]]
    )
    """Each metric on two halves of the test set, where the domain reports them (proteins)."""
    detail: dict[str, Any] = field(default_factory=dict[str, Any])
    """Anything else worth keeping: epochs chosen, values of C, seconds."""
    key: RowKey | None = None
    """Which row of a probe it is; None for others."""

    def mean(self, metric: str, fold: str = "test") -> float:
        """Return the mean over seeds or splits; those without a score are left out."""
        values = self.known(metric, fold)
        return float(np.mean(values)) if values else math.nan

    def sd(self, metric: str) -> float:
        """Return the sample standard deviation of test scores (n - 1); NaN for a single seed."""
        values = self.known(metric)
        return float(np.std(values, ddof=DDOF)) if len(values) > DDOF else math.nan

    def known(self, metric: str, fold: str = "test") -> list[float]:
        """Return the values that are defined: a fold may have one class only."""
        values = {"test": self.test, "valid": self.valid, **self.halves}.get(fold, {}).get(
            metric, []
        )
        return [value for value in values if not math.isnan(value)]


@dataclass(frozen=True, slots=True)
class Report:
    """All rows of one data set, the row of interest first."""

    dataset: str
    """Name or path of the input."""
    task: str
    """``classification`` or ``regression``."""
    metric: str
    """The score that decides: ``roc_auc``, ``rmse``, ..."""
    split: str
    """How the folds were made."""
    sizes: dict[str, int]
    """Graphs with a label of each fold; ``rejected``: rows that could not be read."""
    tasks: tuple[str, ...]
    """Names of the predicted columns."""
    rows: tuple[ScoreRow, ...]
    """The scores; the first row is the model and rule asked for."""
    notes: tuple[str, ...] = ()
    """What the reader must know to read the rows rightly."""
    calibration: tuple[dict[str, Any], ...] = ()
    """By target, how intervals (regression) or calibrated probabilities do on the test set."""
    splits: int = 1
    """How many splits were scored; if more than one, every row has a value a split."""

    @property
    def mean(self) -> float:
        """Mean over seeds of the first row's test score; NaN where nothing was scored."""
        return self.rows[0].mean(self.metric) if self.rows else math.nan

    @property
    def sd(self) -> float:
        """Sample standard deviation over seeds of the first row's test score; NaN for one seed."""
        return self.rows[0].sd(self.metric) if self.rows else math.nan

    @property
    def scores(self) -> list[dict[str, Any]]:
        """Mean and standard deviation of every row, in the report's metric.

        Of several splits also the difference from the first row and half the width of its interval.
        """
        differs = ("difference", "difference_half_width") if self.splits > 1 else ()
        return [
            {
                "model": row.model,
                "rule": row.rule,
                "metric": self.metric,
                "mean": row.mean(self.metric),
                "sd": row.sd(self.metric),
                "valid_mean": row.mean(self.metric, "valid"),
                "seeds": len(row.test.get(self.metric, [])),
                **{half: row.mean(self.metric, half) for half in row.halves},
                **dict(zip(differs, self.difference(row) if differs else (), strict=True)),
            }
            for row in self.rows
        ]

    def difference(self, row: ScoreRow) -> tuple[float, float]:
        """Return how far a row of several splits is above the first, and half its 95 % interval.

        The difference is paired by split; splits in which one of the two has no score are left out.
        """
        pairs = zip(row.test[self.metric], self.rows[0].test[self.metric], strict=True)
        above = np.array([own - first for own, first in pairs])
        return paired_interval(above[~np.isnan(above)], self.sizes["test"] / self.sizes["train"])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; an undefined score is None."""
        known = {"mean": self.mean, "sd": self.sd, "sd_ddof": DDOF, "scores": self.scores}
        return json_ready({**asdict(self), **known})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Report":
        """Read back what :meth:`to_dict` wrote."""
        return _READER.validate_python(fields)

    def led_by(self, key: RowKey) -> "Report":
        """Return the report with the row of this key first."""
        rows = sorted(self.rows, key=lambda row: row.key != key)
        return replace(self, rows=tuple(rows))

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read a ``scores.json``, or that of a run folder.

        Raises:
            DataError: If the file is missing or damaged.
        """
        path = Path(path)
        path = path / "scores.json" if path.is_dir() else path
        fields = read_json(path)
        try:
            report = _READER.validate_python(fields)
            report.to_dict()
        except (KeyError, IndexError, ValueError):
            raise DataError(f"{path}: not a report of scores, or damaged; run it again.") from None
        return report

    @property
    def is_percent(self) -> bool:
        """Whether scores are shown in percent: areas under curves and accuracies."""
        return self.metric in IN_PERCENT

    @property
    def metric_name(self) -> str:
        """The metric and the unit of :meth:`shown`."""
        return self.metric.replace("_", "-").upper() + (" (%)" if self.is_percent else "")

    def shown(self, value: float, largest: float | None = None) -> str:
        """Return a score by :func:`shown_score`; ``largest`` is by default that of the rows."""
        if largest is None:
            means = [abs(row.mean(self.metric)) for row in self.rows]
            largest = max((m for m in means if math.isfinite(m)), default=abs(value))
        return shown_score(value, self.metric, largest)

    def tables(self) -> list[Table]:
        """Return what commands, notebooks and ``str`` show of a report."""
        metric, first = self.metric, next(iter(self.rows), None)
        sizes = ", ".join(f"{name} {count:,}" for name, count in self.sizes.items())
        title = f"{self.dataset}: {self.metric_name}, {self.split} split ({sizes})"
        heads = ("model", "rule", "test", "SD", "valid", "seeds")
        if self.splits > 1:
            heads = (*heads[:-1], "splits", "minus the first row", "95 %")
        rows: list[tuple[object, ...]] = []
        for row in self.rows:
            scores = map(self.shown, (row.mean(metric), row.sd(metric), row.mean(metric, "valid")))
            cells = row.model, row.rule, *scores, len(row.known(metric))
            if self.splits > 1:
                mean, half = map(self.shown, self.difference(row))
                cells = *cells, *(("-", "-") if row is first else (mean, f"± {half}"))
            rows.append(cells)
        tables = [Table(heads, rows, title)]
        if first is not None and first.halves:
            heads = ("model", "rule", *(half.replace("_", " ") for half in first.halves))
            rows = [
                (r.model, r.rule, *(self.shown(r.mean(metric, half)) for half in first.halves))
                for r in self.rows
                if r.halves
            ]
            tables.append(Table(heads, rows, "random halves of the test set"))
        if first is not None and len(self.tasks) > 1 and first.per_task:
            scores = [first.per_task.get(task, math.nan) for task in self.tasks]
            rows = [(t, self.shown(v, abs(v))) for t, v in zip(self.tasks, scores, strict=True)]
            title = f"{first.model}, {first.rule}, by task"
            tables.append(Table(("task", "test"), rows, title))
        if self.calibration:
            tables.append(certainty_table(self.calibration))
        if self.notes:
            tables.append(Table(("", ""), [("note", note) for note in self.notes]))
        return tables

    def to_html(self) -> str:
        """Return the tables for notebooks."""
        return "".join(map(html_table, self.tables()))

    def _repr_html_(self) -> str:
        return self.to_html()

    def __str__(self) -> str:
        parts: list[str] = []
        for heads, rows, title in self.tables():
            cells = [[f"{v:.4g}" if isinstance(v, float) else v for v in row] for row in rows]
            text = tabulate(cells, heads if any(heads) else (), "plain", disable_numparse=True)
            parts.append(f"{title}\n{text}" if title else text)
        return "\n\n".join(parts)


_IN_SHARES = ("coverage", "spread_coverage", "surest_third")
_PLAIN = {
    "spread_coverage": "coverage ±1.64 std",
    "spread_half_width": "half width ±1.64 std",
    "surest_third": "RMSE, most certain third",
}


def certainty_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of how intervals or probabilities do; ``rows`` as of `Calibration.rows`."""

    def text(name: str, value: Any) -> object:
        if not isinstance(value, float):
            return value
        if name in _IN_SHARES:
            return f"{100 * value:.0f} %"
        return shown_score(value, "rmse") if name.endswith("half_width") else f"{value:.3f}"

    names = [name for name in rows[0] if name != "level"]
    heads = [_PLAIN.get(name, name.replace("_", " ")) for name in names]
    what = f"{rows[0]['level']:.0%} intervals" if "level" in rows[0] else "probabilities"
    cells = [[text(name, row[name]) for name in names] for row in rows]
    return Table(heads, cells, f"{what} on the test set")


def score_row(
    model: str,
    rule: str,
    data: LabeledGraphs,
    predictions: Iterable[Float[np.ndarray, "M T"]],
    detail: Mapping[str, Any] | None = None,
    key: RowKey | None = None,
) -> ScoreRow:
    """Return the row of predictions of all graphs, one array per seed."""
    folds = {"test": data.split.test, "valid": data.split.valid, **data.halves}
    found = [
        {name: data.evaluate(own, graphs) for name, graphs in folds.items()} for own in predictions
    ]
    scores = {
        name: {metric: [e[name].scores[metric] for e in found] for metric in found[0][name].scores}
        for name in folds
    }
    of_seeds = np.array([e["test"].per_task[data.metric] for e in found], dtype=np.float64)
    per_task = dict(zip(data.targets, means_of_known(of_seeds).tolist(), strict=True))
    test, valid = scores.pop("test"), scores.pop("valid")
    return ScoreRow(model, rule, test, valid, per_task, scores, dict(detail or {}), key)


def make_report(
    data: LabeledGraphs,
    rows: Sequence[ScoreRow],
    notes: Sequence[str] = (),
    calibration: Sequence[dict[str, Any]] = (),
) -> Report:
    """Return the report of ``rows`` on ``data``."""
    return Report(
        dataset=data.name,
        task=data.task,
        metric=data.metric,
        split=data.split_name,
        sizes=data.sizes,
        tasks=data.targets,
        rows=tuple(rows),
        notes=(*data.notes, *data.fold_notes, *notes),
        calibration=tuple(calibration),
    )


def report_of_splits(reports: Sequence[Report], seeds: Sequence[int]) -> Report:
    """Return one report of several splits of the same graphs, a value a split in every row."""
    first = reports[0]
    shared = [note for note in first.notes if all(note in r.notes for r in reports)]
    own = [
        f"seed {seed}: {note}"
        for seed, report in zip(seeds, reports, strict=True)
        for note in report.notes
        if note not in shared
    ]
    kind = first.split.removesuffix(f" (seed {seeds[0]})")
    sizes = {name: round(float(np.mean([r.sizes[name] for r in reports]))) for name in first.sizes}
    return replace(
        first,
        split=f"{kind} (seeds {', '.join(map(str, seeds))})",
        sizes=sizes,
        rows=tuple(_row_of_splits(rows) for rows in zip(*(r.rows for r in reports), strict=True)),
        notes=(*shared, *own),
        splits=len(reports),
    )


def _row_of_splits(rows: Sequence[ScoreRow]) -> ScoreRow:
    first = rows[0]
    per_task = means_of_known(np.array([list(row.per_task.values()) for row in rows], np.float64))
    return replace(
        first,
        test=_joined([row.test for row in rows]),
        valid=_joined([row.valid for row in rows]),
        per_task=dict(zip(first.per_task, per_task.tolist(), strict=True)),
        halves={half: _joined([row.halves[half] for row in rows]) for half in first.halves},
        detail={key: [row.detail[key] for row in rows] for key in first.detail},
    )


def _joined(scores: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    return {metric: [v for s in scores for v in s[metric]] for metric in scores[0]}


def json_ready(value: Any) -> Any:
    """Return ``value`` with None for numbers that JSON does not have, and lists for tuples.

    Example:
        >>> json_ready({"auc": [0.5, float("nan")]})
        {'auc': [0.5, None]}
    """
    return from_json(to_json(value, inf_nan_mode="null"))


_READER = TypeAdapter(Report)
