"""Figure 3: the score against the depth of the prototypes and against the batch size."""

import math
from collections.abc import Sequence

from graphlog.benchmark.paper import FIGURE_3_GOOD_FROM
from graphlog.benchmark.tables.grid import Grid
from graphlog.benchmark.tables.names import METRICS, VARIED, label
from graphlog.benchmark.tables.stats import Spread, spread
from graphlog.report.style import HUES, MUTED, Axes, Figure, house_style, new_figure

_PRINTED = HUES[5]
_LOWEST_SPAN = 0.04
"""Least height of an axis, as a fraction, so that specks of difference do not look like worlds."""
_NOTE = 0.28
"""Share of the height that is kept below the points, for what the paper says."""


def sensitivity_figure(grids: Sequence[Grid]) -> Figure:
    """Draw one panel a grid: mean over seeds, SD as a band, each seed as a dot, and what the paper says of its own curve."""
    with house_style():
        figure, axes = new_figure(1, len(grids), 1.0 + 4.4 * len(grids), 3.6)
        for letter, axis, grid in zip("abcdefgh", axes, grids, strict=False):
            _draw_panel(axis, grid)
            axis.set_title(f"({letter}) {VARIED[grid.kind].capitalize()}")
        figure.suptitle(
            f"Figure 3. Sensitivity{grids[0].title.partition(':')[1]}{grids[0].title.partition(':')[2]}",
            **_HEAD,
        )
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


_HEAD = {"x": 0.01, "ha": "left", "fontsize": 11, "fontweight": "bold"}


def _draw_panel(axis: Axes, grid: Grid) -> None:
    places = range(len(grid.rows))
    averages = [grid.average(row.key) for row in grid.rows]
    means = [spread(series) for series in averages]
    known = [(x, m) for x, m in zip(places, means, strict=True) if not math.isnan(m.mean)]
    _shade_good(axis, grid)
    for x, series in zip(places, averages, strict=True):
        seeds = axis.plot(
            [x] * len(series),
            list(series.values()),
            "o",
            color=HUES[0],
            markersize=3,
            alpha=0.4,
            markeredgewidth=0,
        )
        seeds[0].set_label("_" if x else "one seed")
    _draw_line(axis, known)
    _give_room(axis, grid)
    axis.set_xticks(list(places), [row.label for row in grid.rows])
    axis.set_xlim(-0.4, len(grid.rows) - 0.6)
    axis.set_xlabel(VARIED[grid.kind], color=MUTED)
    unit = " (%)" if grid.factor > 1 else ""
    over = (
        f", average of {len(grid.columns)} data sets"
        if len(grid.columns) > 1
        else "".join(f", {name}" for name in grid.labels.values())
    )
    axis.set_ylabel(f"test {label(grid.metric, METRICS)}{unit}{over}", fontsize=8)


def _give_room(axis: Axes, grid: Grid) -> None:
    low, high = axis.get_ylim()
    spare = max(_LOWEST_SPAN * grid.factor - (high - low), 0.0) / 2
    low, high = low - spare, high + spare
    axis.set_ylim(low - _NOTE * (high - low), high)


def _draw_line(axis: Axes, known: Sequence[tuple[int, Spread]]) -> None:
    xs = [x for x, _ in known]
    axis.plot(
        xs,
        [m.mean for _, m in known],
        "-o",
        color=HUES[0],
        markersize=5.5,
        markeredgecolor="white",
        label="mean over seeds",
        zorder=4,
    )
    spreads = [(x, m) for x, m in known if not math.isnan(m.sd)]
    axis.fill_between(
        [x for x, _ in spreads],
        [m.mean - m.sd for _, m in spreads],
        [m.mean + m.sd for _, m in spreads],
        color=HUES[0],
        alpha=0.15,
        linewidth=0,
        label="± SD",
    )


def _shade_good(axis: Axes, grid: Grid) -> None:
    """Shade the settings which the paper's text calls good; its curve is not printed as numbers."""
    good = [x for x, row in enumerate(grid.rows) if float(row.key) >= FIGURE_3_GOOD_FROM[grid.kind]]
    if not good:
        return
    axis.axvspan(
        min(good) - 0.4, len(grid.rows) - 0.6, color=_PRINTED, alpha=0.07, linewidth=0, zorder=0
    )
    told = [f"{grid.printed_head}:", f"higher from {FIGURE_3_GOOD_FROM[grid.kind]} on;"]
    told += [f"{mean} ± {sd} at {key}" for key, (mean, sd) in grid.printed_rows.items()]
    where = (min(good) - 0.33, 0.02)
    style = {"color": _PRINTED, "fontstyle": "italic"}
    axis.text(
        *where,
        "\n".join(told),
        transform=axis.get_xaxis_transform(),
        va="bottom",
        fontsize=7,
        fontdict=style,
    )
