"""A tree fitted to finished embeddings, with equal shares for its leaves: no training involved."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphlog.errors import ConfigError
from graphlog.ops.contrastive import cosine_similarity, unit_rows
from graphlog.prototypes.e_step import balanced_assignment
from graphlog.prototypes.forest import PrototypeForest
from graphlog.prototypes.kmeans import check_embeddings, kmeans

_CHUNK = 4096
_PASSES = 20


@torch.no_grad()
def fit_balanced_forest(
    embeddings: Float[Tensor, "M D"],
    *,
    depth: int = 3,
    centers: int = 50,
    roots: int = 4,
    generator: torch.Generator,
    temperature: float = 0.05,
) -> PrototypeForest:
    """Return a tree whose leaves hold about equally many graphs.

    Sizes of layers grow geometrically from ``roots`` to ``centers``, as far as there are graphs. A
    leaf that is nearest to no graph is dropped, so every leaf is the nearest of some graph. Above
    the leaves, prototypes have equally many children, give or take one.

    Args:
        embeddings: Embeddings; center them first, since prototypes are compared by cosine.
        depth: Number of layers.
        centers: Leaves.
        roots: Prototypes of the top layer.
        generator: Seeds the clusterings.
        temperature: Sharpness of the balanced assignment.

    Raises:
        ConfigError: If there are fewer than two graphs, all are embedded at 0, or a number is out
            of range.
        NonFiniteLossError: If an embedding is not finite.
    """
    if min(depth, centers, roots) < 1:
        raise ConfigError("`depth`, `centers` and `roots` must be at least 1.")
    check_embeddings(embeddings)
    if not embeddings.any():
        raise ConfigError("the embeddings have collapsed: all graphs are the same to this encoder.")
    # of equal length, so that a few long embeddings do not draw all centers to them
    points = unit_rows(embeddings) * embeddings.norm(dim=1).mean()
    layers, parents = list[Tensor](), list[Tensor]()
    for level in reversed(range(depth)):
        share = level / (depth - 1) if depth > 1 else 1.0
        wanted = round(roots * (centers / roots) ** share) if centers > roots else centers
        if level == depth - 1:
            num = max(min(wanted, points.shape[0] // 2), 1)
            vectors = _balanced_centers(points, num, generator, temperature)
            nearest = cosine_similarity(points, vectors).argmax(dim=1)
            used, nearest = nearest.unique(return_inverse=True)
            vectors = vectors[used]
        else:
            vectors, nearest = _equal_groups(points, min(wanted, points.shape[0]), generator)
        layers.insert(0, vectors)
        parents.insert(0, nearest)
        points = vectors
    # the last entry is the leaf of every graph, which is no part of the tree
    return PrototypeForest(layers, parents[:-1])


def _balanced_centers(
    points: Tensor, num: int, generator: torch.Generator, temperature: float
) -> Tensor:
    """Start from K-means, and move each center to the mean of its balanced share, over and over."""
    centers = kmeans(points, num, generator).centers
    for _ in range(_PASSES):
        sums, weights = torch.zeros_like(centers), centers.new_zeros(num, 1)
        order = torch.randperm(points.shape[0], generator=generator, device=generator.device)
        for chunk in points[order.to(points.device)].split(_CHUNK):
            share = balanced_assignment(cosine_similarity(chunk, centers), temperature=temperature)
            sums += share.T @ chunk
            weights += share.sum(dim=0)[:, None]
        centers = sums / weights.clamp_min(1e-12)
    return _with_directions(centers, points)


def _equal_groups(
    points: Tensor, num: int, generator: torch.Generator
) -> tuple[Float[Tensor, "K D"], Int[Tensor, "M"]]:
    """Group a few points by cosine, sizes differing by one at most: the groups' means and members.

    Start from K-means, assign points and move centers to the means of their members in turns.
    """
    from scipy.optimize import linear_sum_assignment

    centers = kmeans(points, num, generator).centers
    places = torch.arange(points.shape[0], device=points.device) % num
    group = torch.full_like(places, -1)
    for _ in range(_PASSES):
        before, cosine = group, cosine_similarity(points, centers)
        chosen = linear_sum_assignment(cosine[:, places].cpu().numpy(), maximize=True)[1]
        group = places[torch.from_numpy(chosen).to(places.device)]
        centers = torch.zeros_like(centers).index_add(0, group, points)
        centers = _with_directions(centers / group.bincount()[:, None], points)
        if torch.equal(group, before):
            break
    return centers, group


def _with_directions(centers: Tensor, points: Tensor) -> Tensor:
    """Replace a center in the middle of all points, which has no direction."""
    length = points.norm(dim=1)
    vague = centers.norm(dim=1, keepdim=True) <= 1e-5 * length.mean()
    return torch.where(vague, points[length.argmax()], centers)
