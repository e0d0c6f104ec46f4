"""The center-node readout against recorded numbers, and edge masking against an example."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphlog.data.store import GraphStore, StoreBuilder
from graphlog.domains.protein.network import ego_networks
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions
from graphlog.encoders.base import EncoderConfig
from graphlog.encoders.encoder import build_encoder
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.training.config import resolve_config
from graphlog.training.pretrain import run_pretraining
from graphlog.views.masking import mask_attributes
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


def test_edges_are_masked_both_ways_and_by_the_published_count(store: GraphStore) -> None:
    batch = store[:]
    view = mask_attributes(batch, PROTEIN, 0.15, torch.Generator().manual_seed(0))
    masked = (view.batch.edge_attr == torch.tensor(PROTEIN.edge_mask)).all(dim=1)
    assert torch.equal(masked.nonzero().squeeze(1), view.edge_idx)
    pairs = masked.view(-1, 2)
    assert torch.equal(pairs[:, 0], pairs[:, 1])
    per_graph = torch.bincount(batch.batch[batch.edge_index[0, 0::2]], minlength=batch.num_graphs)
    drawn = torch.bincount(
        batch.batch[batch.edge_index[0, 0::2]][pairs[:, 0]], minlength=batch.num_graphs
    )
    assert drawn.tolist() == [int(0.15 * m + 1) if m else 0 for m in per_graph.tolist()]
    assert torch.equal(view.batch.x, batch.x)


def test_recorded_mask(golden: Path) -> None:
    with (
        np.load(golden / "bio_pretext.npz") as recorded,
        np.load(golden / "bio_batch.npz") as batch,
    ):
        graph, chosen, after = (
            int(recorded["mask_graph"]),
            recorded["masked_edge_idx"],
            recorded["edge_attr_after"],
        )
        start, stop = batch["edge_ptr"][graph : graph + 2]
        before = batch["edge_attr_unmasked"][start:stop]
        expected = before.copy()
        expected[np.concatenate([chosen, chosen + 1])] = PROTEIN.edge_mask
        np.testing.assert_array_equal(after, expected)
        assert len(chosen) == int(0.15 * (len(before) // 2) + 1)
        np.testing.assert_array_equal(
            recorded["edge_type_target_argmax"], recorded["mask_edge_label"].argmax(axis=1)
        )


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_every_objective_trains_on_ego_networks(store: GraphStore, name: str) -> None:
    if name == "graphmae":  # no nodes to rebuild
        with pytest.raises(ConfigError, match="protein"):
            OBJECTIVES[name].check_schema(PROTEIN)
        return
    small = {"epochs": 2, "batch_size": 12, "encoder": {"layers": 2, "dim": 8}}
    result = run_pretraining(store, resolve_config(name, None, small, "protein"), None)
    assert all(torch.isfinite(p).all() for p in result.encoder.parameters())
