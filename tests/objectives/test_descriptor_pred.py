"""Descriptors as targets, from SMILES in a store to a trained head, alone or with GraphLoG."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from encoder_support import batch_for, encoder_for, make, run_once, seeded
from graphlog.api import read_proteins
from graphlog.data.store import GraphStore, open_store
from graphlog.domains import DOMAINS
from graphlog.domains.molecule import MOLECULE
from graphlog.domains.molecule.descriptors import count_fingerprints
from graphlog.domains.protein.network import STATISTICS, ego_statistics
from graphlog.encoders.modelfile import write_tensors
from graphlog.errors import ConfigError, DataError
from graphlog.inputs import read
from graphlog.objectives.base import COMPONENTS
from graphlog.training import targets as module
from graphlog.training.log import Progress
from graphlog.training.pretrain import Pretraining, run_pretraining
from graphlog.training.settings import resolve_config
from graphlog.training.targets import check_texts, targets_of
from graphlog.training.trainer import TrainingInterrupted
from protein_support import clustered_links, write

TINY = {"encoder.dim": 8, "encoder.layers": 2, "epochs": 2, "batch_size": 16, "precision": "fp32"}


@pytest.fixture(scope="module")
def store(tiny_smiles: list[str]) -> GraphStore:
    return read(tiny_smiles, MOLECULE)


def test_targets_are_standardized_and_travel_with_the_batch(
    store: GraphStore, tiny_smiles: list[str]
):
    job = Pretraining(store, resolve_config("descriptorpred", None, TINY))
    job.find_targets(None)
    batch = job.load(np.array([5, 2]))
    raw = DOMAINS["molecule"].target_values(tiny_smiles)
    spread = raw.std(axis=0)
    column = int(np.argmax(spread))
    wanted = (raw[[5, 2], column] - raw[:, column].mean()) / spread[column]
    # kept in two bytes, the outermost thousandths left out
    np.testing.assert_allclose(batch.y[:, column].numpy(), wanted, atol=0.01)
    everything = targets_of(store, Progress())
    assert np.isfinite(everything).all()
    assert np.abs(everything).max() <= 6
    assert store[:2].y is None


def test_a_view_is_standardized_over_its_own_graphs(store: GraphStore):
    found = targets_of(store.subset(np.arange(4, 20)), Progress())
    assert len(found) == 16
    assert np.abs(found.astype(np.float32).mean(axis=0)).max() < 0.01
    turned = targets_of(store.subset(np.arange(19, 3, -1)), Progress())
    assert np.array_equal(turned[::-1], found)


@pytest.mark.parametrize("on_disk", [True, False])
def test_values_are_kept_beside_a_store_or_in_the_run(
    on_disk: bool, tmp_path: Path, tiny_smiles: list[str], monkeypatch: pytest.MonkeyPatch
):
    def find() -> np.ndarray:
        store = open_store(tmp_path / "mols") if on_disk else read(tiny_smiles, MOLECULE)
        return targets_of(store, Progress(), tmp_path, substructures=True)

    read(tiny_smiles, MOLECULE, store_path=tmp_path / "mols" if on_disk else None)
    first = find()
    kept = sorted(tmp_path.glob(f"{'mols.' if on_disk else ''}targets-*.safetensors"))
    assert len(kept) == 2
    with monkeypatch.context() as patch:
        patch.setattr(module, "map_in_order", lambda *_: pytest.fail("worked out twice"))
        assert np.array_equal(first, find())
    kept[0].write_bytes(b"torn")
    # of another store, by a name that is not its own
    other = {"values": torch.zeros(first.shape, dtype=torch.float16)}
    write_tensors(kept[1], "targets", {"key": "other"}, other)
    assert np.array_equal(first, find())
    if on_disk:
        open_store(tmp_path / "mols")


class _Counted(Progress):
    """Counts what was begun, and can press Ctrl-C after some pieces."""

    def __init__(self, patience: int = 99) -> None:
        self.begun, self.patience = 0, patience

    def begin(self, total: int, done: int = 0) -> None:
        self.begun += 1

    def advance(self, graphs: int) -> None:
        self.patience -= 1
        if self.patience == 0:
            raise KeyboardInterrupt


def test_a_run_keeps_its_targets_until_it_ends(tmp_path: Path, store: GraphStore):
    run, followed = tmp_path / "run", _Counted(patience=2)
    config = resolve_config("descriptorpred", None, TINY)
    with pytest.raises(TrainingInterrupted, match="continue with `resume=True`"):
        run_pretraining(store, config, run, progress=_Counted(1))  # while they are worked out
    with pytest.raises(TrainingInterrupted):
        run_pretraining(store, config, run, resume=True, progress=followed)
    assert len(list(run.glob("targets-*.safetensors"))) == 1
    # said before any descriptor is worked out
    with pytest.raises(ConfigError, match="exists; continue it with `resume=True`"):
        run_pretraining(store, config, run, progress=followed)
    resumed, ended = _Counted(), _Counted()
    run_pretraining(store, config, run, resume=True, progress=resumed)
    assert resumed.begun == 1
    assert list(run.glob("targets-*")) == []
    (run / "targets-notes.md").write_text("mine")
    run_pretraining(store, config, run, resume=True, progress=ended)
    assert ended.begun == 0
    assert (run / "targets-notes.md").exists()


def test_a_store_without_texts_is_refused_before_an_old_run_is_replaced(
    tmp_path: Path, store: GraphStore, tiny_store: GraphStore
):
    run, config = tmp_path / "run", resolve_config("descriptorpred", None, TINY)
    run_pretraining(store, config, run)
    before = (run / "model.safetensors").read_bytes()
    with pytest.raises(DataError, match=r"without its texts \(SMILES\), from which"):
        run_pretraining(tiny_store, config, run, overwrite=True)
    assert (run / "model.safetensors").read_bytes() == before


def test_the_targets_of_proteins_are_statistics_of_their_ego_networks(tmp_path: Path):
    network = write(tmp_path / "9.protein.links.detailed.txt", clustered_links(8, 12))
    store = read_proteins(network, store_path=tmp_path / "store")
    found = targets_of(store, Progress())
    assert DOMAINS["protein"].targets == STATISTICS
    raw = ego_statistics(store)
    expected = (raw - raw.mean(axis=0)) / np.where(raw.std(axis=0) > 1e-5, raw.std(axis=0), np.inf)
    np.testing.assert_allclose(found, expected, atol=0.35)  # trimmed by a thousandth
    (kept,) = tmp_path.glob("store.targets-*.safetensors")
    assert np.array_equal(targets_of(open_store(tmp_path / "store"), Progress()), found)
    assert 0 < kept.stat().st_size - 2 * raw.size < 500
    half = targets_of(store.subset(np.arange(20)), Progress())
    assert half.shape == (20, len(STATISTICS))
    config = resolve_config("descriptorpred", None, TINY | {"epochs": 8})
    run_pretraining(store, config, tmp_path / "run")
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [row["loss"] for row in map(json.loads, rows) if "loss" in row]
    assert np.mean(losses[-6:]) < 0.8 * np.mean(losses[:6])


def test_proteins_need_no_texts_for_theirs(tmp_path: Path):
    network = write(tmp_path / "9.protein.links.detailed.txt", clustered_links(3, 8))
    store = read_proteins(network)
    kept = {k: v for k, v in store.contents.arrays.items() if not k.startswith("text")}
    bare = GraphStore(replace(store.contents, arrays=kept))
    settings = {**TINY, "schema": "protein", "epochs": 1}
    config = resolve_config("descriptorpred", None, settings)
    assert not bare.has_texts
    found, wanted = (run_pretraining(graphs, config, None) for graphs in (bare, store))
    for name, value in wanted.encoder.state_dict().items():
        assert torch.equal(found.encoder.state_dict()[name], value), name
    with pytest.raises(DataError, match="built without its texts, from which"):
        check_texts(bare, substructures=True)


LOCAL = {"graph": 0.1, "subgraph": 0.1, "attribute": 0.3}


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("graphlog", {**LOCAL, "descriptor": 1.0}),
        ("graphlog/default", {"descriptor": 1.0, "substructure": 0.5}),
        ("descriptorpred", {"descriptor": 1.0, "substructure": 0.5}),
    ],
)
@torch.no_grad()
def test_every_target_has_its_weight_beside_the_other_terms(name: str, weights: dict[str, float]):
    encoder, batch = encoder_for(), batch_for(substructures="substructure" in weights)
    given = {"graphlog": weights, "descriptorpred": {"substructure": 0.5}}.get(name, {})
    objective = make(name, encoder, **{f"{term}_weight": w for term, w in given.items()})
    assert objective.needs_targets
    found = run_once(objective, encoder, batch)
    assert set(found.terms) == set(weights)
    wanted = sum(weights[name] * float(term) for name, term in found.terms.items())
    assert float(found.total) == pytest.approx(wanted, rel=1e-6)


@torch.no_grad()
def test_the_default_recipe_of_molecules_needs_one_view():
    encoder, batch = encoder_for(), batch_for(substructures=True)
    assert not make("graphlog", encoder).needs_targets
    objective = make("graphlog/default", encoder)
    views = objective.views(batch, seeded())
    assert views.view is None
    found = objective.loss(views, encoder, seeded()).terms["descriptor"]
    embedding = encoder.embed_graphs(batch, "jk")
    wanted = objective.descriptors.loss(embedding, batch.y[:, :-COMPONENTS])
    assert float(found) == pytest.approx(float(wanted))


def test_other_domains_take_the_losses_of_the_paper():
    assert resolve_config("graphlog", domain="molecule").recipe == "default"
    assert resolve_config("graphlog", domain="protein").recipe == "graphlog"
    assert resolve_config("contextpred", domain="protein").recipe == "biology"
    assert resolve_config("graphlog", "default", domain="graph").recipe == "graphlog"


def test_components_are_uncorrelated_and_of_one_size(tiny_smiles: list[str]):
    tails = [text for text in tiny_smiles if text[0] == "C" and text[:2] != "Cl"]
    store = read([f"{'C' * k}{text}" for k in range(5) for text in tails], MOLECULE)
    found = targets_of(store, Progress(), substructures=True)
    width = len(DOMAINS["molecule"].targets)
    assert found.shape == (len(store), width + COMPONENTS)
    assert np.array_equal(found[:, :width], targets_of(store, Progress()))
    leading = found[:, width : width + 10].astype(np.float64)
    np.testing.assert_allclose(leading.mean(axis=0), 0, atol=0.05)
    assert np.abs(np.corrcoef(leading.T) - np.eye(10)).max() < 0.3  # clipping leaves a little


def test_a_run_with_both_targets_ends_the_same_after_a_stop(store: GraphStore, tmp_path: Path):
    settings = {**TINY, "objective.substructure_weight": 0.5}
    config = resolve_config("descriptorpred", None, settings)
    whole = run_pretraining(store, config, tmp_path / "whole")
    with pytest.raises(TrainingInterrupted):
        run_pretraining(store, config, tmp_path / "run", progress=_Counted(3))
    again = run_pretraining(store, config, tmp_path / "run", resume=True)
    ours, theirs = whole.encoder.state_dict(), again.encoder.state_dict()
    assert all(value.equal(theirs[name]) for name, value in ours.items())


def test_counts_of_substructures_are_logs_of_rdkits_counts():
    found = count_fingerprints(["CCO", "no molecule", "CCCO"]).toarray()
    assert found.shape == (3, 3 * 2048)
    assert not found[1].any()
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    wanted = generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles("CCCO"))
    np.testing.assert_allclose(np.expm1(found[2, :2048]), wanted, rtol=1e-5)
