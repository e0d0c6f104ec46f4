"""Figures of a benchmark; importing this needs the ``plot`` extra and names it if it is missing."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.map_figure import map_figure, read_maps
from graphlog.benchmark.methods import (
    BASELINES,
    METRIC_LABELS,
    OF_A_STEP,
    PAPER,
    SIDE_LABELS,
    VARIED_LABELS,
    YARDSTICK,
)
from graphlog.benchmark.table import Row, Table, change, spread
from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    MARKERS,
    MUTED,
    REFERENCE,
    Axes,
    Figure,
    Line2D,
    headline,
    house_style,
    new_figure,
    save_figure,
)

_GRAPHLOG, _OTHER, _BASELINE, _PAPER = HUES[0], MUTED, HUES[2], HUES[5]
_PANELS_A_LINE = 6
_NARROWEST = {"dots": 2.0, "differences": 1.0, "curves": 4.0}
"""Least width of an axis in points, so that tiny differences look tiny."""
_DOT: dict[str, Any] = {"markersize": 5.5, "markeredgecolor": "white", "zorder": 4}
_SEED: dict[str, Any] = {"markersize": 3, "markeredgewidth": 0, "alpha": 0.4}
_COLUMN: dict[str, Any] = {"markersize": 4.5, "markeredgewidth": 0, "alpha": 0.8, "zorder": 3}


def draw_tables(tables: Sequence[Table], out: Path, suffix: str = "") -> dict[str, list[Path]]:
    """Draw the figures of a page, under the rule that takes no look at the validation fold.

    Returns:
        The files by the name of the table that they belong to. The curves of Figure 3 of one domain
        and stage share a figure, which belongs to the last of them.
    """
    drawn: dict[str, list[Path]] = {}
    curves: dict[str, list[Table]] = {}
    for table in tables:
        if not table.is_primary:
            continue
        stem = out / f"{table.name}{suffix}"
        match table.kind:
            case "depth" | "batch_size":
                name = table.name.replace(f"-{table.kind.replace('_', '-')}", "")
                curves.setdefault(name, []).append(table)
            case "stages":
                name = table.name.replace("stages", "batch-rates")
                sizes = next(t for t in tables if t.name == name)
                drawn[sizes.name] = save_figure(stages_figure(table, sizes), stem)
            case "speed":
                drawn[table.name] = save_figure(speed_bars(table), stem)
            case "limits" | "batch-rates" | "halves":  # sizes of batches are drawn with the stages
                pass
            case "methods" if table.topic == "backbones":
                pass
            case _:
                drawn[table.name] = save_figure(score_dots(table), stem)
                differs = any(table.difference(row.key).count for row in table.rows)
                if table.kind in ("methods", "ablation") and differs:
                    stem = out / f"{table.name}-differences{suffix}"
                    drawn[table.name] += save_figure(difference_forest(table), stem)
    for name, group in curves.items():
        drawn[group[-1].name] = save_figure(sensitivity_figure(group), out / f"{name}{suffix}")
    return drawn


def draw_maps(
    rows: pd.DataFrame,
    details: Mapping[str, Mapping[str, Any]],
    folder: BenchmarkFolder,
    out: Path,
    suffix: str = "",
) -> list[Path]:
    """Draw Figure 4, one figure for each seed, backbone and domain."""
    maps = read_maps(rows, details, folder)
    return [
        path
        for name, panels in maps.items()
        for path in save_figure(map_figure(panels), out / f"{name}{suffix}")
    ]


def score_dots(table: Table) -> Figure:
    """Draw a panel a column: mean, SD and seeds of each row, and the paper's mean and SD."""
    panels: list[tuple[str, dict[str, pd.Series], dict[str, tuple[float, float]]]] = []
    rows = [row.key for row in table.rows]
    for head, _ in table.averages()[:1]:
        means = {row: (table.average_of_paper(row), math.nan) for row in rows}
        paper = {row: numbers for row, numbers in means.items() if not math.isnan(numbers[0])}
        panels.append((head, {row: table.average(row) for row in rows}, paper))
    for column, head in table.columns.items():
        paper = {row: table.paper[row, column] for row in rows if (row, column) in table.paper}
        panels.append((head, {row: table.at(row, column) for row in rows}, paper))
    if table.paper_rows:
        panels.append((table.paper_head, {}, dict(table.paper_rows)))
    lines = math.ceil(len(panels) / _PANELS_A_LINE)
    columns = math.ceil(len(panels) / lines)
    width = 1.7 + 2.05 * columns + (1.2 if columns < 3 else 0)
    height = lines * (0.27 * len(table.rows) + 0.75) + 1.0
    with house_style():
        figure, axes = new_figure(lines, columns, width, height, sharey=True)
        for place, (axis, (title, measured, paper)) in enumerate(zip(axes, panels, strict=False)):
            for line, row in enumerate(table.rows):
                _draw_dot(axis, line, row, table, measured, paper.get(row.key))
            reference = spread(measured.get(table.reference or "", pd.Series(dtype="float64")))
            if not math.isnan(reference.mean):
                style: dict[str, Any] = {"linestyle": (0, (4, 3)), "alpha": 0.6, "zorder": 1}
                axis.axvline(reference.mean, color=_GRAPHLOG, linewidth=0.8, **style)
            _name_rows(axis, table.rows, shown=place % columns == 0)
            _widen(axis, 0.06, _NARROWEST["dots"], table)
            if table.metric == "roc_auc" and axis.get_xlim()[0] <= 50:
                axis.axvline(50, color=MUTED, linewidth=0.8, linestyle=":")
            slant, color = ("normal", INK) if measured else ("italic", _PAPER)
            axis.set_title(title, fontstyle=slant, color=color)
            if place % columns == 0:
                better = "lower" if table.metric in LOWER_IS_BETTER else "higher"
                text = f"{_metric(table)}, {better} is better"
                axis.set_xlabel(text, fontsize=7.5, color=MUTED)
        if table.averages():
            axes[0].set_facecolor("#F5F7FA")
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        headline(figure, table.title)
        ncols = 5 if columns > 2 else 2
        figure.legend(handles=_dot_keys(table), loc="outside lower center", ncols=ncols, fontsize=8)
    return figure


def difference_forest(table: Table) -> Figure:
    """Draw the paired difference of each row to the reference with a 95 % Student-t interval."""
    rows = [row for row in table.rows if row.key != table.reference]
    many = len(table.columns) > 1
    with house_style():
        figure, (axis,) = new_figure(1, 1, 8.2, 0.34 * len(rows) + 1.7)
        for place, row in enumerate(rows):
            for i, column in enumerate(table.columns if many else ()):
                mean = table.difference(row.key, column).mean
                axis.plot(mean, place + 0.24, MARKERS[i % 8], color=HUES[i % 8], **_COLUMN)
            _draw_difference(axis, table, row, place)
            if place % 2:
                axis.axhspan(place - 0.5, place + 0.5, color="#F6F6F6", linewidth=0, zorder=0)
        axis.axvline(0, color=_GRAPHLOG, linewidth=1.2)
        axis.annotate(
            table.reference_label, (0, 1), (0, 2), ("data", "axes fraction"), "offset points",
            ha="center", va="bottom", fontsize=8, color=_GRAPHLOG,
        )  # fmt: skip
        _name_rows(axis, rows, shown=True)
        _widen(axis, 0.02, _NARROWEST["differences"], table)
        worse, better = ("right", "left") if table.metric in LOWER_IS_BETTER else ("left", "right")
        unit = " in points" if table.percent else ""
        axis.set_xlabel(
            f"difference of {METRIC_LABELS.get(table.metric, table.metric)}{unit}: "
            f"{worse} of the line is worse, {better} better",
            color=MUTED,
        )
        if many:
            keys = [_key("s", INK, "average, 95 % CI (filled: excludes 0)", linewidth=1.8)]
            style: dict[str, Any] = {"linestyle": "none", "markersize": 4.5}
            for i, head in enumerate(table.columns.values()):
                keys.append(_key(MARKERS[i % 8], HUES[i % 8], head, **style))
            figure.legend(handles=keys, loc="outside lower center", ncols=5)
        headline(figure, f"Differences to {table.reference_label}. {table.title}", 10)
    return figure


def sensitivity_figure(tables: Sequence[Table]) -> Figure:
    """Draw Figure 3, one panel a table: mean over seeds, SD as a band, each seed as a dot.

    Rows without pre-training are dotted lines; the shade marks what the paper's text calls good.
    """
    with house_style():
        figure, axes = new_figure(1, len(tables), 1.0 + 4.4 * len(tables), 3.9)
        for letter, axis, table in zip("abcdefgh", axes, tables, strict=False):
            _draw_curve(axis, table)
            axis.set_title(f"({letter}) {VARIED_LABELS[table.kind].capitalize()}")
        rest = tables[0].title.partition(",")[2]
        headline(figure, f"Figure 3. Sensitivity,{rest}")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def speed_bars(table: Table) -> Figure:
    """Draw a panel a backbone and rate; the dotted line is half of AttrMasking's rate."""
    groups = sorted({row.group for row in table.rows})
    tallest = max(sum(row.group == group for row in table.rows) for group in groups)
    width, height = 1.6 + 4.2 * len(table.columns), len(groups) * (0.3 * tallest + 0.7) + 0.6
    with house_style():
        figure, axes = new_figure(len(groups), len(table.columns), width, height, sharex="col")
        panels = [(group, column) for group in groups for column in table.columns]
        for axis, (group, column) in zip(axes, panels, strict=True):
            _draw_bars(axis, table, [r for r in table.rows if r.group == group], column)
        headline(figure, f"{table.title} (dotted: half of AttrMasking's)")
    return figure


def stages_figure(stages: Table, sizes: Table) -> Figure:
    """Draw the share of each part of a pre-training step, and the step's rate by batch size."""
    parts = [row for row in stages.rows if row.key in OF_A_STEP]
    sides = [side for side in SIDE_LABELS if not stages.at("step", side).empty]
    with house_style():
        figure, (bars, curve) = new_figure(1, 2, 9.6, 3.4)
        for number, side in enumerate(sides):
            seconds = [spread(stages.at(row.key, side)).mean for row in parts]
            shares = [100 * s / sum(seconds) for s in seconds]
            height, color = 0.8 / len(sides), HUES[number]
            places = [k + (number - (len(sides) - 1) / 2) * height for k in range(len(parts))]
            bars.barh(places, shares, 0.9 * height, color=color, label=SIDE_LABELS[side])
            for place, share in zip(places, shares, strict=True):
                bars.text(share + 1, place, f"{share:.0f}", va="center", fontsize=7, color=INK)
        _name_rows(bars, parts, shown=True)
        bars.set_title("Share of a step, %")
        for number, (column, label) in enumerate(sizes.columns.items()):
            xs = [int(row.key) for row in sizes.rows]
            means = [spread(sizes.at(row.key, column)).mean for row in sizes.rows]
            style: dict[str, Any] = {**_DOT, "color": HUES[number], "label": label}
            curve.plot(xs, means, f"-{MARKERS[number]}", **style)
        curve.set_xscale("log", base=2)
        curve.set_xticks([int(row.key) for row in sizes.rows], [row.key for row in sizes.rows])
        curve.set_ylim(bottom=0)
        curve.set_xlabel("batch size", color=MUTED)
        curve.set_title("Graphs a second")
        headline(figure, f"{stages.title}: a pre-training step")
        keys = bars.get_legend_handles_labels()
        figure.legend(*keys, loc="outside lower center", ncols=3)
    return figure


def _draw_dot(
    axis: Axes,
    line: int,
    row: Row,
    table: Table,
    measured: Mapping[str, pd.Series],
    paper: tuple[float, float] | None,
) -> None:
    apart = 0.17 if paper is not None and measured else 0.0
    if paper is not None:
        mean, sd = paper
        ends = [mean - sd, mean + sd]
        axis.plot(ends, [line + apart] * 2, color=_PAPER, linewidth=1.0, alpha=0.6, zorder=2)
        style: dict[str, Any] = {"markersize": 4.2, "markeredgewidth": 1.1, "zorder": 4}
        axis.plot(mean, line + apart, "D", markerfacecolor="white", markeredgecolor=_PAPER, **style)
    scores = measured.get(row.key)
    if scores is None:
        return
    summary, color = spread(scores), _color(row.key, table)
    if math.isnan(summary.mean):
        where = axis.get_yaxis_transform()
        axis.plot(0.02, line - apart, "x", color=FAINT, transform=where, markersize=5)
        return
    if summary.count > 1:
        seeds, ends = list(scores), [summary.mean - summary.sd, summary.mean + summary.sd]
        axis.plot(seeds, [line - apart] * len(seeds), "|", color=color, markersize=5, alpha=0.45)
        axis.plot(ends, [line - apart] * 2, color=color, linewidth=2.2, alpha=0.55, zorder=3)
    marker = "s" if row.key in BASELINES else "o"
    style = {**_DOT, "markeredgewidth": 0.6}
    axis.plot(summary.mean, line - apart, marker, color=color, **style)


def _dot_keys(table: Table) -> list[Line2D]:
    white: dict[str, Any] = {"linewidth": 2.2, "markeredgecolor": "white"}
    keys = [_key("o", _OTHER, "measured: mean, SD, seeds (|)", **white)]
    if any(_color(row.key, table) == _GRAPHLOG for row in table.rows):
        name = table.reference_label if table.reference else "GraphLoG"
        keys.append(_key("o", _GRAPHLOG, name, **white))
    if baselines := [row for row in table.rows if row.key in BASELINES]:
        ecfp = any("ECFP" in row.name for row in baselines)
        name = "fingerprints" if ecfp else "statistics of the graphs"
        keys.append(_key("s", _BASELINE, name, **white))
    if table.paper or table.paper_rows:
        style: dict[str, Any] = {"markerfacecolor": "white", "linewidth": 1.0, "markersize": 4.2}
        keys.append(_key("D", _PAPER, f"{table.paper_head}: mean, SD", **style))
    if any(table.at(row.key, c).empty for row in table.rows for c in table.columns):
        keys.append(_key("x", FAINT, "not measured", linestyle="none"))
    return keys


def _draw_difference(axis: Axes, table: Table, row: Row, place: int) -> None:
    difference = table.difference(row.key)
    low, high = difference.interval()
    if math.isnan(difference.mean):
        text = "not measured in full" if table.measured(row.key) else "not measured"
    else:
        text = change(table, difference, alone="one seed")
        style: dict[str, Any] = {"color": INK, "solid_capstyle": "butt", "zorder": 4}
        axis.plot([low, high], [place, place], linewidth=1.8, **style)
        style = {"markerfacecolor": INK if low > 0 or high < 0 else "white", "zorder": 5}
        axis.plot(difference.mean, place, "s", color=INK, markersize=6, **style)
    where = (1, place), (6, 0), ("axes fraction", "data"), "offset points"
    axis.annotate(text, *where, ha="left", va="center", fontsize=8, color=INK)


def _draw_curve(axis: Axes, table: Table) -> None:
    points = [row for row in table.rows if not row.group]
    averages = [table.average(row.key) for row in points]
    means = [spread(scores) for scores in averages]
    for x, scores in enumerate(averages):
        label = "_" if x else "one seed"
        axis.plot([x] * len(scores), list(scores), "o", color=HUES[0], label=label, **_SEED)
    xs, ys = list(range(len(points))), np.array([m.mean for m in means])
    sds = np.array([m.sd for m in means])
    axis.plot(xs, ys, "-o", color=HUES[0], label="mean over seeds", **_DOT)
    axis.fill_between(xs, ys - sds, ys + sds, color=HUES[0], alpha=0.15, linewidth=0, label="± SD")
    _draw_good_range(axis, table, [float(row.key) for row in points])
    for i, row in enumerate(row for row in table.rows if row.group):
        mean = spread(table.average(row.key)).mean
        if not math.isnan(mean):
            color = (MUTED, HUES[2], HUES[1])[i % 3]
            axis.axhline(mean, label=row.name, linestyle=":", linewidth=1.2, color=color)
    low, high = axis.get_ylim()
    spare = max(_NARROWEST["curves"] / (1 if table.percent else 100) - (high - low), 0.0) / 2
    low, high = low - spare, high + spare
    axis.set_ylim(low - 0.28 * (high - low), high)  # room for what the paper says
    axis.set_xticks(xs, [row.name for row in points])
    axis.set_xlim(-0.4, len(points) - 0.6)
    axis.set_xlabel(VARIED_LABELS[table.kind], color=MUTED)
    heads = list(table.columns.values())
    over = f"average of {len(heads)} data sets" if len(heads) > 1 else "".join(heads)
    axis.set_ylabel(f"test {_metric(table)}, {over}", fontsize=8)


def _draw_good_range(axis: Axes, table: Table, values: Sequence[float]) -> None:
    """Shade the settings which the paper's text calls good; its curve is not printed as numbers."""
    good_from = PAPER[f"figure_3_{table.kind}"]["good_from"]
    good = [x for x, value in enumerate(values) if value >= good_from]
    if not good:
        return
    start, end = good[0] - 0.4, len(values) - 0.6
    axis.axvspan(start, end, color=_PAPER, alpha=0.07, linewidth=0, zorder=0)
    lines = [f"{table.paper_head}:", f"higher from {good_from} on;"]
    lines += [f"{mean} ± {sd} at {key}" for key, (mean, sd) in table.paper_rows.items()]
    where = axis.get_xaxis_transform()
    style: dict[str, Any] = {"color": _PAPER, "fontstyle": "italic"}
    text, place = "\n".join(lines), (good[0] - 0.33, 0.02)
    axis.text(*place, text, transform=where, va="bottom", fontsize=7, fontdict=style)


def _draw_bars(axis: Axes, table: Table, rows: Sequence[Row], column: str) -> None:
    rates = [spread(table.at(row.key, column)) for row in rows]
    means = [rate.mean if rate.count else 0.0 for rate in rates]
    sds = [rate.sd if rate.count > 1 else 0.0 for rate in rates]
    ratio = table.speed_ratios()[column]
    reach = max(mean + sd for mean, sd in zip(means, sds, strict=True)) or 1.0
    bars = axis.barh(range(len(rows)), means, height=0.68, edgecolor="white")
    style: dict[str, Any] = {"fmt": "none", "ecolor": INK, "elinewidth": 1.0, "capsize": 2.5}
    axis.errorbar(means, range(len(rows)), xerr=sds, **style)
    for place, (row, bar, rate) in enumerate(zip(rows, bars, rates, strict=True)):
        is_graphlog = row.key.startswith("graphlog/")
        bar.set_facecolor(HUES[0] if is_graphlog else REFERENCE)
        bar.set_hatch("" if is_graphlog else "//")
        text = f"{rate.mean:,.0f}" if rate.count else "not measured"
        if not math.isnan(ratio[row.key]):
            text += f" ({ratio[row.key]:.2f}x)"
        where = means[place] + sds[place] + 0.02 * reach
        axis.text(where, place, text, va="center", fontsize=8, color=INK)
        if row.key.startswith(f"{YARDSTICK}/") and rate.count:
            axis.axvline(rate.mean / 2, color=MUTED, linewidth=1.0, linestyle=":")
    _name_rows(axis, rows, shown=True)
    axis.set_xlim(0, max(axis.get_xlim()[1], 1.3 * reach))
    axis.set_title(f"{rows[0].heads[1]}, {table.columns[column].lower()}")


def _name_rows(axis: Axes, rows: Sequence[Row], shown: bool) -> None:
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks(range(len(rows)), [row.name for row in rows])
    axis.tick_params(axis="y", length=0, labelcolor=INK, labelleft=shown)
    for place in range(1, len(rows)):
        if rows[place - 1].group != rows[place].group:
            axis.axhline(place - 0.5, color=FAINT, linewidth=0.8)
    axis.grid(True, axis="x", color=FAINT)
    axis.grid(False, axis="y")
    axis.spines["left"].set_visible(False)


def _widen(axis: Axes, margin: float, narrowest: float, table: Table) -> None:
    low, high = axis.get_xlim()
    least = narrowest / (1 if table.percent else 100)
    room = max(margin * (high - low), (least - (high - low)) / 2)
    axis.set_xlim(low - room, high + room)


def _key(marker: str, color: str, text: str, **style: Any) -> Line2D:
    return Line2D([], [], marker=marker, color=color, label=text, **style)


def _color(row: str, table: Table) -> str:
    if row in BASELINES:
        return _BASELINE
    return _GRAPHLOG if row == table.reference or row.startswith("graphlog") else _OTHER


def _metric(table: Table) -> str:
    return METRIC_LABELS.get(table.metric, table.metric) + (" (%)" if table.percent else "")
