"""A tour in minutes: pre-train, compare, fine-tune, embed and draw, on bundled molecules."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphlog import api
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.finetune import FinetuneConfig, finetune
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.report import ScoreRow
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.errors import ConfigError, MissingExtraError
from graphlog.files import write_json
from graphlog.report.prototypes import write_prototypes
from graphlog.training.log import Progress

PRETRAINING_SET = "wehi10k"
QUESTIONS = {
    "esol": "solubility in water, log mol/L",
    "chembl2321810": "activity in one medicinal chemistry series",
}
"""Labeled sets, both with a scaffold split, so that test molecules have ring systems of their
own."""
SHIPPED_MODEL = "graphlog-mol"
SMALL_ENCODER = {"dim": 64, "layers": 3}
KEPT = "esol"
"""The set whose models are kept, to predict with."""
FINETUNE_EPOCHS = 8
_MARK = "quickstart.json"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TourScore:
    """One row of the closing table."""

    dataset: str
    model: str
    how: str
    rmse: float
    r2: float


@dataclass(frozen=True, slots=True)
class Tour:
    """What the tour found and left behind."""

    questions: dict[str, str]
    """Labeled sets and what is predicted in them."""
    scores: list[TourScore]
    written: dict[str, str]
    """Paths and what is in them."""
    next_steps: list[str]
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
    """Take the tour and write everything under ``out``; an earlier tour there is replaced.

    Args:
        out: Folder for models, scores, embeddings and figures.
        molecules: Molecules to pre-train on.
        epochs: Epochs of pre-training.
        seed: Decides everything random.
        progress: Follows training.
        say: Told what happens.

    Raises:
        ConfigError: If ``out`` holds other things than an earlier tour.
    """
    started = time.monotonic()
    out = Path(out)
    _claim(out)
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
    say(f"2/4  compare it with {SHIPPED_MODEL}, an untrained encoder and fingerprints")
    scores: list[TourScore] = []
    for name in QUESTIONS:
        data = open_labeled(name, shipped.schema)
        run_dir = out / "probe" if name == KEPT else None
        scores += [_mean_row(data), *_probed(data, small, shipped, seed, run_dir)]
    data = open_labeled(KEPT, shipped.schema)
    say(f"3/4  fine-tune {SHIPPED_MODEL} on {KEPT}: {data.sizes['train']} molecules")
    training: dict[str, Any] = {"run_dir": out / "finetune", "overwrite": True}
    config = FinetuneConfig(epochs=FINETUNE_EPOCHS)
    predictor = finetune(
        shipped, data, config, seeds=[seed], baselines=(), progress=progress, **training
    )
    scores.append(_score(KEPT, SHIPPED_MODEL, "fine-tuned", predictor.report.rows[0]))
    scores.sort(key=lambda s: (list(QUESTIONS).index(s.dataset), -s.rmse))
    say("4/4  embed the molecules, place them in the tree of prototypes, and draw")
    api.embed_file(shipped, KEPT, out / "embeddings.npz")
    write_prototypes(SHIPPED_MODEL, out / "tree", KEPT, seed=seed)
    written = {
        str(out / "pretrain"): "the small model, its settings and log",
        str(out / "probe"): f"the averaged linear models of {KEPT}, and their scores",
        str(out / "finetune"): f"{SHIPPED_MODEL} fine-tuned on {KEPT}, and its scores",
        str(out / "embeddings.npz"): f"one vector for each molecule of {KEPT}",
        str(out / "tree" / "atlas.html"): (
            f"{KEPT} in the tree of prototypes of {SHIPPED_MODEL}, to explore in a browser"
        ),
        **(_draw(out / "figures", shipped, data, scores) if can_draw(say) else {}),
    }
    tour = Tour(QUESTIONS, scores, written, _next_steps(out), time.monotonic() - started)
    write_json(out / _MARK, tour.to_dict())
    say(f"done in {tour.seconds:.0f} s")
    return tour


def _claim(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()) and not (out / _MARK).is_file():
        raise ConfigError(f"{out} holds other files; name another folder with -o.")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder with -o.")
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / _MARK, {"state": "unfinished"})


def _mean_row(data: LabeledGraphs) -> TourScore:
    """Return the scores of predicting the mean of the training fold."""
    test = data.labels[data.split.test]
    constant = np.broadcast_to(np.nanmean(data.labels[data.split.train], axis=0), test.shape)
    scores = evaluate(test, constant, data.task).scores
    return TourScore(data.name, "mean of the training fold", "", scores["rmse"], scores["r2"])


def _probed(
    data: LabeledGraphs, small: Encoder, shipped: Encoder, seed: int, run_dir: Path | None
) -> list[TourScore]:
    """Return the rows of linear models on frozen embeddings, fingerprints and descriptors.

    Those on all three, averaged, are kept in ``run_dir``.
    """
    joined: dict[str, Any] = {"with_features": ["ecfp4", "descriptors"], "run_dir": run_dir}
    report = api.probe(
        shipped, data, baseline_seeds=[seed], overwrite=run_dir is not None, **joined
    )
    own = api.probe(small, data, baselines=())
    rows = [(row, "small encoder") for row in own.rows]
    rows += [(row, _NAMES.get(row.model, row.model)) for row in report.rows]
    return [
        _score(data.name, name, "linear model", row)
        for row, name in rows
        if not row.rule.startswith("C = ")  # those at the validated penalty say nearly the same
    ]


_NAMES = {
    "frozen encoder": SHIPPED_MODEL,
    "frozen encoder + ECFP4 + descriptors": f"{SHIPPED_MODEL}, ECFP4 and descriptors, averaged",
    "ECFP4 + ridge regression": "ECFP4",
    "descriptors + ridge regression": "RDKit's descriptors",
}


def _score(dataset: str, model: str, how: str, row: ScoreRow) -> TourScore:
    return TourScore(dataset, model, how, row.mean("rmse"), row.mean("r2"))


def can_draw(say: Say) -> bool:
    """Return whether figures can be drawn; say what is missing where not."""
    try:
        import graphlog.report.style  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except MissingExtraError as e:
        say(f"no figures: {e}")
        return False
    return True


def _draw(
    out: Path, encoder: Encoder, data: LabeledGraphs, scores: list[TourScore]
) -> dict[str, str]:
    from graphlog.report.hierarchy import sample_rows
    from graphlog.report.maps import draw_map
    from graphlog.report.run import Score, draw_pretraining, score_chart
    from graphlog.report.style import save_figure

    sample = data.store.subset(sample_rows(len(data.store), 1500))
    panels: list[tuple[str, str, list[Score]]] = []
    for name in QUESTIONS:
        bars = [
            Score(
                f"{s.model}, {s.how}" if s.how else s.model,
                s.rmse,
                highlighted=s.model.startswith(SHIPPED_MODEL),
            )
            for s in scores
            if s.dataset == name
        ]
        panels.append((name, "rmse", bars))
    drawn = {
        "the losses and the collapse watch": draw_pretraining(out.parent / "pretrain", out),
        f"the molecules of {data.name} by {data.targets[0]}": draw_map(
            encoder, sample, out / "map", color="label"
        ),
        "all scores": save_figure(score_chart(panels), out / "scores"),
    }
    return {
        str(path): what for what, paths in drawn.items() for path in paths if path.suffix == ".png"
    }


def _next_steps(out: Path) -> list[str]:
    return [
        f"graphlog predict your.csv -m {out / 'probe'} -o predictions.csv",
        f"graphlog probe your.csv -m {SHIPPED_MODEL} --targets COLUMN --with ecfp4,descriptors "
        "-o run",
        f"graphlog embed your.csv -m {SHIPPED_MODEL} -o embeddings.npz",
        f"graphlog finetune your.csv -m {SHIPPED_MODEL} --targets COLUMN -o run",
        "graphlog pretrain your.smi -o run        # an encoder for your own molecules",
    ]
