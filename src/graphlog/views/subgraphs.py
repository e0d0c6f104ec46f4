"""Parts of a batch as a batch: induced subgraphs, and ContextPred's rings around a root."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.ops.segment import segment_sum


class Part(NamedTuple):
    """Graphs cut out of a batch."""

    batch: GraphBatch
    """The same number of graphs, in the same order; a graph may have lost all of its nodes."""
    number: Int[Tensor, "V"]
    """What each old node is called now; -1 where it is gone."""


def induced_part(batch: GraphBatch, nodes: Bool[Tensor, "V"]) -> Part:
    """Return the kept nodes and the edges between them; order is kept, labels too."""
    running = nodes.long().cumsum(0)
    number = torch.where(nodes, running - 1, -1)
    kept = nodes[batch.edge_index].all(dim=0).nonzero().squeeze(1)
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


class ContextViews(NamedTuple):
    """Substructures and contexts of the graphs that have a context."""

    substructure: GraphBatch
    root: Int[Tensor, "N"]
    """Node of ``substructure`` that is the root of each graph."""
    context: GraphBatch
    anchors: Int[Tensor, "A"]
    """Nodes of ``context`` that are in the substructure too, ascending; at least one a graph."""


def distances(batch: GraphBatch, roots: Int[Tensor, "N"], limit: int) -> Int[Tensor, "V"]:
    """Return the steps from each graph's root to every node; -1 where it is out of reach.

    All graphs are searched at once, one sweep over the edges a step.

    Args:
        batch: Any graphs.
        roots: One node a graph.
        limit: Steps after which to stop; 0 stops nowhere.
    """
    steps = torch.full((batch.num_nodes,), -1, dtype=torch.long, device=roots.device)
    steps[roots] = 0
    source, target = batch.edge_index[0], batch.edge_index[1]
    step = 0
    while limit == 0 or step < limit:
        new = target[(steps[source] == step) & (steps[target] < 0)]
        if not new.shape[0]:
            break
        step += 1
        steps[new] = step
    return steps


def rings(
    batch: GraphBatch, roots: Int[Tensor, "N"], hops: int, inner: int, outer: int
) -> tuple[Bool[Tensor, "V"], Bool[Tensor, "V"]]:
    """Return the nodes of each root's substructure and of its context, as :func:`context_views`."""
    steps = distances(batch, roots, max(hops, outer) if outer else 0)
    near = steps >= 0
    substructure = near & (steps <= hops) if hops else torch.ones_like(near)
    return substructure, near & (steps > inner) & ((steps <= outer) | (outer == 0))


def context_views(
    batch: GraphBatch, roots: Int[Tensor, "N"], hops: int, inner: int, outer: int
) -> ContextViews:
    """Return the subgraphs around and beyond each root; graphs without an anchor are left out.

    Args:
        batch: Any graphs.
        roots: One node a graph.
        hops: Reach of the substructure; 0: the whole graph, parts that the root cannot reach
            included.
        inner: The context begins beyond this many steps; what the root cannot reach is no part.
        outer: The context ends after this many steps; 0: nowhere.
    """
    inside, around = rings(batch, roots, hops, inner, outer)
    has_context = segment_sum((inside & around).double(), batch.ptr) > 0
    kept, number = keep_graphs(batch, has_context)
    nodes = number >= 0
    substructure, in_substructure = induced_part(kept, inside[nodes])
    context, in_context = induced_part(kept, around[nodes])
    return ContextViews(
        substructure=substructure,
        root=in_substructure[number[roots[has_context]]],
        context=context,
        anchors=in_context[(inside & around)[nodes].nonzero().squeeze(1)],
    )
