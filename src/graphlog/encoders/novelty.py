"""Novelty: how unusual a graph is in a collection, as the percentile of a distance."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphlog.data.split import group_numbers
from graphlog.data.store import GraphStore, sample_rows
from graphlog.domains.repeats import equal_embedding_kinds
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import NonFiniteLossError

PREFIX = "novelty."
"""Prefix of the names of the tensors of a :class:`Novelty` in a model file."""
FEWEST = 20
"""Smallest number of graphs that novelty is fitted to."""
_MAX_GRAPHS = 20_000
"""Largest number of graphs that novelty is fitted to; from more, a sample is drawn."""
_BATCH_SIZE = 512
_MAX_COMPONENTS = 24
_MAX_LEVELS = 1001
_MIN_SCALE = 1e-3
"""Smallest scale of a column, relative to the largest, so that rounding errors stay small."""
_MIN_SIZE_SCALE = 0.1
"""Smallest standard deviation used for the logarithm of the number of nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Novelty:
    r"""A normal distribution of the embeddings of a collection, and quantiles of the distance.

    Let :math:`e` be the ``jk`` embedding of a graph with :math:`n` nodes, without its last column
    :math:`\ln n`. It is standardized as :math:`z = \sqrt n (e - \mu) / \sigma`, since a mean over
    more nodes varies less. The last column of :math:`z` is the standardized :math:`\ln n`, scaled
    so that it has the weight of a sixteenth of all columns. The distance is the Mahalanobis
    distance under probabilistic principal components (Tipping and Bishop, 1999), with variances
    :math:`\lambda_k` along the first axes and one variance :math:`\lambda_0` along all others,

    .. math:: d^2 = \sum_k t_k^2 / \lambda_k + (|z|^2 - \sum_k t_k^2) / \lambda_0, \quad t = V^T z.

    Its percentile is taken among graphs of the collection that the distribution was not fitted to,
    so that the percentile of a new graph of the same collection is uniformly distributed. Graphs
    that the network cannot tell apart count once.
    """

    mean: Float[np.ndarray, "W"]
    """Mean of each column of the embeddings."""
    scale: Float[np.ndarray, "W"]
    """Divisor of each column after centering."""
    axes: Float[np.ndarray, "W K"]
    """Principal axes of the standardized embeddings, one per column."""
    variances: Float[np.ndarray, "K1"]
    """Variance along each axis, and last the variance along every other direction."""
    quantiles: Float[np.ndarray, "Q"]
    """Quantiles of the squared distance, ascending, for evenly spaced levels from 0 to 100 %.

    They come from the graphs that the distribution was not fitted to. If these are fewer than
    1,000, every distance is a quantile, and the first and the last are stored twice: rank k of m
    has level k / (m + 1), the probability that a new graph has a smaller distance.
    """

    @classmethod
    def fit(
        cls, embeddings: Float[np.ndarray, "N W"], seed: int = 0, exchanged: bool = False
    ) -> Self | None:
        """Fit the distribution to one half of the graphs and take the quantiles from the other.

        Args:
            embeddings: ``jk`` embeddings, one row per graph.
            seed: Seed of the random division into halves.
            exchanged: Whether to exchange the two halves.

        Returns:
            The fitted distribution; None for fewer than 20 graphs.
        """
        if len(embeddings) < FEWEST:
            return None
        from sklearn.utils.extmath import randomized_svd  # slow to import, needed for fitting only

        first, second = _halves(len(embeddings), seed)
        if exchanged:
            first, second = second, first
        # convert one half at a time to float64: this may be the peak of memory of a whole run
        fitted = np.asarray(embeddings[first], dtype=np.float64)
        width, mean = fitted.shape[1], fitted.mean(axis=0)
        z = _centered(fitted, mean)
        scale = np.sqrt(np.square(z).mean(axis=0))
        scale[:-1] = np.maximum(scale[:-1], _MIN_SCALE * scale[:-1].max())
        scale[scale == 0] = 1.0
        scale[-1] = max(fitted[:, -1].std(), _MIN_SIZE_SCALE) / np.sqrt(max(width / 16, 1.0))
        del fitted
        z /= scale
        components = min(_MAX_COMPONENTS, len(z) // 4, width - 1)
        _, lengths, axes = randomized_svd(z, components, random_state=seed)
        # round as the file does, so that the quantiles hold for the axes that are read back
        axes = axes.T.astype(np.float16).astype(np.float64)
        explained = np.square(lengths) / len(z)
        rest = max(np.square(z).sum() / len(z) - explained.sum(), 0.0) / (width - components)
        rest = max(rest, 1e-9 * explained.max(), 1e-9)
        model = cls(mean, scale, axes, np.append(np.maximum(explained, rest), rest), np.empty(0))
        del z
        parts = np.array_split(second, -(-len(second) // _BATCH_SIZE))
        distances = np.concatenate([model.distances(embeddings[part]) for part in parts])
        levels = np.linspace(0.0, 1.0, min(len(distances) + 2, _MAX_LEVELS))
        return replace(model, quantiles=np.quantile(distances, levels, method="weibull"))

    def distances(self, embeddings: Float[np.ndarray, "N W"]) -> Float[np.ndarray, "N"]:
        """Return the squared distance of each graph from the collection.

        Unlike percentiles, distances also rank graphs that are farther than the whole collection.
        """
        z = _centered(np.asarray(embeddings, dtype=np.float64), self.mean) / self.scale
        along = np.square(z @ self.axes)
        rest = np.maximum(np.square(z).sum(axis=1) - along.sum(axis=1), 0.0)
        return along @ (1 / self.variances[:-1]) + rest / self.variances[-1]

    def percentiles(self, distances: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
        """Return the percentage of the collection that has a smaller distance, from 0 to 100.

        For a graph farther than all m graphs it is 100 m / (m + 1) if m is below 999, else 100.
        """
        values, group, counts = np.unique(self.quantiles, return_inverse=True, return_counts=True)
        levels = np.linspace(0.0, 100.0, len(self.quantiles))
        if len(levels) < _MAX_LEVELS:
            levels = levels.clip(levels[1], levels[-2])
        middle = np.bincount(group.ravel(), weights=levels) / counts
        return np.interp(distances, values, middle, left=0.0, right=levels[-1])

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that a file stores, by name; the axes, which are large, as float16."""
        arrays = {f.name: torch.from_numpy(getattr(self, f.name)) for f in fields(self)}
        return {PREFIX + name: t.half() if name == "axes" else t for name, t in arrays.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], width: int) -> Self | None:
        """Return the inverse of :meth:`tensors`; None if nothing is stored for ``width`` columns.

        Raises:
            ValueError: If shapes do not match or values are invalid.
        """
        names = [f.name for f in fields(cls)]
        if any(PREFIX + name not in tensors for name in names):
            return None
        arrays = [np.asarray(tensors[PREFIX + n].cpu().numpy(), dtype=np.float64) for n in names]
        mean, scale, axes, variances, quantiles = arrays
        if len(mean) != width:
            return None
        fits = scale.shape == mean.shape and axes.shape == (width, len(variances) - 1)
        positive = (scale > 0).all() and (variances > 0).all()
        finite = all(np.isfinite(array).all() for array in arrays)
        if not (fits and positive and finite and len(quantiles) > 1):
            raise ValueError("the novelty stored with the model is damaged; get the file again.")
        return cls(*arrays)


def _halves(count: int, seed: int) -> list[Int[np.ndarray, "H"]]:
    """Return the rows to fit the distribution to, and the rows to take the quantiles from."""
    return np.array_split(np.random.default_rng(seed).permutation(count), 2)


def _centered(
    embeddings: Float[np.ndarray, "N W"], mean: Float[np.ndarray, "W"]
) -> Float[np.ndarray, "N W"]:
    """Subtract the mean, and multiply all columns but the last by the root of the graph size."""
    z = embeddings - mean
    z[:, :-1] *= np.exp(embeddings[:, -1:] / 2)
    return z


def fit_novelty(network: GraphEncoder, graphs: GraphStore, seed: int = 0) -> Novelty | None:
    """Fit novelty to the embeddings of ``graphs``; return None for fewer than 20.

    ``network`` must be in evaluation mode. From more than 20,000 graphs a sample is drawn.
    """
    if len(graphs) < FEWEST:
        return None
    return Novelty.fit(_embedded_sample(network, graphs, seed)[2], seed)


def refit_novelty(
    network: GraphEncoder, graphs: GraphStore, seed: int = 0
) -> tuple[Novelty | None, Int[np.ndarray, "F"]]:
    """Fit novelty as :func:`fit_novelty` does but with exchanged halves.

    A graph is near any distribution that was fitted to it, so the graphs that
    :func:`fit_novelty` uses for its fit must be judged by this one.

    Returns:
        The fitted distribution, and the positions in ``graphs`` of the graphs to judge by it.
    """
    rows, groups, embeddings = _embedded_sample(network, graphs, seed)
    is_in_first_half = np.isin(groups, _halves(len(embeddings), seed)[0])
    return Novelty.fit(embeddings, seed, exchanged=True), rows[is_in_first_half]


def _embedded_sample(
    network: GraphEncoder, graphs: GraphStore, seed: int
) -> tuple[Int[np.ndarray, "J"], Int[np.ndarray, "J"], Float[np.ndarray, "K W"]]:
    """Return positions and group numbers of sampled graphs, and an embedding of each group.

    A group consists of graphs that the network cannot tell apart.
    """
    rows = sample_rows(len(graphs), _MAX_GRAPHS, seed)
    groups = equal_embedding_kinds(graphs.subset(rows), network.config.layers)
    groups = np.arange(len(rows)) if groups is None else group_numbers(groups.tolist())
    first = rows[np.unique(groups, return_index=True)[1]]
    device = next(network.parameters()).device
    parts = np.array_split(first, -(-len(first) // _BATCH_SIZE))
    with torch.no_grad():
        batches = (graphs.take(part).to(device) for part in parts)
        embeddings = np.concatenate(
            [network.embed_graphs(batch, "jk").float().cpu().numpy() for batch in batches]
        )
    if not np.isfinite(embeddings).all():
        raise NonFiniteLossError("embeddings became NaN or infinite; try a lower learning rate.")
    return rows, groups, embeddings
