"""Search for settings of fine-tuning with Optuna, by the score on the validation set."""

import math
import sqlite3
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch

from graphlog.config import read_toml
from graphlog.data.split import Split
from graphlog.domains import Input
from graphlog.downstream.finetune import (
    FinetuneConfig,
    SeedJob,
    check_finetuning,
    common_start,
    data_of_seeds,
    finetune,
    pop_labeling,
    run_digest,
)
from graphlog.downstream.metrics import IN_PERCENT, LOWER_IS_BETTER
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.pretrained import RANDOM, Encoder
from graphlog.downstream.probe import check_baselines, opened
from graphlog.downstream.report import json_ready
from graphlog.downstream.tasks import LabeledGraphs, labeled
from graphlog.errors import (
    ConfigError,
    GraphLoGError,
    NonFiniteLossError,
    TrainingInterrupted,
    check_seeds,
    first_line,
    optional,
    setting,
)
from graphlog.files import folder_kind, hash_json, write_json, write_text, writing
from graphlog.inputs import InputLike, remember_input
from graphlog.training.log import Progress, as_progress
from graphlog.training.runfolder import RunFolder, check_usable
from graphlog.training.trainer import Cursor, Trainer, stop_on_signal

STUDY, BEST, RUN = "study.db", "best.toml", "best"
"""Names in the folder of a search: Optuna's study, the best settings, the run with these."""
_KIND = "search"
_FILES = (STUDY, f"{STUDY}-journal", BEST, "trials.json")
"""Files that are removed before a search is replaced; the final run replaces ``best`` itself."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination of settings that was tried."""

    number: int
    """Number among the finished trials, from 0; trial 0 has the default settings."""
    state: str
    """``complete``, ``pruned`` (stopped early, because others were better) or ``fail``."""
    score: float
    """Score on the validation set; NaN if there is none."""
    epochs: int
    """Number of epochs trained."""
    settings: Mapping[str, Any]
    """Values of the settings that are searched."""


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The result of a search."""

    folder: Path
    """Folder of the search."""
    metric: str
    """Name of the score. If there are several targets, errors are divided by the standard deviation
    of the training labels of each."""
    trials: tuple[Trial, ...]
    """All trials, the best complete one first."""
    predictor: Predictor
    """Model fine-tuned with the best settings on all seeds; its report has the test scores."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        trials = [json_ready(asdict(trial)) for trial in self.trials]
        best = {"settings": str(self.folder / BEST), "run": str(self.folder / RUN)}
        report = self.predictor.report.to_dict()
        return {"metric": self.metric, "trials": trials, **best, "report": report}


@torch.inference_mode(mode=False)  # as for `finetune`
def tune(
    encoder: str | Path | Encoder,
    dataset: InputLike | LabeledGraphs,
    out: str | Path,
    *,
    trials: int = 30,
    split: Any = None,
    targets: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    baselines: Sequence[str] = ("ecfp-rf", "ecfp-lr"),
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> Tuned:
    """Search for settings of fine-tuning, then fine-tune with the best ones.

    A trial trains with one seed and is scored on the validation set; it is pruned when its scores
    are worse than the median of earlier trials. The test set is used only once, after fine-tuning
    with the best settings on all seeds. ``out`` holds ``study.db`` (Optuna's, in SQLite),
    ``trials.json``, ``best.toml`` (for ``graphlog finetune --config``) and the run folder ``best``.

    Args:
        encoder: As for :func:`graphlog.finetune`.
        dataset: As for :func:`graphlog.finetune`.
        out: Folder to write.
        trials: Total number of trials, including those of an interrupted search.
        split: As for :func:`graphlog.finetune`.
        targets: As for :func:`graphlog.finetune`.
        seeds: Seeds of the final run; trials use the first one.
        baselines: Baselines of the final run.
        resume: Whether to continue the search in ``out``, after Ctrl-C or a crash.
        overwrite: Whether to replace the search in ``out``.
        progress: Progress display, updated after every trial; True prints to standard error.
        settings: Settings of :class:`~graphlog.downstream.finetune.FinetuneConfig`, which are
            then not searched, and options of ``open_labeled``.

    Raises:
        MissingExtraError: If Optuna is not installed.
        ConfigError: If the folder is in use, or holds a search with other settings or data.
    """
    with optional("optuna", "tune"):
        import optuna  # pyright: ignore[reportMissingImports]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    bar, folder = as_progress(progress), Path(out)
    check_usable(folder, _KIND, resume, overwrite)
    seeds = check_seeds("seeds", seeds)
    check_baselines(baselines)
    labeling = pop_labeling(settings, "tune")
    fixed = FinetuneConfig.parse(settings).resolve_precision(bar.say)
    model, source = opened(encoder, dataset, fixed.device)
    fixed = fixed.for_encoder(model)
    labeling |= {"split": split, "targets": targets}
    data = labeled(source, model.schema, **labeling)
    check_finetuning(data, fixed.updated({"select": "best-valid"}))  # trials need a validation set
    data_of_seeds(data, fixed, seeds)  # an error now is better than one after the search
    no_rows = np.empty(0, dtype=np.int64)
    without_test = replace(data, split=Split(data.split.train, data.split.valid, no_rows))
    digest = hash_json(
        [run_digest(model, without_test, fixed), fixed.select, seeds[0], sorted(settings)]
    )
    # with `overwrite` too, the folder is opened as it is; the files of the search are removed below
    run = closing(RunFolder.open(folder, _KIND, resume=resume or overwrite))
    with run, _study_errors(folder / STUDY):
        with writing(folder):
            for name in _FILES if overwrite else ():
                (folder / name).unlink(missing_ok=True)
            study = _open_study(optuna, folder, data.criterion, digest)
        ranges, defaults = _ranges(optuna.distributions, model, fixed, settings)
        states = optuna.trial.TrialState
        with stop_on_signal() as stop:
            while (done := len(_finished(study))) < trials:
                if not done and not any(t.state.name == "WAITING" for t in study.trials):
                    study.enqueue_trial(defaults)
                # after an interruption, the seed is the same, so that the trial is repeated
                seed = (10_007 * seeds[0] + done) % 2**32
                study.sampler = optuna.samplers.TPESampler(seed=seed)
                trial = study.ask(ranges)
                values = ", ".join(f"{k} {v:.3g}" for k, v in trial.params.items())
                bar.say(f"trial {done}, {done} of {trials} done: {values}")
                score, state = None, states.FAIL  # a failed trial without "error" is not counted
                try:
                    start = common_start(model, without_test, fixed.updated(trial.params))
                    job = _TrialJob(start, seeds[0], Progress())
                    job.trial = trial
                    Trainer(job).run(stop)
                    if math.isnan(job.score):
                        raise NonFiniteLossError(f"the validation {data.criterion} is not defined")
                    trial.set_user_attr("epochs", len(job.history))
                    ended = "pruned at" if job.is_pruned else "valid"
                    is_percent = data.criterion in IN_PERCENT  # as the report shows it
                    shown = f"{100 * job.score:.2f} %" if is_percent else f"{job.score:.4f}"
                    bar.say(f"  {ended} {data.criterion} {shown}")
                    score, state = job.score, states.COMPLETE
                    if job.is_pruned:
                        score, state = None, states.PRUNED
                except NonFiniteLossError as e:
                    bar.say(f"  failed: {e}")
                    trial.set_user_attr("error", str(e))
                except TrainingInterrupted:
                    message = f"stopped in trial {done}; continue with {setting('resume', True)}."
                    raise TrainingInterrupted(message) from None
                finally:
                    study.tell(trial, score, state)
        ranked = _ranked(study, data.criterion)
        best = fixed.updated(ranked[0].settings)
        write_text(folder / BEST, tomli_w.dumps({"finetune": best.written()}))
        write_json(folder / "trials.json", [json_ready(asdict(trial)) for trial in ranked])
        exists = folder_kind(folder / RUN) == "finetune"
        replaces = exists and (overwrite or not _has_settings(folder / RUN, best))
        bar.say(f"fine-tuning with the settings of trial {ranked[0].number}")
        if len(ranked) > 1:
            effect = "intervals" if data.task == "regression" else "probabilities"
            note = (
                f"the validation set chose these settings, the best of {len(ranked)} trials: its "
                f"scores are too good, and {effect} that are fitted to it may be too sure"
            )
            data = replace(data, notes=(*data.notes, note))
        predictor = finetune(
            model,
            data,
            config=best,
            seeds=seeds,
            baselines=baselines,
            run_dir=folder / RUN,
            overwrite=replaces,
            resume=exists and not replaces,
            progress=bar,
        )
        if isinstance(source, Input):
            remember_input(folder / RUN, source, **labeling)
        return Tuned(folder, data.criterion, tuple(ranked), predictor)


class _TrialJob(SeedJob):
    """Training of one seed that reports its scores to a trial, and stops if that is pruned."""

    trial: Any
    is_pruned: bool = False

    def row(self, means: dict[str, float], cursor: Cursor) -> dict[str, Any]:
        """Return the log row of an epoch, and report the validation score to the trial."""
        row = super().row(means, cursor)
        score = self.valid_score(cursor.epoch + 1)
        if math.isfinite(score):
            self.trial.report(score, cursor.epoch + 1)
            self.is_pruned = bool(self.trial.should_prune())
        return row

    def ends_early(self) -> bool:
        """Return whether the trial is pruned, or the validation score no longer improves."""
        return self.is_pruned or super().ends_early()

    @property
    def score(self) -> float:
        """Validation score of the epoch whose weights are used: the last or the best one."""
        is_best = self.config.select == "best-valid"
        return self.valid_score(self.best_epoch if is_best else len(self.history))


@contextmanager
def _study_errors(study: Path, reading: bool = False) -> Generator[None]:
    """Turn errors of the database of a study into one-line errors that name its file.

    If the block only reads the study, all its errors are of the database.
    """
    from optuna.exceptions import StorageInternalError  # pyright: ignore[reportMissingImports]
    from sqlalchemy.exc import DBAPIError  # pyright: ignore[reportMissingImports]

    errors = (Exception,) if reading else (DBAPIError, StorageInternalError)
    try:
        yield
    except errors as e:
        reason = first_line(getattr(e, "orig", None) or e)
        raise GraphLoGError(
            f"{study}: {reason}; if the disk is full, free space and continue with "
            f"{setting('resume', True)}, else replace the search with {setting('overwrite', True)}."
        ) from None


def _open_study(optuna: Any, folder: Path, metric: str, digest: str) -> Any:
    """Return the study in a folder, or a new one; raise ConfigError if its digest is another."""
    from sqlalchemy.pool import NullPool  # pyright: ignore[reportMissingImports]

    # a function that connects, because % and ? have a special meaning in the URL of a database
    connect = partial(sqlite3.connect, (folder / STUDY).absolute())
    engine = {"creator": connect, "poolclass": NullPool}
    with _study_errors(folder / STUDY, reading=True):
        study = optuna.create_study(
            storage=optuna.storages.RDBStorage("sqlite://", engine_kwargs=engine),
            study_name="finetune",
            direction="minimize" if metric in LOWER_IS_BETTER else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=3),
            load_if_exists=True,
        )
        stored = study.user_attrs.get("digest", None if study.trials else digest)
    if stored != digest:
        raise ConfigError(
            f"{folder} holds a search of other settings, model or data; give the same "
            f"ones to resume it, or replace it with {setting('overwrite', True)}.",
            option="overwrite",
        )
    study.set_user_attr("digest", digest)
    return study


def _ranges(
    distributions: Any, encoder: Encoder, fixed: FinetuneConfig, given: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the range of each setting that is searched, and their defaults inside the ranges."""
    ranges = {
        "learning_rate": distributions.FloatDistribution(1e-4, 1e-2, log=True),
        "encoder_rate": distributions.FloatDistribution(1e-5, 1e-3, log=True),
        "epochs": distributions.CategoricalDistribution((10, 30, 60, 100)),
        "dropout": distributions.FloatDistribution(0.0, 0.5),
        "weight_decay": distributions.FloatDistribution(1e-6, 1e-1, log=True),
        "hidden": distributions.CategoricalDistribution((0, 128, 512)),
    }
    excluded = set(given)
    if fixed.freeze:
        excluded |= {"encoder_rate"}
    if encoder.info.get("name") == RANDOM:  # an untrained encoder keeps its default rate
        excluded |= {"encoder_rate"}
    searched = {name: values for name, values in ranges.items() if name not in excluded}
    # `written` replaces an encoder rate of None by the learning rate of the head
    defaults = {**fixed.written(), "dropout": min(fixed.dropout, 0.5), "weight_decay": 1e-6}

    def is_inside(name: str, values: Any) -> bool:
        if hasattr(values, "choices"):
            return defaults[name] in values.choices
        return values.low <= defaults[name] <= values.high

    inside = [name for name, values in searched.items() if is_inside(name, values)]
    return searched, {name: defaults[name] for name in inside}


def _finished(study: Any) -> list[Any]:
    """Return the trials of a study in order, without those that were interrupted."""

    def is_finished(trial: Any) -> bool:
        state = trial.state.name
        return state in ("COMPLETE", "PRUNED") or (state == "FAIL" and "error" in trial.user_attrs)

    return [trial for trial in study.trials if is_finished(trial)]


def _ranked(study: Any, metric: str) -> list[Trial]:
    """Return all finished trials, the best complete one first; raise ConfigError without one."""
    sign = 1 if metric in LOWER_IS_BETTER else -1
    ranked = [
        Trial(
            number=number,  # Optuna also numbers interrupted trials
            state=t.state.name.lower(),
            score=math.nan if t.value is None else t.value,
            epochs=t.user_attrs.get("epochs", 0),
            settings=dict(t.params),
        )
        for number, t in enumerate(_finished(study))
    ]
    ranked.sort(key=lambda t: sign * t.score if t.state == "complete" else math.inf)
    if not ranked or ranked[0].state != "complete":
        raise ConfigError(
            "no trial was completed, so there are no best settings; look at the messages above "
            f"and allow more with {setting('trials')}.",
            option="trials",
        )
    return ranked


def _has_settings(run: Path, config: FinetuneConfig) -> bool:
    """Return whether a run folder has a settings file with these settings."""
    if not (run / "config.toml").is_file():
        return False
    stored = read_toml(run / "config.toml").get("finetune")
    settings = stored.items() if isinstance(stored, dict) else ()
    return {key: value for key, value in settings if key != "seeds"} == config.written()
