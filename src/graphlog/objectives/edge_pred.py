"""EdgePred: predict which nodes are adjacent (Hamilton et al., 2017; Hu et al., 2020)."""

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
    comparison_recipe,
    pair_cross_entropy,
    published_recipe,
    row_products,
)
from graphlog.views.sampling import edge_pairs, non_edges

EdgePredViews: TypeAlias = tuple[GraphBatch, Int[Tensor, "2 U"], Int[Tensor, "2 M"]]
"""A batch, its undirected edges, and as many non-adjacent pairs per graph (or all of them)."""


class EdgePred(Objective[EdgePredViews]):
    """Binary cross-entropy on the inner product of two node embeddings; it has no parameters."""

    RECIPES: ClassVar[Recipes] = {"default": comparison_recipe(), "paper": published_recipe()}

    def views(self, batch: GraphBatch, generator: Generator) -> EdgePredViews:
        """Return the edges and as many randomly drawn non-edges."""
        edges = edge_pairs(batch)
        counts = torch.bincount(batch.batch[edges[0]], minlength=batch.num_graphs)
        return batch, edges, non_edges(batch, counts, generator)

    def loss(self, views: EdgePredViews, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the mean loss over edges plus the mean loss over non-edges."""
        batch, edges, others = views
        node_emb = encoder(batch).node_emb
        positive = row_products(node_emb[edges[0]], node_emb[edges[1]])
        negative = row_products(node_emb[others[0]], node_emb[others[1]])
        return pair_cross_entropy(positive, negative)
