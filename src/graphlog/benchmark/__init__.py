"""Compares pre-training methods: suites of cells, one table of results, pages and figures."""

from graphlog.benchmark.runner import Outcome, Preview, draw_figures, preview, run, write_report
from graphlog.benchmark.runner import run as run_benchmark

__all__ = ["Outcome", "Preview", "draw_figures", "preview", "run", "run_benchmark", "write_report"]
