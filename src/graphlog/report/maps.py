"""The embedding map: a sample of graphs on the plane, colored, with the prototypes of the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.encoder import Encoder
from graphlog.errors import DataError, unknown_name
from graphlog.report.hierarchy import Hierarchy
from graphlog.report.projection import project, sample_rows
from graphlog.report.style import (
    FAINT,
    HUES,
    MARKERS,
    MUTED,
    Axes,
    Figure,
    house_style,
    literal,
    new_figure,
    save_figure,
)
from graphlog.report.tree import path_name


def embedding_map(
    points: Float[np.ndarray, "N 2"],
    groups: Sequence[str] | None = None,
    values: Float[np.ndarray, "N"] | None = None,
    *,
    title: str,
    legend: str = "",
    hues: Sequence[str] | None = None,
) -> Figure:
    """Draw a map colored by ``groups`` (the seven largest get hues) or by ``values``.

    Args:
        points: Positions, one a graph.
        groups: Name of each graph's group: cluster, label or scaffold.
        values: A number for each graph, in place of ``groups``; NaN is drawn faint.
        title: What the map shows.
        legend: What the colors mean.
        hues: Names of groups in the order of the hues; None gives them to the largest.
    """
    with house_style():
        figure, (axes,) = new_figure(1, 1, 7.6, 5.2)
        size = float(np.clip(9000 / max(len(points), 1), 4, 24))
        if values is not None:
            _scatter_values(figure, axes, points, values, legend, size)
        else:
            _scatter_groups(axes, points, groups or ["all"] * len(points), legend, size, hues)
        axes.set_title(literal(title))
        axes.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
        axes.set_aspect("equal", adjustable="datalim")
        axes.grid(False)
        axes.spines[["left", "bottom"]].set_color(FAINT)
        axes.xaxis.label.set_color(MUTED)
        axes.yaxis.label.set_color(MUTED)
    return figure


def _scatter_groups(
    axes: Axes,
    points: Float[np.ndarray, "N 2"],
    groups: Sequence[str],
    legend: str,
    size: float,
    hues: Sequence[str] | None,
) -> None:
    of_point = np.asarray(groups, dtype=str)
    names, counts = np.unique(of_point, return_counts=True)
    largest = names[np.argsort(-counts, kind="stable")]
    order = (
        list(hues) if hues is not None else sorted(names) if len(names) <= len(HUES) else largest
    )
    shown = order[: len(HUES) if len(order) <= len(HUES) else len(HUES) - 1]
    for color, marker, name in zip(HUES, MARKERS, shown, strict=False):
        chosen = points[of_point == name]
        axes.scatter(
            *chosen.T,
            s=size,
            c=color,
            marker=marker,
            linewidths=0,
            alpha=0.75,
            label=f"{literal(name)} ({len(chosen):,})",
            zorder=2,
        )
    rest = ~np.isin(of_point, shown)
    if rest.any():
        name = f"{len(names) - len(shown)} others ({rest.sum():,})"
        axes.scatter(*points[rest].T, s=size * 0.7, c=FAINT, linewidths=0, label=name, zorder=1)
    if len(names) > 1 or hues is not None:
        axes.legend(
            title=literal(legend) or None,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            markerscale=1.8,
            alignment="left",
        )


def _scatter_values(
    figure: Figure,
    axes: Axes,
    points: Float[np.ndarray, "N 2"],
    values: Float[np.ndarray, "N"],
    legend: str,
    size: float,
) -> None:
    known = np.isfinite(values)
    axes.scatter(*points[~known].T, s=size * 0.7, c=FAINT, linewidths=0, zorder=1)
    low, high = np.percentile(values[known], (2, 98)) if known.any() else (0.0, 1.0)
    marks = axes.scatter(
        *points[known].T,
        s=size,
        c=values[known],
        cmap="cividis",
        vmin=low,
        vmax=high,
        linewidths=0,
        alpha=0.85,
        zorder=2,
    )
    bar = figure.colorbar(marks, ax=axes, shrink=0.7, pad=0.02, extend="both")
    bar.set_label(literal(legend))
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue, reportArgumentType]


def group_maps(points: Float[np.ndarray, "N 2"], groups: Sequence[str], *, title: str) -> Figure:
    """Draw a map of all groups, and beside it one map for each of the largest, on its own.

    Args:
        points: Positions, one a graph.
        groups: Name of the group of each graph.
        title: Content of the first map.
    """
    of_point = np.asarray(groups, dtype=str)
    names, counts = np.unique(of_point, return_counts=True)
    order = np.argsort(-counts, kind="stable")[: len(HUES)]
    size = float(np.clip(5000 / max(len(points), 1), 2, 14))
    columns = 3
    with house_style():
        rows = -(-(1 + len(order)) // columns)
        figure, axes = new_figure(rows, columns, 3.1 * columns, 3.2 * rows)
        axes[0].scatter(*points.T, s=size, c=FAINT, linewidths=0)
        axes[0].set_title(literal(title))
        for panel, k, color in zip(axes[1:], order.tolist(), HUES, strict=False):
            members = points[of_point == names[k]]
            style: dict[str, Any] = {"s": size, "color": color, "linewidths": 0}
            axes[0].scatter(*members.T, alpha=0.8, **style)
            panel.scatter(*points.T, s=size * 0.6, c=FAINT, linewidths=0)
            panel.scatter(*members.T, **style)
            share = f"{100 * len(members) / len(points):.0f} %"
            panel.set_title(literal(f"{names[k]}: {share}"), color=color)
        for panel in axes[: 1 + len(order)]:
            panel.set(xticks=[], yticks=[])
            panel.set_aspect("equal", adjustable="datalim")
            panel.grid(False)
            panel.spines[["left", "bottom"]].set_color(FAINT)
        for panel in axes[1 + len(order) :]:
            panel.set_axis_off()
    return figure


COLORS = ("prototype", "scaffold", "label")
_FEW_VALUES = 8
_LONGEST_NAME = 34


def draw_map(
    model: Encoder,
    store: GraphStore,
    stem: Path,
    *,
    graphs: int = 2000,
    color: str = "prototype",
    target: str | None = None,
    seed: int = 0,
) -> list[Path]:
    """Draw a sample of ``store`` as ``model`` sees it and return the files written.

    With prototypes, the map is of the embedding they were trained in (the final layer's, behind the
    projection head where there is one), and each of the largest groups has a map of its own; groups
    are the roots, or the first layer in which no group holds nine graphs of ten. Without
    prototypes, the map is of the model's own embedding.

    Args:
        model: What embeds.
        store: The graphs.
        stem: Path of the figure without its ending.
        graphs: Graphs on the map.
        color: ``prototype``, ``scaffold`` or ``label``; ``prototype`` becomes ``scaffold`` where
            the model has none.
        target: Label column for ``color="label"``; None takes the first.
        seed: Decides sample and layout.
    """
    if color not in COLORS:
        raise unknown_name("color", color, COLORS)
    sample = store.subset(sample_rows(len(store), graphs, seed))
    hierarchy = Hierarchy.of(model) if color == "prototype" else None
    if hierarchy is None:
        places = project(model.embed(sample), seed)
        groups, values, legend = (
            _labels(sample, target) if color == "label" else (_scaffolds(sample), None, "scaffold")
        )
        figure = embedding_map(
            places, groups, values, title=f"{len(sample):,} graphs by {legend}", legend=legend
        )
        return save_figure(figure, stem)
    assignments = hierarchy.assign(sample)
    level = next(
        (k for k in range(hierarchy.forest.depth) if _largest_share(assignments.paths[:, k]) < 0.9),
        0,
    )
    groups = [f"prototype {path_name(path)}" for path in assignments.paths[:, : level + 1].tolist()]
    plane = project(hierarchy.embed(sample), seed)
    return save_figure(group_maps(plane, groups, title=f"{len(sample):,} graphs"), stem)


def _largest_share(groups: Int[np.ndarray, "N"]) -> float:
    return float(np.bincount(groups).max()) / len(groups)


def _labels(
    store: GraphStore, target: str | None
) -> tuple[list[str] | None, np.ndarray | None, str]:
    if store.labels is None:
        raise DataError(
            "the graphs have no labels to color the map by; name a labeled input, "
            "or choose --color scaffold."
        )
    name = target or store.tasks[0]
    column = store.labels[:, store.tasks.index(name)]
    known = np.unique(column[~np.isnan(column)])
    if len(known) > _FEW_VALUES:
        return None, column, name
    return ["not measured" if np.isnan(v) else f"{v:g}" for v in column], None, name


def _scaffolds(store: GraphStore) -> list[str]:
    groups = domain_of(store.schema).groups(store)
    if groups is None:
        return ["graphs"] * len(store)
    return [_shortened(group or "no ring") for group in groups]


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
