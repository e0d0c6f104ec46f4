"""Cells as tables: reading, aggregation, and Markdown, CSV and LaTeX."""

from graphlog.benchmark.tables.cells import Cell, read_cells
from graphlog.benchmark.tables.formats import comma_separated, latex, markdown
from graphlog.benchmark.tables.grid import Grid, Row
from graphlog.benchmark.tables.layout import lay_out
from graphlog.benchmark.tables.sheet import Item, Sheet
from graphlog.benchmark.tables.suites import score_grids

__all__ = [
    "Cell",
    "Grid",
    "Item",
    "Row",
    "Sheet",
    "comma_separated",
    "latex",
    "lay_out",
    "markdown",
    "read_cells",
    "score_grids",
]
