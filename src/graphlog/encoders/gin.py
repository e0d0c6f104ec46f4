"""Graph isomorphism network with edge attributes (Xu et al. 2019; Hu et al. 2020)."""

from typing import ClassVar, Literal, Self

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.schema import FeatureSchema
from graphlog.domains import DOMAINS
from graphlog.encoders.attributes import AttributeTable
from graphlog.encoders.base import (
    EncoderConfig,
    LayerConfig,
    MessagePassing,
    Neighborhood,
    NodeNorm,
)
from graphlog.ops.neighbors import neighbor_sum
from graphlog.ops.products import add_product, linear, perceptron


class GINConfig(LayerConfig):
    """Settings of GIN."""

    edge_mode: Literal["auto", "add", "concat"] = "auto"
    """Add the edge's vector to the neighbor's (chemistry), or concatenate the two and normalize
    inside the MLP (biology)."""

    def resolve_auto(self, domain: str) -> Self:
        """Return the settings with the variant that graphs of ``domain`` need."""
        if self.edge_mode != "auto":
            return self
        is_wide = domain in DOMAINS and DOMAINS[domain].wide_edges
        return self.updated({"edge_mode": "concat" if is_wide else "add"})


class GIN(MessagePassing):
    r"""An MLP on the sum over a node and its neighbors of :math:`h_u + e_{uv}`.

    Implements Eq. 1. With ``edge_mode="concat"`` the two vectors are concatenated instead of added,
    and the MLP has batch normalization inside.
    """

    Config: ClassVar[type[LayerConfig]] = GINConfig

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.joined = config.layer_as(GINConfig).edge_mode == "concat"
        self.edge = AttributeTable(schema.edge, config.dim)
        self.lift = nn.Linear(config.dim * (2 if self.joined else 1), 2 * config.dim)
        self.norm = NodeNorm(2 * config.dim) if self.joined else None
        self.lower = nn.Linear(2 * config.dim, config.dim)

    def forward(self, h: Float[Tensor, "V D"], neighborhood: Neighborhood) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""
        total = neighbor_sum(h, neighborhood.adjacency)
        counts = neighborhood.indicator_sums
        if self.norm is None:
            return perceptron(add_product(total, counts, self.edge.weight), self.lift, self.lower)
        # the concatenated sum is never formed: its edge half is K columns wide, not D
        of_node, of_edge = self.lift.weight.split(h.shape[1], dim=1)
        hidden = self.norm(
            add_product(
                F.linear(total, of_node, self.lift.bias), counts, self.edge.weight @ of_edge.T
            )
        )
        return linear(F.relu(hidden, inplace=True), self.lower)
