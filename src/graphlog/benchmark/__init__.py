"""Compares pre-training methods: suites of cells, one table of results, pages and figures."""

from graphlog.benchmark.cells import Request
from graphlog.benchmark.runner import Outcome, draw_figures, preview, run_benchmark, write_report

__all__ = ["Outcome", "Request", "draw_figures", "preview", "run_benchmark", "write_report"]
