"""Pre-training from start to end: phases, epochs, checkpoints, and going on where a run stopped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder, build_encoder
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.files import writing
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import Objective
from graphlog.training.config import PretrainConfig, read_config
from graphlog.training.log import Progress, Silent
from graphlog.training.loop import Setting
from graphlog.training.precision import choose_device, choose_precision
from graphlog.training.randomness import global_seed, seed_for
from graphlog.training.run import Run, check_same, recorded_precision
from graphlog.training.runfolder import RunFolder, versions


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
    progress: Progress | None = None,
) -> PretrainResult:
    """Train ``config.objective`` on the graphs of ``store``.

    A run that is killed at any moment and resumed ends, on a CPU with the same number of threads,
    with the same bits as one that was never stopped.

    Args:
        store: The graphs; labels are not looked at.
        config: The settings; None takes those of the run folder to be resumed.
        run_dir: Where checkpoints, log and model go; None trains in memory only.
        resume: Go on from the newest whole checkpoint of ``run_dir``.
        overwrite: Replace the run in ``run_dir``.
        init: Encoder to start from instead of random weights; it is trained in place.
        progress: Follows the run; None says nothing.

    Raises:
        ConfigError: If settings, graphs, ``init`` and run folder do not fit each other.
        DataError: If there are too few graphs.
        NonFiniteLossError: If a loss becomes NaN or infinite.
        TrainingInterrupted: After Ctrl-C, once the state has been saved.
    """
    progress = progress or Silent()
    config = _settled(store, config, run_dir, resume, progress)
    if len(store) < 2:
        raise DataError(f"pre-training compares graphs and needs at least 2, found {len(store)}.")
    device = choose_device(config.device)
    if resume and run_dir is not None and config.precision == "auto":
        config = config.updated({"precision": recorded_precision(Path(run_dir) / "checkpoint")})
    precision = choose_precision(config.precision, device, progress.say)
    config = config.updated({"precision": precision})
    if note := getattr(OBJECTIVES[config.objective], "RECIPE_NOTES", {}).get(config.recipe):
        progress.say(f"note: {note}")
    encoder, objective = _learners(store, config, init, device)
    if objective.needs_targets:
        store.texts(np.arange(0))  # a store without texts is refused before any old run is touched
    info = _info(store, config)
    folder = (
        None
        if run_dir is None
        else RunFolder.open(Path(run_dir), resume=resume, overwrite=overwrite)
    )
    try:
        if (
            folder is not None
            and resume
            and (done := _finished(folder, objective, config, store, progress)) is not None
        ):
            folder.forget_targets()
            return done
        run = Run(
            store,
            config,
            encoder,
            objective,
            Setting(config.seed, device, precision),
            folder,
            progress,
        )
        if folder is not None:
            run.restore() if resume else None
            folder.write(folder.config, config.to_toml())
            folder.write_json(folder.versions, versions(store.digest))
        run.train()
        run.finish()
        if folder is not None:
            with writing(
                folder.model, "the last checkpoint is whole; free space, then go on with --resume"
            ):
                save_model(folder.model, encoder, info, extra=dict(objective.state_dict()))
            folder.forget_targets()
        return PretrainResult(encoder, objective, info)
    finally:
        if folder is not None:
            folder.close()


def _settled(
    store: GraphStore,
    config: PretrainConfig | None,
    run_dir: Path | None,
    resume: bool,
    progress: Progress,
) -> PretrainConfig:
    """Return the settings with the schema of the store, which is what the encoder will see."""
    if config is None:
        if run_dir is None or not resume:
            raise ConfigError("`config` may be left out only where a run folder is resumed.")
        config = read_config(run_dir / "config.toml")
    if config.schema != store.schema.name:
        progress.say(
            f"the graphs have schema '{store.schema.name}' where the settings say '{config.schema}': taking theirs"
        )
        config = config.updated({"schema": store.schema.name})
    return config


def _learners(
    store: GraphStore, config: PretrainConfig, init: GraphEncoder | None, device: torch.device
) -> tuple[GraphEncoder, Objective[Any]]:
    kind = OBJECTIVES[config.objective]
    kind.check_schema(store.schema)
    if init is None:
        encoder = build_encoder(config.encoder, store.schema, seed_for(config.seed, "encoder"))
    else:
        _check_fits(init, config, store.schema)
        encoder = init
    with global_seed(config.seed, "objective"):
        objective: Objective[Any] = kind(kind.Config.parse(config.options, "objective."), encoder)
    return encoder.to(device).train(), objective.to(device).train()


def _check_fits(init: GraphEncoder, config: PretrainConfig, schema: FeatureSchema) -> None:
    if init.schema != schema:
        found = f"the model to start from reads schema '{init.schema.name}', the graphs have '{schema.name}'"
        raise ConfigError(f"{found}; featurize them alike.")
    ours, theirs = config.encoder.resolve_auto(schema.domain).model_dump(), init.config.model_dump()
    for key, value in ours.items():
        if theirs[key] != value:
            found = f"`encoder.{key}` is {value!r} but {theirs[key]!r} in the model to start from"
            raise ConfigError(f"{found}; set encoder.{key} = {theirs[key]!r}.")


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


def _finished(
    folder: RunFolder,
    objective: Objective[Any],
    config: PretrainConfig,
    store: GraphStore,
    progress: Progress,
) -> PretrainResult | None:
    """Return the model of a run that had ended before; a damaged one is written again from the last checkpoint."""
    if not folder.model.exists():
        return None
    try:
        model = read_model(folder.model)
    except ModelFileError as e:
        progress.say(f"{e} Writing it again from the last checkpoint.")
        return None
    check_same(model.info["settings"], config.to_tables(), model.info["data_digest"], store.digest)
    try:
        objective.prepare_state(model.extra)
        objective.load_state_dict(model.extra)
    except (RuntimeError, KeyError) as e:
        found = f"{folder.model} is of another version of graphlog ({str(e).splitlines()[0]})"
        raise ModelFileError(
            f"{found}; use it as it is, or train it again with --overwrite."
        ) from None
    progress.say(f"{folder.path} is complete already; nothing to do")
    return PretrainResult(model.encoder.eval(), objective.eval(), dict(model.info))
