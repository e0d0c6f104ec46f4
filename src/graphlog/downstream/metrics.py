"""Scores of multi-task predictions, with missing labels."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Num, Shaped

from graphlog.errors import ConfigError, check_name

TaskKind = Literal["classification", "regression", "multiclass"]
"""For multiclass, the columns are the classes of one target; each graph has one class."""
Score = Callable[[Float[np.ndarray, "n"], Float[np.ndarray, "n"]], float]
"""Function from the labels and predictions of one target, none missing, to its score."""
IN_STANDARD_DEVIATIONS = {"rmse": "rmse_in_sd", "mae": "mae_in_sd"}
"""Metrics in the unit of their target, and their names when divided by the standard deviation of
the training labels."""
LOWER_IS_BETTER = frozenset({*IN_STANDARD_DEVIATIONS, *IN_STANDARD_DEVIATIONS.values()})
IN_PERCENT = frozenset({"roc_auc", "average_precision", "accuracy"})
"""Metrics that are shown in percent: areas and shares."""
DEFAULT_METRIC: Mapping[TaskKind, str] = {
    "classification": "roc_auc",
    "regression": "rmse",
    "multiclass": "accuracy",
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one set of graphs, such as the test set."""

    scores: dict[str, float]
    """Mean of each metric over the tasks for which it is defined; NaN if there are none."""
    per_task: dict[str, list[float]]
    """Values of each metric for each task; NaN where undefined."""


def evaluate(
    labels: Num[np.ndarray, "N T"], predictions: Num[np.ndarray, "N T"], task: TaskKind
) -> Evaluation:
    """Return every metric of ``task``. Labels are NaN where missing; classes are 0 and 1.

    Rows with a prediction of NaN (molecules that could not be read) are left out.

    Example:
        >>> labels = np.array([[0.0], [1.0], [np.nan], [1.0]])
        >>> evaluate(labels, np.array([[0.1], [0.9], [0.5], [0.1]]), "classification").scores
        {'roc_auc': 0.75, 'average_precision': 0.8333333333333333}
    """
    labels = np.where(np.isnan(predictions), np.nan, np.asarray(labels, dtype=np.float64))
    present: Bool[np.ndarray, "T N"] = ~np.isnan(labels.T)
    hits = np.eye(labels.shape[1])[predictions.argmax(axis=1)]
    hits[~present.all(axis=0)] = np.nan  # rows count only if every class has a probability
    per_task: dict[str, list[float]] = {}
    for name, score in SCORES[task].items():
        values = (hits if name == "accuracy" else predictions).T
        per_task[name] = [
            score(y[known], p[known].astype(np.float64)) if known.any() else math.nan
            for y, p, known in zip(labels.T, values, present, strict=True)
        ]
    means = {name: mean_over_tasks(np.array(values)) for name, values in per_task.items()}
    if task == "multiclass":  # the share of all graphs, not the mean over classes
        means["accuracy"] = _recall(labels.ravel(), hits.ravel())
    return Evaluation(means, per_task)


def mean_over_tasks(values: Shaped[np.ndarray, "T"]) -> float:
    """Return the mean of the scores of tasks (or folds) without NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def column_means(values: Float[np.ndarray, "S T"]) -> Float[np.ndarray, "T"]:
    """Return the mean of each column without NaN; NaN for a column with only NaN."""
    return np.ma.masked_invalid(values).mean(axis=0).filled(np.nan)


def paired_interval(
    differences: Float[np.ndarray, "J"], test_to_train: float
) -> tuple[float, float]:
    """Return the mean of differences over splits and half the width of its 95 % interval.

    The interval is that of the corrected t-test of Nadeau and Bengio (Inference for the
    generalization error, Machine Learning 52, 2003, Eq. 9), since splits share molecules.
    ``test_to_train`` is the size of a test set relative to its training set. The half width of one
    split is NaN.
    """
    from scipy.stats import t as student  # slow to import

    count = len(differences)
    if count < 2:
        return float(differences.mean()) if count else math.nan, math.nan
    deviation = float(differences.std(ddof=1)) * math.sqrt(1 / count + test_to_train)
    return float(differences.mean()), float(student.ppf(0.975, count - 1)) * deviation


def brier_score(outcomes: Float[np.ndarray, "n"], p: Float[np.ndarray, "n"]) -> float:
    """Return the mean squared difference of 0/1 outcomes and probabilities; NaN for none."""
    return float(np.mean((outcomes - p) ** 2)) if len(outcomes) else math.nan


def calibration_error(outcomes: Float[np.ndarray, "n"], p: Float[np.ndarray, "n"]) -> float:
    """Return the expected calibration error (ECE); NaN without outcomes or if ``p`` has NaN.

    Probabilities are divided into ten bins of equal width. The error is the mean over bins of the
    absolute difference between mean probability and share of positive outcomes, weighted by the
    numbers of predictions.

    Example:
        >>> calibration_error(np.array([0.0, 1.0, 1.0, 1.0]), np.array([0.12, 0.18, 0.9, 0.9]))
        0.225
    """
    if not len(outcomes) or np.isnan(p).any():
        return math.nan
    members = np.minimum((p * 10).astype(int), 9)
    gaps = np.bincount(members, weights=outcomes - p)
    return float(np.abs(gaps).sum() / len(outcomes))


def learnable(labels: Num[np.ndarray, "M T"]) -> Bool[np.ndarray, "T"]:
    """Return which targets have at least two different labels."""
    known = np.isfinite(labels)
    lowest = np.where(known, labels, np.inf).min(axis=0, initial=np.inf)
    return (known & (labels > lowest)).any(axis=0)


def format_score(value: float, metric: str, largest: float | None = None) -> str:
    """Return a score as text for reports and progress bars; an undefined score is a dash.

    Areas and shares are in percent. Other scores have the decimals that ``largest`` (by default the
    value itself) needs for three significant digits, but at least one decimal below 1,000.

    Example:
        >>> format_score(0.95331, "roc_auc"), format_score(0.0123, "rmse", 1.5)
        ('95.33', '0.01')
        >>> format_score(123456.789, "rmse"), format_score(0.000123, "rmse")
        ('123,457', '0.000123')
        >>> format_score(math.inf, "rmse"), format_score(math.nan, "rmse")
        ('inf', '-')
    """
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    if metric in IN_PERCENT:
        return f"{100 * value:z.2f}"
    largest = abs(value) if largest is None else largest
    decimals = 2 - math.floor(math.log10(largest)) if largest > 0 else 2
    if decimals > 9:
        return f"{value:z.2e}"
    return f"{value:z,.{max(decimals, 0 if largest >= 1000 else 1)}f}"


def better(metric: str, a: float, b: float) -> bool:
    """Return whether score ``a`` is better than ``b``; NaN is worse than every number."""
    if np.isnan(a):
        return False
    return bool(np.isnan(b)) or (a < b if metric in LOWER_IS_BETTER else a > b)


def check_metric(name: str | None, task: TaskKind) -> str:
    """Return ``name``, or the default metric of ``task`` for None.

    Raises:
        ConfigError: If the metric is unknown or for another kind of task.
    """
    if name is None:
        return DEFAULT_METRIC[task]
    check_name("metric", name, {metric for scores in SCORES.values() for metric in scores})
    tasks = [kind for kind, scores in SCORES.items() if name in scores]
    if task not in tasks:
        raise ConfigError(
            f"metric '{name}' is for {' and '.join(tasks)}, but the task is {task}; "
            f"choose {DEFAULT_METRIC[task]}."
        )
    return name


def _roc_auc(y: Float[np.ndarray, "n"], score: Float[np.ndarray, "n"]) -> float:
    from scipy.stats import rankdata  # slow to import

    positives = int((y == 1).sum())
    negatives = len(y) - positives
    if not positives or not negatives:
        return math.nan
    above = rankdata(score)[y == 1].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def _average_precision(y: Float[np.ndarray, "n"], score: Float[np.ndarray, "n"]) -> float:
    if not 0 < (y == 1).sum() < len(y):
        return math.nan
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.append(np.diff(score[order]) != 0, True)
    hits = np.cumsum(y[order] == 1)[last_of_tie]
    precision = hits / (np.flatnonzero(last_of_tie) + 1)
    return float((np.diff(hits, prepend=0) * precision).sum() / hits[-1])


def _r2(y: Float[np.ndarray, "n"], p: Float[np.ndarray, "n"]) -> float:
    spread = float(((y - y.mean()) ** 2).sum())
    return 1.0 - float(((y - p) ** 2).sum()) / spread if spread > 0 else math.nan


def _pearson(y: Float[np.ndarray, "n"], p: Float[np.ndarray, "n"]) -> float:
    if (y == y[0]).all() or (p == p[0]).all():
        return math.nan
    return float(np.corrcoef(y, p)[0, 1])


def _recall(y: Float[np.ndarray, "n"], hit: Float[np.ndarray, "n"]) -> float:
    return mean_over_tasks(hit[y == 1])


SCORES: Mapping[TaskKind, Mapping[str, Score]] = {
    "classification": {"roc_auc": _roc_auc, "average_precision": _average_precision},
    "multiclass": {
        "accuracy": _recall,  # the share of a class's graphs for which it is the most likely class
        "roc_auc": _roc_auc,
        "average_precision": _average_precision,
    },
    "regression": {
        "rmse": lambda y, p: float(np.sqrt(np.mean((y - p) ** 2))),
        "mae": lambda y, p: float(np.mean(np.abs(y - p))),
        "r2": _r2,
        "pearson": _pearson,
    },
}
"""Scores of each kind of task; a score is NaN for labels for which it is not defined."""
