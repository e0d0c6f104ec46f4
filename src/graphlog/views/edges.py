"""Pairs of nodes that are joined and pairs that are not (EdgePred), and the bonds around masked atoms (AttrMasking)."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.errors import ConfigError
from graphlog.views.masking import undirected_pairs
from graphlog.views.sampling import draw_numbers


def edge_pairs(batch: GraphBatch) -> Int[Tensor, "2 U"]:
    """Return every undirected edge once, in the direction and order in which it first occurs."""
    pair, pair_graph = undirected_pairs(batch)
    edge = torch.arange(batch.num_edges, device=pair.device)
    first = edge.new_full(pair_graph.shape, batch.num_edges).scatter_reduce(0, pair, edge, "amin")
    return batch.edge_index[:, first.sort().values]


def non_edges(
    batch: GraphBatch, counts: Int[Tensor, "N"], generator: torch.Generator
) -> tuple[Int[Tensor, "2 M"], Int[Tensor, "M"]]:
    """Return, in every graph, different ordered pairs of different nodes that no edge joins, and the graph of each.

    All choices are equally likely. The pairs of a graph of ``n`` nodes are numbered ``n * source + target``; what is drawn is a rank among
    the free numbers, and the number of that rank is found by bisection in the sorted list of taken ones: nothing of size ``n * n`` is made.

    Args:
        batch: Any graphs.
        counts: How many to draw; where fewer exist, all of them.
        generator: Source of randomness.
    """
    sizes = batch.sizes
    first = (sizes * sizes).cumsum(0) - sizes * sizes
    nodes = torch.arange(batch.num_nodes, device=sizes.device)
    source, target = torch.cat([batch.edge_index, nodes.expand(2, -1)], dim=1)
    graph = batch.batch[source]
    start = batch.ptr[:-1]
    taken, order = torch.unique(
        first[graph] + (source - start[graph]) * sizes[graph] + target - start[graph],
        return_inverse=True,
    )
    taken_graph = graph.new_empty(taken.shape).scatter_(0, order, graph)
    num_taken = torch.bincount(taken_graph, minlength=batch.num_graphs)
    before = num_taken.cumsum(0) - num_taken
    free = sizes * sizes - num_taken
    rank, graph = draw_numbers(torch.minimum(counts, free), free, generator)
    # free numbers in front of the i-th taken one: a list that never falls, across graphs too
    in_front = taken - torch.arange(taken.shape[0], device=taken.device)
    index = first[graph] - before[graph] + rank
    code = index + torch.searchsorted(in_front, index, right=True) - first[graph]
    return torch.stack([code // sizes[graph], code % sizes[graph]]) + start[graph], graph


def mask_edges_around(
    batch: GraphBatch, schema: FeatureSchema, nodes: Int[Tensor, "A"]
) -> tuple[GraphBatch, Int[Tensor, "B"]]:
    """Return the batch with every edge at one of ``nodes`` masked, in both directions, and the numbers of those edges.

    Args:
        batch: Graphs, their nodes masked already or not.
        schema: Says which row stands for a masked edge.
        nodes: The masked nodes.

    Raises:
        ConfigError: If the schema has no such row.
    """
    if schema.edge_mask is None:
        raise ConfigError(
            f"schema '{schema.name}' has no `edge_mask` row, which masking the edges around masked nodes needs."
        )
    edge_attr = batch.edge_attr
    chosen = touching(batch, nodes).nonzero().squeeze(1)
    row = torch.tensor(schema.edge_mask, dtype=edge_attr.dtype, device=edge_attr.device)
    return batch.with_attributes(
        edge_attr=edge_attr.index_copy(0, chosen, row.expand(chosen.shape[0], -1))
    ), chosen


def touching(batch: GraphBatch, nodes: Int[Tensor, "A"]) -> Bool[Tensor, "E"]:
    """Return which directed edges start or end at one of ``nodes``."""
    inside = torch.zeros(batch.num_nodes, dtype=torch.bool, device=nodes.device).index_fill(
        0, nodes, True
    )
    return inside[batch.edge_index].any(dim=0)
