"""InfoGraph: maximize the mutual information of nodes and graphs (Sun et al., 2020)."""

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import (
    LossTerms,
    Objective,
    Recipes,
    comparison_recipe,
    published_recipe,
)
from graphlog.ops.contrastive import full_precision, mean_or_zero
from graphlog.ops.dense import linear
from graphlog.ops.sparse import segment_sum


class InfoGraphConfig(FrozenConfig):
    """Settings of InfoGraph."""

    head_width: Literal["layer", "all-layers"] = "layer"
    """Width of the two networks: that of one layer of the encoder, or that of all layers together
    (authors' script; five times as wide with five layers)."""


class ResidualNet(nn.Module):
    """The sum of a linear map and of three linear layers that are each followed by a ReLU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        layers = [nn.Linear(inputs, hidden) for inputs in (width, hidden, hidden)]
        self.block = nn.Sequential(*(m for layer in layers for m in (layer, nn.ReLU())))
        self.shortcut = nn.Linear(width, hidden)

    def forward(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R H"]:
        """Return the outputs of width ``H``."""
        hidden = x
        for layer in self.block:
            hidden = linear(hidden, layer) if isinstance(layer, nn.Linear) else layer(hidden)
        return hidden + linear(x, self.shortcut)


def jensen_shannon(scores: Float[Tensor, "V N"], graph: Int[Tensor, "V"]) -> LossTerms:
    r"""Return minus the Jensen-Shannon estimate of the mutual information of nodes and graphs.

    With :math:`\mathrm{sp}(s) = \log(1 + e^s)`, it is the mean of :math:`\mathrm{sp}(s) - \log 2`
    over all pairs of a node and another graph (negatives), minus the mean of
    :math:`\log 2 - \mathrm{sp}(-s)` over nodes with their own graph (positives).
    """
    scores = full_precision(scores)
    own = scores.gather(1, graph[:, None]).squeeze(1)
    num_negatives = own.shape[0] * (scores.shape[1] - 1)
    positive = math.log(2) - mean_or_zero(F.softplus(-own))
    total = F.softplus(scores).sum() - F.softplus(own).sum()
    negative = total / num_negatives - math.log(2) if num_negatives else total * 0.0
    with torch.no_grad():
        others = (scores.sum() - own.sum()) / max(num_negatives, 1)
        watch = {"score_pos": own.mean(), "score_neg": others}
    return LossTerms(negative - positive, {"positive": -positive, "negative": negative}, watch)


class InfoGraph(Objective[GraphBatch]):
    """Scores of every node with every graph of the batch, from the outputs of all layers.

    A graph is represented by the sum over its nodes.
    """

    Config: ClassVar[type[FrozenConfig]] = InfoGraphConfig
    RECIPES: ClassVar[Recipes] = {
        "default": comparison_recipe(),
        "paper": published_recipe(head_width="all-layers"),
    }

    def __init__(self, config: InfoGraphConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        layer = encoder.config.dim
        width = layer * len(encoder.layers)
        hidden = width if config.head_width == "all-layers" else layer
        self.local, self.whole = ResidualNet(width, hidden), ResidualNet(width, hidden)

    def loss(self, views: GraphBatch, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the loss over all pairs of a node and a graph of the batch."""
        node_emb = torch.cat(encoder.encode_layers(views)[1][1:], dim=1)
        graph_emb = segment_sum(node_emb, views.ptr)
        return jensen_shannon(self.local(node_emb) @ self.whole(graph_emb).T, views.batch)
