"""Infomax: match nodes with the summary of their graph (Velickovic 2019; Hu 2020)."""

import math
from typing import ClassVar

import torch
from torch import Generator, nn

from graphlog.config import FrozenConfig
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import (
    LossTerms,
    Objective,
    Recipes,
    comparison_recipe,
    pair_cross_entropy,
    published_recipe,
    row_products,
)


class Infomax(Objective[GraphBatch]):
    r"""Binary cross-entropy on scores :math:`h_v^\top W \sigma(h_{\mathcal G})` of node and graph.

    The negative of a node is the next graph of the batch.
    """

    RECIPES: ClassVar[Recipes] = {"default": comparison_recipe(), "paper": published_recipe()}

    def __init__(self, config: FrozenConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        bound = 1 / math.sqrt(encoder.dim)
        self.weight = nn.Parameter(torch.empty(encoder.dim, encoder.dim).uniform_(-bound, bound))

    def loss(self, views: GraphBatch, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the mean loss of nodes with their own graph plus that with the next graph."""
        emb = encoder(views)
        summary = emb.graph_emb.sigmoid() @ self.weight
        positive = row_products(emb.node_emb, summary[views.batch])
        negative = row_products(emb.node_emb, summary.roll(-1, dims=0)[views.batch])
        return pair_cross_entropy(positive, negative if views.num_graphs > 1 else negative[:0])
