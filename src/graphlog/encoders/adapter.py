"""Convolutions of torch_geometric with signature ``(x, edge_index, edge_attr)`` as layers."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.attributes import AttributeTable
from graphlog.encoders.base import EncoderConfig, LayerConfig, MessagePassing, Neighborhood
from graphlog.encoders.layers import AttentionConfig


class PyGLayer(MessagePassing):
    """Runs a convolution on the edges as they are; whether it adds self-loops is its own affair.

    Args:
        conv: Module called as ``conv(h, edge_index, edge_attr)``; returns as many columns as it is
            given.
        schema: Meaning of the edge attributes.
        edge_dim: Width of the learned edge vectors that the convolution is given.
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
    """torch_geometric's GIN with edge attributes: ReLU on each message, a learned epsilon."""

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        from torch_geometric.nn import GINEConv  # a second to import, for these backbones only

        dim = config.dim
        mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        super().__init__(GINEConv(mlp, train_eps=True), schema, dim)


class GATv2(PyGLayer):
    """torch_geometric's GATv2; the self-loops it adds carry the mean edge vector of their node."""

    Config: ClassVar[type[LayerConfig]] = AttentionConfig

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        from torch_geometric.nn import GATv2Conv

        dim, heads = config.dim, config.layer_as(AttentionConfig).heads
        conv = GATv2Conv(dim, dim, heads=heads, concat=False, edge_dim=dim, fill_value="mean")
        super().__init__(conv, schema, dim)


class Transformer(PyGLayer):
    """torch_geometric's graph transformer layer, heads averaged."""

    Config: ClassVar[type[LayerConfig]] = AttentionConfig

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        from torch_geometric.nn import TransformerConv

        dim, heads = config.dim, config.layer_as(AttentionConfig).heads
        super().__init__(
            TransformerConv(dim, dim, heads=heads, concat=False, edge_dim=dim), schema, dim
        )
