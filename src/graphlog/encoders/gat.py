"""Graph attention network with edge attributes (Veličković et al. 2018)."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.attributes import AttributeTable
from graphlog.encoders.base import EncoderConfig, LayerConfig, MessagePassing, Neighborhood
from graphlog.ops.neighbors import end_sum, neighbor_sum, weighted_rows
from graphlog.ops.products import add_product, linear
from graphlog.ops.segment import segment_softmax

SLOPE = 0.2
"""Slope of the leaky ReLU on negative scores."""


class AttentionConfig(LayerConfig):
    """Settings of the attention backbones."""

    heads: int = Field(default=2, ge=1, le=1024)
    """Attention heads, averaged."""


class GAT(MessagePassing):
    r"""The mean over heads of :math:`\sum_u \alpha_{uv} (W h_u + b + e_{uv})`, and a bias.

    Implements Eq. 1, with :math:`\alpha_{uv}` the softmax over the neighbors of v, itself
    included, of :math:`\mathrm{LeakyReLU}(a_l \cdot W h_v + a_r \cdot (W h_u + e_{uv}))`.
    """

    Config: ClassVar[type[LayerConfig]] = AttentionConfig

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.heads, dim = config.layer_as(AttentionConfig).heads, config.dim
        self.linear = nn.Linear(dim, self.heads * dim)
        self.edge = AttributeTable(schema.edge, self.heads * dim)
        bound = math.sqrt(6 / (self.heads + 2 * dim))
        self.attention = nn.Parameter(torch.empty(self.heads, 2 * dim).uniform_(-bound, bound))
        """For each head, the vectors a_l (receiver) and a_r (sender)."""
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, h: Float[Tensor, "V D"], neighborhood: Neighborhood) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""
        alpha = self._attend(h, neighborhood) / self.heads
        attended = weighted_rows(
            alpha, neighborhood.indicators, neighborhood.adjacency.offsets
        ).flatten(1)  # (V, heads * K)
        tables = self.edge.weight.unflatten(1, (self.heads, -1)).transpose(0, 1).flatten(0, 1)
        total = neighbor_sum(linear(h, self.linear), neighborhood.adjacency, alpha)
        return add_product(total, attended, tables).add_(self.bias.to(total.dtype))

    def _attend(self, h: Float[Tensor, "V D"], neighborhood: Neighborhood) -> Float[Tensor, "E H"]:
        """Return the attention of each edge, from narrow products without (V, heads, D) copies."""
        receiver, sender = self.attention.unflatten(1, (2, -1)).unbind(1)  # (heads, D) each
        both = torch.stack([receiver, sender])
        folded = torch.einsum(
            "shd,hdi->shi", both, self.linear.weight.unflatten(0, (self.heads, -1))
        ).flatten(0, 1)
        bias = torch.einsum(
            "shd,hd->sh", both, self.linear.bias.unflatten(0, (self.heads, -1))
        ).flatten()
        of_edge = torch.einsum(
            "khd,hd->kh", self.edge.weight.unflatten(1, (self.heads, -1)), sender
        )
        at_receiver, at_sender = (
            F.linear(h, folded, bias).to(neighborhood.dtype).split(self.heads, dim=1)
        )
        edges = neighborhood.adjacency
        score = end_sum(at_receiver, at_sender, edges) + neighborhood.indicators @ of_edge.to(
            neighborhood.dtype
        )
        return segment_softmax(F.leaky_relu(score.to(neighborhood.dtype), SLOPE), edges.offsets)
