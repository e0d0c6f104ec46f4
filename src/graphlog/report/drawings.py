"""Figures of embeddings: the map of graphs, and the tree of prototypes as blocks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.pretrained import Encoder
from graphlog.report.hierarchy import (
    Assignments,
    Hierarchy,
    Node,
    build_tree,
    features_of,
    layer_names,
    path_name,
    project,
)
from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    QUANTITIES,
    REFERENCE,
    Axes,
    Figure,
    as_map,
    house_style,
    literal,
    new_figure,
    save_figure,
    scatter_groups,
)

_FEW_VALUES = 8
"""Largest number of different labels that are drawn as groups; more are drawn as numbers."""
_MIN_BLOCK_WITH_TEXT = 0.018
"""Smallest height of a block of the tree with text, as a share of the height of the figure."""


def draw_map(
    model: Encoder,
    store: GraphStore,
    stem: Path,
    *,
    placed: tuple[Hierarchy, Assignments] | None = None,
    target: str | None = None,
    seed: int = 0,
) -> list[Path]:
    """Draw a map of the embeddings of graphs and return the files written.

    With prototypes, the map shows the embedding that these were trained in (last layer, after the
    projection head if there is one). The groups are those of the first layer of prototypes in which
    every group has less than 90 % of the graphs (the roots if there is none). Otherwise the map
    shows the default embedding of the model.

    Args:
        model: The encoder.
        store: The graphs; a map of more than a few thousand is hard to read.
        stem: Path of the figure without its ending.
        placed: Prototypes of the model and the paths of the graphs, to color by.
        target: Label column to color by. Without prototypes and labels, colors are the groups of
            the domain, such as scaffolds.
        seed: Random seed of the layout.
    """
    embed, legend, groups, values = model.embed, "", None, None
    if target is not None and store.labels is not None:
        legend, column = target, store.labels[:, store.tasks.index(target)]
        classes = store.source.classes.get(legend)
        if classes is None and len(np.unique(column[~np.isnan(column)])) > _FEW_VALUES:
            values = column
        else:
            groups = ["not measured" if np.isnan(v) else _label(v, classes) for v in column]
    elif placed is not None:
        legend, embed = "prototype", placed[0].embed
        paths = placed[1].paths
        shares = [np.bincount(layer).max() / len(paths) for layer in paths.T]
        level = next((k for k, share in enumerate(shares) if share < 0.9), 0)
        groups = [path_name(path) for path in paths[:, : level + 1].tolist()]
    elif (found := domain_of(store.schema).groups(store)) is not None:
        legend = domain_of(store.schema).group_name
        groups = [group or f"no {legend}" for group in found]
    title = f"{len(store):,} graph{'s'[: len(store) != 1]}{legend and f' by {legend}'}"
    points = project(embed(store), seed)
    return save_figure(embedding_map(points, groups, values, title=title, legend=legend), stem)


def _label(value: float, classes: Sequence[str] | None) -> str:
    if classes is not None:
        return classes[int(value)]
    # all digits, so that different numbers have different names
    return np.format_float_positional(value, trim="-")


def embedding_map(
    points: Float[np.ndarray, "N 2"],
    groups: Sequence[str] | None = None,
    values: Float[np.ndarray, "N"] | None = None,
    *,
    title: str,
    legend: str = "",
) -> Figure:
    """Draw a map colored by ``groups`` or by ``values``.

    If there are more than eight groups, only the seven largest are colored.

    Args:
        points: Position of each graph.
        groups: Name of the group of each graph: a cluster, label or scaffold.
        values: A number for each graph, instead of ``groups``; NaN is drawn gray.
        title: Title of the map.
        legend: Title of the legend.
    """
    with house_style():
        figure, (axes,) = new_figure(1, 1, 7.6, 5.2)
        size = float(np.clip(9000 / max(len(points), 1), 4, 24))
        if values is not None:
            known = np.isfinite(values)
            axes.scatter(*points[~known].T, s=size * 0.7, c=FAINT, linewidths=0)
            low, high = np.percentile(values[known], (2, 98)) if known.any() else (0.0, 1.0)
            style: dict[str, Any] = {"vmin": low, "vmax": high, "cmap": QUANTITIES, "alpha": 0.85}
            marks = axes.scatter(*points[known].T, s=size, c=values[known], linewidths=0, **style)
            bar = figure.colorbar(marks, ax=axes, shrink=0.7, pad=0.02, extend="both")
            bar.set_label(literal(legend))
            bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue, reportArgumentType]
        else:
            group_of_point = np.asarray(groups or ["all"] * len(points), dtype=str)
            if scatter_groups(axes, points, group_of_point, size, 0.75) > 1:
                place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
                legend_title = literal(legend) or None
                axes.legend(title=legend_title, markerscale=1.8, alignment="left", **place)
        axes.set_title(literal(title))
        axes.set(xlabel="t-SNE 1", ylabel="t-SNE 2")
        as_map(axes)
    return figure


def draw_tree(
    hierarchy: Hierarchy, assignments: Assignments, store: GraphStore, stem: Path
) -> list[Path]:
    """Draw the tree of prototypes with the graphs of a store and return the files written."""
    roots = build_tree(hierarchy, assignments, store, features_of(store), np.arange(len(store)))
    return save_figure(tree_figure(roots, len(store), hierarchy.forest.depth), stem)


def tree_figure(roots: Sequence[Node], graphs: int, depth: int) -> Figure:
    """Return the figure of a tree of ``depth`` layers that holds ``graphs`` graphs.

    The height of a block is its share of the graphs. The label of a leaf has its number and title.
    """
    nodes = [node for root in roots for node in root.walk()]
    used = sum(node.members > 0 for node in nodes)
    with house_style():
        figure, (axes,) = new_figure(1, 1, 7.6, 6.4)
        top = 1.0
        for rank, root in enumerate(roots):
            # if each root can have a color, it is the color of its number, as on the map
            hue = root.path[0] if len(roots) <= len(HUES) else rank
            color = HUES[hue] if hue < len(HUES) else REFERENCE
            _draw_block(axes, root, top, graphs, depth, color, rank)
            top -= root.members / graphs
        places = [*(level + 0.5 for level in range(depth - 1)), depth]
        axes.set(xlim=(0, depth + 1), ylim=(0, 1), yticks=[])
        axes.set_xticks(places, layer_names(depth))
        axes.set_title(
            f"{graphs:,} graphs in the tree of prototypes: {used} of {len(nodes)} hold some"
        )
        axes.grid(False)
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
    return figure


def _draw_block(
    axes: Axes, node: Node, top: float, graphs: int, depth: int, color: str, rank: int
) -> None:
    """Draw the block of a prototype, then those of its children, from the height ``top`` down.

    ``rank`` is the position among siblings; every second block is paler.
    """
    height, level = node.members / graphs, len(node.path) - 1
    if not height:
        return
    is_leaf = level == depth - 1
    alpha = (0.75 - 0.5 * level / max(depth - 1, 1)) * (0.8 if rank % 2 else 1.0)
    style: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.8}
    axes.bar(level, height, 2 if is_leaf else 1, top - height, color=color, alpha=alpha, **style)
    if height >= _MIN_BLOCK_WITH_TEXT:
        text = literal(f"{node.path[-1]}   {node.title if is_leaf else f'{100 * height:.0f} %'}")
        style = {"fontsize": 7, "color": INK, "va": "center", "clip_on": True}
        axes.text(level + 0.05, top - min(height / 2, 0.016), text, **style)
    for child_rank, child in enumerate(node.children):
        _draw_block(axes, child, top, graphs, depth, color, child_rank)
        top -= child.members / graphs
