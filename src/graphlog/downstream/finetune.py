"""Fine-tuning: encoder and linear head trained on labels, over several seeds, with every score."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.data.store import GraphStore
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.finetune_seed import (
    FROM_SCRATCH,
    FinetuneConfig,
    SeedJob,
    Start,
    label_weights,
    log_row,
)
from graphlog.downstream.head import FineTuned
from graphlog.downstream.metrics import better
from graphlog.downstream.models import RANDOM, statistics_note, untrained_like
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.probe import (
    check_baselines,
    describe_run,
    ecfp_rows,
    kernel_predictions,
    origin,
)
from graphlog.downstream.report import ScoreRow, make_report, score_row
from graphlog.downstream.tasks import (
    LABELING,
    LabeledGraphs,
    check_learnable,
    folds_lacking,
    open_labeled,
)
from graphlog.downstream.uncertainty import Calibration, calibration_notes
from graphlog.encoders.encoder import with_settings
from graphlog.encoders.novelty import fit_novelty
from graphlog.errors import ConfigError, DataError, out_of_range, setting, unknown_name
from graphlog.files import write_json, writing
from graphlog.inputs import InputLike
from graphlog.training.log import Callback, Callbacks, MetricsFile, Progress, Silent, as_progress
from graphlog.training.runfolder import RunFolder
from graphlog.training.trainer import Trainer, resume_advice, stop_on_signal

RULES = {"last": "last epoch", "best-valid": "best validation"}


def finetune(
    encoder: Encoder,
    source: InputLike | LabeledGraphs,
    config: FinetuneConfig | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    baselines: Sequence[str] = ("ecfp-rf", "ecfp-lr", "random"),
    run_dir: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
    callbacks: Sequence[Callback | str] = (),
    **labeling: Any,
) -> Predictor:
    """Train a copy of ``encoder`` with a linear head once a seed, and report every score.

    Args:
        encoder: Where training starts; it is not changed.
        source: Labeled input, or what :func:`~graphlog.downstream.tasks.open_labeled` returned.
        config: How to train; None is the default protocol.
        seeds: One run each: initial head, order of the graphs, dropout.
        baselines: Rows set beside the result: ``ecfp-rf``, ``ecfp-lr`` (of proteins, statistics of
            the ego-networks take their place), and ``random``, which trains an untrained encoder
            from scratch and doubles the time.
        run_dir: Where settings, log, scores, checkpoints and model go; None keeps all in memory.
        resume: Continue in ``run_dir``: finished seeds are kept, others continue at their last
            checkpoint.
        overwrite: Replace the run in ``run_dir``.
        progress: Follows the run; True shows a bar.
        callbacks: Get every row of the log; ``tensorboard``, ``wandb`` or ``mlflow`` by name.
        labeling: Passed to ``open_labeled`` (``targets``, ``task``, ``split``, ...).

    Raises:
        ConfigError: If settings contradict each other or the run folder.
        DataError: If there is nothing to learn or to choose by.
        TrainingInterrupted: After Ctrl-C; the last checkpoints are kept.
    """
    config = (config or FinetuneConfig()).resolve_precision()
    seeds = check_seeds(seeds)
    check_baselines(baselines)
    data = open_labeled(source, encoder.schema, **labeling)
    check_folds(data, config)
    folder = (
        None
        if run_dir is None
        else RunFolder.open(run_dir, "finetune", resume=resume, overwrite=overwrite)
    )
    run = _Run(encoder, data, config, seeds, folder, as_progress(progress))
    try:
        if folder is not None:
            run.describe(folder)
        with closing(Callbacks(callbacks, run_dir)) as followers:
            jobs = run.train(encoder, seeds, followers)
        predictor = run.predictor(jobs, baselines)
        if folder is not None:
            write_json(folder.path / "scores.json", predictor.report.to_dict())
            with writing(folder.model, resume_advice()):
                predictor.save(folder.model)
        return predictor
    finally:
        if folder is not None:
            folder.close()


def train_one(
    encoder: Encoder, data: LabeledGraphs, config: FinetuneConfig, seed: int
) -> tuple[FineTuned, int]:
    """Return one model, nothing reported, and the epochs it took: for scikit-learn."""
    config = config.resolve_precision()
    job = SeedJob(start_of(encoder, data, config), seed, Silent())
    with stop_on_signal() as stop:
        Trainer(job, Silent()).run(stop)
    return chosen_models([job])[0], len(job.history)


def take_labeling(settings: dict[str, Any], call: str) -> dict[str, Any]:
    """Take the options of ``open_labeled`` out of those of a call and return them.

    Raises:
        ConfigError: If what is left is no setting of :class:`FinetuneConfig`.
    """
    labeling = {key: settings.pop(key) for key in LABELING if key in settings}
    for key in settings:
        if key not in FinetuneConfig.model_fields:
            raise unknown_name(f"setting of {call}", key, [*FinetuneConfig.model_fields, *LABELING])
    return labeling


def check_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Return the seeds.

    Raises:
        ConfigError: If there is none, one is negative, or one is given twice.
    """
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise out_of_range("seeds", "different whole numbers from 0, at least one", list(seeds))
    return tuple(int(s) for s in seeds)


def check_folds(data: LabeledGraphs, config: FinetuneConfig) -> None:
    """Refuse folds on which nothing can be learned, or nothing chosen though the rule needs it.

    Raises:
        DataError: If so; names the fold.
    """
    if config.class_weight is not None and data.task == "regression":
        raise ConfigError("class weights are for classes, and the task is regression; drop them.")
    if data.weights is not None and not data.weights[data.split.train].any():
        raise DataError("all weights of the train fold are 0: nothing to learn.")
    check_learnable(data)
    lacking = folds_lacking(data.labels, data.targets, data.task, data.split).get("valid", [])
    lack = "one class only" if data.task != "regression" else "no label"
    chooses = config.select == "best-valid" or config.patience
    if chooses and len(lacking) == len(data.targets):
        advice = (
            f"drop {setting('patience')}"
            if config.patience
            else f"choose {setting('select', 'last')}"
        )
        raise DataError(
            f"every target has {lack} in the valid fold ({data.split_name} split): {advice} or "
            "choose another split."
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """What all seeds of one call share."""

    encoder: Encoder
    data: LabeledGraphs
    config: FinetuneConfig
    seeds: Sequence[int]
    folder: RunFolder | None
    bar: Progress

    def describe(self, folder: RunFolder) -> None:
        """Write settings, versions and split into the folder."""
        settings = self.config.written() | {"seeds": list(self.seeds)}
        with writing(folder.path):
            folder.checkpoints.mkdir(exist_ok=True)
            describe_run(folder, "finetune", self.data, self.encoder, settings)

    def train(
        self,
        encoder: Encoder,
        seeds: Sequence[int],
        callbacks: Callbacks | None = None,
        label: str = "",
    ) -> list[SeedJob]:
        """Train a copy of ``encoder`` on each seed; what has a label is not logged."""
        config, bar, folder = self.config, self.bar, self.folder
        start = start_of(encoder, self.data, config)
        jobs: list[SeedJob] = []
        log = None if folder is None or label else MetricsFile(folder.metrics, -1)
        size = len(self.data.split.train)
        try:
            with bar.shown(config.epochs * size * len(seeds)), stop_on_signal() as stop:
                for seed in seeds:
                    bar.stage(f"{label}seed {seed}")
                    job = SeedJob(start, seed, bar)
                    trainer = Trainer(
                        job,
                        bar,
                        checkpoints=folder and folder.checkpoints / f"{label}seed-{seed}",
                        checkpoint_every_s=config.checkpoint_every_s,
                        metrics=log,
                        callbacks=callbacks,
                    )
                    if trainer.restore():
                        epoch, batch = trainer.cursor.epoch, trainer.cursor.batch
                        bar.advance(size * epoch + min(batch * config.batch_size, size))
                    if log is not None:
                        with writing(log.path, resume_advice()):
                            for row in job.history:
                                log.write(log_row(row))
                    trainer.run(stop)
                    bar.advance(size * (config.epochs - len(job.history)))
                    jobs.append(job)
        finally:
            if log is not None:
                log.close()
        return jobs

    def predictor(self, jobs: Sequence[SeedJob], baselines: Sequence[str]) -> Predictor:
        """Return the trained models with their scores, beside those of the baselines."""
        data, config = self.data, self.config
        predictions = _fold_predictions(jobs)
        rows = _result_rows("fine-tuned", jobs, predictions)
        valid, test = (np.mean(predictions[config.select, f], axis=0) for f in ("valid", "test"))
        calibration = Calibration.fit(data.task, data.labels[data.split.valid], valid)
        judged = calibration.rows(data, test)
        train = data.store.subset(np.sort(data.split.train))
        if "random" in baselines:
            rows += self._untrained_rows(train)
        extra, notes = ecfp_rows(data, baselines, self.seeds)
        notes += [statistics_note(self.encoder)] if "random" in baselines else []
        notes += [*data.repeat_notes, *_notes(jobs), *self._kernel_note(valid)]
        chosen = "the epoch" if config.select == "best-valid" else None
        notes += calibration_notes(judged, data.split_name, chosen)
        report = make_report(data, [*rows, *extra], notes, judged)
        models = chosen_models(jobs)
        novelty = fit_novelty(models[0].network, data.labeled_train)
        info = {
            "finetuned_on": data.name,
            "seeds": list(self.seeds),
            "finetune": config.model_dump(mode="json"),
            **origin(data, self.encoder),
        }
        return Predictor(models, data.targets, report, info, calibration, novelty)

    def _kernel_note(self, valid: Float[np.ndarray, "V T"]) -> list[str]:
        """Return by how much a kernel model of the frozen encoder is better, where it is.

        The validation fold decides; the paper's protocol has no such comparison.
        """
        data, config = self.data, self.config
        if config.protocol == "paper" or not len(data.split.valid):
            return []
        encoder = self.encoder.with_readout(config.readout)
        known = replace(data, split=data.split._replace(test=data.split.test[:0]))
        kernel = kernel_predictions(encoder, known, config.layer_of(encoder))[data.split.valid]
        of_kernel, own = (
            data.evaluate(p, data.split.valid).scores[data.metric] for p in (kernel, valid)
        )
        if not better(data.metric, of_kernel, own):
            return []
        return [
            f"a kernel model of the frozen encoder is better on the validation fold, {data.metric} "
            f"{of_kernel:.4g} against {own:.4g} (fine-tuned): `probe` with `head='kernel'`"
        ]

    def _untrained_rows(self, train: GraphStore) -> list[ScoreRow]:
        encoder, jobs = self.encoder, list[SeedJob]()
        for seed in self.seeds:
            untrained = untrained_like(encoder, train, seed)
            jobs += self.train(untrained, [seed], label="untrained-")
        return _result_rows("untrained encoder, fine-tuned", jobs, _fold_predictions(jobs))


def _fold_predictions(jobs: Sequence[SeedJob]) -> dict[tuple[str, str], list[np.ndarray]]:
    """Return the predictions of each rule for validation and test fold, one array a seed."""
    states = [job.final_states() for job in jobs]
    return {
        (rule, fold): [
            job.predictions(state[rule], fold) for job, state in zip(jobs, states, strict=True)
        ]
        for rule in RULES
        for fold in ("valid", "test")
    }


def _result_rows(
    model: str, jobs: Sequence[SeedJob], predictions: Mapping[tuple[str, str], list[np.ndarray]]
) -> list[ScoreRow]:
    """Return the rows of both selection rules, of the last epochs' mean and of the ensemble.

    The rule that was asked for comes first.
    """
    data, config = jobs[0].data, jobs[0].config
    detail = {
        "best_epochs": [job.best_epoch for job in jobs],
        "epochs": config.epochs,
        "seeds": [job.seed for job in jobs],
        **({"stopped_after": [len(job.history) for job in jobs]} if config.patience else {}),
    }
    rows = [
        score_row(
            model, RULES[rule], data, predictions[rule, "test"], predictions[rule, "valid"], detail
        )
        for rule in sorted(RULES, key=lambda rule: rule != config.select)
    ]
    k = min(config.last_k, *(len(job.history) for job in jobs))
    if k > 1:
        last_test, last_valid = (
            {
                name: [float(np.mean([row[fold][name] for row in j.history[-k:]])) for j in jobs]
                for name in jobs[0].history[-1][fold]
            }
            for fold in ("test", "valid")
        )
        unknown = dict.fromkeys(data.targets, float("nan"))
        rule = f"mean of last {k} epochs"
        rows.append(ScoreRow(model, rule, last_test, last_valid, unknown, detail=dict(detail)))
    if len(jobs) > 1:
        of_test, of_valid = (
            [np.mean(predictions[config.select, fold], axis=0)] for fold in ("test", "valid")
        )
        ensemble = f"{model}, mean of {len(jobs)} seeds"
        rows.append(score_row(ensemble, RULES[config.select], data, of_test, of_valid, detail))
    return rows


def chosen_models(jobs: Sequence[SeedJob]) -> list[FineTuned]:
    """Return each seed's model under the rule asked for, on the CPU.

    With ``freeze`` all share one encoder.
    """
    models: list[FineTuned] = []
    for job in jobs:
        job.model.load_state_dict(job.final_states()[job.config.select])
        network = models[0].network if models and job.config.freeze else job.model.network
        models.append(FineTuned(network, job.model.head, job.model.layer).cpu().eval())
    return models


def _notes(jobs: Sequence[SeedJob]) -> list[str]:
    notes = [] if len(jobs) > 1 else ["one seed: no spread is known"]
    if jobs[0].config.class_weight is not None or jobs[0].data.weights is not None:
        notes.append("weights count in fine-tuning only, neither in scores nor in fingerprint rows")
    if any(not job.best_epoch for job in jobs):
        notes.append(
            "no target has both classes in the valid fold: `best validation` is the last epoch"
        )
    return notes


def run_digest(encoder: Encoder, data: LabeledGraphs, config: FinetuneConfig) -> str:
    """Return a hash of everything a seed's weights depend on."""
    sha = hashlib.sha256()
    for name, tensor in sorted(encoder.network.state_dict().items()):
        sha.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    sha.update(np.ascontiguousarray(data.labels).tobytes() + data.store.digest.encode())
    for indices in data.split:
        sha.update(np.asarray(indices, dtype=np.int64).tobytes() + b"|")
    if data.weights is not None:
        sha.update(b"weights" + np.ascontiguousarray(data.weights).tobytes())
    ours = config.model_dump(
        exclude={"select", "last_k", "device", "checkpoint_every_s", "readout"}
    )
    if encoder.config.readout != "mean":
        sha.update(encoder.config.readout.encode())
    sha.update(
        json.dumps(
            [ours, config.layer_of(encoder), data.task, data.metric], sort_keys=True
        ).encode()
    )
    return sha.hexdigest()


def start_of(encoder: Encoder, data: LabeledGraphs, config: FinetuneConfig) -> Start:
    """Return what all seeds begin with; an untrained encoder is trained from scratch."""
    if encoder.info.get("name") == RANDOM:
        config = config.updated(FROM_SCRATCH)
    encoder = encoder.with_readout(config.readout)
    network = with_settings(encoder.network, dropout=0.0)
    encoder = Encoder(network, encoder.layer, encoder.info).moved(config.device)
    embeddings = None
    if config.freeze or config.probe_first:
        graphs = data.store if config.freeze else data.store.subset(data.split.train)
        embeddings = encoder.embed_store(graphs, config.layer_of(encoder))
    digest = run_digest(encoder, data, config)
    return Start(encoder, data, config, embeddings, digest, label_weights(data, config))
