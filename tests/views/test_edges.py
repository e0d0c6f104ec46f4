"""Pairs with and without an edge, against sets of tuples."""

from collections import Counter

import pytest
import torch

from graphlog.errors import ConfigError
from graphlog.views.edges import edge_pairs, mask_edges_around, non_edges
from objective_support import EDGE_MASKED, NODE_MASKED, SIZES, batch_for, edges_of, seeded


def test_every_undirected_edge_once() -> None:
    batch = batch_for()
    pairs = edge_pairs(batch).T.tolist()
    assert {frozenset(p) for p in pairs} == {frozenset(p) for p in edges_of(batch)}
    assert len(pairs) == batch.num_edges // 2
    shuffled = torch.randperm(batch.num_edges, generator=seeded())
    other = type(batch)(
        batch.x, batch.edge_index[:, shuffled], batch.edge_attr[shuffled], batch.batch, batch.ptr
    )
    assert {frozenset(p) for p in edge_pairs(other).T.tolist()} == {frozenset(p) for p in pairs}


def test_non_edges_are_none() -> None:
    batch = batch_for()
    counts = torch.bincount(batch.batch[batch.edge_index[0]], minlength=batch.num_graphs) // 2
    pairs, graph = non_edges(batch, counts, seeded())
    assert not {tuple(p) for p in pairs.T.tolist()} & edges_of(batch)
    assert len({tuple(p) for p in pairs.T.tolist()}) == pairs.shape[1]
    assert bool((pairs[0] != pairs[1]).all())
    assert bool((batch.batch[pairs] == graph).all())
    free = batch.sizes * (batch.sizes - 1) - 2 * counts
    assert torch.bincount(graph, minlength=batch.num_graphs).equal(torch.minimum(counts, free))


def test_all_non_edges_are_equally_likely() -> None:
    batch = batch_for(sizes=[5, 7])
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(300):
        seen.update(map(tuple, non_edges(batch, torch.tensor([0, 3]), seeded(seed))[0].T.tolist()))
    nodes = range(5, 12)
    assert set(seen) == {(a, b) for a in nodes for b in nodes if a != b} - edges_of(batch)
    mean = 900 / len(seen)
    assert all(abs(n - mean) < 5 * mean**0.5 for n in seen.values())


def test_edges_around_masked_nodes() -> None:
    batch, nodes = batch_for(), torch.tensor([2, 9, 17])
    masked, edge_idx = mask_edges_around(batch, NODE_MASKED, nodes)
    wanted = [
        k for k, (a, b) in enumerate(batch.edge_index.T.tolist()) if {a, b} & set(nodes.tolist())
    ]
    assert edge_idx.tolist() == wanted
    assert bool((masked.edge_attr[edge_idx] == torch.tensor(NODE_MASKED.edge_mask)).all())
    rest = torch.ones(batch.num_edges, dtype=torch.bool).index_fill(0, edge_idx, False)
    assert masked.edge_attr[rest].equal(batch.edge_attr[rest])


def test_a_schema_without_an_edge_mask_is_refused() -> None:
    from dataclasses import replace

    batch = batch_for(EDGE_MASKED, SIZES)
    with pytest.raises(ConfigError, match="edge_mask"):
        mask_edges_around(batch, replace(EDGE_MASKED, edge_mask=None), torch.tensor([0]))
