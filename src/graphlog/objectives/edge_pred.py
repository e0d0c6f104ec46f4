"""EdgePred: adjacent nodes have similar embeddings (Hamilton et al., 2017; Hu et al., 2020)."""

from typing import ClassVar, TypeAlias

import torch
from jaxtyping import Int
from torch import Generator, Tensor

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
from graphlog.views.sampling import edge_pairs, non_edges

EdgePredViews: TypeAlias = tuple[GraphBatch, Int[Tensor, "2 U"], Int[Tensor, "2 M"]]
"""A batch, every undirected edge once, and in every graph as many pairs without one, or all."""


class EdgePred(Objective[EdgePredViews]):
    """Binary cross-entropy on the inner product of two node embeddings; no parameters."""

    RECIPES: ClassVar[Recipes] = {"default": comparison(), "paper": published()}

    def views(self, batch: GraphBatch, generator: Generator) -> EdgePredViews:
        """Return the edges and as many drawn non-edges."""
        edges = edge_pairs(batch)
        counts = torch.bincount(batch.batch[edges[0]], minlength=batch.num_graphs)
        return batch, edges, non_edges(batch, counts, generator)[0]

    def loss(self, views: EdgePredViews, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the mean loss over edges plus the mean loss over non-edges."""
        batch, edges, others = views
        ends = encoder(batch).node_emb
        positive = row_products(ends[edges[0]], ends[edges[1]])
        return tell_apart(positive, row_products(ends[others[0]], ends[others[1]]))
