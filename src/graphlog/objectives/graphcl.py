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
    comparison,
    published,
)
from graphlog.ops.contrastive import cosine_similarity, full_precision, log_softmax_share
from graphlog.views.augment import Augmentation, AugmentConfig, augment


class GraphCLConfig(AugmentConfig):
    """Switches of GraphCL, and of its perturbations."""

    first: tuple[Augmentation, ...] = Field(("drop-nodes", "subgraph"), min_length=1)
    """Perturbations of the first copy; for every graph one of them is drawn."""
    second: tuple[Augmentation, ...] = Field(("drop-nodes", "subgraph"), min_length=1)
    """Perturbations of the second copy."""
    temperature: Temperature = 0.1
    """Divides the cosines."""


class GraphCL(Objective[tuple[GraphBatch, GraphBatch]]):
    """Contrast of projected graph embeddings across the batch, from first to second copies.

    The softmax counts the wrong copies only, as the authors' script does.
    """

    Config: ClassVar[type[FrozenConfig]] = GraphCLConfig
    RECIPES: ClassVar[Recipes] = {
        "default": comparison(),
        "paper": published(),
        "released": published(subgraph_growth="first-neighbors", restore_edgeless=True),
        "biology": published(
            "protein",
            first=("drop-nodes", "subgraph", "perturb-edges"),
            second=("drop-nodes", "subgraph", "perturb-edges"),
            edge_perturbation="drop",
        ),
    }

    def __init__(self, config: GraphCLConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config, self.schema = config, encoder.schema
        if "mask-attributes" in (*config.first, *config.second):
            self.schema.mask_row()
        self.head = ProjectionHead(encoder.dim)

    def views(self, batch: GraphBatch, generator: Generator) -> tuple[GraphBatch, GraphBatch]:
        """Return two copies, perturbed independently."""
        c = self.config
        first = augment(batch, self.schema, c.first, c, generator)
        return first, augment(batch, self.schema, c.second, c, generator)

    def loss(
        self, views: tuple[GraphBatch, GraphBatch], encoder: GraphEncoder, generator: Generator
    ) -> LossTerms:
        """Return the mean loss over graphs; a lone graph has nothing to be told from and adds 0."""
        first, second = (full_precision(self.head(encoder(view).graph_emb)) for view in views)
        with torch.autocast(first.device.type, enabled=False):
            similarity = cosine_similarity(first, second)
            num, own = similarity.shape[0], similarity.diagonal()
            if num < 2:
                loss = 0.0 * similarity.sum()
                return LossTerms(loss, {"contrast": loss})
            wrong = ~torch.eye(num, dtype=torch.bool, device=similarity.device)
            loss = -log_softmax_share(similarity / self.config.temperature, wrong).mean()
            with torch.no_grad():
                others = (similarity.sum() - own.sum()) / (num * (num - 1))
        seen = {"cos_graph_pos": own.detach().mean(), "cos_graph_neg": others}
        return LossTerms(loss, {"contrast": loss}, seen)
