"""Our GIN encoders written the usual way, with torch_geometric's ``MessagePassing``, in fp32.

They are the other side of the speed comparison: one message an edge and layer; of proteins, as in
pre-train-GNNs, a linear layer 9 -> D on every edge of every layer, joined to the neighbor. Weights
are copied from one of our encoders; ``largest_difference`` shows that both compute the same thing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, global_mean_pool
from torch_geometric.utils import add_self_loops

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import Attribute
from graphlog.encoders.base import AttributeTable, Encoding
from graphlog.encoders.encoder import GraphEncoder


class ColumnEmbeddings(nn.Module):
    """One embedding table a column, summed."""

    def __init__(self, table: AttributeTable, columns: Sequence[Attribute]) -> None:
        """Copy the tables, which ours holds stacked in one matrix."""
        super().__init__()
        parts = table.weight.detach().split([c.cardinality for c in columns])
        self.tables = nn.ModuleList(
            nn.Embedding.from_pretrained(p.clone(), freeze=False) for p in parts
        )

    def forward(self, codes: Tensor) -> Tensor:
        """Return the sum of the looked-up rows."""
        return torch.stack([table(codes[:, i]) for i, table in enumerate(self.tables)]).sum(0)


class EdgeGIN(MessagePassing):
    """GIN with edges: the MLP of the sum of neighbor plus edge embedding, self-loop included."""

    def __init__(self, edges: ColumnEmbeddings, lift: nn.Linear, lower: nn.Linear) -> None:
        """Take over the parts."""
        super().__init__(aggr="add")
        self.edges = edges
        self.mlp = nn.Sequential(copied(lift), nn.ReLU(), copied(lower))

    def forward(self, h: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return the node embeddings after one round of messages."""
        return self.mlp(self.propagate(edge_index, x=h, edge_emb=self.edges(edge_attr)))

    def message(self, x_j: Tensor, edge_emb: Tensor) -> Tensor:
        """Return the message of each edge."""
        return x_j + edge_emb


class ReferenceEncoder(nn.Module):
    """The encoder that the comparison runs beside ours: same weights, interface and results."""

    def __init__(self, encoder: GraphEncoder) -> None:
        """Copy a GIN encoder.

        Its layers add the edge embedding; its readout is the mean of the last layer.
        """
        super().__init__()
        self.schema, self.dim = encoder.schema, encoder.dim
        self.nodes = ColumnEmbeddings(encoder.node, self.schema.node)
        self.layers = nn.ModuleList(
            EdgeGIN(ColumnEmbeddings(g.edge, self.schema.edge), g.lift, g.lower)
            for g in encoder.layers
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(encoder.dim) for _ in self.layers)
        for norm, ours in zip(self.norms, encoder.norms, strict=True):
            norm.load_state_dict(ours.state_dict())

    def forward(self, batch: GraphBatch) -> Encoding:
        """Return the embeddings of every node and graph."""
        loop = torch.tensor(
            self.schema.self_loop, dtype=batch.edge_attr.dtype, device=batch.x.device
        )
        edge_index, _ = add_self_loops(batch.edge_index, num_nodes=batch.num_nodes)
        edge_attr = torch.cat([batch.edge_attr, loop.expand(batch.num_nodes, -1)])
        h = self.nodes(batch.x)
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            h = norm(layer(h, edge_index, edge_attr))
            if number < len(self.layers) - 1:
                h = torch.relu(h)
        return Encoding(lambda: h, global_mean_pool(h, batch.batch))


class JoinedGIN(MessagePassing):
    """GIN of the neighbors joined with embedded edges, self-loop included."""

    def __init__(self, layer: nn.Module) -> None:
        """Copy one of our layers."""
        super().__init__(aggr="add")
        table = layer.edge.weight.detach()  # a row for each channel, and the bias below them
        self.edge = nn.Linear(table.shape[0] - 1, table.shape[1])
        with torch.no_grad():
            self.edge.weight.copy_(table[:-1].T)
            self.edge.bias.copy_(table[-1])
        norm = nn.BatchNorm1d(layer.lift.out_features)
        norm.load_state_dict(layer.norm.state_dict())
        self.mlp = nn.Sequential(copied(layer.lift), norm, nn.ReLU(), copied(layer.lower))

    def forward(self, h: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return the node embeddings after one round of messages."""
        return self.mlp(self.propagate(edge_index, x=h, edge_emb=self.edge(edge_attr)))

    def message(self, x_j: Tensor, edge_emb: Tensor) -> Tensor:
        """Return the message of each edge."""
        return torch.cat([x_j, edge_emb], dim=1)


class ProteinReference(nn.Module):
    """The encoder that the comparison runs beside ours: same weights, interface and results."""

    def __init__(self, encoder: GraphEncoder) -> None:
        """Copy a GIN encoder of proteins whose readout is the mean of the last layer."""
        super().__init__()
        self.schema, self.dim = encoder.schema, encoder.dim
        self.nodes = ColumnEmbeddings(encoder.node, self.schema.node)
        self.layers = nn.ModuleList(JoinedGIN(layer) for layer in encoder.layers)

    def forward(self, batch: GraphBatch) -> Encoding:
        """Return the embeddings of every node and graph."""
        loop = torch.tensor(
            self.schema.self_loop, dtype=batch.edge_attr.dtype, device=batch.x.device
        )
        edge_index, _ = add_self_loops(batch.edge_index, num_nodes=batch.num_nodes)
        edge_attr = torch.cat([batch.edge_attr, loop.expand(batch.num_nodes, -1)])
        h = self.nodes(batch.x)
        for number, layer in enumerate(self.layers):
            h = layer(h, edge_index, edge_attr)
            if number < len(self.layers) - 1:
                h = torch.relu(h)
        return Encoding(lambda: h, global_mean_pool(h, batch.batch))


def copied(linear: nn.Linear) -> nn.Linear:
    """Return a layer of its own with the same weights."""
    copy = nn.Linear(linear.in_features, linear.out_features)
    copy.load_state_dict(linear.state_dict())
    return copy


@torch.no_grad()
def largest_difference(encoder: GraphEncoder, reference: nn.Module, batch: GraphBatch) -> float:
    """Return the largest difference of the outputs in evaluation mode over the largest value."""
    modes = encoder.training, reference.training
    ours, theirs = encoder.eval()(batch), reference.eval()(batch)
    encoder.train(modes[0])
    reference.train(modes[1])
    return max(
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True)
    )
