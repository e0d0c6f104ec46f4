"""Infomax: a node recognizes the summary of its own graph (Velickovic 2019; Hu 2020)."""

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
    comparison,
    published,
    row_products,
    tell_apart,
)


class Infomax(Objective[GraphBatch]):
    r"""Binary cross-entropy on :math:`h_v^\top W \sigma(h_{\mathcal G})` of own and next graph."""

    RECIPES: ClassVar[Recipes] = {"default": comparison(), "paper": published()}

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
        return tell_apart(positive, negative if views.num_graphs > 1 else negative[:0])
