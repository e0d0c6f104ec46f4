"""The compared methods in one loop: grids of cells, and the tables and figures rendered from them."""

from graphlog.benchmark.calls import Preview, preview, report, run
from graphlog.benchmark.runner import Outcome

__all__ = ["Outcome", "Preview", "preview", "report", "run"]
