"""Figures of a run folder and its training curves; ``drawings`` has the map and the tree."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from graphlog.config import read_toml
from graphlog.data.store import sample_rows
from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.downstream.pretrained import load
from graphlog.errors import ConfigError, DataError, check_seed, setting
from graphlog.inputs import recall_input
from graphlog.report.drawings import draw_map, draw_tree
from graphlog.report.hierarchy import Hierarchy, layer_names
from graphlog.report.style import (
    ALARM,
    HUES,
    METRIC_NAMES,
    MUTED,
    Axes,
    Figure,
    LogLocator,
    MaxNLocator,
    house_style,
    new_figure,
    save_figure,
)
from graphlog.training.log import read_metrics
from graphlog.training.runfolder import LABELED_KINDS
from graphlog.training.watch import OCCUPANCY_FLOOR, PERPLEXITY_CEILING, RANK_FLOOR

LogRow = Mapping[str, Any]
"""A row of ``metrics.jsonl``."""
_PANELS_PER_ROW = 3
_SENTENCE_WIDTH = 52
"""Characters of a line in the sentence of a panel."""


def draw_run(
    run: str | Path,
    out: str | Path,
    source: Any = None,
    *,
    graphs: int = 2000,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
    **reading: Any,
) -> list[Path]:
    """Draw the figures of a run and return the files written, PNG and SVG of each.

    Args:
        run: Folder written by ``pretrain``, ``finetune`` or ``probe``.
        out: Folder for the figures; files of the same names are replaced.
        source: Graphs to map; None uses those the run was trained on, if they can still be read.
        graphs: Number of graphs on the map.
        seed: Random seed of the sample and the layout of the map.
        say: Function that is called with messages: the current step, and what cannot be drawn.
        reading: Options of the reader of ``source``.

    Raises:
        ConfigError: If ``run`` is not a run folder.
        DataError: If the run has nothing to draw yet.
        MissingExtraError: If matplotlib is not installed.
    """
    run, out, seed = Path(run), Path(out), check_seed("seed", seed)
    if not (run / "config.toml").is_file():
        raise ConfigError(
            f"{run} is not a run folder, which has a config.toml; name one of pretrain, finetune "
            "or probe."
        )
    settings = read_toml(run / "config.toml")
    has_labels = settings.get("kind") in LABELED_KINDS
    # read all inputs first, so that an error in them leaves no figures behind
    model = load(run) if (run / "model.safetensors").is_file() else None
    store = None
    if model is not None:
        known = recall_input(run) if source is None else (source, {})
        if known is not None:
            say(f"reading {known[0]}")
            store = model.graphs_of(known[0], {"targets": None, **known[1], **reading})
            trained_on = model.info.get("data_digest")
            if has_labels:
                data = settings.get("input")
                trained_on = data.get("sha256") if isinstance(data, dict) else None
            if source is None and trained_on not in (None, store.digest):
                say(f"note: the graphs of {known[0]} are not those that {run} was trained on")
    say("drawing the log of the run")
    paths = draw_log(run, out)
    if model is None:
        say(f"no map: {run} has no model yet; finish it with {setting('resume', True)}")
    elif store is None:
        say(f"no map: the graphs of {run} were not found; name some with {setting('source')}")
    else:
        sample = store.subset(sample_rows(len(store), graphs, seed))
        say(f"placing {len(sample):,} graphs on the map (t-SNE)")
        target = _target(settings, sample.tasks) if has_labels else None
        hierarchy = None if target else Hierarchy.of(model)
        placed = None if hierarchy is None else (hierarchy, hierarchy.assign(sample))
        options: dict[str, Any] = {"placed": placed, "target": target, "seed": seed}
        paths += draw_map(model, sample, out / "embedding-map", **options)
        if placed is not None and not has_labels:
            say("drawing the tree of prototypes")
            paths += draw_tree(*placed, sample, out / "prototype-tree")
    if not paths:
        raise DataError(f"{run} has nothing to draw yet: neither a log nor a model.")
    return paths


def _target(settings: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """Return the first of the label columns that a run learned, else the first of all."""
    learned = settings.get("input", {}).get("targets", ())
    # a target of several classes is called column=class
    known = (c for c in columns for name in learned if name == c or name.startswith(f"{c}="))
    return next(known, next(iter(columns), None))


def draw_log(run: Path, out: Path) -> list[Path]:
    """Draw the curves of a run and return the files; none if it has no log yet."""
    rows = read_metrics(run / "metrics.jsonl")
    if not rows:
        return []
    settings = read_toml(run / "config.toml")
    if settings.get("kind") in LABELED_KINDS:
        return save_figure(finetuning_curves(rows), out / "curves")
    encoder = settings.get("encoder", {})
    dim = int(encoder.get("dim", 300))
    dim *= encoder.get("layers", 5) + 1 if encoder.get("jk") == "concat" else 1
    batch_size = settings.get("training", {}).get("batch_size")
    return save_figure(pretraining_curves(rows, dim, batch_size), out / "curves")


class Line(NamedTuple):
    """One line of a panel."""

    label: str
    key: str
    """Key of the values in the rows of the log."""
    divide_by: float = 1.0
    dashed: bool = False
    hue: int | None = None
    """Index of the color; None uses the position of the line in the panel."""


class Panel(NamedTuple):
    """Lines that share an axis."""

    title: str
    sentence: str
    """Explanation of the panel, printed below its title."""
    lines: Sequence[Line]
    alarm_below: float | None = None
    alarm_above: float | None = None
    """Limits of the red zones."""
    from_zero: bool = False
    """Whether the axis starts at 0."""


def pretraining_curves(rows: Sequence[LogRow], dim: int, batch_size: int | None = None) -> Figure:
    """Draw the losses and the collapse monitor of a pre-training run.

    Args:
        rows: Rows of ``metrics.jsonl``.
        dim: Width of the graph embeddings.
        batch_size: Graphs per step. The alarm for unused prototypes is lowered for layers with
            more prototypes than this, because one step cannot use all of them.
    """
    log = _table(rows, "step")
    keys = sorted(log.columns)
    losses = [Line(k.removeprefix("loss_"), k) for k in keys if k.startswith("loss_")]
    sizes: list[int] = []  # number of prototypes of each layer in the last row
    last = log.filter(like="prototypes_total_").ffill().iloc[-1]
    while (count := last.get(f"prototypes_total_{len(sizes)}", 0)) >= 1:
        sizes.append(round(count))
    layers = [f"{n} ({size})" for n, size in zip(layer_names(len(sizes)), sizes, strict=True)]
    used = [
        Line(f"{layers[k]} {rule}", f"prototypes_used_{key}_{k}", size, key == "estep", k)
        for rule, key in (("nearest", "nearest"), ("E-step", "estep"))
        for k, size in enumerate(sizes)
    ]
    shared = [
        Line(layers[k], f"posterior_perplexity_{k}", size, hue=k) for k, size in enumerate(sizes)
    ]
    share = min(1.0, batch_size / max(sizes)) if batch_size and sizes else 1.0
    panels = [
        Panel(
            "Losses",
            "What training minimizes: each line should fall, then level off.",
            losses or [Line("total", "loss")],
        ),
        Panel(
            f"Effective rank (RankMe, of {dim})",
            "How many directions the embeddings use: a fall into the red zone means that all "
            "graphs become alike.",
            [Line("graph embeddings", "rank")],
            alarm_below=RANK_FLOOR * dim,
            from_zero=True,
        ),
        Panel(
            "Alignment",
            "How far two views of a graph lie apart; 0 is best.",
            [Line("graph embeddings", "alignment")],
        ),
        Panel(
            "Uniformity",
            "How unevenly graphs spread; lower is better.",
            [Line("graph embeddings", "uniformity")],
        ),
        Panel(
            "Cosine of pairs",
            "How alike embeddings are: matching pairs (solid) should stay above other pairs "
            "(dashed).",
            [
                Line("graphs, positive", "cos_graph_pos", hue=0),
                Line("graphs, negative", "cos_graph_neg", dashed=True, hue=0),
                Line("nodes, positive", "cos_node_pos", hue=1),
                Line("nodes, negative", "cos_node_neg", dashed=True, hue=1),
            ],
        ),
        Panel(
            "Prototypes in use (share)",
            "How many prototypes hold a graph: below the red line most of them are wasted.",
            used,
            alarm_below=OCCUPANCY_FLOOR * share,
            from_zero=True,
        ),
        Panel(
            "Perplexity of the E-step (share)",
            "How many prototypes a graph is shared among: in the red zone it belongs to none in "
            "particular.",
            shared,
            alarm_above=PERPLEXITY_CEILING,
            from_zero=True,
        ),
    ]
    known = [panel for panel in panels if any(line.key in log for line in panel.lines)]
    return _draw_curves(known, log, "step")


def finetuning_curves(rows: Sequence[LogRow]) -> Figure:
    """Draw the loss and scores of a fine-tuning run by epoch, with the range of its seeds."""
    log = _table(rows, "epoch")
    loss = "What training minimizes: it should fall, then level off. The band spans the seeds."
    panels = [Panel("Training loss", loss, [Line("loss", "loss")])]
    for name in sorted({key.split("/")[1] for key in log.columns if "/" in key}):
        better = "Lower" if name in LOWER_IS_BETTER else "Higher"
        lines = [
            Line("validation", f"valid/{name}", dashed=True, hue=1),
            Line("test", f"test/{name}", hue=0),
        ]
        until = "Once the validation line gets no better, more epochs do not help."
        panels.append(Panel(METRIC_NAMES.get(name, name), f"{better} is better. {until}", lines))
    return _draw_curves(panels, log, "epoch")


def _table(rows: Sequence[LogRow], x: str) -> pd.DataFrame:
    """Return the rows of a log with a number in column ``x``; other damaged numbers are NaN."""
    log = pd.DataFrame([{x: None}, *rows])  # with an empty row, so that the column always exists
    names = log.columns.difference(["phase", "alarms"])
    log[names] = log[names].apply(pd.to_numeric, errors="coerce")
    return log.dropna(subset=[x]).astype({x: int})


def _draw_curves(panels: Sequence[Panel], log: pd.DataFrame, x: str) -> Figure:
    """Draw the panels over column ``x`` of a log, with its alarms."""
    columns = min(_PANELS_PER_ROW, max(len(panels), 1))
    rows = max(math.ceil(len(panels) / columns), 1)
    alarms = log[[x, "alarms"]].explode("alarms").dropna()[x].unique() if "alarms" in log else []
    with house_style():
        figure, axes = new_figure(rows, columns, 3.9 * columns, 3.6 * rows, sharex=True)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        for axis, panel in zip(axes, panels, strict=False):
            _draw_panel(axis, panel, log, x)
            for step in alarms:
                axis.axvline(step, color=ALARM, linewidth=0.8, alpha=0.7)
        if len(alarms):
            note = "Red lines: alarms, whose texts are in metrics.jsonl."
            figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color=ALARM)
    return figure


def _draw_panel(axis: Axes, panel: Panel, log: pd.DataFrame, x: str) -> None:
    """Draw the lines of a panel over column ``x`` of a log, with its red zone and the phases."""
    for number, line in enumerate(panel.lines):
        if line.key not in log:
            continue
        # the log of several seeds has several rows with the same x
        values = (log[line.key] / line.divide_by).dropna().groupby(log[x])
        means, color = values.mean(), HUES[(number if line.hue is None else line.hue) % len(HUES)]
        style: dict[str, Any] = {"linestyle": "--" if line.dashed else "-", "markersize": 3}
        style["marker"] = "o" if len(means) < 30 else None
        axis.plot(means, color=color, label=line.label, **style)
        band: dict[str, Any] = {"color": color, "alpha": 0.15, "linewidth": 0}
        axis.fill_between(means.index, values.min(), values.max(), **band)
    drawn = [y for line in axis.lines if len(y := np.asarray(line.get_ydata(), dtype=np.float64))]
    levels = [float(np.median(y)) for y in drawn]
    is_log = len(levels) > 1 and all(line.key.startswith("loss") for line in panel.lines)
    if is_log := is_log and min(map(np.min, drawn)) > 0 and max(levels) > 3 * min(levels):
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
    title = f"{panel.title}, logarithmic" if is_log else panel.title
    axis.set_title(title, pad=36)  # space for a sentence of three lines
    axis.annotate(
        fill(panel.sentence, _SENTENCE_WIDTH), (0, 1), (0, 33), "axes fraction", "offset points",
        fontsize=7.5, color=MUTED, va="top",
    )  # fmt: skip
    if panel.from_zero:
        axis.set_ylim(bottom=0)
    phases = log[[x, "phase"]].dropna() if "phase" in log else pd.DataFrame()
    starts = phases[phases["phase"] != phases["phase"].shift()] if len(phases) else phases
    low, high = axis.get_ylim()
    margin = 0.16 if len(starts) > 1 else 0.04  # space for the names of the phases
    high += margin * (high * math.log(high / low) if is_log else high - low)
    alarm = panel.alarm_below if panel.alarm_above is None else panel.alarm_above
    if alarm is not None:
        high = max(high, 1.25 * alarm)
        end = low if panel.alarm_above is None else high
        axis.axhspan(min(alarm, end), max(alarm, end), color=ALARM, alpha=0.08, linewidth=0)
        axis.axhline(alarm, color=ALARM, linewidth=0.8, linestyle=":")
    axis.set_ylim(low, high)
    axis.margins(x=0.02)
    if len(panel.lines) > 1:
        axis.legend(
            fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2,
            handlelength=2.2, labelspacing=0.25, columnspacing=1.2,
        )  # fmt: skip
    axis.set_xlabel(x)
    axis.tick_params(labelbottom=True)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    for start, phase in starts.itertuples(index=False) if len(starts) > 1 else ():
        axis.axvline(start, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        axis.annotate(
            phase, (start, 1.0), (3, -2), ("data", "axes fraction"), "offset points",
            fontsize=7, color=MUTED, va="top", rotation="vertical",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.9},
        )  # fmt: skip
