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
from graphlog.benchmark.tables import (
    OTHER_PAPER,
    YARDSTICK,
    Table,
    in_order,
    label,
    score_tables,
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

_GRAPHLOG, _BASELINE, _PAPER = HUES[0], HUES[2], HUES[5]
_PANELS_A_LINE = 6
_NARROWEST = {"dots": 2.0, "curve": 4.0}
"""Least range of an axis in points, so that tiny differences look tiny."""
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
    suite, rows, drawn = suite_of(name), folder.rows(name), dict[str, list[Path]]()
    first = f"-{next(iter(suite.metrics), None)}"
    curves: dict[str, list[Table]] = {}
    for table in score_tables(name, rows):
        if "-fixed" not in table.name and not table.name.endswith(first):
            continue
        if table.kind == "curve":
            curves.setdefault(table.name.rpartition("-")[0], []).append(table)
        elif table.kind == "scores" or table.name.endswith("-summary"):
            drawn[table.title] = save_figure(score_dots(table), out / table.name)
    for stem, group in curves.items():
        drawn[group[-1].title] = save_figure(sensitivity_figure(group), out / stem)
    rates = rows[(rows["stage"] == "speed") & (rows["metric"] == "graphs_per_s")]
    if len(rates):
        drawn["Pre-training throughput"] = save_figure(speed_bars(rates), out / name)
    if len(maps := rows[rows["rule"] == "quality"]):
        drawn[suite.title] = save_figure(map_figure(maps, folder, suite.losses), out / name)
    return drawn


def score_dots(table: Table) -> Figure:
    """Draw a panel a column: mean, SD and seeds of each row, and the paper's mean and SD."""
    panels = [*list(table.averages)[:1], *table.columns]
    panels += [""] if any(not column for _, column in table.paper) else []
    lines = math.ceil(len(panels) / _PANELS_A_LINE)
    columns = math.ceil(len(panels) / lines)
    places = {row: float(place) for place, row in enumerate(table.rows)}
    ys, colors = np.array(list(places.values())), [_color(row, table) for row in table.rows]
    with house_style():
        width, height = 1.7 + 2.05 * columns, lines * (0.27 * len(ys) + 0.75) + 1.0
        figure, axes = new_figure(lines, columns, max(width, 4.9), height, sharey=True)
        for place, (axis, column) in enumerate(zip(axes, panels, strict=False)):
            found = table.column(column)
            style: dict[str, Any] = {"color": _PAPER, "markerfacecolor": "white", "elinewidth": 1.0}
            paper = found["paper"], ys + 0.17 * found["mean"].notna()
            axis.errorbar(*paper, xerr=found["paper_sd"], fmt="D", markersize=4.2, **style)
            ours = found["mean"], ys - 0.17 * found["paper"].notna()
            ends = found["mean"] - found["sd"], found["mean"] + found["sd"]
            axis.hlines(ours[1], *ends, colors=colors, linewidth=2.2)
            axis.scatter(*ours, c=colors, s=30, edgecolors="white", zorder=4)
            for row, y in zip(places, ours[1], strict=True):
                if len(seeds := table.at(row, column)) > 1:
                    axis.plot(seeds, [y] * len(seeds), "|", color=_color(row, table), alpha=0.45)
            axis.set_ylim(len(ys) - 0.4, -0.6)
            axis.set_yticks(ys, [_name(table, row) for row in places])
            axis.tick_params(axis="y", length=0, labelcolor=INK, labelleft=place % columns == 0)
            axis.grid(True, axis="x", color=FAINT)
            axis.grid(False, axis="y")
            axis.spines["left"].set_visible(False)
            axis.set_xlim(*_widened(axis.get_xlim(), "dots", table))
            axis.set_title(label(column) or OTHER_PAPER)
            if place % columns == 0:
                better = "lower" if table.metric in LOWER_IS_BETTER else "higher"
                text = f"{_metric(table)}, {better} is better"
                axis.set_xlabel(text, fontsize=7.5, color=MUTED)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        headline(figure, table.title)
        keys = [
            Line2D([], [], marker="o", color=color, label=text)
            for color, text in (
                (MUTED, "measured: mean, SD, seeds (|)"),
                (_GRAPHLOG, "GraphLoG"),
                (_BASELINE, "without an encoder"),
            )
        ]
        if table.paper:
            text = "paper (fine-tuned): mean, SD"
            keys.append(
                Line2D([], [], marker="D", markerfacecolor="white", color=_PAPER, label=text)
            )
        figure.legend(handles=keys, loc="outside lower center", ncols=4 if columns > 2 else 2)
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


def _draw_curve(axis: Axes, table: Table) -> None:
    points = [row for row in table.rows if "=" in row]
    numbers = table.column(table.compared)
    found, xs = numbers.loc[points], np.arange(len(points))
    for x, row in enumerate(points):
        seeds = table.at(row, table.compared)
        style: dict[str, Any] = {"color": HUES[0], "markersize": 3, "alpha": 0.4}
        axis.plot([x] * len(seeds), seeds, "o", label="_" if x else "one seed", **style)
    axis.plot(xs, found["mean"], "-o", color=HUES[0], label="mean over seeds", zorder=4)
    band = found["mean"] - found["sd"], found["mean"] + found["sd"]
    axis.fill_between(xs, *band, color=HUES[0], alpha=0.15, linewidth=0, label="± SD")
    for i, row in enumerate(row for row in table.rows if "=" not in row):
        style = {"linestyle": ":", "linewidth": 1.2, "color": (MUTED, HUES[2], HUES[1])[i % 3]}
        axis.axhline(numbers["mean"][row], label=_name(table, row), **style)
    low, high = _widened(axis.get_ylim(), "curve", table)
    axis.set_ylim(low - 0.28 * (high - low), high)  # room for what the paper says
    axis.set_xticks(xs, [_name(table, row) for row in points])
    axis.set_xlim(-0.4, len(points) - 0.6)
    axis.set_xlabel(table.heads[0].lower(), color=MUTED)
    axis.set_ylabel(f"test {_metric(table)}, {label(table.compared)}", fontsize=8)
    # the curve of the paper is not printed as numbers, only from where on it is good
    good_from = PAPER[f"figure_3_{points[0].partition('=')[0]}"]["good_from"]
    good = [x for x, row in enumerate(points) if float(row.partition("=")[2]) >= good_from]
    if good:
        axis.axvspan(good[0] - 0.4, len(points) - 0.6, color=_PAPER, alpha=0.07, zorder=0)
        said = [
            f"{m} ± {sd} at {row.partition('=')[2]}" for (row, _), (m, sd) in table.paper.items()
        ]
        text = "\n".join([f"{OTHER_PAPER}:", f"higher from {good_from} on;", *said])
        style = {"color": _PAPER, "fontstyle": "italic", "fontsize": 7, "va": "bottom"}
        axis.text(good[0] - 0.33, 0.02, text, transform=axis.get_xaxis_transform(), **style)


def speed_bars(rates: pd.DataFrame) -> Figure:
    """Draw a panel a backbone; the dotted line is half of AttrMasking's rate."""
    backbones = in_order(rates["backbone"])
    with house_style():
        height = 0.3 * rates["method"].nunique() + 0.7
        figure, axes = new_figure(len(backbones), 1, 6.4, len(backbones) * height + 0.6)
        for axis, backbone in zip(axes, backbones, strict=True):
            by_method = rates[rates["backbone"] == backbone].groupby("method")["value"]
            found = by_method.agg(["mean", "std"]).fillna(0.0)
            found = found.loc[in_order(found.index)]
            colors = [HUES[0] if m.startswith("graphlog") else REFERENCE for m in found.index]
            style: dict[str, Any] = {
                "color": colors,
                "error_kw": {"elinewidth": 1.0, "capsize": 2.5},
            }
            bars = axis.barh(range(len(found)), found["mean"], 0.68, xerr=found["std"], **style)
            texts = [f"{rate:,.0f}" for rate in found["mean"]]
            if YARDSTICK in found.index:
                yardstick = float(found["mean"][YARDSTICK])
                ratios = found["mean"] / yardstick
                texts = [f"{text} ({r:.2f}x)" for text, r in zip(texts, ratios, strict=True)]
                axis.axvline(yardstick / 2, color=MUTED, linewidth=1.0, linestyle=":")
            axis.bar_label(bars, texts, padding=4, fontsize=8)
            axis.set_yticks(range(len(found)), [label(method) for method in found.index])
            axis.invert_yaxis()
            axis.set_xlim(0, 1.3 * float(found.sum(axis=1).max()))
            axis.set_title(f"{label(backbone)}, graphs/s")
        headline(figure, "Pre-training throughput (dotted: half of AttrMasking's)")
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


def _name(table: Table, row: str) -> str:
    if row.startswith("losses="):
        return row.removeprefix("losses=").replace("+", " + ")
    return ", ".join(text for text in table.rows[row] if text)


def _widened(limits: tuple[float, float], kind: str, table: Table) -> tuple[float, float]:
    """Return limits of an axis that are not too near to each other."""
    low, high = limits
    least = _NARROWEST[kind] / (1 if table.percent else 100)
    spare = max(0.03 * (high - low), (least - (high - low)) / 2)
    return low - spare, high + spare


def _color(row: str, table: Table) -> str:
    method = row.rpartition("/")[2]
    if method in (*BASELINES, *FEATURES):
        return _BASELINE
    is_ours = method.startswith("graphlog") or row == table.reference(row)
    return _GRAPHLOG if is_ours else MUTED


def _metric(table: Table) -> str:
    return label(table.metric) + (" (%)" if table.percent else "")


def _area(level: int) -> float:
    return _AREAS[min(level, len(_AREAS) - 1)]
