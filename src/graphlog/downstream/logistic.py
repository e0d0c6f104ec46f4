"""Logistic regressions of many targets on the same features, fitted at once by L-BFGS."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphlog.ops.products import matmul

MAX_ITERATIONS = 300
_MEMORY = 10
_TOLERANCE = 1e-4
"""Largest component of the gradient of the mean loss at which a target is done (scikit-learn's)."""
_LINE_STEPS, _LINE_TOLERANCE = 6, 0.01
_CROWDED = 0.8
"""Targets that are done leave the products once they are more than the rest of this share."""


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
    for _ in range(MAX_ITERATIONS):
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
