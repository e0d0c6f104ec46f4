"""DescriptorPred: regression of descriptors (Li et al., 2022; Burns et al., 2025)."""

from typing import ClassVar

import torch
from pydantic import Field

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.encoders.encoder import EmbeddingLayer, GraphEncoder
from graphlog.objectives.base import (
    COMPONENTS,
    LossTerms,
    Objective,
    Recipes,
    RegressionHead,
    chemistry,
    comparison,
    descriptor_losses,
    target_count,
)


class DescriptorPredConfig(FrozenConfig):
    """Switches of DescriptorPred."""

    layer: EmbeddingLayer = "jk"
    """Predict from all layers' means, or from the graph embedding of the last layer."""
    hidden: int = Field(512, ge=1)
    """Width of the layer between the embedding and the descriptors."""
    robust: bool = True
    """Huber's error in place of the squared one."""
    substructure_weight: float = Field(0.0, ge=0)
    """Weight of predicting the components of the counts of substructures; 0 leaves it out."""
    target_columns: int | None = Field(None, ge=1)
    """Columns of the vectors to predict in place of the descriptors; ``targets_from`` sets it."""


class DescriptorPred(Objective[GraphBatch]):
    """A net on the graph embedding predicts every standardized descriptor of the domain."""

    Config: ClassVar[type[FrozenConfig]] = DescriptorPredConfig
    RECIPES: ClassVar[Recipes] = {"default": chemistry(), "comparison": comparison(robust=False)}

    def __init__(self, config: DescriptorPredConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config = config
        self.needs_targets = True
        self.needs_substructures = config.substructure_weight > 0
        # the last layer's embeddings are also watched as a batch
        self.is_separable = config.layer == "jk"
        width = encoder.embedding_width(config.layer)
        targets = target_count(encoder.schema, config.target_columns)
        self.head = RegressionHead(width, config.hidden, targets)
        self.substructures = (
            RegressionHead(width, config.hidden, COMPONENTS) if self.needs_substructures else None
        )

    def loss(
        self, views: GraphBatch, encoder: GraphEncoder, generator: torch.Generator
    ) -> LossTerms:
        """Return the mean error over molecules and descriptors, and that over components."""
        c = self.config
        graph_emb = encoder.embed_graphs(views, c.layer)
        terms = descriptor_losses(self.head, self.substructures, graph_emb, views.y, c.robust)
        total = terms["descriptor"]
        if "substructure" in terms:
            total = total + c.substructure_weight * terms["substructure"]
        return LossTerms(total, terms)
