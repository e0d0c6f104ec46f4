"""Early stopping, weights of classes and of rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from downstream_support import CHAINS, IS_ALCOHOL, labeled, lengths, tiny_encoder, tuned, write_csv
from graphlog.data.split import Split
from graphlog.downstream.finetune import FinetuneConfig, label_weights
from graphlog.downstream.predictor import Head
from graphlog.downstream.tasks import open_labeled
from graphlog.errors import ConfigError, DataError
from graphlog.training.log import read_metrics

NAN = float("nan")
TASKS = ("classification", "regression", "multiclass")


def _labels(task: str) -> np.ndarray:
    if task == "multiclass":
        return np.eye(3, dtype=np.float32)[[0, 1, 2, 1, 0]]
    values = np.array([[1, 0, NAN], [0, 1, 1], [1, 1, 0], [NAN, 0, 1], [0, 0, 1]], dtype=np.float32)
    return values * 3.5 if task == "regression" else values


@pytest.mark.parametrize("task", TASKS)
def test_a_weight_of_three_is_a_row_given_three_times(task: str):
    """Loss and gradient; a weight of 0 is a row left out."""
    counts, labels = np.array([3, 1, 2, 0, 1]), torch.from_numpy(_labels(task))
    outputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    head = Head(4, 3, task)  # type: ignore[arg-type]
    weights = torch.from_numpy(np.repeat(counts[:, None], 3, axis=1).astype(np.float32))
    rows = torch.from_numpy(np.repeat(np.arange(5), counts))
    weighted = head.loss(outputs, labels, weights)
    repeated = head.loss(outputs[rows], labels[rows])
    torch.testing.assert_close(weighted, repeated, rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(loss, outputs)[0] for loss in (weighted, repeated)]
    torch.testing.assert_close(*gradients)
    ones = head.loss(outputs, labels, torch.ones(5, 3))
    torch.testing.assert_close(ones, head.loss(outputs, labels), rtol=1e-12, atol=0)
    assert head.loss(outputs, labels, torch.zeros(5, 3)).item() == 0.0


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


def test_weights_change_what_is_learned_and_nothing_is_the_default():
    data, heavy = labeled(IS_ALCOHOL), np.where(IS_ALCOHOL == 1, 20.0, 1.0).astype(np.float32)
    plain = tuned(data, seeds=(0,)).predict(CHAINS)
    ones = replace(data, weights=np.ones(48, dtype=np.float32))
    same = tuned(ones, seeds=(0,)).predict(CHAINS)
    np.testing.assert_allclose(same, plain, rtol=1e-4, atol=1e-6)
    found = tuned(replace(data, weights=heavy), seeds=(0,))
    assert found.predict(CHAINS).mean() > plain.mean()
    assert any("weights are used in fine-tuning only" in note for note in found.report.notes)


def test_class_weights_need_classes():
    with pytest.raises(ConfigError, match="class weights are for classes"):
        tuned(lengths(), class_weight="balanced")


def test_weights_come_from_a_column(tmp_path: Path):
    weights = [k % 3 for k in range(48)]
    labels = {"y": IS_ALCOHOL.astype(int).tolist(), "w": weights}
    source = write_csv(tmp_path / "in.csv", CHAINS, **labels)
    data = open_labeled(source, tiny_encoder().schema, targets=["y"], weights="w", split="random")
    assert data.targets == ("y",)
    np.testing.assert_array_equal(data.weights, weights)
    import pandas as pd

    frame = pd.read_csv(source)
    data = open_labeled(frame, tiny_encoder().schema, weights="w", split="random")
    assert data.targets == ("y",)
    np.testing.assert_array_equal(data.weights, weights)
    with pytest.raises((ConfigError, DataError), match="'x'"):
        open_labeled(source, tiny_encoder().schema, targets=["y"], weights="x", split="random")


@pytest.mark.parametrize("bad", ["", "-1", "inf"])
def test_bad_weights_are_refused(tmp_path: Path, bad: str):
    source = write_csv(tmp_path / "in.csv", CHAINS[:20], y=[0, 1] * 10, w=[1] * 19 + [bad])
    with pytest.raises(DataError, match=r"row 19|not a finite number|not a number"):
        open_labeled(source, tiny_encoder().schema, targets=["y"], weights="w", split="random")
    nothing = write_csv(tmp_path / "zero.csv", CHAINS[:20], y=[0, 1] * 10, w=[0] * 20)
    with pytest.raises(DataError, match="all weights of the training fold are 0"):
        tuned(nothing, targets=["y"], weights="w", split="random")


def test_a_train_fold_without_weight_is_refused():
    data, weights = labeled(IS_ALCOHOL), np.ones(48, dtype=np.float32)
    weights[data.split.train] = 0
    with pytest.raises(DataError, match="all weights of the training fold are 0"):
        tuned(replace(data, weights=weights))


def test_a_seed_stops_when_validation_no_longer_improves(tmp_path: Path):
    run, soon = tmp_path / "run", {"epochs": 40, "learning_rate": 0.05, "patience": 3}
    predictor = tuned(lengths(), run_dir=run, select="best-valid", **soon)
    row = predictor.report.rows[0]
    assert row.rule == "best validation"
    logged = read_metrics(run / "metrics.jsonl")
    for seed, best, ran in zip(
        (0, 1), row.detail["best_epochs"], row.detail["stopped_after"], strict=True
    ):
        assert ran == best + 3 < 40
        valid = [r["valid/rmse"] for r in logged if r["seed"] == seed]
        assert len(valid) == ran
        assert int(np.argmin(valid)) == best - 1


def test_patience_selects_the_best_epoch_unless_told_otherwise():
    assert FinetuneConfig().select == "last"
    assert FinetuneConfig(patience=3).select == "best-valid"
    assert FinetuneConfig(patience=3, select="last").select == "last"


def test_patience_needs_a_validation_score():
    alcohols, others = np.flatnonzero(IS_ALCOHOL), np.flatnonzero(IS_ALCOHOL == 0)
    split = Split(np.r_[alcohols[:6], others[:6]], others[6:9], np.r_[alcohols[6:], others[9:]])
    data = replace(labeled(IS_ALCOHOL), split=split)
    with pytest.raises(DataError, match="drop `patience`"):
        tuned(data, patience=2)


def test_they_are_options_of_fine_tuning(tmp_path: Path):
    source = write_csv(tmp_path / "in.csv", CHAINS, y=[0, 1] * 24, w=[1] * 48)
    options = {"targets": ["y"], "weights": "w", "class_weight": "balanced", "patience": 1}
    found = tuned(source, split="random", seeds=(0,), config=None, epochs=3, **options)
    assert found.info["finetune"]["patience"] == 1
    assert found.report.rows[0].rule == "best validation"
