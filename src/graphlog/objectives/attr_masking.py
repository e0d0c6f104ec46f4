"""AttrMasking: predict the attributes that a view hides (Hu et al., 2020)."""

from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.data.graphs import MaskedColumns
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import ConfigError
from graphlog.objectives.base import (
    AttributeColumns,
    AttributeHead,
    LossTerms,
    Objective,
    Recipes,
    comparison,
    published,
)
from graphlog.views.augment import MaskedView, mask_attributes, mask_edges_around


class AttrMaskingConfig(FrozenConfig):
    """Switches of AttrMasking."""

    mask_rate: float = Field(0.15, ge=0, lt=1)
    """Share of a graph's nodes (or undirected edges, as the schema says) whose attributes are
    masked; at least one is."""
    masked_columns: MaskedColumns = "all"
    """``first``: only the first column gets its mask code, the others 0 (source: chirality
    "unspecified")."""
    predicted_columns: AttributeColumns = "first"
    """Predict the first masked column (source: the atom type; of an edge with several kinds of
    evidence, the first that it has) or all."""
    mask_bonds: bool = False
    """Where nodes are masked: mask the edges around them too, and predict their first column
    (source: optional, off)."""


class AttrMaskingViews(NamedTuple):
    """Graphs with masked attributes, and further edges that are masked."""

    masked: MaskedView
    bond_idx: Int[Tensor, "B"]
    """Masked edges around masked nodes; empty unless ``mask_bonds`` is on."""


class AttrMasking(Objective[AttrMaskingViews]):
    """A linear map from embeddings to masked attributes: atoms in chemistry, edges in biology."""

    Config: ClassVar[type[FrozenConfig]] = AttrMaskingConfig
    masks = True
    RECIPES: ClassVar[Recipes] = {
        "default": comparison(),
        "paper": published(masked_columns="first"),
        "paper-bonds": published(masked_columns="first", mask_bonds=True),
        "biology": published("protein"),
    }

    def __init__(self, config: AttrMaskingConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config, self.schema = config, encoder.schema
        self.head = AttributeHead(encoder.dim, self.schema, config.predicted_columns)
        self.bonds = None
        if config.mask_bonds:
            if self.schema.masked != "node":
                raise ConfigError(
                    f"`objective.mask_bonds` needs masked nodes; schema '{self.schema.name}' masks"
                    " edges."
                )
            as_edges = replace(self.schema, masked="edge")
            as_edges.mask_row()
            self.bonds = AttributeHead(encoder.dim, as_edges)

    def views(self, batch: GraphBatch, generator: torch.Generator) -> AttrMaskingViews:
        """Return the batch and its masked counterpart."""
        masked = mask_attributes(
            batch, self.schema, self.config.mask_rate, generator, self.config.masked_columns
        )
        if self.bonds is None:
            return AttrMaskingViews(masked, masked.edge_idx[:0])
        hidden, bond_idx = mask_edges_around(masked.batch, self.schema, masked.node_idx)
        return AttrMaskingViews(masked._replace(batch=hidden), bond_idx)

    def loss(
        self, views: AttrMaskingViews, encoder: GraphEncoder, generator: torch.Generator
    ) -> LossTerms:
        """Return the mean loss over masked items, and that over masked bonds if these are on."""
        node_emb = encoder(views.masked.batch).node_emb
        terms = {"attribute": self.head.loss(node_emb, views.masked)}
        if self.bonds is not None:
            bonds = views.masked._replace(edge_idx=views.bond_idx)
            terms["bond"] = self.bonds.loss(node_emb, bonds)
        return LossTerms(torch.stack(list(terms.values())).sum(), terms)
