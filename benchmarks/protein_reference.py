"""Our GIN encoder of proteins written the usual way: a linear layer 9 -> D on every edge of every layer, joined to the neighbour.

The pre-train-GNNs family writes it so: torch_geometric's ``MessagePassing``, messages ``[h_u, e_uv]`` summed, then an MLP
2D -> 2D -> D with batch normalisation. Weights are copied from one of our encoders; ``pyg_reference.largest_difference`` shows that
both compute the same thing.
"""

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, global_mean_pool
from torch_geometric.utils import add_self_loops

from graphlog.data.batch import GraphBatch
from graphlog.encoders.base import Encoding
from graphlog.encoders.encoder import GraphEncoder
from pyg_reference import ColumnEmbeddings, copied


class JoinedGIN(MessagePassing):
    """GIN of the neighbours joined with embedded edges, self-loop included."""

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
    """The encoder that the comparison runs beside ours: same weights, same interface, same results."""

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
        return Encoding(h, global_mean_pool(h, batch.batch))
