"""Attribute masking: what is hidden, how much, and what stays."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoder_support import EDGE_MASKED, NODE_MASKED, batch_for, random_batch, seeded
from graphlog.data.batch import GraphBatch
from graphlog.errors import ConfigError
from graphlog.views.augment import mask_attributes, mask_edges_around
from graphlog.views.sampling import undirected_pairs

sizes_of_graphs = st.lists(st.integers(1, 14), min_size=1, max_size=8)


@given(sizes_of_graphs, st.floats(0, 0.95), st.integers(0, 10_000))
def test_nodes_masked_in_every_graph(sizes: list[int], rate: float, seed: int) -> None:
    batch = random_batch(sizes, seed)
    view = mask_attributes(batch, NODE_MASKED, rate, seeded(seed))
    assert torch.bincount(batch.batch[view.node_idx], minlength=len(sizes)).tolist() == [
        int(rate * n + 1) for n in sizes
    ]
    assert view.node_idx.unique().numel() == view.node_idx.numel()
    assert (view.batch.x[view.node_idx] == torch.tensor([119, 4])).all()
    kept = torch.ones(batch.num_nodes, dtype=torch.bool).index_fill(0, view.node_idx, False)
    assert torch.equal(view.batch.x[kept], batch.x[kept])
    assert view.edge_idx.numel() == 0


@given(sizes_of_graphs, st.floats(0, 0.95), st.integers(0, 10_000))
def test_edges_masked_in_every_graph(sizes: list[int], rate: float, seed: int) -> None:
    batch = random_batch(sizes, seed, EDGE_MASKED)
    view = mask_attributes(batch, EDGE_MASKED, rate, seeded(seed))
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=len(sizes)) // 2
    masked = torch.bincount(batch.batch[batch.edge_index[0, view.edge_idx]], minlength=len(sizes))
    assert masked.tolist() == [2 * int(rate * m + 1) if m else 0 for m in edges.tolist()]
    assert torch.equal(view.edge_idx[0::2] + 1, view.edge_idx[1::2]), (
        "both directions of an edge are masked together"
    )
    assert (view.batch.edge_attr[view.edge_idx] == torch.tensor([0.0, 0.0, 0.0, 1.0])).all()
    assert view.node_idx.tolist() == sorted(
        set(batch.edge_index[:, view.edge_idx].flatten().tolist())
    )


@given(sizes_of_graphs, st.integers(0, 10_000))
def test_topology_and_the_clean_graphs_stay(sizes: list[int], seed: int) -> None:
    batch = random_batch(sizes, seed)
    before = batch.x.clone()
    view = mask_attributes(batch, NODE_MASKED, 0.3, seeded(seed)).batch
    assert torch.equal(batch.x, before)
    assert view.edge_index is batch.edge_index
    assert view.edge_attr is batch.edge_attr
    assert view.adjacency is batch.adjacency


def test_every_node_is_equally_likely() -> None:
    """3 of 10 nodes + 1, 4000 times: each node's count is within 6 SD (false alarm 2e-8)."""
    batch = random_batch([10] * 200)
    masked = [mask_attributes(batch, NODE_MASKED, 0.3, seeded(n)).node_idx for n in range(20)]
    counts = torch.bincount(torch.cat(masked) % 10, minlength=10).double()
    assert ((counts - 1600).abs() < 6 * (4000 * 0.4 * 0.6) ** 0.5).all()


def test_first_column_only_leaves_code_0_elsewhere() -> None:
    batch = random_batch([5, 6])
    view = mask_attributes(batch, NODE_MASKED, 0.3, seeded(), columns="first")
    assert (view.batch.x[view.node_idx] == torch.tensor([119, 0])).all()


def test_first_column_only_of_edges_is_their_mask_channel() -> None:
    batch = random_batch([6, 5], schema=EDGE_MASKED)
    both = [
        mask_attributes(batch, EDGE_MASKED, 0.3, seeded(), columns=columns).batch.edge_attr
        for columns in ("all", "first")
    ]
    assert torch.equal(*both)


def test_edges_in_any_order_are_paired() -> None:
    batch = random_batch([6, 5, 7], schema=EDGE_MASKED)
    order = torch.randperm(batch.num_edges, generator=seeded(4))
    shuffled = GraphBatch(
        batch.x, batch.edge_index[:, order], batch.edge_attr[order], batch.batch, batch.ptr
    )
    pair, graph = undirected_pairs(shuffled)
    assert graph.numel() == batch.num_edges // 2
    for p in range(graph.numel()):
        ends = shuffled.edge_index[:, pair == p]
        assert ends.shape == (2, 2)
        assert torch.equal(ends[:, 0], ends[:, 1].flip(0))
    view = mask_attributes(shuffled, EDGE_MASKED, 0.3, seeded(1))
    assert torch.bincount(pair[view.edge_idx]).unique().tolist() in ([0, 2], [2])


def test_what_cannot_be_masked_is_said() -> None:
    without = dataclasses.replace(NODE_MASKED, node_mask=None, edge_mask=None)
    with pytest.raises(ConfigError, match="`node_mask`"):
        mask_attributes(random_batch([4]), without, 0.3, seeded())
    with pytest.raises(ConfigError, match="edge_mask"):
        mask_edges_around(random_batch([4]), without, torch.tensor([0]))


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
