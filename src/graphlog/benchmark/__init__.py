"""The compared methods in one loop: grids of cells, and the tables and figures rendered from them."""

from graphlog.benchmark.calls import Preview, draw_figures, preview, run, write_report
from graphlog.benchmark.calls import run as run_benchmark
from graphlog.benchmark.runner import Outcome

__all__ = ["Outcome", "Preview", "draw_figures", "preview", "run", "run_benchmark", "write_report"]
