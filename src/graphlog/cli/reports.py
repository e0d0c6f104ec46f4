"""Scores as tables: a row for each model and rule, the tasks where there are several, and what to mind."""

import math

from graphlog.cli.console import Table
from graphlog.downstream.metrics import LOWER_IS_BETTER
from graphlog.downstream.report import Report


def report_tables(report: Report) -> list[Table]:
    """Return the tables of a report; areas under curves are shown in per cent."""
    metric = report.metric
    percent = metric not in LOWER_IS_BETTER and metric != "r2"
    scale, unit = (100.0, " (%)") if percent else (1.0, "")
    sizes = ", ".join(f"{name} {count:,}" for name, count in report.sizes.items())
    title = f"{report.dataset}: {metric.replace('_', '-').upper()}{unit}, {report.split} split ({sizes})"
    seeds = [len(r.test.get(metric, [])) for r in report.rows]
    rows = [
        (
            r.model,
            r.rule,
            _number(r.mean(metric) * scale),
            _number(r.sd(metric) * scale),
            _number(r.mean(metric, "valid") * scale),
            n,
        )
        for r, n in zip(report.rows, seeds, strict=True)
    ]
    tables = [Table(("model", "rule", "test", "SD", "valid", "seeds"), rows, title)]
    halves = [half for half in report.rows[0].halves]
    if halves:
        shown = [
            (r.model, r.rule, *(_number(r.mean(metric, half) * scale) for half in halves))
            for r in report.rows
            if r.halves
        ]
        tables.append(
            Table(
                ("model", "rule", *(half.replace("_", " ") for half in halves)),
                shown,
                "\nrandom halves of the test fold",
            )
        )
    best = report.rows[0]
    if len(report.tasks) > 1 and best.per_task:
        per_task = [
            (task, _number(best.per_task.get(task, math.nan) * scale)) for task in report.tasks
        ]
        tables.append(
            Table(("task", "test"), per_task, f"\n{best.model}, {best.rule}, task by task")
        )
    if report.notes:
        tables.append(Table(("", ""), [("note", note) for note in report.notes]))
    return tables


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"
