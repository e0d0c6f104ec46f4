"""The tree of prototypes as a figure: blocks as tall as their share of the graphs."""

from collections.abc import Sequence
from pathlib import Path

from graphlog.data.store import GraphStore
from graphlog.downstream.encoder import Encoder
from graphlog.report.hierarchy import Hierarchy
from graphlog.report.projection import sample_rows
from graphlog.report.style import (
    HUES,
    INK,
    REFERENCE,
    Axes,
    Figure,
    house_style,
    literal,
    new_figure,
    save_figure,
)
from graphlog.report.tree import Node, build_tree, features_of

_LEGIBLE = 0.018
"""Share of the height from which a block has room for words."""


def draw_tree(
    model: Encoder, store: GraphStore, stem: Path, *, graphs: int = 2000, seed: int = 0
) -> list[Path]:
    """Draw the tree of a sample of ``store`` and return the files; none without prototypes.

    Args:
        model: What embeds.
        store: The graphs.
        stem: Path of the figure without its ending.
        graphs: Size of the sample.
        seed: Decides the sample.
    """
    hierarchy = Hierarchy.of(model)
    if hierarchy is None:
        return []
    sample = sample_rows(len(store), graphs, seed)
    chosen = store.subset(sample)
    roots = build_tree(
        hierarchy,
        hierarchy.assign(chosen),
        chosen,
        features_of(chosen),
        sample_rows(len(chosen), len(chosen)),
    )
    return save_figure(tree_figure(roots, len(chosen), hierarchy.forest.depth), stem)


def tree_figure(roots: Sequence[Node], graphs: int, depth: int) -> Figure:
    """Return the figure of a tree of ``depth`` layers; a leaf is labeled by its clearest trait."""
    nodes = [node for root in roots for node in root.walk()]
    used = sum(node.members > 0 for node in nodes)
    with house_style():
        figure, (axes,) = new_figure(1, 1, 7.6, 6.4)
        top = 1.0
        for rank, root in enumerate(roots):
            hue = (
                root.path[0] if len(roots) <= len(HUES) else rank
            )  # few roots have the hue of their number, as on the map
            color = HUES[hue] if hue < len(HUES) else REFERENCE
            _draw(axes, root, top, graphs, depth, color, rank)
            top -= root.members / graphs
        axes.set(
            xlim=(0, depth + 1),
            ylim=(0, 1),
            xticks=[level + 0.5 for level in range(depth - 1)] + [depth],
            yticks=[],
        )
        names = (
            ["roots", *(f"layer {level + 1}" for level in range(1, depth - 1)), "leaves"]
            if depth > 1
            else ["leaves"]
        )
        axes.set_xticklabels(names)
        axes.set_title(
            f"{graphs:,} graphs in the tree of prototypes: {used} of {len(nodes)} hold some"
        )
        axes.grid(False)
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
    return figure


def _draw(
    axes: Axes, node: Node, top: float, graphs: int, depth: int, color: str, rank: int
) -> None:
    tall, level = node.members / graphs, len(node.path) - 1
    if not tall:
        return
    is_leaf = level == depth - 1
    strength = (0.75 - 0.5 * level / max(depth - 1, 1)) * (0.8 if rank % 2 else 1.0)
    axes.bar(
        level,
        tall,
        2 if is_leaf else 1,
        top - tall,
        align="edge",
        color=color,
        alpha=strength,
        edgecolor="white",
        linewidth=0.8,
    )
    if tall >= _LEGIBLE:
        words = (
            f"{node.path[-1]}   {node.headline}"
            if is_leaf
            else f"{node.path[-1]}   {100 * tall:.0f} %"
        )
        axes.text(
            level + 0.05,
            top - min(tall / 2, 0.016),
            literal(words),
            fontsize=7,
            color=INK,
            va="center",
            clip_on=True,
        )
    for below, child in enumerate(node.children):
        _draw(axes, child, top, graphs, depth, color, below)
        top -= child.members / graphs
