"""InfoGraph: nodes of every layer and whole graphs share information (Sun et al., 2020)."""

import math
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import LossTerms, Objective, Recipes, comparison, published
from graphlog.ops.contrastive import full_precision, mean_or_zero
from graphlog.ops.dense import linear
from graphlog.ops.sparse import segment_sum


class InfoGraphConfig(FrozenConfig):
    """Switches of InfoGraph."""

    head_width: Literal["layer", "all-layers"] = "layer"
    """Width of the two nets: that of one layer, or of all layers side by side (source; five
    times as wide here)."""


class ResidualNet(nn.Module):
    """Three linear layers, each followed by a ReLU, beside a linear shortcut."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        widths = [width, hidden, hidden, hidden]
        self.block = nn.Sequential(
            *(m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU()))
        )
        self.shortcut = nn.Linear(width, hidden)

    def forward(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R H"]:
        """Return the sum of both ways."""
        hidden = x
        for layer in self.block:
            hidden = linear(hidden, layer) if isinstance(layer, nn.Linear) else layer(hidden)
        return hidden + linear(x, self.shortcut)


def jensen_shannon(scores: Float[Tensor, "V N"], graph: Int[Tensor, "V"]) -> LossTerms:
    r"""Return minus the Jensen-Shannon estimate of the information between nodes and graphs.

    With :math:`\mathrm{sp}(s) = \log(1 + e^s)`: the mean over all pairs of a node and a foreign
    graph of :math:`\mathrm{sp}(s) - \log 2`, minus the mean over nodes and their own graph of
    :math:`\log 2 - \mathrm{sp}(-s)`.
    """
    scores = full_precision(scores)
    own = scores.gather(1, graph[:, None]).squeeze(1)
    num_foreign = own.shape[0] * (scores.shape[1] - 1)
    positive = math.log(2) - mean_or_zero(F.softplus(-own))
    total = F.softplus(scores).sum() - F.softplus(own).sum()
    negative = total / num_foreign - math.log(2) if num_foreign else total * 0.0
    with torch.no_grad():
        watch = {
            "score_pos": own.mean(),
            "score_neg": (scores.sum() - own.sum()) / max(num_foreign, 1),
        }
    return LossTerms(negative - positive, {"positive": -positive, "negative": negative}, watch)


class InfoGraph(Objective[GraphBatch]):
    """Every node of the batch, at all layers, is scored with every graph, summed per layer."""

    Config: ClassVar[type[FrozenConfig]] = InfoGraphConfig
    RECIPES: ClassVar[Recipes] = {
        "default": comparison(),
        "paper": published(head_width="all-layers"),
    }

    def __init__(self, config: InfoGraphConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        layer = encoder.config.dim
        width = layer * len(encoder.layers)
        hidden = width if config.head_width == "all-layers" else layer
        self.local, self.whole = ResidualNet(width, hidden), ResidualNet(width, hidden)

    def loss(self, views: GraphBatch, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the loss over all pairs of a node and a graph."""
        node_emb = torch.cat(encoder.encode_layers(views)[1][1:], dim=1)
        graph_emb = segment_sum(node_emb, views.ptr)
        return jensen_shannon(self.local(node_emb) @ self.whole(graph_emb).T, views.batch)
