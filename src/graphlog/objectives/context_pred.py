"""ContextPred: a neighborhood recognizes what surrounds it (Hu et al., 2020)."""

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
    comparison,
    published,
    row_products,
    tell_apart,
)
from graphlog.ops.sparse import segment_mean
from graphlog.views.sampling import ContextViews, context_views, random_nodes


class ContextPredConfig(FrozenConfig):
    """Switches of ContextPred; the defaults are those of the source's chemistry."""

    hops: int = Field(5, ge=0)
    """Reach of the substructure around its root; 0: the whole graph (biology)."""
    inner: int = Field(4, ge=0)
    """The context begins beyond this many steps from the root."""
    outer: int = Field(7, ge=0)
    """The context ends after this many steps; 0: nowhere (biology)."""
    context_layers: int = Field(3, ge=1)
    """Layers of the context's own encoder."""
    substructure_at: Literal["root", "center"] = "root"
    """Node whose embedding stands for the substructure: the root, or the center of a whole
    ego-network (node 0; biology)."""
    mode: Literal["cbow", "skipgram"] = "cbow"
    """Score the substructure with the mean of the anchors, or with every anchor by itself."""
    negatives: int = Field(1, ge=1)
    """Wrong contexts a substructure: those of the next graphs of the batch."""

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
    """Binary cross-entropy on inner products of root and context, which has its own encoder."""

    Config: ClassVar[type[FrozenConfig]] = ContextPredConfig
    RECIPES: ClassVar[Recipes] = {
        "default": comparison(),
        "paper": published(),
        "biology": published("protein", hops=0, inner=1, outer=0, substructure_at="center"),
    }

    def __init__(self, config: ContextPredConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config = config
        shape = {"layers": config.context_layers, "dim": encoder.dim}
        alike = encoder.config.updated({**shape, "jk": "last", "readout": "mean"})
        self.context = GraphEncoder(alike, encoder.schema)

    def views(self, batch: GraphBatch, generator: Generator) -> ContextViews:
        """Return substructure and context of a random root per graph, but of graphs too small."""
        c = self.config
        return context_views(batch, random_nodes(batch.ptr, generator), c.hops, c.inner, c.outer)

    def loss(self, views: ContextViews, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the mean loss over right pairs plus ``negatives`` times that over wrong pairs."""
        c = self.config
        root = views.root if c.substructure_at == "root" else views.substructure.ptr[:-1]
        roots = encoder(views.substructure).node_emb[root]
        anchors = self.context(views.context).node_emb[views.anchors]
        graph = views.context.batch[views.anchors]
        num = roots.shape[0]
        # a whole turn would come back to the right one
        shifts = range(1, min(c.negatives, num - 1) + 1)
        if c.mode == "cbow":
            ends = torch.bincount(graph, minlength=num).cumsum(0)
            pooled = segment_mean(anchors, F.pad(ends, (1, 0)))
            wrong = [row_products(roots, pooled.roll(-shift, dims=0)) for shift in shifts]
            right = row_products(roots, pooled)
        else:
            wrong = [row_products(roots.roll(-shift, dims=0)[graph], anchors) for shift in shifts]
            right = row_products(roots[graph], anchors)
        return tell_apart(
            right, torch.cat(wrong) if wrong else right[:0], negative_weight=float(c.negatives)
        )
