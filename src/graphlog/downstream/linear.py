"""Linear models, fitted to many targets at once where they can be, and random forests on features.

Functions import scikit-learn themselves: it takes as long to import as torch, and most commands
need none of it.
"""

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Num
from joblib import Parallel, delayed
from scipy.sparse import csr_matrix
from torch import Tensor

from graphlog.downstream.metrics import TaskKind
from graphlog.ops.products import matmul

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression, Ridge

FIXED_C = 0.1
GRID = (0.001, 0.01, 0.1, 1.0)
"""Inverse strengths of the L2 penalty, ascending; ridge regression takes ``alpha = 1 / C``."""
FARTHEST = 10.0
"""Deviations at which standardized features are clipped."""
_MAX_ITERATIONS = 300
_MEMORY = 10
_TOLERANCE = 1e-4
"""Largest component of the gradient of the mean loss at which a target is done (scikit-learn's)."""
_LINE_STEPS, _LINE_TOLERANCE = 6, 0.01
_CROWDED = 0.8
"""Targets that are done leave the products once they are more than the rest of this share."""

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
    row_weights: Float[np.ndarray, "M T"] | None = None,
) -> tuple[Float[np.ndarray, "T W"], Float[np.ndarray, "T"]]:
    """Return weights and intercepts of linear models at :data:`FIXED_C`; 0 where none is learned.

    Args:
        features: Standardized, of the training rows.
        labels: Of these rows, NaN where missing.
        task: Kind of task.
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
                model = _logistic().fit(features[rows], classes, counts)
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
                weights = fit_logistic(features, labels[:, known], FIXED_C, row_weights=counts)
                weight[known], bias[known] = weights[:-1].T, weights[-1]
            return weight, bias
        everything = np.arange(len(labels))
        for t in range(labels.shape[1]):
            rows, y = labeled_rows(labels, everything, t)
            if not learnable(y):
                continue
            counts = None if row_weights is None else row_weights[rows, t]
            x, y = features[rows].astype(np.float64), y.astype(np.float64)
            model = _ridge_model(FIXED_C).fit(x, y, counts)
            weight[t], bias[t] = model.coef_.reshape(-1), float(np.squeeze(model.intercept_))
    return weight, bias


def _logistic() -> "LogisticRegression":
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=FIXED_C, warm_start=True, max_iter=_MAX_ITERATIONS, tol=1e-4)


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


def fit_logistic(
    features: Float[np.ndarray, "M W"],
    labels: Float[np.ndarray, "M T"],
    c: float,
    start: Float[np.ndarray, "W+1 T"] | None = None,
    row_weights: Float[np.ndarray, "M T"] | None = None,
) -> Float[np.ndarray, "W+1 T"]:
    """Return the weights of one logistic regression a target, the intercepts in the last row.

    Each minimizes, over its own labeled rows, the sum of the cross-entropies times ``c`` plus half
    the squared length of its weights, intercept excepted: scikit-learn's ``LogisticRegression``.
    All targets take their steps of L-BFGS together, so that a step is two matrix products over the
    features whatever the number of targets, and the line search, in which the logits are linear,
    is none.

    Args:
        features: Standardized, so that one tolerance suits all columns.
        labels: 0 or 1, NaN where missing; each target has both.
        c: Inverse strength of the penalty.
        start: Weights to start from; None starts from 0.
        row_weights: How much each label counts; None: all alike.
    """
    x = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    y = torch.from_numpy(labels).float()
    known = ~y.isnan()
    y = torch.where(known, y, 0.0)
    counts = known if row_weights is None else known * torch.from_numpy(row_weights).float()
    rows = counts.sum(dim=0).clamp_min(1e-12)
    share = counts / rows
    penalty = torch.cat([torch.ones(x.shape[1], 1), torch.zeros(1, 1)]) / (c * rows)
    shape = (x.shape[1] + 1, y.shape[1])
    fitted = torch.zeros(shape) if start is None else torch.from_numpy(start).float().clone()
    targets = torch.arange(shape[1])
    w, logits = fitted.clone(), _product(x, fitted)
    steps: list[Tensor] = []
    changes: list[Tensor] = []
    gradient = _gradient(x, share * (logits.sigmoid() - y)) + penalty * w
    for _ in range(_MAX_ITERATIONS):
        running = gradient.abs().amax(dim=0) > _TOLERANCE
        if int(running.sum()) <= _CROWDED * len(targets):
            fitted[:, targets] = w
            state = (w, logits, gradient, y, share, penalty)
            w, logits, gradient, y, share, penalty = (t[:, running] for t in state)
            steps, changes = [t[:, running] for t in steps], [t[:, running] for t in changes]
            targets, running = targets[running], running[running]
        if not len(targets):
            break
        direction = -_two_loops(gradient, steps, changes) * running
        slope = _product(x, direction)
        size = _line_search(logits, slope, w, direction, y, share, penalty)
        step = size * direction
        w, logits = w + step, logits + size * slope
        before, gradient = gradient, _gradient(x, share * (logits.sigmoid() - y)) + penalty * w
        steps, changes = [*steps, step][-_MEMORY:], [*changes, gradient - before][-_MEMORY:]
    fitted[:, targets] = w
    return fitted.numpy()


def apply_logistic(
    features: Float[np.ndarray, "M W"], weights: Float[np.ndarray, "W+1 T"]
) -> Float[np.ndarray, "M T"]:
    """Return the probabilities of every row."""
    x = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    return _product(x, torch.from_numpy(weights)).sigmoid().numpy()


def _product(x: Tensor, w: Tensor) -> Tensor:
    return matmul(x, w[:-1]) + w[-1]


def _gradient(x: Tensor, errors: Tensor) -> Tensor:
    return torch.cat([matmul(errors.T, x).T, errors.sum(dim=0, keepdim=True)])


def _two_loops(gradient: Tensor, steps: list[Tensor], changes: list[Tensor]) -> Tensor:
    """Return the gradient times the inverse curvature that the last steps have shown."""
    q = gradient.clone()
    if not steps:
        return q
    curvature = [(s * d).sum(dim=0) for s, d in zip(steps, changes, strict=True)]
    inverse = [torch.where(k > 0, 1 / k.clamp_min(1e-30), 0.0) for k in curvature]
    shares: list[Tensor] = []
    for s, d, rho in zip(reversed(steps), reversed(changes), reversed(inverse), strict=True):
        shares.append(rho * (s * q).sum(dim=0))
        q = q - shares[-1] * d
    size = changes[-1].square().sum(dim=0)
    q = q * torch.where(size > 0, curvature[-1] / size.clamp_min(1e-30), 1.0)
    for s, d, rho, a in zip(steps, changes, inverse, reversed(shares), strict=True):
        q = q + s * (a - rho * (d * q).sum(dim=0))
    return q


def _line_search(
    logits: Tensor,
    slope: Tensor,
    w: Tensor,
    direction: Tensor,
    y: Tensor,
    share: Tensor,
    penalty: Tensor,
) -> Tensor:
    """Return, for each target, how far to go: where the loss along ``direction`` is least.

    The loss is convex, so Newton's method on its derivative converges from 0; steps that would
    more than quadruple the distance are cut, since far from the optimum a logistic loss is flat.
    A hundredth of the distance is near enough, since the next direction corrects it.
    """
    size = torch.zeros(logits.shape[1])
    linear = (penalty * w * direction).sum(dim=0)
    square = (penalty * direction.square()).sum(dim=0)
    limit = torch.ones_like(size)
    weighted = share * slope
    for _ in range(_LINE_STEPS):
        p = torch.addcmul(logits, slope, size).sigmoid_()
        first = (weighted * (p - y)).sum(dim=0) + linear + size * square
        second = (p.addcmul_(p, p, value=-1).mul_(weighted).mul_(slope)).sum(dim=0) + square
        before, moved = size, -first / second.clamp_min(1e-12)
        size = torch.minimum((size + moved).clamp_min(0), limit)
        if bool(((size - before).abs() <= _LINE_TOLERANCE * size).all()):
            break
        limit = torch.where(size >= limit, 4 * limit, limit)
    return size


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
