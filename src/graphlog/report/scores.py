"""Bars of scores: ours beside the baselines, with the spread over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.downstream.report import Report
from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    METRIC_NAMES,
    MUTED,
    REFERENCE,
    Axes,
    Figure,
    house_style,
    new_figure,
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
    ours: bool = False
    """Whether the method is the encoder in question rather than a baseline."""


def score_chart(panels: Sequence[tuple[str, str, Sequence[Score]]], title: str = "") -> Figure:
    """Draw one panel of horizontal bars for each ``(name, metric, scores)``.

    ROC-AUC bars start at 0.5, which is chance; others at 0. Errors (RMSE, MAE) say that lower is better.
    """
    tallest = max(len(scores) for _, _, scores in panels)
    with house_style():
        figure, axes = new_figure(1, len(panels), 3.4 + 3.6 * len(panels), 1.1 + 0.36 * tallest)
        for axis, (name, metric, scores) in zip(axes, panels, strict=True):
            _draw_panel(axis, name, metric, scores)
            axis.set_ylim(tallest - 0.5, -0.5)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def report_chart(reports: Sequence[Report], title: str = "") -> Figure:
    """Draw the test scores of reports, one panel each; rows of the encoder in question stand out from the baselines."""
    return score_chart(
        [(f"{r.dataset}, {r.split} split", r.metric, report_scores(r)) for r in reports], title
    )


def report_scores(report: Report) -> list[Score]:
    """Return the rows of a report as bars; those of the first row's model, or of several of it, are ours."""
    metric = report.metric
    ours = report.rows[0].model
    return [
        Score(f"{r.model}, {r.rule}", r.mean(metric), r.sd(metric), ours=r.model.startswith(ours))
        for r in report.rows
    ]


def _draw_panel(axis: Axes, name: str, metric: str, scores: Sequence[Score]) -> None:
    chance = 0.5 if metric == "roc_auc" else 0.0
    finite = [s for s in scores if math.isfinite(s.mean)]
    spread = [0.0 if math.isnan(s.sd) else s.sd for s in finite]
    places = range(len(finite))
    colours = [HUES[0] if s.ours else REFERENCE for s in finite]
    bars = axis.barh(
        places,
        [s.mean - chance for s in finite],
        left=chance,
        height=0.66,
        color=colours,
        hatch=["//" if not s.ours else "" for s in finite],
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
    reach = max([abs(e - chance) for e in ends] or [1.0])
    for place, (score, end) in enumerate(zip(finite, ends, strict=True)):
        text = f"{score.mean:.3f}" + ("" if math.isnan(score.sd) else f" ± {score.sd:.3f}")
        axis.text(
            max(end, chance) + 0.02 * reach,
            place,
            text,
            va="center",
            fontsize=8,
            color=INK,
            fontweight="bold" if score.ours else "normal",
        )
    axis.set_yticks(list(places), [s.name for s in finite])
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    low = min([chance, *(s.mean - d for s, d in zip(finite, spread, strict=True))])
    axis.set_xlim(low - (0.02 * reach if low < chance else 0), chance + 1.28 * reach)
    axis.set_title(name)
    axis.set_xlabel(
        f"{METRIC_NAMES.get(metric, metric)} ({'lower' if metric in LOWER_IS_BETTER else 'higher'} is better)",
        color=MUTED,
    )
    axis.grid(True, axis="x", color=FAINT)
    axis.grid(False, axis="y")
    axis.spines["left"].set_visible(chance == low)
    if low < chance:
        axis.axvline(chance, color=MUTED, linewidth=0.8)
