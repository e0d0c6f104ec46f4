"""Parts of a batch as a batch: some nodes, some edges, some graphs, renumbered."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from graphlog.data.batch import GraphBatch


class Part(NamedTuple):
    """Graphs cut out of a batch."""

    batch: GraphBatch
    """The same number of graphs, in the same order; a graph may have lost all of its nodes."""
    number: Int[Tensor, "V"]
    """What each old node is called now; -1 where it is gone."""


def induced_part(
    batch: GraphBatch, nodes: Bool[Tensor, "V"], edges: Bool[Tensor, "E"] | None = None
) -> Part:
    """Return the kept nodes and the edges between them (those that are also in ``edges``); order is kept, labels too.

    Args:
        batch: Any graphs.
        nodes: Which nodes are kept.
        edges: Which directed edges may be kept; None for all.
    """
    running = nodes.long().cumsum(0)
    number = torch.where(nodes, running - 1, -1)
    source, target = batch.edge_index[0], batch.edge_index[1]
    kept = nodes[source] & nodes[target]
    kept = (kept if edges is None else kept & edges).nonzero().squeeze(1)
    before = torch.cat([running.new_zeros(1), running])
    part = GraphBatch(
        x=batch.x[nodes],
        edge_index=number[batch.edge_index[:, kept]],
        edge_attr=batch.edge_attr[kept],
        batch=batch.batch[nodes],
        ptr=before[batch.ptr],
        y=batch.y,
    )
    return Part(part, number)


def keep_graphs(batch: GraphBatch, graphs: Bool[Tensor, "N"]) -> Part:
    """Return the batch without the graphs that are not in ``graphs``."""
    part = induced_part(batch, graphs[batch.batch])
    rank = graphs.long().cumsum(0) - 1
    kept = GraphBatch(
        x=part.batch.x,
        edge_index=part.batch.edge_index,
        edge_attr=part.batch.edge_attr,
        batch=rank[part.batch.batch],
        ptr=torch.cat([part.batch.ptr[:1], part.batch.ptr[1:][graphs]]),
        y=None if batch.y is None else batch.y[graphs],
    )
    return Part(kept, part.number)
