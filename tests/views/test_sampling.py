"""Draws within graphs, equally likely; substructures and contexts against plain searches."""

from collections import Counter
from itertools import pairwise
from math import comb

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoder_support import batch_for, edges_of, offsets, one_way, seeded, with_edges
from graphlog.data.store import GraphBatch
from graphlog.views.sampling import (
    choose_rows,
    context_views,
    draw_numbers,
    edge_pairs,
    non_edges,
    random_nodes,
    rings,
)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6), st.integers(0, 99))
def test_numbers_are_different_and_in_range(pairs: list[tuple[int, int]], seed: int):
    counts = torch.tensor([min(a, b) for a, b in pairs], dtype=torch.long)
    totals = torch.tensor([max(a, b) for a, b in pairs], dtype=torch.long)
    number, graph = draw_numbers(counts, totals, seeded(seed))
    assert torch.bincount(graph, minlength=len(pairs)).tolist() == counts.tolist()
    assert len({(int(g), int(n)) for g, n in zip(graph, number, strict=True)}) == number.shape[0]
    assert bool(((number >= 0) & (number < totals[graph])).all())


def test_every_subset_is_equally_likely():
    for count, total in ((2, 6), (4, 6), (1, 3)):
        runs = 600 * comb(total, count)
        counts, totals = torch.full((runs,), count), torch.full((runs,), total)
        number, graph = draw_numbers(counts, totals, seeded())
        assert torch.equal(torch.bincount(graph), counts)
        subsets = number[graph.argsort(stable=True)].view(runs, count).sort(dim=1).values
        seen = Counter(map(tuple, subsets.tolist()))
        assert len(seen) == comb(total, count)
        assert all(abs(n - 600) < 5 * 600**0.5 for n in seen.values())


def test_rows_are_chosen_among_the_allowed():
    ptr, counts = offsets([5, 0, 4, 3]), torch.tensor([2, 3, 0, 9])
    allowed = torch.tensor([1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 0]).bool()
    group = torch.tensor([0] * 5 + [2] * 4 + [3] * 3)
    chosen = choose_rows(group, ptr, counts, seeded(), allowed)
    assert not (chosen & ~allowed).any()
    assert [int(chosen[a:b].sum()) for a, b in pairwise(ptr)] == [2, 0, 0, 1]


def test_random_nodes_lie_in_their_graph():
    ptr = offsets([3, 1, 4])
    drawn = torch.stack([random_nodes(ptr, seeded(k)) for k in range(200)])
    assert [set(column.tolist()) for column in drawn.T] == [{0, 1, 2}, {3}, {4, 5, 6, 7}]


def test_every_undirected_edge_once():
    batch = batch_for()
    pairs = edge_pairs(batch).T.tolist()
    assert {frozenset(p) for p in pairs} == {frozenset(p) for p in edges_of(batch)}
    assert len(pairs) == batch.num_edges // 2
    shuffled = with_edges(batch, torch.randperm(batch.num_edges, generator=seeded()))
    assert {frozenset(p) for p in edge_pairs(shuffled).T.tolist()} == {frozenset(p) for p in pairs}


@pytest.mark.parametrize("batch", [batch_for(), one_way(batch_for())])
@pytest.mark.parametrize("share", [1.0, 99.0])
def test_non_edges_are_none_nor_their_reverse(batch: GraphBatch, share: float):
    edges = edges_of(batch) | {(b, a) for a, b in edges_of(batch)}
    ends = batch.batch[torch.tensor([a for a, _ in edges])]
    pairs_of = torch.bincount(ends, minlength=batch.num_graphs) // 2
    counts = (share * pairs_of).long()
    pairs = non_edges(batch, counts, seeded())
    graph = batch.batch[pairs[0]]
    assert not {tuple(p) for p in pairs.T.tolist()} & edges
    assert len({tuple(p) for p in pairs.T.tolist()}) == pairs.shape[1]
    assert bool((pairs[0] != pairs[1]).all())
    assert bool((batch.batch[pairs[1]] == graph).all())
    free = batch.sizes * (batch.sizes - 1) - 2 * pairs_of
    assert torch.bincount(graph, minlength=batch.num_graphs).equal(torch.minimum(counts, free))


def test_all_non_edges_are_equally_likely():
    batch = batch_for(sizes=[5, 7])
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(300):
        seen.update(map(tuple, non_edges(batch, torch.tensor([0, 3]), seeded(seed)).T.tolist()))
    nodes = range(5, 12)
    assert set(seen) == {(a, b) for a in nodes for b in nodes if a != b} - edges_of(batch)
    mean = 900 / len(seen)
    assert all(abs(n - mean) < 5 * mean**0.5 for n in seen.values())


def steps_from(batch: GraphBatch, root: int) -> dict[int, int]:
    graph = nx.Graph(edges_of(batch))
    return nx.single_source_shortest_path_length(graph, root) if root in graph else {root: 0}


@pytest.mark.parametrize(("hops", "inner", "outer"), [(3, 2, 5), (0, 1, 0), (2, 1, 2), (1, 0, 9)])
def test_views_hold_the_induced_subgraphs(hops: int, inner: int, outer: int):
    batch = batch_for()
    roots = random_nodes(batch.ptr, seeded(3))
    views = context_views(batch, roots, hops, inner, outer)
    inside, _ = rings(batch, roots, hops, inner, outer)
    number = 0
    for root, (first, end) in zip(roots.tolist(), pairwise(batch.ptr.tolist()), strict=True):
        steps = steps_from(batch, root)
        members = range(first, end)
        substructure = [v for v in members if hops == 0 or steps.get(v, 99) <= hops]
        context = [
            v for v in members if inner < steps.get(v, -1) and (outer == 0 or steps[v] <= outer)
        ]
        assert [v for v in members if inside[v]] == substructure
        anchors = [v for v in context if v in substructure]
        if not anchors:
            continue
        _check(views.substructure, number, batch, substructure)
        _check(views.context, number, batch, context)
        start = int(views.substructure.ptr[number])
        assert int(views.root[number]) == start + substructure.index(root)
        mine = (
            views.anchors[views.context.batch[views.anchors] == number] - views.context.ptr[number]
        )
        assert mine.tolist() == [context.index(v) for v in anchors]
        number += 1
    assert views.context.num_graphs == views.substructure.num_graphs == number


def _check(part: GraphBatch, number: int, batch: GraphBatch, nodes: list[int]) -> None:
    rows = slice(int(part.ptr[number]), int(part.ptr[number + 1]))
    assert part.x[rows].equal(batch.x[nodes])
    edges = {
        (a - rows.start, b - rows.start) for a, b in edges_of(part) if rows.start <= a < rows.stop
    }
    assert edges == {
        (nodes.index(a), nodes.index(b)) for a, b in edges_of(batch) if a in nodes and b in nodes
    }


def test_nothing_left_is_a_batch_of_no_graphs():
    batch = batch_for(sizes=[1, 2])
    views = context_views(batch, batch.ptr[:-1], 5, 4, 7)
    assert views.substructure.num_graphs == views.context.num_nodes == len(views.anchors) == 0
