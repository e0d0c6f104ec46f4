"""K-means clustering by scikit-learn, on the CPU wherever the embeddings live."""

import warnings
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

_CHUNK = 65536


class Clusters(NamedTuple):
    """Surviving centers and the center of every point."""

    centers: Float[Tensor, "K D"]
    """Cluster means."""
    assignment: Int[Tensor, "M"]
    """Index of each point's center."""


def kmeans(
    points: Float[Tensor, "M D"],
    num_centers: int,
    generator: torch.Generator,
    *,
    max_iter: int = 100,
) -> Clusters:
    """Return K-means clusters of the points, some possibly empty.

    The result depends on the points, the generator and the library versions only: scikit-learn runs
    on one thread, because its sums over several depend on which one finishes first.

    Args:
        points: What to cluster.
        num_centers: Number of centers, at most the number of points.
        generator: Seeds the k-means++ start.
        max_iter: Upper limit of Lloyd iterations.
    """
    if not 1 <= num_centers <= points.shape[0]:
        raise ValueError(f"`num_centers` must be in [1, {points.shape[0]}], found {num_centers}.")
    # heavy, and not needed by most imports of this module
    from sklearn.cluster import KMeans  # pyright: ignore[reportUnknownVariableType]
    from sklearn.exceptions import ConvergenceWarning  # pyright: ignore[reportUnknownVariableType]
    from threadpoolctl import threadpool_limits

    seed = int(torch.randint(2**31 - 1, (1,), generator=generator, device=generator.device))
    model = KMeans(num_centers, n_init=1, max_iter=max_iter, random_state=seed)  # pyright: ignore[reportArgumentType]
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # fewer distinct points than centers: the empty clusters are dropped afterwards
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points.detach().cpu().numpy())
    centers = torch.from_numpy(model.cluster_centers_).to(points)
    return Clusters(centers, torch.from_numpy(model.labels_).long().to(points.device))


def drop_small(points: Float[Tensor, "M D"], clusters: Clusters, min_members: int) -> Clusters:
    """Return the clusters with at least ``min_members`` points.

    Orphans move to the nearest surviving center. Centers are not moved by it. No survivor at all
    gives no centers and every point the assignment 0.
    """
    counts = torch.bincount(clusters.assignment, minlength=clusters.centers.shape[0])
    kept = counts >= min_members
    centers = clusters.centers[kept]
    if centers.shape[0] == 0:
        return Clusters(centers, torch.zeros_like(clusters.assignment))
    renumbered = (kept.cumsum(0) - 1)[clusters.assignment]
    orphan = ~kept[clusters.assignment]
    renumbered[orphan] = nearest(points[orphan], centers)
    return Clusters(centers, renumbered)


def nearest(points: Float[Tensor, "M D"], centers: Float[Tensor, "K D"]) -> Int[Tensor, "M"]:
    """Return the nearest center of each point in Euclidean distance, the first of equals."""
    half_norm = 0.5 * centers.square().sum(dim=1)
    parts = [(half_norm - chunk @ centers.T).argmin(dim=1) for chunk in points.split(_CHUNK)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.long, device=points.device)
