"""Paired differences to GraphLoG: the interval of the mean, and each data set's own difference."""

import math

from matplotlib.lines import Line2D

from graphlog.benchmark.tables.grid import Grid, Row
from graphlog.benchmark.tables.names import METRICS, MINUS, label
from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    MARKERS,
    MUTED,
    Axes,
    Figure,
    headline,
    house_style,
    new_figure,
)

_NARROWEST = 0.01
"""Least width of the axis, as a fraction."""


def difference_forest(grid: Grid) -> Figure:
    """Draw, for each row but the reference, its paired difference over seeds with a 95 % Student-t interval."""
    rows = [row for row in grid.rows if row.key != grid.reference]
    many = len(grid.columns) > 1
    with house_style():
        figure, (axis,) = new_figure(1, 1, 8.2, 0.34 * len(rows) + 1.7)
        low, high = _reach(grid, rows)
        axis.set_xlim(low, high)
        for place, row in enumerate(rows):
            if many:
                _draw_columns(axis, grid, row, place)
            _draw_mean(axis, grid, row, place)
        axis.axvline(0, color=HUES[0], linewidth=1.2)
        axis.annotate(
            grid.reference_label, (0, 1), xycoords=("data", "axes fraction"), xytext=(0, 2), textcoords="offset points",
            ha="center", va="bottom", fontsize=8, color=HUES[0],
        )  # fmt: skip
        _set_axes(axis, grid, rows)
        if many:
            figure.legend(handles=_keys(grid), loc="outside lower center", ncols=5)
        headline(figure, f"Differences to {grid.reference_label}. {grid.title}", 10)
    return figure


def _draw_mean(axis: Axes, grid: Grid, row: Row, place: int) -> None:
    found = grid.difference(row.key)
    if not found.count or math.isnan(found.mean):
        text = "not measured in full" if grid.measured(row.key) else "not measured"
    else:
        start, end = found.interval()
        text = _signed(grid, found.mean) + (
            " (one seed)"
            if math.isnan(start)
            else f" [{_signed(grid, start)}, {_signed(grid, end)}]"
        )
        apart = not math.isnan(start) and (start > 0 or end < 0)
        if not math.isnan(start):
            axis.plot(
                [start, end],
                [place, place],
                color=INK,
                linewidth=1.8,
                solid_capstyle="butt",
                zorder=4,
            )
        axis.plot(
            found.mean,
            place,
            "s",
            color=INK,
            markerfacecolor=INK if apart else "white",
            markersize=6,
            zorder=5,
        )
    axis.annotate(
        text,
        (1, place),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=INK,
    )


def _draw_columns(axis: Axes, grid: Grid, row: Row, place: int) -> None:
    for number, column in enumerate(grid.columns):
        found = grid.difference(row.key, column)
        if found.count and not math.isnan(found.mean):
            axis.plot(
                found.mean, place + 0.24, MARKERS[number % len(MARKERS)], color=HUES[number % len(HUES)], markersize=4.5,
                alpha=0.8, markeredgewidth=0, zorder=3,
            )  # fmt: skip


def _reach(grid: Grid, rows: list[Row]) -> tuple[float, float]:
    """Return limits that show every interval and every data set's difference."""
    ends = [0.0]
    for row in rows:
        found = [grid.difference(row.key), *(grid.difference(row.key, c) for c in grid.columns)]
        ends += [d.mean for d in found if d.count] + list(found[0].interval())
    ends = [e for e in ends if not math.isnan(e)]
    room = max(
        0.06 * (max(ends) - min(ends)), (_NARROWEST * grid.factor - (max(ends) - min(ends))) / 2
    )
    return min(ends) - room, max(ends) + room


def _set_axes(axis: Axes, grid: Grid, rows: list[Row]) -> None:
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    for place in range(1, len(rows), 2):
        axis.axhspan(place - 0.5, place + 0.5, color="#F6F6F6", linewidth=0, zorder=0)
    axis.grid(True, axis="x", color=FAINT)
    axis.grid(False, axis="y")
    axis.spines["left"].set_visible(False)
    worse, better = ("right", "left") if grid.metric in LOWER_IS_BETTER else ("left", "right")
    unit = " in points" if grid.factor > 1 else ""
    axis.set_xlabel(
        f"difference of {label(grid.metric, METRICS)}{unit}: {worse} of the line is worse, {better} better",
        color=MUTED,
    )


def _keys(grid: Grid) -> list[Line2D]:
    mean = Line2D(
        [],
        [],
        marker="s",
        color=INK,
        linewidth=1.8,
        label="average, 95 % CI (filled: apart from 0)",
    )
    return [
        mean,
        *(
            Line2D(
                [],
                [],
                marker=MARKERS[i % len(MARKERS)],
                color=HUES[i % len(HUES)],
                linestyle="none",
                markersize=4.5,
                label=grid.labels[c],
            )
            for i, c in enumerate(grid.columns)
        ),
    ]


def _signed(grid: Grid, value: float) -> str:
    return f"{value:+.{1 if grid.factor > 1 else 3}f}".replace("-", MINUS)
