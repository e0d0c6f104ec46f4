"""The style of all figures, with colors for color-blind readers and black-and-white prints.

This module needs the extra ``plot``; the error of an import without it says so.
"""

import textwrap
import warnings
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.errors import optional
from graphlog.files import replacing, writing

with optional("matplotlib", "plot"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D as Line2D  # "as": other modules import these from here
    from matplotlib.rcsetup import cycler
    from matplotlib.ticker import LogLocator as LogLocator
    from matplotlib.ticker import MaxNLocator as MaxNLocator

HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#332288", "#DDCC77")
"""Colors of groups: six of Okabe and Ito (2008), two of Tol; distinct for color-blind readers."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Markers of groups, to distinguish them in prints without color."""
_MAX_NAME = 34
"""Largest number of characters of a name in a legend; longer names are cut."""
INK, MUTED, FAINT, ALARM = "#222222", "#6B6B6B", "#D9D9D9", "#B22222"
METRIC_NAMES = {
    "roc_auc": "ROC-AUC",
    "average_precision": "Average precision",
    "rmse": "RMSE",
    "mae": "MAE",
    "rmse_in_sd": "RMSE / SD of labels",
    "mae_in_sd": "MAE / SD of labels",
    "r2": "R²",
    "pearson": "Pearson's r",
}
REFERENCE = "#A6A6A6"
"""Color of groups beyond the number of ``HUES``."""

QUANTITIES = ListedColormap(mpl.colormaps["cividis"](np.linspace(0.0, 0.7, 256)))
"""Colors of numbers: cividis without its yellow end, which is hard to see on white."""

_STYLE: dict[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "font.size": 9,
    "axes.prop_cycle": cycler(color=HUES),
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 9,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "graphlog",
}


def house_style() -> AbstractContextManager[None]:
    """Return a context in which figures have the style of this module."""
    return mpl.rc_context(_STYLE)  # pyright: ignore[reportArgumentType]


def new_figure(
    rows: int, columns: int, width: float, height: float, **grid: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of ``width`` x ``height`` inches, and its axes row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **grid)
    return figure, list(axes.flat)


def as_map(axes: Axes) -> None:
    """Format axes as a map: without ticks, with equal scales and a gray frame."""
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(False)
    axes.spines[:].set_color(FAINT)


def as_rows(axes: Axes, places: Iterable[float], names: Sequence[str]) -> None:
    """Format axes as rows with a name each, and with a numeric axis along the rows."""
    axes.set_yticks([*places], names)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(True, axis="x", color=FAINT)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)


def scatter_groups(
    axes: Axes,
    points: Float[np.ndarray, "N 2"],
    groups: np.ndarray,
    size: float,
    alpha: float,
    *,
    rasterized: bool = False,
) -> int:
    """Draw points, with a color and a marker for each group, and return the number of groups.

    If there are more than eight groups, the seven largest are colored and the others are gray.
    With ``rasterized``, an SVG file has one image of all points instead of a shape for each.
    """
    style: dict[str, Any] = {"linewidths": 0, "rasterized": rasterized}
    names, counts = np.unique(groups, return_counts=True)
    shown = names
    if len(names) > len(HUES):
        shown = names[np.argsort(-counts, kind="stable")][: len(HUES) - 1]
    for color, marker, name in zip(HUES, MARKERS, shown, strict=False):
        members = points[groups == name]
        text = str(name)
        short = text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…"
        label = f"{literal(short)} ({len(members):,})"
        look: dict[str, Any] = {"c": color, "marker": marker, "label": label, "alpha": alpha}
        axes.scatter(*members.T, s=size, **look, **style)
    if len(rest := points[~np.isin(groups, shown)]):
        label = f"{len(names) - len(shown)} others ({len(rest):,})"
        axes.scatter(*rest.T, s=0.7 * size, c=FAINT, label=label, zorder=0, **style)
    return len(names)


def headline(figure: Figure, text: str) -> None:
    """Write a title at the upper left of a figure, wrapped to the width of the figure."""
    size = 11.0  # in points; the width of a bold letter is about 0.62 of it
    lines = textwrap.fill(text, max(int(72 * figure.get_figwidth() / (0.62 * size)), 20))
    figure.suptitle(lines, x=0.01, ha="left", fontsize=size, fontweight="bold")


def literal(text: str) -> str:
    r"""Return ``text`` with ``$`` escaped, so that matplotlib does not read it as a formula.

    Example:
        >>> literal("$\\frac{y$")
        '\\$\\frac{y\\$'
    """
    return text.replace("$", r"\$")


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, without partial files on errors; return their paths."""
    with writing(stem.parent):
        stem.parent.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for kind in ("png", "svg"):
        path = stem.with_name(f"{stem.name}.{kind}")
        about = {"Date": None} if kind == "svg" else None
        with replacing(path) as unfinished, house_style(), warnings.catch_warnings():
            # a figure that is too small for its texts is drawn, but matplotlib warns about it
            warnings.filterwarnings("ignore", "constrained_layout not applied")
            figure.savefig(unfinished, format=kind, facecolor="white", metadata=about)
        paths.append(path)
    return paths
