"""Figure 4: embeddings and prototypes of three configurations side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Int
from matplotlib.lines import Line2D

from graphlog.benchmark.tables.cells import Cell
from graphlog.benchmark.tables.names import LOSSES, PLACES, label
from graphlog.errors import DataError
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

CONFIGURATIONS = ("subgraph", "subgraph+graph", "subgraph+graph+global")
"""The paper's (a), (b) and (c)."""
_SYMBOLS = {
    "subgraph": r"$\mathcal{L}_\mathrm{sub}$",
    "graph": r"$\mathcal{L}_\mathrm{graph}$",
    "global": r"$\mathcal{L}_\mathrm{global}$",
}
_AREAS = (150.0, 42.0, 16.0)
"""Area of a prototype's sign, top layer first; deeper layers keep the last."""


@dataclass(frozen=True, slots=True)
class LayoutMap:
    """One panel: where graphs and prototypes stand."""

    losses: str
    points: Float[np.ndarray, "N 2"]
    clusters: Int[np.ndarray, "N"]
    prototypes: Float[np.ndarray, "K 2"]
    layers: Int[np.ndarray, "K"]
    parents: Int[np.ndarray, "K"]
    """Number of each prototype's parent; -1 for the top layer or where none is known."""
    quality: tuple[tuple[str, float], ...]
    origin: str
    """Where the prototypes come from: learnt, or fitted afterwards; empty where the cell does not say."""


def read_maps(cells: Sequence[Cell]) -> dict[str, list[LayoutMap | None]]:
    """Return, for each figure, the maps of the three configurations in order; None where one is missing."""
    groups: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        if cell.stage == "map":
            losses = str(dict(cell.variant).get("losses", CONFIGURATIONS[-1]))
            words = [
                label(cell.domain, PLACES),
                "embedding-map",
                cell.backbone,
                cell.dataset,
                None if cell.seed is None else f"seed{cell.seed}",
            ]
            groups.setdefault("-".join(filter(None, words)), {}).setdefault(losses, cell)
    return {
        name: [_read(found[c]) if c in found else None for c in CONFIGURATIONS]
        for name, found in sorted(groups.items())
    }


def map_figure(maps: Sequence[LayoutMap | None]) -> Figure:
    """Draw maps side by side; the clusters with the most graphs have colours and signs, the others are grey."""
    with house_style():
        figure, axes = new_figure(1, len(maps), 3.9 * len(maps), 4.5)
        for letter, losses, axis, found in zip("abc", CONFIGURATIONS, axes, maps, strict=False):
            axis.set_title(
                f"({letter}) " + " + ".join(_SYMBOLS[loss] for loss in losses.split("+"))
            )
            axis.set(xticks=[], yticks=[])
            axis.grid(False)
            axis.spines[["left", "bottom", "top", "right"]].set(visible=True, color=FAINT)
            if found is None:
                axis.text(
                    0.5,
                    0.5,
                    "not measured",
                    ha="center",
                    va="center",
                    color=MUTED,
                    transform=axis.transAxes,
                )
                continue
            _draw_graphs(axis, found)
            _draw_prototypes(axis, found)
            axis.set_aspect("equal", adjustable="datalim")
            told = ", ".join(
                f"{name.replace('_', ' ')} {value:.3g}" for name, value in found.quality
            )
            counts = [
                f"{len(found.points):,} graphs",
                *([f"prototypes {found.origin}"] if found.origin else []),
            ]
            axis.set_xlabel(
                "\n".join(filter(None, [", ".join(counts), told])), color=MUTED, fontsize=8
            )
        if any(m is not None and len(m.prototypes) for m in maps):
            figure.legend(handles=_keys(maps), loc="outside lower center", ncols=4)
        figure.suptitle(
            "Figure 4. t-SNE of graph embeddings (colour and sign: cluster) and prototypes",
            x=0.01,
            ha="left",
            fontsize=11,
            fontweight="bold",
        )
    return figure


def _draw_graphs(axis: Axes, found: LayoutMap) -> None:
    size = float(np.clip(6000 / max(len(found.points), 1), 2.5, 14))
    for place, number in enumerate(_in_colour(found)):
        chosen = found.points[found.clusters == number]
        axis.scatter(
            *chosen.T,
            s=size,
            c=HUES[place],
            marker=MARKERS[place],
            linewidths=0,
            alpha=0.7,
            zorder=2,
            rasterized=True,
        )
    rest = found.points[~np.isin(found.clusters, _in_colour(found))]
    axis.scatter(*rest.T, s=size, c="#BDBDBD", linewidths=0, alpha=0.7, zorder=1, rasterized=True)


def _draw_prototypes(axis: Axes, found: LayoutMap) -> None:
    for child, parent in enumerate(found.parents):
        if parent >= 0:
            axis.plot(
                *found.prototypes[[parent, child]].T, color=INK, linewidth=0.6, alpha=0.45, zorder=3
            )
    for level in np.unique(found.layers):
        axis.scatter(
            *found.prototypes[found.layers == level].T, s=_AREAS[min(int(level), len(_AREAS) - 1)], c="white",
            marker=_sign(int(level)), edgecolors=INK, linewidths=0.9, zorder=6 - min(int(level), 2),
        )  # fmt: skip


def _sign(level: int) -> str:
    return "*" if level == 0 else "D"


def _in_colour(found: LayoutMap) -> list[int]:
    """Return the clusters that get hues: all if there are few, else the largest."""
    numbers, counts = np.unique(found.clusters[found.clusters >= 0], return_counts=True)
    if len(numbers) <= len(HUES):
        return numbers.tolist()
    return np.sort(numbers[np.argsort(-counts, kind="stable")[: len(HUES)]]).tolist()


def _keys(maps: Sequence[LayoutMap | None]) -> list[Line2D]:
    levels = sorted({int(level) for m in maps if m is not None for level in m.layers})
    style: dict[str, Any] = {
        "linestyle": "none",
        "markerfacecolor": "white",
        "markeredgecolor": INK,
    }
    names = {0: "prototypes, top layer"}
    return [
        Line2D(
            [],
            [],
            marker=_sign(v),
            markersize=_AREAS[min(v, len(_AREAS) - 1)] ** 0.5,
            label=names.get(v, f"layer {v + 1}"),
            **style,
        )
        for v in levels
    ]


def _read(cell: Cell) -> LayoutMap:
    path = cell.path.with_name(
        Path(str(cell.raw.get("map") or cell.path.with_suffix(".npz").name)).name
    )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            layers = arrays["layer"].astype(np.int64)
            parents = (
                arrays["parent"].astype(np.int64)
                if "parent" in arrays
                else np.full(len(layers), -1)
            )
            prototypes = arrays["prototypes"].reshape(-1, 2).astype(np.float64)
            points, clusters = (
                arrays["coordinates"].astype(np.float64),
                arrays["cluster"].astype(np.int64),
            )
    except (OSError, KeyError, ValueError, BadZipFile) as error:
        raise DataError(
            f"{path}, the map of {cell.path.name}, cannot be read ({error}); delete the cell and run the suite again."
        ) from None
    quality = {
        key: value
        for key, value in cell.scores.get("quality", {}).items()
        if isinstance(value, int | float)
    }
    losses = str(dict(cell.variant).get("losses", "+".join(LOSSES)))
    origin = str((cell.raw.get("prototypes") or {}).get("origin", ""))
    return LayoutMap(
        losses, points, clusters, prototypes, layers, parents, tuple(quality.items()), origin
    )
