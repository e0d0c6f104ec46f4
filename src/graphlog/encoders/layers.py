"""Message-passing layers (Eq. 1) with edge attributes: the paper's and torch_geometric's."""

import math
from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.graphs import FeatureSchema
from graphlog.domains import DOMAINS
from graphlog.encoders.encoder import (
    AttributeTable,
    EncoderConfig,
    LayerConfig,
    MessagePassing,
    Neighborhood,
    NodeNorm,
)
from graphlog.ops.dense import add_product, linear, perceptron
from graphlog.ops.sparse import end_sum, neighbor_sum, segment_softmax, weighted_rows

_SLOPE = 0.2
"""Slope of the leaky ReLU of :class:`GAT` on negative scores."""


class GINConfig(LayerConfig):
    """Settings of GIN."""

    edge_mode: Literal["auto", "add", "concat"] = "auto"
    """``add`` the edge vector to the neighbor's vector (chemistry), or ``concat``: concatenate the
    two and use batch normalization in the MLP (biology); ``auto`` follows the domain."""

    def resolve_auto(self, domain: str) -> Self:
        """Return the settings with ``auto`` replaced by the variant for ``domain``."""
        if self.edge_mode != "auto":
            return self
        is_wide = domain in DOMAINS and DOMAINS[domain].wide_edges
        return self.updated({"edge_mode": "concat" if is_wide else "add"})


class GIN(MessagePassing):
    r"""An MLP on the sum over a node and its neighbors of :math:`h_u + e_{uv}`.

    Implements Eq. 1 (Xu et al. 2019; Hu et al. 2020). With ``edge_mode="concat"`` the two vectors
    are concatenated instead of added, and the MLP has batch normalization inside.
    """

    Config: ClassVar[type[LayerConfig]] = GINConfig
    shares_environments: ClassVar[bool] = True

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        concatenates = config.layer_as(GINConfig).edge_mode == "concat"
        self.edge = AttributeTable(schema.edge, config.dim)
        self.lift = nn.Linear(config.dim * (2 if concatenates else 1), 2 * config.dim)
        self.norm = NodeNorm(2 * config.dim) if concatenates else None
        self.lower = nn.Linear(2 * config.dim, config.dim)

    def forward(self, h: Float[Tensor, "S D"], neighborhood: Neighborhood) -> Float[Tensor, "R D"]:
        """Return the node embeddings after one round of messages."""
        total = neighbor_sum(h, neighborhood.adjacency)
        counts = neighborhood.indicator_sums
        if self.norm is None:
            return perceptron(add_product(total, counts, self.edge.weight), self.lift, self.lower)
        # the two vectors need not be concatenated: K indicator columns replace D of the edges
        node_weight, edge_weight = self.lift.weight.split(h.shape[1], dim=1)
        hidden = F.linear(total, node_weight, self.lift.bias)
        hidden = add_product(hidden, counts, self.edge.weight @ edge_weight.T)
        hidden = self.norm(hidden, neighborhood.counts)
        return linear(F.relu(hidden, inplace=True), self.lower)


class GCN(MessagePassing):
    r"""The sum over a node and its neighbors of :math:`(W h_u + b + e_{uv}) / \sqrt{d_u d_v}`.

    Implements Eq. 1 (Kipf and Welling 2017). Degrees count the self-loop.
    """

    shares_environments: ClassVar[bool] = True
    needs_degrees: ClassVar[bool] = True

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.linear = nn.Linear(config.dim, config.dim)
        self.edge = AttributeTable(schema.edge, config.dim)

    def forward(self, h: Float[Tensor, "S D"], neighborhood: Neighborhood) -> Float[Tensor, "R D"]:
        """Return the node embeddings after one round of messages."""
        total = neighbor_sum(linear(h, self.linear), neighborhood.adjacency, neighborhood.norm)
        return add_product(total, neighborhood.normalized_indicator_sums, self.edge.weight)


class GraphSAGE(MessagePassing):
    r"""The mean over a node and its neighbors of :math:`W h_u + b + e_{uv}`, at unit length.

    Implements Eq. 1 (Hamilton et al. 2017). The sum replaces the mean, which gives the same vector
    of unit length.
    """

    shares_environments: ClassVar[bool] = True

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.linear = nn.Linear(config.dim, config.dim)
        self.edge = AttributeTable(schema.edge, config.dim)

    def forward(self, h: Float[Tensor, "S D"], neighborhood: Neighborhood) -> Float[Tensor, "R D"]:
        """Return the node embeddings after one round of messages."""
        total = neighbor_sum(linear(h, self.linear), neighborhood.adjacency)
        return F.normalize(add_product(total, neighborhood.indicator_sums, self.edge.weight), dim=1)


class AttentionConfig(LayerConfig):
    """Settings of the attention backbones."""

    heads: int = Field(default=2, ge=1, le=1024)
    """Number of attention heads, which are averaged."""


class GAT(MessagePassing):
    r"""The mean over heads of :math:`\sum_u \alpha_{uv} (W h_u + b + e_{uv})`, plus a bias.

    Implements Eq. 1 (Veličković et al. 2018), with :math:`\alpha_{uv}` the softmax over the
    neighbors of v, itself included, of
    :math:`\mathrm{LeakyReLU}(a_l \cdot W h_v + a_r \cdot (W h_u + e_{uv}))`.
    """

    Config: ClassVar[type[LayerConfig]] = AttentionConfig
    shares_environments: ClassVar[bool] = True

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.heads, dim = config.layer_as(AttentionConfig).heads, config.dim
        self.linear = nn.Linear(dim, self.heads * dim)
        self.edge = AttributeTable(schema.edge, self.heads * dim)
        bound = math.sqrt(6 / (self.heads + 2 * dim))
        self.attention = nn.Parameter(torch.empty(self.heads, 2 * dim).uniform_(-bound, bound))
        """For each head, the concatenation of a_l (receiver) and a_r (sender)."""
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, h: Float[Tensor, "S D"], neighborhood: Neighborhood) -> Float[Tensor, "R D"]:
        """Return the node embeddings after one round of messages."""
        alpha = self._attend(h, neighborhood) / self.heads
        attended = weighted_rows(
            alpha, neighborhood.indicators, neighborhood.adjacency.offsets
        ).flatten(1)  # (V, heads * K)
        tables = self.edge.weight.unflatten(1, (self.heads, -1)).transpose(0, 1).flatten(0, 1)
        total = neighbor_sum(linear(h, self.linear), neighborhood.adjacency, alpha)
        return add_product(total, attended, tables).add_(self.bias.to(total.dtype))

    def _attend(self, h: Float[Tensor, "S D"], neighborhood: Neighborhood) -> Float[Tensor, "E H"]:
        """Return the attention of each edge, without a tensor of shape (V, heads, D)."""
        receiver, sender = self.attention.unflatten(1, (2, -1)).unbind(1)  # (heads, D) each
        both = torch.stack([receiver, sender])
        weight = self.linear.weight.unflatten(0, (self.heads, -1))
        bias = self.linear.bias.unflatten(0, (self.heads, -1))
        tables = self.edge.weight.unflatten(1, (self.heads, -1))
        node_weight = torch.einsum("shd,hdi->shi", both, weight).flatten(0, 1)
        node_bias = torch.einsum("shd,hd->sh", both, bias).flatten()
        edge_weight = torch.einsum("khd,hd->kh", tables, sender)
        dtype, edges = neighborhood.dtype, neighborhood.adjacency
        receivers, senders = F.linear(h, node_weight, node_bias).to(dtype).split(self.heads, dim=1)
        score = end_sum(neighborhood.own_rows(receivers), senders, edges)
        score = score + neighborhood.indicators @ edge_weight.to(dtype)
        return segment_softmax(F.leaky_relu(score.to(dtype), _SLOPE), edges.offsets)


class PyGLayer(MessagePassing):
    """A torch_geometric convolution, applied to the edges of the batch without self-loops.

    It is called as ``conv(h, edge_index, edge_attr)``, with learned edge vectors of width
    ``edge_dim``, must keep the number of columns of ``h`` and may add self-loops itself.
    """

    def __init__(self, conv: nn.Module, schema: FeatureSchema, edge_dim: int) -> None:
        super().__init__()
        self.conv = conv
        self.edge = AttributeTable(schema.edge, edge_dim)

    def forward(self, h: Float[Tensor, "V D"], neighborhood: Neighborhood) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""
        batch = neighborhood.batch
        return self.conv(h, batch.edge_index, self.edge(batch.edge_attr))


class GINE(PyGLayer):
    """GIN with edge attributes of torch_geometric: ReLU on each message, a learned epsilon."""

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        from torch_geometric.nn import GINEConv  # slow to import

        dim = config.dim
        mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        super().__init__(GINEConv(mlp, train_eps=True), schema, dim)


class GATv2(PyGLayer):
    """GATv2 of torch_geometric; its self-loops have the mean edge vector of their node."""

    Config: ClassVar[type[LayerConfig]] = AttentionConfig

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        from torch_geometric.nn import GATv2Conv

        dim, heads = config.dim, config.layer_as(AttentionConfig).heads
        conv = GATv2Conv(dim, dim, heads=heads, concat=False, edge_dim=dim, fill_value="mean")
        super().__init__(conv, schema, dim)


class Transformer(PyGLayer):
    """Graph transformer layer of torch_geometric, with averaged heads."""

    Config: ClassVar[type[LayerConfig]] = AttentionConfig

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        from torch_geometric.nn import TransformerConv

        dim, heads = config.dim, config.layer_as(AttentionConfig).heads
        super().__init__(
            TransformerConv(dim, dim, heads=heads, concat=False, edge_dim=dim), schema, dim
        )
