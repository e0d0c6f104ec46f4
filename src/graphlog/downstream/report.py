"""Reports of probing and fine-tuning: scores of each model and rule, as JSON, text and HTML."""

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
from graphlog.downstream.metrics import IN_PERCENT, column_means, format_score, paired_interval
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.errors import DataError

DDOF = 1
"""Standard deviations are divided by n - 1; the reference code divides by n."""
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A score; an undefined score is None in JSON and NaN here."""


class Source(StrEnum):
    """Kind of features that the models of a row use."""

    EMBEDDING = "embedding"
    UNTRAINED = "untrained"
    FEATURES = "features"


class Model(StrEnum):
    """Kind of model of a row."""

    LINEAR = "linear"
    KERNEL = "kernel"
    FOREST = "forest"
    BOOSTING = "boosting"


class Rule(StrEnum):
    """How the settings of a model were chosen."""

    FIXED = "fixed"
    VALIDATION = "validation"
    FOLDS = "folds"
    """Cross-validation within the training set."""


@dataclass(frozen=True, slots=True)
class RowKey:
    """Key of a row of a probe, which does not depend on its names in the report."""

    source: Source
    features: tuple[str, ...] = ()
    """Names of the features besides the embedding, or of those used without it; empty for the
    embedding alone and for the baseline of fingerprints."""
    model: Model = Model.LINEAR
    rule: Rule = Rule.FIXED


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """The scores of one model under one selection rule."""

    model: str
    """Name of the model: ``fine-tuned``, ``untrained encoder``, ``ECFP4 + random forest``, ..."""
    rule: str
    """How its settings were chosen: ``last epoch``, ``best validation``, ``C = 0.1``, ..."""
    test: dict[str, list[Number]]
    """Each metric on the test set, one value per seed."""
    valid: dict[str, list[Number]]
    """Each metric on the validation set, one value per seed."""
    per_task: dict[str, Number] = field(default_factory=dict[str, float])
    """The report's metric on the test set by task, mean over seeds; NaN where undefined."""
    detail: dict[str, Any] = field(default_factory=dict[str, Any])
    """Other results: selected epochs, values of C, seeds."""
    key: RowKey | None = None
    """Key of a row of a probe; None for other rows."""

    def mean(self, metric: str, part: str = "test") -> float:
        """Return the mean of the defined scores over seeds or splits."""
        values = self.known(metric, part)
        return float(np.mean(values)) if values else math.nan

    def sd(self, metric: str) -> float:
        """Return the sample standard deviation of test scores (n - 1); NaN for a single seed."""
        values = self.known(metric)
        return float(np.std(values, ddof=DDOF)) if len(values) > DDOF else math.nan

    def known(self, metric: str, part: str = "test") -> list[float]:
        """Return the defined scores on the ``test`` or ``valid`` set."""
        scores = self.test if part == "test" else self.valid
        return [value for value in scores.get(metric, []) if not math.isnan(value)]


@dataclass(frozen=True, slots=True)
class Report:
    """Scores of all models on one data set; the first row is the main result."""

    dataset: str
    """Name or path of the input."""
    task: str
    """``classification``, ``regression`` or ``multiclass``."""
    metric: str
    """Metric of the tables: ``roc_auc``, ``rmse``, ..."""
    split: str
    """Description of the split."""
    sizes: dict[str, int]
    """Number of labeled graphs in each set; ``rejected``: number of rows that could not be read."""
    tasks: tuple[str, ...]
    """Names of the predicted columns."""
    rows: tuple[ScoreRow, ...]
    """The scores; the first row is the requested model and rule."""
    notes: tuple[str, ...] = ()
    """Notes for interpreting the scores."""
    calibration: tuple[dict[str, Any], ...] = ()
    """Test results of intervals (regression) or calibrated probabilities, by target."""
    splits: int = 1
    """Number of splits; if there are several, every row has one value per split."""

    @property
    def mean(self) -> float:
        """Mean over seeds of the first row's test score; NaN if there is no score."""
        return self.rows[0].mean(self.metric) if self.rows else math.nan

    @property
    def sd(self) -> float:
        """Sample standard deviation over seeds of the first row's test score; NaN for one seed."""
        return self.rows[0].sd(self.metric) if self.rows else math.nan

    @property
    def scores(self) -> list[dict[str, Any]]:
        """Mean and standard deviation of every row, in the report's metric.

        For several splits, also the difference from the first row and half the width of its 95 %
        interval.
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
                **dict(zip(differs, self.difference(row) if differs else (), strict=True)),
            }
            for row in self.rows
        ]

    def difference(self, row: ScoreRow) -> tuple[float, float]:
        """Return the mean difference from the first row, and half the width of its 95 % interval.

        Differences are paired by split; splits in which a score is undefined are left out.
        """
        pairs = zip(row.test[self.metric], self.rows[0].test[self.metric], strict=True)
        values = np.array([score - first for score, first in pairs])
        return paired_interval(values[~np.isnan(values)], self.sizes["test"] / self.sizes["train"])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; an undefined score is None."""
        summary = {"mean": self.mean, "sd": self.sd, "sd_ddof": DDOF, "scores": self.scores}
        return json_ready({**asdict(self), **summary})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Report":
        """Return the report from a dictionary of :meth:`to_dict`."""
        return _READER.validate_python(fields)

    def led_by(self, key: RowKey) -> "Report":
        """Return the report with the row that has this key first."""
        rows = sorted(self.rows, key=lambda row: row.key != key)
        return replace(self, rows=tuple(rows))

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read a ``scores.json``, or the one in a run folder.

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
        """Return a score as text; decimals suit ``largest``, by default the largest row mean."""
        if largest is None:
            means = [abs(row.mean(self.metric)) for row in self.rows]
            largest = max((m for m in means if math.isfinite(m)), default=abs(value))
        return format_score(value, self.metric, largest)

    def tables(self) -> list[Table]:
        """Return the tables that commands, notebooks and ``str`` show."""
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
        if first is not None and len(self.tasks) > 1 and first.per_task:
            scores = [first.per_task.get(task, math.nan) for task in self.tasks]
            rows = [(t, self.shown(v, abs(v))) for t, v in zip(self.tasks, scores, strict=True)]
            title = f"{first.model}, {first.rule}, by task"
            tables.append(Table(("task", "test"), rows, title))
        if self.calibration:
            tables.append(calibration_table(self.calibration))
        if self.notes:
            tables.append(Table(("", ""), [("note", note) for note in self.notes]))
        return tables

    def to_html(self) -> str:
        """Return the tables for notebooks."""
        return "".join(map(html_table, self.tables()))

    _repr_html_ = to_html

    def __str__(self) -> str:
        parts: list[str] = []
        for heads, rows, title in self.tables():
            cells = [[f"{v:.4g}" if isinstance(v, float) else v for v in row] for row in rows]
            text = tabulate(cells, heads if any(heads) else (), "plain", disable_numparse=True)
            parts.append(f"{title}\n{text}" if title else text)
        return "\n\n".join(parts)


_SHARES = ("coverage", "spread_coverage", "surest_third")
"""Columns that are shown in percent."""
_TITLES = {
    "spread_coverage": "coverage ±1.64 std",
    "spread_half_width": "half width ±1.64 std",
    "surest_third": "RMSE, most certain third",
}


def calibration_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of the rows from `Calibration.rows`: tests of intervals or probabilities."""

    def text(name: str, value: Any) -> object:
        if not isinstance(value, float):
            return value
        if name in _SHARES:
            return f"{100 * value:.0f} %"
        return format_score(value, "rmse") if name.endswith("half_width") else f"{value:.3f}"

    names = [name for name in rows[0] if name != "level"]
    heads = [_TITLES.get(name, name.replace("_", " ")) for name in names]
    tested = f"{rows[0]['level']:.0%} intervals" if "level" in rows[0] else "probabilities"
    cells = [[text(name, row[name]) for name in names] for row in rows]
    return Table(heads, cells, f"{tested} on the test set")


def score_row(
    model: str,
    rule: str,
    data: LabeledGraphs,
    predictions: Iterable[Float[np.ndarray, "M T"]],
    detail: Mapping[str, Any] | None = None,
    key: RowKey | None = None,
) -> ScoreRow:
    """Return the row with the scores of predictions, one array (of all graphs) per seed."""
    parts = {"test": data.split.test, "valid": data.split.valid}
    seeds = [
        {name: data.evaluate(values, graphs) for name, graphs in parts.items()}
        for values in predictions
    ]
    scores = {
        name: {metric: [s[name].scores[metric] for s in seeds] for metric in seeds[0][name].scores}
        for name in parts
    }
    by_seed = np.array([s["test"].per_task[data.metric] for s in seeds], dtype=np.float64)
    per_task = dict(zip(data.targets, column_means(by_seed).tolist(), strict=True))
    return ScoreRow(model, rule, scores["test"], scores["valid"], per_task, dict(detail or {}), key)


def make_report(
    data: LabeledGraphs,
    rows: Sequence[ScoreRow],
    notes: Sequence[str] = (),
    calibration: Sequence[dict[str, Any]] = (),
) -> Report:
    """Return the report with these rows; notes on the data come before ``notes``."""
    return Report(
        dataset=data.name,
        task=data.task,
        metric=data.metric,
        split=data.split_name,
        sizes=data.sizes,
        tasks=data.targets,
        rows=tuple(rows),
        notes=(*data.notes, *data.label_notes, *notes),
        calibration=tuple(calibration),
    )


def report_of_splits(reports: Sequence[Report], seeds: Sequence[int]) -> Report:
    """Join the reports of several splits of the same graphs; rows have one value per split."""
    first = reports[0]
    shared = [note for note in first.notes if all(note in r.notes for r in reports)]
    others = [
        f"seed {seed}: {note}"
        for seed, report in zip(seeds, reports, strict=True)
        for note in report.notes
        if note not in shared
    ]
    kind = first.split.replace(f" (seed {seeds[0]})", "", 1)
    sizes = {name: round(float(np.mean([r.sizes[name] for r in reports]))) for name in first.sizes}
    return replace(
        first,
        split=f"{kind} (seeds {', '.join(map(str, seeds))})",
        sizes=sizes,
        rows=tuple(_row_of_splits(rows) for rows in zip(*(r.rows for r in reports), strict=True)),
        notes=(*shared, *others),
        splits=len(reports),
    )


def _row_of_splits(rows: Sequence[ScoreRow]) -> ScoreRow:
    first = rows[0]
    per_task = column_means(np.array([list(row.per_task.values()) for row in rows], np.float64))
    return replace(
        first,
        test=_joined([row.test for row in rows]),
        valid=_joined([row.valid for row in rows]),
        per_task=dict(zip(first.per_task, per_task.tolist(), strict=True)),
        detail={key: [row.detail[key] for row in rows] for key in first.detail},
    )


def _joined(scores: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    return {metric: [v for s in scores for v in s[metric]] for metric in scores[0]}


def json_ready(value: Any) -> Any:
    """Return ``value`` with None instead of NaN and infinity, and lists instead of tuples.

    Example:
        >>> json_ready({"auc": [0.5, float("nan")]})
        {'auc': [0.5, None]}
    """
    return from_json(to_json(value, inf_nan_mode="null"))


_READER = TypeAdapter(Report)
