"""An objective of one's own, as a user would write it: predict how many neighbors a node has."""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import LossTerms, Objective


class DegreePredConfig(FrozenConfig):
    """Switches of DegreePred."""

    most: int = Field(4, ge=1)
    """Larger degrees count as this one."""


class DegreePred(Objective[GraphBatch]):
    """Cross-entropy of a linear map of node embeddings."""

    Config: ClassVar[type[FrozenConfig]] = DegreePredConfig

    def __init__(self, config: Any, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.head = nn.Linear(encoder.dim, config.most + 1)
        self.most = config.most

    def loss(
        self, views: GraphBatch, encoder: GraphEncoder, generator: torch.Generator
    ) -> LossTerms:
        """Return the mean over nodes."""
        degree = views.adjacency.in_degree.clamp(max=self.most)
        loss = F.cross_entropy(self.head(encoder(views).node_emb).float(), degree)
        return LossTerms(loss, {"degree": loss})
