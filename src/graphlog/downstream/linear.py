"""Linear models and random forests on fixed features, one per target.

Functions import scikit-learn themselves: it takes as long to import as torch, and most commands
need none of it.
"""

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Num
from joblib import Parallel, delayed
from scipy.sparse import csr_matrix

from graphlog.downstream.logistic import apply_logistic, fit_logistic
from graphlog.downstream.metrics import TaskKind

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression, Ridge

FIXED_C = 0.1
GRID = (0.001, 0.01, 0.1, 1.0)
"""Inverse strengths of the L2 penalty, ascending; ridge regression takes ``alpha = 1 / C``."""
FARTHEST = 10.0
"""Deviations at which standardized features are clipped."""
_MAX_ITERATIONS = 300

TREES, TREES_MANY_TASKS, MANY_TASKS = 300, 100, 50

Features = np.ndarray | csr_matrix


def standardize(features: Float[np.ndarray, "M W"], train: np.ndarray) -> Float[np.ndarray, "M W"]:
    """Return features with mean 0 and deviation 1 over training rows; constant columns are 0.

    They are clipped at :data:`FARTHEST` deviations: a column that barely varies over the training
    rows would otherwise rule the prediction of the few rows in which it does.
    """
    from sklearn.preprocessing import StandardScaler

    scaled: Any = StandardScaler().fit(features[train]).transform(features)
    return np.asarray(scaled, dtype=np.float32).clip(-FARTHEST, FARTHEST)


def sparse_bits(bits: np.ndarray) -> csr_matrix:
    """Return fingerprint bits as a sparse matrix: about one bit in forty is set."""
    return csr_matrix(bits, dtype=np.float32)


def linear_path(
    features: Features,
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    task: TaskKind,
    grid: Sequence[float] = GRID,
    jobs: int | None = None,
) -> dict[float, Float[np.ndarray, "M T"]]:
    """Return, for each C of ``grid``, predictions for every row: probabilities, or values.

    Each target is fitted to its own labeled training rows; one that cannot be learned is NaN.
    """
    path = sorted(grid)
    if task == "regression" and not np.isnan(labels[train]).any():
        return {c: _ridge(features, labels[train], train, c) for c in path}
    if task == "multiclass":
        return _multinomial(features, labels, train, path)
    if task == "classification" and isinstance(features, np.ndarray):
        return _logistic_path(features, labels, train, path)
    one = _logistic_task if task == "classification" else _ridge_task
    with without_convergence_warnings():
        columns: list[list[np.ndarray]] = Parallel(n_jobs=jobs, prefer="threads")(  # pyright: ignore[reportAssignmentType]
            delayed(one)(features, labels, train, t, path) for t in range(labels.shape[1])
        )
    return {c: np.stack([column[k] for column in columns], axis=1) for k, c in enumerate(path)}


def probe_weights(
    features: Float[np.ndarray, "M W"],
    labels: Float[np.ndarray, "M T"],
    task: TaskKind,
    c: float = FIXED_C,
    row_weights: Float[np.ndarray, "M T"] | None = None,
) -> tuple[Float[np.ndarray, "T W"], Float[np.ndarray, "T"]]:
    """Return weights and intercepts of the linear models; 0 for a target that cannot be learned.

    Args:
        features: Standardized, of the training rows.
        labels: Of these rows, NaN where missing.
        task: Kind of task.
        c: Inverse strength of the penalty.
        row_weights: How much each label counts; None: all alike.
    """
    weight = np.zeros((labels.shape[1], features.shape[1]), dtype=np.float32)
    bias = np.zeros(labels.shape[1], dtype=np.float32)
    with without_convergence_warnings():
        if task == "multiclass":
            rows = np.flatnonzero(~np.isnan(labels).any(axis=1))
            classes = labels[rows].argmax(axis=1)
            if learnable(classes):
                counts = None if row_weights is None else row_weights[rows, 0]
                model = _logistic(c).fit(features[rows], classes, counts)
                coefficients, intercepts = model.coef_, model.intercept_
                if len(model.classes_) == 2:  # scikit-learn keeps the difference of the two
                    coefficients = np.concatenate([-coefficients, coefficients]) / 2
                    intercepts = np.concatenate([-intercepts, intercepts]) / 2
                weight[model.classes_], bias[model.classes_] = coefficients, intercepts
            return weight, bias
        if task == "classification":
            known = _learnable_targets(labels)
            if len(known):
                counts = None if row_weights is None else row_weights[:, known]
                weights = fit_logistic(features, labels[:, known], c, row_weights=counts)
                weight[known], bias[known] = weights[:-1].T, weights[-1]
            return weight, bias
        everything = np.arange(len(labels))
        for t in range(labels.shape[1]):
            rows, y = labeled_rows(labels, everything, t)
            if not learnable(y):
                continue
            counts = None if row_weights is None else row_weights[rows, t]
            x, y = features[rows].astype(np.float64), y.astype(np.float64)
            model = _ridge_model(c).fit(x, y, counts)
            weight[t], bias[t] = model.coef_.reshape(-1), float(np.squeeze(model.intercept_))
    return weight, bias


def _logistic(c: float = FIXED_C) -> "LogisticRegression":
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c, warm_start=True, max_iter=_MAX_ITERATIONS, tol=1e-4)


def _ridge_model(c: float) -> "Ridge":
    from sklearn.linear_model import Ridge

    return Ridge(alpha=1.0 / c)


@contextmanager
def without_convergence_warnings() -> Generator[None]:
    """Let a fit end where it is: the last digits of a score are not worth more steps."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _learnable_targets(labels: Float[np.ndarray, "M T"]) -> np.ndarray:
    """Return the columns in which both classes occur."""
    return np.flatnonzero((labels == 1).any(axis=0) & (labels == 0).any(axis=0))


def _logistic_path(
    features: Float[np.ndarray, "M W"],
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    path: Sequence[float],
) -> dict[float, np.ndarray]:
    known, weights = _learnable_targets(labels[train]), None
    results = {c: np.full(labels.shape, np.nan, dtype=np.float32) for c in path}
    x, y = features[train], labels[train][:, known]
    for c in path if len(known) else ():
        weights = fit_logistic(x, y, c, weights)
        results[c][:, known] = apply_logistic(features, weights)
    return results


def _logistic_task(
    features: Features, labels: np.ndarray, train: np.ndarray, target: int, path: Sequence[float]
) -> list[np.ndarray]:
    rows, y = labeled_rows(labels, train, target)
    if not learnable(y):
        return [np.full(len(labels), np.nan, dtype=np.float32)] * len(path)
    x, y = features[rows], y.astype(np.int64)  # pyright: ignore[reportOptionalSubscript] - scipy's stubs
    model = _logistic()
    results: list[np.ndarray] = []
    for c in path:
        model.set_params(C=c).fit(x, y)
        results.append(model.predict_proba(features)[:, 1].astype(np.float32))
    return results


def _multinomial(
    features: Features, labels: np.ndarray, train: np.ndarray, path: Sequence[float]
) -> dict[float, np.ndarray]:
    """Return the probabilities of all classes; 0 for a class that the training rows lack."""
    rows = train[~np.isnan(labels[train]).any(axis=1)]
    classes = labels[rows].argmax(axis=1)
    results = {c: np.full(labels.shape, np.nan, dtype=np.float32) for c in path}
    if not learnable(classes):
        return results
    model = _logistic()
    with without_convergence_warnings():
        for c in path:
            model.set_params(C=c).fit(features[rows], classes)  # pyright: ignore[reportOptionalSubscript] - scipy's stubs
            results[c] = np.zeros(labels.shape, dtype=np.float32)
            results[c][:, model.classes_] = model.predict_proba(features)
    return results


def _ridge_task(
    features: Features, labels: np.ndarray, train: np.ndarray, target: int, path: Sequence[float]
) -> list[np.ndarray]:
    rows, y = labeled_rows(labels, train, target)
    if not learnable(y):
        return [np.full(len(labels), np.nan, dtype=np.float32)] * len(path)
    return [_ridge(features, y.reshape(-1, 1), rows, c).reshape(-1) for c in path]


def _ridge(features: Features, targets: np.ndarray, rows: np.ndarray, c: float) -> np.ndarray:
    # columns of embeddings are nearly dependent, too much so for normal equations in float32
    x = features.astype(np.float64)
    model = _ridge_model(c).fit(x[rows], targets)  # pyright: ignore[reportIndexIssue] - scipy's stubs
    return np.asarray(model.predict(x), dtype=np.float32).reshape(-1, targets.shape[1])


def forest_predictions(
    features: Num[np.ndarray, "M F"],
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    task: TaskKind,
    seed: int = 0,
    jobs: int | None = None,
) -> Float[np.ndarray, "M T"]:
    """Return a random forest's predictions for every row, one forest per target.

    A target that cannot be learned is NaN; targets run in parallel threads.
    """
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    trees = TREES if labels.shape[1] <= MANY_TASKS else TREES_MANY_TASKS
    kind: Any = RandomForestClassifier if task != "regression" else RandomForestRegressor
    share: Any = "sqrt" if task != "regression" else 1 / 3

    def one(t: int) -> np.ndarray:
        rows, y = labeled_rows(labels, train, t)
        if not learnable(y):
            return np.full(len(features), np.nan, dtype=np.float32)
        model = kind(n_estimators=trees, max_features=share, random_state=seed, n_jobs=1)
        model.fit(features[rows], y)
        is_regression = task == "regression"
        predicted = (
            model.predict(features) if is_regression else model.predict_proba(features)[:, 1]
        )
        return predicted.astype(np.float32)

    columns = Parallel(n_jobs=jobs, prefer="threads")(
        delayed(one)(t) for t in range(labels.shape[1])
    )
    return np.stack(columns, axis=1)  # pyright: ignore[reportArgumentType, reportCallIssue]


def labeled_rows(
    labels: Float[np.ndarray, "M T"], rows: np.ndarray, target: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return those of ``rows`` that have a label of ``target``, and their labels."""
    y = labels[rows, target]
    present = ~np.isnan(y)
    return rows[present], y[present]


def learnable(labels: np.ndarray) -> bool:
    """Return whether there is anything to fit: two classes, or two values."""
    return len(labels) >= 2 and bool((labels != labels[0]).any())
