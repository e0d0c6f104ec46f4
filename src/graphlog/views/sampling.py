"""What is drawn from, or cut out of, every graph of a batch at once: nodes, edges, subgraphs."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from graphlog.data.store import GraphBatch
from graphlog.ops.sparse import segment_ids, segment_sum


def uniform(count: int, generator: Generator, device: torch.device) -> Float[Tensor, "C"]:
    """Return numbers from [0, 1) in float64, drawn where the generator lives."""
    return torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64).to(
        device
    )


def below(limits: Int[Tensor, "C"], generator: Generator) -> Int[Tensor, "C"]:
    """Return a whole number from 0 below each limit, evenly drawn."""
    drawn = uniform(limits.shape[0], generator, limits.device) * limits
    return torch.minimum(drawn.long(), limits - 1)


def choose_rows(
    group: Int[Tensor, "V"],
    ptr: Int[Tensor, "P"],
    counts: Int[Tensor, "N"],
    generator: Generator,
    allowed: Bool[Tensor, "V"] | None = None,
) -> Bool[Tensor, "V"]:
    """Return a mask of ``counts[n]`` rows of each graph, drawn evenly without replacement.

    Where there are fewer, all are chosen; with ``allowed`` only among these. The ``group`` of each
    row, its graph, ascends.
    """
    total = group.shape[0]
    keys = uniform(total, generator, ptr.device)
    if allowed is not None:
        keys = torch.where(allowed, keys, 1.0)  # behind every allowed one, which is below 1
    # halved: rounding never lifts a key into the next group
    order = torch.argsort(group + 0.5 * keys)
    rank = torch.arange(total, device=ptr.device) - ptr[:-1][group]
    chosen = torch.zeros(total, dtype=torch.bool, device=ptr.device)
    chosen[order] = rank < counts[group]
    return chosen if allowed is None else chosen & allowed


def choose_unsorted(
    group: Int[Tensor, "U"], counts: Int[Tensor, "N"], generator: Generator
) -> Bool[Tensor, "U"]:
    """Return what :func:`choose_rows` does, of rows whose groups stand in any order."""
    order = torch.argsort(group, stable=True)
    sizes = torch.bincount(group, minlength=counts.shape[0])
    chosen = torch.zeros_like(group, dtype=torch.bool)
    chosen[order] = choose_rows(group[order], F.pad(sizes.cumsum(0), (1, 0)), counts, generator)
    return chosen


def true_rows(mask: Bool[Tensor, "V"], count: int | None) -> Int[Tensor, "C"]:
    """Return where ``mask`` is true; a GPU that is told how often need not be waited for."""
    if count is None or mask.device.type == "cpu":
        return mask.nonzero().squeeze(1)
    return torch.argsort(~mask, stable=True)[:count]


def draw_numbers(
    counts: Int[Tensor, "N"], totals: Int[Tensor, "N"], generator: Generator
) -> tuple[Int[Tensor, "C"], Int[Tensor, "C"]]:
    """Return ``counts[n]`` distinct numbers below ``totals[n]`` per graph, and their graphs.

    All subsets are equally likely. Where more than half of the numbers are wanted, all of them are
    ranked by random keys; elsewhere numbers are drawn and repeats drawn again, each of which
    succeeds more often than not. Either way the work grows with ``counts``.
    """
    dense = 2 * counts > totals
    graphs = torch.arange(counts.shape[0], device=counts.device)
    pool = torch.where(dense, totals, 0)
    pool_ptr = F.pad(pool.cumsum(0), (1, 0))
    group = segment_ids(pool_ptr, int(pool_ptr[-1]))
    wanted = torch.where(dense, counts, 0)
    chosen = choose_rows(group, pool_ptr, wanted, generator).nonzero().squeeze(1)
    dense_graph = group[chosen]
    dense_number = chosen - pool_ptr[:-1][dense_graph]

    graph = torch.repeat_interleave(graphs, torch.where(dense, 0, counts))
    number = below(totals[graph], generator)
    first = totals.cumsum(0) - totals
    while True:
        key, order = torch.sort(first[graph] + number, stable=True)
        again = order[1:][key[1:] == key[:-1]]
        if not again.shape[0]:
            break
        number[again] = below(totals[graph[again]], generator)
    return torch.cat([dense_number, number]), torch.cat([dense_graph, graph])


def random_nodes(ptr: Int[Tensor, "P"], generator: Generator) -> Int[Tensor, "N"]:
    """Return one node of every graph, evenly drawn; the next graph's first for an empty graph."""
    return ptr[:-1] + below(ptr.diff(), generator).clamp_min(0)


def undirected_pairs(batch: GraphBatch) -> tuple[Int[Tensor, "E"], Int[Tensor, "U"]]:
    """Return the undirected edge of each directed edge, and the graph of each undirected edge.

    Batches from a store hold the two directions side by side; any other order costs one sort.
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
    """Return where each number below ``count`` first occurs; all of them do."""
    place = torch.arange(numbers.shape[0], device=numbers.device)
    first = place.new_full((count,), numbers.shape[0])
    return first.scatter_reduce(0, numbers, place, "amin")


def non_edges(
    batch: GraphBatch, counts: Int[Tensor, "N"], generator: Generator
) -> tuple[Int[Tensor, "2 M"], Int[Tensor, "M"]]:
    """Return distinct ordered pairs of different nodes that no edge joins, and the graph of each.

    There are ``counts[n]`` of each graph, or all. Neither direction has an edge. All choices are
    equally likely. The pairs of a graph of ``n`` nodes are numbered ``n * source + target``; what
    is drawn is a rank among the free numbers, and the number of that rank is found by bisection in
    the sorted list of taken ones: nothing of size ``n * n`` is made.
    """
    sizes = batch.sizes
    first = (sizes * sizes).cumsum(0) - sizes * sizes
    nodes = torch.arange(batch.num_nodes, device=sizes.device)
    either = [batch.edge_index, batch.edge_index.flip(0), nodes.expand(2, -1)]
    source, target = torch.cat(either, dim=1)
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


def induced_part(
    batch: GraphBatch, nodes: Bool[Tensor, "V"]
) -> tuple[GraphBatch, Int[Tensor, "V"]]:
    """Return the kept nodes and the edges between them, and the new number of each old node.

    Order is kept, labels too. A graph may lose all of its nodes; a lost node has the number -1.
    """
    running = nodes.long().cumsum(0)
    number = torch.where(nodes, running - 1, -1)
    kept = nodes[batch.edge_index].all(dim=0).nonzero().squeeze(1)
    edges, ptr = number[batch.edge_index[:, kept]], F.pad(running, (1, 0))[batch.ptr]
    attributes = batch.edge_attr[kept]
    part = GraphBatch(batch.x[nodes], edges, attributes, batch.batch[nodes], ptr, batch.y)
    return part, number


class ContextViews(NamedTuple):
    """Substructures and contexts of the graphs that have a context."""

    substructure: GraphBatch
    root: Int[Tensor, "N"]
    """Node of ``substructure`` that is the root of each graph."""
    context: GraphBatch
    anchors: Int[Tensor, "A"]
    """Nodes of ``context`` that are in the substructure too, ascending; at least one a graph."""


def rings(
    batch: GraphBatch, roots: Int[Tensor, "N"], hops: int, inner: int, outer: int
) -> tuple[Bool[Tensor, "V"], Bool[Tensor, "V"]]:
    """Return the nodes of each root's substructure and of its context, as :func:`context_views`.

    All graphs are searched at once, one sweep over the edges a step.
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
    near = steps >= 0
    substructure = near & (steps <= hops) if hops else torch.ones_like(near)
    return substructure, near & (steps > inner) & ((steps <= outer) | (outer == 0))


def context_views(
    batch: GraphBatch, roots: Int[Tensor, "N"], hops: int, inner: int, outer: int
) -> ContextViews:
    """Return the subgraphs around and beyond each root; graphs without an anchor are left out.

    The substructure reaches ``hops`` steps (0: the whole graph, parts that the root cannot reach
    included). The context begins beyond ``inner`` steps and ends after ``outer`` (0: nowhere); what
    the root cannot reach is no part.
    """
    inside, around = rings(batch, roots, hops, inner, outer)
    has_context = segment_sum((inside & around).double(), batch.ptr) > 0
    part, number = induced_part(batch, has_context[batch.batch])
    graph, nodes = (has_context.long().cumsum(0) - 1)[part.batch], number >= 0
    ptr = torch.cat([part.ptr[:1], part.ptr[1:][has_context]])
    kept = GraphBatch(part.x, part.edge_index, part.edge_attr, graph, ptr)
    substructure, in_substructure = induced_part(kept, inside[nodes])
    context, in_context = induced_part(kept, around[nodes])
    root = in_substructure[number[roots[has_context]]]
    anchors = in_context[(inside & around)[nodes].nonzero().squeeze(1)]
    return ContextViews(substructure, root, context, anchors)
