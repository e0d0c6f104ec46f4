"""Pre-training from start to end, also when it is continued where a run stopped."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphlog.data.batch import GraphBatch
from graphlog.data.sampler import BatchSampler
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder, build_encoder
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.files import writing
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import LossTerms, Objective
from graphlog.training.callbacks import Callback, Callbacks
from graphlog.training.checkpoint import part, recorded_precision
from graphlog.training.config import (
    PretrainConfig,
    check_fits,
    first_difference,
    read_config,
    recorded_config,
)
from graphlog.training.log import MetricsFile, Progress, Silent, as_progress
from graphlog.training.optim import WeightAverage, scheduled_rate
from graphlog.training.precision import autocast, choose_device, choose_precision
from graphlog.training.randomness import generator_for, global_seed, seed_for
from graphlog.training.runfolder import RunFolder, versions
from graphlog.training.statistics import calibrate
from graphlog.training.targets import with_targets
from graphlog.training.trainer import (
    ADVICE,
    Cursor,
    Job,
    Setting,
    Trainer,
    TrainingInterrupted,
    stop_on_signal,
)
from graphlog.training.watch import CollapseWatch


@dataclass(frozen=True, slots=True)
class PretrainResult:
    """What pre-training leaves."""

    encoder: GraphEncoder
    """The trained encoder, in evaluation mode."""
    objective: Objective[Any]
    """The trained objective; for GraphLoG it holds the prototypes."""
    info: dict[str, Any]
    """What the model file says about the run."""


def run_pretraining(
    store: GraphStore,
    config: PretrainConfig | None,
    run_dir: Path | None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    init: GraphEncoder | None = None,
    progress: Progress | bool | None = None,
    callbacks: Sequence[Callback | str] = (),
) -> PretrainResult:
    """Train ``config.objective`` on the graphs of ``store``.

    A run that is killed at any moment and resumed ends, on a CPU with the same number of threads,
    with the same bits as one that was never stopped.

    Args:
        store: The graphs; labels are not looked at.
        config: The settings; None takes those of the run folder to be resumed.
        run_dir: Where checkpoints, log and model go; None trains in memory only.
        resume: Continue from the newest whole checkpoint of ``run_dir``.
        overwrite: Replace the run in ``run_dir``.
        init: Encoder to start from instead of random weights; it is trained in place.
        progress: Follows the run; True shows a bar, None nothing.
        callbacks: Get every row of the log; ``tensorboard``, ``wandb`` or ``mlflow`` by name.

    Raises:
        ConfigError: If settings, graphs, ``init`` and run folder do not fit each other.
        DataError: If there are too few graphs.
        NonFiniteLossError: If a loss becomes NaN or infinite.
        TrainingInterrupted: After Ctrl-C, once the state has been saved.
    """
    progress = as_progress(progress)
    config = _resolve(store, config, run_dir, resume, progress)
    if len(store) < 2:
        raise DataError(f"pre-training compares graphs and needs at least 2, found {len(store)}.")
    if note := getattr(OBJECTIVES[config.objective], "RECIPE_NOTES", {}).get(config.recipe):
        progress.say(f"note: {note}")
    job = Pretraining(store, config, init=init, progress=progress)
    if job.objective.needs_targets:
        store.texts(np.arange(0))  # a store without texts is refused before any old run is touched
    if run_dir is None:
        with closing(Callbacks(callbacks)) as followers:
            _train(job, None, progress, followers)
        return PretrainResult(job.encoder, job.objective, _info(store, config))
    folder = RunFolder.open(Path(run_dir), resume=resume, overwrite=overwrite)
    try:
        if resume and (finished := _finished(folder, job, progress)) is not None:
            folder.remove_targets()
            return finished
        job.folder = folder
        with closing(Callbacks(callbacks, folder.path)) as followers:
            _train(job, folder, progress, followers, resume)
        info = _info(store, config)
        with writing(folder.model, ADVICE):
            save_model(folder.model, job.encoder, info, extra=dict(job.objective.state_dict()))
        folder.remove_targets()
        return PretrainResult(job.encoder, job.objective, info)
    finally:
        folder.close()


class Pretraining(Job):
    """An encoder and an objective, trained on graphs without labels."""

    def __init__(
        self,
        store: GraphStore,
        config: PretrainConfig,
        *,
        init: GraphEncoder | None = None,
        progress: Progress | None = None,
        embed_at_most: int | None = None,
    ) -> None:
        """Build encoder and objective.

        Args:
            store: The graphs.
            config: The settings.
            init: Encoder to start from instead of random weights; it is trained in place.
            progress: Where alarms and losses are shown.
            embed_at_most: Graphs that a phase may be prepared with; None takes all.

        Raises:
            ConfigError: If settings, graphs and ``init`` do not fit each other.
        """
        self.store, self.config, self.progress = store, config, progress or Silent()
        self.folder: RunFolder | None = None
        device = choose_device(config.device)
        precision = choose_precision(config.precision, device, self.progress.say)
        self.setting = Setting(config.seed, device, precision)
        kind = OBJECTIVES[config.objective]
        kind.check_schema(store.schema)
        if init is None:
            init = build_encoder(config.encoder, store.schema, seed_for(config.seed, "encoder"))
        else:
            check_fits(init, config, store.schema)
        with global_seed(config.seed, "objective"):
            options = kind.Config.parse(config.options, "objective.")
            objective: Objective[Any] = kind(options, init)
        self.encoder = init.to(device).train()
        self.objective = objective.to(device).train()
        self.phases = self.objective.phases(config.epochs)
        self.fresh_moments, self.log_every = config.fresh_moments, config.log_every
        self.average = WeightAverage(config.average) if config.average > 0 else None
        self.watch = CollapseWatch(self.encoder, config.watch_every, config.batch_size)
        self.sampler = BatchSampler(len(store), config.batch_size, config.seed)
        self._embed_at_most = embed_at_most
        self._phase = 0

    def parameters(self, phase: int) -> list[tuple[str, nn.Parameter]]:
        """Return all parameters of encoder and objective."""
        named = [(f"model.{name}", p) for name, p in self.encoder.named_parameters()]
        return named + [(f"objective.{name}", p) for name, p in self.objective.named_parameters()]

    def learning_rate(self, cursor: Cursor) -> float:
        """Return the step size that the schedule has reached."""
        c = self.config
        done = min(cursor.step / (len(self.sampler) * c.epochs), 1.0)
        return scheduled_rate(c.learning_rate, c.schedule, done, c.warmup)

    def rate_factors(self) -> Mapping[str, float]:
        """Return those that the objective asks for."""
        factors = self.objective.learning_rate_factors()
        return {f"objective.{name}": factor for name, factor in factors.items()}

    def batches(self, epoch: int) -> list[np.ndarray]:
        """Return the batches; a single graph left over joins the batch before it."""
        batches = list(self.sampler.epoch(epoch))
        if len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [np.concatenate(batches[-2:])]
        return batches

    def load(self, indices: np.ndarray) -> GraphBatch:
        """Return the graphs."""
        return self.store.take(indices)

    def loss(self, batch: GraphBatch, step: int) -> LossTerms:
        """Return the losses of the views of a batch."""
        return objective_loss(self.encoder, self.objective, batch, step, self.setting)

    def begin_phase(self, number: int) -> None:
        """Prepare the objective for a phase."""
        self._phase, phase = number, self.phases[number]
        self.progress.stage(f"preparing phase '{phase.name}'")
        with global_seed(self.config.seed, "begin", number, device=self.setting.device):
            generator = generator_for(self.config.seed, "phase", number)
            self.objective.begin_phase(phase, self._embed, generator)
        self.objective.to(self.setting.device).train()

    def before_step(self, step: int) -> None:
        """Let the watch listen if the step's embeddings will be looked at."""
        self.watch.before_step(step)

    def after_step(self, step: int, graphs: int) -> None:
        """Take the step into the average of the weights."""
        if self.average is not None:
            self.average.update(self.parameters(self._phase), step)
        self.watch.after_step(graphs)

    def log_due(self, step: int) -> bool:
        """Return whether the watch looks after ``step``."""
        return self.watch.due(step)

    def row(self, means: dict[str, float], cursor: Cursor, is_epoch_end: bool) -> dict[str, Any]:
        """Return losses and what the watch has seen; alarms are shown."""
        watched, alarms = self.watch.look(means) if self.watch.due(cursor.step) else ({}, [])
        self.progress.report(
            {k.removeprefix("loss_"): v for k, v in means.items() if k.startswith("loss")}
        )
        for alarm in alarms:
            self.progress.say(alarm)
        phase = self.phases[cursor.phase].name
        head = {"step": cursor.step, "epoch": cursor.epoch, "phase": phase}
        return {**head, **means, **watched, **({"alarms": alarms} if alarms else {})}

    def stage(self, cursor: Cursor) -> str:
        """Return phase and epoch."""
        phase = self.phases[cursor.phase].name
        return f"phase '{phase}', epoch {cursor.epoch + 1} of {self.config.epochs}"

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return weights, their average, what the watch has seen, and what the run depends on."""
        weights = {f"model.{k}": v for k, v in self.encoder.state_dict().items()}
        weights |= {f"objective.{k}": v for k, v in self.objective.state_dict().items()}
        seen, watch = self.watch.state()
        tensors = weights | {f"watch.{k}": v for k, v in seen.items()}
        if self.average is not None:
            tensors |= {f"average.{k}": v for k, v in self.average.state().items()}
        fields = {
            "settings": self.config.to_tables(),
            "data_digest": self.store.digest,
            "environment": self._environment(),
            "watch": watch,
        }
        return tensors, fields

    def load_state(self, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> None:
        """Continue from a state, provided that settings and graphs are the same."""
        settings = deepcopy(fields["settings"])
        settings["training"]["precision"] = fields["environment"]["precision"]
        self._check_complete(settings)
        self.check_same(settings, fields["data_digest"])
        for name, now in self._environment().items():
            if (before := fields["environment"].get(name)) != now:
                self.progress.say(
                    f"{name} was {before} when the checkpoint was written, is {now} now: "
                    "the last bits may differ"
                )
        device = self.setting.device
        learned = part(tensors, "objective.")
        self.objective.prepare_state(learned)
        self.objective.to(device).load_state_dict(learned)
        self.encoder.load_state_dict(part(tensors, "model."))
        if self.average is not None:
            self.average.load_state(part(tensors, "average."), device)
        self.watch.load_state(part(tensors, "watch."), fields["watch"], device)

    def _check_complete(self, settings: Mapping[str, Any]) -> None:
        """Raise ConfigError if the run was started before a setting of the objective existed.

        What such a setting defaults to now need not be what the run did until it stopped.
        """
        missing = self.config.to_tables()["objective"].keys() - settings["objective"].keys()
        if missing:
            raise ConfigError(
                "the run was started by an earlier version of graphlog, which has no setting "
                f"objective.{min(missing)}; finish it with that version, or start another run."
            )

    def check_same(self, settings: Mapping[str, Any], digest: str) -> None:
        """Check that nothing that decides the outcome has changed since a run was started.

        Raises:
            ConfigError: Naming the first setting that has, or the data.
        """
        before = recorded_config(settings)
        if before.precision == "auto":  # a finished run of version 0.1.0
            before = before.updated({"precision": self.config.precision})
        if change := first_difference(before, self.config):
            raise ConfigError(f"the run was started with {change}; keep it, or start another run.")
        if digest != self.store.digest:
            change = f"data digest {digest[:12]}, now {self.store.digest[:12]}"
            raise ConfigError(
                f"the run was started on other graphs ({change}); give it the same input."
            )

    def finish(self) -> None:
        """Leave encoder and objective as they are to be used.

        The weights are their average, where the settings say so, and the statistics of batch
        normalization are those of clean graphs.
        """
        self.watch.close()
        if self.average is not None:
            self.average.copy_to(self.parameters(self._phase))
        calibrate(self.encoder, self.store, self.config.seed)
        self.objective.eval()

    def describe_batch(self, step: int, indices: np.ndarray) -> str:
        """Write the rows of a batch into the run folder and return where."""
        if self.folder is None:
            return super().describe_batch(step, indices)
        path = self.folder.path / f"nonfinite-step-{step}.json"
        rows = {"indices": indices.tolist(), "rows": self.store.rows[indices].tolist()}
        self.folder.write(path, json.dumps({"step": step, **rows}))
        return f"its graphs are listed in {path}, the last checkpoint is whole"

    def how_to_resume(self, cursor: Cursor) -> str:
        """Return the folder to resume."""
        if self.folder is None:
            return f"stopped after step {cursor.step}; there is no run folder, nothing was kept"
        return (
            f"stopped after step {cursor.step}; continue with --resume and the same run folder "
            f"({self.folder.path})"
        )

    @torch.no_grad()
    def _embed(self, limit: int | None = None) -> Float[Tensor, "M D"]:
        """Return graph embeddings in evaluation mode, in store order, or of a seeded subset."""
        total = min(len(self.store), self._embed_at_most or len(self.store))
        chosen = np.arange(total)
        if limit is not None and limit < total:
            draw = torch.randperm(
                total, generator=generator_for(self.config.seed, "embed", self._phase)
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
        return {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": self.setting.device.type,
            "precision": self.setting.precision,
        }


def objective_loss(
    encoder: GraphEncoder, objective: Objective[Any], batch: GraphBatch, step: int, setting: Setting
) -> LossTerms:
    """Return the losses of one batch; all randomness is a function of the seed and of ``step``."""
    seed, device = setting.seed, setting.device
    batch = batch.to(device)
    views = objective.views(batch, generator_for(seed, "views", step, device=device))
    with global_seed(seed, "dropout", step, device=device), autocast(setting.precision, device):
        return objective.loss(views, encoder, generator_for(seed, "loss", step, device=device))


def _train(
    job: Pretraining,
    folder: RunFolder | None,
    progress: Progress,
    callbacks: Callbacks,
    resume: bool = False,
) -> None:
    trainer = Trainer(
        job,
        progress,
        checkpoints=None if folder is None else folder.checkpoints,
        checkpoint_every_s=job.config.checkpoint_every_s,
        callbacks=callbacks,
    )
    total = len(job.store)
    try:
        if folder is not None:
            if resume and trainer.restore():
                cursor = trainer.cursor
                progress.say(
                    f"continuing from step {cursor.step}, "
                    f"epoch {cursor.epoch + 1} of {job.config.epochs}"
                )
            elif resume:
                progress.say(f"no checkpoint in {folder.path}: starting from the beginning")
            folder.write(folder.config, job.config.to_toml())
            folder.write_json(folder.versions, versions(job.store.digest))
            with writing(folder.metrics):
                trainer.metrics = MetricsFile(folder.metrics, trainer.cursor.step)
        if job.objective.needs_targets and not trainer.is_done:
            kept_in = None if folder is None else folder.path
            wanted = job.objective.needs_substructures
            job.store = with_targets(job.store, progress, kept_in, wanted)
        cursor = trainer.cursor
        progress.begin(
            total * job.config.epochs, total * cursor.epoch + cursor.batch * job.config.batch_size
        )
        with stop_on_signal() as stop:
            trainer.run(stop)
    except KeyboardInterrupt:
        raise TrainingInterrupted(job.how_to_resume(trainer.cursor)) from None
    finally:
        progress.end()
        job.watch.close()
        if trainer.metrics is not None:
            trainer.metrics.close()
    job.finish()


def _resolve(
    store: GraphStore,
    config: PretrainConfig | None,
    run_dir: Path | None,
    resume: bool,
    progress: Progress,
) -> PretrainConfig:
    """Return the settings with the schema of the store and a definite number format."""
    if config is None:
        if run_dir is None or not resume:
            raise ConfigError("`config` may be left out only where a run folder is resumed.")
        config = read_config(run_dir / "config.toml")
    changes: dict[str, Any] = {}
    if config.schema != store.schema.name:
        progress.say(
            f"the graphs have schema '{store.schema.name}' where the settings say "
            f"'{config.schema}': taking theirs"
        )
        changes["schema"] = store.schema.name
    if config.precision == "auto":
        recorded = recorded_precision(run_dir / "checkpoint") if resume and run_dir else None
        device = choose_device(config.device)
        changes["precision"] = choose_precision(recorded or "auto", device, Silent().say)
    return config.updated(changes) if changes else config


def _info(store: GraphStore, config: PretrainConfig) -> dict[str, Any]:
    return {
        "objective": config.objective,
        "recipe": config.recipe,
        "seed": config.seed,
        "epochs": config.epochs,
        "schema": store.schema.name,
        "embedding": config.embedding,
        "graphs": len(store),
        "graphs_seen": len(store) * config.epochs,
        "data_digest": store.digest,
        "settings": config.to_tables(),
        "versions": versions(store.digest)["packages"],
    }


def _finished(folder: RunFolder, job: Pretraining, progress: Progress) -> PretrainResult | None:
    """Return the model of a completed run; None where it has to be (re)written."""
    if not folder.model.exists():
        return None
    try:
        model = read_model(folder.model)
    except ModelFileError as e:
        progress.say(f"{e} Writing it again from the last checkpoint.")
        return None
    job.check_same(model.info["settings"], model.info["data_digest"])
    objective = job.objective
    try:
        objective.prepare_state(model.extra)
        objective.load_state_dict(model.extra)
    except (RuntimeError, KeyError) as e:
        reason = str(e).splitlines()[0]
        raise ModelFileError(
            f"{folder.model} is of another version of graphlog ({reason}); use it as it is, or "
            "train it again with --overwrite."
        ) from None
    progress.say(f"{folder.path} is complete already; nothing to do")
    return PretrainResult(model.encoder.eval(), objective.eval(), dict(model.info))
