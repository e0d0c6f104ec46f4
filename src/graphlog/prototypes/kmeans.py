"""K-means: scikit-learn's on a CPU, a chunked Lloyd in torch where the embeddings live on a GPU."""

import warnings
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

Backend = Literal["auto", "sklearn", "torch"]
_CHUNK = 65536


class Clusters(NamedTuple):
    """Surviving centres and the centre of every point."""

    centres: Float[Tensor, "K D"]
    """Cluster means."""
    assignment: Int[Tensor, "M"]
    """Index of each point's centre."""


def kmeans(
    points: Float[Tensor, "M D"],
    num_centres: int,
    generator: torch.Generator,
    *,
    max_iter: int = 100,
    backend: Backend = "auto",
) -> Clusters:
    """Return K-means clusters of the points, some possibly empty.

    The result depends on the points, the generator and the library versions only: scikit-learn runs
    on one thread, because its sums over several depend on which one finishes first.

    Args:
        points: What to cluster.
        num_centres: Number of centres, at most the number of points.
        generator: Seeds the k-means++ start.
        max_iter: Upper limit of Lloyd iterations.
        backend: ``"auto"`` is scikit-learn on a CPU and torch elsewhere.
    """
    if not 1 <= num_centres <= points.shape[0]:
        raise ValueError(f"`num_centres` must be in [1, {points.shape[0]}], found {num_centres}.")
    if backend == "sklearn" or (backend == "auto" and points.device.type == "cpu"):
        return _sklearn_kmeans(points, num_centres, generator, max_iter)
    return lloyd(points, _plus_plus(points, num_centres, generator), max_iter=max_iter)


def drop_small(points: Float[Tensor, "M D"], clusters: Clusters, min_members: int) -> Clusters:
    """Return the clusters with at least ``min_members`` points.

    Orphans move to the nearest surviving centre. Centres are not moved by it. No survivor at all
    gives no centres and every point the assignment 0.
    """
    counts = torch.bincount(clusters.assignment, minlength=clusters.centres.shape[0])
    kept = counts >= min_members
    centres = clusters.centres[kept]
    if centres.shape[0] == 0:
        return Clusters(centres, torch.zeros_like(clusters.assignment))
    renumbered = (kept.cumsum(0) - 1)[clusters.assignment]
    orphan = ~kept[clusters.assignment]
    renumbered[orphan] = nearest(points[orphan], centres)
    return Clusters(centres, renumbered)


def nearest(points: Float[Tensor, "M D"], centres: Float[Tensor, "K D"]) -> Int[Tensor, "M"]:
    """Return the nearest centre of each point in Euclidean distance, the first of equals."""
    half_norm = 0.5 * centres.square().sum(dim=1)
    parts = [(half_norm - chunk @ centres.T).argmin(dim=1) for chunk in points.split(_CHUNK)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.long, device=points.device)


def lloyd(
    points: Float[Tensor, "M D"],
    initial: Float[Tensor, "K D"],
    *,
    max_iter: int = 100,
    tolerance: float = 1e-4,
) -> Clusters:
    """Return the clusters Lloyd's iteration reaches from the given centres.

    An empty cluster keeps its centre. Sums are products with one-hot matrices, so that a GPU gives
    the same result every time.

    Args:
        points: What to cluster.
        initial: Starting centres.
        max_iter: Upper limit of iterations.
        tolerance: Stops once the centres' squared shift is below this share of the points' mean
            variance (scikit-learn's rule).
    """
    centres = initial
    stop = tolerance * points.var(dim=0, unbiased=False).mean()
    assignment = nearest(points, centres)
    for _ in range(max_iter):
        sums, counts = torch.zeros_like(centres), centres.new_zeros(centres.shape[0], 1)
        for chunk, owner in zip(points.split(_CHUNK), assignment.split(_CHUNK), strict=True):
            one_hot = torch.nn.functional.one_hot(owner, centres.shape[0]).to(points.dtype)
            sums += one_hot.T @ chunk
            counts += one_hot.sum(dim=0)[:, None]
        moved = torch.where(counts > 0, sums / counts.clamp_min(1.0), centres)
        shift = (moved - centres).square().sum()
        centres, before = moved, assignment
        assignment = nearest(points, centres)
        if bool((shift <= stop) | (assignment == before).all()):
            break
    return Clusters(centres, assignment)


def _plus_plus(points: Tensor, num_centres: int, generator: torch.Generator) -> Tensor:
    """Return k-means++ starting centres."""
    draw = torch.rand(
        num_centres, generator=generator, device=generator.device, dtype=torch.float64
    ).to(points.device)
    first = (draw[0] * points.shape[0]).long()
    chosen = [first]
    distance = (points - points[first]).square().sum(dim=1)
    for k in range(1, num_centres):
        cumulative = distance.double().cumsum(0)
        position = torch.searchsorted(cumulative, draw[k] * cumulative[-1], right=True)
        chosen.append(position.clamp_max(points.shape[0] - 1))
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(dim=1))
    return points[torch.stack(chosen)]


def _sklearn_kmeans(
    points: Tensor, num_centres: int, generator: torch.Generator, max_iter: int
) -> Clusters:
    # heavy, and not needed by most imports of this module
    from sklearn.cluster import KMeans  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
    from sklearn.exceptions import ConvergenceWarning  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
    from threadpoolctl import threadpool_limits

    seed = int(torch.randint(2**31 - 1, (1,), generator=generator, device=generator.device))
    model = KMeans(num_centres, n_init=1, max_iter=max_iter, random_state=seed)  # pyright: ignore[reportArgumentType]
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # fewer distinct points than centres: the empty clusters are dropped afterwards
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points.detach().cpu().numpy())  # pyright: ignore[reportUnknownMemberType]
    centres = torch.from_numpy(model.cluster_centers_).to(points)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    labels = torch.from_numpy(model.labels_).long().to(points.device)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return Clusters(centres, labels)
