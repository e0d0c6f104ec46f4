"""Graph isomorphism network with edge attributes (Xu et al. 2019; Hu et al. 2020)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.attributes import AttributeTable, add_product
from graphlog.encoders.base import EncoderConfig, MessagePassing, Neighbourhood, NodeNorm
from graphlog.ops.neighbours import neighbour_sum


class GIN(MessagePassing):
    r"""An MLP on the sum over neighbours and the node itself of :math:`h_u + e_{uv}`, or of the two joined.

    Implements Eq. 1. Joined (``edge_mode="concat"``), the MLP has batch normalisation inside.
    """

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.joined = config.edge_mode == "concat"
        self.edge = AttributeTable(schema.edge, config.dim)
        self.lift = nn.Linear(config.dim * (2 if self.joined else 1), 2 * config.dim)
        self.norm = NodeNorm(2 * config.dim) if self.joined else None
        self.lower = nn.Linear(2 * config.dim, config.dim)

    def forward(
        self, h: Float[Tensor, "V D"], neighbourhood: Neighbourhood
    ) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""
        total = neighbour_sum(h, neighbourhood.adjacency)
        counts = neighbourhood.indicator_sums
        if self.norm is None:
            hidden = self.lift(add_product(total, counts, self.edge.weight))
        else:  # the sum of the joined vectors is never formed: its edge half is K columns wide, not D
            of_node, of_edge = self.lift.weight.split(h.shape[1], dim=1)
            hidden = self.norm(
                add_product(
                    F.linear(total, of_node, self.lift.bias), counts, self.edge.weight @ of_edge.T
                )
            )
        return self.lower(F.relu(hidden, inplace=True))
