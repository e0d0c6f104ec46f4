"""Scores as dots: a panel a column, a line a row, ours with the spread over seeds beside the paper's."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from matplotlib.lines import Line2D

from graphlog.benchmark.paper import Printed
from graphlog.benchmark.tables.cells import FEATURE_BASELINES
from graphlog.benchmark.tables.grid import Grid, Row
from graphlog.benchmark.tables.names import METRICS, label
from graphlog.benchmark.tables.stats import Series, spread
from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    MUTED,
    Axes,
    Figure,
    headline,
    house_style,
    new_figure,
)

OURS, OTHER, FEATURES, PRINTED = HUES[0], MUTED, HUES[2], HUES[5]
_PER_LINE = 6
_CHANCE = 50.0
_NARROWEST = 0.02
"""Least width of an axis, as a fraction, so that specks of difference do not look like worlds."""


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    measured: Mapping[str, Series]
    printed: Mapping[str, Printed]
    bold: bool = False


def score_dots(grid: Grid) -> Figure:
    """Draw a grid: the mean of each row and column with its SD and its seeds, and the paper's mean and SD."""
    panels = list(_panels(grid))
    lines = math.ceil(len(panels) / _PER_LINE)
    columns = math.ceil(len(panels) / lines)
    height = 0.27 * len(grid.rows) + 0.75
    with house_style():
        figure, axes = new_figure(
            lines,
            columns,
            1.7 + 2.05 * columns + (1.2 if columns < 3 else 0),
            lines * height + 1.0,
            sharey=True,
        )
        for place, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
            _draw_panel(axis, panel, grid, names=place % columns == 0)
            if place % columns == 0:
                axis.set_xlabel(_what(grid), fontsize=7.5, color=MUTED)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        headline(figure, grid.title)
        figure.legend(
            handles=_keys(grid),
            loc="outside lower center",
            ncols=5 if columns > 2 else 2,
            fontsize=8,
        )
    return figure


def _what(grid: Grid) -> str:
    """Return what the x axes show."""
    unit = " (%)" if grid.factor > 1 else ""
    return f"{label(grid.metric, METRICS)}{unit}, {'lower' if grid.metric in LOWER_IS_BETTER else 'higher'} is better"


def _panels(grid: Grid) -> Iterable[_Panel]:
    if grid.averaged and len(grid.columns) > 1:
        printed = {row.key: (grid.paper_average(row.key), None) for row in grid.rows}
        known: dict[str, Printed] = {
            key: value for key, value in printed.items() if not math.isnan(value[0])
        }
        yield _Panel(
            f"Average of {len(grid.columns)}",
            {row.key: grid.average(row.key) for row in grid.rows},
            known,
            bold=True,
        )
    for column in grid.columns:
        printed_here = {
            row.key: grid.printed[row.key, column]
            for row in grid.rows
            if (row.key, column) in grid.printed
        }
        yield _Panel(
            grid.labels[column],
            {row.key: grid.at(row.key, column) for row in grid.rows},
            printed_here,
        )
    if grid.printed_rows:
        yield _Panel(grid.printed_head, {}, grid.printed_rows)


def _draw_panel(axis: Axes, panel: _Panel, grid: Grid, names: bool) -> None:
    for place, row in enumerate(grid.rows):
        printed = panel.printed.get(row.key)
        beside = 0.17 if printed is not None and panel.measured else 0.0
        if printed is not None:
            _draw_printed(axis, printed, place + beside)
        series = panel.measured.get(row.key, {})
        if not series or math.isnan(spread(series).mean):
            if panel.measured:
                axis.plot(
                    0.02,
                    place - beside,
                    "x",
                    color=FAINT,
                    transform=axis.get_yaxis_transform(),
                    markersize=5,
                )
            continue
        _draw_measured(axis, series, place - beside, row, grid)
    reference = spread(panel.measured.get(grid.reference or "", {}))
    if reference.count and not math.isnan(reference.mean):
        axis.axvline(
            reference.mean, color=OURS, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.6, zorder=1
        )
    _set_axes(axis, grid, names)
    axis.set_title(
        panel.title,
        fontstyle="normal" if panel.measured else "italic",
        color=INK if panel.measured else PRINTED,
    )
    if panel.bold:
        axis.set_facecolor("#F5F7FA")


def _draw_measured(axis: Axes, series: Series, place: float, row: Row, grid: Grid) -> None:
    found, colour = spread(series), _colour(row, grid)
    marker = "s" if row.key in FEATURE_BASELINES else "o"
    if found.count > 1:
        axis.plot(
            list(series.values()),
            [place] * found.count,
            "|",
            color=colour,
            markersize=5,
            alpha=0.45,
            zorder=2,
        )
        axis.plot(
            [found.mean - found.sd, found.mean + found.sd],
            [place, place],
            color=colour,
            linewidth=2.2,
            alpha=0.55,
            zorder=3,
        )
    axis.plot(
        found.mean,
        place,
        marker,
        color=colour,
        markersize=5.5,
        zorder=4,
        markeredgecolor="white",
        markeredgewidth=0.6,
    )


def _draw_printed(axis: Axes, printed: Printed, place: float) -> None:
    mean, sd = printed
    if sd is not None:
        axis.plot(
            [mean - sd, mean + sd],
            [place, place],
            color=PRINTED,
            linewidth=1.0,
            alpha=0.6,
            zorder=2,
        )
    axis.plot(
        mean,
        place,
        "D",
        markerfacecolor="white",
        markeredgecolor=PRINTED,
        markersize=4.2,
        markeredgewidth=1.1,
        zorder=4,
    )


def _set_axes(axis: Axes, grid: Grid, names: bool) -> None:
    axis.set_ylim(len(grid.rows) - 0.4, -0.6)
    axis.set_yticks(range(len(grid.rows)), [row.label for row in grid.rows])
    axis.tick_params(axis="y", length=0, labelcolor=INK, labelleft=names)
    for before, (place, row) in zip(grid.rows, list(enumerate(grid.rows))[1:], strict=False):
        if before.group != row.group:
            axis.axhline(place - 0.5, color=FAINT, linewidth=0.8)
    low, high = axis.get_xlim()
    if grid.metric == "roc_auc" and low <= _CHANCE:
        axis.axvline(_CHANCE, color=MUTED, linewidth=0.8, linestyle=":")
    room = max(0.06 * (high - low), (_NARROWEST * grid.factor - (high - low)) / 2)
    axis.set_xlim(low - room, high + room)
    axis.grid(True, axis="x", color=FAINT)
    axis.grid(False, axis="y")
    axis.spines["left"].set_visible(False)


def _colour(row: Row, grid: Grid) -> str:
    if row.key in FEATURE_BASELINES:
        return FEATURES
    return OURS if row.key == grid.reference or row.key.startswith("graphlog") else OTHER


def _keys(grid: Grid) -> list[Line2D]:
    keys = [
        Line2D(
            [],
            [],
            marker="o",
            color=OTHER,
            linewidth=2.2,
            markeredgecolor="white",
            label="measured: mean, SD, seeds (|)",
        )
    ]
    if any(_colour(row, grid) == OURS for row in grid.rows):
        name = grid.reference_label if grid.reference else "GraphLoG"
        keys.append(
            Line2D(
                [], [], marker="o", color=OURS, linewidth=2.2, markeredgecolor="white", label=name
            )
        )
    if plain := [row for row in grid.rows if row.key in FEATURE_BASELINES]:
        name = (
            "fingerprints"
            if any("ECFP" in row.label for row in plain)
            else "statistics of the graphs"
        )
        keys.append(
            Line2D(
                [],
                [],
                marker="s",
                color=FEATURES,
                linewidth=2.2,
                markeredgecolor="white",
                label=name,
            )
        )
    if grid.printed or grid.printed_rows:
        text = grid.printed_head + ": mean, SD"
        keys.append(
            Line2D(
                [],
                [],
                marker="D",
                color=PRINTED,
                markerfacecolor="white",
                linewidth=1.0,
                markersize=4.2,
                label=text,
            )
        )
    if any(not grid.series.get((row.key, c)) for row in grid.rows for c in grid.columns):
        keys.append(Line2D([], [], marker="x", color=FAINT, linestyle="none", label="not measured"))
    return keys
