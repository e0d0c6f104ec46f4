r"""Kernel ridge regression, which is the mean of a Gaussian process, with standard deviations.

With rows :math:`x_i`, standardized labels :math:`y_i` and a kernel :math:`k`, the coefficients are
:math:`\alpha = (K + \lambda I)^{-1} y`, and a new row is predicted by
:math:`f(x) = \sum_i \alpha_i k(x, x_i)`. The kernel is a weighted sum over blocks of features: a
Matérn kernel of order 3/2 for all quantities, which are standardized and joined, and a Tanimoto
kernel for each block of substructure counts. Five-fold cross-validation on the fitted rows chooses
width, weights and penalty; rows that repeat each other are in one fold. With
:math:`G = (K + \lambda I)^{-1}`, the errors on a fold :math:`F` of a model that is fitted to the
other folds are :math:`G_{FF}^{-1} \alpha_F`, so one Cholesky factor serves all five folds.

Quantities are then compared a second time, along the directions in which the predictions change
most: the eigenvectors of the average outer product of the gradients of the first model (recursive
feature machines; Radhakrishnan et al., Science 2024). Here there is a single step, directions are
weighted by the square roots of the eigenvalues, and the plain distance is added. Directions are
used only if they reduce the error on held-out rows, for which they come from the other folds.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, lru_cache, partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from scipy.sparse import csr_matrix
from scipy.special import expit
from torch import Tensor

from graphlog.downstream.linear import Scaling, fit_logistic, moments, shuffled
from graphlog.downstream.metrics import TaskKind, learnable
from graphlog.downstream.uncertainty import HALF_WIDTH_90
from graphlog.errors import DataError, ModelFileError

MAX_EXACT_ROWS = 10_000
"""Largest number of rows of an exact fit, in which every row is a support point."""
LANDMARKS = 4_000
"""Largest number of support points (landmarks) of other fits."""
TUNING_ROWS = 2_500
"""Largest number of rows on which settings are chosen. They are drawn at random, except that with
more than :data:`MAX_EXACT_ROWS` rows up to half of them belong to rare classes."""
FOLDS = 5
_MAX_PATTERNS = 16
"""Largest number of patterns of missing labels on which settings are chosen, and of principal
components of a pattern's coefficients from which gradients are computed."""
_MAX_MULTIPLICATIONS = 6e12
"""Largest number of multiplications of an exact fit; larger problems use landmarks."""
_MEMORY_SHARE = 0.5
"""Share of the free memory that the kernel of an exact fit may take."""
_BATCH_ROWS = 1024
_MEDIAN_ROWS = 1000
"""Number of rows used to compute the median distance."""
_LEVELS = 32
"""Number of levels of a count; larger counts are treated as this one."""
_CONSTANT = 1.0
"""Constant term of every kernel: labels are centered over all rows, but not in every fold."""
_MAX_DIRECTIONS = 384
"""Largest number of directions, and of the principal components in which they are computed."""
_TARGET_SHAPES: Mapping[str, tuple[int | None, ...]] = {
    "coefficients": (None,),
    "shift": (),
    "scale": (),
    "link": (2,),
    "spread": (7,),
}
"""Attributes of a model with a last axis of targets, and their other axes; None is any length."""

Columns = np.ndarray | csr_matrix
"""Features with one row for each graph: quantities, or counts of substructures (sparse)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that cross-validation chooses."""

    widths: tuple[float, ...]
    """Log2 of the inverse squared width of the Matérn kernel of each block, for distances whose
    median square is 1; unused for counts."""
    shares: tuple[float, ...]
    """Weight of each block; they sum to 1."""
    penalty: float
    """Log2 of the penalty, the variance of the noise relative to that of the weighted kernels."""


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """One block of features at the support points, to compare other rows with them."""

    names: tuple[str, ...]
    """Names of the features in the domain; an empty name is the embedding of an encoder."""
    values: Columns
    """Standardized quantities, then their coordinates along the directions; or binary levels."""
    scaling: Scaling | None = None
    """Scaling of quantities; None for counts."""
    columns: tuple[int, ...] = ()
    """Number of columns of each of the joined quantities."""
    median: float = 1.0
    """Median squared distance between support points; distances are divided by it."""
    directions: Float[np.ndarray, "W K"] | None = None
    """Matrix from standardized quantities to coordinates along the directions, if there are any."""

    @classmethod
    def of_quantities(
        cls, blocks: Mapping[str, np.ndarray], rows: Int[np.ndarray, "S"]
    ) -> "Support":
        """Return the joined quantities of some rows; raise a DataError if any is not finite."""
        for name, values in blocks.items():
            bad = np.flatnonzero(~np.isfinite(values[rows]).all(axis=0))
            if len(bad):
                raise DataError(
                    f"{name or 'the embedding'} has values that are not finite (NaN or infinite) "
                    f"in column {bad[0]} ({len(bad)} such columns); leave these columns or rows "
                    "out."
                )
        values = np.concatenate([values[rows] for values in blocks.values()], axis=1)
        columns = tuple(values.shape[1] for values in blocks.values())
        unscaled = cls(tuple(blocks), values, Scaling.of(values), columns)
        scaled = np.asarray(unscaled.prepare(values))
        return replace(unscaled, values=scaled, median=_median_distance(scaled))

    def with_directions(self, directions: Float[np.ndarray, "W K"]) -> "Support":
        """Return this block with its rows compared along directions as well."""
        values = np.concatenate([self.values, self.values @ directions], axis=1)
        median = _median_distance(values)
        return replace(self, values=values, median=median, directions=directions)

    def prepare(self, values: Columns) -> Columns:
        """Return the features of other rows in the form of :attr:`values`."""
        if self.scaling is None:
            levels = binary_levels(csr_matrix(values))
            if levels.shape[1] != self.values.shape[1]:  # pyright: ignore[reportOptionalSubscript]
                raise ModelFileError(
                    "the kernel model was fitted to counts of other substructures; fit it again."
                )
            return levels
        scaled = self.scaling(np.asarray(values))
        first, *others = self.columns
        # the columns of each further block weigh half as much as those of the first, in total
        weights = [1.0, *(math.sqrt(0.5 * first / width) for width in others)]
        scaled *= np.repeat(weights, self.columns).astype(np.float32)
        if self.directions is None:
            return scaled
        return np.concatenate([scaled, scaled @ self.directions], axis=1)

    def compare(self, rows: Columns, count: int) -> Float64[Tensor, "N S"]:
        """Return how prepared rows compare with the first ``count`` support points.

        These are Tanimoto coefficients of counts, or squared distances over :attr:`median`.
        """
        first = self.values[:count]  # pyright: ignore[reportIndexIssue] - scipy's stubs
        if self.scaling is None:
            return torch.from_numpy(_tanimoto(csr_matrix(rows), csr_matrix(first)))
        return _squared_distances(np.asarray(rows), np.asarray(first)).div_(self.median)

    def kernel(self, compared: Float[Tensor, "N S"], width: float) -> Float[Tensor, "N S"]:
        """Return the kernel of rows from what :meth:`compare` returned for them."""
        if self.scaling is None:
            return compared
        distances = compared.mul(3.0 * 2.0**width).sqrt_()
        return torch.exp(-distances).mul_(distances.add_(1.0))


def binary_levels(counts: csr_matrix) -> csr_matrix:
    """Return counts as columns of 0 and 1, one for each substructure and level (1, 2, ...).

    A count of 3 is 1 in the first three levels of its substructure. The smaller of two counts is
    then the number of levels that both have, so the Tanimoto coefficient of counts, the sum of the
    smaller counts over the sum of the larger ones, is that of bits.
    """
    counts = counts.tocsr()
    columns = int(counts.shape[1])  # pyright: ignore[reportOptionalSubscript] - scipy's stubs
    reached = np.minimum(counts.data, _LEVELS).astype(np.int64)
    starts = np.cumsum(reached) - reached
    level = np.arange(reached.sum()) - np.repeat(starts, reached)
    indices = np.repeat(counts.indices.astype(np.int64), reached) + columns * level
    row_ends = np.concatenate([[0], np.cumsum(reached)])[counts.indptr]
    shape = (int(counts.shape[0]), columns * _LEVELS)  # pyright: ignore[reportOptionalSubscript]
    return csr_matrix((np.ones(len(indices), np.float32), indices, row_ends), shape=shape)


def _tanimoto(rows: csr_matrix, others: csr_matrix) -> Float64[np.ndarray, "N S"]:
    """Return the Tanimoto coefficients of binary rows; 1 for two rows of zeros."""
    # columns with more than 1/64 of ones are multiplied faster as dense ones
    is_dense = others.getnnz(axis=0) > others.shape[0] / 64  # pyright: ignore[reportOptionalSubscript]
    both = rows[:, is_dense].toarray() @ others[:, is_dense].toarray().T
    both += (rows[:, ~is_dense] @ others[:, ~is_dense].T).toarray()
    either = np.add.outer(rows.getnnz(axis=1), others.getnnz(axis=1)) - both
    return np.where(either > 0, both / np.maximum(either, 1), 1.0).astype(np.float64)


def _squared_distances(
    rows: Float[np.ndarray, "N W"], others: Float[np.ndarray, "S W"]
) -> Float64[Tensor, "N S"]:
    # NumPy computes only one half of the product of an array with its own transpose
    is_same = rows.ctypes.data == others.ctypes.data and rows.shape == others.shape
    rows = rows.astype(np.float64)
    others = rows if is_same else others.astype(np.float64)
    distances = rows @ others.T
    distances *= -2
    distances += np.square(rows).sum(axis=1)[:, None]
    distances += np.square(others).sum(axis=1)
    return torch.from_numpy(np.maximum(distances, 0, out=distances))


def _median_positive(distances: Float[Tensor, "N N"]) -> float:
    """Return the median of the positive distances between rows; 1 if there are none."""
    pairs = distances.numpy()[np.triu_indices(len(distances), 1)]
    pairs = pairs[pairs > 0]
    return float(np.median(pairs)) if len(pairs) else 1.0


def _median_distance(values: Float[np.ndarray, "S W"]) -> float:
    first = values[:_MEDIAN_ROWS]
    return _median_positive(_squared_distances(first, first))


def _add_kernels(
    total: Float[Tensor, "N S"], settings: Settings, kernels: Iterable[Callable[[float], Tensor]]
) -> Float[Tensor, "N S"]:
    """Add to ``total`` the weighted kernels of all blocks, which are functions of their widths."""
    for kernel, width, share in zip(kernels, settings.widths, settings.shares, strict=True):
        if share:
            total.add_(kernel(width), alpha=share)
    return total


def _kernel_of_compared(
    settings: Settings, supports: Sequence[Support], compared: Sequence[Float[Tensor, "N S"]]
) -> Float[Tensor, "N S"]:
    """Return the kernel of rows from what :meth:`Support.compare` returned for each block."""
    kernels = (partial(s.kernel, block) for s, block in zip(supports, compared, strict=True))
    return _add_kernels(torch.full_like(compared[0], _CONSTANT), settings, kernels)


def _kernel(
    settings: Settings, supports: Sequence[Support], rows: Sequence[Columns], count: int
) -> Float64[Tensor, "N S"]:
    """Return the kernel of prepared rows with the first ``count`` support points."""

    def kernel_of(support: Support, block: Columns, width: float) -> Float64[Tensor, "N S"]:
        return support.kernel(support.compare(block, count), width)

    total = torch.full((int(rows[0].shape[0]), count), _CONSTANT, dtype=torch.float64)  # pyright: ignore[reportOptionalSubscript]
    kernels = (partial(kernel_of, s, block) for s, block in zip(supports, rows, strict=True))
    return _add_kernels(total, settings, kernels)


class Predicted(NamedTuple):
    """Predictions with their standard deviations."""

    mean: Float[np.ndarray, "N T"]
    """Probabilities, or values."""
    std: Float[np.ndarray, "N T"] | None
    """Expected standard deviations of the errors; None for classes."""


@dataclass(frozen=True, eq=False)
class KernelModel:
    """A fitted kernel model of one or more targets."""

    task: TaskKind
    supports: tuple[Support, ...]
    settings: Settings
    labeled: Bool[np.ndarray, "S T"]
    """Which support points have a label of which target; all for classes."""
    coefficients: Float64[np.ndarray, "S T"]
    shift: Float64[np.ndarray, "T"]
    """Mean of the labels; NaN for a target that cannot be learned."""
    scale: Float64[np.ndarray, "T"]
    """Standard deviation of the labels."""
    link: Float64[np.ndarray, "2 T"]
    """Classes: slope and intercept of the logistic curve from outputs to probabilities."""
    spread: Float64[np.ndarray, "7 T"]
    """Regression: how the expected error of a row depends on its output and posterior variance.

    The log standard deviation of the error is a linear function of 1, the log posterior standard
    deviation, the output and its square. These are its four coefficients, followed by the smallest
    log posterior standard deviation that is used and the range to which outputs are clipped.
    """

    @property
    def count(self) -> int:
        """Number of support points."""
        return len(self.coefficients)

    @cached_property
    def variance_points(self) -> list[tuple[Int[np.ndarray, "V"], Int[np.ndarray, "_"]]]:
        """Support points from which the variance is computed, and targets they are used for.

        For each pattern of missing labels these are the first points with labels. Their number is
        limited so that the Cholesky factors of all patterns take at most nine times the memory of
        one with :data:`TUNING_ROWS` points.
        """
        patterns = _patterns(self.labeled)
        limit = int(min(TUNING_ROWS, 3 * TUNING_ROWS / math.sqrt(max(len(patterns), 1))))
        return [(np.flatnonzero(mask)[:limit], columns) for mask, columns in patterns]

    def settings_by_name(self) -> dict[str, Any]:
        """Return the settings, those of blocks by the names of their features, JSON-ready."""
        names = [" + ".join(n or "embedding" for n in s.names) for s in self.supports]
        return {
            "penalty": 2.0**self.settings.penalty,
            "widths": dict(zip(names, self.settings.widths, strict=True)),
            "shares": dict(zip(names, self.settings.shares, strict=True)),
        }

    @cached_property
    def _factors(self) -> list[Float64[Tensor, "V V"]]:
        factors = list[Tensor]()
        for rows, _ in self.variance_points:
            points = [replace(s, values=s.values[rows]) for s in self.supports]  # pyright: ignore[reportIndexIssue]
            kernel = _kernel(self.settings, points, [s.values for s in points], len(rows))
            kernel.diagonal().add_(2.0**self.settings.penalty)
            factors.append(_cholesky(kernel))
        return factors

    def predict(self, values: Sequence[Columns], with_spread: bool = True) -> Predicted:
        """Return the predictions of rows whose features are in the order of :func:`fit_kernel`.

        Standard deviations, if ``with_spread``, take most of the time.
        """
        rows, targets = int(values[0].shape[0]), len(self.shift)  # pyright: ignore[reportOptionalSubscript]
        coefficients = torch.from_numpy(self.coefficients)
        outputs, variance = np.empty((2, rows, targets))
        has_std = with_spread and self.task == "regression"
        quantities = [block for block in values if not isinstance(block, csr_matrix)]
        blocks: list[Columns] = [np.concatenate(quantities, axis=1)] if quantities else []
        blocks += [block for block in values if isinstance(block, csr_matrix)]
        for part in _batches(np.arange(rows)):
            prepared = [s.prepare(v[part]) for s, v in zip(self.supports, blocks, strict=True)]  # pyright: ignore[reportIndexIssue]
            kernel = _kernel(self.settings, self.supports, prepared, self.count)
            outputs[part] = kernel @ coefficients
            if has_std:
                variance[part] = self.variance(kernel)
        std = self._std(outputs, variance) if has_std else None
        return Predicted(self.to_predictions(outputs), std)

    def variance(self, kernel: Float64[Tensor, "N S"]) -> Float64[Tensor, "N T"]:
        """Return the posterior variance of rows, with noise, in the units of the kernel.

        As its predictions, the variance of a target depends only on points with its labels.
        """
        variance = kernel.new_full((len(kernel), len(self.shift)), 1.0 + _CONSTANT)
        for (rows, columns), factor in zip(self.variance_points, self._factors, strict=True):
            explained = torch.linalg.solve_triangular(factor, kernel[:, rows].T, upper=False)
            variance[:, columns] -= explained.square_().sum(0)[:, None]
        return variance.clamp_(min=0).add_(2.0**self.settings.penalty)

    def _std(
        self, outputs: Float64[np.ndarray, "N T"], variance: Float64[np.ndarray, "N T"]
    ) -> Float64[np.ndarray, "N T"]:
        constant, slope, linear, square, least, low, high = self.spread
        log_std = np.maximum(0.5 * np.log(variance), least)
        clipped = outputs.clip(low, high)
        logs = constant + slope * log_std + linear * clipped + square * clipped**2
        return np.exp(logs) * self.scale + 0 * self.shift  # NaN where nothing was learned

    def to_predictions(self, outputs: Float64[np.ndarray, "N T"]) -> Float64[np.ndarray, "N T"]:
        """Return outputs, which are standardized, as probabilities or values."""
        if self.task == "regression":
            return outputs * self.scale + self.shift
        likely = expit(outputs * self.link[0] + self.link[1])
        if self.task == "classification":
            return likely + 0 * self.shift
        likely[:, np.isnan(self.shift)] = 0  # classes without a training row
        return likely / likely.sum(axis=1, keepdims=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return the model as named tensors, the inverse of :meth:`of`."""
        arrays: dict[str, np.ndarray] = {name: getattr(self, name) for name in _TARGET_SHAPES}
        arrays |= {name: np.atleast_1d(value) for name, value in asdict(self.settings).items()}
        arrays |= {} if self.labeled.all() else {"labeled": self.labeled}
        for k, support in enumerate(self.supports):
            if support.scaling is None:
                levels = csr_matrix(support.values)
                arrays[f"{k}.indices"] = levels.indices.astype(np.int32)
                arrays[f"{k}.indptr"] = levels.indptr.astype(np.int64)
                arrays[f"{k}.columns"] = np.array([levels.shape[1]])  # pyright: ignore[reportOptionalSubscript]
            else:
                arrays[f"{k}.values"] = np.asarray(support.values)
                arrays[f"{k}.mean"] = support.scaling.mean
                arrays[f"{k}.deviation"] = support.scaling.deviation
                arrays[f"{k}.columns"] = np.array(support.columns)
                arrays[f"{k}.median"] = np.array([support.median])
                if support.directions is not None:
                    arrays[f"{k}.directions"] = support.directions
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}

    @classmethod
    def of(
        cls,
        task: TaskKind,
        columns: Mapping[str, int | None],
        tensors: Mapping[str, Tensor],
        targets: int,
    ) -> "KernelModel":
        """Return the model that :meth:`tensors` returned as ``tensors``.

        ``columns`` are the numbers of columns by the names of the features; None for counts, which
        come last. ``targets`` is the number of targets.

        Raises:
            KeyError: If a tensor is missing.
            ValueError: If tensors do not fit each other, or values are out of range.
        """
        of_targets = {
            name: _checked_array(tensors, name, *shape, targets).astype(np.float64)
            for name, shape in _TARGET_SHAPES.items()
        }
        count = len(of_targets["coefficients"])
        labeled = np.ones((count, targets), dtype=bool)
        if "labeled" in tensors:
            labeled = _checked_array(tensors, "labeled", count, targets).astype(bool)
        quantities = {name: width for name, width in columns.items() if width is not None}
        counts = [name for name, width in columns.items() if width is None]
        blocks = bool(quantities) + len(counts)
        widths, shares = (_checked_array(tensors, name, blocks) for name in ("widths", "shares"))
        penalty = _checked_array(tensors, "penalty", 1)
        if (np.abs([*widths, *penalty]) > 64).any():
            raise ValueError("`widths` or `penalty` is out of range")
        supports = [_quantities_from(tensors, quantities, count)] if quantities else []
        for k, name in enumerate(counts, len(supports)):
            supports.append(_counts_from(tensors, k, name, count))
        settings = Settings(tuple(widths.tolist()), tuple(shares.tolist()), float(penalty[0]))
        return cls(task, tuple(supports), settings, labeled, **of_targets)


def _quantities_from(
    tensors: Mapping[str, Tensor], columns: Mapping[str, int], count: int
) -> Support:
    """Return the first block of a model's tensors: quantities at ``count`` support points."""
    widths = [*columns.values()]
    stored = _checked_array(tensors, "0.columns", len(widths)).tolist()
    if stored != widths:
        raise ValueError(f"`0.columns` are {stored}, not {widths}")
    total = sum(widths)
    mean, deviation = (_checked_array(tensors, f"0.{k}", total) for k in ("mean", "deviation"))
    median = _checked_array(tensors, "0.median", 1)
    if median <= 0 or (deviation <= 0).any():
        raise ValueError("`0.median` or `0.deviation` is not positive")
    directions = None
    if "0.directions" in tensors:
        directions = _checked_array(tensors, "0.directions", total, None)
        total += directions.shape[1]
    values, scaling = _checked_array(tensors, "0.values", count, total), Scaling(mean, deviation)
    return Support(tuple(columns), values, scaling, tuple(widths), float(median[0]), directions)


def _counts_from(tensors: Mapping[str, Tensor], k: int, name: str, count: int) -> Support:
    """Return block ``k`` of a model's tensors: counts at ``count`` support points."""
    (width,) = _checked_array(tensors, f"{k}.columns", 1).tolist()
    if not 0 < width <= 2**24:
        raise ValueError(f"`{k}.columns` is {width}")
    indices, ends = (_checked_array(tensors, f"{k}.{part}", None) for part in ("indices", "indptr"))
    cells = np.ones(len(indices), np.float32), indices, ends
    levels = csr_matrix(cells, shape=(count, int(width)))
    levels.check_format(full_check=True)
    return Support((name,), levels)


def _checked_array(tensors: Mapping[str, Tensor], name: str, *shape: int | None) -> np.ndarray:
    """Return a tensor as an array; check its shape (None: any length) and that it is finite."""
    array = tensors[name].numpy()
    fits = (want in (None, length) for want, length in zip(shape, array.shape, strict=False))
    if array.ndim != len(shape) or not all(fits):
        raise ValueError(f"`{name}` has shape {array.shape}, not {shape}")
    # a target without labels has no mean
    if name != "shift" and not np.isfinite(array).all():
        raise ValueError(f"`{name}` holds values that are not finite")
    return array


@dataclass(frozen=True, slots=True, eq=False)
class KernelFit:
    """A kernel model with its held-out predictions."""

    model: KernelModel
    held_out: Float[np.ndarray, "M T"]
    """Predictions of fitted rows by models without the row's fold; NaN: other rows, no label."""
    notes: tuple[str, ...]
    """Notes for readers of the model's scores."""


def fit_kernel(
    blocks: Mapping[str, Columns],
    labels: Float[np.ndarray, "M T"],
    train: Int[np.ndarray, "R"],
    task: TaskKind,
    weights: Float[np.ndarray, "M"] | None = None,
    kinds: Int[np.ndarray, "M"] | None = None,
) -> KernelFit:
    """Fit a kernel model to training rows.

    All targets share widths, weights of the blocks, penalty and directions: those with the least
    squared error on held-out folds, in units of the variance of each target. Classes are learned
    as numbers 0 and 1; a logistic curve, fitted to held-out outputs, turns outputs into
    probabilities. Targets with the same missing labels share a Cholesky factor.

    Args:
        blocks: Features by their names; the name of an embedding is empty. Quantities are joined
            and compared by the Matérn kernel; the columns of each further block together weigh half
            as much as those of the first. Counts (sparse) are compared by the Tanimoto kernel.
        labels: Labels, NaN where missing.
        train: Rows to fit.
        task: Kind of task.
        weights: Weight of each row; None weights all rows equally.
        kinds: A number for each row, equal for rows that repeat each other, which are held out
            together; None if no rows do.

    Raises:
        DataError: If no target has two labels that differ, or features are unusable.
    """
    labels = np.asarray(labels, dtype=np.float64)
    can_learn = learnable(labels[train])
    present = ~np.isnan(labels[train][:, can_learn]).all(axis=1)
    if not can_learn.any() or present.sum() < 2:
        raise DataError(
            "no target has two different labels among the rows to learn from: a kernel has nothing "
            "to fit; add labels, or choose another split."
        )
    rows, kinds = shuffled(train[present], kinds)
    sizes = [fold.stop - fold.start for fold in _folds(kinds)]
    represented, folds = np.ones(len(rows)), np.repeat(np.arange(len(sizes)), sizes)
    if task != "regression" and len(rows) > MAX_EXACT_ROWS:
        order, represented = _rare_first(labels[rows][:, can_learn], kinds)
        rows, folds = rows[order], folds[order]
        kinds = np.cumsum(np.diff(kinds[order], prepend=-1) != 0) - 1
    y = labels[rows]
    shift, scale = np.full(y.shape[1], np.nan), np.ones(y.shape[1])
    row_weights = np.ones(len(rows)) if weights is None else weights[rows]
    shift[can_learn], scale[can_learn] = moments(y[:, can_learn], row_weights)
    standardized = (y - shift) / scale
    labeled = ~np.isnan(standardized)
    patterns = _patterns(labeled)
    # a mean with a few very large weights would make every penalty too large for the other rows
    mean_weight = np.minimum(row_weights, np.quantile(row_weights, 0.75)).mean()
    noise = mean_weight / row_weights.astype(np.float64)
    supports, count, notes = _supports(blocks, rows, patterns)
    compared = _compare_first(supports, noise)
    problem = _Problem(supports, standardized, patterns, noise, kinds, compared, represented, folds)
    settings = _choose_settings(problem)
    problem, settings, unseen = _add_directions(problem, settings)
    if count < len(rows):
        coefficients, held_out = problem.fit_landmarks(settings, count)
    else:
        coefficients, held_out = problem.fit_exactly(settings)
    if represented.min() == represented.max():
        # The directions for a row of `unseen` do not depend on the labels of its fold; the final
        # directions depend on all labels. But if rare classes come first, `unseen` has most of
        # them, from models of fewer rows.
        first = held_out[: len(unseen)]
        held_out[: len(unseen)] = np.where(np.isnan(unseen), first, unseen)
    supports = tuple(replace(s, values=s.values[:count]) for s in problem.supports)  # pyright: ignore[reportIndexIssue]
    known, link = labeled[:count], np.zeros((2, y.shape[1]))
    if task != "regression":  # no standard deviations, which depend on missing labels
        known, link = np.ones_like(known), _links(held_out, y, row_weights)
    rest = coefficients, shift, scale, link, np.zeros((7, y.shape[1]))
    model = KernelModel(task, supports, settings, known, *rest)
    if task == "regression":
        model = replace(model, spread=_spread(model, problem, held_out))
    predictions = np.full(labels.shape, np.nan)
    predictions[rows] = np.where(labeled, model.to_predictions(held_out), np.nan)
    return KernelFit(model, predictions, tuple(notes))


Pattern = tuple[Bool[np.ndarray, "R"], Int[np.ndarray, "_"]]
"""A pattern of missing labels: rows with labels, and the targets with labels in just these rows."""


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The rows to fit, in random order, with standardized labels."""

    supports: tuple[Support, ...]
    """Blocks of features at all rows: quantities, if there are any, then counts."""
    labels: Float64[np.ndarray, "R T"]
    """Standardized labels, NaN where missing."""
    patterns: list[Pattern]
    noise: Float64[np.ndarray, "R"]
    """Variance of each row's noise relative to that of a row with the mean weight."""
    kinds: Int[np.ndarray, "R"]
    """A number for each row, equal for repeats, which are next to each other."""
    compared: list[Float[Tensor, "V V"]]
    """What :meth:`Support.compare` returns for each block of the first rows, used for tuning."""
    represented: Float64[np.ndarray, "R"]
    """Number of all rows that each of the first rows represents."""
    folds: Int[np.ndarray, "R"]
    """Fold of each row when all rows are fitted."""

    def first(self, count: int) -> "_Problem":
        """Return the problem of the first rows, with the patterns on which settings are chosen.

        If there are too many patterns, some are drawn with probabilities proportional to their
        numbers of labels: those with the most labels may all be hard to learn.
        """
        patterns = self.patterns
        if len(patterns) > _MAX_PATTERNS:
            labels = np.array([mask.sum() * len(columns) for mask, columns in patterns])
            draw = np.random.default_rng(0).choice
            drawn = draw(len(patterns), _MAX_PATTERNS, replace=False, p=labels / labels.sum())
            patterns = [patterns[k] for k in sorted(drawn)]
        represented = self.represented[:count]
        return replace(
            self,
            labels=self.labels[:count],
            patterns=[(mask[:count], columns) for mask, columns in patterns],
            noise=self.noise[:count] * represented.mean() / represented,
            kinds=self.kinds[:count],
            compared=[block[:count, :count] for block in self.compared],
            represented=np.ones(count),
        )

    def outside(self, fold: slice) -> Iterator[tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_"]]]:
        """Yield the labeled rows outside a fold and their targets, for each pattern with any."""
        for mask, columns in self.patterns:
            known = mask.copy()
            known[fold] = False
            if known.any():
                yield np.flatnonzero(known), columns

    def kernel(
        self, settings: Settings, rows: Int[np.ndarray, "N"], count: int
    ) -> Float64[Tensor, "N S"]:
        """Return the kernel of some rows, in ascending order, with the first ``count`` rows."""
        if max(rows[-1] + 1, count) <= len(self.compared[0]):
            compared = [block[rows, :count].double() for block in self.compared]
            return _kernel_of_compared(settings, self.supports, compared)
        return _kernel(settings, self.supports, [s.values[rows] for s in self.supports], count)  # pyright: ignore[reportIndexIssue]

    def fit_exactly(
        self, settings: Settings, kernel: Float[Tensor, "R R"] | None = None
    ) -> tuple[Float64[np.ndarray, "R T"], Float64[np.ndarray, "R T"]]:
        """Return coefficients and held-out outputs; a ``kernel`` that is passed is overwritten."""
        count = len(self.labels)
        if kernel is None:
            kernel = torch.empty(count, count, dtype=torch.float64)
            for part in _batches(np.arange(count)):
                kernel[part] = self.kernel(settings, part, count)
        coefficients, held_out = np.zeros_like(self.labels), np.full_like(self.labels, np.nan)
        patterns = [(mask, columns) for mask, columns in self.patterns if mask.sum() >= 2]
        for mask, columns in patterns:
            is_whole = mask.all() and len(patterns) == 1
            known = kernel if is_whole else _submatrix(kernel, np.flatnonzero(mask))
            cells = np.ix_(mask, columns)
            labels = self.labels[cells]
            coefficients[cells], errors, _ = _cross_validate(
                known, labels, settings.penalty, self.noise[mask], self.kinds[mask]
            )
            held_out[cells] = labels - errors.numpy()
        return coefficients, held_out

    def fit_landmarks(
        self, settings: Settings, count: int
    ) -> tuple[Float64[np.ndarray, "S T"], Float64[np.ndarray, "R T"]]:
        """Return coefficients of the first ``count`` rows, and held-out outputs of all rows."""
        total = len(self.labels)
        kernel_of = partial(self.kernel, settings, count=count)
        # the kernel is kept if it takes at most a quarter of the free memory; otherwise it is
        # computed again for each pattern
        if 8.0 * total * count <= _MEMORY_SHARE / 2 * _free_memory():
            kept = torch.empty(total, count, dtype=torch.float64)
            for part in _batches(np.arange(total)):
                kept[part] = kernel_of(part)
            kernel_of = kept.__getitem__
        penalty = kernel_of(np.arange(count)).mul(2.0**settings.penalty)
        coefficients = np.zeros((count, self.labels.shape[1]))
        held_out = np.full_like(self.labels, np.nan)
        for mask, columns in self.patterns:
            folds = [np.flatnonzero(mask & (self.folds == k)) for k in range(FOLDS)]
            equations = [self._normal_equations(kernel_of, count, rows, columns) for rows in folds]
            gram, right = (reduce(torch.add, sides) for sides in zip(*equations, strict=True))
            coefficients[:, columns] = _solve(gram + penalty, right)
            for k, (rows, (fold_gram, fold_right)) in enumerate(zip(folds, equations, strict=True)):
                # new rows are not support points, so held-out rows must not be either
                others = np.flatnonzero(self.folds[:count] != k)
                left = _submatrix(gram - fold_gram + penalty, others)
                without = _solve(left, (right - fold_right)[others])
                for part in _batches(rows):
                    held_out[np.ix_(part, columns)] = kernel_of(part)[:, others] @ without
        return coefficients, held_out

    def _normal_equations(
        self,
        kernel_of: Callable[[Int[np.ndarray, "_"]], Float64[Tensor, "N S"]],
        count: int,
        rows: Int[np.ndarray, "_"],
        columns: Int[np.ndarray, "C"],
    ) -> tuple[Float64[Tensor, "S S"], Float64[Tensor, "S C"]]:
        """Return the left and the right side of the normal equations of some rows."""
        gram, right = np.zeros((count, count)), np.zeros((count, len(columns)))
        for part in _batches(rows):
            noise_std = np.sqrt(self.noise[part])[:, None]
            kernel = kernel_of(part).numpy() / noise_std
            # NumPy computes only one half of the product of an array with its own transpose
            gram += kernel.T @ kernel
            right += kernel.T @ (self.labels[np.ix_(part, columns)] / noise_std)
        return torch.from_numpy(gram), torch.from_numpy(right)


def _rare_first(
    labels: Float64[np.ndarray, "R T"], kinds: Int[np.ndarray, "R"]
) -> tuple[Int[np.ndarray, "R"], Float64[np.ndarray, "R"]]:
    """Return an order with rare classes among the first rows, and how many rows each represents.

    With 20 actives among 15,000 labels, a sample of 2,500 rows has hardly any active: settings
    would be chosen without them, and they would not be support points. Here the first rows contain
    the same number of rows of each rare class of a target (or all of them), together at most half
    of the first rows. They are mixed evenly with other rows; repeats stay next to each other. Each
    row represents the number of rows like it over the number of those among the first rows.
    """
    quota = TUNING_ROWS // (2 * labels.shape[1])
    early, represented = np.zeros(len(labels), dtype=bool), np.full(len(labels), np.inf)
    for column in labels.T:
        for value in (0, 1):
            members = np.flatnonzero(column == value)
            if 0 < len(members) * TUNING_ROWS < quota / 2 * len(labels):  # a random sample has few
                early[members[:quota]] = True
                share = max(len(members) / quota, 1.0)
                represented[members] = np.minimum(represented[members], share)
    # repeats represent equally many rows, also if their classes differ
    of_kinds = np.full(kinds.max() + 1, np.inf)
    np.minimum.at(of_kinds, kinds, represented)
    represented, early = of_kinds[kinds], np.isin(kinds, kinds[early])
    others = np.isinf(represented)
    late = ~early & ~others
    room = max(TUNING_ROWS - early.sum(), TUNING_ROWS // 2)
    end = max(others.sum() * TUNING_ROWS / room, TUNING_ROWS)
    position = np.empty(len(labels))
    position[early] = np.linspace(0, TUNING_ROWS, early.sum(), endpoint=False)
    position[others] = np.linspace(0, end, others.sum(), endpoint=False)
    position[late] = np.linspace(TUNING_ROWS, end, late.sum(), endpoint=False)
    first = np.full(kinds.max() + 1, np.inf)
    np.minimum.at(first, kinds, position)
    order = np.lexsort((kinds, first[kinds]))
    represented[others] = end / TUNING_ROWS
    return order, represented[order]


def _compare_first(
    supports: Sequence[Support], noise: Float64[np.ndarray, "R"]
) -> list[Float[Tensor, "V V"]]:
    """Return how the first rows compare with each other for each block, if possible in float32.

    float32 takes a third of the time, but is not precise enough if large weights make the noise of
    rows small.
    """
    count = min(len(noise), TUNING_ROWS)
    dtype = torch.float32 if noise.min() > 0.5 else torch.float64
    return [s.compare(s.values[:count], count).to(dtype) for s in supports]  # pyright: ignore[reportIndexIssue]


def _submatrix(kernel: Float[Tensor, "N N"], rows: Int[np.ndarray, "R"]) -> Float[Tensor, "R R"]:
    chosen = torch.from_numpy(rows)
    return kernel.index_select(0, chosen).index_select(1, chosen)


def _cholesky(kernel: Float[Tensor, "R R"]) -> Float[Tensor, "R R"]:
    """Return the lower Cholesky factor of a positive definite kernel, which is overwritten."""
    factor, failed = torch.linalg.cholesky_ex(kernel.mT, out=(kernel.mT, torch.empty(0).int()))
    if failed:
        raise np.linalg.LinAlgError("the kernel is not positive definite")
    return factor


def _cross_validate(
    kernel: Float[Tensor, "R R"],
    labels: Float64[np.ndarray, "R T"],
    penalty: float,
    noise: Float64[np.ndarray, "R"],
    kinds: Int[np.ndarray, "R"],
) -> tuple[Float[Tensor, "R T"], Float[Tensor, "R T"], Float[Tensor, "R"]]:
    """Fit all rows, and each fold by the others, in the precision of the kernel (overwritten).

    Returns:
        Coefficients of all rows; then, for models without the row's fold, the errors (labels minus
        predictions) and posterior variances with noise.

    Raises:
        LinAlgError: If the penalty is too small for the precision.
    """
    kernel.diagonal().add_(torch.from_numpy(2.0**penalty * noise))
    factor = _cholesky(kernel)
    coefficients = torch.cholesky_solve(torch.from_numpy(labels).to(kernel.dtype), factor)
    errors, variances = torch.empty_like(coefficients), factor.new_empty(len(labels))
    for fold in _folds(kinds):
        rest = factor[fold.start :, fold.start :]
        # the fold's columns of the inverse factor; the rows above are zeros
        below = torch.eye(len(rest), fold.stop - fold.start, dtype=kernel.dtype)
        below = torch.linalg.solve_triangular(rest, below, upper=False)
        block = _cholesky(below.T @ below)
        errors[fold] = torch.cholesky_solve(coefficients[fold], block)
        variances[fold] = torch.cholesky_inverse(block).diagonal()
    return coefficients, errors, variances


def _folds(kinds: Int[np.ndarray, "R"]) -> list[slice]:
    """Return slices of rows with equal numbers of kinds; rows of a kind are next to each other."""
    starts = np.append(np.flatnonzero(np.diff(kinds, prepend=-1)), len(kinds))
    count = len(starts) - 1
    ends = starts[np.linspace(0, count, min(FOLDS, count) + 1).round().astype(int)]
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]


def _batches(rows: Int[np.ndarray, "R"]) -> Iterator[Int[np.ndarray, "N"]]:
    for start in range(0, len(rows), _BATCH_ROWS):
        yield rows[start : start + _BATCH_ROWS]


def _solve(gram: Float64[Tensor, "S S"], right: Float64[Tensor, "S C"]) -> Float64[Tensor, "S C"]:
    gram.diagonal().add_(1e-9 * gram.diagonal().mean())
    return torch.cholesky_solve(right, _cholesky(gram))


def _patterns(labeled: Bool[np.ndarray, "R T"]) -> list[Pattern]:
    masks, which = np.unique(labeled.T, axis=0, return_inverse=True)
    return [(mask, np.flatnonzero(which == k)) for k, mask in enumerate(masks) if mask.any()]


def _supports(
    blocks: Mapping[str, Columns], rows: Int[np.ndarray, "R"], patterns: Sequence[Pattern]
) -> tuple[tuple[Support, ...], int, list[str]]:
    """Return the blocks at the fitted rows, the number of support points, and notes for readers."""
    for name, values in blocks.items():
        if not values.shape[1]:  # pyright: ignore[reportOptionalSubscript] - scipy's stubs
            shown = name or "the embedding"
            raise DataError(f"{shown} has no columns to learn from; choose other features.")
    counts = {name: v for name, v in blocks.items() if isinstance(v, csr_matrix)}
    quantities = {name: v for name, v in blocks.items() if not isinstance(v, csr_matrix)}
    supports = (Support.of_quantities(quantities, rows),) if quantities else ()
    supports += tuple(Support((name,), binary_levels(v[rows])) for name, v in counts.items())
    labels = np.array([mask.sum() for mask, _ in patterns], dtype=np.float64)
    # the kernel, a copy of its factor and, where labels are missing, the rows of a pattern
    free, needed = _free_memory(), 8.0 * len(rows) ** 2 * (2 if len(patterns) == 1 else 3)
    reason = None
    if len(rows) > MAX_EXACT_ROWS:
        reason = f"an exact fit is for up to {MAX_EXACT_ROWS:,} labels"
    elif needed > _MEMORY_SHARE * free:
        reason = f"an exact fit takes {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"
    elif len(patterns) > 1 and (labels**3).sum() > _MAX_MULTIPLICATIONS:
        reason = f"labels are missing in {len(patterns):,} different patterns"
    notes = list[str]()
    if len(patterns) > _MAX_PATTERNS:
        notes.append(
            f"the kernel's settings were chosen on {_MAX_PATTERNS} of {len(patterns):,} patterns "
            "of missing labels, drawn at random"
        )
    if reason is None:
        return supports, len(rows), notes
    limit = LANDMARKS
    if len(patterns) > 1:
        limit = math.sqrt(_MAX_MULTIPLICATIONS / FOLDS / labels.sum())
    # ten square matrices are held at the same time
    limit = min(limit, math.sqrt(_MEMORY_SHARE * free / 8 / 10))
    count = int(min(max(limit, 500), LANDMARKS, len(rows)))
    note = f"the kernel model of {len(rows):,} labels has {count:,} support points because {reason}"
    return supports, count, [note, *notes]


def _free_memory() -> float:
    """Return the bytes of memory that a process can still allocate; infinite if unknown."""
    free = math.inf
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = min(float(n.split()[1]) * 1024 for n in lines if n.startswith("MemAvailable"))
        group = Path("/sys/fs/cgroup")  # the limit of a container may be below the machine's
        limit, used = (float((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        return min(free, limit - used)
    except (OSError, ValueError):  # another operating system, or no limit
        return free


def _tuning_rows(problem: _Problem) -> int:
    """Return the number of rows on which settings are chosen."""
    limit = TUNING_ROWS
    if len(problem.patterns) > 1:
        limit = int(limit * (2 / min(len(problem.patterns), _MAX_PATTERNS)) ** (1 / 3))
    return min(limit, len(problem.labels))


def _choose_settings(problem: _Problem) -> Settings:
    """Return the settings with the smallest held-out error in a local search.

    Settings are changed one by one while the error falls, first in large and then in small steps.
    """
    limit = _tuning_rows(problem)
    blocks = problem.supports
    others = len(blocks) - 1
    shares = [round(share / (1 + others / 4), 3) for share in (1.0, *[0.25] * others)]
    best = Settings((0.0,) * len(blocks), tuple(shares), -3.0)
    # half of the rows suffice for large steps, and take an eighth of the time
    for step, rows in ((2.0, limit // 2), (1.0, limit)):
        error_of = _held_out_error(problem.first(rows))
        lowest, is_improved = error_of(best), True
        while is_improved:
            is_improved = False
            for candidate in _neighbors(best, blocks, step):
                error = error_of(candidate)
                if error < lowest * (1 - 1e-4):
                    best, lowest, is_improved = candidate, error, True
    return best


def _neighbors(best: Settings, blocks: Sequence[Support], step: float) -> Iterator[Settings]:
    """Yield settings with one step of the penalty, the width of quantities or a block's share."""
    for change in (step, -step):
        if -10 <= best.penalty + change <= 6:
            yield replace(best, penalty=best.penalty + change)
    for change in () if blocks[0].scaling is None else (step, -step):
        width, *others = best.widths
        if -8 <= width + change <= 4:
            yield replace(best, widths=(width + change, *others))
    for k in range(1, len(blocks)):
        old = best.shares[k]
        for change in (0.1 * step, -0.1 * step):
            new = round(min(max(old + change, 0.0), 1.0), 3)
            if new != old and old < 1:
                shares = [share * (1 - new) / (1 - old) for share in best.shares]
                shares[k] = new
                yield replace(best, shares=tuple(round(share, 3) for share in shares))


def _held_out_error(problem: _Problem) -> Callable[[Settings], float]:
    """Return a function from settings to the mean squared error of held-out rows.

    The function caches its results, and for each block the kernel of the last width.
    """
    pairs = zip(problem.supports, problem.compared, strict=True)
    kernels = [lru_cache(maxsize=1)(partial(support.kernel, block)) for support, block in pairs]

    @cache
    def error(settings: Settings) -> float:
        kernel = _add_kernels(torch.full_like(problem.compared[0], _CONSTANT), settings, kernels)
        try:
            return float(_squared_errors(problem, problem.fit_exactly(settings, kernel)[1]).sum())
        except np.linalg.LinAlgError:  # the penalty is too small for single precision
            return math.inf

    return error


def _squared_errors(
    problem: _Problem, held_out: Float64[np.ndarray, "V T"]
) -> Float64[np.ndarray, "V"]:
    """Return the contribution of each row to the mean squared error, averaged over targets."""
    weights = np.where(np.isnan(held_out), 0.0, 1 / problem.noise[:, None])
    errors = np.nan_to_num(weights * (problem.labels - held_out) ** 2)
    known = weights.any(axis=0)
    if not known.any():
        return np.zeros(len(held_out))
    return (errors[:, known] / weights[:, known].sum(axis=0)).mean(axis=1)


def _add_directions(
    problem: _Problem, settings: Settings
) -> tuple[_Problem, Settings, Float64[np.ndarray, "V T"]]:
    """Compare quantities along directions as well, if that improves held-out predictions.

    The squared error must fall by more than the standard error of the difference.

    Returns:
        The problem and the settings, changed or unchanged; and held-out outputs of the first rows,
        from models whose directions were also computed without the row's fold. They have no rows if
        nothing was changed.
    """
    from sklearn.utils.extmath import randomized_svd  # slow to import

    count, (quantities, *counts) = _tuning_rows(problem), problem.supports
    unchanged = problem, settings, problem.labels[:0]
    if quantities.scaling is None:  # counts only
        return unchanged
    subset, values = problem.first(count), np.asarray(quantities.values)[:count]
    axes = np.eye(values.shape[1], dtype=np.float32)
    if values.shape[1] > _MAX_DIRECTIONS:
        centered = values - values.mean(axis=0)
        axes = randomized_svd(centered, min(_MAX_DIRECTIONS, count), random_state=0)[2].T
    components = torch.from_numpy(values @ axes).double()
    # the gradients of a smooth model change little from sample to sample
    smooth = replace(settings, penalty=max(settings.penalty, -3.0))
    folds = [
        (fold, _compare_along(subset, smooth, components, fold)) for fold in _folds(subset.kinds)
    ]

    @cache
    def evaluate(change: tuple[int, int]) -> tuple[float, Settings, Float64[np.ndarray, "V T"]]:
        """Return error, settings and held-out outputs for a change of log2 width and penalty."""
        widths = tuple(width + change[0] for width in smooth.widths)
        candidate = replace(smooth, widths=widths, penalty=smooth.penalty + change[1])
        try:
            held_out = _outputs_without_fold(subset, candidate, folds)
        except np.linalg.LinAlgError:  # the penalty is too small for single precision
            return math.inf, candidate, subset.labels
        return float(_squared_errors(subset, held_out).sum()), candidate, held_out

    best, previous = (0, 0), None
    while best != previous:
        previous = best
        steps = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
        changes = ((best[0] + i, best[1] + j) for i, j in steps)
        allowed = (change for change in changes if max(map(abs, change)) <= 3)
        best = min(allowed, key=lambda change: evaluate(change)[0])
    error, best_settings, held_out = evaluate(best)
    if math.isinf(error):
        return unchanged
    kernel = _kernel_of_compared(settings, subset.supports, subset.compared)
    plain = subset.fit_exactly(settings, kernel)[1]
    fall = _squared_errors(subset, plain) - _squared_errors(subset, held_out)
    # Held-out rows are similar to the fitted rows; other graphs gain less. So a fall below its
    # standard error is not worth the directions.
    if fall.sum() <= math.sqrt(count) * fall.std():
        return unchanged
    directions = _directions(subset, smooth, components, slice(0, 0))
    if directions is not None:
        quantities = quantities.with_directions(axes @ directions.float().numpy())
    supports = (quantities, *counts)
    compared = _compare_first(supports, problem.noise)
    return replace(problem, supports=supports, compared=compared), best_settings, held_out


def _compare_along(
    problem: _Problem, settings: Settings, components: Float64[Tensor, "V K"], fold: slice
) -> list[Float[Tensor, "V V"]]:
    """Return how rows compare for each block, with directions that are computed without a fold."""
    first, *others = problem.compared
    directions = _directions(problem, settings, components, fold)
    if directions is None:
        return problem.compared
    places = (components @ directions).numpy()
    distances = _squared_distances(places, places).add_(first, alpha=problem.supports[0].median)
    median = _median_positive(distances[:_MEDIAN_ROWS, :_MEDIAN_ROWS])
    return [distances.div_(median).to(first.dtype), *others]


def _outputs_without_fold(
    problem: _Problem, settings: Settings, folds: Iterable[tuple[slice, list[Float[Tensor, "V V"]]]]
) -> Float64[np.ndarray, "V T"]:
    """Return held-out outputs with the given comparison of rows for each fold; NaN if unlabeled."""
    held_out = np.full_like(problem.labels, np.nan)
    for fold, compared in folds:
        kernel = _kernel_of_compared(settings, problem.supports, compared)
        outputs = (kernel[fold] @ _coefficients(problem, kernel, settings, fold)).numpy()
        for mask, columns in problem.patterns:
            cells = np.ix_(np.flatnonzero(mask[fold]), columns)
            held_out[fold][cells] = outputs[cells]
    return held_out


def _coefficients(
    problem: _Problem, kernel: Float[Tensor, "V V"], settings: Settings, fold: slice
) -> Float[Tensor, "V T"]:
    """Return coefficients that are fitted to the rows outside a fold; 0 for all other rows."""
    coefficients = kernel.new_zeros(problem.labels.shape)
    for rows, columns in problem.outside(fold):
        known, cells = _submatrix(kernel, rows), np.ix_(rows, columns)
        known.diagonal().add_(torch.from_numpy(2.0**settings.penalty * problem.noise[rows]))
        labels = torch.from_numpy(problem.labels[cells]).to(kernel.dtype)
        coefficients[cells] = torch.cholesky_solve(labels, _cholesky(known))
    return coefficients


def _directions(
    problem: _Problem, settings: Settings, components: Float64[Tensor, "V K"], fold: slice
) -> Float64[Tensor, "K K"] | None:
    r"""Return a matrix from principal components to directions in which predictions change.

    With the gradients :math:`g_{jt}` of the prediction of target t at row j, labeled and outside
    the fold, these are the eigenvectors of :math:`M = \sum_{jt} g_{jt} g_{jt}^\top`, with lengths
    proportional to the fourth roots of their eigenvalues. None if all gradients are 0.
    """
    kernel = _kernel_of_compared(settings, problem.supports, problem.compared)
    coefficients = _coefficients(problem, kernel, settings, fold)
    # up to a factor, the gradient of the Matern kernel is this times the difference of the rows
    slopes = problem.compared[0].mul(3.0 * 2.0 ** settings.widths[0]).sqrt_().neg_().exp_()
    total = torch.zeros((components.shape[1],) * 2, dtype=torch.float64)
    for rows, columns in problem.outside(fold):
        x, known = components[rows].to(slopes.dtype), _submatrix(slopes, rows)
        terms = coefficients[rows][:, columns]
        if len(columns) > _MAX_PATTERNS:  # principal components, whatever the order of targets
            left, sizes, _ = torch.linalg.svd(terms, full_matrices=False)
            terms = left[:, :_MAX_PATTERNS] * sizes[:_MAX_PATTERNS]
        for term in terms.T:
            weighted = known * term
            gradients = weighted.sum(1)[:, None] * x - weighted @ x
            total += gradients.T @ gradients
    values, vectors = torch.linalg.eigh(total)
    lengths = values.clamp(min=0).sqrt()
    mean = float(lengths.mean())
    # of the total weight of squared differences, directions have 30 % and the plain distance 70 %
    return vectors * (lengths * (0.3 / 0.7) / mean).sqrt() if mean > 0 else None


def _links(
    outputs: Float64[np.ndarray, "R T"],
    labels: Float64[np.ndarray, "R T"],
    weights: Float[np.ndarray, "R"],
) -> Float64[np.ndarray, "2 T"]:
    """Return slope and intercept of each target's logistic curve, fitted to held-out outputs.

    Classes are smoothed as by Platt, so that separated classes do not give probabilities 0 and 1.
    """
    links = np.zeros((2, labels.shape[1]))
    for t in np.flatnonzero(learnable(labels)):
        known = ~np.isnan(labels[:, t])
        y, x = labels[known, t], outputs[known, t, None].astype(np.float32)
        positives, negatives = y.sum(), (1 - y).sum()
        smooth = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
        relative = weights[known] / weights[known].mean()
        slope, intercept = fit_logistic(x, smooth[:, None], 1e3, weights=relative)[:, 0]
        links[:, t] = max(float(slope), 1e-3), float(intercept)
    return links


def _spread(
    model: KernelModel, problem: _Problem, held_out: Float64[np.ndarray, "R T"]
) -> Float64[np.ndarray, "7 T"]:
    """Return the :attr:`~KernelModel.spread` of a model, fitted to the errors of held-out rows.

    The posterior standard deviation depends only on the distance to labeled rows, but errors may
    also differ along the scale of the labels, for instance near the limit of an assay. So the log
    error is fitted by a linear function of the log posterior standard deviation (with a coefficient
    of at least 0), of the output and of its square. The result is scaled so that 90 % of the errors
    are below 1.64 standard deviations; here the errors of each fold are predicted by a function
    that is fitted to the other folds.

    Fitted rows are nearer to labels than almost all held-out rows, whose errors therefore do not
    show how small the errors near labels are. So smaller posterior standard deviations are raised
    to the 5 % quantile of those of held-out rows.
    """
    labels, settings = problem.labels, model.settings
    ends = [rows[-1] + 1 for rows, _ in model.variance_points]
    variance = np.ones_like(labels)
    for part in _batches(np.arange(min(ends), len(labels))):
        variance[part] = model.variance(problem.kernel(settings, part, max(ends)))
    for rows, columns in model.variance_points:
        kernel = problem.kernel(settings, rows, max(ends))[:, rows]
        no_labels, equal_noise = np.zeros((len(rows), 1)), np.ones(len(rows))
        _, _, variances = _cross_validate(
            kernel, no_labels, settings.penalty, equal_noise, problem.kinds[rows]
        )
        variance[np.ix_(rows, columns)] = variances[:, None]
    log_stds = 0.5 * np.log(variance)
    spread = np.zeros((7, labels.shape[1]))
    spread[1] = 1.0
    for t in range(labels.shape[1]):
        known = np.flatnonzero(~np.isnan(held_out[:, t] + labels[:, t]))
        # the errors of repeats count as one error, or they would outweigh those of other graphs
        known = known[np.unique(problem.kinds[known], return_index=True)[1]]
        if len(known) < 2:
            continue
        outputs, log_std = held_out[known, t], log_stds[known, t]
        errors = np.abs(labels[known, t] - outputs)
        columns = np.stack([np.ones(len(known)), log_std, outputs, outputs**2], axis=1)
        logs = np.log(np.maximum(errors, 1e-2))  # smaller errors are equally good
        predicted = log_std.copy()
        if len(known) >= 100:  # with fewer errors, only the scale is fitted
            spread[:4, t] = _fit_log_errors(columns, logs)
            for fold in range(FOLDS):
                inside = problem.folds[known] == fold
                others = _fit_log_errors(columns[~inside], logs[~inside])
                predicted[inside] = columns[inside] @ others
        spread[4:, t] = np.quantile(log_std, 0.05), outputs.min(), outputs.max()
        scale = float(np.quantile(errors / np.exp(predicted), 0.9, method="weibull"))
        spread[0, t] += math.log(max(scale, 1e-6) / HALF_WIDTH_90)
    return spread


def _fit_log_errors(
    columns: Float64[np.ndarray, "R 4"], logs: Float64[np.ndarray, "R"]
) -> Float64[np.ndarray, "4"]:
    """Return coefficients for 1, log posterior standard deviation, output and squared output."""
    coefficients = np.linalg.lstsq(columns, logs, rcond=None)[0]
    if coefficients[1] < 0:  # far from labels, predictions must not be more certain
        rest, coefficients[1] = [0, 2, 3], 0.0
        coefficients[rest] = np.linalg.lstsq(columns[:, rest], logs, rcond=None)[0]
    return coefficients
