"""The work of a stage as users of torch_geometric write it, beside which ours is timed.

It is imported where it is used: it is optional, and takes a second.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import Attribute, is_continuous
from graphlog.encoders.base import Encoding
from graphlog.encoders.encoder import GraphEncoder


def parse(texts: Sequence[str]) -> list[Any]:
    """Return a ``Data`` for each SMILES."""
    from torch_geometric.utils import from_smiles

    return [from_smiles(text) for text in texts]


def collating(graphs: GraphBatch) -> Callable[..., GraphBatch]:
    """Return what joins the first ``count`` of ``graphs`` (by default all) to a batch."""
    from torch_geometric.data import Batch

    from graphlog.pyg import to_pyg

    apart: list[Any] = to_pyg(graphs)

    def collate(count: int | None = None) -> GraphBatch:
        joined: Any = Batch.from_data_list(apart[:count])
        return GraphBatch(joined.x, joined.edge_index, joined.edge_attr, joined.batch, joined.ptr)

    return collate


def finetuning(
    encoder: GraphEncoder, load: Callable[[], GraphBatch], device: torch.device
) -> Callable[[], None]:
    """Return a step of fine-tuning a GIN of the size of ``encoder`` on a batch, with one label."""
    network, head = PlainGIN(encoder).to(device), nn.Linear(encoder.dim, 1).to(device)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()])
    labels = torch.arange(load().num_graphs, device=device) % 2

    def step() -> None:
        outputs = head(network(load().to(device)).graph_emb)[:, 0]
        loss = F.binary_cross_entropy_with_logits(outputs, labels.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


class _Columns(nn.Module):
    """The sum of an embedding a column, or a linear layer where columns are continuous."""

    def __init__(self, columns: tuple[Attribute, ...], dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(len(columns), dim) if is_continuous(columns) else None
        coded = columns if self.linear is None else ()
        self.tables = nn.ModuleList(nn.Embedding(c.cardinality, dim) for c in coded)

    def forward(self, values: Tensor) -> Tensor:
        if self.linear is not None:
            return self.linear(values)
        return torch.stack([t(values[:, i]) for i, t in enumerate(self.tables)]).sum(0)


class PlainGIN(GraphEncoder):
    """A GIN as torch_geometric's users write it, of the size of an encoder of ours."""

    def __init__(self, encoder: GraphEncoder) -> None:
        from torch_geometric.nn import GINEConv, global_mean_pool

        nn.Module.__init__(self)  # an encoder to objectives, with nothing of ours inside
        self.config, self.pool = encoder.config, global_mean_pool
        self.schema, self.dim = encoder.schema, encoder.dim
        dim, count = encoder.dim, len(encoder.layers)
        self.node = _Columns(self.schema.node, dim)
        self.edges = nn.ModuleList(_Columns(self.schema.edge, dim) for _ in range(count))
        self.layers = nn.ModuleList(
            GINEConv(nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim)))
            for _ in range(count)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(count))

    def forward(self, batch: GraphBatch) -> Encoding:
        """Return the embeddings of every node and graph."""
        h = self.node(batch.x)
        for number, conv in enumerate(self.layers):
            h = self.norms[number](conv(h, batch.edge_index, self.edges[number](batch.edge_attr)))
            if number < len(self.layers) - 1:
                h = torch.relu(h)
        return Encoding(h, self.pool(h, batch.batch, batch.num_graphs))
