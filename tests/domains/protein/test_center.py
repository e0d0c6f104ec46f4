"""The center-node readout beside the mean, and objectives on ego-networks."""

import numpy as np
import pytest
import torch

from graphlog.data.store import GraphStore, StoreBuilder
from graphlog.domains.protein.network import ego_networks
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions
from graphlog.encoders.encoder import EncoderConfig, build_encoder
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.training.pretrain import run_pretraining
from graphlog.training.settings import resolve_config
from protein_support import random_network


@pytest.fixture(scope="module")
def store() -> GraphStore:
    network, _ = random_network(24, 90, seed=3)
    builder = StoreBuilder(PROTEIN, None)
    builder.add(ego_networks(network, np.arange(24), ProteinOptions(isolated="keep")))
    return builder.finish()


@pytest.mark.parametrize("layer", ["last", "jk"])
def test_center_stands_beside_the_mean(store: GraphStore, layer: str) -> None:
    config = EncoderConfig(layers=2, dim=8)
    plain = build_encoder(config, PROTEIN, 0).eval()
    centered = build_encoder(config.updated({"readout": "mean+center"}), PROTEIN, 0).eval()
    centered.load_state_dict(
        plain.state_dict()
    )  # the readout has no weights: any encoder can be given it
    batch = store[:]
    with torch.no_grad():
        ours, mean, nodes = (
            centered.embed_graphs(batch, layer),
            plain.embed_graphs(batch, layer),
            plain(batch).node_emb,
        )
    assert ours.shape == (24, centered.embedding_width(layer))
    assert centered.embedding_width(layer) == plain.embedding_width(layer) + (
        8 if layer == "last" else 24
    )
    center = nodes[batch.ptr[:-1]]
    torch.testing.assert_close(ours[:, 8:] if layer == "last" else ours[:, -9:-1], center)
    torch.testing.assert_close(ours[:, :8], mean[:, :8])
    torch.testing.assert_close(centered(batch).graph_emb, plain(batch).graph_emb)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_every_objective_trains_on_ego_networks(store: GraphStore, name: str) -> None:
    if name == "graphmae":  # no nodes to rebuild
        with pytest.raises(ConfigError, match="protein"):
            OBJECTIVES[name].check_schema(PROTEIN)
        return
    small = {"epochs": 2, "batch_size": 12, "encoder": {"layers": 2, "dim": 8}}
    result = run_pretraining(store, resolve_config(name, None, small, "protein"), None)
    assert all(torch.isfinite(p).all() for p in result.encoder.parameters())
