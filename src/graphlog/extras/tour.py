"""The quickstart: pre-train, compare, fine-tune, embed and draw, on bundled molecules."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphlog import api
from graphlog.data.store import sample_rows
from graphlog.downstream.finetune import finetune
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.pretrained import Encoder
from graphlog.downstream.probe import EMBEDDING, probe
from graphlog.downstream.report import Model, Report, Rule, ScoreRow
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.errors import MissingExtraError, check_seed
from graphlog.files import mark_folder, write_json, writing
from graphlog.report.prototypes import write_prototypes
from graphlog.training.log import Progress
from graphlog.training.runfolder import check_usable

PRETRAINING_SET = "wehi10k"
QUESTIONS = {
    "solubility-adme": "solubility at pH 6.8, log10 ug/mL (Fang et al., 2023; MIT license)",
    "chembl2321810": "activity in one medicinal chemistry series",
}
"""Labeled data sets, split by scaffold, and what is predicted in them."""
SHIPPED_MODEL = "graphlog-mol"
SMALL_ENCODER = {"dim": 64, "layers": 3}
KEPT, TUNED = QUESTIONS
"""The data set whose probe is kept as a predictor, and the data set for fine-tuning."""
FINETUNE_EPOCHS = 4

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TourScore:
    """One row of the table of scores that is printed at the end."""

    dataset: str
    model: str
    how: str
    rmse: float
    r2: float
    kept: bool = False
    """Whether the model was kept, because it is the best on the validation set."""


@dataclass(frozen=True, slots=True)
class Tour:
    """The results of the tour."""

    questions: dict[str, str]
    """Labeled data sets and what is predicted in them."""
    scores: list[TourScore]
    certainty: dict[str, Any]
    """Accuracy of the intervals and predicted standard deviations of the kept model."""
    written: dict[str, str]
    """Descriptions of the files written, by path."""
    next_steps: list[str]
    """Command lines to try next."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return asdict(self)


def run_quickstart(
    out: str | Path = "graphlog-quickstart",
    *,
    molecules: int = 4000,
    epochs: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
    say: Say = lambda _: None,
) -> Tour:
    """Run the tour and write all results to ``out``; an earlier tour there is replaced.

    Args:
        out: Folder for models, scores, embeddings and figures.
        molecules: Number of molecules for pre-training.
        epochs: Epochs of pre-training.
        seed: Random seed.
        progress: Progress display of training.
        say: Function that is called with each message.

    Raises:
        ConfigError: If ``out`` holds anything other than an earlier tour.
    """
    started, out, seed = time.monotonic(), Path(out), check_seed("seed", seed)
    check_usable(out, "tour", resume=None, overwrite=True)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        mark_folder(out, "tour")
    say(f"1/4  pre-train a small encoder on {molecules:,} molecules ({PRETRAINING_SET}), no labels")
    small = api.pretrain(
        PRETRAINING_SET,
        seed=seed,
        run_dir=out / "pretrain",
        overwrite=True,
        progress=progress,
        epochs=epochs,
        batch_size=64,
        watch_every=10,
        encoder=SMALL_ENCODER,
        reading={"limit": molecules},
    )
    shipped = api.load(SHIPPED_MODEL)
    say(f"2/4  fit models to embeddings (small encoder, {SHIPPED_MODEL}) and to fingerprints")
    labeled = {name: open_labeled(name, shipped.schema) for name in QUESTIONS}
    scores: list[TourScore] = []
    kept: dict[str, Any] = {"run_dir": out / "probe", "overwrite": True}
    reports: dict[str, Report] = {}
    for name, data in labeled.items():
        how: dict[str, Any] = {"head": "auto", "with_features": ["descriptors"]}
        how |= {"baseline_seeds": [seed], **(kept if name == KEPT else {})}
        reports[name] = report = probe(shipped, data, **how)
        rows = [(row, "small encoder") for row in probe(small, data, baselines=()).rows]
        rows += [(row, row.model.replace(EMBEDDING, SHIPPED_MODEL)) for row in report.rows]
        scores.append(_mean_row(data))
        for row, model in rows:
            # linear models with the fixed penalty are left out: they hardly differ from the others
            if row.key is None or (row.key.model, row.key.rule) == (Model.LINEAR, Rule.FIXED):
                continue
            head = "kernel model" if row.key.model is Model.KERNEL else "linear model"
            scores.append(_score(name, row, model, head, name == KEPT and row is report.rows[0]))
    data = labeled[TUNED]
    say(f"3/4  fine-tune {SHIPPED_MODEL} on {TUNED}: {data.sizes['train']} molecules")
    how = {"run_dir": out / "finetune", "overwrite": True, "progress": progress}
    predictor = finetune(shipped, data, epochs=FINETUNE_EPOCHS, seeds=[seed], baselines=(), **how)
    scores.append(_score(TUNED, predictor.report.rows[0], SHIPPED_MODEL, "fine-tuned"))
    scores.sort(key=lambda s: (list(QUESTIONS).index(s.dataset), -s.rmse))
    say("4/4  predict and embed molecules, place them in the tree of prototypes, and draw")
    api.predict_file(out / "probe", TUNED, out / "predictions.csv", interval=0.9)
    api.embed_file(shipped, KEPT, out / "embeddings.npz")
    write_prototypes(SHIPPED_MODEL, out / "tree", KEPT, seed=seed)
    written = {
        str(out / "pretrain"): "the small model, its settings and log",
        str(out / "probe"): f"the model of {KEPT} that was kept (*), and all scores",
        str(out / "finetune"): f"{SHIPPED_MODEL} fine-tuned on {TUNED}, and its scores",
        str(out / "predictions.csv"): (
            f"predictions of {out / 'probe'} for {TUNED}, with intervals and novelty"
        ),
        str(out / "embeddings.npz"): f"one vector for each molecule of {KEPT}",
        str(out / "tree" / "atlas.html"): (
            f"{KEPT} in the tree of prototypes of {SHIPPED_MODEL}, to explore in a browser"
        ),
        **draw(out / "figures", shipped, labeled[KEPT], say),
    }
    next_steps = [
        f"graphlog predict your.csv -m {out / 'probe'} -o predictions.csv",
        f"graphlog probe your.csv -m {SHIPPED_MODEL} --targets COLUMN --head auto "
        "--with descriptors -o run",
        f"graphlog embed your.csv -m {SHIPPED_MODEL} -o embeddings.npz",
        f"graphlog finetune your.csv -m {SHIPPED_MODEL} --targets COLUMN -o run",
        "graphlog pretrain your.smi -o run        # an encoder for your own molecules",
    ]
    (certainty,) = reports[KEPT].calibration
    seconds = time.monotonic() - started
    tour = Tour(QUESTIONS, scores, certainty, written, next_steps, seconds)
    write_json(out / "quickstart.json", tour.to_dict())
    say(f"done in {tour.seconds:.0f} s")
    return tour


def _mean_row(data: LabeledGraphs) -> TourScore:
    """Return the scores of a constant prediction, the mean of the training set."""
    test = data.labels[data.split.test]
    constant = np.broadcast_to(np.nanmean(data.labels[data.split.train], axis=0), test.shape)
    scores = evaluate(test, constant, data.task).scores
    return TourScore(data.name, "mean of the training set", "", scores["rmse"], scores["r2"])


def _score(dataset: str, row: ScoreRow, model: str, how: str, kept: bool = False) -> TourScore:
    return TourScore(dataset, model, how, row.mean("rmse"), row.mean("r2"), kept)


def draw(out: Path, encoder: Encoder, data: LabeledGraphs, say: Say) -> dict[str, str]:
    """Draw the figures and return their contents by path; none if matplotlib is not installed."""
    try:
        from graphlog.report.drawings import draw_map
        from graphlog.report.run import draw_log
    except MissingExtraError as e:
        say(f"no figures: {e}")
        return {}
    sample = data.store.subset(sample_rows(len(data.store), 1500))
    drawn = {
        "the losses and the collapse monitor": draw_log(out.parent / "pretrain", out),
        f"the molecules of {data.name} by {data.targets[0]}": draw_map(
            encoder, sample, out / "map", target=data.targets[0]
        ),
    }
    return {
        str(path): content
        for content, paths in drawn.items()
        for path in paths
        if path.suffix == ".png"
    }
