"""Charts of a run: training curves with the alarms of the collapse watch, and bars of scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from textwrap import fill
from typing import Any

from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.downstream.report import Report
from graphlog.report.style import (
    ALARM,
    FAINT,
    HUES,
    INK,
    METRIC_NAMES,
    MUTED,
    REFERENCE,
    Axes,
    Figure,
    house_style,
    literal,
    new_figure,
    whole_numbers,
)

Row = Mapping[str, Any]

COLUMNS = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel."""

    label: str
    key: str
    """Where its values stand in a row of the log."""
    divide_by: float = 1.0
    dashed: bool = False
    hue: int | None = None
    """Index of its color; None takes its place in the panel."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines that share an axis."""

    title: str
    lines: Sequence[Line]
    alarm_below: float | None = None
    alarm_above: float | None = None
    from_zero: bool = False


def pretraining_curves(rows: Sequence[Row], dim: int, rank_floor: float | None = None) -> Figure:
    """Draw the losses and the collapse watch of a pre-training run.

    Args:
        rows: Rows of ``metrics.jsonl``.
        dim: Width of the graph embeddings.
        rank_floor: Effective rank under which the watch rings.
    """
    rows = _numeric(rows)
    keys = sorted({k for row in rows for k in row})
    prototypes = _layer_sizes(rows)
    panels = [
        Panel(
            "Losses",
            [Line(k.removeprefix("loss_"), k) for k in keys if k.startswith("loss_")]
            or [Line("total", "loss")],
        ),
        Panel(
            f"Effective rank (RankMe, of {dim})",
            [Line("graph embeddings", "rank")],
            alarm_below=rank_floor,
            from_zero=True,
        ),
        Panel(
            "Alignment and uniformity",
            [
                Line("alignment (0 is best)", "alignment"),
                Line("uniformity (lower is better)", "uniformity"),
            ],
        ),
        Panel(
            "Cosine of pairs",
            [
                Line("graphs, positive", "cos_graph_pos", hue=0),
                Line("graphs, negative", "cos_graph_neg", dashed=True, hue=0),
                Line("nodes, positive", "cos_node_pos", hue=1),
                Line("nodes, negative", "cos_node_neg", dashed=True, hue=1),
            ],
        ),
        Panel(
            "Prototypes in use (share)",
            _per_layer(
                {"nearest": "prototypes_used_nearest", "E-step": "prototypes_used_estep"},
                prototypes,
            ),
            alarm_below=0.2,
            from_zero=True,
        ),
        Panel(
            "Perplexity of the E-step (share)",
            _per_layer({"": "posterior_perplexity"}, prototypes),
            alarm_above=0.8,
            from_zero=True,
        ),
    ]
    return _draw_curves([p for p in panels if _has_values(p, rows)], rows, "step")


def finetuning_curves(rows: Sequence[Row]) -> Figure:
    """Draw loss and scores over the epochs of a fine-tuning run: mean and range of its seeds."""
    rows = _numeric(rows, "epoch")
    names = sorted({k.split("/")[1] for row in rows for k in row if "/" in k})
    panels = [Panel("Training loss", [Line("loss", "loss")])]
    panels += [
        Panel(
            METRIC_NAMES.get(name, name),
            [
                Line("validation", f"valid/{name}", dashed=True, hue=1),
                Line("test", f"test/{name}", hue=0),
            ],
        )
        for name in names
    ]
    return _draw_curves(panels, rows, "epoch")


def _numeric(rows: Sequence[Row], x: str = "step") -> list[Row]:
    """Return the numbers, phase and alarms of each row; damaged values are dropped."""

    def is_number(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def is_fit(key: str, value: object) -> bool:
        return is_number(value) or (key == "phase" and isinstance(value, str))

    kept: list[Row] = []
    for row in rows:
        if is_number(row.get(x)):
            alarms = row.get("alarms")
            texts = [str(a) for a in alarms] if isinstance(alarms, list) else []
            kept.append({k: v for k, v in row.items() if is_fit(k, v)} | {"alarms": texts})
    return kept


def _layer_sizes(rows: Sequence[Row]) -> list[int]:
    """Return the number of prototypes of each layer, as last logged."""
    logged = {k: row[k] for row in rows for k in row if k.startswith("prototypes_total_")}
    sizes: list[int] = []
    while (count := logged.get(f"prototypes_total_{len(sizes)}", 0)) >= 1:
        sizes.append(round(count))
    return sizes


def _per_layer(keys: Mapping[str, str], sizes: Sequence[int]) -> list[Line]:
    return [
        Line(
            f"layer {level} ({size}) {kind}".strip(),
            f"{key}_{level}",
            divide_by=size,
            dashed=i > 0,
            hue=level,
        )
        for i, (kind, key) in enumerate(keys.items())
        for level, size in enumerate(sizes)
    ]


def _has_values(panel: Panel, rows: Sequence[Row]) -> bool:
    return any(line.key in row for line in panel.lines for row in rows)


def _draw_curves(panels: Sequence[Panel], rows: Sequence[Row], x: str) -> Figure:
    columns = min(COLUMNS, max(len(panels), 1))
    lines = -(-len(panels) // columns)
    alarms = [(row[x], line) for row in rows for line in row.get("alarms", ())]
    with house_style():
        figure, axes = new_figure(
            max(lines, 1),
            columns,
            3.9 * columns,
            3.3 * max(lines, 1) + 0.2 * min(len(alarms), 6),
            sharex=True,
        )
        for axis, panel in zip(axes, panels, strict=False):
            _draw_lines(axis, panel, rows, x)
            axis.set_xlabel(x, color=MUTED)
            axis.tick_params(labelbottom=True)
            whole_numbers(axis)
            _mark_phases(axis, rows, x)
            for at, _ in alarms:
                axis.axvline(at, color=ALARM, linewidth=0.8, alpha=0.7)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        if alarms:
            lines_of_alarms = "\n".join(fill(f"▲ {x} {at}: {line}", 150) for at, line in alarms[:6])
            figure.supxlabel(lines_of_alarms, x=0.01, ha="left", fontsize=8, color=ALARM)
    return figure


def _draw_lines(axis: Axes, panel: Panel, rows: Sequence[Row], x: str) -> None:
    for place, line in enumerate(panel.lines):
        series = _series(rows, x, line)
        if not series:
            continue
        xs, means = list(series), [fmean(values) for values in series.values()]
        color = HUES[(place if line.hue is None else line.hue) % len(HUES)]
        marker = "o" if len(series) < 30 else None
        axis.plot(
            xs,
            means,
            color=color,
            linestyle="--" if line.dashed else "-",
            marker=marker,
            markersize=3,
            label=line.label,
        )
        if any(len(values) > 1 for values in series.values()):
            axis.fill_between(
                xs,
                [min(v) for v in series.values()],
                [max(v) for v in series.values()],
                color=color,
                alpha=0.15,
                linewidth=0,
            )
    axis.set_title(panel.title)
    if panel.from_zero:
        axis.set_ylim(bottom=0)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.08 * (high - low))  # room for the names of the phases
    _mark_alarm(axis, panel)
    axis.margins(x=0.02)
    if len(panel.lines) > 1:
        axis.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
            ncols=2,
            handlelength=2.2,
            labelspacing=0.25,
            columnspacing=1.2,
            fontsize=7.5,
        )


def _series(rows: Sequence[Row], x: str, line: Line) -> dict[float, list[float]]:
    """Return the values at each place of ``x``; several seeds give several values."""
    series: dict[float, list[float]] = {}
    for row in rows:
        if row.get(line.key) is not None:
            series.setdefault(row[x], []).append(row[line.key] / line.divide_by)
    return series


def _mark_alarm(axis: Axes, panel: Panel) -> None:
    low, high = axis.get_ylim()
    if panel.alarm_below is not None:
        axis.set_ylim(low, max(high, panel.alarm_below * 1.25))
        axis.axhspan(low, panel.alarm_below, color=ALARM, alpha=0.08, linewidth=0)
        axis.axhline(panel.alarm_below, color=ALARM, linewidth=0.8, linestyle=":")
    if panel.alarm_above is not None:
        top = max(high, panel.alarm_above * 1.25)
        axis.set_ylim(low, top)
        axis.axhspan(panel.alarm_above, top, color=ALARM, alpha=0.08, linewidth=0)
        axis.axhline(panel.alarm_above, color=ALARM, linewidth=0.8, linestyle=":")


def _mark_phases(axis: Axes, rows: Sequence[Row], x: str) -> None:
    phases = [(row[x], str(row["phase"])) for row in rows if "phase" in row]
    starts = [
        here
        for before, here in zip([(0, ""), *phases], phases, strict=False)
        if before[1] != here[1]
    ]
    if len(starts) < 2:
        return
    for at, phase in starts:
        axis.axvline(at, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        axis.annotate(
            phase,
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            fontsize=7,
            color=MUTED,
            va="top",
        )


@dataclass(frozen=True, slots=True)
class Score:
    """One bar."""

    name: str
    """Method."""
    mean: float
    """Score, mean over seeds."""
    sd: float = math.nan
    """Standard deviation over seeds; NaN where there is one."""
    highlighted: bool = False
    """Whether the method is the encoder in question rather than a baseline."""


def score_chart(panels: Sequence[tuple[str, str, Sequence[Score]]], title: str = "") -> Figure:
    """Draw one panel of horizontal bars for each ``(name, metric, scores)``.

    ROC-AUC bars start at 0.5, which is chance; others at 0.
    """
    tallest = max(len(scores) for _, _, scores in panels)
    with house_style():
        figure, axes = new_figure(1, len(panels), 3.4 + 3.6 * len(panels), 1.1 + 0.36 * tallest)
        for axis, (name, metric, scores) in zip(axes, panels, strict=True):
            _draw_bars(axis, name, metric, scores)
            axis.set_ylim(tallest - 0.5, -0.5)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def report_chart(reports: Sequence[Report], title: str = "") -> Figure:
    """Draw the test scores of reports, one panel each; the encoder stands out from baselines."""
    return score_chart(
        [(literal(f"{r.dataset}, {r.split} split"), r.metric, report_scores(r)) for r in reports],
        title,
    )


def report_scores(report: Report) -> list[Score]:
    """Return the rows of a report as bars; those of the first row's model are highlighted."""
    metric = report.metric
    model = report.rows[0].model
    return [
        Score(
            literal(f"{r.model}, {r.rule}"),
            r.mean(metric),
            r.sd(metric),
            highlighted=r.model.startswith(model),
        )
        for r in report.rows
    ]


def _draw_bars(axis: Axes, name: str, metric: str, scores: Sequence[Score]) -> None:
    chance = 0.5 if metric == "roc_auc" else 0.0
    finite = [s for s in scores if math.isfinite(s.mean)]
    spread = [0.0 if math.isnan(s.sd) else s.sd for s in finite]
    places = range(len(finite))
    colors = [HUES[0] if s.highlighted else REFERENCE for s in finite]
    bars = axis.barh(
        places,
        [s.mean - chance for s in finite],
        left=chance,
        height=0.66,
        color=colors,
        hatch=["//" if not s.highlighted else "" for s in finite],
    )
    for bar in bars:
        bar.set_edgecolor("white")
    axis.errorbar(
        [s.mean for s in finite],
        places,
        xerr=spread,
        fmt="none",
        ecolor=INK,
        elinewidth=1.0,
        capsize=2.5,
    )
    ends = [s.mean + d for s, d in zip(finite, spread, strict=True)]
    reach = max([abs(e - chance) for e in ends], default=0.0) or 1.0
    for place, (score, end) in enumerate(zip(finite, ends, strict=True)):
        text = f"{score.mean:.3f}" + ("" if math.isnan(score.sd) else f" ± {score.sd:.3f}")
        axis.text(
            max(end, chance) + 0.02 * reach,
            place,
            text,
            va="center",
            fontsize=8,
            color=INK,
            fontweight="bold" if score.highlighted else "normal",
        )
    axis.set_yticks(list(places), [s.name for s in finite])
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    low = min([chance, *(s.mean - d for s, d in zip(finite, spread, strict=True))])
    axis.set_xlim(low - (0.02 * reach if low < chance else 0), chance + 1.28 * reach)
    axis.set_title(name)
    axis.set_xlabel(
        f"{METRIC_NAMES.get(metric, metric)} "
        f"({'lower' if metric in LOWER_IS_BETTER else 'higher'} is better)",
        color=MUTED,
    )
    axis.grid(True, axis="x", color=FAINT)
    axis.grid(False, axis="y")
    axis.spines["left"].set_visible(chance == low)
    if low < chance:
        axis.axvline(chance, color=MUTED, linewidth=0.8)
