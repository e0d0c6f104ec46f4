"""The embedding map: a sample of graphs on the plane, colored, with the prototypes of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, Integer

from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.encoder import Encoder
from graphlog.errors import DataError, unknown_name
from graphlog.report.hierarchy import Hierarchy, ancestors
from graphlog.report.projection import project, sample_rows
from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    MARKERS,
    MUTED,
    Axes,
    Figure,
    house_style,
    literal,
    new_figure,
    save_figure,
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
    for colour, marker, name in zip(HUES, MARKERS, shown, strict=False):
        chosen = points[of_point == name]
        axes.scatter(
            *chosen.T,
            s=size,
            c=colour,
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


COLOURS = ("prototype", "scaffold", "label")
_FEW_VALUES = 8
_NEIGHBOURS = 15
"""Graphs that a prototype which is nobody's nearest is placed amid."""
_LONGEST_NAME = 34


def draw_map(
    model: Encoder,
    store: GraphStore,
    stem: Path,
    *,
    graphs: int = 2000,
    colour: str = "prototype",
    target: str | None = None,
    seed: int = 0,
) -> list[Path]:
    """Draw a sample of ``store`` as ``model`` sees it and return the files written.

    With prototypes, the map is of the embedding they were trained in (the final layer's, behind the
    projection head where there is one); a prototype of the lowest layer stands amid the graphs nearest
    to it, the others amid their children. Without, the map is of the model's own embedding.

    Args:
        model: What embeds.
        store: The graphs.
        stem: Path of the figure without its ending.
        graphs: Graphs on the map.
        colour: ``prototype`` (the root each graph belongs to), ``scaffold``, or ``label``; ``prototype`` becomes
            ``scaffold`` where the model has none.
        target: Label column for ``colour="label"``; None takes the first.
        seed: Decides sample and layout.
    """
    if colour not in COLOURS:
        raise unknown_name("colour", colour, COLOURS)
    sample = store.subset(sample_rows(len(store), graphs, seed))
    hierarchy = Hierarchy.of(model) if colour == "prototype" else None
    if hierarchy is None:
        places = project(model.embed(sample), seed)
        groups, values, legend = (
            _labels(sample, target) if colour == "label" else (_scaffolds(sample), None, "scaffold")
        )
        figure = embedding_map(
            places, groups, values, title=f"{len(sample):,} graphs by {legend}", legend=legend
        )
        return save_figure(figure, stem)
    embeddings = hierarchy.embed(sample)
    places = project(embeddings, seed)
    leaves, parents, sizes = (
        hierarchy.leaf_similarities(embeddings),
        hierarchy.parents,
        hierarchy.forest.sizes,
    )
    figure = embedding_map(
        places,
        [_root_name(r) for r in ancestors(parents, leaves.argmax(axis=1))[:, 0].tolist()],
        title=f"{len(sample):,} graphs and their prototypes ({' / '.join(map(str, sizes))})",
        legend="root of the nearest prototype",
        prototypes=PrototypeMap(_places_of_prototypes(places, leaves, parents), parents),
        hues=[_root_name(r) for r in range(sizes[0])],
    )
    return save_figure(figure, stem)


def _labels(
    store: GraphStore, target: str | None
) -> tuple[list[str] | None, np.ndarray | None, str]:
    if store.labels is None:
        raise DataError(
            "the graphs carry no labels to colour the map by; name a labelled input, or choose --colour scaffold."
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


def _places_of_prototypes(
    places: Float[np.ndarray, "N 2"],
    similarities: Float[np.ndarray, "N M"],
    parents: Sequence[Int[np.ndarray, "_"]],
) -> list[Float[np.ndarray, "_ 2"]]:
    """Return where the prototypes of each layer stand, roots first."""
    owner = similarities.argmax(axis=1)
    members = np.bincount(owner, minlength=similarities.shape[1])
    closest = places[np.argsort(-similarities, axis=0)[:_NEIGHBOURS]].mean(axis=0)
    sums = np.stack(
        [np.bincount(owner, places[:, k], similarities.shape[1]) for k in (0, 1)], axis=1
    )
    layers = [np.where(members[:, None] > 0, sums / np.maximum(members, 1)[:, None], closest)]
    weights = np.maximum(members, 1).astype(np.float64)
    for parent in reversed(parents):
        total = np.bincount(parent, weights)
        layers.append(
            np.stack(
                [np.bincount(parent, weights * layers[-1][:, k]) / total for k in (0, 1)], axis=1
            )
        )
        weights = total
    return layers[::-1]


def _root_name(root: int) -> str:
    return f"root {root}"
