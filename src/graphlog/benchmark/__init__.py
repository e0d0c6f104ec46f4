"""Compares pre-training methods: suites of cells, one table of results, pages and figures."""

from graphlog.benchmark.runner import (
    Outcome,
    Preview,
    draw_figures,
    preview,
    run_benchmark,
    write_report,
)

__all__ = ["Outcome", "Preview", "draw_figures", "preview", "run_benchmark", "write_report"]
