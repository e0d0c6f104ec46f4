"""Substructures and contexts against a breadth-first search in plain Python."""

from collections import deque

import pytest
import torch

from encoder_support import batch_for, edges_of, seeded
from graphlog.data.batch import GraphBatch
from graphlog.views.sampling import context_views, distances, random_nodes, rings


def steps_from(batch: GraphBatch, root: int) -> dict[int, int]:
    """Breadth-first search, one node at a time."""
    found, waiting = {root: 0}, deque([root])
    while waiting:
        node = waiting.popleft()
        for a, b in edges_of(batch):
            if a == node and b not in found:
                found[b] = found[node] + 1
                waiting.append(b)
    return found


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_distances(limit: int) -> None:
    batch = batch_for()
    roots = random_nodes(batch.ptr, seeded(2))
    found = distances(batch, roots, limit)
    wanted = torch.full_like(found, -1)
    for root in roots.tolist():
        for node, steps in steps_from(batch, root).items():
            wanted[node] = steps if limit == 0 or steps <= limit else -1
    assert found.equal(wanted)


@pytest.mark.parametrize(("hops", "inner", "outer"), [(3, 2, 5), (0, 1, 0), (2, 1, 2), (1, 0, 9)])
def test_views_hold_the_induced_subgraphs(hops: int, inner: int, outer: int) -> None:
    batch = batch_for()
    roots = random_nodes(batch.ptr, seeded(3))
    views = context_views(batch, roots, hops, inner, outer)
    inside, _ = rings(batch, roots, hops, inner, outer)
    number = 0
    for graph, root in enumerate(roots.tolist()):
        steps = steps_from(batch, root)
        members = range(int(batch.ptr[graph]), int(batch.ptr[graph + 1]))
        substructure = [v for v in members if hops == 0 or steps.get(v, 99) <= hops]
        context = [
            v for v in members if inner < steps.get(v, -1) and (outer == 0 or steps[v] <= outer)
        ]
        assert inside[list(members)].nonzero().squeeze(1).tolist() == [
            v - members[0] for v in substructure
        ]
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


def test_nothing_left_is_a_batch_of_no_graphs() -> None:
    batch = batch_for(sizes=[1, 2])
    views = context_views(batch, batch.ptr[:-1], 5, 4, 7)
    assert views.substructure.num_graphs == views.context.num_nodes == len(views.anchors) == 0
