"""Linear models, fitted to many targets at the same time where possible, and tree ensembles.

scikit-learn is imported inside functions: it takes as long to import as torch, and most commands do
not need it.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Num
from joblib import Parallel, delayed
from scipy.sparse import csr_matrix
from scipy.special import expit, softmax
from torch import Tensor

from graphlog.data.split import group_numbers
from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.metrics import TaskKind, learnable
from graphlog.ops.dense import matmul

FIXED_C = 0.1
GRID = (0.001, 0.01, 0.1, 1.0)
"""Inverse strengths of the L2 penalty, ascending; ridge regression takes ``alpha = 1 / C``."""
CLIP_AT = 10.0
"""Standard deviations at which standardized features are clipped."""
_NOISE = 1e-5
"""Share of the mean below which a standard deviation is rounding error: float32 means over nodes
differ by about that much with the order of the nodes."""
_MIN_PROBABILITY = 1e-9
"""Smallest distance of a probability from 0 and 1 when logits are averaged."""

TREES, TREES_MANY_TASKS, MANY_TASKS = 300, 100, 50

MAX_ITERATIONS = 300
_MEMORY = 10
"""Number of past steps from which L-BFGS estimates the curvature."""
_TOLERANCE = 1e-4
"""Largest component of the gradient of the mean loss for convergence, as in scikit-learn."""
_LINE_STEPS, _LINE_TOLERANCE = 6, 0.01
_RUNNING_SHARE = 0.8
"""Share of unconverged targets at or below which converged ones are removed from the products."""

COUNTS = "counts"
"""Name of the counts of substructures by which kernel models compare graphs."""

Features = np.ndarray | csr_matrix


class Scaling(NamedTuple):
    """Standardization of columns, which are clipped at :data:`CLIP_AT` standard deviations.

    Without clipping, a column that hardly varies in the training rows would dominate predictions
    for the few rows in which it differs.
    """

    mean: Float[np.ndarray, "W"]
    """Mean of each column over the training rows."""
    deviation: Float[np.ndarray, "W"]
    """Standard deviation of each column over the training rows; 1 if it is only rounding error."""

    @classmethod
    def of(cls, features: Float[np.ndarray, "M W"]) -> "Scaling":
        """Return the scaling by the means and standard deviations of these rows."""
        from sklearn.preprocessing import StandardScaler

        scaler: Any = StandardScaler().fit(features)
        is_noise = scaler.scale_ < _NOISE * np.abs(scaler.mean_)
        return cls(scaler.mean_, np.where(is_noise, 1.0, scaler.scale_))

    def __call__(self, features: Float[np.ndarray, "M W"]) -> Float[np.ndarray, "M W"]:
        """Return the columns scaled and clipped, in float32."""
        scaled = np.array(features, dtype=np.float32)
        scaled -= self.mean
        scaled /= self.deviation
        return scaled.clip(-CLIP_AT, CLIP_AT, out=scaled)


def moments(
    values: Float[np.ndarray, "R W"], weights: Float[np.ndarray, "R"] | None = None
) -> tuple[Float64[np.ndarray, "W"], Float64[np.ndarray, "W"]]:
    """Return the weighted mean and standard deviation of each column, ignoring NaN.

    Example:
        >>> moments(np.array([[0.0], [3.0]]), np.array([2.0, 1.0]))[0]
        array([1.])
    """
    from sklearn.preprocessing import StandardScaler  # slow to import

    scaler: Any = StandardScaler().fit(values, sample_weight=weights)
    return scaler.mean_, np.sqrt(scaler.var_)


def standardize(features: Float[np.ndarray, "M W"], train: np.ndarray) -> Float[np.ndarray, "M W"]:
    """Return features with mean 0 and variance 1 over training rows; constant columns are 0."""
    return Scaling.of(features[train])(features)


def sparse_bits(bits: np.ndarray) -> csr_matrix:
    """Return fingerprint bits as a sparse matrix; about one bit in forty is set."""
    return csr_matrix(bits, dtype=np.float32)


class LinearModel(NamedTuple):
    """Linear models of all targets on one set of features; a probe averages several of these."""

    weight: Float[np.ndarray, "W T"]
    bias: Float[np.ndarray, "T"]
    """Intercepts, NaN for targets that cannot be learned."""
    scaling: Scaling | None = None
    """Scaling of the features; None if they are used unchanged, such as features of 0 and 1."""
    c: float = math.nan
    """Inverse strength of the penalty."""


def linear_path(
    features: Features,
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    task: TaskKind,
    grid: Sequence[float] = GRID,
    weights: Float[np.ndarray, "M"] | None = None,
) -> dict[float, Float[np.ndarray, "M T"]]:
    """Return, for each C of ``grid``, the predictions of every row: probabilities or values.

    Each target is fitted to its labeled training rows; a target that cannot be learned is NaN.
    """
    fits = linear_fits(features, labels, train, task, grid, weights)
    return {c: linear_predictions(features, fit, task) for c, fit in fits.items()}


def linear_fits(
    features: Features,
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    task: TaskKind,
    grid: Sequence[float] = GRID,
    weights: Float[np.ndarray, "M"] | None = None,
) -> dict[float, LinearModel]:
    """Return the models of :func:`linear_path` for each C of ``grid``, ascending.

    A row of weight 2 counts as if it occurred twice; None weights all rows equally.
    """
    path = sorted(grid)
    x, y = features[train], labels[train]  # pyright: ignore[reportOptionalSubscript] - scipy's stubs
    can_learn, shape = learnable(y), (int(x.shape[1]), y.shape[1])  # pyright: ignore[reportOptionalSubscript] - scipy's stubs
    fits = {c: LinearModel(np.full(shape, np.nan), np.full(shape[1], np.nan)) for c in path}
    if not can_learn.any():
        return fits

    def keep(targets: np.ndarray, models: Mapping[float, LinearModel]) -> None:
        for c, (weight, bias, *_) in models.items():
            fits[c].weight[:, targets], fits[c].bias[targets] = weight, bias

    def weights_of(known: Any) -> Float[np.ndarray, "R"] | None:
        return None if weights is None else weights[train[known]]

    def fit_target(t: int) -> None:
        known = np.flatnonzero(~np.isnan(y[:, t]))
        fit = _ridge if task == "regression" else _logistic
        keep(np.array([t]), fit(x[known], y[known, t, None], path, weights_of(known)))  # pyright: ignore[reportOptionalSubscript] - scipy's stubs

    if task == "regression" and not np.isnan(y).any():
        keep(can_learn, _ridge(x, y[:, can_learn], path, weights_of(slice(None))))
    elif task == "classification" and isinstance(x, np.ndarray):
        fit = None
        for c in path:
            fit = fit_logistic(x, y[:, can_learn], c, fit, weights_of(slice(None)))
            keep(can_learn, {c: LinearModel(fit[:-1], fit[-1])})
    elif task == "multiclass":
        known = np.flatnonzero(~np.isnan(y).any(axis=1))
        classes = y[known].argmax(axis=1)[:, None]
        with without_convergence_warnings():
            models = _logistic(x[known], classes, path, weights_of(known))  # pyright: ignore[reportOptionalSubscript] - scipy's stubs
        seen = np.unique(classes)
        for c, (weight, bias, *_) in models.items():
            if len(seen) == 2:  # scikit-learn returns only the difference of two classes
                weight = np.concatenate([-weight, weight], axis=1) / 2
                bias = np.concatenate([-bias, bias]) / 2
            fits[c].weight[:], fits[c].bias[:] = 0.0, -np.inf  # classes without a training row
            keep(seen, {c: LinearModel(weight, bias)})
    else:
        with without_convergence_warnings():  # outside of the threads, which share the filters
            Parallel(n_jobs=-1, prefer="threads")(
                delayed(fit_target)(t) for t in np.flatnonzero(can_learn).tolist()
            )
    return fits


def held_out_path(
    features: Features,
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    task: TaskKind,
    grid: Sequence[float] = GRID,
    kinds: Int[np.ndarray, "M"] | None = None,
    weights: Float[np.ndarray, "M"] | None = None,
) -> dict[float, Float[np.ndarray, "M T"]]:
    """Return, for each C of ``grid``, 5-fold cross-validated predictions of the training rows.

    Folds are random, with rows of one kind in the same fold. All other rows are NaN.
    """
    order, numbers = shuffled(train, kinds)
    held_out = {c: np.full(labels.shape, np.nan) for c in grid}
    count = int(numbers[-1]) + 1
    for part in np.array_split(np.arange(count), min(5, count)):
        fold = order[np.isin(numbers, part)]
        rest = np.setdiff1d(train, fold)
        for c, predictions in linear_path(features, labels, rest, task, grid, weights).items():
            held_out[c][fold] = predictions[fold]
    return held_out


def shuffled(
    rows: Int[np.ndarray, "R"], kinds: Int[np.ndarray, "M"] | None
) -> tuple[Int[np.ndarray, "R"], Int[np.ndarray, "R"]]:
    """Shuffle rows, with repeats next to each other; return them and ascending numbers of kinds.

    ``kinds`` are equal for rows that repeat each other; None if no rows do.
    """
    numbers = group_numbers((rows if kinds is None else kinds[rows]).tolist())
    positions = np.argsort(np.random.default_rng(0).permutation(numbers.max() + 1))[numbers]
    order = np.argsort(positions, kind="stable")
    return rows[order], positions[order]


def linear_predictions(
    features: Features, model: LinearModel, task: TaskKind
) -> Float[np.ndarray, "M T"]:
    """Return the probabilities (classification) or values (regression) of every row.

    They are in double precision, in which different logits give different probabilities.
    """
    if task == "classification" and isinstance(features, np.ndarray):
        x = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
        weights = np.vstack([model.weight, model.bias]).astype(np.float32)
        return _product(x, torch.from_numpy(weights)).double().sigmoid().numpy()
    outputs = np.asarray(features.astype(np.float64) @ model.weight.astype(np.float64) + model.bias)
    if task == "regression":
        return outputs
    return expit(outputs) if task == "classification" else softmax(outputs, axis=1)


def fuse(parts: Sequence[Float[np.ndarray, "M T"]], task: str) -> Float[np.ndarray, "M T"]:
    """Return the mean prediction of several models: of their logits, or values for regression.

    Example:
        >>> fuse([np.array([[0.9]]), np.array([[0.1]])], "classification")
        array([[0.5]])
    """
    if len(parts) == 1:
        return parts[0]
    if task == "regression":
        return np.mean(parts, axis=0)
    likely = np.clip(np.asarray(parts, dtype=np.float64), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    if task == "multiclass":
        logs = np.log(likely).mean(axis=0)
        # classes that no model has learned keep probability 0
        return softmax(np.where(np.any(parts, axis=0), logs, -np.inf), axis=1)
    return expit((np.log(likely) - np.log1p(-likely)).mean(axis=0))


def without_convergence_warnings() -> AbstractContextManager[Any]:
    """Ignore warnings of unfinished fits: the last digits of a score are not worth more steps."""
    from sklearn.exceptions import ConvergenceWarning

    return warnings.catch_warnings(action="ignore", category=ConvergenceWarning)


def _logistic(
    x: Features,
    classes: Num[np.ndarray, "R 1"],
    path: Sequence[float],
    weights: Float[np.ndarray, "R"] | None,
) -> dict[float, LinearModel]:
    """Return the models of one target; scikit-learn has a single column for two classes."""
    from sklearn.linear_model import LogisticRegression

    model, fits = LogisticRegression(warm_start=True, max_iter=MAX_ITERATIONS), {}
    for c in path:
        model.set_params(C=c).fit(x, classes[:, 0].astype(np.int64), weights)
        fits[c] = LinearModel(model.coef_.T.copy(), np.array(model.intercept_))
    return fits


def _ridge(
    x: Features,
    y: Float[np.ndarray, "R T"],
    path: Sequence[float],
    weights: Float[np.ndarray, "R"] | None,
) -> dict[float, LinearModel]:
    """Return models that are fitted in float64: columns of embeddings are nearly dependent."""
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import Ridge

    fits = dict[float, LinearModel]()
    if not isinstance(x, np.ndarray):
        values = x.astype(np.float64)
        for c in path:
            model: Any = Ridge(alpha=1.0 / c).fit(values, y, weights)
            fits[c] = LinearModel(np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_))
        return fits
    given = np.ones(len(x)) if weights is None else weights.astype(np.float64)
    mean, shift = (np.average(values, axis=0, weights=given) for values in (x, y))
    centered, right = x - mean, y - shift
    for values in (centered, right):
        values *= np.sqrt(given)[:, None]
    # the products of the rows, or of the columns if there are fewer, are used for all penalties
    is_tall = x.shape[0] > x.shape[1]
    products = centered.T @ centered if is_tall else centered @ centered.T
    right = centered.T @ right if is_tall else right
    for c in path:
        # solves either system; `set_params` because the type stub expects an integer penalty
        system: Any = KernelRidge(kernel="precomputed").set_params(alpha=1.0 / c)
        solved = system.fit(products, right).dual_coef_
        weight = solved if is_tall else centered.T @ solved
        fits[c] = LinearModel(weight, shift - mean @ weight)
    return fits


def tree_predictions(
    features: Num[np.ndarray, "M F"],
    labels: Float[np.ndarray, "M T"],
    train: np.ndarray,
    task: TaskKind,
    seed: int = 0,
    *,
    boosted: bool = False,
) -> Float[np.ndarray, "M T"]:
    """Return the predictions of random forests, or gradient-boosted trees, for every row.

    Each target has its own model. Predictions of a target that cannot be learned are NaN; those of
    a class without a training row are 0.
    """
    from sklearn import ensemble

    is_regression = task == "regression"
    has_classes = task == "multiclass" and learnable(labels[train]).any()
    settings: dict[str, Any] = {"random_state": seed}
    if boosted:
        kinds = ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor
    else:
        kinds = ensemble.RandomForestClassifier, ensemble.RandomForestRegressor
        trees = TREES if labels.shape[1] <= MANY_TASKS else TREES_MANY_TASKS
        share = 1 / 3 if is_regression else "sqrt"
        settings |= {"n_estimators": trees, "max_features": share, "n_jobs": 1}

    def predictions_of(y: np.ndarray) -> np.ndarray:
        rows = train[~np.isnan(y[train])]
        if not learnable(y[rows, None]).all():
            return np.full(len(features), 0.0 if has_classes else np.nan)
        model: Any = kinds[is_regression](**settings).fit(features[rows], y[rows])
        return model.predict(features) if is_regression else model.predict_proba(features)[:, 1]

    columns = Parallel(n_jobs=1 if boosted else -1, prefer="threads")(
        delayed(predictions_of)(y) for y in labels.T
    )
    return np.stack(columns, axis=1)  # pyright: ignore[reportArgumentType, reportCallIssue]


def features_of(store: GraphStore, name: str) -> np.ndarray | csr_matrix:
    """Return features of the store's domain by their name, which may also be :data:`COUNTS`."""
    domain = domain_of(store.schema)
    if name != COUNTS:
        return domain.feature_set(name, store).values
    counts = domain.feature_counts(store)
    assert counts is not None, "counts are used only in domains that have them"
    return counts


def fit_logistic(
    features: Float[np.ndarray, "M W"],
    labels: Float[np.ndarray, "M T"],
    c: float,
    start: Float[np.ndarray, "W+1 T"] | None = None,
    weights: Float[np.ndarray, "M"] | None = None,
) -> Float[np.ndarray, "W+1 T"]:
    """Return the weights of a logistic regression for each target, with intercepts in the last row.

    As scikit-learn's ``LogisticRegression``, each minimizes ``c`` times the sum of cross-entropies
    over its labeled rows, plus half the squared norm of its weights without the intercept.
    ``weights`` are the weights of rows, 1 if None; ``start`` has initial values of the result, 0 if
    None. Each target must have both classes.

    All targets take their L-BFGS steps together. A step then takes two matrix products with the
    features, for any number of targets; the line search needs none, since logits are linear in the
    step size. One tolerance suits all columns because they are standardized.
    """
    x = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    y = torch.from_numpy(labels).float()
    known = (~y.isnan()).float()
    if weights is not None:
        known *= torch.from_numpy(weights).float()[:, None]
    y = y.nan_to_num(0.0)
    rows = known.sum(dim=0).clamp_min(1e-12)
    share = known / rows
    shape = (x.shape[1] + 1, y.shape[1])
    is_weight = torch.arange(shape[0])[:, None] < x.shape[1]  # the last row is the intercept
    penalty = is_weight.float() / (c * rows)
    fitted = x.new_zeros(shape) if start is None else torch.from_numpy(start).float().clone()
    targets = torch.arange(shape[1])
    w, logits = fitted.clone(), _product(x, fitted)
    steps: list[Tensor] = []
    changes: list[Tensor] = []
    gradient = _gradient(x, share * (logits.sigmoid() - y)) + penalty * w
    for _ in range(MAX_ITERATIONS):
        running = gradient.abs().amax(dim=0) > _TOLERANCE
        if int(running.sum()) <= _RUNNING_SHARE * len(targets):
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


def _product(x: Tensor, w: Tensor) -> Tensor:
    return matmul(x, w[:-1]) + w[-1]


def _gradient(x: Tensor, errors: Tensor) -> Tensor:
    return torch.cat([matmul(errors.T, x).T, errors.sum(dim=0, keepdim=True)])


def _two_loops(gradient: Tensor, steps: list[Tensor], changes: list[Tensor]) -> Tensor:
    """Return the gradient times the inverse Hessian that L-BFGS estimates from the last steps."""
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
    """Return for each target the step size with the smallest loss along ``direction``.

    The loss is convex, so Newton's method on its derivative converges from 0. A step size may at
    most quadruple in one iteration, since a logistic loss is flat far from the optimum. An accuracy
    of 1 % suffices, since the next direction corrects the rest.
    """
    size = logits.new_zeros(logits.shape[1])
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
