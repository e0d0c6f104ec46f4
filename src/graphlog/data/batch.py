"""A batch of graphs, packed: the one thing that travels between store, views and encoder."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from graphlog.data.adjacency import Adjacency, build_adjacency


@dataclass(frozen=True, slots=True, eq=False)
class GraphBatch:
    """``N`` graphs packed into one: torch_geometric's field names, so that any of its layers applies."""

    x: Shaped[Tensor, "V Fx"]
    """Node attributes: int64 codes, or float32 where the schema has a continuous column."""
    edge_index: Int[Tensor, "2 E"]
    """Directed edges, source row above target row, as batch-global node indices."""
    edge_attr: Shaped[Tensor, "E Fe"]
    """Edge attributes; ``Fe`` may be 0."""
    batch: Int[Tensor, "V"]
    """Graph of each node, non-decreasing."""
    ptr: Int[Tensor, "P"]
    """Node range of each graph: graph ``n`` owns nodes ``ptr[n]:ptr[n + 1]``; ``P = N + 1``."""
    y: Float[Tensor, "N T"] | None = None
    """Labels, NaN where absent."""
    _adjacency: list[Adjacency] = field(default_factory=list[Adjacency], repr=False)

    @property
    def num_graphs(self) -> int:
        """Number of graphs ``N``."""
        return self.ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes ``V``."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of directed edges ``E``."""
        return self.edge_index.shape[1]

    @property
    def sizes(self) -> Int[Tensor, "N"]:
        """Number of nodes of each graph."""
        return self.ptr[1:] - self.ptr[:-1]

    @property
    def adjacency(self) -> Adjacency:
        """Sorted neighbourhoods, built on first use and shared by every view with the same edges."""
        if not self._adjacency:
            self._adjacency.append(build_adjacency(self.edge_index, self.num_nodes))
        return self._adjacency[0]

    def with_attributes(
        self, x: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> "GraphBatch":
        """Return the same graphs with other attributes; the adjacency is shared, not rebuilt."""
        return replace(
            self,
            x=self.x if x is None else x,
            edge_attr=self.edge_attr if edge_attr is None else edge_attr,
        )

    def to(self, device: torch.device | str) -> "GraphBatch":
        """Return the batch on ``device`` (itself if it is there already)."""
        if self.x.device == torch.device(device):
            return self
        y = None if self.y is None else self.y.to(device)
        moved = (
            t.to(device, non_blocking=True)
            for t in (self.x, self.edge_index, self.edge_attr, self.batch, self.ptr)
        )
        return GraphBatch(*moved, y=y)


def collate(batches: list[GraphBatch]) -> GraphBatch:
    """Pack several batches into one, in order; labels are kept where every batch has them."""
    nodes = torch.tensor([0, *(b.num_nodes for b in batches)]).cumsum(0)
    graphs = torch.tensor([0, *(b.num_graphs for b in batches)]).cumsum(0)
    labels = [b.y for b in batches if b.y is not None]
    return GraphBatch(
        x=torch.cat([b.x for b in batches]),
        edge_index=torch.cat(
            [b.edge_index + n for b, n in zip(batches, nodes, strict=False)], dim=1
        ),
        edge_attr=torch.cat([b.edge_attr for b in batches]),
        batch=torch.cat([b.batch + g for b, g in zip(batches, graphs, strict=False)]),
        ptr=torch.cat(
            [b.ptr[:-1] + n for b, n in zip(batches, nodes, strict=False)] + [nodes[-1:]]
        ),
        y=torch.cat(labels) if len(labels) == len(batches) and labels else None,
    )
