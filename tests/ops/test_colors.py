"""Color refinement against a dictionary of nested tuples, and on graphs of known symmetry."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoder_support import EDGE_MASKED, NODE_MASKED, encoder_for, random_batch, seeded
from graphlog.data.store import GraphBatch
from graphlog.ops.colors import refine_colors
from graphlog.ops.sparse import build_adjacency


def colors_by_tuples(batch: GraphBatch, rounds: int) -> list[int]:
    """Weisfeiler-Leman, one node at a time: a color is everything seen so far."""
    label = [tuple(row) for row in batch.edge_attr.tolist()]
    color = {v: tuple(row) for v, row in enumerate(batch.x.tolist())}
    ends = batch.edge_index.T.tolist()
    for _ in range(rounds):
        seen = {v: [] for v in color}
        for (u, v), kind in zip(ends, label, strict=True):
            seen[v].append((color[u], kind))
        names: dict[object, int] = {}
        color = {
            v: (names.setdefault((color[v], tuple(sorted(seen[v]))), len(names)),) for v in color
        }
    return [color[v] for v in range(batch.num_nodes)]


@pytest.mark.parametrize("schema", [NODE_MASKED, EDGE_MASKED], ids=["codes", "numbers"])
@given(sizes=st.lists(st.integers(1, 14), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_nodes_share_a_color_where_the_definition_says_so(
    schema: object, sizes: list[int], seed: int
):
    batch = random_batch(sizes, seed, schema)
    for rounds in (0, 1, 4):
        colors = refine_colors(batch.x, batch.edge_attr, batch.adjacency, rounds).tolist()
        pairs = set(zip(colors, colors_by_tuples(batch, rounds), strict=True))
        names, wanted = zip(*pairs, strict=True)  # one of each belongs to one of the other
        assert len(pairs) == len(set(names)) == len(set(wanted))


def test_numbering_does_not_matter():
    batch = random_batch([12])
    order = torch.randperm(12, generator=seeded())
    place = order.argsort()
    shuffled = torch.randperm(batch.num_edges, generator=seeded(1))
    adjacency = build_adjacency(place[batch.edge_index][:, shuffled], 12)
    renumbered = refine_colors(batch.x[order], batch.edge_attr[shuffled], adjacency, 3)
    plain = refine_colors(batch.x, batch.edge_attr, batch.adjacency, 3)
    assert torch.equal(renumbered, plain[order])


@pytest.mark.parametrize("backbone", ["gin", "gcn", "graphsage", "gat"])
def test_equal_colors_are_equal_embeddings(backbone: str):
    """With as many rounds as the encoder has layers, it cannot tell two such nodes apart."""
    batch = random_batch([20, 15, 9], seed=4)
    batch = batch.with_attributes(x=torch.zeros_like(batch.x))
    encoder = encoder_for(NODE_MASKED, backbone, layers=2).double().eval()
    emb = encoder(batch).node_emb.detach()
    rounds, degrees = len(encoder.layers), encoder.needs_degrees
    colors = refine_colors(batch.x, batch.edge_attr, batch.adjacency, rounds, degrees)
    same = colors[:, None] == colors[None, :]
    assert same.sum() > batch.num_nodes
    distance = torch.cdist(emb, emb)
    assert distance[same].max() < 1e-6 < distance[~same].min()


def test_zeros_of_both_signs_are_equal():
    x, adjacency = (
        torch.tensor([[0.0], [-0.0], [1.0]]),
        build_adjacency(torch.empty(2, 0).long(), 3),
    )
    colors = refine_colors(x, torch.empty(0, 0), adjacency, 2)
    assert colors[0] == colors[1] != colors[2]
