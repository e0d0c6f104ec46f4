"""What needs no graph network: extended-connectivity fingerprints with a forest or a linear model, task by task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from graphlog.downstream.metrics import TaskKind

TREES, TREES_MANY_TASKS, MANY_TASKS = 300, 100, 50

Predictions = Float[np.ndarray, "M T"]


@dataclass(frozen=True, slots=True)
class Fold:
    """One target's training rows and what to fit to them."""

    rows: np.ndarray
    """Indices of the labelled training rows."""
    labels: np.ndarray
    """Their labels."""


def forest_predictions(
    features: Num[np.ndarray, "M F"],
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    task: TaskKind,
    seed: int = 0,
    jobs: int | None = None,
) -> Predictions:
    """Return a random forest's predictions for every row, one forest a target; NaN where a target cannot be learnt."""
    trees = TREES if labels.shape[1] <= MANY_TASKS else TREES_MANY_TASKS
    kind = RandomForestClassifier if task != "regression" else RandomForestRegressor
    features_share: Any = "sqrt" if task != "regression" else 1 / 3

    def fit(x: np.ndarray, y: np.ndarray) -> Any:
        return kind(
            n_estimators=trees, max_features=features_share, random_state=seed, n_jobs=1
        ).fit(x, y)

    return predictions_by_task(features, labels, train, task, fit, jobs)


def predictions_by_task(
    features: Num[np.ndarray, "M F"],
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    task: TaskKind,
    fit: Callable[[np.ndarray, np.ndarray], Any],
    jobs: int | None = None,
) -> Predictions:
    """Fit one model a target on its labelled training rows and predict every row; targets run in parallel threads."""

    def one(t: int) -> np.ndarray:
        fold = fold_of(labels, train, t)
        if not learnable(fold.labels):
            return np.full(len(features), np.nan, dtype=np.float32)
        model = fit(features[fold.rows], fold.labels)
        predicted = (
            model.predict_proba(features)[:, 1] if task != "regression" else model.predict(features)
        )
        return predicted.astype(np.float32)

    columns = Parallel(n_jobs=jobs, prefer="threads")(
        delayed(one)(t) for t in range(labels.shape[1])
    )
    return np.stack(columns, axis=1)  # pyright: ignore[reportArgumentType, reportCallIssue]


def fold_of(labels: Float[np.ndarray, "M T"], rows: np.ndarray, target: int) -> Fold:
    """Return those of ``rows`` that have a label of ``target``, with the labels."""
    y = labels[rows, target]
    present = ~np.isnan(y)
    return Fold(rows[present], y[present])


def learnable(labels: np.ndarray) -> bool:
    """Return whether there is anything to fit: two classes, or two values."""
    return len(labels) >= 2 and bool((labels != labels[0]).any())
