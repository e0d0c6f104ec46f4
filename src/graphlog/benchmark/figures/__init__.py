"""Figures of a benchmark; importing this needs the ``plot`` extra, without it the error names it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from graphlog.benchmark.figures.curves import sensitivity_figure
from graphlog.benchmark.figures.dots import score_dots
from graphlog.benchmark.figures.forest import difference_forest
from graphlog.benchmark.figures.maps import map_figure, read_maps
from graphlog.benchmark.figures.speed import speed_bars
from graphlog.benchmark.tables.cells import Cell
from graphlog.benchmark.tables.grid import Grid
from graphlog.benchmark.tables.names import VARIED
from graphlog.report.style import Figure, save_figure

__all__ = [
    "difference_forest",
    "draw_maps",
    "draw_scores",
    "draw_speed",
    "map_figure",
    "score_dots",
    "sensitivity_figure",
    "speed_bars",
]

Drawn = list[tuple[str, Path]]
"""Captions and files."""


def draw_scores(grids: Sequence[Grid], out: Path, ending: str = "") -> Mapping[str, Drawn]:
    """Draw what each grid has a figure for; the curves of Figure 3 that belong together share one, shown after the last of them."""
    drawn: dict[str, Drawn] = {}
    for grid in grids:
        if grid.kind in ("methods", "backbones", "ablation"):
            drawn[grid.name] = _save(score_dots(grid), f"{grid.name}{ending}", grid.title, out)
        if grid.kind in ("methods", "ablation") and any(
            grid.difference(row.key).count for row in grid.rows
        ):
            drawn[grid.name] += _save(
                difference_forest(grid),
                f"{grid.name}-differences{ending}",
                f"Differences. {grid.title}",
                out,
            )
    curves: dict[str, list[Grid]] = {}
    for grid in grids:
        if grid.kind in VARIED:
            curves.setdefault(grid.name.replace(f"-{grid.kind.replace('_', '-')}", ""), []).append(
                grid
            )
    for name, together in curves.items():
        drawn[together[-1].name] = _save(
            sensitivity_figure(together), f"{name}{ending}", "Figure 3. Sensitivity", out
        )
    return drawn


def draw_maps(cells: Sequence[Cell], out: Path, ending: str = "") -> Drawn:
    """Draw Figure 4, one figure for each seed, backbone and collection that there are map cells of."""
    drawn: Drawn = []
    for name, maps in read_maps(cells).items():
        drawn += _save(
            map_figure(maps), f"{name}{ending}", "Figure 4. Embeddings and prototypes", out
        )
    return drawn


def draw_speed(grid: Grid, out: Path, ending: str = "") -> Drawn:
    """Draw the throughput of pre-training."""
    return _save(speed_bars(grid), f"{grid.name}{ending}", grid.title, out)


def _save(figure: Figure, stem: str, caption: str, out: Path) -> Drawn:
    return [(caption, path) for path in save_figure(figure, out / stem)]
