"""How unusual a graph is among the graphs of a collection: a percentile of a distance."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphlog.data.split import group_numbers
from graphlog.data.store import GraphStore, sample_rows
from graphlog.domains.repeats import embedded_alike
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import NonFiniteLossError

PREFIX = "novelty."
"""Of its tensors among those of a model file."""
FEWEST = 20
"""Graphs below which a percentile says nothing."""
_JUDGED = 20_000
"""Graphs that novelty is fitted to."""
_AT_ONCE = 512
_COMPONENTS = 24
_LEVELS = 1001
_LEAST_SPREAD = 1e-3
"""Least scale of a column, as a share of the largest: rounding errors are not to be scaled up."""
_LEAST_SIZE_SPREAD = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Novelty:
    r"""A normal distribution of the embeddings of a collection, and quantiles of its distance.

    With :math:`e` the ``jk`` embedding of a graph of :math:`n` nodes without its last column
    :math:`\ln n`, the deviation is :math:`z = \sqrt n (e - \mu) / \sigma`: means over many nodes
    vary less, and a large graph whose mean is off by as much as that of a small one is odder. The
    deviation of :math:`\ln n` stands beside it with the weight of a sixteenth of all columns.
    The distance is that of Mahalanobis under probabilistic principal components (Tipping and
    Bishop, 1999): variances :math:`\lambda_k` along the first axes, and one variance
    :math:`\lambda_0` for all others,

    .. math:: d^2 = \sum_k t_k^2 / \lambda_k + (|z|^2 - \sum_k t_k^2) / \lambda_0, \quad t = V^T z.

    Its percentile is taken among graphs of the collection that the distribution was not fitted to,
    so that another graph drawn from the same collection has each percentile with equal chance.
    Graphs that repeat each other count once, as far as the network sees it.
    """

    mean: Float[np.ndarray, "W"]
    """Of the columns."""
    scale: Float[np.ndarray, "W"]
    """What deviations are divided by."""
    axes: Float[np.ndarray, "W K"]
    """Principal axes of the deviations."""
    variances: Float[np.ndarray, "K1"]
    """Along the axes, then of all other directions."""
    quantiles: Float[np.ndarray, "Q"]
    """Of the squared distance over the collection, ascending, at equal steps from 0 to 100 %.

    Of fewer than 1,000 graphs each distance is one, and the first and the last are there twice:
    that of rank k of m is at k / (m + 1), which is how often a new graph is nearer.
    """

    @classmethod
    def fit(
        cls, embeddings: Float[np.ndarray, "N W"], seed: int = 0, exchanged: bool = False
    ) -> Self | None:
        """Fit the distribution to one half of the graphs and take the quantiles from the other.

        Args:
            embeddings: Of the graphs.
            seed: Decides the halves.
            exchanged: Whether the halves change places.

        Returns:
            None where there are fewer than 20 graphs.
        """
        if len(embeddings) < FEWEST:
            return None
        from sklearn.utils.extmath import randomized_svd  # slow to import; to judge needs none

        first, second = _halves(len(embeddings), seed)
        if exchanged:
            first, second = second, first
        # one half at a time in double precision, which may be the most memory of a whole run
        fitted = np.asarray(embeddings[first], dtype=np.float64)
        width, mean = fitted.shape[1], fitted.mean(axis=0)
        z = _deviations(fitted, mean)
        scale = np.sqrt(np.square(z).mean(axis=0))
        scale[:-1] = np.maximum(scale[:-1], _LEAST_SPREAD * scale[:-1].max())
        scale[scale == 0] = 1.0
        scale[-1] = max(fitted[:, -1].std(), _LEAST_SIZE_SPREAD) / np.sqrt(max(width / 16, 1.0))
        del fitted
        z /= scale
        components = min(_COMPONENTS, len(z) // 4, width - 1)
        _, lengths, axes = randomized_svd(z, components, random_state=seed)
        # rounded as in the file, so that the quantiles are those of what will be read
        axes = axes.T.astype(np.float16).astype(np.float64)
        along = np.square(lengths) / len(z)
        rest = max(np.square(z).sum() / len(z) - along.sum(), 0.0) / (width - components)
        rest = max(rest, 1e-9 * along.max(), 1e-9)
        model = cls(mean, scale, axes, np.append(np.maximum(along, rest), rest), np.empty(0))
        del z
        parts = np.array_split(second, -(-len(second) // _AT_ONCE))
        judged = np.concatenate([model.distances(embeddings[part]) for part in parts])
        levels = np.linspace(0.0, 1.0, min(len(judged) + 2, _LEVELS))
        return replace(model, quantiles=np.quantile(judged, levels, method="weibull"))

    def distances(self, embeddings: Float[np.ndarray, "N W"]) -> Float[np.ndarray, "N"]:
        """Return squared distances from the collection; they rank graphs beyond all percentiles."""
        z = _deviations(np.asarray(embeddings, dtype=np.float64), self.mean) / self.scale
        along = np.square(z @ self.axes)
        rest = np.maximum(np.square(z).sum(axis=1) - along.sum(axis=1), 0.0)
        return along @ (1 / self.variances[:-1]) + rest / self.variances[-1]

    def percentiles(self, distances: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
        """Return the share, in percent, of the collection's graphs that are nearer: 0 to 100.

        Beyond all of m graphs, fewer than 999, it is m / (m + 1).
        """
        values, group, counts = np.unique(self.quantiles, return_inverse=True, return_counts=True)
        levels = np.linspace(0.0, 100.0, len(self.quantiles))
        if len(levels) < _LEVELS:
            levels = levels.clip(levels[1], levels[-2])
        middle = np.bincount(group.ravel(), weights=levels) / counts
        return np.interp(distances, values, middle, left=0.0, right=levels[-1])

    def tensors(self) -> dict[str, Tensor]:
        """Return what a file keeps, by name; the axes, its bulk, in 16 bits."""
        kept = {f.name: torch.from_numpy(getattr(self, f.name)) for f in fields(self)}
        return {PREFIX + name: t.half() if name == "axes" else t for name, t in kept.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], width: int) -> Self | None:
        """Return what :meth:`tensors` described; None where there is nothing for that many columns.

        Raises:
            ValueError: If shapes do not fit each other.
        """
        names = [f.name for f in fields(cls)]
        if any(PREFIX + name not in tensors for name in names):
            return None
        kept = [np.asarray(tensors[PREFIX + n].cpu().numpy(), dtype=np.float64) for n in names]
        mean, scale, axes, variances, quantiles = kept
        if len(mean) != width:
            return None
        fits = scale.shape == mean.shape and axes.shape == (width, len(variances) - 1)
        positive = bool((scale > 0).all() and (variances > 0).all())
        if not (
            fits and positive and len(quantiles) > 1 and all(np.isfinite(k).all() for k in kept)
        ):
            raise ValueError("the novelty stored with the model is damaged; get the file again.")
        return cls(mean, scale, axes, variances, quantiles)


def _halves(count: int, seed: int) -> list[Int[np.ndarray, "H"]]:
    """Return the rows that the distribution is fitted to, and those that give the quantiles."""
    return np.array_split(np.random.default_rng(seed).permutation(count), 2)


def _deviations(
    embeddings: Float[np.ndarray, "N W"], mean: Float[np.ndarray, "W"]
) -> Float[np.ndarray, "N W"]:
    """Return the columns less their mean, all but the last times the square root of the size."""
    z = embeddings - mean
    z[:, :-1] *= np.exp(embeddings[:, -1:] / 2)
    return z


def fit_novelty(network: GraphEncoder, graphs: GraphStore, seed: int = 0) -> Novelty | None:
    """Return what is usual among ``graphs`` as ``network`` embeds them; None for fewer than 20.

    The network is in evaluation mode. Of large collections, 20,000 graphs are drawn.
    """
    if len(graphs) < FEWEST:
        return None
    return Novelty.fit(_drawn(network, graphs, seed)[2], seed)


def refit_novelty(
    network: GraphEncoder, graphs: GraphStore, seed: int = 0
) -> tuple[Novelty | None, Int[np.ndarray, "F"]]:
    """Return what :func:`fit_novelty` does with its halves exchanged, and whom it has to judge.

    A graph is near any distribution that was fitted to it. This one judges the graphs that the
    first was fitted to; they are returned by their places in ``graphs``.
    """
    rows, kinds, embeddings = _drawn(network, graphs, seed)
    judged = np.isin(kinds, _halves(len(embeddings), seed)[0])
    return Novelty.fit(embeddings, seed, exchanged=True), rows[judged]


def _drawn(
    network: GraphEncoder, graphs: GraphStore, seed: int
) -> tuple[Int[np.ndarray, "J"], Int[np.ndarray, "J"], Float[np.ndarray, "K W"]]:
    """Return the graphs that novelty is fitted to.

    These are their places, numbers that are equal for those that repeat each other, and the
    embedding of the first with each number.
    """
    rows = sample_rows(len(graphs), _JUDGED, seed)
    kinds = embedded_alike(graphs.subset(rows), network.config.layers)
    kinds = np.arange(len(rows)) if kinds is None else group_numbers(kinds.tolist())
    first = rows[np.unique(kinds, return_index=True)[1]]
    device = next(network.parameters()).device
    parts = np.array_split(first, -(-len(first) // _AT_ONCE))
    with torch.no_grad():
        found = [
            network.embed_graphs(graphs.take(part).to(device), "jk").float().cpu().numpy()
            for part in parts
        ]
    embeddings = np.concatenate(found)
    if not np.isfinite(embeddings).all():
        raise NonFiniteLossError("embeddings became NaN or infinite; try a lower learning rate.")
    return rows, kinds, embeddings
