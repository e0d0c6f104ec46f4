"""What a GPU's speed rests on, as far as it can be tested without one."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoder_support import batch_for, begin_last_phase, encoder_for, make, seeded
from graphlog import prototypes
from graphlog.errors import NonFiniteLossError
from graphlog.training.pretrain import Pretraining, run_pretraining
from graphlog.training.trainer import Cursor, NamedAdam, Trainer
from training_support import blow_up, families, outcome, small_config, undisturbed

NEVER_WAIT = ["attrmasking", "descriptorpred", "graphmae", "infograph", "infomax"]
NEVER_WAIT += [f"graphlog/{recipe}" for recipe in ("default", "graphlog", "paper", "released")]
WAIT = ["contextpred", "edgepred", "graphcl", "graphpartition"]
"""The sizes of what these draw are known to the device alone."""


@pytest.fixture
def on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let code run on tensors of the device ``meta``, which have shapes and no values."""
    enabled, autocast = torch.is_autocast_enabled, torch.autocast

    def is_enabled(device: str = "cpu") -> bool:
        return device != "meta" and enabled(device)

    def context(device: str, *args: Any, **options: Any) -> Any:
        return nullcontext() if device == "meta" else autocast(device, *args, **options)

    def draw(probabilities: Tensor, generator: torch.Generator) -> Tensor:
        return probabilities.argmax(dim=1)

    monkeypatch.setattr(torch, "is_autocast_enabled", is_enabled)
    monkeypatch.setattr(torch, "autocast", context)
    # a draw happens where the generator lives, and no generator lives on this device
    monkeypatch.setattr(prototypes, "_draw", draw)


def step_without_values(name: str) -> None:
    """Run a step on tensors without values: whatever looks at one on the CPU raises an error."""
    encoder = encoder_for()
    objective = make(name, encoder)
    begin_last_phase(objective, encoder)
    batch = batch_for(sizes=[3, 5, 2, 7], substructures=objective.needs_substructures)
    encoder.to("meta")
    objective.to("meta")
    views = objective.views(batch.to("meta"), seeded())
    objective.loss(views, encoder, seeded(1)).total.backward()
    assert all(p.grad is not None and p.grad.is_meta for p in encoder.parameters())


@pytest.mark.usefixtures("on_meta")
@pytest.mark.parametrize("name", NEVER_WAIT)
def test_a_step_never_waits_for_a_value(name: str):
    step_without_values(name)


@pytest.mark.usefixtures("on_meta")
@pytest.mark.parametrize("name", WAIT)
def test_values_that_are_looked_at_are_noticed(name: str):
    with pytest.raises((NotImplementedError, RuntimeError), match=r"(?i)meta|unimplemented"):
        step_without_values(name)


def test_a_skipped_update_changes_nothing():
    def trained(skips: tuple[bool, ...]) -> dict[str, Any]:
        layer = nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.arange(6.0).view(2, 3))
            layer.bias.zero_()
        optimizer = NamedAdam(layer.named_parameters())
        for skip in skips:
            optimizer.zero_grad()
            (layer(torch.ones(1, 3)).square().sum() * (float("nan") if skip else 1.0)).backward()
            optimizer.step(0.1, torch.tensor(skip))
        return {**layer.state_dict(), **optimizer.state()}

    some, clean = trained((False, True, True, False)), trained((False, False))
    assert all(torch.equal(some[name], clean[name]) for name in clean)


@pytest.mark.parametrize("saved_every_s", [0.0, 1e6])
def test_a_loss_that_is_looked_at_late_is_named_and_leaves_no_trace(
    saved_every_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store, config = families(), small_config(checkpoint_every_s=saved_every_s)
    whole = undisturbed(checkpoint_every_s=saved_every_s)
    late = property(lambda _: True, lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_checks_late", late, raising=False)
        run_pretraining(store, config, tmp_path / "late")
        blow_up(patch, 7, float("nan"))
        with pytest.raises(NonFiniteLossError, match="'subgraph' became nan at step 7; its graphs"):
            run_pretraining(store, config, tmp_path / "run")
    assert outcome(tmp_path / "late") == whole
    run_pretraining(store, config, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == whole


def test_a_run_stopped_in_the_last_step_of_an_epoch_goes_on_with_the_next():
    job = Pretraining(families(), small_config())
    job.setting = replace(job.setting, device=torch.device("meta"))  # any device but the CPU
    trainer = Trainer(job)
    trainer.cursor = Cursor(begun=True, batch=len(job.batches(0)), step=len(job.batches(0)))
    trainer._run_epoch()
    assert trainer.cursor == Cursor(begun=True, epoch=1, step=len(job.batches(0)))
