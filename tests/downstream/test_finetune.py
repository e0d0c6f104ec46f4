"""Fine-tuning: losses, schedules, runs, early stopping, weights of classes and of rows."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit

from cli_support import left_in
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    LENGTH,
    QUICK,
    chain_store,
    classifier,
    labeled,
    lengths,
    tiny_encoder,
    tuned,
    watch_steps,
    write_csv,
)
from graphlog.config import read_toml
from graphlog.data.split import Split
from graphlog.domains import schema_named
from graphlog.domains.molecule import MOLECULE
from graphlog.downstream.finetune import (
    FinetuneConfig,
    SeedJob,
    Start,
    common_start,
    finetune,
    label_weights,
)
from graphlog.downstream.linear import fuse
from graphlog.downstream.metrics import format_score
from graphlog.downstream.predictor import Head, Predictor
from graphlog.downstream.pretrained import load
from graphlog.downstream.probe import kernel_predictor
from graphlog.downstream.tasks import (
    LabeledGraphs,
    open_labeled,
    with_validation_set,
    without_validation_set,
)
from graphlog.encoders.encoder import with_settings
from graphlog.encoders.modelfile import digest_of
from graphlog.errors import ConfigError, DataError, NonFiniteLossError
from graphlog.report.describe import describe
from graphlog.training.log import Progress, read_metrics
from graphlog.training.trainer import TrainingInterrupted

NAN = float("nan")
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_regression_is_learned_in_the_labels_units(precision: str):
    labels = np.where(np.arange(48) % 7, 1e4 * LENGTH + 5e6, NAN)
    # without a decay the last epoch swings by 0.3 with the rounding of the processor
    fast = {"epochs": 20, "learning_rate": 2e-2, "decay_every": 5, "precision": precision}
    predictor = tuned(labeled(labels, "regression"), tiny_encoder("jk"), seeds=(0,), **fast)
    row = predictor.report.rows[0]
    assert row.mean("r2") > 0.8
    assert row.mean("mae") < row.mean("rmse") < np.nanstd(labels) / 3
    assert 4e6 < predictor.predict(["CCCCO"])[0, 0] < 6e6


def test_the_scaler_undoes_itself():
    labels = np.array([[1.0, 5.0], [3.0, NAN], [NAN, 5.0]], dtype=np.float32)
    head = Head(2, 2, "regression")
    head.fit_targets(labels)
    assert head.target_shift.tolist() == [2.0, 5.0]
    assert head.target_scale.tolist() == [1.0, 1.0]  # a constant column keeps its units
    scaled = (torch.from_numpy(labels) - head.target_shift) / head.target_scale
    np.testing.assert_allclose(head.predictions(scaled).numpy(), labels)
    assert head.loss(scaled.nan_to_num(0.0), torch.from_numpy(labels)).item() == 0.0


def test_losses_are_means_over_present_labels():
    outputs = torch.tensor([[0.3, -2.0], [1.5, 9.0]])
    labels = torch.tensor([[1.0, 0.0], [0.0, NAN]])
    by_hand = -np.mean(np.log(expit([0.3, 2.0, -1.5])))
    classes, values = Head(1, 2, "classification"), Head(1, 2, "regression")
    assert classes.loss(outputs, labels).item() == pytest.approx(by_hand)
    assert values.loss(outputs, labels).item() == pytest.approx((0.49 + 4.0 + 2.25) / 3, rel=1e-6)
    nothing = torch.full((2, 2), NAN)
    assert classes.loss(outputs, nothing).item() == values.loss(outputs, nothing).item() == 0.0


def test_the_encoder_given_and_global_randomness_are_left_alone():
    encoder, state = tiny_encoder(), torch.get_rng_state()
    before = digest_of(encoder.state_dict(), {})
    tuned(encoder=encoder)
    assert torch.equal(torch.get_rng_state(), state)
    assert digest_of(encoder.state_dict(), {}) == before


def test_freezing_changes_the_head_alone():
    encoder = tiny_encoder()
    predictor = tuned(encoder=encoder, freeze=True, epochs=40, learning_rate=0.1)
    one, other = (member.network for member in predictor.members)
    assert one is other
    assert digest_of(one.state_dict(), {}) == digest_of(encoder.network.state_dict(), {})
    assert predictor.report.mean > 0.9


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_frozen_embeddings_have_the_precision_asked_for(precision: str):
    encoder, data = tiny_encoder("jk"), lengths()
    config = FinetuneConfig(freeze=True, device="cpu", precision=precision)
    expected, other = (
        encoder.embed_store(data.store, "jk+sum", precision=p)
        for p in (precision, "bf16" if precision == "fp32" else "fp32")
    )
    np.testing.assert_array_equal(common_start(encoder, data, config).embeddings, expected)
    assert not np.array_equal(expected, other)


@pytest.mark.parametrize(
    ("layer", "schema"), [("last", "molecule"), ("jk", "molecule"), ("last", "molecule-cip")]
)
def test_the_papers_protocol_names_what_is_not_the_papers(layer: str, schema: str):
    encoder = tiny_encoder(layer, schema=schema_named(schema))
    data = open_labeled({"smiles": CHAINS, "y": IS_ALCOHOL}, encoder.schema, targets=["y"])
    notes = tuned(data, encoder, seeds=(0,)).report.notes
    found = [note for note in notes if "not comparable with those of the paper" in note]
    assert len(found) == ((layer, schema) != ("last", "molecule"))
    assert all(f"'{layer}'" in note and f"'{schema}'" in note for note in found)


def test_dropout_is_the_networks_own():
    network, batch = with_settings(tiny_encoder().network, dropout=0.5).train(), chain_store()[:4]
    assert network.config.dropout == 0.5
    assert not torch.equal(network(batch).graph_emb, network(batch).graph_emb)


def test_same_seed_same_bits_and_another_differs():
    """Settings may be a table."""
    first, second = (tuned(config=c, dropout=0.5) for c in (QUICK, QUICK.model_dump()))
    np.testing.assert_array_equal(first.predict(CHAINS), second.predict(CHAINS))
    assert not torch.equal(*(m.head.linear.weight for m in first.members))


def test_both_rules_are_reported_and_the_one_asked_for_comes_first():
    best = tuned(select="best-valid").report
    rules = {"last epoch", "best validation"}
    for report, first in ((classifier().report, "last epoch"), (best, "best validation")):
        assert report.rows[0].rule == first
        assert {row.rule for row in report.rows} == rules
        assert report.rows[0].detail["best_epochs"]
        assert report.sd == pytest.approx(np.std(report.rows[0].test["roc_auc"], ddof=1))


def test_the_best_epoch_is_the_best_on_validation():
    data = lengths()
    predictor = tuned(data, seeds=(0,), epochs=6, learning_rate=0.02, select="best-valid")
    row, valid = predictor.report.rows[0], data.split.valid
    found = predictor.predict([CHAINS[k] for k in valid])[:, 0]
    expected = np.sqrt(np.mean((found - LENGTH[valid]) ** 2))
    assert row.mean("rmse", "valid") == pytest.approx(expected, rel=1e-5)
    last = next(r for r in predictor.report.rows if r.rule == "last epoch")
    assert row.mean("rmse", "valid") <= last.mean("rmse", "valid") + 1e-9


def test_one_class_folds_are_named():
    alcohols, others = np.flatnonzero(IS_ALCOHOL), np.flatnonzero(IS_ALCOHOL == 0)
    split = Split(np.r_[alcohols[:6], others[:6]], others[6:9], np.r_[alcohols[6:], others[9:]])
    no_valid = replace(labeled(IS_ALCOHOL), split=split)
    with pytest.raises(DataError, match="one class only in the validation set"):
        tuned(no_valid, select="best-valid")
    with pytest.raises(DataError, match="drop `patience`"):
        tuned(no_valid, patience=2)
    notes = tuned(no_valid).report.notes
    assert any(note.startswith("only one class in the validation set") for note in notes)
    assert any("the last epoch is used" in note for note in notes)
    no_train = replace(no_valid, split=Split(others[:9], others[9:12], alcohols))
    with pytest.raises(DataError, match="one class only in the training set"):
        tuned(no_train)


def test_a_batch_of_one_atom_and_a_last_batch_of_one_graph():
    rows = np.arange(9)
    one = replace(labeled(IS_ALCOHOL), split=Split(rows, rows, rows))
    assert tuned(one, batch_size=1).report.mean >= 0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"learning_rate": 1e30, "epochs": 9}, NonFiniteLossError, "lower the learning rate"),
        ({"class_weight": "balanced"}, ConfigError, "class weights are for classes"),
        (
            {"with_features": ["ecfp4"]},
            ConfigError,
            r"the kernel model uses features: add `kernel=True`",
        ),
        *(
            ({name: "ecfp4"}, ConfigError, f"`{name}` is a list of names, found 'ecfp4'")
            for name in ("with_features", "callbacks")
        ),
    ],
)
def test_what_cannot_be_done_is_said(options: dict[str, Any], error: Any, words: str):
    with pytest.raises(error, match=words):
        tuned(lengths(), **options)


def test_baselines_beside_the_result():
    report = tuned(baselines=("random", "ecfp-rf", "ecfp-lr"), seeds=(0,)).report
    expected = {"fine-tuned", "untrained encoder, fine-tuned"}
    expected |= {"ECFP4 + random forest", "ECFP4 + logistic regression"}
    assert {row.model for row in report.rows} == expected
    assert "one seed: the standard deviation over seeds is unknown" in report.notes
    assert sum("1,280 unlabeled graphs that come with the package" in n for n in report.notes) == 1


def test_the_run_folder_is_complete(tmp_path: Path):
    run = tmp_path / "run"
    predictor = tuned(run_dir=run)
    names = "config.toml metrics.jsonl scores.json model.safetensors split.json versions.json"
    assert left_in(run) >= set(names.split())
    assert read_toml(run / "config.toml")["finetune"]["seeds"] == [0, 1]
    rows = read_metrics(run / "metrics.jsonl")
    assert [(r["seed"], r["epoch"]) for r in rows] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    scores = json.loads((run / "scores.json").read_text())
    assert scores["mean"] == pytest.approx(predictor.report.mean)
    assert scores["sd_ddof"] == 1
    again = Predictor.load(run)
    np.testing.assert_array_equal(again.predict(CHAINS), predictor.predict(CHAINS))
    assert again.report.to_dict() == predictor.report.to_dict()
    assert again.targets == ("y",)
    np.testing.assert_array_equal(load(run).embed(CHAINS), predictor.encoder.embed(CHAINS))


def test_a_used_folder_is_refused_resumed_or_replaced(tmp_path: Path, monkeypatch: Patch):
    run = {"run_dir": tmp_path / "run"}
    first = tuned(**run)
    with pytest.raises(ConfigError, match="`resume=True` or replace it with `overwrite=True`"):
        tuned(**run)
    kept = (tmp_path / "run" / "config.toml").read_bytes()
    for change, told in (
        ({"dropout": 0.3}, r"run was started with finetune\.dropout = 0\.\d, now 0\.3"),
        ({"encoder": tiny_encoder("jk", seed=9)}, "with other graphs, labels, split or weights"),
    ):
        with pytest.raises(ConfigError, match=told):
            tuned(**run, resume=True, **change)
        with pytest.raises(ConfigError, match=told):  # with other seeds as well
            tuned(**run, resume=True, seeds=(7,), **change)
    assert (tmp_path / "run" / "config.toml").read_bytes() == kept
    steps = watch_steps(monkeypatch)
    more = tuned(**run, resume=True, seeds=(0, 1, 2))
    assert {job.seed for job in steps} == {2}  # finished seeds are kept
    assert torch.equal(*(p.members[1].network.node.weight for p in (first, more)))
    tuned(**run, overwrite=True, seeds=(5,), epochs=1)
    assert left_in(tmp_path / "run" / "checkpoint") == {"seed-5"}


@pytest.mark.parametrize(("one", "other"), [("seed-1", "seed-0"), ("seed-0", "untrained-seed-0")])
def test_a_checkpoint_of_another_seed_or_encoder_is_refused(one: str, other: str, tmp_path: Path):
    run, folder = {"run_dir": tmp_path, "baselines": ["random"]}, tmp_path / "checkpoint"
    tuned(**run)
    shutil.rmtree(folder / other)
    shutil.copytree(folder / one, folder / other)
    with pytest.raises(ConfigError, match="was written for another seed, model or data set"):
        tuned(**run, resume=True)


PATIENT = {"epochs": 40, "learning_rate": 0.05, "patience": 3, "select": "best-valid"}
DEFAULT = {"protocol": "default", "hidden": 8, "standardize_embedding": True}
DEFAULT |= {"freeze_batch_norm": True}


@pytest.mark.parametrize(
    ("changes", "stop_after"),
    [({}, 1), ({}, 13), (DEFAULT, 7), (PATIENT, 13)],
    ids=["paper-1", "paper-13", "default-7", "patience-13"],
)
def test_an_interrupted_run_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: Patch, changes: dict[str, Any], stop_after: int
):
    """Killed between two steps, also within an epoch and in the second seed."""
    config, run = QUICK.updated({"epochs": 3, "dropout": 0.5} | changes), tmp_path / "run"
    how = {"encoder": tiny_encoder("jk"), "config": config}
    whole = tuned(**how).predict(CHAINS)

    def interrupt(step: int) -> None:
        if step == stop_after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        watch_steps(patch, interrupt)
        with pytest.raises(TrainingInterrupted, match="continue with `resume=True`"):
            tuned(**how, run_dir=run)
    np.testing.assert_array_equal(tuned(**how, run_dir=run, resume=True).predict(CHAINS), whole)
    rows = read_metrics(run / "metrics.jsonl")
    epochs = [[row["epoch"] for row in rows if row["seed"] == seed] for seed in (0, 1)]
    assert [row["epoch"] for row in rows] == [*epochs[0], *epochs[1]]
    for of_seed in epochs:
        assert of_seed == list(range(1, len(of_seed) + 1))
        assert len(of_seed) == 3 if config.patience is None else 3 < len(of_seed) < 40


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: Patch):
    monkeypatch.setattr(Predictor, "save", Mock(side_effect=OSError(28, "No space left")))
    told = r"No space left.*free space, then continue with `resume=True`"
    with pytest.raises(ValueError, match=told):
        tuned(run_dir=tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_request_to_stop_ends_the_step_and_saves(tmp_path: Path, monkeypatch: Patch):
    watch_steps(monkeypatch, lambda step: step == 2 and os.kill(os.getpid(), signal.SIGTERM))
    told = "in epoch 1 of seed 0; continue with `resume=True`"
    with pytest.raises(TrainingInterrupted, match=told):
        tuned(seeds=(0,), run_dir=tmp_path)
    assert (tmp_path / "checkpoint" / "seed-0" / "step-000000002.safetensors").is_file()
    assert "seed-0/step-000000002.safetensors" in describe(tmp_path)["state"]


def test_the_default_protocol_sees_all_layers_standardized_and_keeps_statistics():
    """With a step size of nearly 0 encoder and batch norms are as they came."""
    encoder, data = tiny_encoder("jk"), labeled(IS_ALCOHOL)
    config = FinetuneConfig(epochs=1, learning_rate=1e-12, encoder_rate=1e-12, device="cpu")
    (member,) = tuned(data, encoder, config=config, seeds=(0,)).members
    assert member.layer == "jk+sum"
    own, given = (dict(network.named_buffers()) for network in (member.network, encoder.network))
    assert digest_of(own, {}) == digest_of(given, {})
    known = data.store.subset(data.split.train)
    inputs = torch.from_numpy(encoder.embed_store(known, "jk+sum"))
    seen = (inputs - member.head.input_shift) * member.head.input_scale
    assert seen.mean(dim=0).abs().max() < 1e-3
    assert seen.std(dim=0, unbiased=False).max() < 1 + 1e-3
    assert member.head.hidden.out_features == config.hidden


def test_a_hidden_layer_is_dropped_out_in_training_and_loaded_again(tmp_path: Path):
    config = FinetuneConfig(epochs=2, hidden=6, dropout=0.3, device="cpu")
    predictor = tuned(lengths(), tiny_encoder("jk"), config=config, seeds=(0,))
    head, width = predictor.members[0].head, tiny_encoder().width("jk+sum")
    x = torch.randn(4, width)
    assert torch.equal(head(x), head(x))
    assert not torch.equal(head.train()(x), head(x))
    predictor.save(tmp_path / "model.safetensors")
    again = Predictor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(CHAINS), predictor.predict(CHAINS))
    with torch.no_grad():
        inputs = ((x - head.input_shift) * head.input_scale).clamp(-head.clip, head.clip).numpy()
        first, last = head.hidden, head.linear
        units = np.maximum(inputs @ first.weight.numpy().T + first.bias.numpy(), 0)
        expected = units @ last.weight.numpy().T + last.bias.numpy()
        np.testing.assert_allclose(head.eval()(x).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_schedules_scale_with_the_epochs():
    """A decay that is due at epoch 30 of 100 is due at epoch 3 of 10."""
    steps, cosine = (
        [FinetuneConfig(protocol=name, epochs=10).learning_rate_at(e) for e in range(1, 11)]
        for name in ("paper", "default")
    )
    np.testing.assert_allclose(steps[2:4], [1e-3, 3e-4])
    assert steps[-1] == pytest.approx(1e-3 * 0.3**3)
    assert cosine == sorted(cosine, reverse=True)
    assert cosine[0] == 1e-3
    assert cosine[-1] < 1e-4


def test_the_paper_protocol_is_the_papers():
    paper = FinetuneConfig(protocol="paper")
    expected = {"epochs": 100, "batch_size": 32, "dropout": 0.5, "schedule": "step", "hidden": 0}
    expected |= {"encoder_rate": None, "learning_rate": 1e-3, "freeze_batch_norm": False}
    expected |= {"standardize_embedding": False}
    assert expected.items() <= paper.model_dump().items()
    assert FinetuneConfig(protocol="paper", epochs=5).epochs == 5
    assert paper.updated({"epochs": 7}).schedule == "step"


def test_settings_follow_from_others_unless_given():
    assert FinetuneConfig().select == "last"
    assert FinetuneConfig(patience=3).select == "best-valid"
    assert FinetuneConfig(patience=3, select="last").select == "last"
    one_rate = FinetuneConfig(encoder_rate=None, learning_rate=0.01)
    again = FinetuneConfig.parse(one_rate.written())  # one rate for all stays one
    assert again.encoder_rate == again.learning_rate == 0.01
    assert FinetuneConfig.of_file(one_rate.written()).encoder_rate is None
    chosen = FinetuneConfig(encoder_rate=1e-3)  # as fast as the head is by default
    assert chosen.updated({"learning_rate": 0.005}).encoder_rate == 1e-3


@pytest.mark.parametrize("is_written", [True, False])
def test_what_is_laid_over_settings_takes_its_own_with_it(is_written: bool):
    """Settings of a file, which has them all, are no more chosen than those of an object."""

    def settings(**chosen: Any) -> FinetuneConfig:
        config = FinetuneConfig(**chosen)
        return FinetuneConfig.of_file(config.written()) if is_written else config

    paper = settings(epochs=2).updated({"protocol": "paper"})
    assert paper.model_dump() == FinetuneConfig(protocol="paper", epochs=2).model_dump()
    back = settings(protocol="paper", hidden=7).updated({"protocol": "default"})
    assert back.model_dump() == FinetuneConfig(hidden=7).model_dump()
    assert settings().updated({"patience": 3}).select == "best-valid"
    assert settings(patience=3).updated({"patience": None}).select == "last"
    assert settings(patience=3, select="last").updated({"patience": 4}).select == "last"
    faster = settings(protocol="paper").updated({"learning_rate": 0.01})
    assert faster.learning_rate == 0.01
    assert faster.encoder_rate is None
    assert settings().updated({"learning_rate": 0.01}).encoder_rate == FinetuneConfig().encoder_rate


def test_an_untrained_encoder_is_trained_from_scratch(tmp_path: Path):
    """Where nothing else is asked for; what is in force is recorded."""
    encoder, usual = tiny_encoder(), FinetuneConfig().updated({"epochs": 1})
    assert usual.for_encoder(encoder) == usual
    encoder.info["name"] = "random"
    config = usual.for_encoder(encoder)
    assert (config.encoder_rate, config.freeze_batch_norm) == (None, False)
    assert usual.updated({"encoder_rate": 1e-5}).for_encoder(encoder).encoder_rate == 1e-5
    run = {"run_dir": tmp_path, "seeds": (0,), "baselines": ()}
    found = finetune(encoder, labeled(IS_ALCOHOL), config=usual, **run)
    assert found.info["finetune"]["encoder_rate"] is None
    config = read_toml(tmp_path / "config.toml")["finetune"]
    assert (config["encoder_rate"], config["freeze_batch_norm"]) == (1e-3, False)
    del config["seeds"]
    finetune(encoder, labeled(IS_ALCOHOL), config=config, resume=True, **run)


def test_a_kernel_model_that_is_better_on_the_validation_fold_is_named():
    encoder, data = tiny_encoder("jk"), lengths()
    hidden = replace(data, labels=data.labels.copy())
    hidden.labels[data.split.test] = NAN
    # one epoch from random weights learns nothing
    changes = {"protocol": "default", "standardize_embedding": False, "epochs": 1}
    config = FinetuneConfig.parse({**QUICK.model_dump(), **changes})
    cases = ((data, config), (hidden, config), (data, QUICK))
    found = [tuned(d, encoder, config=c, seeds=(0,)).report for d, c in cases]
    named = [[n for n in report.notes if "kernel model" in n] for report in found]
    assert named[0] == named[1]
    assert not named[2]  # the paper's protocol
    better = data.score(kernel_predictor(encoder, data)[1], "valid")
    own = found[0].rows[0].mean("rmse", "valid")
    shown = [format_score(score, "rmse") for score in (better, own)]
    assert f"rmse {shown[0]} instead of {shown[1]}. Try `probe` with " in named[0][0]
    assert better < own


@pytest.mark.parametrize(("task", "freeze"), [("classification", False), ("regression", True)])
def test_a_kernel_model_is_averaged_with_the_fine_tuned_networks(
    task: str, freeze: bool, tmp_path: Path
):
    data = lengths() if task == "regression" else labeled(IS_ALCOHOL)
    encoder, store, features = tiny_encoder("jk"), data.store, ("ecfp4",)
    config = FinetuneConfig(epochs=2, device="cpu", freeze=freeze)
    alone = tuned(data, encoder, config=config)
    both = tuned(data, encoder, config=config, kernel=True, with_features=features)
    kernel, predicted, _ = kernel_predictor(encoder, data, features)
    mean = fuse([alone.predict(store), kernel.predict(store)], task)
    both.save(tmp_path / "model.safetensors")
    for predictor in (both, Predictor.load(tmp_path / "model.safetensors")):
        found = predictor.predict_uncertain(store)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
        np.testing.assert_array_equal(found.std, alone.predict_uncertain(store).std)
        np.testing.assert_array_equal(predictor.predict(store), found.mean)
        assert predictor.features == kernel.features
    rows = {row.model: row.mean(data.metric, "test") for row in both.report.rows}
    assert rows["kernel model, frozen encoder"] == data.score(predicted, "test")
    average = rows["fine-tuned and kernel model, averaged"]
    assert average == pytest.approx(data.score(mean, "test"), rel=1e-5)
    assert not any("frozen encoder is better" in note for note in both.report.notes)


@pytest.mark.parametrize(("task", "freeze"), [("classification", True), ("regression", False)])
def test_seeds_with_their_own_validation_sets_are_like_runs_with_given_ones(
    task: str, freeze: bool
):
    data, seeds = lengths() if task == "regression" else labeled(IS_ALCOHOL), (0, 3, 7)
    config, encoder = FinetuneConfig(epochs=3, device="cpu", freeze=freeze), tiny_encoder("jk")
    found = tuned(data, encoder, config=config, seeds=seeds, resample_validation=True, kernel=True)
    whole = without_validation_set(data)
    assert whole.split.train.tolist() == sorted([*data.split.train, *data.split.valid])
    networks, held_out = list[np.ndarray](), list[tuple[np.ndarray, np.ndarray]]()
    for seed in seeds:
        own = with_validation_set(whole, seed)
        valid = own.split.valid
        assert np.array_equal(np.union1d(own.split.train, valid), whole.split.train)
        assert len(valid) == len(whole.split.train) // 10
        alone = tuned(own, encoder, config=config, seeds=(seed,))
        networks.append(alone.predict(data.store))
        held_out.append((valid, np.stack([networks[-1], kernel_predictor(encoder, own)[1]])))
    graphs = sorted({int(g) for valid, _ in held_out for g in valid})
    assert len(graphs) > len(whole.split.train) // 10
    by_network, by_kernel = np.full((2, *data.labels.shape), NAN)
    for graph in graphs:
        of_graph = [models[:, graph] for valid, models in held_out if graph in valid]
        by_network[graph], by_kernel[graph] = np.mean(of_graph, axis=0)
    fitted, of_test, _ = kernel_predictor(encoder, whole)
    mean = fuse([np.mean(networks, axis=0), fitted.predict(data.store)], task)
    np.testing.assert_allclose(found.predict(data.store), mean, rtol=1e-5)
    # scores of validation are those of all held-out graphs, by models that did not learn from them
    scored = replace(whole, split=whole.split._replace(valid=np.array(graphs)))
    expected = fuse([by_network, by_kernel], task)
    rows = {row.model: row for row in found.report.rows}
    for model, values, of_all in (
        ("fine-tuned and kernel model, averaged", expected, mean),
        ("fine-tuned, mean of 3 seeds", by_network, np.mean(networks, axis=0)),
        ("kernel model, frozen encoder", by_kernel, of_test),
    ):
        shown = (rows[model].mean(data.metric, part) for part in ("valid", "test"))
        correct = (data.score(of_all, "test"), scored.score(values, "valid"))
        assert tuple(shown) == pytest.approx(correct[::-1], rel=1e-4)
    if task == "regression":
        errors = np.sort(np.abs(expected - data.labels)[graphs, 0])
        assert found.calibration is not None
        np.testing.assert_allclose(found.calibration.errors[:, 0], errors, rtol=1e-4, atol=1e-5)
    sizes = {"train": len(whole.split.train), "valid": len(graphs), "test": len(data.split.test)}
    assert found.report.sizes == sizes | {"rejected": 0}
    assert any(f"their {len(graphs)} molecules are scored" in n for n in found.report.notes)


def test_a_run_whose_seeds_draw_validation_sets_can_be_resumed_with_more_seeds(tmp_path: Path):
    how = {"run_dir": tmp_path / "run", "resample_validation": True}
    tuned(**how, seeds=(4,))
    more = tuned(**how, seeds=(1, 4), resume=True)
    np.testing.assert_array_equal(
        more.predict(CHAINS), tuned(resample_validation=True, seeds=(1, 4)).predict(CHAINS)
    )
    with pytest.raises(ConfigError, match=r"finetune\.resample_validation = True, now False"):
        tuned(run_dir=tmp_path / "run", resume=True)


def test_a_validation_set_that_takes_the_only_labels_of_a_class_is_refused():
    rare = np.zeros(48)
    data = labeled(rare)
    drawn = [set(with_validation_set(without_validation_set(data), s).split.valid) for s in (0, 1)]
    only = sorted(drawn[0] - drawn[1])[0]
    rare[:] = 0.0
    rare[[only, data.split.test[0]]] = 1.0
    with pytest.raises(DataError, match=r"^seed 0 drew a validation set without which .* y has "):
        tuned(labeled(rare), seeds=(1, 0), resample_validation=True)
    tuned(labeled(rare), seeds=(1,), resample_validation=True)


def test_a_run_keeps_its_kernel_model_when_it_is_resumed(tmp_path: Path):
    run, kernel = {"run_dir": tmp_path / "run"}, {"kernel": True, "with_features": ["ecfp4"]}
    first = tuned(**run, **kernel)
    assert first.report.rows[0].model == "fine-tuned and kernel model, averaged"
    for changed, name in (({}, "kernel"), ({"kernel": True}, "with_features")):
        with pytest.raises(ConfigError, match=rf"was started with finetune\.{name} = .*, now "):
            tuned(**run, resume=True, **changed)
    again = tuned(**run, resume=True, **kernel)
    np.testing.assert_array_equal(first.predict(CHAINS), again.predict(CHAINS))


def test_graphs_of_weight_0_teach_nothing(tmp_path: Path):
    weights = (np.arange(48) % 3 > 0).astype(np.float32)
    only_theirs = np.where(weights, NAN, LENGTH)
    found, spoilt = (
        tuned(replace(labeled(y, "regression", ("y", "z")), weights=weights), kernel=True)
        for y in (
            np.stack([LENGTH, only_theirs], axis=1),
            np.stack([np.where(weights, LENGTH, -9999), only_theirs], axis=1),
        )
    )
    values = found.predict(CHAINS)
    np.testing.assert_array_equal(values, spoilt.predict(CHAINS))
    assert np.isnan(values).all(axis=0).tolist() == [False, True]
    assert any(
        "graphs are in no part of the split, among them those of weight 0" in n
        for n in found.report.notes
    )
    data = replace(labeled(IS_ALCOHOL), weights=1 - IS_ALCOHOL)
    with pytest.raises(DataError, match="one class only in the training set"):
        tuned(data, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


SOME = torch.tensor([[1, 0, NAN], [0, 1, 1], [1, 1, 0], [NAN, 0, 1], [0, 0, 1]])
LABELS = {"classification": SOME, "regression": 3.5 * SOME}
LABELS |= {"multiclass": torch.eye(3)[[0, 1, 2, 1, 0]]}


@pytest.mark.parametrize("task", LABELS)
def test_a_weight_of_three_is_a_row_given_three_times(task: str):
    """Loss and gradient; a weight of 0 is a row left out."""
    counts, labels = torch.tensor([3, 1, 2, 0, 1]), LABELS[task]
    outputs = torch.randn(5, 3, requires_grad=True)
    head, rows = Head(4, 3, task), torch.arange(5).repeat_interleave(counts)  # type: ignore[arg-type]
    weights = counts[:, None].repeat(1, 3).double()
    weights /= weights[~labels.isnan()].mean()
    weighted = head.loss(outputs, labels, weights)
    repeated = head.loss(outputs[rows], labels[rows])
    torch.testing.assert_close(weighted, repeated, rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(loss, outputs)[0] for loss in (weighted, repeated)]
    torch.testing.assert_close(*gradients)
    plain = [head.loss(outputs, labels, *weights) for weights in ((), (torch.ones(5, 3),))]
    torch.testing.assert_close(*plain, rtol=1e-12, atol=0)
    assert head.loss(outputs, labels, torch.zeros(5, 3)).item() == 0.0


def test_batches_with_a_heavy_label_are_larger_steps_than_others():
    """The mean over batches of one size is the loss of all: a rare class keeps its weight."""
    labels, weights = torch.eye(2).repeat(4, 1)[:, :1], torch.full((8, 1), 0.1)
    labels[1:], weights[0] = 0.0, 7.3
    outputs, head = torch.randn(8, 1), Head(4, 1, "classification")
    batches = [slice(k, k + 2) for k in (0, 2, 4, 6)]
    parts = [head.loss(outputs[rows], labels[rows], weights[rows]) for rows in batches]
    torch.testing.assert_close(torch.stack(parts).mean(), head.loss(outputs, labels, weights))
    data = replace(labeled(IS_ALCOHOL), weights=np.linspace(0, 50, 48, dtype=np.float32))
    config = FinetuneConfig(class_weight="balanced", hidden=0, precision="fp32")
    job = SeedJob(Start(tiny_encoder(), data, config, None, ""), 0, Progress())
    assert job.label_weights[data.split.train].mean().item() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("task", ["classification", "multiclass"])
def test_balanced_classes_count_alike(task: str):
    rare = (np.arange(48) % 8 == 0).astype(np.float32)[:, None]
    labels = np.concatenate([1 - rare, rare], axis=1) if task == "multiclass" else rare
    labels[3] = NAN
    data = replace(labeled(labels, "regression", tuple("ab")[: labels.shape[1]]), task=task)
    weights = label_weights(data, FinetuneConfig(class_weight="balanced"))
    train = data.split.train
    y, w = labels[train], weights[train]
    sums = [w[y[:, -1] == value, 0].sum() for value in (0, 1)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-5)
    assert sum(sums) == pytest.approx((~np.isnan(y[:, 0])).sum(), rel=1e-5)


@pytest.mark.parametrize("only", [NAN, 1.0])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_target_without_labels_that_differ_is_predicted_nan(
    task: str, only: float, tmp_path: Path
):
    y = LENGTH if task == "regression" else IS_ALCOHOL
    data = labeled(np.stack([y, y], axis=1), task, ("y", "z"))
    labels = data.labels.copy()
    labels[data.split.train, 1] = only
    found = tuned(replace(data, labels=labels), seeds=(0,), run_dir=tmp_path / "run")
    for predictor in (found, Predictor.load(tmp_path / "run" / "model.safetensors")):
        uncertain = predictor.predict_uncertain(CHAINS)
        assert np.isfinite(uncertain.mean[:, 0]).all()
        assert np.isnan(uncertain.mean[:, 1]).all()
        assert uncertain.calibrated is None or np.isnan(uncertain.calibrated[:, 1]).all()


def test_the_report_judges_what_predicts_where_a_class_was_not_learned():
    ends = np.arange(len(CHAINS)) % 4
    data = replace(labeled(np.eye(4)[ends], "classification", tuple("abcd")), task="multiclass")
    data.labels[np.intersect1d(data.split.train, np.flatnonzero(ends == 3))] = NAN
    data = replace(data, metric="accuracy")
    found = tuned(data, seeds=(0,), epochs=1, learning_rate=1e-5, encoder_rate=None)
    predicted = found.predict(CHAINS)
    assert not predicted[:, 3].any()
    row = next(row for row in found.report.rows if row.rule == "last epoch")
    for fold in ("valid", "test"):
        scores = data.evaluate(predicted, getattr(data.split, fold)).scores
        reported = {name: values[0] for name, values in getattr(row, fold).items()}
        assert reported == pytest.approx(scores, nan_ok=True, abs=1e-9)


def weighing(weights: list[Any], **options: Any) -> LabeledGraphs:
    table = {"smiles": CHAINS, "y": IS_ALCOHOL.astype(int).tolist(), "w": weights}
    return open_labeled(table, MOLECULE, **{"weights": "w", "split": "random"} | options)


def test_weights_come_from_a_column(tmp_path: Path):
    weights = [k % 3 for k in range(48)]
    source = write_csv(tmp_path / "in.csv", CHAINS, y=IS_ALCOHOL, w=weights)
    of_file = open_labeled(source, MOLECULE, targets=["y"], weights="w", split="random")
    for data in (weighing(weights), of_file):
        assert data.targets == ("y",)
        np.testing.assert_array_equal(data.weights, weights)
    for column in (np.ones(48), pd.Series(np.ones(48)), weights):
        with pytest.raises(ConfigError, match="`weights` is the name of a column, found"):
            tuned({"smiles": CHAINS, "y": IS_ALCOHOL}, weights=column)
    with pytest.raises((ConfigError, DataError), match="'x'"):
        open_labeled(source, MOLECULE, targets=["y"], weights="x", split="random")


@pytest.mark.parametrize("bad", ["", "-1", "inf"])
def test_bad_weights_are_refused(bad: str):
    with pytest.raises(DataError, match=r"row 47|not a finite number|not a number"):
        weighing([1] * 47 + [bad], targets=["y"])
    with pytest.raises(DataError, match="all weights of the training set are 0"):
        tuned(weighing([0] * 48))


@pytest.mark.parametrize("chosen_by", ["rmse", "rmse_in_sd"])
def test_a_seed_stops_when_validation_no_longer_improves(tmp_path: Path, chosen_by: str):
    both = labeled(np.stack([LENGTH, 1e4 * LENGTH**2], axis=1), "regression", ("y", "z"))
    data = lengths() if chosen_by == "rmse" else both
    row = tuned(data, run_dir=tmp_path, **PATIENT).report.rows[0]
    assert row.rule == "best validation"
    logged, ends = read_metrics(tmp_path / "metrics.jsonl"), ("best_epochs", "stopped_after")
    for seed, best, ran in zip((0, 1), *(row.detail[name] for name in ends), strict=True):
        assert ran == best + 3 < 40
        valid = [r[f"valid/{chosen_by}"] for r in logged if r["seed"] == seed]
        assert len(valid) == ran
        assert int(np.argmin(valid)) == best - 1


@pytest.mark.parametrize("freeze", [False, True])
def test_a_weight_of_two_is_a_row_given_twice(freeze: bool):
    config = {"epochs": 3, "batch_size": 99, "dropout": 0, "device": "cpu", "freeze": freeze}
    weighted = {"smiles": CHAINS, "y": LENGTH.tolist(), "w": [2.0] * 10 + [1.0] * 38}
    twice = {"smiles": CHAINS + CHAINS[:10], "y": [*LENGTH.tolist(), *LENGTH[:10].tolist()]}
    split = (range(36), range(36, 42), range(42, 48))
    how: dict[str, Any] = {"targets": ["y"], "seeds": (0,), "config": config}
    found = tuned(weighted, split=split, weights="w", **how)
    assert any("only fine-tuned networks use weights" in note for note in found.report.notes)
    split = ([*range(36), *range(48, 58)], *split[1:])
    expected = tuned(twice, split=split, **how).predict(CHAINS)
    np.testing.assert_allclose(found.predict(CHAINS), expected, rtol=1e-4)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_target_that_is_skipped_moves_nothing(task: str):
    y = IS_ALCOHOL if task == "classification" else LENGTH
    found = list[np.ndarray]()
    for value in (NAN, 1.0):
        data = labeled(np.stack([y, np.full(48, value)], axis=1), task, ("y", "same"))
        found.append(tuned(data, seeds=(0,)).predict(CHAINS)[:, 0])
    np.testing.assert_array_equal(*found)


def test_a_validation_fold_without_labels_is_named():
    data = labeled(np.where(np.arange(48) % 5 == 3, NAN, LENGTH), "regression")
    notes = tuned(data, seeds=(0,)).report.notes
    assert "no target has a label in the validation set: the last epoch is used" in notes
