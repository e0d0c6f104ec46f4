"""Figure 4: embeddings and prototypes of three configurations side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.methods import CONFIGURATIONS, DOMAIN_LABELS
from graphlog.errors import DataError
from graphlog.report.style import (
    FAINT,
    HUES,
    INK,
    MARKERS,
    MUTED,
    Axes,
    Figure,
    Line2D,
    headline,
    house_style,
    new_figure,
)

_SYMBOLS = {
    "subgraph": r"$\mathcal{L}_\mathrm{sub}$",
    "graph": r"$\mathcal{L}_\mathrm{graph}$",
    "global": r"$\mathcal{L}_\mathrm{global}$",
}
_AREAS = (150.0, 42.0, 16.0)
"""Area of a prototype's marker, top layer first; deeper layers keep the last."""


@dataclass(frozen=True, slots=True)
class LayoutMap:
    """One panel of Figure 4: positions of graphs and prototypes."""

    losses: str
    points: Float[np.ndarray, "N 2"]
    clusters: Int[np.ndarray, "N"]
    prototypes: Float[np.ndarray, "K 2"]
    layers: Int[np.ndarray, "K"]
    parents: Int[np.ndarray, "K"]
    """Index of each prototype's parent; -1 in the top layer or where none is known."""
    quality: Mapping[str, float]
    origin: str
    """Whether the prototypes were learned or fitted afterwards."""


def read_maps(
    rows: pd.DataFrame, details: Mapping[str, Mapping[str, Any]], folder: BenchmarkFolder
) -> dict[str, list[LayoutMap | None]]:
    """Return the maps of the three configurations of each figure; None where one is missing."""
    groups: dict[str, dict[str, LayoutMap]] = {}
    for cell, part in rows[rows["stage"] == "map"].groupby("cell"):
        head = part.iloc[0]
        losses = str(head["variant"]).removeprefix("losses=") or CONFIGURATIONS[-1]
        place = DOMAIN_LABELS[head["domain"]]
        words = [place, "embedding-map", head["backbone"], head["dataset"], f"seed{head['seed']}"]
        name = "-".join(filter(None, words))
        scores = part[part["rule"] == "quality"].dropna(subset=["value"])
        quality = dict(zip(scores["metric"], scores["value"], strict=True))
        layout = _read_map(losses, details[str(cell)], quality, folder)
        groups.setdefault(name, {}).setdefault(losses, layout)
    return {
        name: [layout.get(losses) for losses in CONFIGURATIONS]
        for name, layout in sorted(groups.items())
    }


def map_figure(maps: Sequence[LayoutMap | None]) -> Figure:
    """Draw maps side by side; the largest clusters are colored, the others gray."""
    with house_style():
        figure, axes = new_figure(1, len(maps), 3.9 * len(maps), 4.5)
        for letter, losses, axis, layout in zip("abc", CONFIGURATIONS, axes, maps, strict=False):
            symbols = " + ".join(_SYMBOLS[loss] for loss in losses.split("+"))
            axis.set_title(f"({letter}) {symbols}")
            axis.set(xticks=[], yticks=[])
            axis.grid(False)
            axis.spines[["left", "bottom", "top", "right"]].set(visible=True, color=FAINT)
            if layout is None:
                style: dict[str, Any] = {"ha": "center", "va": "center", "color": MUTED}
                axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, **style)
                continue
            _draw_map(axis, layout)
        levels = sorted({int(level) for m in maps if m is not None for level in m.layers})
        keys = [
            Line2D([], [], linestyle="none", marker=_prototype_marker(v), markerfacecolor="white",
                   markeredgecolor=INK, markersize=_area(v) ** 0.5,
                   label=f"layer {v + 1}" if v else "prototypes, top layer")
            for v in levels
        ]  # fmt: skip
        if keys:
            figure.legend(handles=keys, loc="outside lower center", ncols=4)
        headline(
            figure, "Figure 4. t-SNE of graph embeddings (color and marker: cluster) and prototypes"
        )
    return figure


def _draw_map(axis: Axes, layout: LayoutMap) -> None:
    size = float(np.clip(6000 / max(len(layout.points), 1), 2.5, 14))
    style: dict[str, Any] = {"s": size, "linewidths": 0, "alpha": 0.7, "rasterized": True}
    numbers, counts = np.unique(layout.clusters[layout.clusters >= 0], return_counts=True)
    largest = np.sort(numbers[np.argsort(-counts, kind="stable")[: len(HUES)]])
    for i, cluster in enumerate(largest):
        points = layout.points[layout.clusters == cluster]
        axis.scatter(*points.T, c=HUES[i], marker=MARKERS[i], zorder=2, **style)
    rest = layout.points[~np.isin(layout.clusters, largest)]
    axis.scatter(*rest.T, c="#BDBDBD", zorder=1, **style)
    for child, parent in enumerate(layout.parents):
        if parent >= 0:
            ends = layout.prototypes[[parent, child]].T
            axis.plot(*ends, color=INK, linewidth=0.6, alpha=0.45, zorder=3)
    for level in map(int, np.unique(layout.layers)):
        axis.scatter(
            *layout.prototypes[layout.layers == level].T, s=_area(level), c="white", edgecolors=INK,
            marker=_prototype_marker(level), linewidths=0.9, zorder=6 - min(level, 2),
        )  # fmt: skip
    axis.set_aspect("equal", adjustable="datalim")
    counts_text = f"{len(layout.points):,} graphs"
    counts_text += f", prototypes {layout.origin}" if layout.origin else ""
    quality = ", ".join(f"{k.replace('_', ' ')} {v:.3g}" for k, v in layout.quality.items())
    axis.set_xlabel("\n".join(filter(None, [counts_text, quality])), color=MUTED, fontsize=8)


def _read_map(
    losses: str, details: Mapping[str, Any], quality: Mapping[str, float], folder: BenchmarkFolder
) -> LayoutMap:
    name = Path(str(details.get("map"))).name
    path = folder.maps / name
    if not path.exists() and (folder.old_cells / name).exists():
        path = folder.old_cells / name
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            layers = arrays["layer"].astype(np.int64)
            none = np.full(len(layers), -1)
            return LayoutMap(
                losses=losses,
                points=arrays["coordinates"].astype(np.float64),
                clusters=arrays["cluster"].astype(np.int64),
                prototypes=arrays["prototypes"].reshape(-1, 2).astype(np.float64),
                layers=layers,
                parents=arrays["parent"].astype(np.int64) if "parent" in arrays else none,
                quality=quality,
                origin=str((details.get("prototypes") or {}).get("origin", "")),
            )
    except (OSError, KeyError, ValueError, BadZipFile) as error:
        raise DataError(
            f"{path}, a map of the benchmark, cannot be read ({error}); restore it, or compute the "
            "suite in another folder."
        ) from None


def _area(level: int) -> float:
    return _AREAS[min(level, len(_AREAS) - 1)]


def _prototype_marker(level: int) -> str:
    return "*" if level == 0 else "D"
