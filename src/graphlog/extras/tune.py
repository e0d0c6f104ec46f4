"""Settings of fine-tuning searched with Optuna, judged by the validation set alone."""

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

from graphlog.config import read_toml
from graphlog.data.split import Split
from graphlog.domains import Input
from graphlog.downstream.finetune import (
    FinetuneConfig,
    SeedJob,
    check_folds,
    finetune,
    run_digest,
    start_of,
    take_labeling,
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
_KIND = "search"
_FILES = (STUDY, f"{STUDY}-journal", BEST, "trials.json")
"""Files of a search; the run beside them is replaced when its time comes."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting that was tried."""

    number: int
    """Which, from 0: the default settings."""
    state: str
    """``complete``, ``pruned`` (stopped early, for others were better) or ``fail``."""
    score: float
    """On the validation set; NaN if there is none."""
    epochs: int
    """Epochs that were trained."""
    settings: Mapping[str, Any]
    """What differed between trials."""


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The outcome of a search."""

    folder: Path
    """Where it is kept."""
    metric: str
    """The score of the trials; of several quantities in deviations of the training labels."""
    trials: tuple[Trial, ...]
    """All trials, the best complete one first."""
    predictor: Predictor
    """Fine-tuned with the best settings on all seeds; its report has the test set."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        trials = [json_ready(asdict(trial)) for trial in self.trials]
        best = {"settings": str(self.folder / BEST), "run": str(self.folder / RUN)}
        report = self.predictor.report.to_dict()
        return {"metric": self.metric, "trials": trials, **best, "report": report}


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
    """Search for settings of fine-tuning; fine-tune with the best of them.

    A trial trains with one seed and is scored on the validation set; it is pruned when its scores
    fall behind the median of earlier trials. The test set is used once, when the best
    settings are fine-tuned on all seeds. ``out`` holds ``study.db`` (Optuna's, in SQLite),
    ``trials.json``, ``best.toml`` (for ``graphlog finetune --config``) and the run folder ``best``.

    Args:
        encoder: As for :func:`graphlog.finetune`.
        dataset: As for :func:`graphlog.finetune`.
        out: Folder to write.
        trials: Trials in all, those of an interrupted search included.
        split: As for :func:`graphlog.finetune`.
        targets: As for :func:`graphlog.finetune`.
        seeds: Of the final run; trials use the first.
        baselines: Of the final run.
        resume: Continue the search in ``out``, after Ctrl-C or a kill.
        overwrite: Replace the search in ``out``.
        progress: Told of every trial; True prints.
        settings: Settings of :class:`~graphlog.downstream.finetune.FinetuneConfig`, which are
            then not searched, and options of ``open_labeled``.

    Raises:
        MissingExtraError: If Optuna is not installed.
        ConfigError: If the folder is in use, or the search in it is of other settings or data.
    """
    with optional("optuna", "tune"):
        import optuna  # pyright: ignore[reportMissingImports]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    bar, folder = as_progress(progress), Path(out)
    check_usable(folder, _KIND, resume, overwrite)
    seeds = check_seeds("seeds", seeds)
    check_baselines(baselines)
    labeling = take_labeling(settings, "tune")
    fixed = FinetuneConfig.parse(settings).resolve_precision(bar.say)
    model, source = opened(encoder, dataset, fixed.device)
    fixed = fixed.suited_to(model)
    labeling |= {"split": split, "targets": targets}
    data = labeled(source, model.schema, **labeling)
    check_folds(data, fixed.updated({"select": "best-valid"}))  # trials are judged by it
    nothing = np.empty(0, dtype=np.int64)
    hidden = replace(data, split=Split(data.split.train, data.split.valid, nothing))
    what = [run_digest(model, hidden, fixed), fixed.select, seeds[0], sorted(settings)]
    # emptied below: a search has files of other names than a run
    run = closing(RunFolder.open(folder, _KIND, resume=resume or overwrite))
    with run, _stored(folder / STUDY):
        with writing(folder):
            for name in _FILES if overwrite else ():
                (folder / name).unlink(missing_ok=True)
            study = _opened(optuna, folder, data.criterion, what)
        ranges, usual = _ranges(optuna.distributions, model, fixed, settings)
        states = optuna.trial.TrialState
        with stop_on_signal() as stop:
            while (done := len(_finished(study, folder))) < trials:
                if not done and not any(t.state.name == "WAITING" for t in study.trials):
                    study.enqueue_trial(usual)
                # seeded by what is done: a trial that was killed is drawn again as it was
                seed = (10_007 * seeds[0] + done) % 2**32
                study.sampler = optuna.samplers.TPESampler(seed=seed)
                trial = study.ask(ranges)
                which = f"trial {trial.number}"
                values = ", ".join(f"{k} {v:.3g}" for k, v in trial.params.items())
                bar.say(f"{which}, {done} of {trials} done: {values}")
                score, state = None, states.FAIL  # without an error it does not count
                try:
                    start = start_of(model, hidden, fixed.updated(trial.params))
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
                    message = f"stopped in {which}; continue with {setting('resume', True)}."
                    raise TrainingInterrupted(message) from None
                finally:
                    told = _digest(study, trial.params, score, state.name)
                    trial.set_user_attr("told", told)
                    study.tell(trial, score, state)
        tried = _ranked(study, folder, data.criterion)
        best = fixed.updated(tried[0].settings)
        write_text(folder / BEST, tomli_w.dumps({"finetune": best.written()}))
        write_json(folder / "trials.json", [json_ready(asdict(trial)) for trial in tried])
        again = folder_kind(folder / RUN) == "finetune"
        bar.say(f"fine-tuning with the settings of trial {tried[0].number}")
        how: dict[str, Any] = {"seeds": seeds, "baselines": baselines, "progress": bar}
        replaced = again and (overwrite or not _same(folder / RUN, best))
        how |= {"run_dir": folder / RUN, "overwrite": replaced, "resume": again and not replaced}
        if len(tried) > 1:
            effect = "intervals" if data.task == "regression" else "probabilities"
            note = (
                f"the validation set chose these settings, the best of {len(tried)} trials: its "
                f"scores are too good, and {effect} that are fitted to it may be too sure"
            )
            data = replace(data, notes=(*data.notes, note))
        predictor = finetune(model, data, config=best, **how)
        if isinstance(source, Input):
            remember_input(folder / RUN, source, **labeling)
        return Tuned(folder, data.criterion, tuple(tried), predictor)


class _TrialJob(SeedJob):
    """A seed that tells a trial its validation scores, and ends when the trial is pruned."""

    trial: Any
    is_pruned: bool = False

    def row(self, means: dict[str, float], cursor: Cursor) -> dict[str, Any]:
        """Report the score of the epoch."""
        row = super().row(means, cursor)
        score = self.valid_score(cursor.epoch + 1)
        if math.isfinite(score):
            self.trial.report(score, cursor.epoch + 1)
            self.is_pruned = bool(self.trial.should_prune())
        return row

    def ends_early(self) -> bool:
        """Return whether the trial is pruned, or validation no longer improves."""
        return self.is_pruned or super().ends_early()

    @property
    def score(self) -> float:
        """Validation score of the epoch whose weights would be kept."""
        is_best = self.config.select == "best-valid"
        return self.valid_score(self.best_epoch if is_best else len(self.history))


@contextmanager
def _stored(study: Path, reading: bool = False) -> Generator[None]:
    """Say in one line what is wrong with the file of a study, or with its disk.

    Args:
        study: The file.
        reading: Whether nothing but the file can be the reason of any other error.
    """
    from optuna.exceptions import StorageInternalError  # pyright: ignore[reportMissingImports]
    from sqlalchemy.exc import DBAPIError  # pyright: ignore[reportMissingImports]

    try:
        yield
    except (DBAPIError, StorageInternalError) as e:
        reason = first_line(getattr(e, "orig", None) or e)
        raise GraphLoGError(
            f"{study}: {reason}; if the disk is full, free space and continue with "
            f"{setting('resume', True)}, else replace the search with {setting('overwrite', True)}."
        ) from None
    except GraphLoGError:
        raise
    except Exception as e:
        if not reading:
            raise
        raise _changed(study, f"{type(e).__name__}: {first_line(e)}") from None


def _changed(study: Path, what: str) -> GraphLoGError:
    """Return the error for a study that was not written by this package, or not as it is."""
    return GraphLoGError(
        f"{study} was changed after it was written, or by another version of Optuna ({what}); "
        f"replace the search with {setting('overwrite', True)}."
    )


def _opened(optuna: Any, folder: Path, metric: str, what: Sequence[object]) -> Any:
    """Return the study in a folder, new or continued, if it is a search of ``what``."""
    from sqlalchemy.pool import NullPool  # pyright: ignore[reportMissingImports]

    # not by a URL, in which a % or ? of the path would mean something else
    connect = partial(sqlite3.connect, (folder / STUDY).absolute())
    engine = {"creator": connect, "poolclass": NullPool}
    digest = hash_json(what)
    with _stored(folder / STUDY, reading=True):
        study = optuna.create_study(
            storage=optuna.storages.RDBStorage("sqlite://", engine_kwargs=engine),
            study_name="finetune",
            direction="minimize" if metric in LOWER_IS_BETTER else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=3),
            load_if_exists=True,
        )
        kept = study.user_attrs.get("digest", None if study.trials else digest)
    if kept != digest:
        raise ConfigError(
            f"{folder} holds a search of other settings, model or data; give the same "
            f"ones to resume it, or replace it with {setting('overwrite', True)}.",
            option="overwrite",
        )
    study.set_user_attr("digest", digest)
    return study


def _ranges(
    kinds: Any, encoder: Encoder, fixed: FinetuneConfig, given: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the range of each setting that is searched, and the usual values of these."""
    ranges = {
        "learning_rate": kinds.FloatDistribution(1e-4, 1e-2, log=True),
        "encoder_rate": kinds.FloatDistribution(1e-5, 1e-3, log=True),
        "epochs": kinds.CategoricalDistribution((10, 30, 60, 100)),
        "dropout": kinds.FloatDistribution(0.0, 0.5),
        "weight_decay": kinds.FloatDistribution(1e-6, 1e-1, log=True),
        "hidden": kinds.CategoricalDistribution((0, 128, 512)),
    }
    idle = set(given)
    if fixed.freeze:
        idle |= {"encoder_rate", "dropout"}
    if encoder.info.get("name") == RANDOM:  # it is trained from scratch in any case
        idle |= {"encoder_rate"}
    searched = {name: kind for name, kind in ranges.items() if name not in idle}
    # an encoder without a rate of its own has that of the head
    usual = {**fixed.written(), "dropout": min(fixed.dropout, 0.5), "weight_decay": 1e-6}

    def is_within(name: str, kind: Any) -> bool:
        is_choice = hasattr(kind, "choices")
        return usual[name] in kind.choices if is_choice else kind.low <= usual[name] <= kind.high

    return searched, {name: usual[name] for name, kind in searched.items() if is_within(name, kind)}


def _finished(study: Any, folder: Path) -> list[Any]:
    """Return the trials that count; one that was interrupted does not."""

    def counts(trial: Any) -> bool:
        state = trial.state.name
        return state in ("COMPLETE", "PRUNED") or (state == "FAIL" and "error" in trial.user_attrs)

    with _stored(folder / STUDY, reading=True):
        found = [trial for trial in study.trials if counts(trial)]
        told = [_digest(study, t.params, t.value, t.state.name) for t in found]
    for trial, digest in zip(found, told, strict=True):
        if trial.user_attrs.get("told") != digest:
            raise _changed(folder / STUDY, f"trial {trial.number}")
    return found


def _digest(study: Any, params: Mapping[str, Any], score: float | None, state: str) -> str:
    """Return the hash of a finished trial; that of a pruned one is without Optuna's score."""
    kept = score if state == "COMPLETE" else None
    return hash_json([study.direction.name, params, kept, state])


def _ranked(study: Any, folder: Path, metric: str) -> list[Trial]:
    """Return all finished trials, the best complete one first."""
    sign = 1 if metric in LOWER_IS_BETTER else -1
    found = [
        Trial(
            number=t.number,
            state=t.state.name.lower(),
            score=math.nan if t.value is None else t.value,
            epochs=t.user_attrs.get("epochs", 0),
            settings=dict(t.params),
        )
        for t in _finished(study, folder)
    ]
    found.sort(key=lambda t: sign * t.score if t.state == "complete" else math.inf)
    if not found or found[0].state != "complete":
        raise ConfigError(
            "no trial was completed, so there are no best settings; look at the messages above "
            f"and allow more with {setting('trials')}.",
            option="trials",
        )
    return found


def _same(run: Path, config: FinetuneConfig) -> bool:
    """Return whether a run folder is of these settings; one that was only begun is of none."""
    if not (run / "config.toml").is_file():
        return False
    before = read_toml(run / "config.toml").get("finetune")
    settings = before.items() if isinstance(before, dict) else ()
    return {key: value for key, value in settings if key != "seeds"} == config.written()
