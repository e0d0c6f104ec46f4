"""A backbone: a gate controls how much of the mean over neighbors a node receives."""

import torch
from torch import nn

from graphlog.data.graphs import FeatureSchema
from graphlog.encoders.encoder import (
    AttributeTable,
    EncoderConfig,
    LayerConfig,
    MessagePassing,
    Neighborhood,
)
from graphlog.ops.sparse import neighbor_sum


class GatedConfig(LayerConfig):
    """Settings of Gated, given as ``--set encoder.layer.gate_bias=1``."""

    gate_bias: float = 0.0
    """Initial bias of the gate: above 0, a node receives more of the mean over its neighbors."""


class Gated(MessagePassing):
    """A linear layer on each node, plus a gated linear layer on the mean over its neighbors."""

    Config = GatedConfig

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.own = nn.Linear(config.dim, config.dim)
        self.other = nn.Linear(config.dim, config.dim)
        self.gate = nn.Linear(config.dim, config.dim)
        nn.init.constant_(self.gate.bias, config.layer_as(GatedConfig).gate_bias)
        self.edge = AttributeTable(schema.edge, config.dim)

    def forward(self, h: torch.Tensor, neighborhood: Neighborhood) -> torch.Tensor:
        """Return the node embeddings after one round of messages."""
        edges = neighborhood.indicator_sums @ self.edge.weight
        mean = (neighbor_sum(h, neighborhood.adjacency) + edges) / neighborhood.count
        return self.own(h) + torch.sigmoid(self.gate(h)) * self.other(mean)
