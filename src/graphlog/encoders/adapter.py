"""Any convolution of torch_geometric that takes ``(x, edge_index, edge_attr)``, as a backbone layer."""

from jaxtyping import Float
from torch import Tensor, nn

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.attributes import AttributeTable
from graphlog.encoders.base import EncoderConfig, MessagePassing, Neighbourhood


class PyGLayer(MessagePassing):
    """Runs a convolution on the edges as they are; whether it adds self-loops is its own affair.

    Args:
        conv: Module called as ``conv(h, edge_index, edge_attr)``; returns as many columns as it is given.
        schema: Meaning of the edge attributes.
        edge_dim: Width of the learned edge vectors that the convolution is given.
    """

    def __init__(self, conv: nn.Module, schema: FeatureSchema, edge_dim: int) -> None:
        super().__init__()
        self.conv = conv
        self.edge = AttributeTable(schema.edge, edge_dim)

    def forward(
        self, h: Float[Tensor, "V D"], neighbourhood: Neighbourhood
    ) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""
        batch = neighbourhood.batch
        return self.conv(h, batch.edge_index, self.edge(batch.edge_attr))


def gine(config: EncoderConfig, schema: FeatureSchema) -> MessagePassing:
    """Return torch_geometric's GIN with edge attributes: ReLU on each message, a learned epsilon."""
    from torch_geometric.nn import (
        GINEConv,
    )  # loads in a second or more, and only these backbones need it

    dim = config.dim
    mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
    return PyGLayer(GINEConv(mlp, train_eps=True), schema, dim)


def gatv2(config: EncoderConfig, schema: FeatureSchema) -> MessagePassing:
    """Return torch_geometric's GATv2, heads averaged; the self-loops it adds carry the mean edge vector of their node."""
    from torch_geometric.nn import GATv2Conv  # see gine

    dim = config.dim
    return PyGLayer(
        GATv2Conv(dim, dim, heads=config.heads, concat=False, edge_dim=dim, fill_value="mean"),
        schema,
        dim,
    )


def transformer(config: EncoderConfig, schema: FeatureSchema) -> MessagePassing:
    """Return torch_geometric's graph transformer layer, heads averaged."""
    from torch_geometric.nn import TransformerConv  # see gine

    dim = config.dim
    return PyGLayer(
        TransformerConv(dim, dim, heads=config.heads, concat=False, edge_dim=dim), schema, dim
    )
