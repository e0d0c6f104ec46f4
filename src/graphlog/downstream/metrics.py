"""Scores of multi-task predictions where any label may be missing, vectorized over tasks."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Num

from graphlog.errors import ConfigError, check_name

TaskKind = Literal["classification", "regression", "multiclass"]
"""Multiclass: the columns are the classes of one target, of which each graph has one."""
METRICS: Mapping[str, tuple[TaskKind, ...]] = {
    "roc_auc": ("classification", "multiclass"),
    "average_precision": ("classification", "multiclass"),
    "accuracy": ("multiclass",),
    "rmse": ("regression",),
    "mae": ("regression",),
    "r2": ("regression",),
    "pearson": ("regression",),
}
"""Every score and the kinds of task it is for."""
LOWER_IS_BETTER = frozenset({"rmse", "mae"})
IN_PERCENT = frozenset({"roc_auc", "average_precision", "accuracy"})
"""Areas and shares, which are shown in percent."""
DEFAULT_METRIC: Mapping[TaskKind, str] = {
    "classification": "roc_auc",
    "regression": "rmse",
    "multiclass": "accuracy",
}
_Score = Callable[[Float[np.ndarray, "n"], Float[np.ndarray, "n"]], float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of one fold."""

    scores: dict[str, float]
    """Mean of each metric over the tasks it is defined for; NaN if there is none."""
    per_task: dict[str, list[float]]
    """Each metric of each task; NaN where undefined."""
    skipped: tuple[int, ...]
    """Tasks the means leave out: without labels here or, in classification, with one class only."""


def evaluate(
    labels: Num[np.ndarray, "N T"], predictions: Num[np.ndarray, "N T"], task: TaskKind
) -> Evaluation:
    """Return every metric of ``task``; labels are NaN where missing, classes 0 and 1.

    Rows whose prediction is NaN (molecules that could not be read) are left out.
    """
    labels = np.where(np.isnan(predictions), np.nan, np.asarray(labels, dtype=np.float64))
    per_task = {name: function(labels, predictions) for name, function in _SCORES[task].items()}
    skipped = np.flatnonzero(np.isnan(per_task[DEFAULT_METRIC[task]]))
    means = {name: mean_over_tasks(values) for name, values in per_task.items()}
    if task == "multiclass":  # the share of all graphs, not the mean over classes
        means["accuracy"] = accuracy(labels, predictions)
    return Evaluation(
        means, {name: values.tolist() for name, values in per_task.items()}, tuple(skipped.tolist())
    )


def mean_over_tasks(values: Float[np.ndarray, "T"]) -> float:
    """Return the mean over tasks (or folds) where the score is defined; NaN if there is none."""
    return float(values[~np.isnan(values)].mean()) if not np.isnan(values).all() else float("nan")


def means_of_known(values: Float[np.ndarray, "S T"]) -> Float[np.ndarray, "T"]:
    """Return the mean of each column without its NaN; NaN for a column that has nothing else."""
    means = np.full(values.shape[1], np.nan)
    known = (~np.isnan(values)).any(axis=0)
    means[known] = np.nanmean(values[:, known], axis=0)
    return means


def paired_interval(
    differences: Float[np.ndarray, "J"], test_to_train: float
) -> tuple[float, float]:
    """Return the mean of differences over splits and half the width of its 95 % interval.

    Splits share molecules, which the corrected t-test of Nadeau and Bengio (Inference for the
    generalization error, Machine Learning 52, 2003, Eq. 9) allows for.

    Args:
        differences: One a split; NaN is returned for none, and no interval for one.
        test_to_train: Size of the test fold over that of the training fold.
    """
    from scipy.stats import t as student  # slow to import

    count = len(differences)
    if count < 2:
        return float(differences.mean()) if count else math.nan, math.nan
    deviation = float(differences.std(ddof=1)) * math.sqrt(1 / count + test_to_train)
    return float(differences.mean()), float(student.ppf(0.975, count - 1)) * deviation


def roc_auc(
    labels: Num[np.ndarray, "N T"], scores: Num[np.ndarray, "N T"]
) -> Float[np.ndarray, "T"]:
    """Return the area under the ROC curve of each task, by ranks; NaN where a class is absent.

    Example:
        >>> labels = np.array([[0.0], [1.0], [np.nan], [1.0]])
        >>> roc_auc(labels, np.array([[0.1], [0.9], [0.5], [0.1]]))
        array([0.75])
    """
    return _by_task(labels, scores, _roc_auc)


def average_precision(
    labels: Num[np.ndarray, "N T"], scores: Num[np.ndarray, "N T"]
) -> Float[np.ndarray, "T"]:
    """Return the average precision of each task; NaN where a class is absent."""
    return _by_task(labels, scores, _average_precision)


def accuracy(labels: Num[np.ndarray, "N C"], scores: Num[np.ndarray, "N C"]) -> float:
    """Return the share of rows whose highest score is their class; NaN without labels.

    Example:
        >>> scores = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
        >>> accuracy(np.eye(3)[[0, 1, 2]], scores)
        0.6666666666666666
    """
    known = ~np.isnan(labels).any(axis=1)
    return (
        float((labels[known].argmax(axis=1) == scores[known].argmax(axis=1)).mean())
        if known.any()
        else float("nan")
    )


def recall(
    labels: Num[np.ndarray, "N C"], scores: Num[np.ndarray, "N C"]
) -> Float[np.ndarray, "C"]:
    """Return the share of each class's rows in which its score is the highest; NaN without rows."""
    known = ~np.isnan(labels).any(axis=1)
    hits = np.eye(labels.shape[1])[scores[known].argmax(axis=1)] * labels[known]
    counts = labels[known].sum(axis=0)
    return np.where(counts > 0, hits.sum(axis=0) / np.maximum(counts, 1), np.nan)


def rmse(labels: Num[np.ndarray, "N T"], values: Num[np.ndarray, "N T"]) -> Float[np.ndarray, "T"]:
    """Return the root of the mean squared error of each task; NaN without labels."""
    return _by_task(labels, values, lambda y, p: float(np.sqrt(np.mean((y - p) ** 2))))


def mae(labels: Num[np.ndarray, "N T"], values: Num[np.ndarray, "N T"]) -> Float[np.ndarray, "T"]:
    """Return the mean absolute error of each task; NaN without labels."""
    return _by_task(labels, values, lambda y, p: float(np.mean(np.abs(y - p))))


def r2(labels: Num[np.ndarray, "N T"], values: Num[np.ndarray, "N T"]) -> Float[np.ndarray, "T"]:
    """Return the share of variance explained for each task; NaN where all labels are equal."""
    return _by_task(labels, values, _r2)


def pearson(
    labels: Num[np.ndarray, "N T"], values: Num[np.ndarray, "N T"]
) -> Float[np.ndarray, "T"]:
    """Return the correlation of each task; NaN where labels or predictions are all equal."""
    return _by_task(labels, values, _pearson)


def brier_score(outcomes: Float[np.ndarray, "n"], p: Float[np.ndarray, "n"]) -> float:
    """Return the mean squared difference of 0/1 outcomes and their probabilities; NaN of none."""
    return float(np.mean((outcomes - p) ** 2)) if len(outcomes) else float("nan")


def calibration_error(outcomes: Float[np.ndarray, "n"], p: Float[np.ndarray, "n"]) -> float:
    """Return the expected calibration error (ECE); NaN of none, or of unknown probabilities.

    Within ten bins of equal width, the difference of the mean probability and the share of outcomes
    that came true, weighted by the numbers of predictions.

    Example:
        >>> calibration_error(np.array([0.0, 1.0, 1.0, 1.0]), np.array([0.12, 0.18, 0.9, 0.9]))
        0.225
    """
    if not len(outcomes) or np.isnan(p).any():
        return float("nan")
    members = np.minimum((p * 10).astype(int), 9)
    gaps = np.bincount(members, weights=outcomes - p)
    return float(np.abs(gaps).sum() / len(outcomes))


def better(metric: str, a: float, b: float) -> bool:
    """Return whether score ``a`` beats ``b``; anything beats NaN, NaN beats nothing."""
    if np.isnan(a):
        return False
    return bool(np.isnan(b)) or (a < b if metric in LOWER_IS_BETTER else a > b)


def check_metric(name: str | None, task: TaskKind) -> str:
    """Return ``name``, or the usual metric of ``task`` for None.

    Raises:
        ConfigError: If there is no such metric or it is for another kind of task.
    """
    if name is None:
        return DEFAULT_METRIC[task]
    check_name("metric", name, METRICS)
    if task not in METRICS[name]:
        raise ConfigError(
            f"metric '{name}' is for {' and '.join(METRICS[name])}, but the task is {task}; "
            f"choose {DEFAULT_METRIC[task]}."
        )
    return name


def _by_task(
    labels: Num[np.ndarray, "N T"], scores: Num[np.ndarray, "N T"], score: _Score
) -> Float[np.ndarray, "T"]:
    present: Bool[np.ndarray, "N T"] = ~np.isnan(labels)
    results = np.full(labels.shape[1], np.nan)
    for t in range(labels.shape[1]):
        rows = present[:, t]
        if rows.any():
            results[t] = score(
                labels[rows, t].astype(np.float64), scores[rows, t].astype(np.float64)
            )
    return results


def _roc_auc(y: Float[np.ndarray, "n"], score: Float[np.ndarray, "n"]) -> float:
    from scipy.stats import rankdata  # slow to import

    positives = int((y == 1).sum())
    negatives = len(y) - positives
    if not positives or not negatives:
        return float("nan")
    above = rankdata(score)[y == 1].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def _average_precision(y: Float[np.ndarray, "n"], score: Float[np.ndarray, "n"]) -> float:
    if not 0 < (y == 1).sum() < len(y):
        return float("nan")
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.append(np.diff(score[order]) != 0, True)
    hits = np.cumsum(y[order] == 1)[last_of_tie]
    precision = hits / (np.flatnonzero(last_of_tie) + 1)
    return float((np.diff(hits, prepend=0) * precision).sum() / hits[-1])


def _r2(y: Float[np.ndarray, "n"], p: Float[np.ndarray, "n"]) -> float:
    spread = float(((y - y.mean()) ** 2).sum())
    return 1.0 - float(((y - p) ** 2).sum()) / spread if spread > 0 else float("nan")


def _pearson(y: Float[np.ndarray, "n"], p: Float[np.ndarray, "n"]) -> float:
    if (y == y[0]).all() or (p == p[0]).all():
        return math.nan
    return float(np.corrcoef(y, p)[0, 1])


_SCORES: Mapping[TaskKind, Mapping[str, Callable[..., Float[np.ndarray, "T"]]]] = {
    "classification": {"roc_auc": roc_auc, "average_precision": average_precision},
    "multiclass": {"accuracy": recall, "roc_auc": roc_auc, "average_precision": average_precision},
    "regression": {"rmse": rmse, "mae": mae, "r2": r2, "pearson": pearson},
}
