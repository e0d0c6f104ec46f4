"""Figures of a benchmark; importing this needs the ``plot`` extra and names it if it is missing."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from graphlog.benchmark.cells import BASELINES, FEATURES, PAPER
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.speed import OF_A_STEP
from graphlog.benchmark.tables import (
    OTHER_PAPER,
    YARDSTICK,
    Table,
    in_order,
    label,
    score_tables,
    spread,
    suite_of,
)
from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.errors import DataError
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
_SYMBOLS = {
    loss: rf"$\mathcal{{L}}_\mathrm{{{short}}}$"
    for loss, short in (("subgraph", "sub"), ("graph", "graph"), ("global", "global"))
}
_AREAS = (150.0, 42.0, 16.0)
"""Area of a prototype's marker, top layer first; deeper layers keep the last."""


def draw_pages(folder: BenchmarkFolder, out: Path) -> dict[str, dict[str, list[Path]]]:
    """Draw the figures of all pages, under the rule that takes no look at the validation fold.

    Returns:
        The files by page and by the heading that they follow.

    Raises:
        DataError: If there are no cells, or a map is missing or damaged.
    """
    names = folder.pages()
    out.mkdir(parents=True, exist_ok=True)
    return {name: _draw_page(name, folder, out) for name in names}


def _draw_page(name: str, folder: BenchmarkFolder, out: Path) -> dict[str, list[Path]]:
    drawn, rows = dict[str, list[Path]](), folder.rows(name)
    first = f"-{next(iter(suite_of(name).metrics), None)}"
    tables = score_tables(name, rows)
    shown = [table for table in tables if "-fixed" in table.name or table.name.endswith(first)]
    curves: dict[str, list[Table]] = {}
    for table in shown:
        if table.kind == "curve":
            curves.setdefault(table.name.rpartition("-")[0], []).append(table)
        elif table.kind == "scores" or table.name.endswith("-summary"):
            drawn[table.title] = save_figure(score_dots(table), out / table.name)
            if any(len(table.difference(row, table.compared)) for row in table.rows):
                stem = out / f"{table.name}-differences"
                drawn[table.title] += save_figure(difference_forest(table), stem)
    for stem, group in curves.items():
        drawn[group[-1].title] = save_figure(sensitivity_figure(group), out / stem)
    if len(rates := rows[rows["metric"] == "graphs_per_s"]) and "speed" in set(rows["stage"]):
        figure = speed_bars(rates[rates["stage"] == "speed"])
        drawn["Pre-training throughput"] = save_figure(figure, out / name)
    if len(stages := rows[(rows["stage"] == "stage-speed") & (rows["rule"] != "")]):
        head = "Pre-training step by batch size, graphs/s"
        drawn[head] = save_figure(stages_figure(stages), out / f"{name}-stages")
    if len(maps := rows[rows["rule"] == "quality"]):
        suite = suite_of(name)
        drawn[suite.title] = save_figure(map_figure(maps, folder, suite.losses), out / name)
    return drawn


def score_dots(table: Table) -> Figure:
    """Draw a panel a column: mean, SD and seeds of each row, and the paper's mean and SD."""
    panels = [*list(table.averages)[:1], *table.columns]
    panels += [""] if any(not column for _, column in table.paper) else []
    lines = math.ceil(len(panels) / _PANELS_A_LINE)
    columns = math.ceil(len(panels) / lines)
    width = 1.7 + 2.05 * columns + (1.2 if columns < 3 else 0)
    height = lines * (0.27 * len(table.rows) + 0.75) + 1.0
    with house_style():
        figure, axes = new_figure(lines, columns, width, height, sharey=True)
        for place, (axis, column) in enumerate(zip(axes, panels, strict=False)):
            for line, row in enumerate(table.rows):
                _draw_dot(axis, line, row, table, column)
            _name_rows(axis, table, list(table.rows), shown=place % columns == 0)
            _widen(axis, 0.06, _NARROWEST["dots"], table)
            if table.metric == "roc_auc" and axis.get_xlim()[0] <= 50:
                axis.axvline(50, color=MUTED, linewidth=0.8, linestyle=":")
            axis.set_title(label(column) or OTHER_PAPER)
            if place % columns == 0:
                better = "lower" if table.metric in LOWER_IS_BETTER else "higher"
                text = f"{_metric(table)}, {better} is better"
                axis.set_xlabel(text, fontsize=7.5, color=MUTED)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        headline(figure, table.title)
        white: dict[str, Any] = {"linewidth": 2.2, "markeredgecolor": "white"}
        keys = [
            _key("o", _OTHER, "measured: mean, SD, seeds (|)", **white),
            _key("o", _GRAPHLOG, "GraphLoG", **white),
            _key("s", _BASELINE, "without an encoder", **white),
        ]
        if table.paper:
            style: dict[str, Any] = {"markerfacecolor": "white", "linewidth": 1.0}
            keys.append(_key("D", _PAPER, "paper (fine-tuned): mean, SD", **style))
        ncols = 4 if columns > 2 else 2
        figure.legend(handles=keys, loc="outside lower center", ncols=ncols, fontsize=8)
    return figure


def difference_forest(table: Table) -> Figure:
    """Draw the paired difference of each row to the reference with a 95 % Student-t interval."""
    rows = [row for row in table.rows if row != table.reference.get(row)]
    many = len(table.columns) > 1
    with house_style():
        figure, (axis,) = new_figure(1, 1, 8.2, 0.34 * len(rows) + 1.7)
        for place, row in enumerate(rows):
            for i, column in enumerate(table.columns if many else ()):
                mean = spread(table.difference(row, column))["mean"]
                style: dict[str, Any] = {"markersize": 4.5, "markeredgewidth": 0, "alpha": 0.8}
                axis.plot(mean, place + 0.24, MARKERS[i % 8], color=HUES[i % 8], **style)
            found = spread(table.difference(row, table.compared))
            filled = INK if found["low"] > 0 or found["high"] < 0 else "white"
            half, style = found["high"] - found["mean"], {"markerfacecolor": filled, "zorder": 5}
            axis.errorbar(found["mean"], place, xerr=half, fmt="s", color=INK, **style)
            where = (1, place), (6, 0), ("axes fraction", "data"), "offset points"
            text = table.change(row, "one seed")
            axis.annotate(text, *where, ha="left", va="center", fontsize=8, color=INK)
        axis.axvline(0, color=_GRAPHLOG, linewidth=1.2)
        _name_rows(axis, table, rows, shown=True)
        _widen(axis, 0.02, _NARROWEST["differences"], table)
        worse, better = ("right", "left") if table.metric in LOWER_IS_BETTER else ("left", "right")
        unit = " in points" if table.percent else ""
        text = f"difference of {label(table.metric)}{unit}: {worse} of the line is worse, {better}"
        axis.set_xlabel(f"{text} better", color=MUTED)
        if many:
            keys = [_key("s", INK, "average, 95 % CI (filled: excludes 0)", linewidth=1.8)]
            for i, column in enumerate(table.columns):
                keys.append(_key(MARKERS[i % 8], HUES[i % 8], label(column), linestyle="none"))
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
            axis.set_title(f"({letter}) {table.heads[0]}")
        headline(figure, tables[0].title.rpartition(",")[0])
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def speed_bars(rates: pd.DataFrame) -> Figure:
    """Draw a panel a backbone; the dotted line is half of AttrMasking's rate."""
    backbones = in_order(rates["backbone"])
    with house_style():
        height = 0.3 * rates["method"].nunique() + 0.7
        figure, axes = new_figure(len(backbones), 1, 6.4, len(backbones) * height + 0.6)
        for axis, backbone in zip(axes, backbones, strict=True):
            by_method = rates[rates["backbone"] == backbone].groupby("method")["value"]
            mean, sd = by_method.mean(), by_method.std().fillna(0.0)
            methods = in_order(mean.index)
            bars = axis.barh(
                range(len(methods)),
                mean[methods],
                height=0.68,
                xerr=sd[methods],
                color=[HUES[0] if m.startswith("graphlog") else REFERENCE for m in methods],
                error_kw={"elinewidth": 1.0, "capsize": 2.5},
            )
            texts = [f"{rate:,.0f}" for rate in mean[methods]]
            if YARDSTICK in mean:
                ratios = mean[methods] / mean[YARDSTICK]
                texts = [f"{text} ({r:.2f}x)" for text, r in zip(texts, ratios, strict=True)]
                axis.axvline(mean[YARDSTICK] / 2, color=MUTED, linewidth=1.0, linestyle=":")
            axis.bar_label(bars, texts, padding=4, fontsize=8)
            axis.set_yticks(range(len(methods)), [label(method) for method in methods])
            axis.invert_yaxis()
            axis.set_xlim(0, 1.3 * float((mean + sd).max()))
            axis.set_title(f"{label(backbone)}, graphs/s")
        headline(figure, "Pre-training throughput (dotted: half of AttrMasking's)")
    return figure


def stages_figure(rows: pd.DataFrame) -> Figure:
    """Draw the share of each part of a pre-training step, and the step's rate by batch size."""
    means = rows.groupby(["rule", "metric"])["value"].mean()
    sides = [s for s in ("fp32", "bf16") if s in means.index]
    with house_style():
        figure, (bars, curve) = new_figure(1, 2, 9.6, 3.4)
        for number, side in enumerate(sides):
            parts = means[side][list(OF_A_STEP)]
            shares, height = 100 * parts / parts.sum(), 0.8 / len(sides)
            places = np.arange(len(parts)) + (number - (len(sides) - 1) / 2) * height
            drawn = bars.barh(places, shares, 0.9 * height, color=HUES[number], label=label(side))
            bars.bar_label(drawn, fmt="%.0f", padding=3, fontsize=7, color=INK)
            if (batches := f"batches {side}") in means.index:
                sizes = means[batches].sort_index(key=lambda index: index.astype(int))
                xs = sizes.index.astype(int)
                curve.plot(xs, sizes, f"-{MARKERS[number]}", color=HUES[number], **_DOT)
                curve.set_xscale("log", base=2)
                curve.set_xticks(xs, sizes.index)
        bars.set_yticks(range(len(OF_A_STEP)), [label(part) for part in OF_A_STEP])
        bars.invert_yaxis()
        bars.set_title("Share of a step, %")
        curve.set_ylim(bottom=0)
        curve.set_xlabel("batch size", color=MUTED)
        curve.set_title("Graphs a second")
        headline(figure, "A pre-training step")
        figure.legend(*bars.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def map_figure(
    rows: pd.DataFrame, folder: BenchmarkFolder, configurations: Sequence[str]
) -> Figure:
    """Draw Figure 4: maps side by side; the largest clusters are colored, the others gray.

    Raises:
        DataError: If the arrays of a map are missing or damaged.
    """
    with house_style():
        count, levels = len(configurations), set[int]()
        figure, axes = new_figure(1, count, 3.9 * count, 4.5)
        for letter, losses, axis in zip("abcdefgh", configurations, axes, strict=False):
            symbols = " + ".join(_SYMBOLS[loss] for loss in losses.split("+"))
            axis.set_title(f"({letter}) {symbols}")
            axis.set(xticks=[], yticks=[])
            axis.grid(False)
            axis.spines[["left", "bottom", "top", "right"]].set(visible=True, color=FAINT)
            part = rows[rows["variant"] == f"losses={losses}"]
            if part.empty:
                style: dict[str, Any] = {"ha": "center", "va": "center", "color": MUTED}
                axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, **style)
                continue
            arrays = _read_map(folder.maps / f"{part['cell'].iloc[0]}.npz")
            _draw_map(axis, arrays, dict(zip(part["metric"], part["value"], strict=True)))
            levels |= {int(level) for level in arrays["layer"]}
        keys = [
            Line2D([], [], linestyle="none", marker="D" if v else "*", markerfacecolor="white",
                   markeredgecolor=INK, markersize=_area(v) ** 0.5,
                   label=f"layer {v + 1}" if v else "prototypes, top layer")
            for v in sorted(levels)
        ]  # fmt: skip
        figure.legend(handles=keys, loc="outside lower center", ncols=4)
        headline(
            figure, "Figure 4. t-SNE of graph embeddings (color and marker: cluster) and prototypes"
        )
    return figure


def _draw_map(axis: Axes, arrays: Mapping[str, np.ndarray], quality: Mapping[str, float]) -> None:
    points, clusters, layers = arrays["coordinates"], arrays["cluster"], arrays["layer"]
    size = float(np.clip(6000 / max(len(points), 1), 2.5, 14))
    style: dict[str, Any] = {"s": size, "linewidths": 0, "alpha": 0.7, "rasterized": True}
    numbers, counts = np.unique(clusters, return_counts=True)
    largest = np.sort(numbers[np.argsort(-counts, kind="stable")[: len(HUES)]])
    for i, cluster in enumerate(largest):
        own = points[clusters == cluster]
        axis.scatter(*own.T, c=HUES[i], marker=MARKERS[i], zorder=2, **style)
    axis.scatter(*points[~np.isin(clusters, largest)].T, c="#BDBDBD", zorder=1, **style)
    for child, parent in enumerate(arrays["parent"]):
        if parent >= 0:
            ends = arrays["prototypes"][[parent, child]].T
            axis.plot(*ends, color=INK, linewidth=0.6, alpha=0.45, zorder=3)
    for level in map(int, np.unique(layers)):
        axis.scatter(
            *arrays["prototypes"][layers == level].T, s=_area(level), c="white", edgecolors=INK,
            marker="D" if level else "*", linewidths=0.9, zorder=6 - min(level, 2),
        )  # fmt: skip
    axis.set_aspect("equal", adjustable="datalim")
    origin = "learned" if arrays["learned"] else "fitted afterwards"
    numbers_text = ", ".join(f"{k.replace('_', ' ')} {v:.3g}" for k, v in quality.items())
    text = f"{len(points):,} graphs, prototypes {origin}\n{numbers_text}"
    axis.set_xlabel(text, color=MUTED, fontsize=8)


def _read_map(path: Path) -> dict[str, np.ndarray]:
    names = ("coordinates", "cluster", "prototypes", "layer", "parent", "learned")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except (OSError, KeyError, ValueError, BadZipFile) as error:
        raise DataError(
            f"{path}, a map of the benchmark, cannot be read ({error}); restore it, or compute the "
            "suite in another folder."
        ) from None


def _draw_dot(axis: Axes, line: int, row: str, table: Table, column: str) -> None:
    mean, sd = table.of_paper(row, column)
    scores = table.at(row, column) if column else pd.Series(dtype="float64")
    apart = 0.17 if not math.isnan(mean) and len(scores) else 0.0
    style: dict[str, Any] = {"markerfacecolor": "white", "markersize": 4.2, "markeredgewidth": 1.1}
    axis.errorbar(mean, line + apart, xerr=sd, fmt="D", color=_PAPER, elinewidth=1.0, **style)
    found, color = spread(scores), _color(row, table)
    if found["seeds"] > 1:
        axis.plot(list(scores), [line - apart] * len(scores), "|", color=color, alpha=0.45)
    style = {"fmt": "s" if color == _BASELINE else "o", "color": color, "elinewidth": 2.2, **_DOT}
    axis.errorbar(found["mean"], line - apart, xerr=found["sd"], **style)


def _draw_curve(axis: Axes, table: Table) -> None:
    points = [row for row in table.rows if "=" in row]
    found = [spread(table.at(row, table.compared)) for row in points]
    for x, row in enumerate(points):
        ys = list(table.at(row, table.compared))
        style: dict[str, Any] = {"color": HUES[0], "markersize": 3, "alpha": 0.4}
        axis.plot([x] * len(ys), ys, "o", label="_" if x else "one seed", **style)
    xs, ys = range(len(points)), np.array([f["mean"] for f in found])
    sds = np.array([f["sd"] for f in found])
    axis.plot(xs, ys, "-o", color=HUES[0], label="mean over seeds", **_DOT)
    axis.fill_between(xs, ys - sds, ys + sds, color=HUES[0], alpha=0.15, linewidth=0, label="± SD")
    values = [float(row.partition("=")[2]) for row in points]
    _draw_good_range(axis, table, points[0].partition("=")[0], values)
    for i, row in enumerate(row for row in table.rows if "=" not in row):
        mean = spread(table.at(row, table.compared))["mean"]
        style = {"linestyle": ":", "linewidth": 1.2, "color": (MUTED, HUES[2], HUES[1])[i % 3]}
        axis.axhline(mean, label=_name(table, row), **style)
    low, high = axis.get_ylim()
    spare = max(_NARROWEST["curves"] / (1 if table.percent else 100) - (high - low), 0.0) / 2
    low, high = low - spare, high + spare
    axis.set_ylim(low - 0.28 * (high - low), high)  # room for what the paper says
    axis.set_xticks(xs, [_name(table, row) for row in points])
    axis.set_xlim(-0.4, len(points) - 0.6)
    axis.set_xlabel(table.heads[0].lower(), color=MUTED)
    axis.set_ylabel(f"test {_metric(table)}, {label(table.compared)}", fontsize=8)


def _draw_good_range(axis: Axes, table: Table, varied: str, values: Sequence[float]) -> None:
    """Shade the settings which the paper's text calls good; its curve is not printed as numbers."""
    good_from = PAPER[f"figure_3_{varied}"]["good_from"]
    good = [x for x, value in enumerate(values) if value >= good_from]
    if good:
        axis.axvspan(good[0] - 0.4, len(values) - 0.6, color=_PAPER, alpha=0.07, zorder=0)
        lines = [f"{OTHER_PAPER}:", f"higher from {good_from} on;"]
        lines += [
            f"{m} ± {sd} at {row.partition('=')[2]}" for (row, _), (m, sd) in table.paper.items()
        ]
        style: dict[str, Any] = {"color": _PAPER, "fontstyle": "italic"}
        where = axis.get_xaxis_transform()
        text = "\n".join(lines)
        axis.text(good[0] - 0.33, 0.02, text, transform=where, va="bottom", fontsize=7, **style)


def _name_rows(axis: Axes, table: Table, rows: Sequence[str], shown: bool) -> None:
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks(range(len(rows)), [_name(table, row) for row in rows])
    axis.tick_params(axis="y", length=0, labelcolor=INK, labelleft=shown)
    axis.grid(True, axis="x", color=FAINT)
    axis.grid(False, axis="y")
    axis.spines["left"].set_visible(False)


def _name(table: Table, row: str) -> str:
    if row.startswith("losses="):
        return row.removeprefix("losses=").replace("+", " + ")
    return ", ".join(text for text in table.rows[row] if text)


def _widen(axis: Axes, margin: float, narrowest: float, table: Table) -> None:
    low, high = axis.get_xlim()
    least = narrowest / (1 if table.percent else 100)
    room = max(margin * (high - low), (least - (high - low)) / 2)
    axis.set_xlim(low - room, high + room)


def _key(marker: str, color: str, text: str, **style: Any) -> Line2D:
    return Line2D([], [], marker=marker, color=color, label=text, **style)


def _color(row: str, table: Table) -> str:
    method = row.rpartition("/")[2]
    if method in (*BASELINES, *FEATURES):
        return _BASELINE
    return _GRAPHLOG if method.startswith("graphlog") or row == table.reference.get(row) else _OTHER


def _metric(table: Table) -> str:
    return label(table.metric) + (" (%)" if table.percent else "")


def _area(level: int) -> float:
    return _AREAS[min(level, len(_AREAS) - 1)]
