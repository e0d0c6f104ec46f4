"""Pre-training from start to end, also when it is continued where a run stopped."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.encoders.novelty import PREFIX
from graphlog.errors import ConfigError, DataError, ModelFileError, setting
from graphlog.files import write_json, write_text, writing
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import Objective
from graphlog.training.callbacks import Callback, Callbacks
from graphlog.training.config import PretrainConfig, read_config
from graphlog.training.log import MetricsFile, Progress, Silent, as_progress
from graphlog.training.precision import choose_device, choose_precision
from graphlog.training.pretrain_job import Pretraining
from graphlog.training.runfolder import CHECKPOINTS, MODEL, RunFolder, recorded_precision, versions
from graphlog.training.targets import check_texts
from graphlog.training.team import joined, local_device
from graphlog.training.trainer import Trainer, TrainingInterrupted, resume_advice, stop_on_signal


@dataclass(frozen=True, slots=True)
class PretrainResult:
    """What pre-training leaves."""

    encoder: GraphEncoder
    """The trained encoder, in evaluation mode."""
    objective: Objective[Any]
    """The trained objective; for GraphLoG it holds the prototypes."""
    info: dict[str, Any]
    """What the model file says about the run."""
    extra: dict[str, Tensor]
    """Tensors of the objective, and what novelty is judged by."""


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
        TrainingInterrupted: After Ctrl-C, once the state has been saved; after a second, at once.
    """
    progress = as_progress(progress)
    config = _resolve(store, config, run_dir, resume, progress)
    if len(store) < 2:
        raise DataError(f"pre-training compares graphs and needs at least 2, found {len(store)}.")
    if note := getattr(OBJECTIVES[config.objective], "RECIPE_NOTES", {}).get(config.recipe):
        progress.say(f"note: {note}")
    job = Pretraining(store, config, init=init, progress=progress)
    if note := job.objective.phases_note(config.epochs):
        progress.say(f"note: {note}")
    if job.objective.needs_targets:  # asked before any old run is touched
        check_texts(store, job.objective.needs_substructures)
    path = None if run_dir is None else Path(run_dir)
    with joined(job.setting.device) as team:
        job.join(team)
        given = callbacks if team.is_first else ()
        if path is None or not team.is_first:
            return _run(job, None, path, progress, given, resume)
        folder = RunFolder.open(path, resume=resume, overwrite=overwrite)
        try:
            return _run(job, folder, path, progress, given, resume)
        finally:
            folder.close()


def _run(
    job: Pretraining,
    folder: RunFolder | None,
    path: Path | None,
    progress: Progress,
    callbacks: Sequence[Callback | str],
    resume: bool,
) -> PretrainResult:
    """Train to the end; processes that do not write have a path and no folder."""
    model = None if path is None or not resume else path / MODEL
    finished = model is not None and model.exists()
    job.team.check_alike({"whether the run is complete": finished})
    if model and finished and (result := _finished(model, job, progress)) is not None:
        if folder is not None:
            folder.remove_targets()
        return result
    job.folder = folder
    with closing(Callbacks(callbacks, None if folder is None else path)) as followers:
        _train(job, folder, path, progress, followers, resume)
    info = _info(job.store, job.config)
    if folder is not None:
        with writing(folder.model, resume_advice()):
            save_model(folder.model, job.encoder, info, extra=job.kept())
        folder.remove_targets()
    return PretrainResult(job.encoder, job.objective, info, job.kept())


def _train(
    job: Pretraining,
    folder: RunFolder | None,
    path: Path | None,
    progress: Progress,
    callbacks: Callbacks,
    resume: bool,
) -> None:
    trainer = Trainer(
        job,
        progress,
        checkpoints=None if path is None else path / CHECKPOINTS,
        checkpoint_every_s=job.config.checkpoint_every_s,
        callbacks=callbacks,
    )
    total = len(job.store)
    try:
        if resume and trainer.restore():
            cursor = trainer.cursor
            progress.say(
                f"continuing from step {cursor.step}, "
                f"epoch {cursor.epoch + 1} of {job.config.epochs}"
            )
        elif resume and path is not None:
            progress.say(f"no checkpoint in {path}: starting from the beginning")
        if folder is not None:
            write_text(folder.config, job.config.to_toml())
            write_json(folder.versions, versions(job.store.digest))
            with writing(folder.metrics):
                trainer.metrics = MetricsFile(folder.metrics, trainer.cursor.step)
        if job.objective.needs_targets and not trainer.is_done:
            job.find_targets(path)
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
            raise ConfigError(
                f"{setting('config')} may be left out only where a run folder is resumed.",
                option="config",
            )
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
        device = local_device(choose_device(config.device))
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


def _finished(path: Path, job: Pretraining, progress: Progress) -> PretrainResult | None:
    """Return the model of a completed run; None where it has to be written again."""
    try:
        model = read_model(path)
    except ModelFileError as e:
        progress.say(f"{e} Writing it again from the last checkpoint.")
        return None
    job.check_same(model.info["settings"], model.info["data_digest"])
    objective = job.objective
    learned = {k: v for k, v in model.extra.items() if not k.startswith(PREFIX)}
    try:
        objective.prepare_state(learned)
        objective.load_state_dict(learned)
    except (RuntimeError, KeyError) as e:
        reason = str(e).splitlines()[0]
        raise ModelFileError(
            f"{path} is of another version of graphlog ({reason}); use it as it is, or "
            f"train it again with {setting('overwrite', True)}.",
            option="overwrite",
        ) from None
    progress.say(f"{path.parent} is complete already; nothing to do")
    return PretrainResult(model.encoder.eval(), objective.eval(), dict(model.info), model.extra)
