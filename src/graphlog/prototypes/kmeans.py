"""Initial prototypes: K-means of graph embeddings, and of its centers, bottom-up (Sec. 3.2).

K-means is scikit-learn's, on the CPU wherever the embeddings live.
"""

import warnings
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphlog.errors import ConfigError, NonFiniteLossError
from graphlog.ops.contrastive import unit_rows
from graphlog.prototypes.forest import PrototypeForest

CentersRule = Literal["halve", "literal"]
Space = Literal["raw", "unit"]
_CHUNK = 65536


class Clusters(NamedTuple):
    """Surviving centers and the center of every point."""

    centers: Float[Tensor, "K D"]
    """Cluster means."""
    assignment: Int[Tensor, "M"]
    """Index of each point's center."""


def fit_forest(
    embeddings: Float[Tensor, "M D"],
    *,
    depth: int,
    centers: int,
    generator: torch.Generator,
    centers_rule: CentersRule = "halve",
    min_members: int = 2,
    min_roots: int = 1,
    space: Space = "raw",
) -> PrototypeForest:
    """Return prototypes fitted layer by layer.

    K-means on the embeddings, then on the centers of the layer below, ``depth`` times. After each
    clustering, centers with fewer than ``min_members`` members are discarded and their members
    re-attached to the nearest survivor. Printed as it is, the paper's rule has no upper layer: 50
    centers on the at most 50 points of the layer below leave one member each, and all are
    discarded. Hence ``centers_rule``:

    - ``"halve"``: at most half as many centers as points; where still no cluster is large enough (a
      single point, say), one prototype at the mean of the points is kept, so that a few graphs are
      enough;
    - ``"literal"``: as many as asked for or as there are points; an error where that discards
      everything.

    Args:
        embeddings: Graph embeddings of the collection, or a sample of it.
        depth: Number of layers, at least 1.
        centers: Centers of each clustering (the paper: 50).
        generator: Seeds the clusterings.
        centers_rule: How many centers a layer of few points gets.
        min_members: Smallest cluster that is kept (the paper: 2).
        min_roots: Fewest prototypes of the top layer, as far as the layer below has that many;
            where the rules above leave fewer, that many centers are fitted and none discarded.
        space: ``"raw"`` clusters the embeddings, ``"unit"`` their directions, which is what cosine
            similarity compares.

    Raises:
        ConfigError: If there are fewer than two graphs, all embeddings are zero, or the literal
            rule leaves a layer empty.
        NonFiniteLossError: If an embedding is not finite.
    """
    if depth < 1 or centers < 1:
        raise ConfigError(f"`depth` and `centers` must be at least 1, found {depth} and {centers}.")
    check_embeddings(embeddings)
    points = embeddings.detach()
    fewest = [1] * (depth - 1) + [min_roots]
    layers: list[Tensor] = []
    parents: list[Tensor] = []
    for level in range(depth):
        points = unit_rows(points) if space == "unit" else points
        fitted = _fit_layer(points, level, centers, generator, centers_rule, min_members)
        if fitted.centers.shape[0] < (num := min(fewest[level], points.shape[0])):
            fitted = drop_small(points, kmeans(points, num, generator), 1)
        layers.append(_without_zeros(fitted, points))
        parents.append(fitted.assignment)
        points = layers[-1]
    # the first assignment is that of the graphs themselves, which are no part of the forest
    return PrototypeForest(layers[::-1], parents[:0:-1])


def check_embeddings(embeddings: Float[Tensor, "M D"]) -> None:
    """Raise where there are fewer than two embeddings, or one is not finite.

    Raises:
        ConfigError: If there are fewer than two.
        NonFiniteLossError: If one is not finite.
    """
    if embeddings.shape[0] < 2:
        raise ConfigError(
            f"prototypes need at least 2 graphs, found {embeddings.shape[0]};"
            " use a larger collection or `global_weight=0`."
        )
    if not bool(torch.isfinite(embeddings).all()):
        raise NonFiniteLossError(
            "graph embeddings are not finite when prototypes are fitted; lower the learning rate."
        )


def _fit_layer(
    points: Tensor,
    level: int,
    centers: int,
    generator: torch.Generator,
    centers_rule: CentersRule,
    min_members: int,
) -> Clusters:
    available = points.shape[0]
    wanted = min(centers, available if centers_rule == "literal" else max(1, available // 2))
    fitted = drop_small(points, kmeans(points, wanted, generator), min_members)
    if fitted.centers.shape[0] == 0:
        if centers_rule == "literal":
            raise ConfigError(
                f"`centres_rule='literal'` discards all prototypes {level} layers above the bottom:"
                f" {wanted} centers on {available} points leave none with {min_members} members;"
                " use 'halve' or fewer `centres`."
            )
        fitted = Clusters(points.mean(dim=0, keepdim=True), torch.zeros_like(fitted.assignment))
    return fitted


def _without_zeros(clusters: Clusters, points: Tensor) -> Tensor:
    """Replace a center of length 0, which has no direction, by its member of greatest length."""
    vectors = clusters.centers.clone()
    for k in (vectors.norm(dim=1) == 0).nonzero().flatten().tolist():
        members = points[clusters.assignment == k]
        vectors[k] = members[members.norm(dim=1).argmax()]
    if bool((vectors.norm(dim=1) == 0).any()):
        raise ConfigError(
            "the graph embeddings have collapsed to zero: no prototypes can be fitted;"
            " train the local phase longer."
        )
    return vectors


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
