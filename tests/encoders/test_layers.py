"""Convolutions of torch_geometric as backbone layers, those in the table and a user's own."""

from pathlib import Path

import pytest
import torch

from encoder_support import doubled, random_batch
from graphlog.encoders.base import EncoderConfig
from graphlog.encoders.encoder import GraphEncoder, with_settings
from graphlog.encoders.layers import PyGLayer
from graphlog.encoders.legacy import MOLECULE
from graphlog.encoders.modelfile import save_model
from graphlog.errors import ConfigError


def test_the_convolution_sees_the_edge_vectors() -> None:
    from torch_geometric.nn import GINEConv

    layer = PyGLayer(GINEConv(torch.nn.Identity(), eps=0.0), MOLECULE, 8)
    encoder = GraphEncoder(EncoderConfig(layers=1, dim=8, batch_norm=False), MOLECULE, [layer])
    batch = random_batch(MOLECULE, [4, 3])
    h0, h1 = encoder.layer_outputs(batch)
    messages = (h0[batch.edge_index[0]] + layer.edge(batch.edge_attr)).relu()
    torch.testing.assert_close(h1, h0.index_add(0, batch.edge_index[1], messages))


def test_layers_of_ones_own_train_but_are_not_saved(tmp_path: Path) -> None:
    from torch_geometric.nn import PNAConv

    batch = random_batch(MOLECULE, [5, 6])
    degrees = batch.adjacency.in_degree.bincount()
    convs = [
        PNAConv(
            8,
            8,
            aggregators=["mean", "max"],
            scalers=["identity", "amplification"],
            deg=degrees,
            edge_dim=4,
        )
        for _ in range(2)
    ]
    encoder = GraphEncoder(
        EncoderConfig(layers=2, dim=8), MOLECULE, [PyGLayer(c, MOLECULE, 4) for c in convs]
    )
    encoder(batch).graph_emb.square().sum().backward()
    assert all(p.grad is not None for p in encoder.parameters())
    with pytest.raises(ConfigError, match="layers of its own cannot be saved"):
        save_model(tmp_path / "own.safetensors", encoder, {})
    assert not list(tmp_path.iterdir())


def test_layers_of_ones_own_are_kept_under_other_settings() -> None:
    encoder = doubled(MOLECULE).eval()
    batch = random_batch(MOLECULE, [5, 6])
    copy = with_settings(encoder, dropout=0.5, readout="sum")
    assert copy.training
    assert all(module.training for module in copy.modules())
    assert (copy.config.dropout, copy.config.readout) == (0.5, "sum")
    copy.eval()
    torch.testing.assert_close(copy(batch).node_emb, encoder(batch).node_emb, rtol=0, atol=0)
    ours, theirs = list(encoder.layers.parameters()), list(copy.layers.parameters())
    assert all(p is not q for p, q in zip(ours, theirs, strict=True))
