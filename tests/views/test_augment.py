"""GraphCL's perturbations: what is kept, what is lost; subgraphs are connected and grow."""

import pytest
import torch

from encoder_support import EDGE_MASKED, NODE_MASKED, batch_for, edges_of, one_way, seeded
from graphlog.data.batch import GraphBatch
from graphlog.views.augment import AugmentConfig, augment, grow_subgraph, perturb_edges

SIZES = [20, 10, 1, 15, 4]


def _connected(nodes: set[int], edges: set[tuple[int, int]]) -> bool:
    seen, waiting = set(), [min(nodes)]
    while waiting:
        node = waiting.pop()
        seen.add(node)
        waiting += [b for a, b in edges if a == node and b in nodes and b not in seen]
    return seen == nodes


def _one(name: str, batch: GraphBatch, seed: int = 0, **settings) -> GraphBatch:
    schema = NODE_MASKED if batch.edge_attr.shape[1] == 2 else EDGE_MASKED
    return augment(batch, schema, [name], AugmentConfig.parse(settings), seeded(seed))


def test_none_changes_nothing() -> None:
    batch = batch_for(sizes=SIZES)
    assert _one("none", batch) is batch


def test_dropping_nodes() -> None:
    batch = batch_for(sizes=SIZES)
    assert _one("drop-nodes", batch).sizes.tolist() == [n - int(0.2 * n) for n in SIZES]
    assert _one("drop-nodes", batch, ratio=0.5).sizes.tolist() == [n - n // 2 for n in SIZES]


@pytest.mark.parametrize("seed", range(5))
def test_subgraphs_are_connected_and_have_the_size_asked_for(seed: int) -> None:
    batch = batch_for(sizes=SIZES)
    steps = torch.tensor([9, 3, 2, 0, 30])
    inside, edges = grow_subgraph(batch, steps, seeded(seed)), edges_of(batch)
    for graph, (size, more) in enumerate(zip(SIZES, steps.tolist(), strict=True)):
        nodes = set((inside & (batch.batch == graph)).nonzero()[:, 0].tolist())
        assert len(nodes) == min(size, more + 1)
        assert _connected(nodes, edges)


def test_the_released_walk_never_leaves_the_first_neighborhood() -> None:
    batch = batch_for(sizes=[30])

    def walked(seed: int, *way: str) -> list[int]:
        inside = grow_subgraph(batch, torch.tensor([12]), seeded(seed), *way)
        return inside.nonzero()[:, 0].tolist()

    assert max(len(walked(k)) for k in range(9)) == 13
    degree, edges = int(torch.bincount(batch.edge_index[0]).max()), edges_of(batch)
    for nodes in (walked(k, "first-neighbors") for k in range(9)):
        assert len(nodes) <= degree + 1
        assert any(all(v == c or (c, v) in edges for v in nodes) for c in nodes)


@pytest.mark.parametrize("how", ["rewire", "drop"])
def test_perturbed_edges(how: str) -> None:
    batch = batch_for(sizes=SIZES)
    found = _one("perturb-edges", batch, edge_perturbation=how, ratio=0.4)
    before, after = edges_of(batch), edges_of(found)
    assert {(b, a) for a, b in after} == after
    for graph in range(len(SIZES)):
        old = {e for e in before if batch.batch[e[0]] == graph}
        new = {e for e in after if batch.batch[e[0]] == graph}
        lost = 2 * int(0.4 * (len(old) // 2))
        assert len(old - new) == lost
        if how == "drop":
            assert new < old or not lost
        else:
            assert len(new - old) <= lost
            assert all(batch.batch[a] == batch.batch[b] and a != b for a, b in new)
    assert found.edge_attr.shape[0] == found.num_edges == len(after)
    if how == "rewire":
        dropped = _one("perturb-edges", batch, edge_perturbation="drop", ratio=0.4)
        assert len(after) > len(edges_of(dropped))


def test_rewired_edges_take_attributes_of_lost_ones() -> None:
    batch = batch_for(sizes=[12])
    attr = torch.arange(batch.num_edges // 2).repeat_interleave(2)[:, None].repeat(1, 2)
    batch = batch.with_attributes(edge_attr=attr)
    found = perturb_edges(batch, torch.tensor([True]), AugmentConfig(ratio=0.5), seeded())
    kinds = found.edge_attr[:, 0].tolist()
    assert kinds[0::2] == kinds[1::2]
    # no attribute twice: each comes from an edge of its own
    assert len(set(kinds[::2])) == len(kinds) // 2


@pytest.mark.parametrize("both", [0, 6])
def test_rewired_edges_of_one_direction_keep_to_one(both: int) -> None:
    batch = one_way(batch_for(sizes=[60, 50]), both)
    attr = torch.arange(batch.num_edges)[:, None].repeat(1, 2)
    batch = batch.with_attributes(edge_attr=attr)
    found = perturb_edges(batch, torch.tensor([True, True]), AugmentConfig(ratio=0.3), seeded())
    before, after = edges_of(batch), edges_of(found)
    assert len(after) == found.num_edges == batch.num_edges
    assert sum((b, a) in after for a, b in after) == both
    new = after - before
    assert new
    assert not any((b, a) in before for a, b in new)
    if both == 0:  # every attribute is still there, once
        assert sorted(found.edge_attr[:, 0].tolist()) == list(range(batch.num_edges))


@pytest.mark.parametrize("schema", [NODE_MASKED, EDGE_MASKED])
def test_masked_attributes(schema) -> None:
    batch = batch_for(schema, SIZES)
    found = _one("mask-attributes", batch)
    assert found.edge_index is batch.edge_index
    name = "x" if schema is NODE_MASKED else "edge_attr"
    changed = (getattr(found, name) != getattr(batch, name)).any(dim=1)
    assert 0 < int(changed.sum()) < len(changed)


def test_every_graph_draws_for_itself() -> None:
    batch = batch_for(sizes=[20] * 40)
    sizes = augment(
        batch, NODE_MASKED, ["none", "drop-nodes", "subgraph"], AugmentConfig(), seeded()
    ).sizes.tolist()
    assert set(sizes) == {20, 16, 5}


def test_graphs_without_edges_left_can_be_restored() -> None:
    batch = batch_for(sizes=[2, 3, 2, 10])
    bare = _one("subgraph", batch)
    assert bare.sizes.tolist() == [1, 1, 1, 3]
    assert _one("subgraph", batch, restore_edgeless=True).sizes.tolist() == [2, 3, 2, 3]
