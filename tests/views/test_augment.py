"""What perturbations and masks keep, hide and lose; subgraphs are connected and grow."""

import dataclasses

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoder_support import (
    EDGE_MASKED,
    NODE_MASKED,
    batch_for,
    edges_of,
    random_batch,
    seeded,
    with_edges,
)
from graphlog.data.graphs import Attribute, FeatureSchema
from graphlog.data.store import GraphBatch
from graphlog.errors import ConfigError
from graphlog.views.augment import (
    AugmentConfig,
    augment,
    grow_subgraph,
    mask_attributes,
    mask_edges_around,
)
from graphlog.views.sampling import undirected_pairs

SIZES = [20, 10, 1, 15, 4]


def _one(name: str, batch: GraphBatch, seed: int = 0, **settings) -> GraphBatch:
    schema = NODE_MASKED if batch.edge_attr.shape[1] == 2 else EDGE_MASKED
    return augment(batch, schema, [name], AugmentConfig.parse(settings), seeded(seed))


def test_dropping_nodes_or_nothing():
    batch = batch_for(sizes=SIZES)
    assert _one("none", batch) is batch
    assert _one("drop-nodes", batch).sizes.tolist() == [n - int(0.2 * n) for n in SIZES]
    assert _one("drop-nodes", batch, ratio=0.5).sizes.tolist() == [n - n // 2 for n in SIZES]


@pytest.mark.parametrize("seed", range(5))
def test_subgraphs_are_connected_and_have_the_size_asked_for(seed: int):
    batch = batch_for(sizes=SIZES)
    steps = torch.tensor([9, 3, 2, 0, 30])
    inside, whole = grow_subgraph(batch, steps, seeded(seed)), nx.Graph(edges_of(batch))
    whole.add_nodes_from(range(batch.num_nodes))
    for graph, (size, more) in enumerate(zip(SIZES, steps.tolist(), strict=True)):
        nodes = (inside & (batch.batch == graph)).nonzero()[:, 0].tolist()
        assert len(nodes) == min(size, more + 1)
        assert nx.is_connected(whole.subgraph(nodes))


def test_the_released_walk_never_leaves_the_first_neighborhood():
    batch = batch_for(sizes=[30])

    def walked(seed: int, *way: str) -> list[int]:
        inside = grow_subgraph(batch, torch.tensor([12]), seeded(seed), *way)
        return inside.nonzero()[:, 0].tolist()

    assert max(len(walked(k)) for k in range(9)) == 13
    degree, edges = int(torch.bincount(batch.edge_index[0]).max()), edges_of(batch)
    for nodes in (walked(k, "first-neighbors") for k in range(9)):
        assert len(nodes) <= degree + 1
        assert any(all(v == c or (c, v) in edges for v in nodes) for c in nodes)


def test_dropped_edges():
    batch = batch_for(sizes=SIZES)
    found = _one("drop-edges", batch, ratio=0.4)
    before, after = edges_of(batch), edges_of(found)
    assert {(b, a) for a, b in after} == after
    for graph in range(len(SIZES)):
        old = {e for e in before if batch.batch[e[0]] == graph}
        new = {e for e in after if batch.batch[e[0]] == graph}
        assert new <= old
        assert len(old - new) == 2 * int(0.4 * (len(old) // 2))
    assert found.edge_attr.shape[0] == found.num_edges == len(after)


@pytest.mark.parametrize("schema", [NODE_MASKED, EDGE_MASKED])
def test_masked_attributes(schema):
    batch = batch_for(schema, SIZES)
    found = _one("mask-attributes", batch)
    assert found.edge_index is batch.edge_index
    name = "x" if schema is NODE_MASKED else "edge_attr"
    changed = (getattr(found, name) != getattr(batch, name)).any(dim=1)
    assert 0 < int(changed.sum()) < len(changed)
    mask = schema.node_mask or schema.edge_mask
    assert (getattr(found, name)[changed] == torch.tensor(mask)).all()
    if schema is EDGE_MASKED:  # both directions together
        assert torch.equal(changed[0::2], changed[1::2])


def test_every_graph_draws_for_itself():
    ways = ["none", "drop-nodes", "subgraph"]
    found = augment(batch_for(sizes=[20] * 40), NODE_MASKED, ways, AugmentConfig(), seeded())
    assert set(found.sizes.tolist()) == {20, 16, 5}


def test_graphs_without_edges_left_can_be_restored():
    batch = batch_for(sizes=[2, 3, 2, 10])
    bare = _one("subgraph", batch)
    assert bare.sizes.tolist() == [1, 1, 1, 3]
    assert _one("subgraph", batch, restore_edgeless=True).sizes.tolist() == [2, 3, 2, 3]


sizes_of_graphs = st.lists(st.integers(1, 14), min_size=1, max_size=8)


@given(sizes_of_graphs, st.floats(0, 0.95), st.integers(0, 10_000))
def test_nodes_masked_in_every_graph(sizes: list[int], rate: float, seed: int):
    batch = random_batch(sizes, seed)
    before = batch.x.clone()
    view = mask_attributes(batch, NODE_MASKED, rate, seeded(seed))
    assert torch.equal(batch.x, before)
    for name in ("edge_index", "edge_attr", "adjacency"):
        assert getattr(view.batch, name) is getattr(batch, name)
    masked = torch.bincount(batch.batch[view.node_idx], minlength=len(sizes))
    assert masked.tolist() == [int(rate * n + 1) for n in sizes]
    assert view.node_idx.unique().numel() == view.node_idx.numel()
    assert (view.batch.x[view.node_idx] == torch.tensor([119, 4])).all()
    kept = torch.ones(batch.num_nodes, dtype=torch.bool).index_fill(0, view.node_idx, False)
    assert torch.equal(view.batch.x[kept], batch.x[kept])
    assert view.edge_idx.numel() == 0


@given(sizes_of_graphs, st.floats(0, 0.95), st.integers(0, 10_000))
def test_edges_masked_in_every_graph(sizes: list[int], rate: float, seed: int):
    batch = random_batch(sizes, seed, EDGE_MASKED)
    view = mask_attributes(batch, EDGE_MASKED, rate, seeded(seed))
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=len(sizes)) // 2
    masked = torch.bincount(batch.batch[batch.edge_index[0, view.edge_idx]], minlength=len(sizes))
    assert masked.tolist() == [2 * int(rate * m + 1) if m else 0 for m in edges.tolist()]
    assert torch.equal(view.edge_idx[0::2] + 1, view.edge_idx[1::2])  # both directions
    assert (view.batch.edge_attr[view.edge_idx] == torch.tensor([0.0, 0.0, 0.0, 1.0])).all()
    assert torch.equal(view.node_idx, batch.edge_index[:, view.edge_idx].unique())


def test_every_node_is_equally_likely():
    """3 of 10 nodes + 1, 4000 times: each node's count is within 6 SD (false alarm 2e-8)."""
    batch = random_batch([10] * 200)
    masked = [mask_attributes(batch, NODE_MASKED, 0.3, seeded(n)).node_idx for n in range(20)]
    counts = torch.bincount(torch.cat(masked) % 10, minlength=10).double()
    assert ((counts - 1600).abs() < 6 * (4000 * 0.4 * 0.6) ** 0.5).all()


def test_first_column_only_of_edges_is_their_mask_channel():
    batch = random_batch([6, 5], schema=EDGE_MASKED)
    every, first = (
        mask_attributes(batch, EDGE_MASKED, 0.3, seeded(), columns=columns).batch.edge_attr
        for columns in ("all", "first")
    )
    assert torch.equal(every, first)


@pytest.mark.parametrize(
    ("cardinalities", "mask", "first"),
    [
        ((120, 5), (119, 4), (119, 0)),
        ((0, 3, 3), (1.5, 2, 2), (1.5, 2, 0)),  # a masked number is the mean
        ((0, 0), (0, 0), (0, 0)),
    ],
)
def test_first_column_only_of_nodes_is_their_first_category(
    cardinalities: tuple[int, ...], mask: tuple[float, ...], first: tuple[float, ...]
):
    node = tuple(Attribute(f"a{k}", codes) for k, codes in enumerate(cardinalities))
    assert FeatureSchema("s", "graph", node, (), "node", mask).mask_row("first") == first


def test_edges_in_any_order_are_paired():
    batch = random_batch([6, 5, 7], schema=EDGE_MASKED)
    shuffled = with_edges(batch, torch.randperm(batch.num_edges, generator=seeded(4)))
    pair, graph = undirected_pairs(shuffled)
    assert graph.numel() == batch.num_edges // 2
    for p in range(graph.numel()):
        ends = shuffled.edge_index[:, pair == p]
        assert ends.shape == (2, 2)
        assert torch.equal(ends[:, 0], ends[:, 1].flip(0))
    view = mask_attributes(shuffled, EDGE_MASKED, 0.3, seeded(1))
    assert torch.bincount(pair[view.edge_idx]).unique().tolist() in ([0, 2], [2])


def test_what_cannot_be_masked_is_said():
    without = dataclasses.replace(NODE_MASKED, node_mask=None, edge_mask=None)
    with pytest.raises(ConfigError, match="`node_mask`"):
        mask_attributes(random_batch([4]), without, 0.3, seeded())
    with pytest.raises(ConfigError, match="edge_mask"):
        mask_edges_around(random_batch([4]), without, torch.tensor([0]))


def test_the_released_walk_takes_as_many_neighbors_as_it_may():
    batch = batch_for(sizes=[30])
    edges = edges_of(batch)
    for seed in range(9):
        inside = grow_subgraph(batch, torch.tensor([2]), seeded(seed), "first-neighbors")
        few = [c for c in range(30) if inside[c] and sum(a == c for a, _ in edges) < 2]
        assert int(inside.sum()) == 3 or few
