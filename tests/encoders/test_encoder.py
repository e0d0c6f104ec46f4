"""What every encoder promises, for every backbone, also of one's own, and kind of schema."""

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GINEConv, TransformerConv

from encoder_support import SCHEMAS, encoder_for, random_multigraphs, seeded, with_edges
from graphlog.data.graphs import FeatureSchema
from graphlog.data.store import GraphBatch
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EncoderConfig, GraphEncoder, MessagePassing, build_encoder
from graphlog.encoders.layers import PyGLayer
from graphlog.encoders.legacy import MOLECULE, PROTEIN
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.errors import DataError
from store_support import collate

BACKBONES = list(LAYERS)
EVERY = list(product(BACKBONES, SCHEMAS))


def small(backbone: str = "gin", schema: str = "molecule", **settings: object) -> GraphEncoder:
    """A small encoder whose running statistics are not those of a fresh one."""
    encoder = encoder_for(SCHEMAS[schema], backbone, 8, **settings)
    encoder(random_multigraphs(SCHEMAS[schema], [4, 6], seed=5))
    return encoder


def permuted(batch: GraphBatch, order: Tensor) -> GraphBatch:
    """The same graphs with nodes in another order (within graphs) and edges in another order."""
    edges = order.argsort()[batch.edge_index]
    moved = GraphBatch(batch.x[order], edges, batch.edge_attr, batch.batch, batch.ptr)
    return with_edges(moved, torch.randperm(batch.num_edges))


@pytest.mark.parametrize(("backbone", "schema"), EVERY)
def test_shapes_and_a_gradient_for_every_parameter(backbone: str, schema: str):
    encoder = small(backbone, schema)
    node_emb, graph_emb = encoder(random_multigraphs(SCHEMAS[schema], [3, 5, 1]))
    assert (node_emb.shape, graph_emb.shape) == ((9, 8), (3, 8))
    encoder.zero_grad()
    (graph_emb * torch.randn(3, 8)).sum().backward()
    # a softmax may cancel the bias of a score, and whatever all scores share
    cancelled = ("att", "lin_", "bias")
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        may_cancel = any(part in name for part in cancelled) or parameter.numel() == 0
        assert may_cancel or parameter.grad.any(), name


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("schema", ["molecule", "protein"])
def test_permutation_equivariance(backbone: str, schema: str):
    encoder = small(backbone, schema).double().eval()
    batch = random_multigraphs(SCHEMAS[schema], [5, 7])
    order = torch.cat([torch.randperm(5), 5 + torch.randperm(7)])
    ours, theirs = encoder(batch), encoder(permuted(batch, order))
    torch.testing.assert_close(theirs.node_emb, ours.node_emb[order])
    torch.testing.assert_close(theirs.graph_emb, ours.graph_emb)


@pytest.mark.parametrize("readout", ["mean", "sum", "max", "attention"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_packed_equals_one_by_one(backbone: str, readout: str):
    encoder = small(backbone, readout=readout).double().eval()
    parts = [random_multigraphs(MOLECULE, [n], seed=n) for n in (1, 4, 6)]
    packed = encoder(collate(parts))
    torch.testing.assert_close(packed.node_emb, torch.cat([encoder(p).node_emb for p in parts]))
    torch.testing.assert_close(packed.graph_emb, torch.cat([encoder(p).graph_emb for p in parts]))


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("training", [False, True])
def test_one_node_without_edges(backbone: str, training: bool):
    encoder = small(backbone).train(training)
    before = {k: v.clone() for k, v in encoder.named_buffers()}
    encoding = encoder(random_multigraphs(MOLECULE, [1]))
    assert encoding.graph_emb.isfinite().all()
    encoding.graph_emb.sum().backward()
    # a single node has no statistics to add
    assert all(torch.equal(v, before[k]) for k, v in encoder.named_buffers())


@pytest.mark.parametrize("schema", ["molecule", "protein"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_bf16_is_close(backbone: str, schema: str):
    encoder = small(backbone, schema)
    batch = random_multigraphs(SCHEMAS[schema], [6, 9, 4])
    exact = encoder(batch).graph_emb
    with torch.autocast("cpu", dtype=torch.bfloat16):
        short = encoder(batch).graph_emb
        loss = short.float().square().mean()
    loss.backward()
    assert all(v.dtype == torch.float32 for k, v in encoder.state_dict().items() if "running" in k)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in encoder.parameters())
    assert float((short.float() - exact).detach().norm() / exact.detach().norm()) < 0.05


def test_the_domain_settles_the_family():
    for schema, mode, normed in (("molecule", "add", 2), ("protein", "concat", 0)):
        encoder = small(schema=schema)
        assert (encoder.config.layer.edge_mode, len(encoder.norms)) == (mode, normed)
        assert encoder.config.batch_norm == bool(normed)
    mixed = small(schema="protein", layer={"edge_mode": "add"}, batch_norm=True)
    assert (mixed.config.layer.edge_mode, len(mixed.norms)) == ("add", 2)


@pytest.mark.parametrize(("jk", "width"), [("last", 8), ("concat", 24), ("max", 8), ("sum", 8)])
def test_widths(jk: str, width: int):
    encoder = small(jk=jk, readout="attention")
    batch = random_multigraphs(MOLECULE, [3, 2])
    assert encoder.dim == encoder.embedding_width("last") == width
    assert encoder(batch).graph_emb.shape == (2, width)
    assert encoder.embed_graphs(batch, "last").shape == (2, width)
    assert encoder.embed_graphs(batch, "jk").shape == (2, encoder.embedding_width("jk")) == (2, 25)


def test_jk_embedding_is_means_and_size():
    encoder = small().eval()
    batch = random_multigraphs(MOLECULE, [3, 2])
    outputs = encoder.encode_layers(batch)[1]
    assert len(outputs) == 3
    means = [torch.stack([h[:3].mean(0), h[3:].mean(0)]) for h in outputs]
    expected = torch.cat([*means, torch.tensor([[3.0], [2.0]]).log()], dim=1)
    torch.testing.assert_close(encoder.embed_graphs(batch, "jk"), expected)


@pytest.mark.parametrize("readout", ["mean", "mean+center"])
def test_sums_over_nodes_follow_the_jk_embedding(readout: str):
    encoder = small(readout=readout).eval()
    batch = random_multigraphs(MOLECULE, [3, 1])
    sums = [torch.stack([h[:3].sum(0), h[3:].sum(0)]) for h in encoder.encode_layers(batch)[1]]
    found, jk = encoder.embed_graphs(batch, "jk+sum"), encoder.embed_graphs(batch, "jk")
    torch.testing.assert_close(found, torch.cat([jk, *sums], dim=1))
    assert found.shape[1] == encoder.embedding_width("jk+sum")


def test_dropout_also_after_the_last_layer():
    encoder = small(dropout=0.5)
    assert (encoder(random_multigraphs(MOLECULE, [30])).node_emb == 0).any()


def test_the_seed_fixes_the_weights_and_nothing_else():
    config, state = EncoderConfig(layers=1, dim=4), torch.get_rng_state()
    first, again, other = (build_encoder(config, MOLECULE, seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    pairs = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)
    assert not torch.equal(first.node.weight, other.node.weight)
    drawn = [build_encoder(config, MOLECULE, seeded(3)).node.weight for _ in range(2)]
    assert torch.equal(*drawn)


def test_initial_embeddings_are_xavier_uniform():
    table = build_encoder(EncoderConfig(layers=1, dim=300), MOLECULE, 0).node.weight.detach()
    for rows, cardinality in ((table[:120], 120), (table[120:], 5)):
        bound = (6 / (cardinality + 300)) ** 0.5
        assert 0.95 * bound < float(rows.abs().max()) <= bound


def test_wrong_codes_are_named():
    batch = random_multigraphs(MOLECULE, [3])
    with pytest.raises(DataError, match=r"'chirality' must be in \[0, 5\), found 7"):
        small()(batch.with_attributes(x=torch.tensor([[0, 0], [1, 7], [2, 0]])))


@pytest.mark.parametrize("layer", ["last", "jk"])
def test_center_stands_beside_the_mean(layer: str):
    plain, batch = small(schema="protein").eval(), random_multigraphs(PROTEIN, [5, 1, 7])
    centered = small(schema="protein", readout="mean+center").eval()
    centered.load_state_dict(plain.state_dict())  # any encoder can be given it: it has no weights
    ours, mean = (e.embed_graphs(batch, layer) for e in (centered, plain))
    more = 8 if layer == "last" else 24
    assert ours.shape == (3, centered.embedding_width(layer))
    assert centered.embedding_width(layer) == plain.embedding_width(layer) + more
    center = plain(batch).node_emb[batch.ptr[:-1]]
    torch.testing.assert_close(ours[:, 8:] if layer == "last" else ours[:, -9:-1], center)
    torch.testing.assert_close(ours[:, :8], mean[:, :8])
    torch.testing.assert_close(centered(batch).graph_emb, plain(batch).graph_emb)


def test_the_convolution_sees_the_edge_vectors(monkeypatch: pytest.MonkeyPatch):
    layer = PyGLayer(GINEConv(torch.nn.Identity(), eps=0.0), MOLECULE, 8)
    monkeypatch.setitem(LAYERS, "conv", lambda config, schema: layer)
    config = EncoderConfig(backbone="conv", layers=1, dim=8, batch_norm=False)
    encoder = GraphEncoder(config, MOLECULE)
    batch = random_multigraphs(MOLECULE, [4, 3])
    h0, h1 = encoder.encode_layers(batch)[1]
    messages = (h0[batch.edge_index[0]] + layer.edge(batch.edge_attr)).relu()
    torch.testing.assert_close(h1, h0.index_add(0, batch.edge_index[1], messages))


def test_a_layer_of_ones_own_is_trained_and_saved_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def layer(config: EncoderConfig, schema: FeatureSchema) -> MessagePassing:
        return PyGLayer(TransformerConv(config.dim, config.dim, edge_dim=4), schema, 4)

    monkeypatch.setitem(LAYERS, "own", layer)
    batch = random_multigraphs(MOLECULE, [5, 6])
    encoder = GraphEncoder(EncoderConfig(backbone="own", layers=2, dim=8), MOLECULE)
    encoder(batch).graph_emb.square().sum().backward()
    assert all(p.grad is not None for p in encoder.parameters())
    save_model(tmp_path / "own.safetensors", encoder.eval(), {})
    read = read_model(tmp_path / "own.safetensors").encoder
    torch.testing.assert_close(read(batch).graph_emb, encoder(batch).graph_emb, rtol=0, atol=0)
