"""Colour refinement against a dictionary of nested tuples, and on graphs of known symmetry."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphlog.data.batch import GraphBatch
from graphlog.ops.colours import refine_colours
from graphlog_support import EDGE_MASKED, NODE_MASKED, random_batch, seeded, small_encoder


def colours_by_tuples(batch: GraphBatch, rounds: int) -> list[int]:
    """Weisfeiler-Leman, one node at a time: a colour is everything seen so far."""
    label = [tuple(row) for row in batch.edge_attr.tolist()]
    colour = {v: tuple(row) for v, row in enumerate(batch.x.tolist())}
    ends = batch.edge_index.T.tolist()
    for _ in range(rounds):
        seen = {v: [] for v in colour}
        for (u, v), kind in zip(ends, label, strict=True):
            seen[v].append((colour[u], kind))
        names: dict[object, int] = {}
        colour = {
            v: (names.setdefault((colour[v], tuple(sorted(seen[v]))), len(names)),) for v in colour
        }
    return [colour[v] for v in range(batch.num_nodes)]


@pytest.mark.parametrize("schema", [NODE_MASKED, EDGE_MASKED], ids=["codes", "numbers"])
@given(sizes=st.lists(st.integers(1, 14), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_nodes_share_a_colour_where_the_definition_says_so(
    schema: object, sizes: list[int], seed: int
) -> None:
    batch = random_batch(sizes, seed, schema)
    for rounds in (0, 1, 4):
        colours = refine_colours(batch.x, batch.edge_index, batch.edge_attr, rounds).tolist()
        wanted = colours_by_tuples(batch, rounds)
        same = {(a, b) for a in range(len(wanted)) for b in range(a) if wanted[a] == wanted[b]}
        assert {
            (a, b) for a in range(len(wanted)) for b in range(a) if colours[a] == colours[b]
        } == same


def test_numbering_does_not_matter() -> None:
    batch = random_batch([12])
    order = torch.randperm(12, generator=seeded())
    place = order.argsort()
    shuffled = torch.randperm(batch.num_edges, generator=seeded(1))
    renumbered = refine_colours(
        batch.x[order], place[batch.edge_index][:, shuffled], batch.edge_attr[shuffled], 3
    )
    assert torch.equal(
        renumbered, refine_colours(batch.x, batch.edge_index, batch.edge_attr, 3)[order]
    )


def test_equal_colours_are_equal_embeddings() -> None:
    """With as many rounds as the encoder has layers, it cannot tell two such nodes apart."""
    batch = random_batch([20, 15, 9], seed=4)
    batch = batch.with_attributes(x=torch.zeros_like(batch.x))
    encoder = small_encoder().double().eval()
    emb = encoder(batch).node_emb.detach()
    colours = refine_colours(batch.x, batch.edge_index, batch.edge_attr, len(encoder.layers))
    same = colours[:, None] == colours[None, :]
    assert same.sum() > batch.num_nodes
    distance = torch.cdist(emb, emb)
    assert distance[same].max() < 1e-6 < distance[~same].min()


def test_zeros_of_both_signs_are_equal() -> None:
    x = torch.tensor([[0.0], [-0.0], [1.0]])
    colours = refine_colours(x, torch.empty(2, 0, dtype=torch.long), torch.empty(0, 0), 2)
    assert colours[0] == colours[1] != colours[2]
