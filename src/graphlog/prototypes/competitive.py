"""The initial prototypes of the authors' script.

Moving averages below, rival-penalized competition above. A departure from the paper's K-means, kept
for the ``released`` recipe only. Both algorithms are sequential by nature; the loops run over
batches and over at most a few dozen prototypes, never over graphs.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphlog.errors import ConfigError
from graphlog.ops.contrastive import cosine_similarity
from graphlog.prototypes.forest import PrototypeForest

_EPS = 1e-6
_SWEEPS = 20


def moving_average_pass(
    batches: Sequence[Float[Tensor, "_ D"]],
    prototypes: Float[Tensor, "K D"],
    counts: Int[Tensor, "K"],
    decay: float = 0.95,
) -> tuple[Float[Tensor, "K D"], Int[Tensor, "K"]]:
    """Return prototypes and member counts after one pass.

    Each batch moves its winners toward the mean of their members.

    Args:
        batches: Graph embeddings, batch after batch.
        prototypes: Where they stand before the pass.
        counts: Members assigned so far, over all passes.
        decay: Weight of the old prototype in the moving average.
    """
    for batch in batches:
        winner = cosine_similarity(batch, prototypes, _EPS).argmax(dim=1)
        members = torch.bincount(winner, minlength=prototypes.shape[0])
        mean = (
            torch.zeros_like(prototypes).index_add(0, winner, batch) / members.clamp_min(1)[:, None]
        )
        prototypes = torch.where(
            members[:, None] > 0, decay * prototypes + (1 - decay) * mean, prototypes
        )
        counts = counts + members
    return prototypes, counts


def compete(
    points: Float[Tensor, "M D"], initial: Float[Tensor, "K D"], decay: float = 0.95
) -> tuple[Float[Tensor, "Kept D"], Int[Tensor, "M"]]:
    """Return the centers that won a point in the last of 20 sweeps, and each point's winner.

    Rival-penalized competitive learning: point after point, the center of largest dot product moves
    toward the point and the runner-up away from it. As in the script, the runner-up is the largest
    after the winner's product is set to 0, so where all others are negative the winner is its own
    rival.

    Args:
        points: Prototypes of the layer below.
        initial: Centers before the first sweep.
        decay: Weight of the old center; the rival's is ``2 - decay``.
    """
    centers = initial.clone()
    winners = [0] * points.shape[0]
    for _ in range(_SWEEPS):
        for k, point in enumerate(points):
            score = centers @ point
            winner = int(score.argmax())
            score[winner] = 0.0
            rival = int(score.argmax())
            centers[winner] = decay * centers[winner] + (1 - decay) * point
            centers[rival] = (2 - decay) * centers[rival] - (1 - decay) * point
            winners[k] = winner
    kept, parent = torch.tensor(winners, device=points.device).unique(return_inverse=True)
    return centers[kept], parent


@torch.no_grad()
def fit_competitive(
    embeddings: Float[Tensor, "M D"],
    *,
    depth: int,
    centers: int,
    generator: torch.Generator,
    batch_size: int = 512,
    passes: int = 5,
    decay: float = 0.95,
    min_members: int = 2,
) -> PrototypeForest:
    """Return prototypes initialized as in the authors' script, from centers uniform in [0, 1).

    Args:
        embeddings: Graph embeddings of the collection.
        depth: Number of layers.
        centers: Centers drawn for each layer.
        generator: Draws the centers and the order of the embeddings in each pass.
        batch_size: Embeddings averaged at a time.
        passes: Passes over the collection for the bottom layer.
        decay: Weight of the old center in every move.
        min_members: Bottom centers with fewer members, in all passes together, are dropped.

    Raises:
        ConfigError: If no bottom center has that many members.
    """
    size = (centers, embeddings.shape[1])
    start = [
        torch.rand(size, generator=generator, device=generator.device).to(embeddings)
        for _ in range(depth)
    ]
    prototypes, counts = start[0], torch.zeros(centers, dtype=torch.long, device=embeddings.device)
    for _ in range(passes):
        order = torch.randperm(
            embeddings.shape[0], generator=generator, device=generator.device
        ).to(embeddings.device)
        prototypes, counts = moving_average_pass(
            embeddings[order].split(batch_size), prototypes, counts, decay
        )
    prototypes = prototypes[counts >= min_members]
    if prototypes.shape[0] == 0:
        raise ConfigError(
            f"no prototype won {min_members} of {embeddings.shape[0]} graphs;"
            " use a larger collection or `global_weight=0`."
        )
    layers, parents = [prototypes], list[Tensor]()
    for level in range(1, depth):
        above, parent = compete(layers[0], start[level], decay)
        layers.insert(0, above)
        parents.insert(0, parent)
    return PrototypeForest(layers, parents)
