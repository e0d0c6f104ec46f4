"""A folder of cells rendered: every table and figure there are scores for, and one page that shows them all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from graphlog.benchmark.tables.cells import Cell, read_cells
from graphlog.benchmark.tables.formats import comma_separated, latex, markdown
from graphlog.benchmark.tables.layout import lay_out
from graphlog.benchmark.tables.names import PLACES
from graphlog.benchmark.tables.sheet import Sheet
from graphlog.benchmark.tables.suites import score_grids
from graphlog.benchmark.tables.timing import speed_grid, speed_sheet, timing_sheet
from graphlog.errors import DataError, MissingExtraError
from graphlog.files import replacing

_FORMATS = {"md": markdown, "csv": comma_separated, "tex": latex}


def render(cells_dir: Path, out: Path) -> list[Path]:
    """Write tables (Markdown, CSV, LaTeX) and figures (PNG, SVG) of all cells, and ``index.md``, which shows them.

    What is written depends on the cells alone; tables of scores hold nothing that a clock told. Cells of several scales
    are rendered apart, the scale added to the names. Without matplotlib the page says that figures were not drawn.

    Args:
        cells_dir: Folder of the cells.
        out: Where to write; made if absent.

    Returns:
        The files written, in order, the page last.

    Raises:
        DataError: If there are no cells, or one cannot be used.
    """
    scales = _by_scale(cells_dir)
    out.mkdir(parents=True, exist_ok=True)
    figures, why_not = _load_figures()
    written: list[Path] = []
    page = ["# Benchmark", "", *([f"Figures were not drawn: {why_not}", ""] if why_not else [])]
    for ending, cells in scales.items():
        page += [f"# Scale {ending[1:]}", ""] if ending else []
        _render_scale(cells, out, ending, figures, written, page)
    index = out / "index.md"
    _write(index, "\n".join(page).rstrip() + "\n")
    return [*written, index]


def draw(cells_dir: Path, out: Path) -> list[Path]:
    """Draw the figures of all cells alone, and return the files: scores (among them the curves of Figure 3), maps and speeds.

    Raises:
        DataError: If there are no cells, or one cannot be used.
        MissingExtraError: If matplotlib is not installed.
    """
    from graphlog.benchmark import figures

    scales = _by_scale(cells_dir)
    out.mkdir(parents=True, exist_ok=True)
    drawn: list[tuple[str, Path]] = []
    for ending, cells in scales.items():
        for shown in figures.draw_scores(score_grids(cells), out, ending).values():
            drawn += shown
        drawn += figures.draw_maps(cells, out, ending)
        for grid in filter(None, (speed_grid(cells, domain) for domain in PLACES)):
            drawn += figures.draw_speed(grid, out, ending)
    return [path for _, path in drawn]


def _by_scale(cells_dir: Path) -> dict[str, list[Cell]]:
    """Return the cells of each scale by what file names end in: nothing where there is one scale."""
    cells = read_cells(cells_dir)
    if not cells:
        raise DataError(
            f"{cells_dir} holds no cells yet; run `graphlog benchmark SUITE -o DIR` first."
        )
    scales = sorted({c.scale for c in cells})
    return {
        f"-{scale}" if len(scales) > 1 else "": [c for c in cells if c.scale == scale]
        for scale in scales
    }


def _render_scale(
    cells: Sequence[Cell],
    out: Path,
    ending: str,
    figures: ModuleType | None,
    written: list[Path],
    page: list[str],
) -> None:
    grids = score_grids(cells)
    drawn = figures.draw_scores(grids, out, ending) if figures is not None else {}
    for grid in grids:
        sheet = lay_out(grid)
        written += _tables(sheet, out, ending)
        page.append(markdown(sheet))
        _show(drawn.get(grid.name, []), written, page)
    if figures is not None:
        _show(figures.draw_maps(cells, out, ending), written, page)
    _render_clocks(cells, out, ending, figures, written, page)


def _render_clocks(
    cells: Sequence[Cell],
    out: Path,
    ending: str,
    figures: ModuleType | None,
    written: list[Path],
    page: list[str],
) -> None:
    """Write what clocks told; the page links to it, and so stays the same when only the clocks differ."""
    grids = {
        grid.name: grid for domain in PLACES if (grid := speed_grid(cells, domain)) is not None
    }
    for sheet in filter(None, [*map(speed_sheet, grids.values()), timing_sheet(cells)]):
        written += _tables(sheet, out, ending)
        page += [f"## {sheet.title}", "", f"[{sheet.name}{ending}.md]({sheet.name}{ending}.md)", ""]
        if sheet.name in grids and figures is not None:
            _show(figures.draw_speed(grids[sheet.name], out, ending), written, page)


def _show(drawn: Sequence[tuple[str, Path]], written: list[Path], page: list[str]) -> None:
    """Note the files of figures and put the PNGs on the page with their captions."""
    for caption, path in drawn:
        written.append(path)
        if path.suffix == ".png":
            page += [f"![{caption}]({path.name})", ""]


def _tables(sheet: Sheet, out: Path, ending: str) -> list[Path]:
    sheet = replace(sheet, name=f"{sheet.name}{ending}")
    paths = [out / f"{sheet.name}.{kind}" for kind in _FORMATS]
    for path, to_text in zip(paths, _FORMATS.values(), strict=True):
        _write(path, to_text(sheet))
    return paths


def _write(path: Path, text: str) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


def _load_figures() -> tuple[ModuleType | None, str]:
    """Return the module that draws, or None and the reason why there is none."""
    try:
        from graphlog.benchmark import figures
    except MissingExtraError as error:
        return None, str(error)
    return figures, ""
