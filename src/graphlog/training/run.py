"""The course of one run: phase after phase, with its state written down often enough."""

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.sampler import BatchSampler
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import ConfigError, ModelFileError, NonFiniteLossError
from graphlog.files import writing
from graphlog.objectives.base import LossTerms, Objective
from graphlog.training.average import WeightAverage
from graphlog.training.checkpoint import (
    Checkpoint,
    discard_after,
    load_checkpoint,
    part,
    save_checkpoint,
)
from graphlog.training.config import PretrainConfig, resolve_config
from graphlog.training.log import Meter, MetricsFile, Progress
from graphlog.training.loop import (
    Learner,
    Setting,
    StopRequest,
    TrainingInterrupted,
    stop_on_signal,
    train_step,
)
from graphlog.training.optim import NamedAdam, scheduled_rate
from graphlog.training.precision import Precision, autocast
from graphlog.training.randomness import generator_for, global_seed
from graphlog.training.runfolder import RunFolder
from graphlog.training.statistics import calibrate
from graphlog.training.targets import with_targets
from graphlog.training.watch import CollapseWatch

_SAVES_SHARE = 20
"""An epoch that took less than this many times as long as writing a checkpoint ends without one."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a run stands, between two steps."""

    phase: int = 0
    """Phases completed."""
    begun: bool = False
    """Whether ``begin_phase`` of the current one has been called."""
    epoch: int = 0
    """Epochs completed, all phases together."""
    batch: int = 0
    """Batches of the current epoch done."""
    step: int = 0
    """Optimiser steps done."""


class Run:
    """A pre-training run in progress."""

    def __init__(
        self,
        store: GraphStore,
        config: PretrainConfig,
        encoder: GraphEncoder,
        objective: Objective[Any],
        setting: Setting,
        folder: RunFolder | None,
        progress: Progress,
    ) -> None:
        """Stand at the start."""
        self.store, self.config, self.encoder, self.objective = store, config, encoder, objective
        self.setting, self.folder, self.progress = setting, folder, progress
        self.phases = objective.phases(config.epochs)
        self.cursor = Cursor()
        self.optimiser: NamedAdam | None = None
        self.average = WeightAverage(config.average) if config.average > 0 else None
        self.meter = Meter()
        self.watch = CollapseWatch(encoder, config.watch_every, config.batch_size)
        self.sampler = BatchSampler(len(store), config.batch_size, config.seed)
        self.metrics: MetricsFile | None = None
        self._saved_at, self._save_took = time.monotonic(), 0.0
        self._row_started, self._row_graphs = time.monotonic(), 0

    def train(self) -> None:
        """Go from where the run stands to its end.

        Raises:
            NonFiniteLossError: If a loss becomes NaN or infinite.
            TrainingInterrupted: After Ctrl-C, once the state has been saved.
        """
        if self.folder is not None:
            with writing(self.folder.metrics):
                self.metrics = MetricsFile(self.folder.metrics, self.cursor.step)
        try:
            if self.objective.needs_targets and self.cursor.phase < len(self.phases):
                self.store = with_targets(
                    self.store, self.progress, None if self.folder is None else self.folder.path
                )
            self.progress.begin(len(self.store) * self.config.epochs, self._graphs_done())
            with stop_on_signal() as stop:
                while self.cursor.phase < len(self.phases):
                    self._phase(stop)
        except KeyboardInterrupt:
            raise TrainingInterrupted(self._how_to_resume()) from None
        finally:
            self.progress.end()
            self.watch.close()
            if self.metrics is not None:
                self.metrics.close()

    def finish(self) -> None:
        """Leave the learner as it is to be used: with averaged weights where the settings say so, and statistics of clean graphs."""
        if self.average is not None:
            self.average.copy_to(self._named_parameters())
        calibrate(self.encoder, self.store, self.config.seed)
        self.objective.eval()

    def _phase(self, stop: StopRequest) -> None:
        phase = self.phases[self.cursor.phase]
        if not self.cursor.begun:
            self.progress.stage(f"preparing phase '{phase.name}'")
            self.save()
            stop.at_once = True
            with global_seed(
                self.config.seed, "begin", self.cursor.phase, device=self.setting.device
            ):
                generator = generator_for(self.config.seed, "phase", self.cursor.phase)
                self.objective.begin_phase(phase, self._embed, generator)
            stop.at_once = False
            self.objective.to(self.setting.device).train()
            kept = (
                {}
                if self.optimiser is None or self.config.fresh_moments
                else self.optimiser.state()
            )
            self._start_optimiser().load_state(kept)
            self.cursor = replace(self.cursor, begun=True)
        end = sum(p.epochs for p in self.phases[: self.cursor.phase + 1])
        while self.cursor.epoch < end:
            self.progress.stage(
                f"phase '{phase.name}', epoch {self.cursor.epoch + 1} of {self.config.epochs}"
            )
            self._epoch(stop)
            if (
                self.cursor.epoch < end
                and time.monotonic() - self._saved_at >= _SAVES_SHARE * self._save_took
            ):
                self.save()
        self.cursor = replace(self.cursor, phase=self.cursor.phase + 1, begun=False)
        if self.cursor.phase == len(self.phases):
            self.save()

    def _epoch(self, stop: StopRequest) -> None:
        batches = self._batches(self.cursor.epoch)
        left = batches[self.cursor.batch :]
        for indices, batch in zip(left, self._fetched(left), strict=True):
            last = self.cursor.batch + 1 == len(batches)
            self._step(indices, batch, last)
            if stop.asked:
                self.save()
                raise TrainingInterrupted(self._how_to_resume())
            if time.monotonic() - self._saved_at >= self.config.checkpoint_every_s and not last:
                self.save()
        self.cursor = replace(self.cursor, epoch=self.cursor.epoch + 1, batch=0)

    def _fetched(self, batches: list[np.ndarray]) -> Iterator[GraphBatch]:
        """Yield the batches; for a GPU the next one is assembled while the current one is computed.

        On a CPU assembling takes a fraction of a per cent of a step, and a second thread would only get in its way.
        """
        if self.setting.device.type == "cpu":
            yield from map(self.store.take, batches)
            return
        with ThreadPoolExecutor(max_workers=1) as worker:
            ahead = worker.submit(self.store.take, batches[0])
            for following in [*batches[1:], None]:
                batch = ahead.result()
                if following is not None:
                    ahead = worker.submit(self.store.take, following)
                yield batch

    def _step(self, indices: np.ndarray, batch: GraphBatch, last: bool) -> None:
        step = self.cursor.step + 1
        self.watch.before_step(step)
        try:
            losses = train_step(self._learner(), batch, step, self.setting, self._learning_rate())
        except NonFiniteLossError as e:
            raise NonFiniteLossError(f"{e}; {self._keep_batch(step, indices)}") from None
        if self.average is not None:
            self.average.update(self._named_parameters(), step)
        self.watch.after_step(len(indices))
        self.meter.add(_scalars(losses))
        self.cursor = replace(self.cursor, step=step, batch=self.cursor.batch + 1)
        self.progress.advance(len(indices))
        self._row_graphs += len(indices)
        if last or step % self.config.log_every == 0 or self.watch.due(step):
            self._log(step)

    def _log(self, step: int) -> None:
        means = self.meter.read()
        watched, alarms = self.watch.look(means) if self.watch.due(step) else ({}, [])
        now = time.monotonic()
        rate = self._row_graphs / max(now - self._row_started, 1e-9)
        self._row_started, self._row_graphs = now, 0
        self.progress.report(
            {k.removeprefix("loss_"): v for k, v in means.items() if k.startswith("loss")}
        )
        for alarm in alarms:
            self.progress.say(alarm)
        if self.metrics is not None and self.folder is not None:
            row = {
                "step": step,
                "epoch": self.cursor.epoch,
                "phase": self.phases[self.cursor.phase].name,
                **means,
                **watched,
            }
            with writing(self.folder.metrics, self._advice()):
                self.metrics.write(
                    {
                        **row,
                        **({"alarms": alarms} if alarms else {}),
                        "graphs_per_s": round(rate, 1),
                    }
                )

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            NonFiniteLossError: If a weight is NaN or infinite; the last checkpoint stays.
            GraphLoGError: If the disk is full or the folder read-only; the last checkpoint stays.
        """
        if self.folder is None:
            return
        seen, watch = self.watch.state()
        weights = {f"model.{k}": v for k, v in self.encoder.state_dict().items()}
        weights |= {f"objective.{k}": v for k, v in self.objective.state_dict().items()}
        if not all(bool(torch.isfinite(w).all()) for w in weights.values()):
            raise NonFiniteLossError(
                f"a weight became NaN or infinite by step {self.cursor.step}; try a lower training.learning_rate."
            )
        tensors = dict(weights)
        if self.optimiser is not None and (self.cursor.begun or not self.config.fresh_moments):
            tensors |= {f"optim.{k}": v for k, v in self.optimiser.state().items()}
        if self.average is not None:
            tensors |= {f"average.{k}": v for k, v in self.average.state().items()}
        meter = self.meter.state()
        tensors |= {f"meter.{k}": v for k, v in meter.items()} | {
            f"watch.{k}": v for k, v in seen.items()
        }
        fields = {
            "cursor": asdict(self.cursor),
            "settings": self.config.to_tables(),
            "data_digest": self.store.digest,
            "environment": self._environment(),
            "meter": list(meter),
            "watch": watch,
        }
        began = time.monotonic()
        with writing(self.folder.checkpoints, self._advice()):
            if self.metrics is not None:
                self.metrics.sync()
            save_checkpoint(self.folder.checkpoints, Checkpoint(self.cursor.step, tensors, fields))
        self._saved_at = time.monotonic()
        self._save_took = self._saved_at - began

    def restore(self) -> None:
        """Take over the newest whole checkpoint of the folder; without one, stay at the start.

        Raises:
            ConfigError: If it belongs to other settings or other graphs.
            ModelFileError: If every checkpoint is damaged.
        """
        if self.folder is None:
            return
        found = load_checkpoint(self.folder.checkpoints, self.progress.say)
        if found is None:
            self.progress.say(f"no checkpoint in {self.folder.path}: starting from the beginning")
            return
        fields, device = found.fields, self.setting.device
        check_same(
            settings_of(found), self.config.to_tables(), fields["data_digest"], self.store.digest
        )
        for name, now in self._environment().items():
            if (before := fields["environment"].get(name)) != now:
                self.progress.say(
                    f"{name} was {before} when the checkpoint was written, is {now} now: the last bits may differ"
                )
        with writing(self.folder.checkpoints):
            discard_after(self.folder.checkpoints, found.step)
        self.cursor = Cursor(**fields["cursor"])
        learned = part(found.tensors, "objective.")
        try:
            self.objective.prepare_state(learned)
            self.objective.to(device).load_state_dict(learned)
            self.encoder.load_state_dict(part(found.tensors, "model."))
        except (RuntimeError, KeyError) as e:
            reason = str(e).splitlines()[0]
            raise ModelFileError(
                f"the checkpoint of step {found.step} does not fit this version of graphlog ({reason})"
            ) from None
        if self.cursor.begun or not self.config.fresh_moments:
            self._start_optimiser().load_state(part(found.tensors, "optim."))
        if self.average is not None:
            self.average.load_state(part(found.tensors, "average."), device)
        self.meter.load_state(part(found.tensors, "meter."), fields["meter"], device)
        self.watch.load_state(part(found.tensors, "watch."), fields["watch"], device)
        self.progress.say(
            f"going on from step {found.step}, epoch {self.cursor.epoch + 1} of {self.config.epochs}"
        )

    def _start_optimiser(self) -> NamedAdam:
        factors = {
            f"objective.{name}": factor
            for name, factor in self.objective.learning_rate_factors().items()
        }
        self.optimiser = NamedAdam(self._named_parameters(), self.config.learning_rate, factors)
        return self.optimiser

    def _named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        named = [(f"model.{k}", p) for k, p in self.encoder.named_parameters()]
        return named + [(f"objective.{k}", p) for k, p in self.objective.named_parameters()]

    def _learning_rate(self) -> float:
        steps = len(self.sampler) * self.config.epochs
        return scheduled_rate(
            self.config.learning_rate,
            self.config.schedule,
            min(self.cursor.step / steps, 1.0),
            self.config.warmup,
        )

    def _learner(self) -> Learner:
        if self.optimiser is None:
            raise RuntimeError("a step before its phase has begun")
        return Learner(self.encoder, self.objective, self.optimiser)

    def _batches(self, epoch: int) -> list[np.ndarray]:
        """Return the epoch's batches; a single graph left over joins the batch before it."""
        batches = list(self.sampler.epoch(epoch))
        if len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [np.concatenate(batches[-2:])]
        return batches

    @torch.no_grad()
    def _embed(self, limit: int | None = None) -> Float[Tensor, "M D"]:
        """Return graph embeddings in evaluation mode, in store order (a seeded subset if limited)."""
        total = len(self.store)
        chosen = np.arange(total)
        if limit is not None and limit < total:
            draw = torch.randperm(
                total, generator=generator_for(self.config.seed, "embed", self.cursor.phase)
            )[:limit]
            chosen = np.sort(draw.numpy())
        self.encoder.eval()
        parts: list[Tensor] = []
        for start in range(0, len(chosen), self.config.batch_size):
            batch = self.store.take(chosen[start : start + self.config.batch_size]).to(
                self.setting.device
            )
            with autocast(self.setting.precision, self.setting.device):
                parts.append(self.encoder(batch).graph_emb.float())
        self.encoder.train()
        return torch.cat(parts)

    def _environment(self) -> dict[str, Any]:
        """Return what may change the last bits of a result without being a setting."""
        device, precision = self.setting.device.type, self.setting.precision
        return {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": device,
            "precision": precision,
        }

    def _graphs_done(self) -> int:
        return len(self.store) * self.cursor.epoch + self.cursor.batch * self.config.batch_size

    def _keep_batch(self, step: int, indices: np.ndarray) -> str:
        if self.folder is None:
            return f"its graphs were {indices[:8].tolist()} ..."
        path = self.folder.path / f"nonfinite-step-{step}.json"
        self.folder.write(
            path,
            json.dumps(
                {
                    "step": step,
                    "indices": indices.tolist(),
                    "rows": self.store.rows[indices].tolist(),
                }
            ),
        )
        return f"its graphs are listed in {path}, the last checkpoint is whole"

    def _advice(self) -> str:
        return "the last checkpoint is whole; free space, then go on with --resume"

    def _how_to_resume(self) -> str:
        if self.folder is None:
            return f"stopped after step {self.cursor.step}; there is no run folder, so nothing was kept"
        return f"stopped after step {self.cursor.step}; go on with --resume and the same run folder ({self.folder.path})"


def settings_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the settings that a checkpoint was written under; version 0.1.0 kept `auto` as the precision."""
    settings = deepcopy(checkpoint.fields["settings"])
    settings["training"]["precision"] = checkpoint.fields["environment"]["precision"]
    return settings


def recorded_precision(checkpoints: Path) -> Precision:
    """Return the number format of the run with these checkpoints; ``auto`` where there is none yet."""
    with suppress(ModelFileError):  # reported when the checkpoint is restored
        if (newest := load_checkpoint(checkpoints, lambda _: None)) is not None:
            return newest.fields["environment"]["precision"]
    return "auto"


def check_same(
    settings: Mapping[str, Any], ours: Mapping[str, Any], digest: str, our_digest: str
) -> None:
    """Raise ConfigError naming the first setting that would change the outcome, or the data."""
    # settings of an earlier version are read as this one reads them
    before, now = _flat(resolve_config(overrides=settings).to_tables()), _flat(ours)
    for key in sorted(before.keys() | now.keys()):
        if key == "training.precision" and before.get(key) == "auto":
            continue  # a finished run of version 0.1.0
        if key != "training.checkpoint_every_s" and before.get(key) != now.get(key):
            change = f"with {key} = {before.get(key)!r}, now {now.get(key)!r}"
            raise ConfigError(f"the run was started {change}; keep it, or start another run.")
    if digest != our_digest:
        change = f"data digest {digest[:12]}, now {our_digest[:12]}"
        raise ConfigError(
            f"the run was started on other graphs ({change}); give it the same input."
        )


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        flat |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
        )  # pyright: ignore[reportUnknownArgumentType]
    return flat


def _scalars(losses: LossTerms) -> dict[str, Tensor]:
    return {
        "loss": losses.total,
        **{f"loss_{k}": v for k, v in losses.terms.items()},
        **losses.watch,
    }
