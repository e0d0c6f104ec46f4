"""GraphCL: contrast two perturbed copies of each graph (You et al., 2020)."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Generator

from graphlog.config import FrozenConfig
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import (
    LossTerms,
    Objective,
    ProjectionHead,
    Recipes,
    Temperature,
    comparison_recipe,
    published_recipe,
)
from graphlog.ops.contrastive import cosine_similarity, full_precision, log_softmax_share
from graphlog.views.augment import Augmentation, AugmentConfig, augment


class GraphCLConfig(AugmentConfig):
    """Settings of GraphCL and of its perturbations."""

    first: tuple[Augmentation, ...] = Field(("drop-nodes", "subgraph"), min_length=1)
    """Perturbations of the first copy; one of them is drawn for each graph."""
    second: tuple[Augmentation, ...] = Field(("drop-nodes", "subgraph"), min_length=1)
    """Perturbations of the second copy; one of them is drawn for each graph."""
    temperature: Temperature = 0.1
    """Temperature that divides the cosines."""


class GraphCL(Objective[tuple[GraphBatch, GraphBatch]]):
    """InfoNCE of the projected first copy of each graph with the second copies of the batch.

    The denominator of the softmax omits the positive pair, as in the authors' script.
    """

    Config: ClassVar[type[FrozenConfig]] = GraphCLConfig
    RECIPES: ClassVar[Recipes] = {
        "default": comparison_recipe(),
        "paper": published_recipe(),
        "released": published_recipe(subgraph_growth="first-neighbors", restore_edgeless=True),
        "biology": published_recipe(
            "protein",
            first=("drop-nodes", "subgraph", "drop-edges"),
            second=("drop-nodes", "subgraph", "drop-edges"),
        ),
    }

    def __init__(self, config: GraphCLConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config, self.schema = config, encoder.schema
        if "mask-attributes" in (*config.first, *config.second):
            self.schema.mask_row()
        self.head = ProjectionHead(encoder.dim)

    def views(self, batch: GraphBatch, generator: Generator) -> tuple[GraphBatch, GraphBatch]:
        """Return two independently perturbed copies of the batch."""
        c = self.config
        first = augment(batch, self.schema, c.first, c, generator)
        return first, augment(batch, self.schema, c.second, c, generator)

    def loss(
        self, views: tuple[GraphBatch, GraphBatch], encoder: GraphEncoder, generator: Generator
    ) -> LossTerms:
        """Return the mean loss over graphs; it is 0 for a single graph, which has no negative."""
        first, second = (full_precision(self.head(encoder(view).graph_emb)) for view in views)
        with torch.autocast(first.device.type, enabled=False):
            similarity = cosine_similarity(first, second)
            num, positive = similarity.shape[0], similarity.diagonal()
            if num < 2:
                loss = 0.0 * similarity.sum()
                return LossTerms(loss, {"contrast": loss})
            is_negative = ~torch.eye(num, dtype=torch.bool, device=similarity.device)
            loss = -log_softmax_share(similarity / self.config.temperature, is_negative).mean()
            with torch.no_grad():
                negative = (similarity.sum() - positive.sum()) / (num * (num - 1))
        watch = {"cos_graph_pos": positive.detach().mean(), "cos_graph_neg": negative}
        return LossTerms(loss, {"contrast": loss}, watch)
