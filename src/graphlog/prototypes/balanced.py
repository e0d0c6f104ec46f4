"""A tree fitted to finished embeddings, with equal shares for its leaves: no training involved."""

import torch
from jaxtyping import Float
from torch import Tensor

from graphlog.errors import ConfigError
from graphlog.ops.similarity import cosine_similarity
from graphlog.prototypes.e_step import balanced_assignment
from graphlog.prototypes.forest import PrototypeForest
from graphlog.prototypes.initialize import check_embeddings
from graphlog.prototypes.kmeans import kmeans

_CHUNK = 4096
_PASSES = 20


@torch.no_grad()
def fit_balanced_forest(
    embeddings: Float[Tensor, "M D"],
    *,
    depth: int = 3,
    centres: int = 50,
    roots: int = 4,
    generator: torch.Generator,
    temperature: float = 0.05,
) -> PrototypeForest:
    """Return a tree whose leaves hold about equally many graphs.

    Sizes of layers grow geometrically from ``roots`` to ``centres``, as far as there are graphs. A
    leaf that is nearest to no graph is dropped, so every leaf is the nearest of some graph.

    Args:
        embeddings: Embeddings; center them first, since prototypes are compared by cosine.
        depth: Number of layers.
        centres: Leaves.
        roots: Prototypes of the top layer.
        generator: Seeds the clusterings.
        temperature: Sharpness of the balanced assignment.

    Raises:
        ConfigError: If there are fewer than two graphs, all are embedded at 0, or a number is out
            of range.
        NonFiniteLossError: If an embedding is not finite.
    """
    if min(depth, centres, roots) < 1:
        raise ConfigError("`depth`, `centres` and `roots` must be at least 1.")
    check_embeddings(embeddings)
    if not embeddings.any():
        raise ConfigError("the embeddings have collapsed: all graphs are the same to this encoder.")
    points, layers, parents = embeddings, list[Tensor](), list[Tensor]()
    for level in reversed(range(depth)):
        share = level / (depth - 1) if depth > 1 else 1.0
        wanted = round(roots * (centres / roots) ** share) if centres > roots else centres
        wanted = min(wanted, points.shape[0] if level < depth - 1 else points.shape[0] // 2)
        vectors = _balanced_centres(points, max(wanted, 1), generator, temperature)
        nearest = cosine_similarity(points, vectors).argmax(dim=1)
        used, nearest = nearest.unique(return_inverse=True)
        layers.insert(0, vectors[used])
        parents.insert(0, nearest)
        points = layers[0]
    # the last entry is the leaf of every graph, which is no part of the tree
    return PrototypeForest(layers, parents[:-1])


def _balanced_centres(
    points: Tensor, num: int, generator: torch.Generator, temperature: float
) -> Tensor:
    """Start from K-means, and move each center to the mean of its balanced share, over and over."""
    centres = kmeans(points, num, generator).centres
    for _ in range(_PASSES):
        sums, weights = torch.zeros_like(centres), centres.new_zeros(num, 1)
        order = torch.randperm(points.shape[0], generator=generator).to(points.device)
        for chunk in points[order].split(_CHUNK):
            share = balanced_assignment(cosine_similarity(chunk, centres), temperature=temperature)
            sums += share.T @ chunk
            weights += share.sum(dim=0)[:, None]
        centres = sums / weights.clamp_min(1e-12)
    # a center in the middle of all points has no direction
    length = points.norm(dim=1)
    vague = centres.norm(dim=1, keepdim=True) <= 1e-5 * length.mean()
    return torch.where(vague, points[length.argmax()], centres)
