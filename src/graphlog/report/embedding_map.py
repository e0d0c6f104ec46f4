"""The map of a collection: every graph a point, groups in colour, prototypes with their tree on top."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    MARKERS,
    MUTED,
    Axes,
    Figure,
    house_style,
    new_figure,
)

_LEVEL_SIZES = (170.0, 60.0, 22.0)
"""Area of a prototype's sign, roots first; deeper layers keep the last."""


@dataclass(frozen=True, slots=True)
class PrototypeMap:
    """A forest of prototypes on the plane of a map."""

    layers: Sequence[Float[np.ndarray, "_ 2"]]
    """Positions of each layer, roots first."""
    parents: Sequence[Integer[np.ndarray, "_"]]
    """For each layer but the first, the parent of each prototype in the layer above."""

    def roots(self) -> list[Integer[np.ndarray, "_"]]:
        """Return, layer by layer, the root each prototype descends from."""
        found = [np.arange(len(self.layers[0]))]
        for parent in self.parents:
            found.append(found[-1][parent])
        return found


def embedding_map(
    points: Float[np.ndarray, "N 2"],
    groups: Sequence[str] | None = None,
    values: Float[np.ndarray, "N"] | None = None,
    *,
    title: str,
    legend: str = "",
    prototypes: PrototypeMap | None = None,
    hues: Sequence[str] | None = None,
) -> Figure:
    """Draw a map coloured by ``groups`` (names; the seven largest get hues) or by ``values`` (a scale).

    Args:
        points: Positions, one a graph.
        groups: Name of each graph's group: cluster, label or scaffold.
        values: A number for each graph, in place of ``groups``; NaN is drawn faint.
        title: What the map shows.
        legend: What the colours mean.
        prototypes: Prototypes to draw over the points, coloured by their root.
        hues: Names of groups in the order in which they take the hues, so that they match the roots; None lets the largest have them.
    """
    with house_style():
        figure, (axes,) = new_figure(1, 1, 7.6, 5.2)
        size = float(np.clip(9000 / max(len(points), 1), 4, 24))
        if values is not None:
            _scatter_values(figure, axes, points, values, legend, size)
        else:
            _scatter_groups(axes, points, groups or ["all"] * len(points), legend, size, hues)
        if prototypes is not None:
            _draw_forest(axes, prototypes)
        axes.set_title(title)
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
    for colour, marker, name in zip(HUES, MARKERS, shown, strict=False):
        chosen = points[of_point == name]
        axes.scatter(
            *chosen.T,
            s=size,
            c=colour,
            marker=marker,
            linewidths=0,
            alpha=0.75,
            label=f"{name} ({len(chosen):,})",
            zorder=2,
        )
    rest = ~np.isin(of_point, shown)
    if rest.any():
        name = f"{len(names) - len(shown)} others ({rest.sum():,})"
        axes.scatter(*points[rest].T, s=size * 0.7, c=FAINT, linewidths=0, label=name, zorder=1)
    if len(names) > 1 or hues is not None:
        axes.legend(
            title=legend or None,
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
    bar.set_label(legend)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue, reportArgumentType]


def _draw_forest(axes: Axes, forest: PrototypeMap) -> None:
    roots = forest.roots()
    for level, parent in enumerate(forest.parents, start=1):
        above, below = forest.layers[level - 1][parent], forest.layers[level]
        for (x0, y0), (x1, y1) in zip(above, below, strict=True):
            axes.plot([x0, x1], [y0, y1], color=INK, linewidth=0.6, alpha=0.45, zorder=3)
    count = len(forest.layers[0])
    for level, positions in enumerate(forest.layers):
        area = _LEVEL_SIZES[min(level, len(_LEVEL_SIZES) - 1)]
        colours = [HUES[r] if r < len(HUES) - (count > len(HUES)) else FAINT for r in roots[level]]
        axes.scatter(
            *positions.T,
            s=area,
            c=colours,
            marker="*" if level == 0 else "D",
            edgecolors=INK,
            linewidths=0.8,
            zorder=6 - min(level, 2),
        )
