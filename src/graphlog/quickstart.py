"""A tour in minutes: pre-train, fine-tune, compare, embed and draw, on molecules of RDKit."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from graphlog import api
from graphlog.data.store import GraphStore
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.finetune import FinetuneConfig, finetune
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.report import Report, ScoreRow
from graphlog.downstream.tasks import LabelledGraphs, open_labelled
from graphlog.errors import ConfigError, MissingExtraError
from graphlog.files import replacing
from graphlog.report.prototypes import write_prototypes
from graphlog.training import Progress, resolve_config

PRETRAINING_SET = "wehi10k"
LABELLED_SET = "chembl2321810"
SHIPPED_MODEL = "graphlog-zinc"
SMALL_ENCODER = {"dim": 64, "layers": 3}
FINETUNE_EPOCHS, FINETUNE_SEEDS = 20, (0, 1, 2)
_MARK = "quickstart.json"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TourScore:
    """One row of the closing table."""

    model: str
    how: str
    mean: float
    sd: float | None
    seeds: int


@dataclass(frozen=True, slots=True)
class Tour:
    """What the tour found and left behind."""

    dataset: str
    question: str
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
    say(f"1/5  read {molecules:,} drug-like molecules ({PRETRAINING_SET}, from RDKit's own files)")
    graphs = api.read_molecules(PRETRAINING_SET, schema=resolve_config().schema, limit=molecules)
    say(
        f"2/5  pre-train GraphLoG on them, without labels: {epochs} epochs, "
        "the first local, then with prototypes"
    )
    small = api.pretrain(
        graphs,
        seed=seed,
        run_dir=out / "pretrain",
        overwrite=True,
        progress=progress,
        epochs=epochs,
        batch_size=64,
        watch_every=10,
        encoder=SMALL_ENCODER,
    )
    data = open_labelled(LABELLED_SET, small.schema)
    say(
        f"3/5  fine-tune it on {LABELLED_SET}: {data.sizes['train']} measured activities, "
        f"tested on {data.sizes['test']} molecules of other scaffolds"
    )
    predictor = _finetune(small, data, out / "finetune", seed, progress)
    say("4/5  compare: frozen embeddings, the untrained encoder, fingerprints")
    reports = {"small GraphLoG": api.probe(small, data, seeds=FINETUNE_SEEDS)}
    shipped = api.load(SHIPPED_MODEL)
    reports[SHIPPED_MODEL] = api.probe(
        shipped, open_labelled(LABELLED_SET, shipped.schema), baselines=()
    )
    say("5/5  embed the molecules, place them in the tree of prototypes, and draw")
    api.embed_file(small, LABELLED_SET, out / "embeddings.npz")
    write_prototypes(SHIPPED_MODEL, out / "tree", LABELLED_SET, seed=seed)
    scores = _scores(predictor.report, reports)
    written = {
        str(out / "pretrain"): "the pre-trained model, its settings and log",
        str(out / "finetune"): "the fine-tuned predictor and its scores",
        str(out / "embeddings.npz"): f"one vector for each molecule of {LABELLED_SET}",
        str(
            out / "tree" / "atlas.html"
        ): f"the tree of prototypes of {SHIPPED_MODEL}, to explore in a browser",
        **(_draw(out / "figures", small, graphs, data, scores) if can_draw(say) else {}),
    }
    tour = Tour(
        LABELLED_SET,
        "predict activity on unseen scaffolds",
        scores,
        written,
        _next_steps(out),
        time.monotonic() - started,
    )
    _write_mark(out, tour.to_dict())
    say(f"done in {tour.seconds:.0f} s")
    return tour


def _claim(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()) and not (out / _MARK).is_file():
        raise ConfigError(f"{out} holds other files; name another folder with -o.")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder with -o.")
    out.mkdir(parents=True, exist_ok=True)
    _write_mark(out, {"state": "unfinished"})


def _write_mark(out: Path, fields: dict[str, Any]) -> None:
    with replacing(out / _MARK) as unfinished:
        unfinished.write_text(json.dumps(fields, indent=1), encoding="utf-8")


def _finetune(
    encoder: Encoder, data: LabelledGraphs, run: Path, seed: int, progress: Progress | None
) -> Predictor:
    config = FinetuneConfig(
        epochs=FINETUNE_EPOCHS, batch_size=64, dropout=0.1, schedule="constant", select="best-valid"
    )
    seeds = [seed + k for k in FINETUNE_SEEDS]
    return finetune(
        encoder,
        data,
        config,
        seeds=seeds,
        baselines=(),
        run_dir=run,
        overwrite=True,
        progress=progress,
    )


def _scores(finetuned: Report, probes: dict[str, Report]) -> list[TourScore]:
    """Return the fine-tuned model, each frozen one, then the baselines."""
    ours = [_score("small GraphLoG", "fine-tuned", finetuned.rows[0], finetuned.metric)]
    baselines: list[TourScore] = []
    for name, report in probes.items():
        for row in report.rows:
            how = "fingerprints" if row.model.startswith("ECFP") else "frozen, linear model"
            if row.rule.startswith("C = "):  # the rows at a fixed penalty say the same once more
                continue
            is_ours = row.model == report.rows[0].model
            (ours if is_ours else baselines).append(
                _score(name if is_ours else row.model, how, row, report.metric)
            )
    return ours + baselines


def _score(model: str, how: str, row: ScoreRow, metric: str) -> TourScore:
    sd = row.sd(metric)
    return TourScore(
        model, how, row.mean(metric), None if math.isnan(sd) else sd, len(row.test[metric])
    )


def can_draw(say: Say) -> bool:
    """Return whether figures can be drawn; say what is missing where not."""
    try:
        import_module("graphlog.report.style")
    except MissingExtraError as e:
        say(f"no figures: {e}")
        return False
    return True


def _draw(
    out: Path, small: Encoder, graphs: GraphStore, data: LabelledGraphs, scores: list[TourScore]
) -> dict[str, str]:
    from graphlog.report.charts import Score, score_chart
    from graphlog.report.maps import draw_map
    from graphlog.report.run import draw_pretraining
    from graphlog.report.style import save_figure

    bars = [
        Score(
            f"{s.model}, {s.how}",
            s.mean,
            math.nan if s.sd is None else s.sd,
            highlighted="GraphLoG" in s.model,
        )
        for s in scores
    ]
    drawn = {
        "the losses and the collapse watch": draw_pretraining(out.parent / "pretrain", out),
        "molecules around the learned prototypes": draw_map(
            small, graphs, out / "map-prototypes", graphs=1500
        ),
        "the labeled molecules by measured activity": draw_map(
            small, data.store, out / "map-activity", graphs=1500, color="label"
        ),
        "all scores": save_figure(score_chart([(data.name, data.metric, bars)]), out / "scores"),
    }
    return {
        str(path): what for what, paths in drawn.items() for path in paths if path.suffix == ".png"
    }


def _next_steps(out: Path) -> list[str]:
    return [
        f"graphlog predict your.csv -m {out / 'finetune'} -o predictions.csv",
        f"graphlog embed your.csv -m {out / 'pretrain'} -o embeddings.npz",
        "graphlog data list        # real benchmarks: graphlog finetune bbbp -m MODEL -o run",
        "graphlog pretrain your.smi -o run --epochs 11        # the full-size encoder",
    ]
