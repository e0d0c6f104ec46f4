"""Random choices of nodes and edges, and subgraphs, for all graphs of a batch at the same time."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from graphlog.data.store import GraphBatch
from graphlog.ops.sparse import segment_ids, segment_sum


def uniform(count: int, generator: Generator, device: torch.device) -> Float[Tensor, "C"]:
    """Return random numbers in [0, 1) as float64, drawn on the device of the generator."""
    return torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64).to(
        device
    )


def random_integers(limits: Int[Tensor, "C"], generator: Generator) -> Int[Tensor, "C"]:
    """Return a uniform random integer from 0 to ``limit - 1`` for every limit."""
    drawn = uniform(limits.shape[0], generator, limits.device) * limits
    return torch.minimum(drawn.long(), limits - 1)


def choose_rows(
    group: Int[Tensor, "V"],
    ptr: Int[Tensor, "P"],
    counts: Int[Tensor, "N"],
    generator: Generator,
    allowed: Bool[Tensor, "V"] | None = None,
) -> Bool[Tensor, "V"]:
    """Return a mask of ``counts[n]`` random rows of each graph, drawn without replacement.

    ``group`` is the graph of each row, in ascending order. If ``allowed`` is given, only these rows
    are drawn. All rows of a graph are chosen if it has fewer than ``counts[n]``.
    """
    total = group.shape[0]
    keys = uniform(total, generator, ptr.device)
    if allowed is not None:
        keys = torch.where(allowed, keys, 1.0)  # larger than the keys of all allowed rows
    # keys are halved so that rounding never moves a row into the next graph
    order = torch.argsort(group + 0.5 * keys)
    rank = torch.arange(total, device=ptr.device) - ptr[:-1][group]
    chosen = torch.zeros(total, dtype=torch.bool, device=ptr.device)
    chosen[order] = rank < counts[group]
    return chosen if allowed is None else chosen & allowed


def choose_unsorted(
    group: Int[Tensor, "U"], counts: Int[Tensor, "N"], generator: Generator
) -> Bool[Tensor, "U"]:
    """Return the same mask as :func:`choose_rows` for rows whose graphs are in any order."""
    order = torch.argsort(group, stable=True)
    sizes = torch.bincount(group, minlength=counts.shape[0])
    chosen = torch.zeros_like(group, dtype=torch.bool)
    chosen[order] = choose_rows(group[order], F.pad(sizes.cumsum(0), (1, 0)), counts, generator)
    return chosen


def true_rows(mask: Bool[Tensor, "V"], count: int | None) -> Int[Tensor, "C"]:
    """Return the indices at which ``mask`` is true, in ascending order.

    If their number ``count`` is given, the CPU need not wait for the GPU to count them.
    """
    if count is None or mask.device.type == "cpu":
        return mask.nonzero().squeeze(1)
    return torch.argsort(~mask, stable=True)[:count]


def draw_numbers(
    counts: Int[Tensor, "N"], totals: Int[Tensor, "N"], generator: Generator
) -> tuple[Int[Tensor, "C"], Int[Tensor, "C"]]:
    """Return ``counts[n]`` distinct integers below ``totals[n]`` for each graph, and their graphs.

    All subsets are equally likely. If more than half of the integers of a graph are wanted, all of
    them are ranked by random keys. Otherwise integers are drawn, and duplicates are drawn again
    until none is left; each new draw succeeds with a probability of at least one half. In both
    cases the work is proportional to ``counts``.
    """
    dense = 2 * counts > totals
    graphs = torch.arange(counts.shape[0], device=counts.device)
    pool = torch.where(dense, totals, 0)
    pool_ptr = F.pad(pool.cumsum(0), (1, 0))
    group = segment_ids(pool_ptr, int(pool_ptr[-1]))
    dense_counts = torch.where(dense, counts, 0)
    chosen = choose_rows(group, pool_ptr, dense_counts, generator).nonzero().squeeze(1)
    dense_graph = group[chosen]
    dense_number = chosen - pool_ptr[:-1][dense_graph]

    graph = torch.repeat_interleave(graphs, torch.where(dense, 0, counts))
    number = random_integers(totals[graph], generator)
    first = totals.cumsum(0) - totals
    while True:
        key, order = torch.sort(first[graph] + number, stable=True)
        duplicates = order[1:][key[1:] == key[:-1]]
        if not duplicates.shape[0]:
            break
        number[duplicates] = random_integers(totals[graph[duplicates]], generator)
    return torch.cat([dense_number, number]), torch.cat([dense_graph, graph])


def random_nodes(ptr: Int[Tensor, "P"], generator: Generator) -> Int[Tensor, "N"]:
    """Return a uniform random node of every graph; for an empty graph, the first of the next."""
    return ptr[:-1] + random_integers(ptr.diff(), generator).clamp_min(0)


def undirected_pairs(batch: GraphBatch) -> tuple[Int[Tensor, "E"], Int[Tensor, "U"]]:
    """Return the undirected edge of each directed edge, and the graph of each undirected edge.

    In batches from an undirected store, the two directions of an edge follow each other, and need
    no sorting. In any other order, parallel edges are one undirected edge.
    """
    source, target = batch.edge_index[0], batch.edge_index[1]
    num_edges = batch.num_edges
    if num_edges % 2 == 0 and bool(
        (source[0::2] == target[1::2]).all() and (target[0::2] == source[1::2]).all()
    ):
        return torch.arange(num_edges, device=source.device) // 2, batch.batch[source[0::2]]
    key = torch.minimum(source, target) * batch.num_nodes + torch.maximum(source, target)
    unique, pair = torch.unique(key, return_inverse=True)
    return pair, batch.batch[unique // batch.num_nodes]


def edge_pairs(batch: GraphBatch) -> Int[Tensor, "2 U"]:
    """Return every undirected edge once, in the direction and order in which it first occurs."""
    pair, pair_graph = undirected_pairs(batch)
    return batch.edge_index[:, first_of_each(pair, pair_graph.shape[0]).sort().values]


def first_of_each(numbers: Int[Tensor, "E"], count: int) -> Int[Tensor, "U"]:
    """Return the first index of each integer below ``count``; every one must occur."""
    index = torch.arange(numbers.shape[0], device=numbers.device)
    first = index.new_full((count,), numbers.shape[0])
    return first.scatter_reduce(0, numbers, index, "amin")


def non_edges(
    batch: GraphBatch, counts: Int[Tensor, "N"], generator: Generator
) -> Int[Tensor, "2 M"]:
    """Return distinct ordered pairs of nodes without an edge between them.

    There are ``counts[n]`` pairs of each graph, or all if it has fewer. The two nodes differ, and
    neither direction is an edge. All choices are equally likely.

    The pairs of a graph of ``n`` nodes are numbered ``n * source + target``. A rank among the
    unconnected pairs is drawn, and bisection in the sorted numbers of the connected pairs gives the
    number of that rank. This needs no array of ``n * n`` entries.
    """
    sizes = batch.sizes
    first = (sizes * sizes).cumsum(0) - sizes * sizes
    nodes = torch.arange(batch.num_nodes, device=sizes.device)
    both_ways = [batch.edge_index, batch.edge_index.flip(0), nodes.expand(2, -1)]
    source, target = torch.cat(both_ways, dim=1)
    graph = batch.batch[source]
    start = batch.ptr[:-1]
    taken, order = torch.unique(
        first[graph] + (source - start[graph]) * sizes[graph] + target - start[graph],
        return_inverse=True,
    )
    taken_graph = graph.new_empty(taken.shape).scatter_(0, order, graph)
    num_taken = torch.bincount(taken_graph, minlength=batch.num_graphs)
    before = num_taken.cumsum(0) - num_taken
    num_free = sizes * sizes - num_taken
    rank, graph = draw_numbers(torch.minimum(counts, num_free), num_free, generator)
    # count of free numbers below each taken one; never decreases, not even between graphs
    free_below = taken - torch.arange(taken.shape[0], device=taken.device)
    index = first[graph] - before[graph] + rank
    number = index + torch.searchsorted(free_below, index, right=True) - first[graph]
    return torch.stack([number // sizes[graph], number % sizes[graph]]) + start[graph]


def induced_part(
    batch: GraphBatch, nodes: Bool[Tensor, "V"]
) -> tuple[GraphBatch, Int[Tensor, "V"]]:
    """Return the subgraphs induced by a mask of nodes, and the new index of each old node.

    The order of nodes and edges and the labels stay the same. A graph may lose all of its nodes.
    The new index of a removed node is -1.
    """
    running = nodes.long().cumsum(0)
    new_index = torch.where(nodes, running - 1, -1)
    kept = nodes[batch.edge_index].all(dim=0).nonzero().squeeze(1)
    edges, ptr = new_index[batch.edge_index[:, kept]], F.pad(running, (1, 0))[batch.ptr]
    attributes = batch.edge_attr[kept]
    part = GraphBatch(batch.x[nodes], edges, attributes, batch.batch[nodes], ptr, batch.y)
    return part, new_index


class ContextViews(NamedTuple):
    """Substructure and context of each graph of a batch in which the two share a node."""

    substructure: GraphBatch
    """Subgraph around the root of each graph."""
    root: Int[Tensor, "N"]
    """Root of each graph, as a node of ``substructure``."""
    context: GraphBatch
    """Subgraph beyond the inner radius of each graph."""
    anchors: Int[Tensor, "A"]
    """Nodes of ``context`` that are in the substructure too, ascending; at least one per graph."""


def rings(
    batch: GraphBatch, roots: Int[Tensor, "N"], hops: int, inner: int, outer: int
) -> tuple[Bool[Tensor, "V"], Bool[Tensor, "V"]]:
    """Return masks of the nodes of each root's substructure and of its context.

    See :func:`context_views`. A breadth-first search runs in all graphs at the same time.
    """
    steps = torch.full((batch.num_nodes,), -1, dtype=torch.long, device=roots.device)
    steps[roots] = 0
    source, target = batch.edge_index[0], batch.edge_index[1]
    last, step = max(hops, outer) if outer else batch.num_nodes, 0
    while step < last:
        new = target[(steps[source] == step) & (steps[target] < 0)]
        if not new.shape[0]:
            break
        step += 1
        steps[new] = step
    reached = steps >= 0
    substructure = reached & (steps <= hops) if hops else torch.ones_like(reached)
    return substructure, reached & (steps > inner) & ((steps <= outer) | (outer == 0))


def context_views(
    batch: GraphBatch, roots: Int[Tensor, "N"], hops: int, inner: int, outer: int
) -> ContextViews:
    """Return the subgraph around each root and its context; graphs without an anchor are left out.

    The substructure contains the nodes within ``hops`` steps of the root; with 0, all nodes. The
    context contains the nodes that are more than ``inner`` and at most ``outer`` steps away; with
    ``outer=0``, all that the root can reach beyond ``inner``. An anchor is a node of both.
    """
    inside, around = rings(batch, roots, hops, inner, outer)
    has_context = segment_sum((inside & around).double(), batch.ptr) > 0
    part, new_index = induced_part(batch, has_context[batch.batch])
    graph, nodes = (has_context.long().cumsum(0) - 1)[part.batch], new_index >= 0
    ptr = torch.cat([part.ptr[:1], part.ptr[1:][has_context]])
    kept = GraphBatch(part.x, part.edge_index, part.edge_attr, graph, ptr)
    substructure, in_substructure = induced_part(kept, inside[nodes])
    context, in_context = induced_part(kept, around[nodes])
    root = in_substructure[new_index[roots[has_context]]]
    anchors = in_context[(inside & around)[nodes].nonzero().squeeze(1)]
    return ContextViews(substructure, root, context, anchors)
