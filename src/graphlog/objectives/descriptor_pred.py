"""DescriptorPred: predict descriptors of graphs (Li et al., 2022; Burns et al., 2025)."""

from typing import ClassVar

from pydantic import Field
from torch import Generator

from graphlog.config import FrozenConfig
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import (
    COMPONENTS,
    LossTerms,
    Objective,
    Recipes,
    RegressionHead,
    chemistry_recipe,
    descriptor_losses,
    target_count,
)


class DescriptorPredConfig(FrozenConfig):
    """Settings of DescriptorPred."""

    substructure_weight: float = Field(0.0, ge=0)
    """Weight of the prediction of principal components of substructure counts; 0 omits it."""
    target_columns: int | None = Field(None, ge=1)
    """Width of the vectors to predict instead of descriptors; set by ``targets_from``."""


class DescriptorPred(Objective[GraphBatch]):
    """Prediction of the standardized descriptors of the domain from the ``jk`` embedding."""

    Config: ClassVar[type[FrozenConfig]] = DescriptorPredConfig
    RECIPES: ClassVar[Recipes] = {"default": chemistry_recipe()}
    is_separable = True
    needs_targets = True

    def __init__(self, config: DescriptorPredConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config = config
        self.needs_substructures = config.substructure_weight > 0
        targets = config.target_columns or target_count(encoder.schema)
        self.head = RegressionHead(encoder, targets)
        self.substructures = (
            RegressionHead(encoder, COMPONENTS) if self.needs_substructures else None
        )

    def loss(self, views: GraphBatch, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the mean loss of the descriptors, plus the weighted loss of the components."""
        graph_emb = encoder.encode_and_embed(views)[1]
        terms = descriptor_losses(self.head, self.substructures, graph_emb, views.y)
        total = terms["descriptor"]
        if "substructure" in terms:
            total = total + self.config.substructure_weight * terms["substructure"]
        return LossTerms(total, terms)
