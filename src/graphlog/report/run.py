"""The figures of a run folder: curves, scores, embedding map, tree of prototypes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphlog.config import read_toml
from graphlog.data.store import GraphStore
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.models import load
from graphlog.downstream.report import Report
from graphlog.errors import ConfigError, DataError, unknown_name
from graphlog.inputs import read, recall_input
from graphlog.report.charts import finetuning_curves, pretraining_curves, report_chart
from graphlog.report.maps import COLORS, draw_map
from graphlog.report.style import figures_of, save_figure
from graphlog.report.tree_figure import draw_tree
from graphlog.training.log import read_metrics
from graphlog.training.watch import RANK_FLOOR


def draw_run(
    run: Path,
    out: Path,
    source: Any = None,
    *,
    graphs: int = 2000,
    color: str | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
    **reading: Any,
) -> list[Path]:
    """Draw the figures of a run and return the files written, PNG and SVG of each.

    Args:
        run: Folder written by ``pretrain`` or ``finetune``.
        out: Folder for the figures.
        source: Graphs to map; None takes those the run was trained on, if they can still be read.
        graphs: Graphs on the map.
        color: ``prototype``, ``scaffold`` or ``label``; None is ``prototype`` for pre-training and
            ``label`` for fine-tuning.
        seed: Decides sample and layout of the map.
        say: Called with what cannot be drawn, and why.
        reading: Options of the reader of ``source``.

    Raises:
        ConfigError: If ``run`` is not a run folder, or ``out`` holds the figures of another run.
        MissingExtraError: If matplotlib is not installed.
    """
    if color is not None and color not in COLORS:
        raise unknown_name("color", color, COLORS)
    if not (run / "config.toml").is_file():
        raise ConfigError(
            f"{run} is not a run folder (it has no config.toml); name one of pretrain or finetune."
        )
    settings = read_toml(run / "config.toml")
    finetuned = settings.get("kind") == "finetune"
    # read everything before anything is drawn, so that an error leaves nothing behind
    model = load(run) if (run / "model.safetensors").is_file() else None
    store = None if model is None else _graphs(run, model, source, reading)
    with figures_of(run, out):
        paths = _draw_finetuning(run, out) if finetuned else draw_pretraining(run, out)
        if model is None:
            say(f"no map: {run} has no model yet; finish it with --resume")
        elif store is None:
            say(f"no map: the graphs of {run} were not found; name some with --input")
        else:
            stem = out / "embedding-map"
            paths += draw_map(
                model,
                store,
                stem,
                graphs=graphs,
                color=color or ("label" if finetuned else "prototype"),
                seed=seed,
            )
            paths += (
                []
                if finetuned
                else draw_tree(model, store, out / "prototype-tree", graphs=graphs, seed=seed)
            )
    if not paths:
        raise DataError(f"{run} has nothing to draw yet: neither a log nor a model.")
    return paths


def draw_pretraining(run: Path, out: Path) -> list[Path]:
    """Draw the curves of a pre-training run; nothing where it has no log yet."""
    rows = read_metrics(run / "metrics.jsonl")
    dim = int(read_toml(run / "config.toml").get("encoder", {}).get("dim", 300))
    return (
        save_figure(pretraining_curves(rows, dim, RANK_FLOOR * dim), out / "curves") if rows else []
    )


def _draw_finetuning(run: Path, out: Path) -> list[Path]:
    paths: list[Path] = []
    rows = read_metrics(run / "metrics.jsonl")
    if rows:
        paths += save_figure(finetuning_curves(rows), out / "curves")
    if (run / "scores.json").is_file():
        report = Report.load(run / "scores.json")
        paths += save_figure(report_chart([report]), out / "scores")
    return paths


def _graphs(
    run: Path, model: Encoder, source: Any, reading: Mapping[str, Any]
) -> GraphStore | None:
    known = recall_input(run) if source is None else (source, {})
    return None if known is None else read(known[0], model.schema, **{**known[1], **reading})
