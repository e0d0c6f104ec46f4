r"""Kernel ridge regression, which is the mean of a Gaussian process, and how sure it is.

With rows :math:`x_i`, standardized labels :math:`y_i` and a kernel :math:`k`, the coefficients are
:math:`\alpha = (K + \lambda I)^{-1} y`, and a new row is predicted by
:math:`f(x) = \sum_i \alpha_i k(x, x_i)`. The kernel is a weighted sum of Matérn's of order 3/2 for
quantities, which are standardized and compared all together, and Tanimoto's for counts of
substructures. Width, weights and penalty are chosen by five-fold cross-validation within the rows
that are fitted, whose folds keep repeats together. With :math:`G = (K + \lambda I)^{-1}`, the
errors on a fold :math:`F` of a model that has not seen it are :math:`G_{FF}^{-1} \alpha_F`, so
that one Cholesky factor gives all five.

Quantities are then compared a second time, along the directions in which the predictions change
most: the eigenvectors of the average outer product of the gradients of the first model (recursive
feature machines; Radhakrishnan et al., Science 2024; here one step, the square roots of the
eigenvalues, and the plain distance kept beside them). Whether that is better is asked of held-out
rows, whose directions come from the other rows alone.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from graphlog.downstream.uncertainty import NINETY
from graphlog.errors import DataError, ModelFileError

EXACT = 10_000
"""Rows up to which every row is a support point."""
LANDMARKS = 4_000
"""Support points beyond that."""
CHOOSING = 2_500
"""Rows that widths, weights and penalty are chosen on: drawn at random, but beyond :data:`EXACT` up
to half of them of rare classes."""
FOLDS = 5
_PATTERNS = 16
"""Patterns of missing labels that settings are chosen on; principal components of the coefficients
of a pattern's targets that gradients are taken of."""
_WORK = 6e12
"""Multiplications of an exact fit beyond which there are landmarks instead."""
_MEMORY_SHARE = 0.5
"""Share of the free memory that the kernel of an exact fit may take."""
_AT_ONCE = 1024
_JUDGED = 1000
"""Rows that the median of distances is taken of."""
_LEVELS = 32
"""Counts above this count as this."""
_COMMON = 1 / 64
"""Share of rows above which a substructure is multiplied as a dense column."""
_HEAVY = 0.75
"""Quantile of the weights that larger ones count as in the mean that the penalty is relative to."""
_CONSTANT = 1.0
"""Constant part of every kernel: labels are centered, yet not in every fold."""
_FEWEST_FOR_SPREAD = 100
"""Labeled graphs, but for repeats, below which the spread is that of the process alone."""
_NEAREST = 0.05
"""Share of held-out rows whose deviations of the process count alike."""
_LEAST_ERROR = 1e-2
"""In deviations of the labels: smaller errors are as good."""
_DIRECTIONS = 384
"""Principal components that gradients are worked out in, and so directions of a block."""
_MOST_DOUBLINGS = 3
"""By how many width and penalty may change once directions are there."""
_SMOOTH = -3.0
"""Log2 of the least penalty of the model whose gradients are taken."""
_BESIDE = 0.5
"""Weight of all columns of quantities joined to the first, whose columns together weigh 1."""
_FARTHEST_SETTING = 64.0
"""Log2 of widths and penalties that a file may name."""
_MOST_LEVELS = 2**24
"""Levels of substructures that a file may name."""
_LEARNED = 0.3
"""Share of the learned directions in the mean squared distance along components; the rest is that
of all columns alike."""


_BY_TARGET: Mapping[str, tuple[int | None, ...]] = {
    "coefficients": (None,),
    "shift": (),
    "scale": (),
    "link": (2,),
    "spread": (7,),
}
"""What a model knows of each target, and the shapes but for the targets; None is any length."""

Columns = np.ndarray | csr_matrix
"""Features, one row a graph: quantities, or counts of substructures, which are sparse."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What cross-validation chooses."""

    widths: tuple[float, ...]
    """For each block the log2 of the inverse squared width of Matérn's kernel, in units of the
    inverse median of the squared distances; unused by Tanimoto's."""
    shares: tuple[float, ...]
    """The weight of each block; they sum to 1."""
    penalty: float
    """Log2 of the penalty, which is the variance of the noise in units of that of the kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """One block at the support points, and how others are compared with them."""

    names: tuple[str, ...]
    """Of the features in the domain; empty for the embedding of an encoder."""
    values: Columns
    """Standardized quantities, and then their places along the directions; or unfolded counts."""
    scaling: Scaling | None = None
    """None for counts."""
    columns: tuple[int, ...] = ()
    """Of each of the quantities."""
    median: float = 1.0
    """Of the squared distances between support points."""
    directions: Float[np.ndarray, "W K"] | None = None
    """What standardized quantities are multiplied with, to be compared along it as well."""

    @classmethod
    def of_quantities(
        cls, blocks: Mapping[str, np.ndarray], rows: Int[np.ndarray, "S"]
    ) -> "Support":
        """Return quantities at the rows that are fitted, side by side; refuse infinite ones."""
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
        plain = cls(tuple(blocks), values, Scaling.of(values), columns)
        scaled = np.asarray(plain.prepared(values))
        return replace(plain, values=scaled, median=_median_distance(scaled))

    def along(self, directions: Float[np.ndarray, "W K"]) -> "Support":
        """Return the block with its rows compared along directions as well."""
        values = np.concatenate([self.values, self.values @ directions], axis=1)
        median = _median_distance(values)
        return replace(self, values=values, median=median, directions=directions)

    def prepared(self, values: Columns) -> Columns:
        """Return other rows as :attr:`values` are."""
        if self.scaling is None:
            levels = unfolded(csr_matrix(values))
            if levels.shape[1] != self.values.shape[1]:  # pyright: ignore[reportOptionalSubscript]
                raise ModelFileError(
                    "the kernel model was fitted to counts of other substructures; fit it again."
                )
            return levels
        scaled = self.scaling(np.asarray(values))
        first, *others = self.columns
        weights = [1.0, *(math.sqrt(_BESIDE * first / width) for width in others)]
        scaled *= np.repeat(weights, self.columns).astype(np.float32)
        if self.directions is None:
            return scaled
        return np.concatenate([scaled, scaled @ self.directions], axis=1)

    def measured(self, rows: Columns, count: int) -> Float64[Tensor, "N S"]:
        """Return how prepared rows compare with the first ``count`` support points.

        That is Tanimoto's coefficient, or the squared distance in units of its median.
        """
        first = self.values[:count]  # pyright: ignore[reportIndexIssue] - scipy's stubs
        if self.scaling is None:
            return torch.from_numpy(_tanimoto(csr_matrix(rows), csr_matrix(first)))
        return _squared_distances(np.asarray(rows), np.asarray(first)).div_(self.median)

    def kernel(self, measured: Float[Tensor, "N S"], width: float) -> Float[Tensor, "N S"]:
        """Return the kernel."""
        if self.scaling is None:
            return measured
        distances = measured.mul(3.0 * 2.0**width).sqrt_()
        return torch.exp(-distances).mul_(distances.add_(1.0))


def unfolded(counts: csr_matrix) -> csr_matrix:
    """Return a column of 0 and 1 for each count and level that it reaches.

    The smaller of two counts is then the number of levels that both reach, so that Tanimoto's
    coefficient of counts, the sum of the smaller over the sum of the larger, is that of bits.
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
    """Return the share of levels that two rows have in common; 1 for two without any."""
    common = np.flatnonzero(others.getnnz(axis=0) > _COMMON * others.shape[0])  # pyright: ignore[reportOptionalSubscript]
    rare = np.ones(others.shape[1], dtype=bool)  # pyright: ignore[reportOptionalSubscript]
    rare[common] = False
    both = rows[:, common].toarray() @ others[:, common].toarray().T
    both += (rows[:, rare] @ others[:, rare].T).toarray()
    either = np.add.outer(rows.getnnz(axis=1), others.getnnz(axis=1)) - both
    return np.where(either > 0, both / np.maximum(either, 1), 1.0).astype(np.float64)


def _squared_distances(
    rows: Float[np.ndarray, "N W"], others: Float[np.ndarray, "S W"]
) -> Float64[Tensor, "N S"]:
    # of the product of an array with itself, NumPy computes one half
    is_same = rows.ctypes.data == others.ctypes.data and rows.shape == others.shape
    rows = rows.astype(np.float64)
    others = rows if is_same else others.astype(np.float64)
    distances = rows @ others.T
    distances *= -2
    distances += np.square(rows).sum(axis=1)[:, None]
    distances += np.square(others).sum(axis=1)
    return torch.from_numpy(np.maximum(distances, 0, out=distances))


def _median_apart(distances: Float[Tensor, "N N"]) -> float:
    """Return the median of the distances between rows that differ; 1 where none do."""
    few = distances.numpy()
    apart = few[np.triu_indices(len(few), 1)]
    apart = apart[apart > 0]
    return float(np.median(apart)) if len(apart) else 1.0


def _median_distance(values: Float[np.ndarray, "S W"]) -> float:
    few = values[:_JUDGED]
    return _median_apart(_squared_distances(few, few))


def _summed(
    settings: Settings,
    kernels: Iterable[Callable[[float], Tensor]],
    shape: Sequence[int],
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "N S"]:
    """Return the weighted sum of the kernels of all blocks, each a function of its width."""
    total = torch.full((shape[0], shape[1]), _CONSTANT, dtype=dtype)
    for kernel, width, share in zip(kernels, settings.widths, settings.shares, strict=True):
        if share:
            total.add_(kernel(width), alpha=share)
    return total


def _known_kernel(
    settings: Settings, supports: Sequence[Support], measured: Sequence[Float[Tensor, "N S"]]
) -> Float[Tensor, "N S"]:
    """Return the kernel of rows whose comparisons are known, block by block."""
    kernels = (partial(s.kernel, own) for s, own in zip(supports, measured, strict=True))
    return _summed(settings, kernels, measured[0].shape, measured[0].dtype)


def _kernel(
    settings: Settings, supports: Sequence[Support], rows: Sequence[Columns], count: int
) -> Float64[Tensor, "N S"]:
    """Return the kernel of prepared rows with the first ``count`` support points."""

    def compared(support: Support, own: Columns, width: float) -> Float64[Tensor, "N S"]:
        return support.kernel(support.measured(own, count), width)

    kernels = (partial(compared, s, own) for s, own in zip(supports, rows, strict=True))
    return _summed(settings, kernels, (int(rows[0].shape[0]), count))  # pyright: ignore[reportOptionalSubscript]


class Predicted(NamedTuple):
    """What is predicted of some rows, and how sure it is."""

    mean: Float[np.ndarray, "N T"]
    """Probabilities, or values."""
    std: Float[np.ndarray, "N T"] | None
    """Standard deviations of the error that is to be expected; None for classes."""


@dataclass(frozen=True, eq=False)
class KernelModel:
    """A fitted kernel model of one or more targets."""

    task: TaskKind
    supports: tuple[Support, ...]
    settings: Settings
    labeled: Bool[np.ndarray, "S T"]
    """Which support points have a label of which target; all for classes, which have no spread."""
    coefficients: Float64[np.ndarray, "S T"]
    shift: Float64[np.ndarray, "T"]
    """Mean of the labels; NaN for a target that cannot be learned."""
    scale: Float64[np.ndarray, "T"]
    """Deviation of the labels."""
    link: Float64[np.ndarray, "2 T"]
    """Classes: slope and intercept of the logistic curve from outputs to probabilities."""
    spread: Float64[np.ndarray, "7 T"]
    """Regression: logarithm of the standard deviation as a constant and the coefficients of the
    logarithm of the process's own, of the output and of its square; then what the process's counts
    at least, and the range that the output counts within."""

    @property
    def count(self) -> int:
        """Number of support points."""
        return len(self.coefficients)

    @cached_property
    def near(self) -> list[tuple[Int[np.ndarray, "V"], Int[np.ndarray, "_"]]]:
        """Support points that the spread of the process is worked out from, and for which targets.

        For each pattern of missing labels these are the first that have labels: together the
        factors of all patterns take at most nine times the memory that one may.
        """
        found = _patterns(self.labeled)
        most = int(min(CHOOSING, 3 * CHOOSING / math.sqrt(max(len(found), 1))))
        return [(np.flatnonzero(mask)[:most], columns) for mask, columns in found]

    def settings_by_name(self) -> dict[str, Any]:
        """Return what was chosen by the names of the features, JSON-ready."""
        names = [" + ".join(n or "embedding" for n in s.names) for s in self.supports]
        return {
            "penalty": 2.0**self.settings.penalty,
            "widths": dict(zip(names, self.settings.widths, strict=True)),
            "shares": dict(zip(names, self.settings.shares, strict=True)),
        }

    @cached_property
    def _factors(self) -> list[Float64[Tensor, "V V"]]:
        factors = list[Tensor]()
        for rows, _ in self.near:
            near = [replace(s, values=s.values[rows]) for s in self.supports]  # pyright: ignore[reportIndexIssue]
            kernel = _kernel(self.settings, near, [s.values for s in near], len(rows))
            kernel.diagonal().add_(2.0**self.settings.penalty)
            factors.append(_factored(kernel))
        return factors

    def predict(self, values: Sequence[Columns], with_spread: bool = True) -> Predicted:
        """Return the predictions of rows, whose features are in the order of :func:`fit_kernel`.

        Standard deviations take most of the time.
        """
        rows, targets = int(values[0].shape[0]), len(self.shift)  # pyright: ignore[reportOptionalSubscript]
        coefficients = torch.from_numpy(self.coefficients)
        outputs = np.empty((rows, targets))
        variance = np.empty((rows, targets))
        wanted = with_spread and self.task == "regression"
        counts = [own for own in values if isinstance(own, csr_matrix)]
        quantities = [own for own in values if not isinstance(own, csr_matrix)]
        joined = [np.concatenate(quantities, axis=1)] if quantities else []
        blocks = [*joined, *counts]
        for part in _pieces(np.arange(rows)):
            own = [s.prepared(v[part]) for s, v in zip(self.supports, blocks, strict=True)]  # pyright: ignore[reportIndexIssue]
            kernel = _kernel(self.settings, self.supports, own, self.count)
            outputs[part] = kernel @ coefficients
            if wanted:
                variance[part] = self.variance(kernel)
        std = self._std(outputs, variance) if wanted else None
        return Predicted(self.values_of(outputs), std)

    def variance(self, kernel: Float64[Tensor, "N S"]) -> Float64[Tensor, "N T"]:
        """Return the variance of the process with its noise, in units of its kernel's.

        Predictions of a target come from its own labels alone, and so does this.
        """
        variance = kernel.new_full((len(kernel), len(self.shift)), 1.0 + _CONSTANT)
        for (rows, columns), factor in zip(self.near, self._factors, strict=True):
            inside = torch.linalg.solve_triangular(factor, kernel[:, rows].T, upper=False)
            variance[:, columns] -= inside.square_().sum(0)[:, None]
        return variance.clamp_(min=0).add_(2.0**self.settings.penalty)

    def _std(
        self, outputs: Float64[np.ndarray, "N T"], variance: Float64[np.ndarray, "N T"]
    ) -> Float64[np.ndarray, "N T"]:
        base, own, first, second, least, low, high = self.spread
        process = np.maximum(0.5 * np.log(variance), least)
        within = outputs.clip(low, high)
        logs = base + own * process + first * within + second * within**2
        return np.exp(logs) * self.scale + 0 * self.shift  # NaN where nothing was learned

    def values_of(self, outputs: Float64[np.ndarray, "N T"]) -> Float64[np.ndarray, "N T"]:
        """Return the probabilities or values that outputs stand for."""
        if self.task == "regression":
            return outputs * self.scale + self.shift
        likely = expit(outputs * self.link[0] + self.link[1])
        if self.task == "classification":
            return likely + 0 * self.shift
        likely[:, np.isnan(self.shift)] = 0  # classes that no row to learn from has
        return likely / likely.sum(axis=1, keepdims=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return what :meth:`of` makes it of again."""
        arrays: dict[str, np.ndarray] = {name: getattr(self, name) for name in _BY_TARGET}
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
        """Return the model that :meth:`tensors` describes.

        ``columns`` are those of each of the features, None for counts, which come last.

        Raises:
            KeyError: If some are missing.
            ValueError: If some do not fit each other, or are out of range.
        """
        own = {
            name: _taken(tensors, name, *shape, targets).astype(np.float64)
            for name, shape in _BY_TARGET.items()
        }
        count = len(own["coefficients"])
        labeled = np.ones((count, targets), dtype=bool)
        if "labeled" in tensors:
            labeled = _taken(tensors, "labeled", count, targets).astype(bool)
        quantities = {name: width for name, width in columns.items() if width is not None}
        counts = [name for name, width in columns.items() if width is None]
        blocks = bool(quantities) + len(counts)
        widths, shares = (_taken(tensors, name, blocks) for name in ("widths", "shares"))
        penalty = _taken(tensors, "penalty", 1)
        if (np.abs([*widths, *penalty]) > _FARTHEST_SETTING).any():
            raise ValueError("`widths` or `penalty` is out of range")
        supports = [_quantities_from(tensors, quantities, count)] if quantities else []
        for k, name in enumerate(counts, len(supports)):
            supports.append(_counts_from(tensors, k, name, count))
        settings = Settings(tuple(widths.tolist()), tuple(shares.tolist()), float(penalty[0]))
        return cls(task, tuple(supports), settings, labeled, **own)


def _quantities_from(
    tensors: Mapping[str, Tensor], columns: Mapping[str, int], count: int
) -> Support:
    """Return the first block of a file, ``count`` rows of quantities in these columns."""
    own = tuple(columns.values())
    found = _taken(tensors, "0.columns", len(own)).tolist()
    if found != [*own]:
        raise ValueError(f"`0.columns` are {found}, not {[*own]}")
    width = sum(own)
    scaling = Scaling(*(_taken(tensors, f"0.{name}", width) for name in ("mean", "deviation")))
    median = _taken(tensors, "0.median", 1)
    if median <= 0 or (scaling.deviation <= 0).any():
        raise ValueError("`0.median` or `0.deviation` is not positive")
    directions = None
    if "0.directions" in tensors:
        directions = _taken(tensors, "0.directions", width, None)
    added = 0 if directions is None else directions.shape[1]
    values = _taken(tensors, "0.values", count, width + added)
    return Support(tuple(columns), values, scaling, own, float(median[0]), directions)


def _counts_from(tensors: Mapping[str, Tensor], k: int, name: str, count: int) -> Support:
    """Return block ``k`` of a file, ``count`` rows of counts."""
    (width,) = _taken(tensors, f"{k}.columns", 1).tolist()
    if not 0 < width <= _MOST_LEVELS:
        raise ValueError(f"`{k}.columns` is {width}")
    indices, ends = (_taken(tensors, f"{k}.{part}", None) for part in ("indices", "indptr"))
    cells = np.ones(len(indices), np.float32), indices, ends
    levels = csr_matrix(cells, shape=(count, int(width)))
    levels.check_format(full_check=True)
    return Support((name,), levels)


def _taken(tensors: Mapping[str, Tensor], name: str, *shape: int | None) -> np.ndarray:
    """Return an array of a file, of finite numbers and a shape in which None is any length."""
    found = tensors[name].numpy()
    fits = (want in (None, length) for want, length in zip(shape, found.shape, strict=False))
    if found.ndim != len(shape) or not all(fits):
        raise ValueError(f"`{name}` has shape {found.shape}, not {shape}")
    # a target without labels has no mean
    if name != "shift" and not np.isfinite(found).all():
        raise ValueError(f"`{name}` holds values that are not finite")
    return found


@dataclass(frozen=True, slots=True, eq=False)
class KernelFit:
    """A kernel model and what cross-validation within its rows says of it."""

    model: KernelModel
    held_out: Float[np.ndarray, "M T"]
    """Predictions of fitted rows by models of the other four fifths; NaN: other rows, no label."""
    notes: tuple[str, ...] = field(default=())
    """What a reader of its scores must know."""


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
    squared error on held-out fifths, in units of the variance of each target. Classes are learned
    as numbers 0 and 1, and a logistic curve, fitted to held-out outputs, makes probabilities of the
    outputs. Targets with the same missing labels share a factor.

    Args:
        blocks: Features by their names, that of an embedding empty. Quantities are compared
            together, by Matérn's kernel: the columns of each of the others weigh together half as
            much as those of the first; counts, which are sparse, by Tanimoto's.
        labels: NaN where missing.
        train: Rows to fit.
        task: Kind of task.
        weights: How much each row counts; None: all alike.
        kinds: A number for each row, equal for rows that repeat each other, which are held out
            together; None: none do.

    Raises:
        DataError: If no target has two labels that differ, or features are unusable.
    """
    labels = np.asarray(labels, dtype=np.float64)
    able = learnable(labels[train])
    present = ~np.isnan(labels[train][:, able]).all(axis=1)
    if not able.any() or present.sum() < 2:
        raise DataError(
            "no target has two different labels among the rows to learn from: a kernel has nothing "
            "to fit; add labels, or choose another split."
        )
    rows, kinds = shuffled(train[present], kinds)
    sizes = [fold.stop - fold.start for fold in _folds(kinds)]
    stands_for, fold_of = np.ones(len(rows)), np.repeat(np.arange(len(sizes)), sizes)
    if task != "regression" and len(rows) > EXACT:
        order, stands_for = _rare_first(labels[rows][:, able], kinds)
        rows, fold_of = rows[order], fold_of[order]
        kinds = np.cumsum(np.diff(kinds[order], prepend=-1) != 0) - 1
    y = labels[rows]
    shift, scale = np.full(y.shape[1], np.nan), np.ones(y.shape[1])
    own = np.ones(len(rows)) if weights is None else weights[rows]
    shift[able], scale[able] = moments(y[:, able], own)
    standard = (y - shift) / scale
    labeled = ~np.isnan(standard)
    patterns = _patterns(labeled)
    # were large weights whole in their mean, a few would leave no penalty small enough for the rest
    noise = np.minimum(own, np.quantile(own, _HEAVY)).mean() / own.astype(np.float64)
    supports, count, notes = _support_of(blocks, rows, patterns)
    among = _among(supports, noise)
    problem = _Problem(supports, standard, patterns, noise, kinds, among, stands_for, fold_of)
    settings = _chosen_settings(problem)
    problem, settings, unseen = _with_directions(problem, settings)
    if count < len(rows):
        coefficients, held = problem.with_landmarks(settings, count)
    else:
        coefficients, held = problem.exactly(settings)
    if stands_for.min() == stands_for.max():
        # the directions have seen the labels of these rows, but for models of the other folds; if
        # rare classes came first, these models of fewer rows would judge them and hardly any other
        held[: len(unseen)] = np.where(np.isnan(unseen), held[: len(unseen)], unseen)
    supports = tuple(replace(s, values=s.values[:count]) for s in problem.supports)  # pyright: ignore[reportIndexIssue]
    model = KernelModel(
        task,
        supports,
        settings,
        labeled[:count] if task == "regression" else np.ones_like(labeled[:count]),
        coefficients,
        shift,
        scale,
        _links(held, y, own) if task != "regression" else np.zeros((2, y.shape[1])),
        np.zeros((7, y.shape[1])),
    )
    if task == "regression":
        model = replace(model, spread=_spread(model, problem, held))
    found = np.full(labels.shape, np.nan)
    found[rows] = np.where(np.isnan(standard), np.nan, model.values_of(held))
    return KernelFit(model, found, tuple(notes))


Pattern = tuple[Bool[np.ndarray, "R"], Int[np.ndarray, "_"]]
"""Rows with labels, and the targets whose labels these are."""


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Rows in random order with standardized labels."""

    supports: tuple[Support, ...]
    """Quantities, if there are any, and then counts."""
    labels: Float64[np.ndarray, "R T"]
    """In deviations from the mean, NaN where missing."""
    patterns: list[Pattern]
    noise: Float64[np.ndarray, "R"]
    """Of each row, relative to that at the mean weight, in which large ones are cut."""
    kinds: Int[np.ndarray, "R"]
    """A number for each row, equal for repeats, which are side by side."""
    among: list[Float[Tensor, "V V"]]
    """How the first rows, which settings are chosen on, compare with each other, block by block."""
    stands_for: Float64[np.ndarray, "R"]
    """How many of all rows each of the first stands for."""
    fold_of: Int[np.ndarray, "R"]
    """Fold of each row where all are fitted."""

    def first(self, count: int) -> "_Problem":
        """Return the first rows, with the patterns that settings are chosen on.

        Of many these are drawn by their labels: those with the most may all be hard to learn.
        """
        drawn = self.patterns
        if len(drawn) > _PATTERNS:
            labels = np.array([mask.sum() * len(columns) for mask, columns in drawn])
            draw = np.random.default_rng(0).choice
            chosen = draw(len(drawn), _PATTERNS, replace=False, p=labels / labels.sum())
            drawn = [drawn[k] for k in sorted(chosen)]
        stands_for = self.stands_for[:count]
        return replace(
            self,
            labels=self.labels[:count],
            patterns=[(mask[:count], columns) for mask, columns in drawn],
            noise=self.noise[:count] * stands_for.mean() / stands_for,
            kinds=self.kinds[:count],
            among=[own[:count, :count] for own in self.among],
            stands_for=np.ones(count),
        )

    def outside(self, fold: slice) -> Iterator[tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_"]]]:
        """Yield the rows with labels that are not in a fold, and whose labels these are."""
        for mask, columns in self.patterns:
            known = mask.copy()
            known[fold] = False
            if known.any():
                yield np.flatnonzero(known), columns

    def kernel(
        self, settings: Settings, rows: Int[np.ndarray, "N"], count: int
    ) -> Float64[Tensor, "N S"]:
        """Return the kernel of some rows, in ascending order, with the first ``count``."""
        if max(rows[-1] + 1, count) <= len(self.among[0]):
            known = [own[rows, :count].double() for own in self.among]
            return _known_kernel(settings, self.supports, known)
        return _kernel(settings, self.supports, [s.values[rows] for s in self.supports], count)  # pyright: ignore[reportIndexIssue]

    def exactly(
        self, settings: Settings, kernel: Float[Tensor, "R R"] | None = None
    ) -> tuple[Float64[np.ndarray, "R T"], Float64[np.ndarray, "R T"]]:
        """Return coefficients and outputs for held-out rows; a ``kernel`` given is overwritten."""
        count = len(self.labels)
        if kernel is None:
            kernel = torch.empty(count, count, dtype=torch.float64)
            for part in _pieces(np.arange(count)):
                kernel[part] = self.kernel(settings, part, count)
        coefficients, held = np.zeros_like(self.labels), np.full_like(self.labels, np.nan)
        patterns = [(mask, columns) for mask, columns in self.patterns if mask.sum() >= 2]
        for mask, columns in patterns:
            is_whole = mask.all() and len(patterns) == 1
            own = kernel if is_whole else _square(kernel, np.flatnonzero(mask))
            at = np.ix_(mask, columns)
            known = settings.penalty, self.noise[mask], self.kinds[mask]
            fitted, errors, _ = _held_out(own, self.labels[at], *known)
            coefficients[at], held[at] = fitted, self.labels[at] - errors.numpy()
        return coefficients, held

    def with_landmarks(
        self, settings: Settings, count: int
    ) -> tuple[Float64[np.ndarray, "S T"], Float64[np.ndarray, "R T"]]:
        """Return coefficients of the first ``count`` rows, and outputs for held-out rows."""
        total = len(self.labels)
        kernel_of = partial(self.kernel, settings, count=count)
        # kept if that takes a quarter of the free memory; else it is worked out for each pattern
        if 8.0 * total * count <= _MEMORY_SHARE / 2 * _free_memory():
            kept = torch.empty(total, count, dtype=torch.float64)
            for part in _pieces(np.arange(total)):
                kept[part] = kernel_of(part)
            kernel_of = kept.__getitem__
        among = kernel_of(np.arange(count)).mul(2.0**settings.penalty)
        coefficients = np.zeros((count, self.labels.shape[1]))
        held = np.full_like(self.labels, np.nan)
        for mask, columns in self.patterns:
            known = [np.flatnonzero(mask & (self.fold_of == k)) for k in range(FOLDS)]
            parts = [self._normal(kernel_of, count, rows, columns) for rows in known]
            gram, right = (reduce(torch.add, sides) for sides in zip(*parts, strict=True))
            coefficients[:, columns] = _solved(gram + among, right)
            for k, (rows, (own, own_right)) in enumerate(zip(known, parts, strict=True)):
                # nor are rows of the fold support points: new rows are none
                others = np.flatnonzero(self.fold_of[:count] != k)
                left = _square(gram - own + among, others)
                without = _solved(left, (right - own_right)[others])
                for part in _pieces(rows):
                    held[np.ix_(part, columns)] = kernel_of(part)[:, others] @ without
        return coefficients, held

    def _normal(
        self,
        kernel_of: Callable[[Int[np.ndarray, "_"]], Float64[Tensor, "N S"]],
        count: int,
        rows: Int[np.ndarray, "_"],
        columns: Int[np.ndarray, "C"],
    ) -> tuple[Float64[Tensor, "S S"], Float64[Tensor, "S C"]]:
        """Return the two sides of the normal equations over some rows."""
        gram, right = np.zeros((count, count)), np.zeros((count, len(columns)))
        for part in _pieces(rows):
            deviation = np.sqrt(self.noise[part])[:, None]
            kernel = kernel_of(part).numpy() / deviation
            # of the product of an array with itself, NumPy computes one half
            gram += kernel.T @ kernel
            right += kernel.T @ (self.labels[np.ix_(part, columns)] / deviation)
        return torch.from_numpy(gram), torch.from_numpy(right)


def _rare_first(
    labels: Float64[np.ndarray, "R T"], kinds: Int[np.ndarray, "R"]
) -> tuple[Int[np.ndarray, "R"], Float64[np.ndarray, "R"]]:
    """Return an order in which rare classes are among the first rows, and what each stands for.

    Of 20 actives among 15,000 labels a sample of 2,500 rows has hardly any: settings would be
    chosen without them, and they would not be support points. Of each class that a target has in
    few rows the same number is among the first, up to half of these together. They and the other
    rows are mixed, repeats side by side, and stand for as many rows as there are like them.
    """
    quota = CHOOSING // (2 * labels.shape[1])
    early, stands_for = np.zeros(len(labels), dtype=bool), np.full(len(labels), np.inf)
    for column in labels.T:
        for value in (0, 1):
            own = np.flatnonzero(column == value)
            if 0 < len(own) * CHOOSING < quota / 2 * len(labels):  # else a sample has enough
                early[own[:quota]] = True
                few = max(len(own) / quota, 1.0)
                stands_for[own] = np.minimum(stands_for[own], few)
    # repeats count alike, also those of another class
    like = np.full(kinds.max() + 1, np.inf)
    np.minimum.at(like, kinds, stands_for)
    stands_for, early = like[kinds], np.isin(kinds, kinds[early])
    others = np.isinf(stands_for)
    late = ~early & ~others
    room = max(CHOOSING - early.sum(), CHOOSING // 2)
    end = max(others.sum() * CHOOSING / room, CHOOSING)
    place = np.empty(len(labels))
    place[early] = np.linspace(0, CHOOSING, early.sum(), endpoint=False)
    place[others] = np.linspace(0, end, others.sum(), endpoint=False)
    place[late] = np.linspace(CHOOSING, end, late.sum(), endpoint=False)
    first = np.full(kinds.max() + 1, np.inf)
    np.minimum.at(first, kinds, place)
    order = np.lexsort((kinds, first[kinds]))
    stands_for[others] = end / CHOOSING
    return order, stands_for[order]


def _among(
    supports: Sequence[Support], noise: Float64[np.ndarray, "R"]
) -> list[Float[Tensor, "V V"]]:
    """Return how the first rows compare with each other, in single precision.

    That takes a third of the time, but is too little where weights make the noise of rows small.
    """
    count, dtype = min(len(noise), CHOOSING), torch.float32 if noise.min() > 0.5 else torch.float64
    return [s.measured(s.values[:count], count).to(dtype) for s in supports]  # pyright: ignore[reportIndexIssue]


def _square(kernel: Float[Tensor, "N N"], rows: Int[np.ndarray, "R"]) -> Float[Tensor, "R R"]:
    chosen = torch.from_numpy(rows)
    return kernel.index_select(0, chosen).index_select(1, chosen)


def _factored(kernel: Float[Tensor, "R R"]) -> Float[Tensor, "R R"]:
    """Return the lower Cholesky factor, in place of a kernel that is positive definite."""
    factor, failed = torch.linalg.cholesky_ex(kernel.mT, out=(kernel.mT, torch.empty(0).int()))
    if failed:
        raise np.linalg.LinAlgError("the kernel is not positive definite")
    return factor


def _held_out(
    kernel: Float[Tensor, "R R"],
    labels: Float64[np.ndarray, "R T"],
    penalty: float,
    noise: Float64[np.ndarray, "R"],
    kinds: Int[np.ndarray, "R"],
) -> tuple[Float[Tensor, "R T"], Float[Tensor, "R T"], Float[Tensor, "R"]]:
    """Fit all rows, and each fold by the others, in the precision of the kernel, which is lost.

    Returns:
        The coefficients of all rows; labels less predictions, and the variances of the process with
        its noise, of a model that has not seen the row's fold.

    Raises:
        LinAlgError: If the penalty is too small for the precision.
    """
    kernel.diagonal().add_(torch.from_numpy(2.0**penalty * noise))
    factor = _factored(kernel)
    coefficients = torch.cholesky_solve(torch.from_numpy(labels).to(kernel.dtype), factor)
    errors, variances = torch.empty_like(coefficients), factor.new_empty(len(labels))
    for fold in _folds(kinds):
        rest = factor[fold.start :, fold.start :]
        # these columns of the factor's inverse; above are zeros
        below = torch.eye(len(rest), fold.stop - fold.start, dtype=kernel.dtype)
        below = torch.linalg.solve_triangular(rest, below, upper=False)
        block = _factored(below.T @ below)
        errors[fold] = torch.cholesky_solve(coefficients[fold], block)
        variances[fold] = torch.cholesky_inverse(block).diagonal()
    return coefficients, errors, variances


def _folds(kinds: Int[np.ndarray, "R"]) -> list[slice]:
    """Return consecutive fifths of the kinds of rows, which are side by side in random order."""
    starts = np.append(np.flatnonzero(np.diff(kinds, prepend=-1)), len(kinds))
    count = len(starts) - 1
    ends = starts[np.linspace(0, count, min(FOLDS, count) + 1).round().astype(int)]
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]


def _pieces(rows: Int[np.ndarray, "R"]) -> Iterator[Int[np.ndarray, "N"]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]


def _solved(gram: Float64[Tensor, "S S"], right: Float64[Tensor, "S C"]) -> Float64[Tensor, "S C"]:
    gram.diagonal().add_(1e-9 * gram.diagonal().mean())
    return torch.cholesky_solve(right, _factored(gram))


def _patterns(labeled: Bool[np.ndarray, "R T"]) -> list[Pattern]:
    """Return the patterns of missing labels."""
    masks, which = np.unique(labeled.T, axis=0, return_inverse=True)
    return [(mask, np.flatnonzero(which == k)) for k, mask in enumerate(masks) if mask.any()]


def _support_of(
    blocks: Mapping[str, Columns], rows: Int[np.ndarray, "R"], patterns: Sequence[Pattern]
) -> tuple[tuple[Support, ...], int, list[str]]:
    """Return the blocks at the fitted rows, how many are support points, and what to say of it."""
    for name, values in blocks.items():
        if not values.shape[1]:  # pyright: ignore[reportOptionalSubscript] - scipy's stubs
            shown = name or "the embedding"
            raise DataError(f"{shown} has no columns to learn from; choose other features.")
    counts = {name: v for name, v in blocks.items() if isinstance(v, csr_matrix)}
    quantities = {name: v for name, v in blocks.items() if not isinstance(v, csr_matrix)}
    supports = (Support.of_quantities(quantities, rows),) if quantities else ()
    supports += tuple(Support((name,), unfolded(v[rows])) for name, v in counts.items())
    labels = np.array([mask.sum() for mask, _ in patterns], dtype=np.float64)
    # the kernel, a copy of its factor and, where labels are missing, the rows of a pattern
    free, needed = _free_memory(), 8.0 * len(rows) ** 2 * (2 if len(patterns) == 1 else 3)
    reason = None
    if len(rows) > EXACT:
        reason = f"an exact fit is for up to {EXACT:,} labels"
    elif needed > _MEMORY_SHARE * free:
        reason = f"an exact fit takes {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"
    elif len(patterns) > 1 and (labels**3).sum() > _WORK:
        reason = f"labels are missing in {len(patterns):,} different patterns"
    notes = list[str]()
    if len(patterns) > _PATTERNS:
        notes.append(
            f"the kernel's settings were chosen on {_PATTERNS} of {len(patterns):,} patterns of "
            "missing labels, drawn at random"
        )
    if reason is None:
        return supports, len(rows), notes
    most = math.sqrt(_WORK / FOLDS / labels.sum())
    # ten square matrices are held at once
    most = min(most if len(patterns) > 1 else LANDMARKS, math.sqrt(_MEMORY_SHARE * free / 8 / 10))
    count = int(min(max(most, 500), LANDMARKS, len(rows)))
    note = f"the kernel model of {len(rows):,} labels has {count:,} support points because {reason}"
    return supports, count, [note, *notes]


def _free_memory() -> float:
    """Return the bytes that a process may still take; infinite where that is unknown."""
    free = math.inf
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = min(float(n.split()[1]) * 1024 for n in lines if n.startswith("MemAvailable"))
        group = Path("/sys/fs/cgroup")  # a container may have less than the machine
        most, used = (float((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        return min(free, most - used)
    except (OSError, ValueError):  # another system, or no limit
        return free


def _choosing(problem: _Problem) -> int:
    """Return how many rows settings are chosen on."""
    limit = CHOOSING
    if len(problem.patterns) > 1:
        limit = int(limit * (2 / min(len(problem.patterns), _PATTERNS)) ** (1 / 3))
    return min(limit, len(problem.labels))


def _chosen_settings(problem: _Problem) -> Settings:
    """Return the settings of least held-out error that a search from the middle finds.

    One setting after the other takes a step, first large and then small, while that helps.
    """
    limit = _choosing(problem)
    blocks = problem.supports
    others = len(blocks) - 1
    shares = [round(share / (1 + others / 4), 3) for share in (1.0, *[0.25] * others)]
    best = Settings((0.0,) * len(blocks), tuple(shares), -3.0)
    # large steps need no more than half of the rows, which take an eighth of the time
    for step, rows in ((2.0, limit // 2), (1.0, limit)):
        error_of = _held_out_error(problem.first(rows))
        lowest, moved = error_of(best), True
        while moved:
            moved = False
            for candidate in _neighbors(best, blocks, step):
                error = error_of(candidate)
                if error < lowest * (1 - 1e-4):
                    best, lowest, moved = candidate, error, True
    return best


def _neighbors(best: Settings, blocks: Sequence[Support], step: float) -> Iterator[Settings]:
    for change in (step, -step):
        if -10 <= best.penalty + change <= 6:
            yield replace(best, penalty=best.penalty + change)
    for change in () if blocks[0].scaling is None else (step, -step):
        width, *others = best.widths
        if -8 <= width + change <= 4:
            yield replace(best, widths=(width + change, *others))
    for k in range(1, len(blocks)):
        own = best.shares[k]
        for change in (0.1 * step, -0.1 * step):
            share = round(min(max(own + change, 0.0), 1.0), 3)
            if share != own and own < 1:
                raw = [s * (1 - share) / (1 - own) for s in best.shares]
                raw[k] = share
                yield replace(best, shares=tuple(round(s, 3) for s in raw))


def _held_out_error(few: _Problem) -> Callable[[Settings], float]:
    """Return what tells the mean squared error of held-out rows, a mean over targets.

    Nothing is computed twice.
    """
    count, known = len(few.labels), zip(few.supports, few.among, strict=True)
    kernels = [lru_cache(maxsize=1)(partial(support.kernel, own)) for support, own in known]

    @cache
    def error(settings: Settings) -> float:
        kernel = _summed(settings, kernels, (count, count), few.among[0].dtype)
        try:
            return float(_misses(few, few.exactly(settings, kernel)[1]).sum())
        except np.linalg.LinAlgError:  # too small a penalty for single precision
            return math.inf

    return error


def _misses(few: _Problem, held: Float64[np.ndarray, "V T"]) -> Float64[np.ndarray, "V"]:
    """Return the share of each row in the mean squared error, which is their sum."""
    weights = np.where(np.isnan(held), 0.0, 1 / few.noise[:, None])
    missed = np.nan_to_num(weights * (few.labels - held) ** 2)
    known = weights.any(axis=0)
    if not known.any():
        return np.zeros(len(held))
    return (missed[:, known] / weights[:, known].sum(axis=0)).mean(axis=1)


def _with_directions(
    problem: _Problem, settings: Settings
) -> tuple[_Problem, Settings, Float64[np.ndarray, "V T"]]:
    """Let quantities be compared along directions as well, where that helps held-out rows.

    It helps if their squared error falls by more than its standard error.

    Returns:
        The problem and the settings, changed or as they were, and outputs for the first rows of
        models that took neither coefficients nor directions from the row's fold; no rows where
        nothing has changed.
    """
    from sklearn.utils.extmath import randomized_svd  # slow to import

    count, (quantities, *counts) = _choosing(problem), problem.supports
    unchanged = problem, settings, problem.labels[:0]
    if quantities.scaling is None:  # counts alone
        return unchanged
    few, values = problem.first(count), np.asarray(quantities.values)[:count]
    axes = np.eye(values.shape[1], dtype=np.float32)
    if values.shape[1] > _DIRECTIONS:
        centered = values - values.mean(axis=0)
        axes = randomized_svd(centered, min(_DIRECTIONS, count), random_state=0)[2].T
    places = torch.from_numpy(values @ axes).double()
    # gradients of a smooth model change little from sample to sample
    smooth = replace(settings, penalty=max(settings.penalty, _SMOOTH))
    folds = [(fold, _along(few, smooth, places, fold)) for fold in _folds(few.kinds)]

    @cache
    def tried(wider: int, stiffer: int) -> tuple[float, Settings, Float64[np.ndarray, "V T"]]:
        widths = tuple(width + wider for width in smooth.widths)
        candidate = replace(smooth, widths=widths, penalty=smooth.penalty + stiffer)
        try:
            held = _held_along(few, candidate, folds)
        except np.linalg.LinAlgError:  # too small a penalty for single precision
            return math.inf, candidate, few.labels
        return float(_misses(few, held).sum()), candidate, held

    at, previous = (0, 0), None
    while at != previous:
        previous = at
        near = ((at[0] + i, at[1] + j) for i, j in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)))
        inside = (place for place in near if max(map(abs, place)) <= _MOST_DOUBLINGS)
        at = min(inside, key=lambda place: tried(*place)[0])
    error, best, held = tried(*at)
    if math.isinf(error):
        return unchanged
    kernel = _known_kernel(settings, few.supports, few.among)
    fall = _misses(few, few.exactly(settings, kernel)[1]) - _misses(few, held)
    # held-out rows are like those that are fitted, and graphs of other kinds gain less: a fall
    # within its standard error is not worth it
    if fall.sum() <= math.sqrt(count) * fall.std():
        return unchanged
    turn = _turn(few, smooth, places, slice(0, 0))
    if turn is not None:
        quantities = quantities.along(axes @ turn.float().numpy())
    supports = (quantities, *counts)
    return replace(problem, supports=supports, among=_among(supports, problem.noise)), best, held


def _along(
    few: _Problem, settings: Settings, places: Float64[Tensor, "V K"], fold: slice
) -> list[Float[Tensor, "V V"]]:
    """Return how rows compare, block by block, along directions that have not seen a fold."""
    first, *others = few.among
    turn = _turn(few, settings, places, fold)
    if turn is None:
        return few.among
    turned = (places @ turn).numpy()
    along = _squared_distances(turned, turned).add_(first, alpha=few.supports[0].median)
    return [along.div_(_median_apart(along[:_JUDGED, :_JUDGED])).to(first.dtype), *others]


def _held_along(
    few: _Problem, settings: Settings, folds: Iterable[tuple[slice, list[Float[Tensor, "V V"]]]]
) -> Float64[np.ndarray, "V T"]:
    """Return outputs of models without the row's fold, by how rows compare then; NaN unlabeled."""
    held = np.full_like(few.labels, np.nan)
    for fold, measured in folds:
        kernel = _known_kernel(settings, few.supports, measured)
        outputs = (kernel[fold] @ _coefficients(few, kernel, settings, fold)).numpy()
        for mask, columns in few.patterns:
            at = np.ix_(np.flatnonzero(mask[fold]), columns)
            held[fold][at] = outputs[at]
    return held


def _coefficients(
    few: _Problem, kernel: Float[Tensor, "V V"], settings: Settings, fold: slice
) -> Float[Tensor, "V T"]:
    """Return coefficients that are fitted to the rows outside a fold; 0 for all others."""
    coefficients = kernel.new_zeros(few.labels.shape)
    for rows, columns in few.outside(fold):
        own, at = _square(kernel, rows), np.ix_(rows, columns)
        own.diagonal().add_(torch.from_numpy(2.0**settings.penalty * few.noise[rows]))
        labels = torch.from_numpy(few.labels[at]).to(kernel.dtype)
        coefficients[at] = torch.cholesky_solve(labels, _factored(own))
    return coefficients


def _turn(
    few: _Problem, settings: Settings, places: Float64[Tensor, "V K"], fold: slice
) -> Float64[Tensor, "K K"] | None:
    r"""Return the map from principal components to directions in which predictions change.

    With the gradients :math:`g_{jt}` of the prediction of target t at row j, known and outside the
    fold, these are the eigenvectors of :math:`M = \sum_{jt} g_{jt} g_{jt}^\top`, as long as the
    fourth root of their eigenvalue. None where nothing changes.
    """
    kernel = _known_kernel(settings, few.supports, few.among)
    coefficients = _coefficients(few, kernel, settings, fold)
    # the gradient of Matern's kernel is this times the difference of the rows, but for a factor
    falls = few.among[0].mul(3.0 * 2.0 ** settings.widths[0]).sqrt_().neg_().exp_()
    total = torch.zeros((places.shape[1],) * 2, dtype=torch.float64)
    for rows, columns in few.outside(fold):
        own, near = places[rows].to(falls.dtype), _square(falls, rows)
        terms = coefficients[rows][:, columns]
        if len(columns) > _PATTERNS:  # the best so many in their place, whatever the order
            left, sizes, _ = torch.linalg.svd(terms, full_matrices=False)
            terms = left[:, :_PATTERNS] * sizes[:_PATTERNS]
        for term in terms.T:
            pulls = near * term
            gradients = pulls.sum(1)[:, None] * own - pulls @ own
            total += gradients.T @ gradients
    values, vectors = torch.linalg.eigh(total)
    lengths = values.clamp(min=0).sqrt()
    mean = float(lengths.mean())
    share = _LEARNED / (1 - _LEARNED)
    return vectors * (lengths * share / mean).sqrt() if mean > 0 else None


def _links(
    outputs: Float64[np.ndarray, "R T"],
    labels: Float64[np.ndarray, "R T"],
    weights: Float[np.ndarray, "R"],
) -> Float64[np.ndarray, "2 T"]:
    """Return slope and intercept of each target's probabilities, from held-out outputs.

    Classes are smoothed as by Platt, so that separated classes give no certainty.
    """
    link = np.zeros((2, labels.shape[1]))
    for t in np.flatnonzero(learnable(labels)):
        known = ~np.isnan(labels[:, t])
        y, f = labels[known, t], outputs[known, t]
        positives, negatives = y.sum(), (1 - y).sum()
        smooth = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
        own = weights[known] / weights[known].mean()
        found = fit_logistic(f[:, None].astype(np.float32), smooth[:, None], 1e3, weights=own)
        link[:, t] = max(float(found[0, 0]), 1e-3), float(found[1, 0])
    return link


def _spread(
    model: KernelModel, problem: _Problem, held: Float64[np.ndarray, "R T"]
) -> Float64[np.ndarray, "7 T"]:
    """Return the spread of a model, fitted to the errors of held-out rows.

    The process knows how near a row is to others, not that errors differ along the scale of the
    labels, for instance towards the limit of an assay: the logarithm of the error is a linear
    function of the logarithm of the process's deviation, which it never falls with, of the output
    and of its square. The whole is scaled so that 1.64 deviations hold 90 % of the errors, those of
    each fold by a function that was fitted to the other folds. Rows that were fitted are nearer to
    labels than nearly all that were held out, so that errors do not tell how small theirs are: they
    count as the nearest twentieth of those.
    """
    labels, settings = problem.labels, model.settings
    ends = [rows[-1] + 1 for rows, _ in model.near]
    variance = np.ones_like(labels)
    for part in _pieces(np.arange(min(ends), len(labels))):
        variance[part] = model.variance(problem.kernel(settings, part, max(ends)))
    for rows, columns in model.near:
        among = problem.kernel(settings, rows, max(ends))[:, rows]
        alike = settings.penalty, np.ones(len(rows)), problem.kinds[rows]
        own = _held_out(among, np.zeros((len(rows), 1)), *alike)[2]
        variance[np.ix_(rows, columns)] = own[:, None]
    own = 0.5 * np.log(variance)
    spread = np.zeros((7, labels.shape[1]))
    spread[1] = 1.0
    for t in range(labels.shape[1]):
        known = np.flatnonzero(~np.isnan(held[:, t] + labels[:, t]))
        # errors of repeats are one error: they would outweigh those of all other graphs
        known = known[np.unique(problem.kinds[known], return_index=True)[1]]
        if len(known) < 2:
            continue
        errors, outputs = np.abs(labels[known, t] - held[known, t]), held[known, t]
        columns = np.stack([np.ones(len(known)), own[known, t], outputs, outputs**2], axis=1)
        logs = np.log(np.maximum(errors, _LEAST_ERROR))
        shown = own[known, t]
        if len(known) >= _FEWEST_FOR_SPREAD:
            spread[:4, t] = _shape(columns, logs)
            for fold in range(FOLDS):
                inside = problem.fold_of[known] == fold
                shown[inside] = columns[inside] @ _shape(columns[~inside], logs[~inside])
        spread[4:, t] = np.quantile(own[known, t], _NEAREST), outputs.min(), outputs.max()
        scale = float(np.quantile(errors / np.exp(shown), 0.9, method="weibull"))
        spread[0, t] += math.log(max(scale, 1e-6) / NINETY)
    return spread


def _shape(
    columns: Float64[np.ndarray, "R 4"], logs: Float64[np.ndarray, "R"]
) -> Float64[np.ndarray, "4"]:
    """Return how the logarithm of the error depends on 1, the process, the output, its square."""
    shape = np.linalg.lstsq(columns, logs, rcond=None)[0]
    if shape[1] < 0:  # far from all labels nothing is more certain
        rest, shape[1] = [0, 2, 3], 0.0
        shape[rest] = np.linalg.lstsq(columns[:, rest], logs, rcond=None)[0]
    return shape
