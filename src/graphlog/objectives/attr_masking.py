"""AttrMasking: predict the attributes that a view hides (Hu et al., 2020)."""

from typing import ClassVar

from pydantic import Field
from torch import Generator

from graphlog.config import FrozenConfig
from graphlog.data.graphs import MaskedColumns
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import (
    AttributeHead,
    LossTerms,
    Objective,
    Recipes,
    comparison,
    published,
)
from graphlog.views.augment import MaskedView, mask_attributes


class AttrMaskingConfig(FrozenConfig):
    """Switches of AttrMasking."""

    mask_rate: float = Field(0.15, ge=0, lt=1)
    """Share of a graph's nodes (or undirected edges, as the schema says) whose attributes are
    masked; at least one is."""
    masked_columns: MaskedColumns = "all"
    """``first``: only the first column gets its mask code, the others 0 (source: chirality
    "unspecified")."""


class AttrMasking(Objective[MaskedView]):
    """A linear map from embeddings to the first masked attribute.

    In chemistry that is the atom type, in biology the first evidence of an edge.
    """

    Config: ClassVar[type[FrozenConfig]] = AttrMaskingConfig
    masks = True
    RECIPES: ClassVar[Recipes] = {
        "default": comparison(),
        "paper": published(masked_columns="first"),
        "biology": published("protein"),
    }

    def __init__(self, config: AttrMaskingConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config, self.schema = config, encoder.schema
        self.head = AttributeHead(encoder.dim, self.schema)

    def views(self, batch: GraphBatch, generator: Generator) -> MaskedView:
        """Return the batch with masked attributes."""
        c = self.config
        return mask_attributes(batch, self.schema, c.mask_rate, generator, c.masked_columns)

    def loss(self, views: MaskedView, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the mean loss over masked items."""
        loss = self.head.loss(encoder(views.batch).node_emb, views)
        return LossTerms(loss, {"attribute": loss})
