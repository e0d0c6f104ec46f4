"""Graph convolutional network with edge attributes (Kipf and Welling 2017)."""

from jaxtyping import Float
from torch import Tensor, nn

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.attributes import AttributeTable
from graphlog.encoders.base import EncoderConfig, MessagePassing, Neighborhood
from graphlog.ops.neighbors import neighbor_sum
from graphlog.ops.products import add_product, linear


class GCN(MessagePassing):
    r"""The sum over a node and its neighbors of :math:`(W h_u + b + e_{uv}) / \sqrt{d_u d_v}`.

    Implements Eq. 1. Degrees count the self-loop.
    """

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.linear = nn.Linear(config.dim, config.dim)
        self.edge = AttributeTable(schema.edge, config.dim)

    def forward(self, h: Float[Tensor, "V D"], neighborhood: Neighborhood) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""
        total = neighbor_sum(linear(h, self.linear), neighborhood.adjacency, neighborhood.norm)
        return add_product(total, neighborhood.normalized_indicator_sums, self.edge.weight)
