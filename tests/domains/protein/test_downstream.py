"""Probing and fine-tuning on proteins: center beside mean, statistics as baseline."""

from pathlib import Path

import numpy as np
import pytest
import torch

import graphlog
from downstream_support import averaged_models, tiny_encoder
from graphlog import api
from graphlog.api import read_proteins
from graphlog.data.split import Split
from graphlog.data.store import GraphStore
from graphlog.domains.protein.network import STATISTICS, ego_statistics
from graphlog.domains.protein.schema import CHANNELS, PROTEIN
from graphlog.downstream.finetune import FinetuneConfig, common_start
from graphlog.downstream.pretrained import load
from graphlog.downstream.tasks import open_labeled
from graphlog.errors import ConfigError
from protein_support import clustered_links, write

NAME = "ego-network statistics + logistic regression"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    folder = tmp_path_factory.mktemp("protein")
    network = write(folder / "9.protein.links.detailed.txt", clustered_links(8, 12))
    # one cluster has no labels
    lines = [f"c{c:02d}p{k:02d},{c % 2},{int(k == 0)}" for c in range(7) for k in range(12)]
    labels = write(folder / "labels.csv", "\n".join(["protein,odd,hub", *lines]) + "\n")
    return read_proteins(network, labels=labels)


def test_statistics_are_counts(store: GraphStore) -> None:
    found = ego_statistics(store)
    assert found.shape == (96, len(STATISTICS))
    for graph in (0, 17, 95):
        batch = store[graph : graph + 1]
        edges, attributes = batch.edge_index.numpy(), batch.edge_attr.numpy()[:, : len(CHANNELS)]
        n, m = batch.num_nodes, batch.num_edges // 2
        of_center = edges[0] == 0
        channels = [*(attributes.sum(0) / 2), *attributes[of_center].sum(0)]
        expected = np.log1p([n, m, of_center.sum(), 0, *channels])
        expected[3] = m / (n * (n - 1) / 2)
        np.testing.assert_allclose(found[graph], expected, rtol=1e-5)
    assert ego_statistics(store.subset([])).shape == (0, len(STATISTICS))


def test_unlabeled_proteins_are_left_out(store: GraphStore) -> None:
    data = open_labeled(store, PROTEIN)
    assert len(data.store) == 84
    assert data.split_name.startswith("random")


def test_proteins_with_equal_networks_are_no_repeats(store: GraphStore) -> None:
    assert not open_labeled(store, PROTEIN).repeat_notes
    with pytest.raises(ConfigError, match="proteins of one structure are no repeats; leave `on_r"):
        open_labeled(store, PROTEIN, on_repeats="drop")


def test_a_split_of_a_view_counts_its_unlabeled_proteins(store: GraphStore, tmp_path: Path) -> None:
    view = store.subset(np.arange(96)[::-1].copy())  # the 12 without labels come first
    rows = np.arange(12, 96)
    folds = Split(rows[:60], rows[60:70], rows[70:])
    graphlog.probe(tiny_encoder(schema=PROTEIN), view, split=folds, baselines=(), run_dir=tmp_path)
    kept = Split.load(tmp_path / "split.json", len(view))
    assert all(map(np.array_equal, kept, folds))
    assert open_labeled(view, PROTEIN, split=folds).split.train.tolist() == list(range(60))


def test_a_model_cuts_new_networks_as_its_own(store: GraphStore, tmp_path: Path) -> None:
    network = write(tmp_path / "9.protein.links.detailed.txt", clustered_links(8, 12))
    rows = "".join(f"c{c:02d}p{k:02d},{c % 2}\n" for c in range(8) for k in range(12))
    labels = write(tmp_path / "labels.csv", "protein,odd\n" + rows)
    cutting = {"score": 760, "neighbors": 5, "radius": 2, "isolated": "keep"}
    own = read_proteins(network, labels=labels, **cutting)
    trained = graphlog.pretrain(own, epochs=1, batch_size=32, encoder={"dim": 16, "layers": 2})
    np.testing.assert_array_equal(trained.embed(network), trained.embed(own))
    graphlog.probe(tiny_encoder(schema=PROTEIN), own, baselines=(), run_dir=tmp_path / "run")
    for model in (trained, load(tmp_path / "run")):
        assert model.info["cutting"].items() >= cutting.items()
    by_name = str(tmp_path / "run")
    np.testing.assert_array_equal(
        graphlog.predict(by_name, network), graphlog.predict(by_name, own)
    )
    for like in (trained, by_name, own):
        made = graphlog.featurize(
            str(network), tmp_path / "s", like=like, domain="protein", overwrite=True
        )
        assert made.source.cutting["radius"] == 2
    with pytest.warns(UserWarning, match=r"radius 1, .*with score 760, radius 2, .*`like='MODEL'`"):
        trained.embed(store)
    with pytest.warns(UserWarning, match=r"cut with neighbors 7, .* with neighbors 5, "):
        trained.embed(network, neighbors=7)


def test_the_center_is_read_downstream_unless_told_otherwise(store: GraphStore) -> None:
    encoder = tiny_encoder(schema=PROTEIN)
    assert encoder.with_readout().width() == 2 * encoder.width()
    assert encoder.with_readout("encoder") is encoder
    assert encoder.with_readout().with_readout().width() == 2 * encoder.width()
    torch.testing.assert_close(
        torch.from_numpy(encoder.with_readout().embed_store(store)[:, :16]),
        torch.from_numpy(encoder.embed_store(store)),
    )
    molecules = tiny_encoder()
    assert molecules.with_readout() is molecules
    data = open_labeled(store, PROTEIN)
    quick = {"epochs": 1, "device": "cpu", "precision": "fp32"}
    for told, readout in (({}, "mean+center"), ({"readout": "encoder"}, "mean")):
        start = common_start(encoder, data, FinetuneConfig(**quick, **told))
        assert start.encoder.config.readout == readout


def test_a_probe_with_statistics_is_kept(store: GraphStore, tmp_path: Path) -> None:
    joined = {"with_features": ("statistics",), "baselines": (), "fractions": (0.5, 0.2, 0.3)}
    encoder = tiny_encoder(schema=PROTEIN)
    graphlog.probe(encoder, store, run_dir=tmp_path / "run", **joined)
    kept = api.load_predictor(tmp_path / "run")
    assert kept.encoder.config.readout == "mean+center"
    data = open_labeled(store, PROTEIN, fractions=joined["fractions"])
    expected = averaged_models(encoder.with_readout(), data, ("statistics",))
    np.testing.assert_allclose(kept.predict(data.store), expected, rtol=2e-4, atol=2e-4)


def test_a_probe_and_a_fine_tuning_have_a_floor(store: GraphStore) -> None:
    encoder = tiny_encoder(schema=PROTEIN)
    fractions = (0.5, 0.2, 0.3)
    report = graphlog.probe(encoder, store, fractions=fractions)
    assert [row.model for row in report.rows[::2]] == ["frozen encoder", "untrained encoder", NAME]
    predictor = graphlog.finetune(
        encoder, store, epochs=2, seeds=(0, 1), fractions=fractions, device="cpu", precision="fp32"
    )
    tuned = predictor.report
    assert tuned.rows[-1].model == NAME
    assert NAME not in [
        row.model for row in graphlog.probe(encoder, store, baselines=(), fractions=fractions).rows
    ]
    assert predictor.predict(store).shape == (store.num_rows, 2)


def test_random_reads_what_it_is_used_on(store: GraphStore) -> None:
    assert load("random", source=store).schema == PROTEIN
    molecules = load("random", source=["CCO"])
    assert (molecules.schema.domain, molecules.config.dim) == ("molecule", 300)
    with pytest.raises(ConfigError, match="holds proteins"):
        tiny_encoder().embed("worm-go40")
