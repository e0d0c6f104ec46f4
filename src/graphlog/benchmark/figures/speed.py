"""Throughput of pre-training as bars, beside AttrMasking's."""

from matplotlib.patches import Patch

from graphlog.benchmark.tables.grid import Grid, Row
from graphlog.benchmark.tables.stats import spread
from graphlog.benchmark.tables.timing import RATES, YARDSTICK, relative_speed
from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    MUTED,
    REFERENCE,
    Axes,
    Figure,
    headline,
    house_style,
    new_figure,
)


def speed_bars(grid: Grid) -> Figure:
    """Draw a panel a backbone and rate; the dotted line is half of AttrMasking's rate."""
    groups = sorted({row.group for row in grid.rows})
    tallest = max(sum(row.group == g for row in grid.rows) for g in groups)
    with house_style():
        figure, axes = new_figure(
            len(groups),
            len(grid.columns),
            1.6 + 4.2 * len(grid.columns),
            len(groups) * (0.3 * tallest + 0.7) + 0.6,
            sharex="col",
        )
        panels = [(group, column) for group in groups for column in grid.columns]
        for axis, (group, column) in zip(axes, panels, strict=True):
            _draw_panel(axis, grid, [row for row in grid.rows if row.group == group], column)
        headline(figure, f"{grid.title} (dotted: half of AttrMasking's)")
    return figure


def _draw_panel(axis: Axes, grid: Grid, rows: list[Row], column: str) -> None:
    rates = [spread(grid.series[row.key, column]) for row in rows]
    means = [rate.mean if rate.count else 0.0 for rate in rates]
    ours = [row.key.startswith("graphlog/") for row in rows]
    bars = axis.barh(
        range(len(rows)), means, height=0.68, color=[HUES[0] if own else REFERENCE for own in ours]
    )
    for bar, own in zip(bars, ours, strict=True):
        _hatch(bar, not own)
    spreads = [rate.sd if rate.count > 1 else 0.0 for rate in rates]
    axis.errorbar(
        means, range(len(rows)), xerr=spreads, fmt="none", ecolor=INK, elinewidth=1.0, capsize=2.5
    )
    reach = max(m + s for m, s in zip(means, spreads, strict=True)) or 1.0
    for place, (row, rate, sd) in enumerate(zip(rows, rates, spreads, strict=True)):
        share = relative_speed(grid, row, column)
        text = (
            f"{rate.mean:,.0f}" + (f" ({share.mean:.2f}x)" if share.count else "")
            if rate.count
            else "not measured"
        )
        axis.text(
            (rate.mean if rate.count else 0) + sd + 0.02 * reach,
            place,
            text,
            va="center",
            fontsize=8,
            color=INK,
        )
        if row.key.startswith(f"{YARDSTICK}/") and rate.count:
            axis.axvline(rate.mean / 2, color=MUTED, linewidth=1.0, linestyle=":")
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, max(axis.get_xlim()[1], 1.3 * reach))
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.set_title(f"{rows[0].heads[1]}, {RATES[column].lower()}")
    axis.grid(True, axis="x", color=FAINT)
    axis.grid(False, axis="y")


def _hatch(bar: Patch, on: bool) -> None:
    bar.set_hatch("//" if on else "")
    bar.set_edgecolor("white")
