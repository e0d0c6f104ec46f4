"""GraphPartition: predict which nodes METIS puts together (You et al., 2020)."""

import math
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import LossTerms, Objective, Recipes, comparison, published
from graphlog.ops.contrastive import full_precision, mean_or_zero
from graphlog.ops.products import linear
from graphlog.ops.ragged import filled, pad_values, plan_padding
from graphlog.ops.segment import segment_mean
from graphlog.views.partition import Partitioner


class GraphPartitionConfig(FrozenConfig):
    """Switches of GraphPartition."""

    parts: int = Field(4, ge=2, le=255)
    """Parts of each graph; a graph of fewer nodes has as many parts as nodes."""
    target: Literal["same-part", "labels"] = "same-part"
    """Tell for every two nodes of a graph whether they share a part, or name each node's part
    (source, on one big graph)."""


class GraphPartitionViews(NamedTuple):
    """A batch and the part of each node."""

    batch: GraphBatch
    parts: Int[Tensor, "V"]


def same_part_loss(
    node_emb: Float[Tensor, "V D"],
    parts: Int[Tensor, "V"],
    ptr: Int[Tensor, "P"],
    bias: Float[Tensor, ""],
) -> LossTerms:
    r"""Return the mean binary cross-entropy of "same part" over node pairs of one graph.

    The score of a pair is :math:`(h_u - \bar h)^\top (h_v - \bar h) / \sqrt D + b` with the mean
    :math:`\bar h` over the nodes of the graph. What the parts are called does not matter.

    Args:
        node_emb: Node embeddings.
        parts: Part of each node.
        ptr: Node range of each graph.
        bias: The summand :math:`b`.
    """
    sizes = ptr.diff()
    centered = node_emb - torch.repeat_interleave(
        segment_mean(node_emb, ptr), sizes, dim=0, output_size=node_emb.shape[0]
    )
    padding = plan_padding(ptr)
    rows_of = zip(padding.buckets, padding.rows_of_buckets(), strict=True)
    losses: list[Tensor] = []
    hits: list[Tensor] = []
    for (bucket, rows), part, full in zip(
        rows_of, pad_values(parts, padding), filled(padding), strict=True
    ):
        nodes = centered.index_select(0, rows).view(*bucket, node_emb.shape[1])
        pairs = (
            full[:, :, None]
            & full[:, None, :]
            & ~torch.eye(bucket.size, dtype=torch.bool, device=full.device)
        )
        scores = (nodes @ nodes.mT)[pairs] / node_emb.shape[1] ** 0.5 + bias
        same = (part[:, :, None] == part[:, None, :])[pairs]
        losses.append(F.binary_cross_entropy_with_logits(scores, same.to(scores), reduction="none"))
        hits.append((scores.detach() > 0) == same)
    loss = mean_or_zero(torch.cat(losses))
    return LossTerms(
        loss, {"same_part": loss}, {"accuracy": mean_or_zero(torch.cat(hits).to(loss))}
    )


class GraphPartition(Objective[GraphPartitionViews]):
    """A linear map of the node embeddings predicts the balanced parts that METIS cuts."""

    Config: ClassVar[type[FrozenConfig]] = GraphPartitionConfig
    RECIPES: ClassVar[Recipes] = {"default": comparison(), "released": published(target="labels")}

    def __init__(self, config: GraphPartitionConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config = config
        self.partitioner = Partitioner(config.parts)
        by_pair = config.target == "same-part"
        width = encoder.dim if by_pair else config.parts
        self.linear = nn.Linear(encoder.dim, width, bias=not by_pair)  # centering cancels a bias
        # nodes that cannot be told apart share a part as often as two drawn with replacement
        self.bias = nn.Parameter(torch.tensor(-math.log(config.parts - 1))) if by_pair else None

    def views(self, batch: GraphBatch, generator: torch.Generator) -> GraphPartitionViews:
        """Return the batch and the parts; nothing is drawn."""
        return GraphPartitionViews(batch, self.partitioner(batch))

    def loss(
        self, views: GraphPartitionViews, encoder: GraphEncoder, generator: torch.Generator
    ) -> LossTerms:
        """Return the loss over pairs of nodes, or the cross-entropy over nodes."""
        scores = full_precision(linear(encoder(views.batch).node_emb, self.linear))
        if self.bias is None:
            loss = F.cross_entropy(scores, views.parts)
            return LossTerms(
                loss,
                {"part": loss},
                {"accuracy": (scores.detach().argmax(dim=1) == views.parts).to(loss).mean()},
            )
        with torch.autocast(scores.device.type, enabled=False):
            return same_part_loss(scores, views.parts, views.batch.ptr, self.bias)
