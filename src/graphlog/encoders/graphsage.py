"""GraphSAGE with mean aggregation and edge attributes (Hamilton et al. 2017)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.attributes import AttributeTable
from graphlog.encoders.base import EncoderConfig, MessagePassing, Neighborhood
from graphlog.ops.neighbors import neighbor_sum
from graphlog.ops.products import add_product, linear


class GraphSAGE(MessagePassing):
    r"""The mean over a node and its neighbors of :math:`W h_u + b + e_{uv}`, at unit length.

    Implements Eq. 1. The sum is taken instead of the mean: at unit length they are the same.
    """

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.linear = nn.Linear(config.dim, config.dim)
        self.edge = AttributeTable(schema.edge, config.dim)

    def forward(self, h: Float[Tensor, "V D"], neighborhood: Neighborhood) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""
        total = neighbor_sum(linear(h, self.linear), neighborhood.adjacency)
        return F.normalize(add_product(total, neighborhood.indicator_sums, self.edge.weight), dim=1)
