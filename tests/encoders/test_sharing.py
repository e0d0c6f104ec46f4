"""Equal environments computed once against every node computed by itself."""

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import graphlog
from encoder_support import (
    BARE,
    MIXED,
    NODE_MASKED,
    batch_for,
    encoder_for,
    make,
    offsets,
    random_batch,
    random_multigraphs,
    run_once,
    seeded,
)
from graphlog.data.store import GraphBatch
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import (
    EncoderConfig,
    GraphEncoder,
    NodeNorm,
    build_encoder,
    calibrate,
    with_settings,
)
from graphlog.encoders.layers import GIN
from graphlog.objectives import OBJECTIVES
from graphlog.ops import colors
from graphlog.ops.colors import color_classes
from graphlog.ops.dense import shared_moments
from graphlog.ops.sparse import build_adjacency
from ops.test_colors import colors_by_tuples
from store_support import collate

BACKBONES = ["gin", "gcn", "graphsage", "gat"]
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
"""Sums of some hundred numbers of size 1 in float64, through a few layers."""


def repeated(batch: GraphBatch, times: int = 3) -> GraphBatch:
    """The same graphs several times over, so that most environments are shared."""
    return collate([batch] * times)


def both_ways(encoder: GraphEncoder) -> tuple[GraphEncoder, GraphEncoder]:
    """The encoder in double precision, and one with the same weights that shares nothing."""
    shares = encoder.double()
    plain = with_settings(shares, sharing="off").double()
    return shares, plain.train(shares.training)


def classes_of(encoder: GraphEncoder, batch: GraphBatch) -> list[int]:
    """How many rows each layer computes, from the input on."""
    return [len(c.nodes) for c in encoder._classes(batch)]


def assert_same(shares: GraphEncoder, plain: GraphEncoder, batch: GraphBatch) -> None:
    """Compare embeddings, their gradients and what batch norms have seen."""
    weights = torch.randn(batch.num_nodes, shares.dim, dtype=torch.float64, generator=seeded(3))
    found: list[list[Tensor]] = []
    for encoder in (shares, plain):
        nodes, graphs = encoder(batch)
        loss = (nodes * weights).sum() + graphs.square().sum()
        gradients = torch.autograd.grad(loss, list(encoder.parameters()), materialize_grads=True)
        found.append([nodes, graphs, *gradients, *(b.double() for b in encoder.buffers())])
    for ours, theirs in zip(*found, strict=True):
        scale = theirs.detach().abs().max().clamp(min=1.0) if theirs.numel() else 1.0
        torch.testing.assert_close(ours / scale, theirs / scale, **CLOSE)


Drawn = tuple[list[int], list[int], list[tuple[int, int, int]]]


@st.composite
def multigraphs(draw: st.DrawFn) -> Drawn:
    """Directed edges at random among few kinds of nodes: loops, parallel edges, lonely nodes."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    edges: list[tuple[int, int, int]] = []
    for start, end in pairwise([0, *accumulate(sizes)]):
        node = st.integers(start, end - 1)
        edges += draw(st.lists(st.tuples(node, node, st.integers(0, 1)), max_size=8))
    kinds = draw(st.lists(st.integers(0, 1), min_size=sum(sizes), max_size=sum(sizes)))
    return sizes, kinds, edges


def packed(drawn: Drawn) -> GraphBatch:
    sizes, kinds, edges = drawn
    x = torch.tensor([[kind, 0] for kind in kinds])
    ends = torch.tensor([pair for *pair, _ in edges], dtype=torch.long).reshape(-1, 2)
    attributes = torch.tensor([[kind, 0] for *_, kind in edges], dtype=torch.long).reshape(-1, 2)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return GraphBatch(x, ends.T.contiguous(), attributes, batch, offsets(sizes))


@pytest.mark.parametrize("backbone", BACKBONES)
@given(drawn=multigraphs(), training=st.booleans())
def test_any_graphs(backbone: str, drawn: Drawn, training: bool):
    encoder = encoder_for(backbone=backbone, layers=3).train(training)
    assert_same(*both_ways(encoder), packed(drawn))


@pytest.mark.parametrize("jk", ["last", "concat", "max", "sum"])
@pytest.mark.parametrize("readout", ["mean", "sum", "max", "attention", "mean+center"])
def test_any_jumping_knowledge_and_readout(jk: str, readout: str):
    batch = repeated(batch_for())
    shares, plain = both_ways(encoder_for(jk=jk, readout=readout))
    assert max(classes_of(shares, batch)) <= batch.num_nodes / 3
    assert_same(shares, plain, batch)
    for layer in ("last", "jk"):
        torch.testing.assert_close(
            shares.embed_graphs(batch, layer), plain.embed_graphs(batch, layer), **CLOSE
        )


@pytest.mark.parametrize("backbone", BACKBONES)
def test_schemas_without_edge_attributes_and_with_numbers(backbone: str):
    for schema, shared in ((BARE, True), (MIXED, False)):
        batch = repeated(random_multigraphs(schema, [5, 9, 1, 14]))
        shares, plain = both_ways(encoder_for(schema, backbone))
        assert bool(classes_of(shares, batch)) is shared
        assert_same(shares, plain, batch)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.parametrize("backbone", ["gin", "gcn"])
def test_losses_and_gradients_of_every_objective(name: str, backbone: str):
    batch = repeated(batch_for())
    batch = replace(batch, y=batch.y.double())
    losses, gradients = [], []
    for encoder in both_ways(encoder_for(backbone=backbone)):
        found = run_once(make(name, encoder).double(), encoder, batch)
        found.total.backward()
        losses.append(found.total.detach())
        gradients.append([p.grad for p in encoder.parameters()])
    torch.testing.assert_close(losses[0], losses[1], **CLOSE)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("rounds", [0, 1, 3])
@given(drawn=multigraphs())
def test_classes_are_those_of_exact_keys(rounds: int, drawn: Drawn):
    twice = repeated(packed(drawn), 2)
    found = color_classes(twice.x, twice.edge_attr, twice.adjacency, rounds)[-1]
    wanted = colors_by_tuples(twice, rounds)
    numbers = {key: k for k, key in enumerate(dict.fromkeys(wanted))}
    assert found.inverse.tolist() == [numbers[key] for key in wanted]
    assert found.counts.tolist() == [wanted.count(key) for key in numbers]
    assert found.nodes.tolist() == [wanted.index(key) for key in numbers]


def test_degrees_of_neighbors_are_told_apart_where_a_layer_divides_by_them():
    """The ends of two paths have the same environment of radius 1, but not the same neighbors."""
    ends = torch.tensor([[0, 1, 2, 3, 3, 4], [1, 0, 3, 2, 4, 3]])
    edge_attr, x = torch.zeros(6, 0), torch.zeros(5, 1)
    alike = color_classes(x, edge_attr, build_adjacency(ends, 5), 1)[1]
    apart = color_classes(x, edge_attr, build_adjacency(ends, 5), 1, with_degrees=True)
    assert alike.inverse[0] == alike.inverse[2]
    assert apart[1].inverse[0] != apart[1].inverse[2]


def test_dropout_tells_copies_apart():
    batch = repeated(batch_for())
    encoder = encoder_for(layers=3, dropout=0.5)
    assert len(classes_of(encoder, batch)) == 2
    assert len(classes_of(encoder.eval(), batch)) == 4
    shares, plain = both_ways(encoder.train())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nodes = shares(batch).node_emb
        torch.manual_seed(0)
        torch.testing.assert_close(nodes, plain(batch).node_emb, **CLOSE)
    first, second, _ = nodes.chunk(3)
    assert not torch.equal(first, second)


def test_few_copies_are_not_looked_for_again():
    batch = random_batch([30], seed=1)
    batch = batch.with_attributes(x=torch.arange(30)[:, None].expand(-1, 2) % 120)
    assert classes_of(encoder_for(layers=3), batch) == []


def test_chance_collisions_are_noticed(monkeypatch: pytest.MonkeyPatch):
    """With one color for all, nodes whose attributes or degrees differ are not taken for copies."""
    batch = repeated(batch_for())
    monkeypatch.setattr(colors, "_mixed", torch.zeros_like)
    assert color_classes(batch.x, batch.edge_attr, batch.adjacency, 2) == []
    alike = torch.zeros_like(batch.x)
    assert len(color_classes(alike, batch.edge_attr, batch.adjacency, 2)) == 1


def test_bf16():
    batch, encoder = repeated(batch_for()), encoder_for()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        nodes, graphs = encoder(batch)
    (nodes.float().sum() + graphs.float().square().sum()).backward()
    full = encoder(batch).node_emb
    # 3 layers of products in 8 bits
    assert (nodes - full).abs().max() < 0.1 * full.abs().max()
    assert all(p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("look", [torch.no_grad, torch.inference_mode])
def test_a_look_without_gradients_cuts_none_and_has_none(look: Any):
    batch, encoder = repeated(batch_for()), encoder_for()
    encoding = encoder(batch)
    with look():
        assert not encoding.node_emb.isnan().any()
        unlearned = encoder(batch)
    assert torch.equal(unlearned.node_emb, encoding.node_emb)  # the same bits each time
    assert not unlearned.node_emb.requires_grad
    encoding.node_emb.sum().backward()
    assert all(p.grad is not None for p in encoder.node.parameters())


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("sharing", ["auto", "off"])
def test_training_on_a_batch_that_was_embedded(backbone: str, sharing: Any):
    batch = repeated(batch_for())
    encoder = encoder_for(backbone=backbone, sharing=sharing)
    with torch.inference_mode():
        encoder(batch)
    encoder(batch).graph_emb.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_gradients_are_those_of_the_statistics_that_were_used():
    """A single node is normalized by running statistics, which a later pass moves on."""
    norm = NodeNorm(3).double()
    row, rows = (torch.randn(n, 3, dtype=torch.float64, generator=seeded()) for n in (1, 5))
    row.requires_grad_()
    out = norm(row)
    (wanted,) = torch.autograd.grad(out.sum(), row, retain_graph=True)
    for counts in (None, torch.ones(5, dtype=torch.float64)):
        norm(rows, counts)
        (found,) = torch.autograd.grad(out.sum(), row, retain_graph=True)
        torch.testing.assert_close(found, wanted)


def test_layers_of_ones_own_declare_it(monkeypatch: pytest.MonkeyPatch):
    class Doubled(GIN):
        def forward(self, h: Tensor, neighborhood: Any) -> Tensor:
            return 2 * super().forward(h, neighborhood)

    class Tripled(GIN):
        shares_environments = True

        def forward(self, h: Tensor, neighborhood: Any) -> Tensor:
            return 3 * super().forward(h, neighborhood)

    class Undeclared:
        def forward(self, h: Tensor, neighborhood: Any) -> Tensor:
            return h

    class Mixed(Undeclared, GIN):
        pass

    assert not Doubled.shares_environments
    assert not Mixed.shares_environments
    batch = repeated(batch_for())
    for layer, shared in ((Doubled, 0), (Tripled, 3)):
        monkeypatch.setitem(LAYERS, "own", layer)
        config = EncoderConfig(backbone="own", layers=2, dim=8, batch_norm=False)
        encoder = GraphEncoder(config, NODE_MASKED)
        assert len(classes_of(encoder, batch)) == shared
        assert_same(*both_ways(encoder), batch)


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=7), seed=st.integers(0, 99))
def test_batch_norm_with_counts_is_that_of_the_repeated_rows(counts: list[int], seed: int):
    times = torch.tensor(counts)
    few = torch.randn(len(counts), 4, dtype=torch.float64, generator=seeded(seed)).requires_grad_()
    many = few.detach().clone().requires_grad_()
    pulls = torch.randn(int(times.sum()), 4, dtype=torch.float64, generator=seeded(seed + 1))
    ours, theirs = NodeNorm(4).double(), nn.BatchNorm1d(4).double()
    spread = ours(few, times.double()).repeat_interleave(times, dim=0)
    if len(pulls) == 1:  # no statistics of its own
        torch.testing.assert_close(spread, theirs.eval()(many))
        return
    repeated_rows = theirs(many.repeat_interleave(times, dim=0))
    torch.testing.assert_close(spread, repeated_rows)
    (spread * pulls).sum().backward()
    (repeated_rows * pulls).sum().backward()
    torch.testing.assert_close(few.grad, many.grad, rtol=1e-6, atol=1e-8)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))
    for mine, plain in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, plain.grad)


def test_moments_are_not_rounded_under_autocast():
    rows = (torch.randn(500, 3, generator=seeded()) + 3).bfloat16()
    counts = torch.randint(1, 9, (500,), generator=seeded(1)).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        moments = shared_moments(rows, counts)
    repeated = rows.double().repeat_interleave(counts.long(), dim=0)
    torch.testing.assert_close(moments.mean.double(), repeated.mean(0), rtol=1e-5, atol=0)
    variance = repeated.var(0, correction=0)
    torch.testing.assert_close(moments.variance.double(), variance, rtol=1e-5, atol=0)


def test_calibration_is_the_same():
    graphs = graphlog.read_molecules(["CCO", "c1ccccc1C", "CCN", "CC(=O)O"] * 8, schema="molecule")
    config = EncoderConfig(layers=2, dim=8)
    shares, plain = both_ways(build_encoder(config, graphs.schema))
    for encoder in (shares, plain):
        calibrate(encoder, graphs)
    for ours, theirs in zip(shares.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)
