"""Pre-training, from the start or resumed from a checkpoint."""

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float16
from torch import Tensor, nn

from graphlog import __version__
from graphlog.data.store import GraphBatch, GraphStore, epoch_batches
from graphlog.data.tables import listed_rows
from graphlog.domains import domain_of
from graphlog.encoders.encoder import GraphEncoder, NodeNorm, build_encoder, calibrate
from graphlog.encoders.modelfile import ModelFile, digest_of, read_model, save_model, tensors_below
from graphlog.encoders.novelty import PREFIX, fit_novelty
from graphlog.errors import (
    ConfigError,
    DataError,
    ModelFileError,
    TrainingInterrupted,
    first_line,
    setting,
)
from graphlog.files import write_json, write_text, writing
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import LossTerms, Objective, RegressionHead
from graphlog.ops.collectives import Peers
from graphlog.ops.contrastive import full_precision
from graphlog.training.log import Callback, Callbacks, MetricsFile, Progress
from graphlog.training.runfolder import CHECKPOINTS, CONFIG, MODEL, RunFolder, versions
from graphlog.training.settings import (
    PretrainConfig,
    Setting,
    autocast,
    check_fits,
    choose_device,
    choose_precision,
    first_difference,
    flat_settings,
    generator_for,
    global_seed,
    read_config,
    recorded_config,
)
from graphlog.training.targets import check_texts, read_vectors, targets_of
from graphlog.training.trainer import (
    Cursor,
    Job,
    NamedAdam,
    Team,
    Trainer,
    WeightAverage,
    joined,
    resume_advice,
    scheduled_rate,
    stop_on_signal,
)
from graphlog.training.watch import CollapseWatch


class Pretraining(Job):
    """The job of training an encoder and an objective on graphs without labels."""

    def __init__(
        self,
        store: GraphStore,
        config: PretrainConfig,
        *,
        init: GraphEncoder | None = None,
        progress: Progress | None = None,
        max_embedded: int | None = None,
    ) -> None:
        """Create encoder and objective, which prepares phases with up to ``max_embedded`` graphs.

        Raises:
            ConfigError: If settings, graphs and ``init`` do not fit each other.
            DataError: If there are too few graphs, or texts for computing targets are missing.
        """
        if len(store) < 2:
            raise DataError(
                f"pre-training compares graphs and needs at least 2, found {len(store)}."
            )
        self.store, self.progress = store, progress or Progress()
        self.folder: RunFolder | None = None
        say = self.progress.say
        kind = OBJECTIVES[config.objective]
        if note := kind.RECIPE_NOTES.get(config.recipe):
            say(f"note: {note}")
        device = choose_device(config.device)
        precision = choose_precision(config.precision, device, say)
        config = config.updated({"schema": store.schema.name, "precision": precision})
        vectors = None
        if config.targets_from is not None:
            vectors, config = _read_targets(config, kind, store)
            constant = np.flatnonzero(~np.nan_to_num(vectors).any(axis=0))
            if len(constant) > 0:
                listed = ", ".join(map(str, constant[:8])) + ", ..." * (len(constant) > 8)
                say(
                    f"note: {len(constant)} of {vectors.shape[1]} columns of {config.targets_from} "
                    f"do not vary and are of no use (counted from 0: {listed})"
                )
        elif "target_columns" in config.options:
            raise ConfigError(
                f"`objective.target_columns` says how many columns {setting('targets_from')} has; "
                "give that file too, or drop the setting.",
                option="targets_from",
            )
        self.config, self.setting = config, Setting(config.seed, device, precision)
        if init is None:
            generator = generator_for(config.seed, "encoder")
            init = build_encoder(config.encoder, store.schema, generator)
        else:
            check_fits(init, config, store.schema)
        with global_seed(config.seed, "objective"):
            options = kind.Config.parse(config.options, "objective.")
            objective: Objective[Any] = kind(options, init)
        self.encoder = init.to(device).train()
        self.objective = objective.to(device).train()
        self.phases = self.objective.phases(config.epochs)
        if note := self.objective.phases_note(config.epochs):
            say(f"note: {note}")
        if self.objective.needs_targets:  # checked before an existing run is changed
            check_texts(store, self.objective.needs_substructures, vectors is None)
        elif vectors is not None:
            raise _no_targets_error()
        self.fresh_moments = config.fresh_moments
        self.average = WeightAverage(config.average) if config.average > 0 else None
        self.watch = CollapseWatch(self.encoder, config.watch_every, config.batch_size)
        self._steps = config.epochs * len(self.batches(0))
        self._max_embedded = max_embedded
        self._vectors, self._targets = vectors, None
        self._phase, self._splits_batches = 0, False
        self._had_nonzero_loss = False

    def join(self, team: Team) -> None:
        """Train together with other processes.

        Raises:
            ConfigError: If processes differ in settings, data, versions or weights, or if there are
                more processes than graphs in a batch.
        """
        self.team = team
        if team.peers is None:
            return
        team.check_equal(
            {
                "graphlog-torch": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                **flat_settings(self.config.to_tables()),
                "data digest": self.store.digest,
                "the weights to start from": digest_of(self._weights(), {})[:12],
            }
        )
        graphs = min(self.config.batch_size, len(self.store))
        if team.size > graphs:
            team.refuse(
                f"{team.size} processes share batches of {graphs} graphs; start fewer, or give a "
                f"larger {setting('batch_size')}."
            )
        self._splits_batches = self.objective.is_separable and self.encoder.config.dropout == 0
        self._share_with(team.peers)

    def _share_with(self, peers: Peers | None) -> None:
        """Set the processes that each module exchanges rows with; None removes them."""
        for module in nn.ModuleList([self.encoder, self.objective]).modules():
            if isinstance(module, GraphEncoder):
                module.peers = None if self._splits_batches else peers
                for norm in module.modules():
                    if isinstance(norm, NodeNorm):
                        norm.peers = peers
            elif isinstance(module, RegressionHead):
                module.peers = peers if self._splits_batches else None

    def _weights(self) -> dict[str, Tensor]:
        weights = {f"model.{k}": v for k, v in self.encoder.state_dict().items()}
        return weights | {f"objective.{k}": v for k, v in self.objective.state_dict().items()}

    def parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return all parameters of encoder and objective."""
        named = [(f"model.{name}", p) for name, p in self.encoder.named_parameters()]
        return named + [(f"objective.{name}", p) for name, p in self.objective.named_parameters()]

    def learning_rate(self, cursor: Cursor) -> float:
        """Return the learning rate of the schedule."""
        c = self.config
        return scheduled_rate(c.learning_rate, c.schedule, cursor.step, self._steps, c.warmup)

    def optimizer(self, cursor: Cursor) -> NamedAdam:
        """Return an optimizer with the learning rate factors of the objective."""
        factors = self.objective.learning_rate_factors()
        named = {f"objective.{name}": factor for name, factor in factors.items()}
        return NamedAdam(self.parameters(), named)

    def batches(self, epoch: int) -> list[np.ndarray]:
        """Return the batches; a last batch of one graph is joined to the batch before it."""
        batches = epoch_batches(len(self.store), self.config.batch_size, self.config.seed, epoch)
        if len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [np.concatenate(batches[-2:])]
        return batches

    def load(self, indices: np.ndarray) -> GraphBatch:
        """Return the graphs, or the share of this process if batches are split."""
        if self._splits_batches and self.team.peers is not None:
            indices = np.array_split(indices, self.team.size)[self.team.peers.rank]
        batch = self.store.take(indices)
        if self._targets is not None:
            batch = replace(batch, y=torch.from_numpy(self._targets[indices].astype(np.float32)))
        return self.setting.staged(batch)

    def loss(self, batch: GraphBatch, step: int) -> LossTerms:
        """Return the losses of a batch; the collapse monitor may collect its embeddings."""
        self.watch.before_step(step)
        losses = objective_loss(self.encoder, self.objective, batch, step, self.setting)
        return self.team.mean(losses) if self._splits_batches else losses

    def begin_phase(self, number: int) -> None:
        """Prepare the objective for a phase."""
        self._phase, phase = number, self.phases[number]
        self.progress.stage(f"preparing phase '{phase.name}'")
        with global_seed(self.config.seed, "begin", number, device=self.setting.device):
            generator = generator_for(self.config.seed, "phase", number)
            self.objective.begin_phase(phase, self._embed, generator)
        self.objective.to(self.setting.device).train()

    def after_step(self, step: int, graphs: int) -> None:
        """Update the average of the weights and the collapse monitor."""
        if self.average is not None:
            self.average.update(self.parameters(), step)
        self.watch.after_step(graphs, self.team.peers if self._splits_batches else None)

    def log_due(self, step: int) -> bool:
        """Return whether a row of the log or a measurement of the collapse monitor is due."""
        return step % self.config.log_every == 0 or self.watch.due(step)

    def row(self, means: dict[str, float], cursor: Cursor) -> dict[str, Any]:
        """Return losses and the values of the collapse monitor, and print alarms."""
        watched, alarms = self.watch.look(means) if self.watch.due(cursor.step) else ({}, [])
        self._had_nonzero_loss |= means["loss"] != 0
        if not self._had_nonzero_loss and cursor.step * self.config.epochs == self._steps:
            alarms.append(
                f"alarm: every loss of the first epoch was 0: {self.config.objective} finds nothing"
                " to learn from in these graphs, which may be too small or without edges; choose "
                "another objective, or other settings of it"
            )
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
        name = self.phases[cursor.phase].name
        return f"phase '{name}', epoch {cursor.epoch + 1} of {self.config.epochs}"

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return weights, their average, the state of the monitor, settings and environment."""
        measured, watch = self.watch.state()
        tensors = self._weights() | {f"watch.{k}": v for k, v in measured.items()}
        if self.average is not None:
            tensors |= {f"average.{k}": v for k, v in self.average.averages.items()}
        about = {"settings": self.config.to_tables(), "data_digest": self.store.digest}
        return tensors, {**about, "environment": self._environment(), "watch": watch}

    def load_state(self, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> None:
        """Restore a state after checking that settings and graphs are the same."""
        self.check_same(fields["settings"], fields["data_digest"])
        for name, now in self._environment().items():
            if (before := fields["environment"].get(name, now)) != now:
                self.progress.say(
                    f"{name} was {before} when the checkpoint was written, is {now} now: "
                    "the last bits may differ"
                )
        device = self.setting.device
        weights = tensors_below(tensors, "objective.")
        self.objective.prepare_state(weights)
        self.objective.to(device).load_state_dict(weights)
        self.encoder.load_state_dict(tensors_below(tensors, "model."))
        if self.average is not None:
            parameters = dict(self.parameters())
            for name, value in tensors_below(tensors, "average.").items():
                self.average.averages[name] = value.to(parameters[name].device, copy=True)
        self.watch.load_state(tensors_below(tensors, "watch."), fields["watch"], device)

    def check_same(self, settings: Mapping[str, Any], digest: str) -> None:
        """Check that the settings and the data of a run to resume have not changed.

        Raises:
            ConfigError: With the first setting that differs, or if the data differ.
        """
        change = first_difference(recorded_config(settings).to_tables(), self.config.to_tables())
        if change is None and digest != self.store.digest:
            change = f"other graphs (data digest {digest[:12]}, now {self.store.digest[:12]})"
        if change is not None:
            raise ConfigError(
                f"the run was started with {change}; keep to that, or start another run."
            )

    def finish(self) -> ModelFile:
        """Finalize encoder and objective, and return them with a description of the training.

        Weights are replaced by their average, if the settings say so. The statistics of batch
        normalization and novelty are computed from clean graphs.
        """
        c, store = self.config, self.store
        self.watch.close()
        if self.average is not None:
            self.average.copy_to(self.parameters())
        self._share_with(None)
        calibrate(self.encoder, store, c.seed)
        self.objective.eval()
        novelty = fit_novelty(self.encoder, store, c.seed)
        extra = {**self.objective.state_dict(), **(novelty.tensors() if novelty else {})}
        cutting = domain_of(store.schema).cutting_options(store)
        info = {
            "objective": c.objective,
            "recipe": c.recipe,
            "seed": c.seed,
            "epochs": c.epochs,
            "schema": store.schema.name,
            "embedding": c.embedding,
            "graphs": len(store),
            "graphs_seen": len(store) * c.epochs,
            "data_digest": store.digest,
            "settings": c.to_tables(),
            **({"cutting": cutting} if cutting else {}),
            "versions": versions(store.digest)["packages"],
        }
        return ModelFile(self.encoder, info, extra)

    def find_targets(self, run_dir: Path | None) -> None:
        """Get the targets of the graphs: the first process computes them, the others read them."""
        wanted = self.objective.needs_substructures
        for is_first in (True, False):
            if is_first == self.team.is_first:
                self._targets = targets_of(
                    self.store, self.progress, run_dir, wanted, self._vectors
                )
            self.team.exchange("targets")

    def describe_batch(self, indices: np.ndarray) -> str:
        """Return the part of an error message that names the rows of a batch."""
        return f"its graphs include those of rows {listed_rows(self.store.rows[indices])}"

    def how_to_resume(self, cursor: Cursor) -> str:
        """Return the message after the user has stopped the run."""
        if self.folder is None:
            return f"stopped after step {cursor.step}; there is no run folder, nothing was kept"
        return (
            f"stopped after step {cursor.step}; continue with {setting('resume', True)} and the "
            f"same run folder ({self.folder.path})"
        )

    @torch.no_grad()
    def _embed(self, limit: int | None, calibrated: bool) -> Float[Tensor, "M D"]:
        """Return embeddings of all graphs in order, or of ``limit`` random graphs."""
        total = min(len(self.store), self._max_embedded or len(self.store))
        indices, c, device = np.arange(total), self.config, self.setting.device
        if limit is not None and limit < total:
            generator = generator_for(c.seed, "embed", self._phase)
            indices = np.sort(torch.randperm(total, generator=generator)[:limit].numpy())
        self.encoder.eval()
        if calibrated:
            calibrate(self.encoder, self.store, c.seed)
        parts: list[Tensor] = []
        for part in np.split(indices, range(c.batch_size, len(indices), c.batch_size)):
            batch = self.store.take(part).to(device)
            with autocast(self.setting.precision, device):
                parts.append(full_precision(self.encoder(batch).graph_emb))
        self.encoder.train()
        return torch.cat(parts)

    def _environment(self) -> dict[str, Any]:
        """Return the environment, which can change the last bits of results."""
        return {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "processes": self.team.size,
            "device": self.setting.device.type,
            "precision": self.setting.precision,
        }


def _read_targets(
    config: PretrainConfig, kind: type[Objective[Any]], store: GraphStore
) -> tuple[Float16[np.ndarray, "M K"], PretrainConfig]:
    """Return the target vectors in ``targets_from``, and settings with their digest and size."""
    assert config.targets_from is not None
    if "target_columns" not in kind.Config.model_fields:
        raise _no_targets_error()
    path = Path(config.targets_from).absolute()  # for resuming in another working directory
    vectors = read_vectors(path, store)
    digest = sha256(vectors.tobytes()).hexdigest()
    if config.targets_digest not in (None, digest):
        raise ConfigError(
            f"{path} has other vectors than the run was started with; give it the "
            "same, or start another run.",
            option="targets_from",
        )
    options = {**config.options, "target_columns": vectors.shape[1]}
    changes = {"targets_from": str(path), "targets_digest": digest, "options": options}
    return vectors, config.updated(changes)


def _no_targets_error() -> ConfigError:
    return ConfigError(
        f"{setting('targets_from')} is for objectives that predict descriptors; choose "
        "descriptorpred, or graphlog with objective.descriptor_weight above 0.",
        option="targets_from",
    )


def objective_loss(
    encoder: GraphEncoder, objective: Objective[Any], batch: GraphBatch, step: int, setting: Setting
) -> LossTerms:
    """Return the losses of one batch; random numbers depend only on the seed and ``step``."""
    seed, device = setting.seed, setting.device
    batch = batch.to(device)
    views = objective.views(batch, generator_for(seed, "views", step, device=device))
    with global_seed(seed, "dropout", step, device=device), autocast(setting.precision, device):
        return objective.loss(views, encoder, generator_for(seed, "loss", step, device=device))


def run_pretraining(
    store: GraphStore,
    config: PretrainConfig,
    run_dir: Path | None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    init: GraphEncoder | None = None,
    progress: Progress | None = None,
    callbacks: Sequence[Callback | str] = (),
    describe: Callable[[Path], None] = lambda folder: None,
) -> ModelFile:
    """Train ``config.objective`` on the graphs of ``store``; see :func:`graphlog.pretrain`.

    On a CPU with the same number of threads, a run that was killed and resumed gives bit-identical
    results. Without ``run_dir`` no files are written. The result contains the encoder, the tensors
    of the objective and those of novelty. ``describe`` is called with the run folder after all
    checks, to write further files.

    Raises:
        ConfigError: If settings, graphs, ``init`` and run folder do not fit each other.
        DataError: If there are too few graphs.
        NonFiniteLossError: If a loss becomes NaN or infinite.
        TrainingInterrupted: After Ctrl-C, when the state has been saved; after a second Ctrl-C
            immediately.
    """
    if run_dir and resume and config.precision == "auto" and (run_dir / CONFIG).is_file():
        config = config.updated({"precision": read_config(run_dir / CONFIG).precision})
    if not resume:  # the settings may be those of another run
        config = config.updated({"targets_digest": None})
    job = Pretraining(store, config, init=init, progress=progress)
    with joined(job.setting.device) as team, ExitStack() as stack:
        job.join(team)
        folder = None
        if run_dir is not None and team.is_first:
            folder = RunFolder.open(run_dir, resume=resume, overwrite=overwrite)
            job.folder = stack.enter_context(closing(folder))
        is_complete = run_dir is not None and resume and (run_dir / MODEL).exists()
        team.check_equal({"whether the run is complete": is_complete})
        result = _load_complete(run_dir / MODEL, job) if run_dir and is_complete else None
        if result is None:
            with closing(Callbacks(callbacks, folder and folder.path)) as active:
                _train(job, run_dir and run_dir.absolute(), active, resume, describe)
            result = job.finish()
            if folder is not None:
                with writing(folder.model, resume_advice()):
                    save_model(folder.model, result.encoder, result.info, extra=result.extra)
        elif folder is not None:
            describe(folder.path)
        if folder is not None:
            folder.remove_targets()
        return result


def _load_complete(path: Path, job: Pretraining) -> ModelFile | None:
    """Return the model of a complete run; None if its file is damaged."""
    try:
        model = read_model(path)
    except ModelFileError as e:
        job.progress.say(f"{e} Writing it again from the last checkpoint.")
        return None
    if not {"settings", "data_digest"} <= model.info.keys():
        raise ModelFileError(
            f"{path} is not the model of a pre-training run; move it away to continue this run."
        )
    job.check_same(model.info["settings"], model.info["data_digest"])
    weights = {k: v for k, v in model.extra.items() if not k.startswith(PREFIX)}
    try:
        job.objective.prepare_state(weights)
        job.objective.load_state_dict(weights)
    except (RuntimeError, KeyError) as e:
        raise ModelFileError(
            f"{path} is of another version of graphlog ({first_line(e)}); use it as it is, or "
            f"train it again with {setting('overwrite', True)}.",
            option="overwrite",
        ) from None
    job.progress.say(f"{path.parent} is complete already; nothing to do")
    return model


def _train(
    job: Pretraining,
    path: Path | None,
    callbacks: Callbacks,
    resume: bool,
    describe: Callable[[Path], None],
) -> None:
    """Train to the end; ``path`` is the run folder, also in processes that do not write to it."""
    config, folder, progress, total = job.config, job.folder, job.progress, len(job.store)
    trainer = Trainer(
        job,
        checkpoints=None if path is None else path / CHECKPOINTS,
        checkpoint_every_s=config.checkpoint_every_s,
        callbacks=callbacks,
    )
    try:
        with stop_on_signal() as stop:
            stop.raises_immediately = True
            is_restored = resume and trainer.restore()
            cursor = trainer.cursor
            if is_restored:
                epoch = f"epoch {cursor.epoch + 1} of {config.epochs}"
                progress.say(f"continuing from step {cursor.step}, {epoch}")
            elif resume and path is not None:
                progress.say(f"no checkpoint in {path}: starting from the beginning")
            if not is_restored:
                trainer.save()  # before the settings are written, which lack the weights of `init`
            if folder is not None:
                write_text(folder.config, config.to_toml())
                write_json(folder.versions, versions(job.store.digest))
                describe(folder.path)
                with writing(folder.metrics):
                    trainer.metrics = MetricsFile(folder.metrics, cursor.step)
            if job.objective.needs_targets and not trainer.is_done:
                job.find_targets(path)
            done = total * cursor.epoch + cursor.batch * config.batch_size
            progress.begin(total * config.epochs, done)
            trainer.run(stop)
    except KeyboardInterrupt:
        raise TrainingInterrupted(job.how_to_resume(trainer.cursor)) from None
    finally:
        progress.end()
        job.watch.close()
        if trainer.metrics is not None:
            trainer.metrics.close()
