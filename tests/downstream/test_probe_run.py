"""A probe that is kept predicts what it was scored with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import graphlog
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    LENGTH,
    averaged_models,
    chain_store,
    labeled,
    tiny_encoder,
)
from graphlog.data.store import GraphStore
from graphlog.downstream.explain import attribute
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.probe import probe
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.errors import ConfigError, DataError

NAN = float("nan")
ENDS = np.arange(len(CHAINS)) % 4


def _several() -> LabeledGraphs:
    """Alcohols, long chains with labels missing, and a target of one class."""
    long = np.where(np.arange(len(CHAINS)) % 3 == 0, NAN, LENGTH > 6)
    labels = np.stack([IS_ALCOHOL, long, np.ones(len(CHAINS))], axis=1)
    return labeled(labels, "classification", ("alcohol", "long", "one"))


def _classes() -> LabeledGraphs:
    """Four classes, one of which the training fold lacks."""
    data = labeled(np.eye(5)[ENDS], "classification", tuple("abcde"))
    return replace(data, task="multiclass", metric="accuracy")


TASKS = {
    "classification": _several,
    "multiclass": _classes,
    "regression": lambda: labeled(np.stack([LENGTH, LENGTH**2], axis=1), "regression", ("n", "m")),
    "gaps": lambda: labeled(np.where(ENDS == 0, NAN, LENGTH), "regression", ("n",)),
}


@pytest.mark.parametrize("joined", [(), ("ecfp4", "descriptors")], ids=["alone", "joined"])
@pytest.mark.parametrize("task", TASKS)
def test_what_is_kept_predicts_what_was_scored(
    task: str, joined: tuple[str, ...], tmp_path: Path
) -> None:
    data, encoder = TASKS[task](), tiny_encoder("jk")
    report = probe(encoder, data, with_features=joined, baselines=(), run_dir=tmp_path / "run")
    kept = Predictor.load(tmp_path / "run")
    expected, test = averaged_models(encoder, data, joined), data.split.test
    np.testing.assert_allclose(kept.predict(data.store), expected, rtol=2e-4, atol=2e-4)
    scores = evaluate(data.labels[test], expected[test], data.task).scores
    assert report.rows[0].rule == "C by validation"
    for metric, found in report.rows[0].test.items():
        np.testing.assert_allclose(scores[metric], found[0], rtol=1e-6)
    assert kept.report.to_dict() == report.to_dict()


def test_a_target_of_one_class_stays_empty(tmp_path: Path) -> None:
    probe(tiny_encoder(), _several(), baselines=(), run_dir=tmp_path / "run")
    found = Predictor.load(tmp_path / "run").predict_uncertain(CHAINS)
    assert np.isnan(found.mean[:, 2]).all()
    assert np.isfinite(found.mean[:, :2]).all()
    assert found.std is None
    assert np.isfinite(found.calibrated[:, 0]).all()
    assert ((found.novelty >= 0) & (found.novelty <= 100)).all()


def test_large_inputs_are_predicted_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphlog.downstream.joined._GRAPHS_AT_ONCE", 7)
    data = labeled(LENGTH, "regression")
    options = {"baselines": (), "with_features": ("descriptors",)}
    probe(tiny_encoder("jk"), data, **options, run_dir=tmp_path / "run")
    kept = Predictor.load(tmp_path / "run")
    np.testing.assert_allclose(
        kept.predict(data.store, batch_size=5), kept.predict(data.store), rtol=1e-5, atol=1e-5
    )


def test_the_encoder_is_kept_and_left_as_it_is(tmp_path: Path) -> None:
    encoder = tiny_encoder("jk").train()
    before = {name: t.clone() for name, t in encoder.state_dict().items()}
    probe(encoder, labeled(LENGTH, "regression"), baselines=(), run_dir=tmp_path / "run")
    assert encoder.training
    assert encoder.network.training
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[name])
    for name, tensor in Predictor.load(tmp_path / "run").encoder.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_half_precision_predicts_nearly_the_same(tmp_path: Path) -> None:
    data = labeled(LENGTH, "regression")
    probe(tiny_encoder("jk"), data, baselines=(), run_dir=tmp_path / "run")
    kept = Predictor.load(tmp_path / "run")
    kept.save(tmp_path / "half.safetensors", half=True)
    again = Predictor.load(tmp_path / "half.safetensors")
    assert again.members[0].head.clip == kept.members[0].head.clip
    np.testing.assert_allclose(again.predict(CHAINS), kept.predict(CHAINS), atol=0.1)


def test_a_run_is_not_replaced_unasked(tmp_path: Path) -> None:
    data, run = labeled(IS_ALCOHOL), tmp_path / "run"
    graphlog.probe(tiny_encoder(), data, baselines=(), run_dir=run)
    with pytest.raises(ConfigError, match=r"run exists; replace it with --overwrite"):
        graphlog.probe(tiny_encoder(), data, baselines=(), run_dir=run)
    before = Predictor.load(run).predict(CHAINS)
    length = labeled(LENGTH, "regression")
    graphlog.probe(tiny_encoder(), length, baselines=(), run_dir=run, overwrite=True)
    assert Predictor.load(run).task == "regression"
    assert before.shape == Predictor.load(run).predict(CHAINS).shape


def test_nothing_is_kept_where_nothing_is_learned(tmp_path: Path) -> None:
    data = labeled(np.where(np.isin(np.arange(len(CHAINS)), _several().split.train), 1, IS_ALCOHOL))
    with pytest.raises(DataError, match="one class only in the train fold"):
        probe(tiny_encoder(), data, baselines=(), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_a_model_without_joined_features_is_explained(tmp_path: Path) -> None:
    data = labeled(LENGTH, "regression")
    for name, features in (("alone", ()), ("joined", ("ecfp4",))):
        run = tmp_path / name
        probe(tiny_encoder("jk"), data, baselines=(), with_features=features, run_dir=run)
    store: GraphStore = chain_store().subset(np.arange(3))
    found = attribute(Predictor.load(tmp_path / "alone"), store)
    assert np.isfinite(found.values).all()
    with pytest.raises(ConfigError, match="rest on ecfp4 too cannot be explained"):
        attribute(Predictor.load(tmp_path / "joined"), store)


def test_molecules_without_their_smiles_lack_the_features(tmp_path: Path) -> None:
    data = labeled(LENGTH, "regression")
    options = {"baselines": (), "with_features": ("ecfp4",)}
    probe(tiny_encoder("jk"), data, **options, run_dir=tmp_path / "run")
    bare = graphlog.read_molecules(CHAINS[:3], schema="molecule", keep_texts=False)
    with pytest.raises(DataError, match="SMILES"):
        Predictor.load(tmp_path / "run").predict(bare)
