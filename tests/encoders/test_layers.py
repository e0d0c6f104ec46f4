"""Convolutions of torch_geometric as backbone layers, those in the table and a user's own."""

from pathlib import Path

import pytest
import torch
from torch_geometric.nn import GINEConv, TransformerConv

from encoder_support import random_multigraphs
from graphlog.data.graphs import FeatureSchema
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EncoderConfig, GraphEncoder, MessagePassing
from graphlog.encoders.layers import PyGLayer
from graphlog.encoders.legacy import MOLECULE
from graphlog.encoders.modelfile import read_model, save_model


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
