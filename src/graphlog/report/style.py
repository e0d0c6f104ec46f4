"""The style of every figure: colors that all eyes and printers distinguish, quiet axes.

Importing this module needs the ``plot`` extra; without it the error names it.
"""

import textwrap
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.errors import ConfigError, optional, setting
from graphlog.files import replacing, storable, writing

with optional("matplotlib", "plot"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D as Line2D  # for those who import from here
    from matplotlib.patches import Patch as Patch
    from matplotlib.rcsetup import cycler
    from matplotlib.ticker import LogLocator as LogLocator
    from matplotlib.ticker import MaxNLocator as MaxNLocator

HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#332288", "#DDCC77")
"""Six colors of Okabe and Ito (2008) and two of Tol, all distinct for color-blind eyes."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Second sign beside the hue, for prints without color."""
_LONGEST = 34
"""Letters of a name in a legend."""
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
"""Fill of baselines, beside which ours stands in the first hue."""

QUANTITIES = ListedColormap(mpl.colormaps["cividis"](np.linspace(0.0, 0.7, 256)))
"""Colors of numbers; the end of the map, a yellow that fades on white, is left out."""

_STEMS = ("curves", "scores", "embedding-map", "prototype-tree")
"""Names of the figures of a run."""
_SOURCE: ContextVar[str | None] = ContextVar("source", default=None)

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
    """Draw in the house style inside the block."""
    return mpl.rc_context(_STYLE)  # pyright: ignore[reportArgumentType]


def new_figure(
    rows: int, columns: int, width: float, height: float, **grid: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of ``width`` x ``height`` inches and its axes, row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **grid)
    return figure, list(axes.flat)


def as_map(axes: Axes) -> None:
    """Let axes show places on a plane: no numbers, one scale, a faint frame."""
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(False)
    axes.spines[:].set_color(FAINT)


def as_rows(axes: Axes, places: Iterable[float], names: Sequence[str]) -> None:
    """Let axes show one row a name, and numbers along it."""
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
    """Draw the largest groups in a hue and a marker each, others faint; return their number.

    Where they are ``rasterized``, SVG files hold an image of them, else a shape for each point.
    """
    style: dict[str, Any] = {"linewidths": 0, "rasterized": rasterized}
    names, counts = np.unique(groups, return_counts=True)
    shown = names
    if len(names) > len(HUES):  # the last hue is that of none, so that the rest is quieter
        shown = names[np.argsort(-counts, kind="stable")][: len(HUES) - 1]
    for color, marker, name in zip(HUES, MARKERS, shown, strict=False):
        own = points[groups == name]
        text = str(name)
        short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        label = f"{literal(short)} ({len(own):,})"
        look: dict[str, Any] = {"c": color, "marker": marker, "label": label, "alpha": alpha}
        axes.scatter(*own.T, s=size, **look, **style)
    if len(rest := points[~np.isin(groups, shown)]):
        label = f"{len(names) - len(shown)} others ({len(rest):,})"
        axes.scatter(*rest.T, s=0.7 * size, c=FAINT, label=label, zorder=0, **style)
    return len(names)


def headline(figure: Figure, text: str) -> None:
    """Write a title at the upper left of a figure, in as many lines as it needs."""
    size = 11.0  # a bold letter is about 0.62 of it wide
    lines = textwrap.fill(text, max(int(72 * figure.get_figwidth() / (0.62 * size)), 20))
    figure.suptitle(lines, x=0.01, ha="left", fontsize=size, fontweight="bold")


def literal(text: str) -> str:
    r"""Return ``text`` such that matplotlib shows it as it is.

    Example:
        >>> literal("$\\frac{y$")
        '\\$\\frac{y\\$'
    """
    return text.replace("$", r"\$")


@contextmanager
def figures_of(run: Path, out: Path) -> Generator[None]:
    """Mark figures saved inside the block as those of ``run``.

    Raises:
        ConfigError: If ``out`` holds figures of another run, which would be overwritten.
    """
    from PIL import Image, UnidentifiedImageError

    name = storable(str(run.resolve()))
    for path in sorted(out.glob("*.png")) if out.is_dir() else ():
        owner = None
        with suppress(OSError, UnidentifiedImageError), Image.open(path) as image:
            owner = image.info.get("Source")
        if owner != name and (owner is not None or path.stem in _STEMS):
            raise ConfigError(
                f"{path} is a figure of {owner or 'another program'}; name another folder with "
                f"{setting('out')}.",
                option="out",
            )
    token = _SOURCE.set(name)
    try:
        yield
    finally:
        _SOURCE.reset(token)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, each whole or not at all, and return their paths."""
    with writing(stem.parent):
        stem.parent.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for kind in ("png", "svg"):
        path = stem.with_name(f"{stem.name}.{kind}")
        about = {"Date": None} if kind == "svg" else {"Source": _SOURCE.get()}
        with replacing(path) as unfinished, house_style(), warnings.catch_warnings():
            # of a figure too small for all of its texts, which is drawn all the same
            warnings.filterwarnings("ignore", "constrained_layout not applied")
            figure.savefig(unfinished, format=kind, facecolor="white", metadata=about)
        paths.append(path)
    return paths
