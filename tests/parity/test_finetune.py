"""Fine-tuning loss, schedule and scores against the numbers recorded from the reference code."""

from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_support import golden_batch, golden_encoder
from graphlog.downstream.finetune import FinetuneConfig
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.predictor import FineTuned, Head


def test_learning_rate_of_every_epoch(golden: Path):
    with np.load(golden / "chem_finetune_lr.npz") as file:
        released = [
            FinetuneConfig(protocol="paper", schedule="released").learning_rate_at(int(e))
            for e in file["epoch"]
        ]
        np.testing.assert_allclose(released, file["lr_used_during_epoch"], rtol=1e-12)
    step = [FinetuneConfig(protocol="paper").learning_rate_at(e) for e in (1, 30, 31, 60, 61)]
    np.testing.assert_allclose(step, [1e-3, 1e-3, 3e-4, 3e-4, 9e-5])


def labels_of(y: np.ndarray) -> np.ndarray:
    """Return 0 and 1 for the -1 and 1 of chemistry, where 0 is missing."""
    return np.where(y == 0, np.nan, (y + 1) / 2)


@pytest.mark.parametrize("name", ["chem", "bio"])
def test_auc(golden: Path, name: str):
    with np.load(golden / f"{name}_eval_auc.npz") as file:
        y = file["y"].astype(np.float64)
        y = labels_of(y) if name == "chem" else (y > 0).astype(np.float64)
        result = evaluate(y, file["scores"], "classification")
        found, wanted = result.per_task["roc_auc"], file["per_task_auc"]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
        mean = file["macro_auc" if name == "chem" else "nanmean_auc"]
    assert result.scores["roc_auc"] == pytest.approx(float(mean), abs=1e-12)


def test_masked_loss_and_its_gradients(golden: Path):
    with np.load(golden / "chem_encoder_gin_3x64_random.npz") as file:
        network = golden_encoder(file)
    recorded = dict(np.load(golden / "chem_finetune_loss.npz"))
    labels = torch.from_numpy(labels_of(recorded["y"]).astype(np.float32))
    model = FineTuned(network, Head(64, 12, "classification"), "last").eval()
    weights = {name: torch.from_numpy(recorded[f"head_{name}"]) for name in ("weight", "bias")}
    model.head.linear.load_state_dict(weights)
    outputs = model(golden_batch(golden, "chem"))
    recorded_outputs = torch.from_numpy(recorded["pred"])
    loss = model.head.loss(outputs, labels)
    loss.backward()
    assert int((~labels.isnan()).sum()) == int(recorded["n_valid"])
    gap = (outputs.detach() - recorded_outputs).abs().max()
    assert float(gap) <= 1e-5 * float(recorded_outputs.abs().max())
    assert float(loss.detach()) == pytest.approx(float(recorded["loss"]), abs=1e-5)
    weights = {"head_weight": model.head.linear.weight, "x_embedding1": network.node.weight}
    for name, weight in weights.items():
        grad = recorded[f"grad_{name}"]
        bound = 1e-4 * np.abs(grad).max()
        np.testing.assert_allclose(weight.grad[: len(grad)], grad, rtol=0, atol=bound)
