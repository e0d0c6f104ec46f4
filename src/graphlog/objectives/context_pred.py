"""ContextPred: match each neighborhood with the context around it (Hu et al., 2020)."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Generator
from torch.nn import functional as F

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
from graphlog.ops.sparse import segment_mean
from graphlog.views.sampling import ContextViews, context_views, random_nodes


class ContextPredConfig(FrozenConfig):
    """Settings of ContextPred; the defaults are those of the authors for molecules."""

    hops: int = Field(5, ge=0)
    """Radius of the substructure around its root, in edges; 0 takes the whole graph (proteins)."""
    inner: int = Field(4, ge=0)
    """Distance from the root, in edges, beyond which the context begins."""
    outer: int = Field(7, ge=0)
    """Distance from the root at which the context ends; 0 sets no end (proteins)."""
    context_layers: int = Field(3, ge=1)
    """Layers of the encoder of contexts."""
    substructure_at: Literal["root", "center"] = "root"
    """Node whose embedding represents the substructure: the root, or the center (node 0) of a whole
    ego-network (proteins)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.outer and self.outer <= self.inner:
            raise ValueError("`outer` must be above `inner`, or 0 for no end")
        if self.hops and self.hops <= self.inner:
            raise ValueError(
                "`hops` must be above `inner`, so that substructure and context overlap,"
                " or 0 for whole graphs"
            )
        if self.hops and self.substructure_at == "center":
            raise ValueError(
                "`substructure_at='center'` needs `hops=0`: a part of a graph may lack its center"
            )
        return self


class ContextPred(Objective[ContextViews]):
    """Binary cross-entropy on inner products of substructures and contexts; each has an encoder.

    A context is the mean of its anchors. The negative of a substructure is the next context.
    """

    Config: ClassVar[type[FrozenConfig]] = ContextPredConfig
    RECIPES: ClassVar[Recipes] = {
        "default": comparison_recipe(),
        "paper": published_recipe(),
        "biology": published_recipe("protein", hops=0, inner=1, outer=0, substructure_at="center"),
    }

    def __init__(self, config: ContextPredConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config = config
        shape = {"layers": config.context_layers, "dim": encoder.dim}
        settings = encoder.config.updated({**shape, "jk": "last", "readout": "mean"})
        self.context = GraphEncoder(settings, encoder.schema)

    def views(self, batch: GraphBatch, generator: Generator) -> ContextViews:
        """Return the substructure and the context of a random root in each graph that has both."""
        c = self.config
        return context_views(batch, random_nodes(batch.ptr, generator), c.hops, c.inner, c.outer)

    def loss(self, views: ContextViews, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the mean loss of positive pairs plus that of negative pairs."""
        is_root = self.config.substructure_at == "root"
        root = views.root if is_root else views.substructure.ptr[:-1]
        roots = encoder(views.substructure).node_emb[root]
        anchors = self.context(views.context).node_emb[views.anchors]
        graph = views.context.batch[views.anchors]
        num = roots.shape[0]
        ends = torch.bincount(graph, minlength=num).cumsum(0)
        contexts = segment_mean(anchors, F.pad(ends, (1, 0)))
        positive = row_products(roots, contexts)
        negative = row_products(roots, contexts.roll(-1, dims=0))
        return pair_cross_entropy(positive, negative if num > 1 else negative[:0])
