"""The training loop: phases, epochs and steps of a job, with checkpoints.

Pre-training and fine-tuning are jobs. A job defines the batches of an epoch, the loss of a batch,
the evaluation, the rows of the log, and its state; everything else is done here. Several
processes, started by torchrun or ``--processes``, can train one model as a team.
"""

import json
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from inspect import unwrap
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist

from graphlog.encoders.modelfile import tensors_below
from graphlog.errors import (
    ConfigError,
    ModelFileError,
    NonFiniteLossError,
    ProcessLostError,
    TrainingInterrupted,
    first_line,
    setting,
)
from graphlog.files import writing
from graphlog.objectives.base import LossTerms, Phase
from graphlog.ops.collectives import Peers
from graphlog.processes import is_orphan, signals_handled_by, size
from graphlog.training.log import Callbacks, Meter, MetricsFile, Progress
from graphlog.training.runfolder import Checkpoint, discard_after, load_checkpoint, save_checkpoint
from graphlog.training.settings import Schedule, Setting

_STEP_TIMEOUT = timedelta(minutes=10)
"""Longest time to wait for another process in a step."""
_WAIT_TIMEOUT = timedelta(days=7)
"""Longest time to wait while the first process computes descriptors."""
_SAVE_FACTOR = 20
"""An epoch ends with a checkpoint only if the last checkpoint is older than this many times the
time needed to write one."""
_REPEATED_SIGNAL_S = 2.0
"""Seconds within which a second signal is the same request: a process may get a signal from the
terminal and from torchrun."""
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""Names of the state of Adam for each parameter."""


class Team:
    """The processes that train one model; a single process is a team of one."""

    def __init__(self, peers: Peers | None = None, notices: Peers | None = None) -> None:
        """Create a team with a group for tensors and one for texts, which has a long timeout."""
        self.peers, self._notices = peers, notices
        self.size = 1 if peers is None else peers.size
        """Number of processes."""
        self.is_first = peers is None or peers.rank == 0
        """Whether this process writes the files and messages of the run."""

    def exchange(self, text: str) -> list[str]:
        """Return the texts given by all processes, in the order of processes."""
        if self._notices is None:
            return [text]
        encoded = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        lengths = self._notices.all_rows(torch.tensor([len(encoded)]), [1] * self.size).tolist()
        texts = self._notices.all_rows(encoded, lengths).split(lengths)
        return [bytes(each.tolist()).decode() for each in texts]

    def refuse(self, why: str) -> None:
        """Raise a ConfigError in the first process, and a ProcessLostError in all others."""
        if self.is_first:
            raise ConfigError(why)
        raise ProcessLostError(f"the first process of this run refused to start: {why}")

    def check_equal(self, entries: Mapping[str, Any]) -> None:
        """Check that all processes have the same entries.

        Raises:
            ConfigError: In the first process, with the first entry that differs.
            ProcessLostError: In all other processes, with the same message.
        """
        first, *others = map(json.loads, self.exchange(json.dumps(entries, default=str)))
        for rank, other in enumerate(others, start=1):
            for key in dict.fromkeys([*first, *other]):
                if first.get(key) != other.get(key):
                    self.refuse(
                        f"the processes disagree: {key} is {first.get(key)!r} in process 0 and "
                        f"{other.get(key)!r} in process {rank}; start all with the same command, "
                        "input and versions."
                    )

    def mean(self, losses: LossTerms) -> LossTerms:
        """Return losses with mean values over processes, and the gradient of this process."""
        if self.peers is None:
            return losses
        values = [losses.total, *losses.terms.values(), *losses.watch.values()]
        means = [v.detach().float().clone() for v in values]
        self.peers.average_(means)
        terms = dict(zip(losses.terms, means[1:], strict=False))
        watch = dict(zip(losses.watch, means[1 + len(terms) :], strict=True))
        return LossTerms(losses.total + (means[0] - losses.total.detach()), terms, watch)

    def average_gradients(self, parameters: Iterable[nn.Parameter], stop: bool) -> bool:
        """Average gradients over processes; return whether ``stop`` is true in any process."""
        if self.peers is None:
            return stop
        gradients = [p.grad for p in parameters if p.grad is not None]
        flag = gradients[0].new_full((1,), float(stop))
        self.peers.average_([*gradients, flag])
        return bool(flag > 0)


ALONE = Team()


@contextmanager
def joined(device: torch.device) -> Generator[Team]:
    """Connect to the other processes given by torchrun's environment variables.

    Raises:
        ConfigError: If this build of torch does not support several processes.
        ProcessLostError: If the other processes cannot be reached.
    """
    if size() == 1:
        yield ALONE
        return
    if not dist.is_available():
        raise ConfigError("this build of torch has no torch.distributed; start one process.")
    was_initialized = dist.is_initialized()
    try:
        if not was_initialized:
            backend = "nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=_STEP_TIMEOUT)
        notices: Any = dist.new_group(backend="gloo", timeout=_WAIT_TIMEOUT)
    except (RuntimeError, ValueError) as e:
        address = ":".join(os.environ.get(k, "?") for k in ("MASTER_ADDR", "MASTER_PORT"))
        raise ProcessLostError(
            f"the processes of this run cannot reach each other at {address} ({first_line(e)})."
        ) from None
    try:
        peers = Peers(dist.get_rank(), dist.get_world_size())
        yield Team(peers, replace(peers, group=notices))
    finally:
        if not was_initialized:
            dist.destroy_process_group()


def scheduled_rate(
    rate: float, schedule: Schedule, step: int, steps: int, warmup: float = 0.0
) -> float:
    """Return the learning rate of step ``step``, counted from 0, of ``steps``.

    It increases linearly over the share ``warmup`` of the steps, starting above 0; the schedule
    applies to the remaining steps.

    Example:
        >>> [round(scheduled_rate(1.0, "cosine", step, 4), 3) for step in range(5)]
        [1.0, 0.854, 0.5, 0.146, 0.0]
        >>> [round(scheduled_rate(1.0, "cosine", step, 10, 0.2), 3) for step in (0, 1, 2, 6, 10)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    done = min(step / steps, 1.0)
    if done < warmup:
        return rate * min((step + 1) / (warmup * steps), 1.0)
    done = (done - warmup) / (1 - warmup)
    return rate if schedule == "constant" else rate * (1 + math.cos(math.pi * done)) / 2


class _AdamW(torch.optim.AdamW):
    """AdamW without the decorators that import PyTorch's compiler, which takes seconds."""

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class NamedAdam:
    """AdamW for named parameters, with the state ``{"<parameter>/<moment>": tensor}``."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        factors: Mapping[str, float] | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        """Collect the parameters that require gradients.

        ``factors`` multiply the learning rate of parameters by the prefix of their names. Without
        ``weight_decay``, as in the paper, this is Adam.
        """
        self.parameters = {name: p for name, p in parameters if p.requires_grad}
        groups: dict[float, list[nn.Parameter]] = {}
        for name, p in self.parameters.items():
            matching = (f for prefix, f in (factors or {}).items() if name.startswith(prefix))
            groups.setdefault(next(matching, 1.0), []).append(p)
        self.adam = _AdamW(
            [{"params": members, "factor": factor} for factor, members in groups.items()],
            weight_decay=weight_decay,
            fused=all(p.device.type in {"cpu", "cuda"} for p in self.parameters.values()),
        )

    def zero_grad(self) -> None:
        """Remove the gradients."""
        self.adam.zero_grad(set_to_none=True)

    def step(self, learning_rate: float, skipped: Tensor | None = None) -> None:
        """Apply one update, unless ``skipped``, a tensor on the device, is true."""
        for group in self.adam.param_groups:
            group["lr"] = group["factor"] * learning_rate
        # an attribute for gradient scalers: the kernel reads it, so that the CPU need not wait
        self.adam.found_inf = None if skipped is None else skipped.float()  # pyright: ignore[reportAttributeAccessIssue]
        self.adam.step()

    def state(self) -> dict[str, Tensor]:
        """Return the moments of all parameters that have been updated."""
        return {
            f"{name}/{moment}": self.adam.state[p][moment]
            for name, p in self.parameters.items()
            if p in self.adam.state
            for moment in MOMENTS
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the moments from :meth:`state`; other parameters start without moments.

        Tensors are copied to new memory: the rounding of kernels can depend on the alignment of
        memory, and a resumed run must be bit-identical.
        """
        for name, p in self.parameters.items():
            if f"{name}/step" in state:
                self.adam.state[p] = {
                    moment: state[f"{name}/{moment}"].to(p.device, copy=True) for moment in MOMENTS
                }


class WeightAverage:
    r"""Moving averages :math:`a \leftarrow d a + (1 - d) w` of all parameters, one update per step.

    In early steps :math:`d = (1 + t) / (10 + t)`, if smaller than the decay, so that the initial
    weights soon have no influence.
    """

    def __init__(self, decay: float) -> None:
        """Set the decay, the largest value of :math:`d`, between 0 and 1."""
        self.decay = decay
        self.averages: dict[str, Tensor] = {}
        """Averages by the names of the parameters."""

    @torch.no_grad()
    def update(self, parameters: Iterable[tuple[str, nn.Parameter]], step: int) -> None:
        """Update with the weights after ``step``, counted from 1; new parameters are copied."""
        decay = min(self.decay, (1 + step) / (10 + step))
        weights = dict(parameters)
        if self.averages:
            averaged: list[Tensor] = [weights.pop(name) for name in self.averages]
            averages = list(self.averages.values())
            torch._foreach_lerp_(averages, averaged, 1 - decay)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        self.averages |= {name: weight.clone() for name, weight in weights.items()}

    @torch.no_grad()
    def copy_to(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        """Set the parameters to their averages."""
        for name, parameter in parameters:
            parameter.copy_(self.averages[name])


def resume_advice() -> str:
    """Return the advice for errors in writing the files of a run."""
    return (
        f"what was saved before is whole; free space, then continue with {setting('resume', True)}"
    )


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position of a job between two steps."""

    phase: int = 0
    """Number of completed phases."""
    begun: bool = False
    """Whether ``begin_phase`` has been called for the current phase."""
    epoch: int = 0
    """Number of completed epochs of all phases."""
    batch: int = 0
    """Number of completed batches of the current epoch."""
    step: int = 0
    """Number of completed optimizer steps."""


class Job(ABC):
    """A model with its data and losses, which a :class:`Trainer` trains."""

    setting: Setting
    progress: Progress
    """Display of the progress."""
    team: Team = ALONE
    """Processes that train the model together; each runs the same job."""
    phases: Sequence[Phase]
    """Phases of the training, each with its own optimizer."""
    fresh_moments: bool = False
    """Whether each phase starts without the moments of Adam."""

    @abstractmethod
    def optimizer(self, cursor: Cursor) -> NamedAdam:
        """Return a new optimizer for the parameters trained in the phase of ``cursor``."""

    @abstractmethod
    def learning_rate(self, cursor: Cursor) -> float:
        """Return the learning rate of the next step."""

    @abstractmethod
    def batches(self, epoch: int) -> list[np.ndarray]:
        """Return the indices of each batch of an epoch, counted from 0."""

    @abstractmethod
    def load(self, indices: np.ndarray) -> Any:
        """Return the batch with these indices; may be called in another thread."""

    @abstractmethod
    def loss(self, batch: Any, step: int) -> LossTerms:
        """Return the losses of a batch; random numbers depend on ``step``, counted from 1."""

    def begin_phase(self, number: int) -> None:  # noqa: B027
        """Prepare a phase; this may create parameters."""

    def after_step(self, step: int, graphs: int) -> None:  # noqa: B027
        """Process the end of a step, which had this number of graphs."""

    def log_due(self, step: int) -> bool:
        """Return whether to write a row after ``step``; each epoch ends with a row in any case."""
        return False

    @abstractmethod
    def row(self, means: dict[str, float], cursor: Cursor) -> dict[str, Any]:
        """Evaluate the model if necessary, and return the row for the log.

        ``means`` are the mean losses since the last row; ``cursor`` does not count the epoch yet.
        """

    def ends_early(self) -> bool:
        """Return whether to end the current phase early."""
        return False

    def stage(self, cursor: Cursor) -> str | None:
        """Return the text for the display in the next epoch; None does not change it."""
        return None

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON-ready fields for :meth:`load_state`.

        Names of weights start with ``model.`` or ``objective.``. Names that start with ``optim.``
        or ``meter.``, and the fields ``cursor`` and ``meter``, are reserved for the trainer.
        """

    @abstractmethod
    def load_state(self, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> None:
        """Restore a state.

        Raises:
            ConfigError: If the state is of a run with other settings or graphs.
        """

    def describe_batch(self, indices: np.ndarray) -> str:
        """Return the part of an error message that names the graphs of a batch."""
        return f"its graphs were {indices[:8].tolist()} ..."

    def how_to_resume(self, cursor: Cursor) -> str:
        """Return the message after the user has stopped the job."""
        return f"stopped after step {cursor.step}"


class Trainer:
    """Trains a job, from the start or from a checkpoint, to its end."""

    def __init__(
        self,
        job: Job,
        *,
        checkpoints: Path | None = None,
        checkpoint_every_s: float = 60.0,
        metrics: MetricsFile | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        """Set up the training; without ``checkpoints``, a folder, no checkpoints are written."""
        self.job, self.metrics = job, metrics
        self.callbacks = callbacks or Callbacks()
        self.checkpoints, self.checkpoint_every_s = checkpoints, checkpoint_every_s
        self.cursor, self.meter = Cursor(), Meter()
        self.optimizer: NamedAdam | None = None
        self._stop, self._must_stop = StopRequest(), False
        self._defers_checks = job.setting.device.type != "cpu" and job.team.size == 1
        self._unchecked: list[tuple[int, np.ndarray, LossTerms]] = []
        self._saved_at, self._save_seconds = time.monotonic(), 0.0
        self._row_started, self._row_graphs = time.monotonic(), 0

    @property
    def is_done(self) -> bool:
        """Whether all phases are complete."""
        return self.cursor.phase == len(self.job.phases)

    def run(self, stop: "StopRequest") -> None:
        """Train to the end, or until ``stop`` is requested.

        Raises:
            NonFiniteLossError: If a loss becomes NaN or infinite.
            TrainingInterrupted: After Ctrl-C, when the state has been saved; after a second Ctrl-C
                immediately.
        """
        self._stop, self._row_started = stop, time.monotonic()
        # do not depend on the modes of the caller; the forward pass enables autocast if needed
        no_autocast = torch.autocast(self.job.setting.device.type, enabled=False)
        try:
            with torch.enable_grad(), no_autocast:
                while not self.is_done:
                    self._run_phase()
        except KeyboardInterrupt:
            raise TrainingInterrupted(self.job.how_to_resume(self.cursor)) from None

    def begin_phase(self) -> None:
        """Prepare the job for the current phase, and create the optimizer."""
        moments = {} if self.optimizer is None or self.job.fresh_moments else self.optimizer.state()
        began = time.monotonic()
        self.job.begin_phase(self.cursor.phase)
        self._row_started += time.monotonic() - began
        self._start_optimizer(moments)
        self.cursor = replace(self.cursor, begun=True)

    def step(self, indices: np.ndarray, batch: Any) -> None:
        """Update the weights with one batch.

        A loss that is not finite changes no weights. On a CPU the error is raised here. A GPU,
        which should not synchronize in each step, skips the update by itself, and the error is
        raised with the next row of the log or the next checkpoint.

        Raises:
            NonFiniteLossError: If a loss is NaN or infinite.
        """
        assert self.optimizer is not None, "a step before its phase has begun"
        job, step = self.job, self.cursor.step + 1
        losses = job.loss(batch, step)
        total, terms = losses.total.detach(), {k: v.detach() for k, v in losses.terms.items()}
        self._unchecked.append((step, indices, LossTerms(total, terms)))
        if not self._defers_checks:
            self._check_losses()
        self.optimizer.zero_grad()
        losses.total.backward()
        # all processes of a team must stop after the same step
        weights, stop = self.optimizer.parameters.values(), self._stop.is_requested or is_orphan()
        self._must_stop = job.team.average_gradients(weights, stop)
        skipped = ~torch.isfinite(total) if self._defers_checks else None
        self.optimizer.step(job.learning_rate(self.cursor), skipped)
        job.after_step(step, len(indices))
        named = {f"loss_{name}": value for name, value in terms.items()}
        self.meter.add({"loss": total, **named, **losses.watch})
        self.cursor = replace(self.cursor, step=step, batch=self.cursor.batch + 1)
        job.progress.advance(len(indices))
        self._row_graphs += len(indices)

    def _check_losses(self) -> None:
        """Raise NonFiniteLossError if the loss of a step since the last check is not finite."""
        unchecked, self._unchecked = self._unchecked, []
        if not unchecked:
            return
        finite = torch.stack([torch.isfinite(losses.total) for _, _, losses in unchecked])
        if bool(finite.all()):
            return
        step, indices, losses = unchecked[int((~finite).nonzero()[0])]
        bad = {f"loss term '{k}'": v for k, v in losses.terms.items() if not bool(v.isfinite())}
        name, value = next(iter(bad.items()), ("the total loss", losses.total))
        where = self.job.describe_batch(indices)
        raise NonFiniteLossError(f"{name} became {value.item()} at step {step}; {where}")

    def save(self) -> None:
        """Write a checkpoint; after an error, the previous one remains.

        Raises:
            NonFiniteLossError: If a weight is NaN or infinite.
            GraphLoGError: If the file cannot be written.
        """
        self._check_losses()
        folder = self.checkpoints if self.job.team.is_first else None
        if folder is None and not self.is_done:
            return
        tensors, fields = self.job.state()
        for name, weight in tensors.items():
            if name.startswith(("model.", "objective.")) and not weight.isfinite().all():
                raise NonFiniteLossError(
                    f"a weight became NaN or infinite by step {self.cursor.step}; "
                    "try a lower learning rate."
                )
        if folder is None:
            return
        keeps_moments = self.cursor.begun or not (self.job.fresh_moments or self.is_done)
        if self.optimizer is not None and keeps_moments:
            tensors |= {f"optim.{k}": v for k, v in self.optimizer.state().items()}
        meter = self.meter.state()
        tensors |= {f"meter.{k}": v for k, v in meter.items()}
        fields |= {"cursor": asdict(self.cursor), "meter": list(meter)}
        began = time.monotonic()
        with writing(folder, resume_advice()):
            folder.parent.mkdir(exist_ok=True)
            if self.metrics is not None:
                self.metrics.sync()
            save_checkpoint(folder, Checkpoint(self.cursor.step, tensors, fields))
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - began

    def restore(self) -> bool:
        """Restore the newest undamaged checkpoint; return False if there are no checkpoints.

        Raises:
            ConfigError: If it is of a run with other settings or graphs.
            ModelFileError: If every checkpoint is damaged, or one is of another version.
        """
        if self.checkpoints is None:
            return False
        checkpoint = load_checkpoint(self.checkpoints, self.job.progress.say)
        self.job.team.check_equal({"the checkpoint's step": checkpoint and checkpoint.step})
        if checkpoint is None:
            return False
        try:
            self.cursor = Cursor(**checkpoint.fields["cursor"])
            self.job.load_state(checkpoint.tensors, checkpoint.fields)
            sums, order = tensors_below(checkpoint.tensors, "meter."), checkpoint.fields["meter"]
            self.meter.load_state(sums, order, self.job.setting.device)
        except (RuntimeError, KeyError, TypeError) as e:
            raise ModelFileError(
                f"the checkpoint of step {checkpoint.step} does not fit this version of graphlog "
                f"({first_line(e)}); start again with {setting('overwrite', True)}.",
                option="overwrite",
            ) from None
        if self.job.team.is_first:
            with writing(self.checkpoints):
                discard_after(self.checkpoints, checkpoint.step)
        moments = tensors_below(checkpoint.tensors, "optim.")
        if self.cursor.begun or moments:
            self._start_optimizer(moments)
        return True

    def _run_phase(self) -> None:
        if not self.cursor.begun:
            self.save()
            self._stop.raises_immediately = True
            self.begin_phase()
        self._stop.raises_immediately = False
        end = sum(p.epochs for p in self.job.phases[: self.cursor.phase + 1])
        while self.cursor.epoch < end and not self.job.ends_early():
            if stage := self.job.stage(self.cursor):
                self.job.progress.stage(stage)
            self._run_epoch()
            wait = _SAVE_FACTOR * self._save_seconds
            if self.cursor.epoch < end and time.monotonic() - self._saved_at >= wait:
                self.save()
        self.cursor = replace(self.cursor, phase=self.cursor.phase + 1, begun=False)
        if self.is_done:
            self.save()

    def _run_epoch(self) -> None:
        batches = self.job.batches(self.cursor.epoch)
        remaining = batches[self.cursor.batch :]
        for indices, batch in zip(remaining, self._load_batches(remaining), strict=True):
            is_last = self.cursor.batch + 1 == len(batches)
            self.step(indices, batch)
            if is_last or self.job.log_due(self.cursor.step):
                self._log()
            if self._must_stop or (self._stop.is_requested and self.job.team.size == 1):
                self.save()
                raise TrainingInterrupted(self.job.how_to_resume(self.cursor))
            if not is_last and time.monotonic() - self._saved_at >= self.checkpoint_every_s:
                self.save()
        self.cursor = replace(self.cursor, epoch=self.cursor.epoch + 1, batch=0)

    def _load_batches(self, batches: list[np.ndarray]) -> Iterator[Any]:
        """Yield the batches; for a GPU, a thread loads the next batch during the current step."""
        if self.job.setting.device.type == "cpu":
            yield from map(self.job.load, batches)
            return
        if not batches:  # the run was stopped in the epoch's last step
            return
        with ThreadPoolExecutor(max_workers=1) as worker:
            pending = worker.submit(self.job.load, batches[0])
            for indices in batches[1:]:
                batch, pending = pending.result(), worker.submit(self.job.load, indices)
                yield batch
            yield pending.result()

    def _log(self) -> None:
        self._check_losses()
        now = time.monotonic()
        rate = self._row_graphs / max(now - self._row_started, 1e-9)
        row = self.job.row(self.meter.read(), self.cursor)
        self._row_started, self._row_graphs = time.monotonic(), 0
        row["graphs_per_s"] = round(rate, 1)
        if self.metrics is not None:
            with writing(self.metrics.path, resume_advice()):
                self.metrics.write(row)
        self.callbacks.on_row(row)

    def _start_optimizer(self, moments: Mapping[str, Tensor]) -> None:
        self.optimizer = self.job.optimizer(self.cursor)
        self.optimizer.load_state(moments)


class StopRequest:
    """A request of the user to stop, set by a signal and checked between steps."""

    def __init__(self) -> None:
        self.is_requested = False
        """Whether a signal was received."""
        self.raises_immediately = False
        """Whether to raise KeyboardInterrupt immediately, since no step will end soon."""
        self._requested_at = 0.0

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """Store the request; raise KeyboardInterrupt if it is repeated or no step will end soon.

        The request is stored in any case: if a library catches the exception, training stops after
        the next step.
        """
        now, again = time.monotonic(), self.is_requested
        if again and size() > 1 and now - self._requested_at < _REPEATED_SIGNAL_S:
            return
        self.is_requested, self._requested_at = True, now
        if self.raises_immediately or again:
            raise KeyboardInterrupt


@contextmanager
def stop_on_signal() -> Generator[StopRequest, None, None]:
    """Turn SIGINT and SIGTERM into a :class:`StopRequest` inside a block of the main thread."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    with signals_handled_by(request.handle):
        yield request
