from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import graphlog
from downstream_support import CHAINS, tiny_encoder
from graphlog.data.store import GraphBatch
from graphlog.domains.molecule import MOLECULE, MOLECULE_RICH
from graphlog.domains.molecule.descriptors import morgan_fingerprints
from graphlog.downstream.pretrained import load, ranges_of, untrained_like
from graphlog.encoders.encoder import EncoderConfig
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.extras.export import padded_inputs
from graphlog.files import mark_folder
from graphlog.inputs import read
from graphlog.training.runfolder import RunFolder

TINY = {"dim": 8, "layers": 1}
BAD = ["CCO", "not a molecule", "c1ccccc1", "", "C"]


@pytest.mark.parametrize("layer", ["jk", "last", "jk+sum"])
def test_rows_stay_aligned(layer: str):
    encoder = tiny_encoder(layer)
    rows = encoder.embed(BAD)
    assert rows.shape == (5, encoder.width())
    assert rows.dtype == np.float32
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, False, True, False]
    alone = np.concatenate([encoder.embed([BAD[k]]) for k in (0, 2, 4)])
    np.testing.assert_allclose(rows[[0, 2, 4]], alone, rtol=1e-5, atol=1e-6)


FIVE = CHAINS[:5]


@pytest.mark.parametrize(
    "column",
    [
        tuple(FIVE),
        np.array(FIVE),
        np.array(FIVE, dtype=object)[:, None],
        pd.Series(FIVE, index=list("abcde")),
        pd.DataFrame({"smiles": FIVE}),
        iter(FIVE),
    ],
    ids=lambda column: type(column).__name__,
)
def test_any_column_of_smiles_will_do(column: object):
    np.testing.assert_array_equal(tiny_encoder().embed(column), tiny_encoder().embed(FIVE))


def test_missing_entries_are_rows_that_cannot_be_read():
    rows = tiny_encoder().embed(pd.Series(["CCO", None, float("nan"), pd.NA], dtype=object))
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, True, True]


def test_wrong_shapes_and_types_are_named():
    encoder = tiny_encoder()
    with pytest.raises(DataError, match=r"one column of SMILES, found an array of shape \(2, 2\)"):
        encoder.embed(np.array([["C", "C"], ["C", "C"]]))
    with pytest.raises(DataError, match=r"row 1: a SMILES must be text, found 3\.5"):
        encoder.embed(["C", 3.5])


def test_joined_features_stand_beside_the_embedding_under_their_names():
    encoder, kept = tiny_encoder(), [0, 2, 4]
    rows = encoder.embed(BAD, with_features=("descriptors", "ecfp4"))
    names = encoder.feature_names(with_features=("descriptors", "ecfp4"))
    assert rows.shape == (5, len(names)) == (5, 16 + 196 + 2048)
    np.testing.assert_array_equal(rows[:, :16], encoder.embed(BAD))
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, False, True, False]
    np.testing.assert_allclose(rows[kept, names.index("MolWt")], [46.07, 78.11, 16.04], atol=0.01)
    fingerprints = morgan_fingerprints([BAD[k] for k in kept])
    np.testing.assert_array_equal(rows[kept, names.index("ECFP4_0") :], fingerprints)
    told = r"'ecpf4'; did you mean 'ecfp4'\? Known: descriptors, ecfp4"
    with pytest.raises(ConfigError, match=told):
        encoder.embed(BAD, with_features=("ecpf4",))
    with pytest.raises(ConfigError, match="named twice"):
        encoder.embed(BAD, with_features=("ecfp4", "ecfp4"))


def test_features_of_a_store_in_pieces(monkeypatch: pytest.MonkeyPatch):
    encoder = tiny_encoder()
    whole = encoder.embed(CHAINS, with_features=("ecfp4",))
    monkeypatch.setattr("graphlog.downstream.pretrained._ROWS_WITH_FEATURES", 7)
    pieces = encoder.embed(CHAINS, batch_size=3, with_features=("ecfp4",))
    np.testing.assert_allclose(pieces, whole, rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match="SMILES"):
        encoder.embed(read(CHAINS, keep_texts=False), with_features=("ecfp4",))


def test_a_store_gives_the_rows_of_its_input_and_a_view_its_own():
    encoder = tiny_encoder()
    store = read(BAD, MOLECULE)
    assert encoder.embed(store).shape[0] == 5
    np.testing.assert_array_equal(encoder.embed(store.subset([0, 2])), encoder.embed(store)[[0, 4]])
    with pytest.raises(ConfigError, match=r"schema 'molecule-rich' .* with `like='MODEL'`"):
        tiny_encoder(schema=MOLECULE_RICH).embed(store)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5])
def test_a_batch_holds_a_graph(batch_size: Any):
    encoder = tiny_encoder()
    encoder.embed(CHAINS)  # types are checked in a first call
    with pytest.raises(ConfigError, match=f"a whole number from 1, found {batch_size}"):
        encoder.embed(CHAINS, batch_size=batch_size)


def test_batches_of_large_graphs_hold_few(monkeypatch: pytest.MonkeyPatch):
    encoder, store = tiny_encoder(), read(CHAINS, MOLECULE)
    whole = encoder.embed(store)
    for most in (1, 7, 30):
        monkeypatch.setattr("graphlog.downstream.pretrained._NODES_AT_ONCE", most)
        seen: list[GraphBatch] = []

        def note(batch: GraphBatch, seen: list[GraphBatch] = seen) -> torch.Tensor:
            seen.append(batch)
            return batch.sizes[:, None].float()

        found = [sizes for _, sizes in encoder.embed_batches(ranges_of(store, 2048), function=note)]
        np.testing.assert_array_equal(np.concatenate(found)[:, 0], store.num_nodes)
        assert all(batch.num_graphs == 1 or batch.num_nodes <= most for batch in seen)
        np.testing.assert_allclose(encoder.embed(store), whole, rtol=1e-5, atol=1e-6)


def test_overlapping_loops_embed_in_evaluation_mode():
    """As two threads do that share an encoder in training mode."""
    encoder, store = tiny_encoder().train(), read(CHAINS, MOLECULE)
    encoder.network.layers[0].eval()
    modes = [module.training for module in encoder.modules()]
    first, second = (encoder.embed_batches([(k, store) for k in range(2)]) for _ in range(2))
    expected = [next(loop)[1] for loop in (first, second)]
    assert len(list(first)) == 1
    np.testing.assert_array_equal(next(second)[1], expected[1])
    assert not encoder.training
    assert not list(second)
    assert [module.training for module in encoder.modules()] == modes


def test_no_molecule_at_all():
    assert tiny_encoder().embed([]).shape == (0, 16)


def test_load_names_what_is_wrong(tmp_path: Path):
    def refused(name: str, words: str) -> None:
        with pytest.raises(ModelFileError, match=words):
            load(tmp_path / name)

    (tmp_path / "run").mkdir()
    refused("run", r"holds no model\.safetensors")
    (tmp_path / "run" / "config.toml").touch()
    mark_folder(tmp_path / "run", "pretrain")
    refused("run", "interrupted; continue it with `resume=True`")
    with closing(RunFolder.open(tmp_path / "run", resume=True)):
        refused("run", "It is being written; wait for the run to end")
    (tmp_path / "old.pth").touch()
    refused("old.pth", "graphlog convert")
    tiny_encoder().save(tmp_path / "model.safetensors")
    (tmp_path / "modle.safetensors~").touch()  # is no model, however near its name
    refused("modle.safetensors", r"did you mean .*model\.safetensors")


def test_a_schema_is_no_settings_of_a_network():
    untrained_like(tiny_encoder(), read(CHAINS, MOLECULE), seed=0)  # the first call checks types
    with pytest.raises(ConfigError, match="give a schema as `schema=`"):
        graphlog.random_encoder(MOLECULE)


def test_an_untrained_encoder_does_not_take_its_statistics_from_labeled_molecules():
    encoder, graphs = tiny_encoder(), read(CHAINS, MOLECULE)
    halves = (graphs.subset(np.arange(10)), graphs.subset(np.arange(10, len(graphs))))
    one, other = (untrained_like(encoder, fold, seed=3).embed(CHAINS) for fold in halves)
    np.testing.assert_array_equal(one, other)


def test_an_untrained_encoder_reads_the_graphs_that_its_statistics_are_of():
    graphs = read(CHAINS, MOLECULE_RICH)
    assert graphlog.random_encoder(TINY, graphs=graphs).schema == MOLECULE_RICH
    with pytest.raises(ConfigError, match="graphs have schema 'molecule-rich'"):
        graphlog.random_encoder(TINY, MOLECULE, graphs=graphs)


def test_batches_of_another_schema_are_refused():
    graphs = read(CHAINS[:2], MOLECULE_RICH)
    for use in (tiny_encoder(), partial(padded_inputs, tiny_encoder())):
        with pytest.raises(ConfigError, match="graphs of schema 'molecule-rich', but the model"):
            use(graphs[:].to("cpu").with_attributes())


def test_an_untrained_encoder_by_names():
    named = graphlog.random_encoder(TINY, "molecule")
    plain = graphlog.random_encoder(EncoderConfig(dim=8, layers=1), MOLECULE)
    np.testing.assert_array_equal(named.embed(CHAINS), plain.embed(CHAINS))
    wrong: list[Any] = [-1, np.array([1, 2])]
    for seed in wrong:
        with pytest.raises(ConfigError, match="`seed` must be a whole number"):
            load("random", seed=seed)
    with pytest.raises(ConfigError, match="an encoder has no head"):
        graphlog.load_predictor(named)  # type: ignore[arg-type]
