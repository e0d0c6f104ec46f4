"""The one trainer: phases, epochs and steps of any job, with its state on disk often enough.

Pre-training and fine-tuning are jobs. A job says what the batches of an epoch are, what the loss of
a batch is, what is evaluated and logged, and what belongs to its state; all else is here. One or
more processes, as torchrun or ``--processes`` starts them, train a model as a team.
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
"""A process that takes longer over one step counts as hung."""
_WAIT_TIMEOUT = timedelta(days=7)
"""While the first process computes descriptors, the others wait."""
_SAVE_SHARE = 20
"""An epoch shorter than this many times the writing of a checkpoint ends without one."""
_ECHO_S = 2.0
"""A second signal so soon is the same request: a terminal signals torchrun's processes, and so does
torchrun."""
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Team:
    """The processes of a run; a process that was started alone is a team of one."""

    def __init__(self, peers: Peers | None = None, notices: Peers | None = None) -> None:
        """Take over a group for tensors, and one for texts, whose processes may wait long."""
        self.peers, self._notices = peers, notices
        self.size = 1 if peers is None else peers.size
        """Number of processes."""
        self.is_first = peers is None or peers.rank == 0
        """Whether this process writes the files and speaks."""

    def exchange(self, text: str) -> list[str]:
        """Return the texts that all processes give, in the order of processes."""
        if self._notices is None:
            return [text]
        own = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        lengths = self._notices.all_rows(torch.tensor([len(own)]), [1] * self.size).tolist()
        found = self._notices.all_rows(own, lengths).split(lengths)
        return [bytes(each.tolist()).decode() for each in found]

    def refuse(self, why: str) -> None:
        """Raise a ConfigError in the first process, and in the others that it has refused."""
        if self.is_first:
            raise ConfigError(why)
        raise ProcessLostError(f"the first process of this run refused to start: {why}")

    def check_alike(self, what: Mapping[str, Any]) -> None:
        """Compare what must be the same in all processes.

        Raises:
            ConfigError: Naming the first entry that differs, and the process.
            ProcessLostError: The same, in all processes but the first.
        """
        every = [json.loads(text) for text in self.exchange(json.dumps(what, default=str))]
        for rank, other in enumerate(every):
            for key in dict.fromkeys([*every[0], *other]):
                first, here = every[0].get(key), other.get(key)
                if first != here:
                    self.refuse(
                        f"the processes disagree: {key} is {first!r} in process 0 and {here!r} in "
                        f"process {rank}; start all with the same command, input and versions."
                    )

    def mean(self, losses: LossTerms) -> LossTerms:
        """Return the losses with their mean values over processes; the gradient stays as it is."""
        if self.peers is None:
            return losses
        values = [losses.total, *losses.terms.values(), *losses.watch.values()]
        means = [v.detach().float().clone() for v in values]
        self.peers.average_(means)
        terms = dict(zip(losses.terms, means[1:], strict=False))
        watch = dict(zip(losses.watch, means[1 + len(terms) :], strict=True))
        return LossTerms(losses.total + (means[0] - losses.total.detach()), terms, watch)

    def average_gradients(self, parameters: Iterable[nn.Parameter], wish: bool) -> bool:
        """Average gradients over processes; return whether any was asked to stop (``wish``)."""
        if self.peers is None:
            return wish
        gradients = [p.grad for p in parameters if p.grad is not None]
        flag = gradients[0].new_full((1,), float(wish))
        self.peers.average_([*gradients, flag])
        return bool(flag > 0)


ALONE = Team()


@contextmanager
def joined(device: torch.device) -> Generator[Team]:
    """Give the team of this process, as the variables of ``torchrun`` describe it.

    Raises:
        ProcessLostError: If the other processes cannot be reached.
    """
    if size() == 1:
        yield ALONE
        return
    if not dist.is_available():
        raise ConfigError("this build of torch has no torch.distributed; start one process.")
    before = dist.is_initialized()
    try:
        if not before:
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
        if not before:
            dist.destroy_process_group()


def scheduled_rate(
    rate: float, schedule: Schedule, step: int, steps: int, warmup: float = 0.0
) -> float:
    """Return the step size of step ``step``, counted from 0, of ``steps``.

    Over the first ``warmup`` of the run it rises in a line, its first value above 0; the schedule
    is that of the rest.

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
    """AdamW without the wrappers that import PyTorch's compiler, which takes seconds."""

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class NamedAdam:
    """AdamW over named parameters, whose state is ``{"<parameter>/<moment>": tensor}``."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        factors: Mapping[str, float] | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        """Collect the parameters that take gradients.

        ``factors`` are multiples of the step size for the parameters whose names start so. Without
        ``weight_decay``, as in the paper, this is Adam.
        """
        self.parameters = {name: p for name, p in parameters if p.requires_grad}
        groups: dict[float, list[nn.Parameter]] = {}
        for name, p in self.parameters.items():
            own = (f for prefix, f in (factors or {}).items() if name.startswith(prefix))
            groups.setdefault(next(own, 1.0), []).append(p)
        self.adam = _AdamW(
            [{"params": members, "factor": factor} for factor, members in groups.items()],
            weight_decay=weight_decay,
            fused=all(p.device.type in {"cpu", "cuda"} for p in self.parameters.values()),
        )

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.adam.zero_grad(set_to_none=True)

    def step(self, learning_rate: float, skipped: Tensor | None = None) -> None:
        """Apply one update, unless it is ``skipped``, which the device alone may know."""
        for group in self.adam.param_groups:
            group["lr"] = group["factor"] * learning_rate
        # what a gradient scaler would set: the kernel looks at it, and the CPU need not
        self.adam.found_inf = None if skipped is None else skipped.float()  # pyright: ignore[reportAttributeAccessIssue]
        self.adam.step()

    def state(self) -> dict[str, Tensor]:
        """Return the moments of every parameter that has been updated at least once."""
        return {
            f"{name}/{moment}": self.adam.state[p][moment]
            for name, p in self.parameters.items()
            if p in self.adam.state
            for moment in MOMENTS
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over moments written by :meth:`state`; parameters not named there start fresh.

        The tensors are copied into newly allocated memory: kernels may round differently on memory
        that is aligned differently, which would break the exactness of a resumed run.
        """
        for name, p in self.parameters.items():
            if f"{name}/step" in state:
                self.adam.state[p] = {
                    moment: state[f"{name}/{moment}"].to(p.device, copy=True) for moment in MOMENTS
                }


class WeightAverage:
    r"""Holds :math:`a \leftarrow d a + (1 - d) w` of every parameter, taken after each step.

    Early on :math:`d = (1 + t) / (10 + t)` where that is smaller than the decay, so that the
    initial weights are soon forgotten.
    """

    def __init__(self, decay: float) -> None:
        """Start with nothing; ``decay`` is the largest :math:`d`, between 0 and 1."""
        self.decay = decay
        self.averages: dict[str, Tensor] = {}
        """By the names of the parameters."""

    @torch.no_grad()
    def update(self, parameters: Iterable[tuple[str, nn.Parameter]], step: int) -> None:
        """Take in the weights after ``step``, counted from 1; a new parameter starts as it is."""
        decay = min(self.decay, (1 + step) / (10 + step))
        weights = dict(parameters)
        if self.averages:
            known: list[Tensor] = [weights.pop(name) for name in self.averages]
            averages = list(self.averages.values())
            torch._foreach_lerp_(averages, known, 1 - decay)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        self.averages |= {name: weight.clone() for name, weight in weights.items()}

    @torch.no_grad()
    def copy_to(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        """Set the parameters to their averages."""
        for name, parameter in parameters:
            parameter.copy_(self.averages[name])


def resume_advice() -> str:
    """Return what to do about a disk that is full while a run is written."""
    return (
        f"what was saved before is whole; free space, then continue with {setting('resume', True)}"
    )


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a job stands, between two steps."""

    phase: int = 0
    """Phases completed."""
    begun: bool = False
    """Whether ``begin_phase`` of the current one has been called."""
    epoch: int = 0
    """Epochs completed, all phases together."""
    batch: int = 0
    """Batches of the current epoch done."""
    step: int = 0
    """Optimizer steps done."""


class Job(ABC):
    """What a trainer trains."""

    setting: Setting
    progress: Progress
    """Follows the steps."""
    team: Team = ALONE
    """The processes that train it together; each runs the same job."""
    phases: Sequence[Phase]
    """Each has an optimizer of its own over the parameters trained then."""
    fresh_moments: bool = False
    """Whether Adam forgets its moments where a phase begins."""

    @abstractmethod
    def optimizer(self, cursor: Cursor) -> NamedAdam:
        """Return a new optimizer of the parameters that the phase of ``cursor`` trains."""

    @abstractmethod
    def learning_rate(self, cursor: Cursor) -> float:
        """Return the step size of the next step."""

    @abstractmethod
    def batches(self, epoch: int) -> list[np.ndarray]:
        """Return the indices of each batch of an epoch, counted from 0."""

    @abstractmethod
    def load(self, indices: np.ndarray) -> Any:
        """Return a batch, which may be assembled in another thread."""

    @abstractmethod
    def loss(self, batch: Any, step: int) -> LossTerms:
        """Return the losses of a batch; randomness is a function of ``step``, counted from 1."""

    def begin_phase(self, number: int) -> None:  # noqa: B027
        """Prepare a phase; parameters may be created."""

    def after_step(self, step: int, graphs: int) -> None:  # noqa: B027
        """Take note of a step that has been applied."""

    def log_due(self, step: int) -> bool:
        """Return whether ``step`` ends a row of the log, as the last of an epoch always does."""
        return False

    @abstractmethod
    def row(self, means: dict[str, float], cursor: Cursor) -> dict[str, Any]:
        """Evaluate what is due and return the row for the log.

        ``means`` are those since the last row; ``cursor`` does not count the epoch yet.
        """

    def ends_early(self) -> bool:
        """Return whether no further epoch of the current phase is worth training."""
        return False

    def stage(self, cursor: Cursor) -> str | None:
        """Return what the progress display calls the coming epoch; None leaves it as it is."""
        return None

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON-ready fields from which :meth:`load_state` continues.

        Names that start with ``optim.`` and ``meter.``, and the fields ``cursor`` and ``meter``,
        are the trainer's; weights start with ``model.`` or ``objective.``.
        """

    @abstractmethod
    def load_state(self, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ConfigError: If it belongs to other settings or other graphs.
        """

    def describe_batch(self, step: int, indices: np.ndarray) -> str:
        """Return where to find the graphs of a batch whose loss is not finite."""
        return f"its graphs were {indices[:8].tolist()} ..."

    def how_to_resume(self, cursor: Cursor) -> str:
        """Return what to tell a user who stopped the job."""
        return f"stopped after step {cursor.step}"


class Trainer:
    """Runs a job from where it stands to its end."""

    def __init__(
        self,
        job: Job,
        *,
        checkpoints: Path | None = None,
        checkpoint_every_s: float = 60.0,
        metrics: MetricsFile | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        """Stand at the start; without a folder of ``checkpoints`` all is kept in memory."""
        self.job, self.metrics = job, metrics
        self.callbacks = callbacks or Callbacks()
        self.checkpoints, self.checkpoint_every_s = checkpoints, checkpoint_every_s
        self.cursor, self.meter = Cursor(), Meter()
        self.optimizer: NamedAdam | None = None
        self._stop, self._stops = StopRequest(), False
        self._checks_late = job.setting.device.type != "cpu" and job.team.size == 1
        self._unchecked: list[tuple[int, np.ndarray, LossTerms]] = []
        self._saved_at, self._save_took = time.monotonic(), 0.0
        self._row_started, self._row_graphs = time.monotonic(), 0

    @property
    def is_done(self) -> bool:
        """Whether all phases are completed."""
        return self.cursor.phase == len(self.job.phases)

    def run(self, stop: "StopRequest") -> None:
        """Train to the end, or until ``stop`` is asked for.

        Raises:
            NonFiniteLossError: If a loss becomes NaN or infinite.
            TrainingInterrupted: After Ctrl-C, once the state has been saved; after a second, at
                once.
        """
        self._stop, self._row_started = stop, time.monotonic()
        # whatever the caller has chosen; the forward pass says what it needs
        own = torch.autocast(self.job.setting.device.type, enabled=False)
        try:
            with torch.enable_grad(), own:
                while not self.is_done:
                    self._run_phase()
        except KeyboardInterrupt:
            raise TrainingInterrupted(self.job.how_to_resume(self.cursor)) from None

    def begin_phase(self) -> None:
        """Begin the current phase: the job's preparations, then its optimizer."""
        carried = {} if self.optimizer is None or self.job.fresh_moments else self.optimizer.state()
        began = time.monotonic()
        self.job.begin_phase(self.cursor.phase)
        self._row_started += time.monotonic() - began
        self._start_optimizer(carried)
        self.cursor = replace(self.cursor, begun=True)

    def step(self, indices: np.ndarray, batch: Any) -> None:
        """Update the weights on one batch.

        A loss that is not finite changes no weight. On a CPU it is noticed here; a GPU, which would
        have to be waited for, skips the update by itself, and it is noticed with the next row of
        the log or the next checkpoint.

        Raises:
            NonFiniteLossError: If a loss is NaN or infinite.
        """
        assert self.optimizer is not None, "a step before its phase has begun"
        job, step = self.job, self.cursor.step + 1
        losses = job.loss(batch, step)
        total, terms = losses.total.detach(), {k: v.detach() for k, v in losses.terms.items()}
        self._unchecked.append((step, indices, LossTerms(total, terms)))
        if not self._checks_late:
            self._check_losses()
        self.optimizer.zero_grad()
        losses.total.backward()
        # a team stops after the same step everywhere, which one process cannot decide alone
        weights, wish = self.optimizer.parameters.values(), self._stop.asked or is_orphan()
        self._stops = job.team.average_gradients(weights, wish)
        skipped = ~torch.isfinite(total) if self._checks_late else None
        self.optimizer.step(job.learning_rate(self.cursor), skipped)
        job.after_step(step, len(indices))
        named = {f"loss_{name}": value for name, value in terms.items()}
        self.meter.add({"loss": total, **named, **losses.watch})
        self.cursor = replace(self.cursor, step=step, batch=self.cursor.batch + 1)
        job.progress.advance(len(indices))
        self._row_graphs += len(indices)

    def _check_losses(self) -> None:
        """Raise NonFiniteLossError for the first step since the last look whose loss was not."""
        unchecked, self._unchecked = self._unchecked, []
        if not unchecked:
            return
        finite = torch.stack([torch.isfinite(losses.total) for _, _, losses in unchecked])
        if bool(finite.all()):
            return
        step, indices, losses = unchecked[int((~finite).nonzero()[0])]
        name, bad = "the total loss", losses.total
        for term, value in losses.terms.items():
            if not bool(value.isfinite()):
                name, bad = f"loss term '{term}'", value
                break
        where = self.job.describe_batch(step, indices)
        raise NonFiniteLossError(f"{name} became {bad.item()} at step {step}; {where}")

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            NonFiniteLossError: If a weight is NaN or infinite; the last checkpoint stays.
            GraphLoGError: If the disk is full or the folder read-only; the last checkpoint stays.
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
        self._save_took = self._saved_at - began

    def restore(self) -> bool:
        """Continue from the newest whole checkpoint; return False where there is none.

        Raises:
            ConfigError: If it belongs to other settings or other graphs.
            ModelFileError: If every checkpoint is damaged, or of another version.
        """
        if self.checkpoints is None:
            return False
        checkpoint = load_checkpoint(self.checkpoints, self.job.progress.say)
        self.job.team.check_alike({"the checkpoint's step": checkpoint and checkpoint.step})
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
            self._stop.at_once = True
            self.begin_phase()
        self._stop.at_once = False
        end = sum(p.epochs for p in self.job.phases[: self.cursor.phase + 1])
        while self.cursor.epoch < end and not self.job.ends_early():
            if stage := self.job.stage(self.cursor):
                self.job.progress.stage(stage)
            self._run_epoch()
            wait = _SAVE_SHARE * self._save_took
            if self.cursor.epoch < end and time.monotonic() - self._saved_at >= wait:
                self.save()
        self.cursor = replace(self.cursor, phase=self.cursor.phase + 1, begun=False)
        if self.is_done:
            self.save()

    def _run_epoch(self) -> None:
        batches = self.job.batches(self.cursor.epoch)
        left = batches[self.cursor.batch :]
        for indices, batch in zip(left, self._loaded(left), strict=True):
            is_last = self.cursor.batch + 1 == len(batches)
            self.step(indices, batch)
            if is_last or self.job.log_due(self.cursor.step):
                self._log()
            if self._stops or (self._stop.asked and self.job.team.size == 1):
                self.save()
                raise TrainingInterrupted(self.job.how_to_resume(self.cursor))
            if not is_last and time.monotonic() - self._saved_at >= self.checkpoint_every_s:
                self.save()
        self.cursor = replace(self.cursor, epoch=self.cursor.epoch + 1, batch=0)

    def _loaded(self, batches: list[np.ndarray]) -> Iterator[Any]:
        """Yield the batches; for a GPU the next is assembled while the current is computed.

        On a CPU assembling takes a fraction of a per cent of a step, and a second thread would
        only get in its way.
        """
        if self.job.setting.device.type == "cpu":
            yield from map(self.job.load, batches)
            return
        if not batches:  # the run was stopped in the epoch's last step
            return
        with ThreadPoolExecutor(max_workers=1) as worker:
            pending = worker.submit(self.job.load, batches[0])
            for following in batches[1:]:
                batch, pending = pending.result(), worker.submit(self.job.load, following)
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
    """Whether the user asked to stop; set by a signal, looked at between steps."""

    def __init__(self) -> None:
        self.asked = False
        self.at_once = False
        self._asked_at = 0.0

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """Note the request; asked twice, or while no step can end soon (``at_once``), stop now.

        It is noted even then: what is interrupted may lose the exception, such as an ``except:`` of
        a library, and then the next step stops.
        """
        now, again = time.monotonic(), self.asked
        if again and size() > 1 and now - self._asked_at < _ECHO_S:
            return
        self.asked, self._asked_at = True, now
        if self.at_once or again:
            raise KeyboardInterrupt


@contextmanager
def stop_on_signal() -> Generator[StopRequest, None, None]:
    """Turn SIGINT and SIGTERM into a request inside the block.

    Outside the main thread nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    with signals_handled_by(request.handle):
        yield request
