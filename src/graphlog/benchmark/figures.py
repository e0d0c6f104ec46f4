"""Figures of a benchmark; without the ``plot`` extra, importing this module raises an error."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from graphlog.benchmark.cells import BASELINES, FEATURES, LOSSES, PAPER
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.tables import OTHER_PAPER, Table, label, score_tables, suite_of
from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.errors import DataError
from graphlog.report.style import (
    HUES,
    INK,
    MUTED,
    Axes,
    Figure,
    Line2D,
    as_map,
    as_rows,
    headline,
    house_style,
    new_figure,
    save_figure,
    scatter_groups,
)

_GRAPHLOG, _BASELINE, _PAPER = HUES[0], HUES[2], HUES[5]
_PANELS_PER_LINE = 6
_PAPER_MARKER: dict[str, Any] = {"marker": "D", "markerfacecolor": "white", "color": _PAPER}
_PAPER_BAR: dict[str, Any] = {**_PAPER_MARKER, "markersize": 4.2, "elinewidth": 1.0}
_PROTOTYPE_MARKER: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": INK}
_TOP_LAYER: dict[str, Any] = {"marker": "*", "markersize": 12, "zorder": 5}
_OTHER_LAYERS: dict[str, Any] = {"marker": "D", "markersize": 5, "zorder": 4}
"""Styles of prototypes of the top layer and of other layers."""


def draw_pages(folder: BenchmarkFolder, out: Path) -> dict[str, dict[str, list[Path]]]:
    """Draw the figures of all pages, with scores that do not depend on the validation set.

    Returns:
        The files by page and by the heading in the page that they belong to.

    Raises:
        DataError: If there are no finished cells, or a map is missing or damaged.
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
        elif table.kind in ("scores", "summary"):
            drawn[table.title] = save_figure(score_dots(table), out / table.name)
    for stem, group in curves.items():
        drawn[group[-1].title] = save_figure(sensitivity_figure(group), out / stem)
    if len(maps := rows[rows["rule"] == "quality"]):
        drawn[suite.title] = save_figure(map_figure(maps, folder, suite.losses), out / name)
    return drawn


def score_dots(table: Table) -> Figure:
    """Draw a panel per column: mean, SD and seeds of each row, and the paper's mean and SD."""
    panels = [*list(table.averages)[:1], *table.columns]
    panels += [""] if any(not column for _, column in table.paper) else []
    lines = math.ceil(len(panels) / _PANELS_PER_LINE)
    columns = math.ceil(len(panels) / lines)
    ys, colors = np.arange(len(table.rows)), [_color(row, table) for row in table.rows]
    with house_style():
        width, height = 1.7 + 2.05 * columns, lines * (0.27 * len(ys) + 0.75) + 1.0
        figure, axes = new_figure(lines, columns, max(width, 4.9), height, sharey=True)
        for place, (axis, column) in enumerate(zip(axes, panels, strict=False)):
            numbers = table.column(column)
            mean, paper = numbers["mean"], numbers["paper"]
            paper_ys, sd = ys + 0.17 * mean.notna(), numbers["paper_sd"]
            axis.errorbar(paper, paper_ys, xerr=sd, linestyle="none", **_PAPER_BAR)
            our_ys = ys - 0.17 * paper.notna()
            ends = mean - numbers["sd"], mean + numbers["sd"]
            axis.hlines(our_ys, *ends, colors=colors, linewidth=2.2)
            axis.scatter(mean, our_ys, c=colors, s=30, edgecolors="white", zorder=4)
            for row, color, y in zip(table.rows, colors, our_ys, strict=True):
                if len(seeds := table.scores_of(row, column)) > 1:
                    axis.plot(seeds, [y] * len(seeds), "|", color=color, alpha=0.45)
            axis.set_ylim(len(ys) - 0.4, -0.6)
            as_rows(axis, ys, [_name(table, row) for row in table.rows])
            axis.tick_params(axis="y", labelleft=place % columns == 0)
            axis.set_xlim(*_widened(axis.get_xlim(), 2.0, table))
            axis.set_title(label(column) or OTHER_PAPER)
            if place % columns == 0:
                better = "lower" if table.metric in LOWER_IS_BETTER else "higher"
                axis.set_xlabel(f"{_metric(table)}, {better} is better", fontsize=7.5)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        headline(figure, table.title)
        color_names = {"GraphLoG": _GRAPHLOG, "without an encoder": _BASELINE}
        legend = {"measured: mean, SD, seeds (|)": MUTED}
        legend |= {text: color for text, color in color_names.items() if color in colors}
        handles = [Line2D([], [], marker="o", color=c, label=text) for text, c in legend.items()]
        if table.paper:
            handles.append(Line2D([], [], **_PAPER_MARKER, label="paper (fine-tuned): mean, SD"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4 if columns > 2 else 2)
    return figure


def sensitivity_figure(tables: Sequence[Table]) -> Figure:
    """Draw Figure 3, a panel per table: mean over seeds, SD as a band, each seed as a dot.

    Rows without pre-training are dotted lines. The values that the paper's text calls good have a
    shaded background.
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
    mean, sd = numbers["mean"][points], numbers["sd"][points]
    xs = np.arange(len(points))
    for x, row in enumerate(points):
        seeds, text = table.scores_of(row, table.compared), "_" if x else "one seed"
        axis.plot([x] * len(seeds), seeds, "C0o", label=text, markersize=3, alpha=0.4)
    axis.plot(xs, mean, "C0-o", label="mean over seeds", zorder=4)
    band = mean - sd, mean + sd
    axis.fill_between(xs, *band, color="C0", alpha=0.15, linewidth=0, label="± SD")
    for i, row in enumerate(row for row in table.rows if "=" not in row):
        y, color = numbers["mean"][row], (MUTED, "C2", "C1")[i % 3]
        axis.axhline(y, label=_name(table, row), linestyle=":", linewidth=1.2, color=color)
    low, high = _widened(axis.get_ylim(), 4.0, table)
    axis.set_ylim(low - 0.28 * (high - low), high)  # room for the text about the paper
    axis.set_xticks(xs, [_name(table, row) for row in points])
    axis.set_xlim(-0.4, len(points) - 0.6)
    axis.set_xlabel(table.heads[0].lower())
    axis.set_ylabel(f"test {_metric(table)}, {label(table.compared)}", fontsize=8)
    # the paper has no numbers of its curve; its text says from which value on it is good
    good_from = PAPER[f"figure_3_{points[0].partition('=')[0]}"]["good_from"]
    good = [x for x, row in enumerate(points) if float(row.partition("=")[2]) >= good_from]
    if good:
        axis.axvspan(good[0] - 0.4, len(points) - 0.6, color=_PAPER, alpha=0.07, zorder=0)
        scores = [
            f"{m} ± {sd} at {row.partition('=')[2]}" for (row, _), (m, sd) in table.paper.items()
        ]
        text = "\n".join([f"{OTHER_PAPER}:", f"higher from {good_from} on;", *scores])
        style: dict[str, Any] = {"color": _PAPER, "fontstyle": "italic", "fontsize": 7}
        axis.text(good[0] - 0.33, 0.02, text, transform=axis.get_xaxis_transform(), **style)


def map_figure(
    rows: pd.DataFrame, folder: BenchmarkFolder, configurations: Sequence[str]
) -> Figure:
    """Draw Figure 4: maps side by side, with the largest clusters in color and the others gray.

    Of several seeds, the first is drawn.

    Raises:
        DataError: If the arrays of a map are missing or damaged.
    """
    count = len(configurations)
    with house_style():
        figure, axes = new_figure(1, count, 3.9 * count, 4.5)
        for letter, losses, axis in zip("abcdefgh", configurations, axes, strict=False):
            axis.set_title(f"({letter}) {' + '.join(LOSSES[loss] for loss in losses.split('+'))}")
            as_map(axis)
            axis.spines[:].set_visible(True)
            part = rows[rows["variant"] == f"losses={losses}"]
            if part.empty:
                style: dict[str, Any] = {"ha": "center", "va": "center", "color": MUTED}
                axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, **style)
                continue
            cell = part["cell"].iloc[0]
            arrays, part = _read_map(folder.maps / f"{cell}.npz"), part[part["cell"] == cell]
            _draw_map(axis, arrays)
            origin = "learned" if arrays["learned"] else "fitted afterwards"
            values = zip(part["metric"].str.replace("_", " "), part["value"], strict=True)
            numbers = ", ".join(f"{name} {value:.3g}" for name, value in values)
            text = f"{len(arrays['coordinates']):,} graphs, prototypes {origin}\n{numbers}"
            axis.set_xlabel(text, fontsize=8)
        layers = {"prototypes, top layer": _TOP_LAYER, "other layers": _OTHER_LAYERS}
        handles = [
            Line2D([], [], linestyle="none", label=text, **_PROTOTYPE_MARKER, **style)
            for text, style in layers.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        headline(
            figure, "Figure 4. t-SNE of graph embeddings (color and marker: cluster) and prototypes"
        )
    return figure


def _draw_map(axis: Axes, arrays: Mapping[str, np.ndarray]) -> None:
    points, clusters, prototypes = (arrays[k] for k in ("coordinates", "cluster", "prototypes"))
    size = float(np.clip(6000 / max(len(points), 1), 2.5, 14))
    scatter_groups(axis, points, clusters, size, 0.7, rasterized=True)
    (below,) = np.nonzero(arrays["parent"] >= 0)
    ends = prototypes[np.stack([arrays["parent"][below], below])]
    axis.plot(*ends.transpose(2, 0, 1), color=INK, linewidth=0.6, alpha=0.45)
    axis.plot(*prototypes[below].T, " ", **_PROTOTYPE_MARKER, **_OTHER_LAYERS)
    axis.plot(*prototypes[arrays["layer"] == 0].T, " ", **_PROTOTYPE_MARKER, **_TOP_LAYER)


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
    return ", ".join(text for text in table.rows[row] if text)


def _widened(limits: tuple[float, float], points: float, table: Table) -> tuple[float, float]:
    """Return limits at least ``points`` percent apart, so that small differences look small."""
    low, high = limits
    min_range = points / (1 if table.percent else 100)
    margin = max(0.03 * (high - low), (min_range - (high - low)) / 2)
    return low - margin, high + margin


def _color(row: str, table: Table) -> str:
    method = row.rpartition("/")[2]
    if method in (*BASELINES, *FEATURES):
        return _BASELINE
    is_ours = method.startswith("graphlog") or row == table.reference(row)
    return _GRAPHLOG if is_ours else MUTED


def _metric(table: Table) -> str:
    return label(table.metric) + (" (%)" if table.percent else "")
