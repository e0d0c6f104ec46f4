"""A probe that is kept predicts what it was scored with."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import graphlog
from cli_support import read_table
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    LENGTH,
    averaged_models,
    chain_store,
    labeled,
    tiny_encoder,
    write_csv,
)
from graphlog.domains import domain_of
from graphlog.downstream.linear import fuse, linear_path, sparse_bits, standardize
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.probe import probe
from graphlog.downstream.report import Model, Report, Source
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.extras.explain import attribute
from graphlog.inputs import recall_input

NAN = float("nan")
OPENING = ("targets", "split", "fractions", "task")
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


JOINED = ("ecfp4", "descriptors")
KEPT = [("regression", ()), ("regression", JOINED), ("classification", JOINED)]
KEPT += [("multiclass", ()), ("gaps", JOINED)]


@pytest.mark.parametrize(("task", "joined"), KEPT)
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


def test_where_validation_cannot_choose_the_fixed_penalty_is_taken(tmp_path: Path) -> None:
    data = labeled(np.where(np.isin(np.arange(len(CHAINS)), _several().split.valid), 1, IS_ALCOHOL))
    report = probe(tiny_encoder(), data, c=0.3, baselines=(), run_dir=tmp_path / "run")
    assert Predictor.load(tmp_path / "run").info["probe"]["c"] == {"embedding": 0.3}
    assert not any("also chose" in note for note in report.notes)
    assert any("also chose C" in note for note in _kept(tmp_path / "other").report.notes)


def _kept(run: Path, *features: str) -> Predictor:
    """Return a kept probe of the lengths of the chains."""
    data = labeled(LENGTH, "regression")
    probe(tiny_encoder("jk"), data, with_features=features, baselines=(), run_dir=run)
    return Predictor.load(run)


@pytest.mark.parametrize(
    "change",
    [
        {"joined.ecfp4.weight": torch.zeros(5, 1)},
        {"joined.ecfp4.bias": torch.zeros(2)},
        {"joined.ecfp4.mean": torch.zeros(2048)},
        {"joined.ecfp4.bias": None},
        {"joined": ["ecfp5"]},
        {"clip": "far"},
    ],
    ids=["width", "targets", "mean alone", "no bias", "name", "clip"],
)
def test_a_joined_model_that_does_not_fit_is_refused(change: dict[str, Any], tmp_path: Path):
    _kept(tmp_path / "run", "ecfp4")
    found = read_model(tmp_path / "run" / "model.safetensors")
    extra = {k: v for k, v in {**found.extra, **change}.items() if torch.is_tensor(v)}
    described = {k: v for k, v in change.items() if "." not in k}
    info = {**found.info, "predictor": {**found.info["predictor"], **described}}
    save_model(tmp_path / "odd.safetensors", found.encoder, info, extra)
    with pytest.raises(ModelFileError, match="heads are incomplete"):
        Predictor.load(tmp_path / "odd.safetensors")


def test_nothing_else_goes_on_in_its_folder(tmp_path: Path) -> None:
    _kept(tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="a run of probe, which finetune cannot continue"):
        graphlog.finetune(tiny_encoder(), labeled(LENGTH), run_dir=tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match="a run of probe, which pretrain cannot continue"):
        graphlog.pretrain(CHAINS, run_dir=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    with pytest.raises(ConfigError, match="name its folder"):
        graphlog.probe(tiny_encoder(), labeled(LENGTH), overwrite=True)


def test_the_note_of_a_replaced_input_goes_with_it(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "m.csv", CHAINS, length=LENGTH)
    options = {"targets": ["length"], "baselines": (), "split": "random"}
    run = {"run_dir": tmp_path / "run", "overwrite": True}
    graphlog.probe(tiny_encoder(), table, **options, **run)
    assert recall_input(tmp_path / "run") == (str(table), {"targets": ["length"]})
    graphlog.probe(tiny_encoder(), pd.read_csv(table), **options, **run)
    assert recall_input(tmp_path / "run") is None


def test_a_frame_is_predicted_as_a_frame(tmp_path: Path) -> None:
    probe(tiny_encoder("jk"), labeled(LENGTH, "regression"), baselines=(), run_dir=tmp_path / "run")
    kept, expected = (
        Predictor.load(tmp_path / "run"),
        Predictor.load(tmp_path / "run").predict(CHAINS),
    )
    frame = pd.DataFrame({"smiles": [*CHAINS, "?"]}, index=range(100, 149))
    found = graphlog.predict(kept, frame)
    assert list(found.columns) == ["predicted_y"]
    assert found.index.equals(frame.index)
    np.testing.assert_allclose(found["predicted_y"][:-1], expected[:, 0], rtol=1e-5)
    assert np.isnan(found["predicted_y"].iloc[-1])
    of_polars = graphlog.predict(kept, pl.DataFrame({"smiles": CHAINS}))
    assert isinstance(of_polars, pl.DataFrame)
    np.testing.assert_allclose(of_polars["predicted_y"].to_numpy(), expected[:, 0], rtol=1e-5)
    assert isinstance(expected, np.ndarray)
    with pytest.raises(ConfigError, match=r"^'CCO' is neither a file nor a data set"):
        graphlog.predict(kept, "CCO")


def test_large_inputs_are_predicted_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphlog.downstream.pretrained._ROWS_WITH_FEATURES", 7)
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


@pytest.mark.parametrize(("task", "joined"), KEPT)
def test_a_kept_kernel_model_predicts_what_it_was_scored_with(
    tmp_path: Path, task: str, joined: tuple[str, ...]
) -> None:
    data, encoder = TASKS[task](), tiny_encoder("jk")
    run = tmp_path / "run"
    report = probe(encoder, data, head="kernel", baselines=(), with_features=joined, run_dir=run)
    kept, test = Predictor.load(run), data.split.test
    assert kept.features == (["descriptors", "counts"] if joined else ["counts"])
    predicted = kept.predict(data.store)
    scores = data.evaluate(predicted, test).scores
    assert report.rows[0].mean(data.metric) == pytest.approx(scores[data.metric], rel=1e-5)
    found = kept.predict_uncertain(CHAINS[:5])
    np.testing.assert_allclose(found.mean, predicted[:5], atol=1e-5)
    if data.task == "regression":
        assert found.std is not None
        assert (found.std > 0).all()
        assert report.calibration[0]["spread_coverage"] is not None
        graphlog.predict_file(kept, CHAINS[:5], tmp_path / "out.csv")
        assert all(row["predicted_n_std"] for row in read_table(tmp_path / "out.csv"))
    else:
        assert found.std is None
    explained = attribute(kept, chain_store().subset(np.arange(2)))
    np.testing.assert_allclose(explained.predictions, predicted[:2], atol=1e-5)


def test_kernel_models_of_several_splits_are_fitted_to_all_labels(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "m.csv", CHAINS, length=LENGTH)
    options = {"targets": ["length"], "baselines": ("random",), "split": "random"}
    run, seeds = tmp_path / "run", (0, 1)
    report = probe(
        tiny_encoder("jk"), table, head="auto", folds_seeds=seeds, run_dir=run, **options
    )
    assert {row.key.model for row in report.rows} == {Model.LINEAR, Model.KERNEL}
    best = min(
        (
            row
            for row in report.rows
            if row.key.source == Source.EMBEDDING and row.key.rule != "fixed"
        ),
        key=lambda row: row.mean("rmse", "valid"),
    )
    assert report.rows[0].key == best.key
    kept = Predictor.load(run)
    assert (kept.kernel is None) == (best.key.model is Model.LINEAR)
    assert Report.load(run) == Report.load(run / "scores.json")


def test_a_target_that_was_not_learned_is_not_explained(tmp_path: Path) -> None:
    probe(tiny_encoder(), _several(), baselines=(), run_dir=tmp_path / "run")
    for name in ("why.csv", "why.html"):
        graphlog.explain_file(tmp_path / "run", CHAINS[:3], tmp_path / name)
    rows = read_table(tmp_path / "why.csv")
    assert all(row["contribution_one"] == "" and row["contribution_long"] for row in rows)
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "no prediction" in page
    assert ">nan" not in page


def test_nothing_is_kept_where_nothing_is_learned(tmp_path: Path) -> None:
    data = labeled(np.where(np.isin(np.arange(len(CHAINS)), _several().split.train), 1, IS_ALCOHOL))
    with pytest.raises(DataError, match="one class only in the training fold"):
        probe(tiny_encoder(), data, baselines=(), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_atoms_are_hidden_from_the_embedding_alone(tmp_path: Path, task: str) -> None:
    data = labeled(LENGTH if task == "regression" else IS_ALCOHOL, task)
    features = ("ecfp4", "descriptors")
    probe(tiny_encoder("jk"), data, baselines=(), with_features=features, run_dir=tmp_path / "run")
    predictor, store = Predictor.load(tmp_path / "run"), chain_store().subset(np.array([5, 40, 2]))
    found = attribute(predictor, store, batch_size=2)
    np.testing.assert_allclose(
        found.predictions, predictor.predict([CHAINS[k] for k in (5, 40, 2)]), atol=1e-5
    )
    pairs = zip(predictor.joined.values(), predictor.features_of(store), strict=True)
    others = [model.predictions(values, task) for model, values in pairs]
    (member,) = predictor.members
    for graph in range(3):
        batch = store[[graph]]
        for node in range(batch.num_nodes):
            x = batch.x.clone()
            x[node] = torch.tensor(predictor.schema.node_mask, dtype=x.dtype)
            with torch.no_grad():
                own = member.head.predictions(member(batch.with_attributes(x=x))).numpy()
            parts = [own, *(values[[graph]] for values in others)]
            expected = found.predictions[graph] - fuse(parts, predictor.task)[0]
            np.testing.assert_allclose(found.of(graph)[node], expected, atol=1e-5)
    assert np.abs(found.values).max() > 1e-3
    graphlog.explain_file(predictor, CHAINS[:3], tmp_path / "why.html")
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "average of 3 linear models" in page
    assert "ecfp4 and descriptors stay those of the whole molecule" in page


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_probe_of_several_splits_is_fitted_to_all_labels(tmp_path: Path, task: str) -> None:
    draw = np.random.default_rng(0)
    noisy = LENGTH + draw.normal(size=len(CHAINS)) if task == "regression" else LENGTH % 3 == 0
    labels = np.where(np.arange(len(CHAINS)) == 7, NAN, noisy)
    table = write_csv(tmp_path / "t.csv", CHAINS, y=["" if np.isnan(v) else v * 1 for v in labels])
    encoder, seeds, run = tiny_encoder("jk"), (0, 1, 2), tmp_path / "run"
    options: dict[str, Any] = {"targets": ["y"], "split": "random", "fractions": (0.6, 0.2, 0.2)}
    options |= {"baselines": (), "with_features": ["ecfp4"], "task": task}
    report = probe(encoder, table, folds_seeds=seeds, run_dir=run, **options)
    assert report.rows[0].rule == "C by validation"
    assert "kept: models of all 47 labeled graphs" in report.notes
    assert any("from the folds of all splits" in note for note in report.notes)

    alone = [
        open_labeled(table, encoder.schema, **{k: options[k] for k in OPENING}, split_seed=s)
        for s in seeds
    ]
    data = alone[0]
    known = np.flatnonzero(np.isfinite(data.labels[:, 0]))
    bits = domain_of(data.store.schema).feature_set("ecfp4", data.store).values
    parts: list[np.ndarray] = []
    chosen: list[list[np.ndarray]] = [[] for _ in seeds]
    for values in (encoder.embed_store(data.store, "jk+sum"), sparse_bits(bits)):
        dense = isinstance(values, np.ndarray)
        scores: dict[float, list[float]] = {}
        for k, one in enumerate(alone):
            x = standardize(values, one.split.train) if dense else values
            path = linear_path(x, one.labels, one.split.train, one.task, (0.001, 0.01, 0.1, 1.0))
            held = one.split.valid
            found = {c: evaluate(one.labels[held], p[held], one.task) for c, p in path.items()}
            sign = -1 if task == "regression" else 1
            own = {c: sign * e.scores[one.metric] for c, e in found.items()}
            chosen[k].append(path[max(own, key=lambda c: own[c])])
            for c, score in own.items():
                scores.setdefault(c, []).append(score)
        c = max(scores, key=lambda c: np.mean(scores[c]))
        x = standardize(values, known) if dense else values
        parts.append(linear_path(x, data.labels, known, data.task, (c,))[c])
    expected = fuse(parts, data.task)
    predictor = Predictor.load(run)
    np.testing.assert_allclose(predictor.predict(CHAINS), expected, rtol=1e-4, atol=1e-5)

    (judged,) = report.calibration
    count = sum(int(np.isfinite(one.labels[one.split.valid]).sum()) for one in alone)
    assert judged["valid"] == count
    if task == "regression":
        errors = [
            np.abs(one.labels[one.split.valid] - fuse(found, "regression")[one.split.valid])
            for one, found in zip(alone, chosen, strict=True)
        ]
        pooled = np.sort(np.concatenate(errors)[:, 0])
        assert predictor.calibration is not None
        np.testing.assert_allclose(
            predictor.calibration.errors[:, 0], pooled[~np.isnan(pooled)], rtol=1e-3, atol=1e-4
        )
    assert json.loads((run / "split.json").read_text())["train"] == known.tolist()
