"""Uncertainty of predictions: intervals and calibrated probabilities, from the validation set."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import log_softmax, softmax
from torch import Tensor

from graphlog.downstream.metrics import TaskKind, brier_score, calibration_error, mean_over_tasks
from graphlog.downstream.report import json_ready
from graphlog.downstream.tasks import LabeledGraphs

LEVEL = 0.9
"""Level of the intervals in reports: the share of values that they should contain."""
HALF_WIDTH_90 = 1.6448536269514722
"""Half width, in standard deviations, of the interval with 90 % of a normal distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Intervals and calibrated probabilities, fitted to predictions of the validation set."""

    task: TaskKind
    """Kind of task."""
    errors: Float[np.ndarray, "K T"]
    """Regression: ascending absolute errors of each target, followed by NaN if it has fewer."""
    temperatures: Float[np.ndarray, "T"]
    """Classification: temperature of each target, which divides its logits; NaN if the validation
    set does not have two classes."""

    @classmethod
    def fit(
        cls,
        task: TaskKind,
        labels: Float[np.ndarray, "N T"],
        predictions: Float[np.ndarray, "N T"],
        kinds: Int[np.ndarray, "N"] | None = None,
    ) -> "Calibration":
        """Return the calibration of predictions of a set that the predictor was not trained on.

        Of graphs that repeat each other, whose ``kinds`` are equal, only the first error of a
        target counts, since errors of repeats are not independent.
        """
        labels, targets = np.asarray(labels, dtype=np.float64), labels.shape[1]
        if task == "regression":
            errors = np.abs(labels - predictions)
            if kinds is not None:
                for column in errors.T:
                    known = np.flatnonzero(~np.isnan(column))
                    first = np.unique(kinds[known], return_index=True)[1]
                    column[np.delete(known, first)] = np.nan
            errors = np.sort(errors, axis=0)  # NaN comes last
            return cls(task, errors[~np.isnan(errors).all(axis=1)], np.full(targets, np.nan))
        temperatures = np.full(targets, np.nan)
        if task == "multiclass":
            # classes that were not learned have probability 0
            cells = np.ix_(~np.isnan(labels).any(axis=1), (predictions > 0).any(axis=0))
            temperatures[:] = _temperature(predictions[cells], labels[cells])
        else:
            for t, (p, y) in enumerate(zip(predictions.T, labels.T, strict=True)):
                pairs = (np.stack([1 - v, v], axis=1)[~np.isnan(y)] for v in (p, y))
                temperatures[t] = _temperature(*pairs)
        return cls(task, np.empty((0, targets)), temperatures)

    def half_widths(self, level: float) -> Float[np.ndarray, "T"]:
        """Return half the width of each target's interval; infinite if it has too few labels.

        This is split conformal prediction: the half width is the error of rank
        ceil((n + 1) * level) among n errors. If new graphs are exchangeable with those of the
        validation set, their intervals contain their values with probability ``level`` or more.
        """
        counts = (~np.isnan(self.errors)).sum(axis=0)
        # rounded, because 100 * 0.07 is 7.000000000000001, for example
        ranks = np.maximum(np.ceil(np.round((counts + 1) * level, 9)).astype(int), 1)
        widths = np.full(self.errors.shape[1], np.inf)
        for t in np.flatnonzero(ranks <= counts):
            widths[t] = self.errors[ranks[t] - 1, t]
        return widths

    def probabilities(self, predictions: Float[np.ndarray, "N T"]) -> Float[np.ndarray, "N T"]:
        """Return calibrated probabilities; NaN for a target without a temperature."""
        p = np.asarray(predictions, dtype=np.float64)
        if self.task == "multiclass":
            calibrated = np.where(p == 0, 0.0, _tempered(p, self.temperatures[0]))  # not learned
            return calibrated / calibrated.sum(axis=1, keepdims=True)
        return _tempered(np.stack([1 - p, p], axis=2), self.temperatures[:, None])[..., 1]

    def rows(
        self,
        data: LabeledGraphs,
        predictions: Float[np.ndarray, "M T"],
        std: Float[np.ndarray, "M T"] | None = None,
    ) -> tuple[dict[str, Any], ...]:
        """Return scores of each target's calibration on the test set.

        Standard deviations ``std``, which kernel models predict for regression, are scored as well.
        """
        test = data.split.test
        labels, predictions = np.asarray(data.labels[test], dtype=np.float64), predictions[test]
        known = self.errors if self.task == "regression" else data.labels[data.split.valid]
        n_valid = (~np.isnan(known)).sum(axis=0).tolist()
        if self.task == "regression":
            errors, widths = labels - predictions, self.half_widths(LEVEL)
            stds = [None] * len(widths) if std is None else std[test].T
            columns = zip(data.targets, n_valid, errors.T, widths, stds, strict=True)
            return tuple(json_ready([_interval_row(*column) for column in columns]))
        calibrated = self.probabilities(predictions)
        names, values = data.targets, (labels.T, predictions.T, calibrated.T)
        if self.task == "multiclass":  # a single row
            names, n_valid = ["all classes"], [max(n_valid)]
            values = [labels], [predictions], [calibrated]
        columns = zip(names, n_valid, *values, self.temperatures[: len(names)], strict=True)
        return tuple(json_ready([_probability_row(*column) for column in columns]))

    def tensors(self) -> dict[str, Tensor]:
        """Return the calibration as named tensors, the inverse of :meth:`of`."""
        arrays = {"errors": self.errors, "temperatures": self.temperatures}
        return {f"calibration.{k}": torch.from_numpy(v.astype(float)) for k, v in arrays.items()}

    @classmethod
    def of(cls, task: TaskKind, tensors: Mapping[str, Tensor]) -> "Calibration | None":
        """Return the calibration from the tensors of a file; None if there is none."""
        if "calibration.errors" not in tensors:
            return None
        names = ("errors", "temperatures")
        return cls(task, *(tensors[f"calibration.{name}"].numpy() for name in names))


def calibration_notes(
    rows: tuple[dict[str, Any], ...],
    split_name: str,
    chosen: str | None,
    pooled: bool = False,
    records: str = "molecules",
) -> list[str]:
    """Return notes for readers of the rows of :meth:`Calibration.rows`.

    ``chosen`` names what else was chosen on the validation set; ``pooled`` is whether the models
    that are kept together learn from the validation sets.
    """
    notes: list[str] = []
    has_intervals = any("coverage" in row for row in rows)
    made, promised, risk = "calibrated probabilities", "calibration", "confident"
    if has_intervals:
        made, promised, risk = "intervals", "coverage", "narrow"
    if has_intervals and any(row["half_width"] is None for row in rows):
        fewest = math.ceil(LEVEL / (1 - LEVEL) - 1e-9)
        notes.append(
            f"an empty half width is infinite: it needs labels of {fewest} different {records} "
            "in the validation set"
        )
    if pooled:
        notes.append(
            f"The {made} come from validation sets that the kept models learn from as well, "
            f"predicted by models that did not; {promised} on new {records} is not guaranteed."
        )
    elif not split_name.startswith(("random (", "stratified (")):
        kind = split_name.partition(" (")[0]
        notes.append(
            f"With a {kind} split, {promised} on new {records} is not guaranteed; the test set is "
            "one example."
        )
    if chosen is not None:
        notes.append(f"the validation set also chose {chosen}: {made} may be too {risk}")
    return notes


def _interval_row(
    name: str, n_valid: int, errors: np.ndarray, half_width: float, std: np.ndarray | None
) -> dict[str, Any]:
    """Return scores of the interval of a target, and of predicted standard deviations if any."""
    known = ~np.isnan(errors)
    errors = errors[known]
    row = {
        "target": name,
        "valid": n_valid,
        "test": len(errors),
        "level": LEVEL,
        "half_width": half_width,
        "coverage": mean_over_tasks(np.abs(errors) <= half_width),
    }
    if std is None:
        return row
    std = std[known]
    surest = errors[np.argsort(std, kind="stable")[: len(std) // 3]]
    rmse, surest_rmse = (math.sqrt(mean_over_tasks(e**2)) for e in (errors, surest))
    return row | {
        "spread_coverage": mean_over_tasks(np.abs(errors) <= HALF_WIDTH_90 * std),
        "spread_half_width": HALF_WIDTH_90 * mean_over_tasks(std),
        "surest_third": surest_rmse / rmse if rmse > 0 else math.nan,
    }


def _probability_row(
    name: str,
    n_valid: int,
    labels: np.ndarray,
    p: np.ndarray,
    calibrated: np.ndarray,
    temperature: float,
) -> dict[str, Any]:
    """Return scores of the probabilities of one target, or of all classes together."""
    known = ~np.isnan(labels.reshape(len(labels), -1)).any(axis=1)
    before, after = (_scores(labels[known], values[known]) for values in (p, calibrated))
    return {
        "target": name,
        "valid": n_valid,
        "test": int(known.sum()),
        "temperature": float(temperature),
        "brier": before[0],
        "brier_calibrated": after[0],
        "ece": before[1],
        "ece_calibrated": after[1],
    }


def _scores(labels: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Return the Brier score and the calibration error.

    For several classes they are the sum over classes, and the error of the most likely class.
    """
    if labels.ndim == 1:
        return brier_score(labels, p), calibration_error(labels, p)
    if not len(labels):
        return math.nan, math.nan
    brier = sum(brier_score(labels[:, c], p[:, c]) for c in range(labels.shape[1]))
    hits = labels.argmax(axis=1) == p.argmax(axis=1)
    return brier, calibration_error(hits.astype(np.float64), p.max(axis=1))


def _temperature(p: Float[np.ndarray, "N C"], labels: Float[np.ndarray, "N C"]) -> float:
    """Return the temperature that divides log-probabilities; NaN if there are not two classes.

    Labels are smoothed, so that a set without errors does not give probabilities of 0 and 1. Two
    classes are smoothed as by Platt: a 1 of a class with n rows becomes (n + 1) / (n + 2). With
    more classes n is the number of all rows, since smoothing by class would make all classes of a
    small set almost equally likely.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    counts = labels.sum(axis=0)
    if (counts > 0).sum() < 2:
        return math.nan
    classes = labels.shape[1]
    rows = (labels @ counts)[:, None] if classes == 2 else len(labels)
    wrong = 1 / (rows + 2)
    smooth = labels * (1 - wrong) + (1 - labels) * wrong / (classes - 1)
    logs = _logs(p)

    def loss(log_temperature: float) -> float:
        return -float((smooth * log_softmax(logs / math.exp(log_temperature), axis=1)).sum())

    minimum: Any = minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded")
    return math.exp(minimum.x)


def _tempered(p: np.ndarray, temperature: Any) -> np.ndarray:
    return softmax(_logs(p) / temperature, axis=-1)


def _logs(p: np.ndarray) -> np.ndarray:
    return np.log(np.clip(p, 1e-7, 1.0))
