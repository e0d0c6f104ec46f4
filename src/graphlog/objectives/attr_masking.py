"""AttrMasking: predict masked attributes (Hu et al., 2020)."""

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
    comparison_recipe,
    published_recipe,
)
from graphlog.views.augment import MaskedView, mask_attributes


class AttrMaskingConfig(FrozenConfig):
    """Settings of AttrMasking."""

    mask_rate: float = Field(0.15, ge=0, lt=1)
    """Share of the nodes of a graph (or of its undirected edges, depending on the schema) whose
    attributes are masked; at least one is masked."""
    masked_columns: MaskedColumns = "all"
    """Columns that get their mask code. With ``first``, as in the authors' script, the others get 0
    (an unspecified chirality)."""


class AttrMasking(Objective[MaskedView]):
    """Prediction of the first masked attribute by a linear map of the embeddings.

    The attribute is the atom type for molecules, and the first evidence of an edge for proteins.
    """

    Config: ClassVar[type[FrozenConfig]] = AttrMaskingConfig
    masks = True
    RECIPES: ClassVar[Recipes] = {
        "default": comparison_recipe(),
        "paper": published_recipe(masked_columns="first"),
        "biology": published_recipe("protein"),
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
        """Return the mean loss over masked nodes or edges."""
        loss = self.head.loss(encoder(views.batch).node_emb, views)
        return LossTerms(loss, {"attribute": loss})
