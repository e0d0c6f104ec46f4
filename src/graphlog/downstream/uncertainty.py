"""How sure predictions are: intervals and calibrated probabilities, from the validation fold."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import log_softmax, softmax
from torch import Tensor

from graphlog.downstream.metrics import TaskKind, brier_score, calibration_error
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.errors import ConfigError, ModelFileError, setting

VERSION = 1
"""Of what a predictor file keeps."""
LEVEL = 0.9
"""Level of the intervals that a report judges."""
NINETY = 1.6448536269514722
"""Half width, in deviations, of the interval that holds 90 % of a normal distribution."""
_SMALLEST = 1e-7
_LOG_TEMPERATURES = (-3.0, 3.0)


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What the validation fold tells about the errors of a predictor."""

    task: TaskKind
    """Kind of task."""
    errors: Float[np.ndarray, "K T"]
    """Regression: absolute errors of each target, ascending, NaN where there are fewer."""
    temperatures: Float[np.ndarray, "T"]
    """Else: what each target's logits are divided by; NaN where the fold could not tell."""

    @classmethod
    def fit(
        cls, task: TaskKind, labels: Float[np.ndarray, "N T"], predictions: Float[np.ndarray, "N T"]
    ) -> "Calibration":
        """Return the calibration of predictions of a fold that was not trained on.

        Args:
            task: Kind of task.
            labels: Of the fold, NaN where missing.
            predictions: Values, or probabilities.
        """
        labels, targets = np.asarray(labels, dtype=np.float64), labels.shape[1]
        if task == "regression":
            errors = np.sort(np.abs(labels - predictions), axis=0)  # NaN comes last
            most = int((~np.isnan(errors)).sum(axis=0).max(initial=0))
            return cls(task, errors[:most], np.full(targets, np.nan))
        if task == "multiclass":
            known = ~np.isnan(labels).any(axis=1)
            found = _temperature(predictions[known], labels[known])
            return cls(task, np.empty((0, targets)), np.full(targets, found))
        found = np.empty(targets)
        for t in range(targets):
            known = ~np.isnan(labels[:, t])
            p, y = predictions[known, t], labels[known, t]
            found[t] = _temperature(np.stack([1 - p, p], axis=1), np.stack([1 - y, y], axis=1))
        return cls(task, np.empty((0, targets)), found)

    def half_widths(self, level: float) -> Float[np.ndarray, "T"]:
        """Return half the width of each target's interval; infinite where labels are too few.

        Split conformal prediction: of n errors the one of rank ceil((n + 1) * level), so that the
        interval of a new graph, exchangeable with those of the fold, holds its value with at least
        this probability.

        Raises:
            ConfigError: If the level is not between 0 and 1, or the task is no regression.
        """
        check_level(level, self.task)
        counts = (~np.isnan(self.errors)).sum(axis=0)
        # the product is rounded: 10 * 0.9 is 9.000000000000002 at some levels
        ranks = np.ceil(np.round((counts + 1) * level, 9)).astype(int)
        widths = np.full(self.errors.shape[1], np.inf)
        for t in np.flatnonzero(ranks <= counts):
            widths[t] = self.errors[ranks[t] - 1, t]
        return widths

    def probabilities(self, predictions: Float[np.ndarray, "N T"]) -> Float[np.ndarray, "N T"]:
        """Return calibrated probabilities; NaN for a target that the fold could not calibrate."""
        p = np.asarray(predictions, dtype=np.float64)
        if self.task == "multiclass":
            return _tempered(p, self.temperatures[0])
        return _tempered(np.stack([1 - p, p], axis=2), self.temperatures[:, None])[..., 1]

    def rows(
        self,
        data: LabeledGraphs,
        predictions: Float[np.ndarray, "N T"],
        std: Float[np.ndarray, "N T"] | None = None,
    ) -> tuple[dict[str, Any], ...]:
        """Return how each target's calibration does on the test fold.

        Args:
            data: The graphs of validation and test fold.
            predictions: Of the test fold.
            std: Regression: their predicted deviations, compared with the intervals.
        """
        labels = np.asarray(data.labels[data.split.test], dtype=np.float64)
        n_valid = (~np.isnan(data.labels[data.split.valid])).sum(axis=0)
        if self.task == "regression":
            widths = self.half_widths(LEVEL)
            rows = [
                _coverage_row(name, labels[:, t], predictions[:, t], widths[t], int(n_valid[t]))
                for t, name in enumerate(data.targets)
            ]
            if std is not None:
                errors = labels - predictions
                for t, row in enumerate(rows):
                    row |= _spread_fields(errors[:, t], std[:, t])
            return tuple(rows)
        calibrated = self.probabilities(predictions)
        if self.task == "multiclass":
            known = ~np.isnan(labels).any(axis=1)
            scores = [_class_scores(labels[known], p[known]) for p in (predictions, calibrated)]
            sizes = int(n_valid.max()), int(known.sum())
            return (_probability_row("all classes", *sizes, self.temperatures[0], *scores),)
        rows: list[dict[str, Any]] = []
        for t, name in enumerate(data.targets):
            known = ~np.isnan(labels[:, t])
            y = labels[known, t]
            scores = [
                (brier_score(y, p[known, t]), calibration_error(y, p[known, t]))
                for p in (predictions, calibrated)
            ]
            sizes = int(n_valid[t]), len(y)
            rows.append(_probability_row(name, *sizes, self.temperatures[t], *scores))
        return tuple(rows)

    def to_file(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return fields and tensors from which :meth:`from_file` makes it again."""
        tensors = {"calibration.errors": self.errors, "calibration.temperatures": self.temperatures}
        return {"version": VERSION}, {
            name: torch.from_numpy(np.asarray(values, dtype=np.float64))
            for name, values in tensors.items()
        }

    @classmethod
    def from_file(
        cls, task: TaskKind, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> "Calibration":
        """Return what :meth:`to_file` described.

        Raises:
            ModelFileError: If a newer version wrote it.
        """
        if fields["version"] != VERSION:
            raise ModelFileError(
                f"its intervals have format {fields['version']}, this graphlog reads {VERSION}; "
                "upgrade graphlog-torch."
            )
        found = [tensors[f"calibration.{name}"].numpy() for name in ("errors", "temperatures")]
        return cls(task, *found)


def check_level(level: float, task: TaskKind) -> float:
    """Return the level of an interval if it is one.

    Raises:
        ConfigError: If it is not between 0 and 1, or the task has no intervals.
    """
    if not 0 < level < 1:
        raise ConfigError(
            f"{setting('interval')} must lie between 0 and 1, such as 0.9, found {level:g}.",
            option="interval",
        )
    if task != "regression":
        raise ConfigError(
            f"intervals are for regression, and the task is {task}; drop {setting('interval')}: "
            "predicted_<target>_calibrated holds calibrated probabilities.",
            option="interval",
        )
    return level


def calibration_notes(
    rows: tuple[dict[str, Any], ...],
    split_name: str,
    chosen: str | None,
    pooled: bool = False,
    records: str = "molecules",
) -> list[str]:
    """Return what a reader of the rows must know.

    Args:
        rows: What :meth:`Calibration.rows` returned.
        split_name: How the folds were made.
        chosen: What the validation fold was also used to choose; None: nothing.
        pooled: Whether folds of several splits were joined, for models of all labels.
        records: What the graphs are.
    """
    notes: list[str] = []
    has_intervals = any("coverage" in row for row in rows)
    if has_intervals:
        notes.append(
            f"{LEVEL:.0%} intervals: prediction ± half width, a quantile of the errors on the "
            "validation fold (split conformal)"
        )
        if any(row["half_width"] is None for row in rows):
            fewest = math.ceil(LEVEL / (1 - LEVEL) - 1e-9)
            notes.append(
                f"an empty half width is infinite: the validation fold needs {fewest} labels"
            )
    else:
        notes.append(
            "calibrated: logits divided by a temperature that was fitted to the validation fold"
        )
    if pooled:
        notes.append(
            "They come from the folds of all splits, by models of fewer labels than the kept ones; "
            f"coverage on new {records} is not guaranteed."
        )
    elif not split_name.startswith(("random (", "stratified (")):
        kind = split_name.partition(" (")[0]
        notes.append(
            f"With a {kind} split, coverage on new {records} is not guaranteed; the test fold is "
            "one example."
        )
    if chosen is not None:
        effect = "intervals may be too narrow" if has_intervals else "they may be too confident"
        notes.append(f"the validation fold also chose {chosen}: {effect}")
    return notes


def _coverage_row(
    name: str, labels: np.ndarray, values: np.ndarray, half_width: float, valid: int
) -> dict[str, Any]:
    known = ~np.isnan(labels)
    covered = np.abs(labels[known] - values[known]) <= half_width
    return {
        "target": name,
        "valid": valid,
        "test": int(known.sum()),
        "level": LEVEL,
        "half_width": _finite(half_width),
        "coverage": float(covered.mean()) if known.any() else None,
    }


def _spread_fields(errors: np.ndarray, std: np.ndarray) -> dict[str, float | None]:
    """Return how predicted deviations do: as intervals, and in telling which errors are small."""
    known = ~np.isnan(errors) & ~np.isnan(std)
    errors, std = errors[known], std[known]
    surest = np.argsort(std, kind="stable")[: len(std) // 3]
    whole = float(np.sqrt(np.mean(errors**2))) if len(errors) else math.nan
    own = float(np.sqrt(np.mean(errors[surest] ** 2))) if len(surest) else math.nan
    return {
        "spread_coverage": float(np.mean(np.abs(errors) <= NINETY * std)) if len(std) else None,
        "spread_half_width": _finite(NINETY * float(std.mean())) if len(std) else None,
        "surest_third": _finite(own / whole) if whole > 0 else None,
    }


def _probability_row(
    name: str,
    valid: int,
    test: int,
    temperature: float,
    before: tuple[float, float],
    after: tuple[float, float],
) -> dict[str, Any]:
    return {
        "target": name,
        "valid": valid,
        "test": test,
        "temperature": _finite(temperature),
        "brier": _finite(before[0]),
        "brier_calibrated": _finite(after[0]),
        "ece": _finite(before[1]),
        "ece_calibrated": _finite(after[1]),
    }


def _class_scores(labels: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Return the Brier score, summed over classes, and the error of the highest probability."""
    if not len(labels):
        return math.nan, math.nan
    brier = sum(brier_score(labels[:, c], p[:, c]) for c in range(labels.shape[1]))
    hits = labels.argmax(axis=1) == p.argmax(axis=1)
    return brier, calibration_error(hits.astype(np.float64), p.max(axis=1))


def _temperature(p: Float[np.ndarray, "N C"], labels: Float[np.ndarray, "N C"]) -> float:
    """Return what to divide log-probabilities by; NaN where there are not two classes.

    Classes are smoothed as by Platt, 1 of n becoming (n + 1) / (n + C), so that a fold without an
    error gives no certainty.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    counts = labels.sum(axis=0)
    if (counts > 0).sum() < 2:
        return math.nan
    smooth = (labels * counts + 1) / (labels @ counts + labels.shape[1])[:, None]
    logs = np.log(np.clip(p, _SMALLEST, 1.0))

    def loss(log_temperature: float) -> float:
        return -float((smooth * log_softmax(logs / math.exp(log_temperature), axis=1)).sum())

    found: Any = minimize_scalar(loss, bounds=_LOG_TEMPERATURES, method="bounded")
    return math.exp(found.x)


def _tempered(p: np.ndarray, temperature: Any) -> np.ndarray:
    logs = np.log(np.clip(p, _SMALLEST, 1.0))
    return softmax(logs / temperature, axis=-1)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
