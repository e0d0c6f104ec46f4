"""An objective: predict the degree of every node."""

import torch
from torch import nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import LossTerms, Objective


class DegreePredConfig(FrozenConfig):
    """Settings of DegreePred, given as ``--set objective.weight=2``."""

    weight: float = 1.0
    """Weight of the loss."""


class DegreePred(Objective[GraphBatch]):
    """Predict the logarithm of one plus the degree of a node from its embedding."""

    Config = DegreePredConfig

    def __init__(self, config: DegreePredConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config, self.head = config, nn.Linear(encoder.dim, 1)

    def views(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        """Return the batch unchanged; an objective that masks or samples does it here."""
        return batch

    def loss(
        self, views: GraphBatch, encoder: GraphEncoder, generator: torch.Generator
    ) -> LossTerms:
        """Return the mean squared error over the nodes of a batch."""
        predicted = self.head(encoder(views).node_emb)[:, 0].float()
        error = F.mse_loss(predicted, views.adjacency.in_degree.float().log1p())
        return LossTerms(self.config.weight * error, {"degree": error})
