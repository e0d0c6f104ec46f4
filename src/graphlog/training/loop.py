"""One optimiser step and one epoch of any objective."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import GraphLoGError, NonFiniteLossError
from graphlog.objectives.base import LossTerms, Objective
from graphlog.training.optim import NamedAdam
from graphlog.training.precision import autocast
from graphlog.training.randomness import generator_for, global_seed


class TrainingInterrupted(GraphLoGError):  # noqa: N818 - a wish, not an error
    """Ctrl-C or a polite kill: the state has been saved; the message says how to go on."""


@dataclass(frozen=True, slots=True)
class Learner:
    """What a step changes: two modules and their optimiser."""

    encoder: GraphEncoder
    objective: Objective[Any]
    optimiser: NamedAdam


@dataclass(frozen=True, slots=True)
class Setting:
    """What a step needs to know besides the batch."""

    seed: int
    device: torch.device
    precision: Literal["fp32", "bf16"]


def train_step(
    learner: Learner,
    batch: GraphBatch,
    step: int,
    setting: Setting,
    learning_rate: float | None = None,
) -> LossTerms:
    """Update the learner on one batch and return the losses before the update.

    All randomness is a function of the seed and of ``step``. ``learning_rate`` is the step size, None the optimiser's own.

    Raises:
        NonFiniteLossError: If a loss is NaN or infinite; nothing has been updated then.
    """
    seed, device = setting.seed, setting.device
    batch = batch.to(device)
    views = learner.objective.views(batch, generator_for(seed, "views", step, device=device))
    with global_seed(seed, "dropout", step, device=device), autocast(setting.precision, device):
        losses = learner.objective.loss(
            views, learner.encoder, generator_for(seed, "loss", step, device=device)
        )
    _check_finite(losses, step)
    learner.optimiser.zero_grad()
    losses.total.backward()
    learner.optimiser.step(learning_rate)
    return losses


def _check_finite(losses: LossTerms, step: int) -> None:
    if bool(torch.isfinite(losses.total)):
        return
    bad = [name for name, value in losses.terms.items() if not bool(torch.isfinite(value))]
    name = f"loss term '{bad[0]}'" if bad else "the total loss"
    value: Tensor = losses.terms[bad[0]] if bad else losses.total
    raise NonFiniteLossError(f"{name} became {value.item()} at step {step}")


class StopRequest:
    """Whether the user asked to stop; set by a signal, looked at between steps."""

    def __init__(self) -> None:
        """Start unasked."""
        self.asked = False
        self.at_once = False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """Note the wish; while no step can end soon (``at_once``), or when asked twice, stop here."""
        if self.at_once or self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_on_signal() -> Generator[StopRequest, None, None]:
    """Turn SIGINT and SIGTERM into a request inside the block; outside the main thread signals stay as they are."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [
        number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)
    ]  # nohup and friends stay in force
    for number in ours:
        signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for number in ours:
            signal.signal(number, before[number])
