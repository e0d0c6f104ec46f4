"""What clocks told, in tables of their own, so that tables of scores are the same whenever they are rendered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphlog.benchmark.tables.cells import Cell
from graphlog.benchmark.tables.grid import Grid, Row
from graphlog.benchmark.tables.names import BACKBONES, DASH, METHODS, PLACES, in_order, label
from graphlog.benchmark.tables.provenance import provenance
from graphlog.benchmark.tables.sheet import Item, Sheet
from graphlog.benchmark.tables.stats import Spread, spread

YARDSTICK = "attrmasking"
"""The method whose throughput the others are compared with: one view, one head."""
RATES = {"rate": "Graphs/s", "views": "Views/s"}
"""Throughput in graphs, and in encoded views of graphs where the cells say how many views a method takes."""


def timing_sheet(cells: Sequence[Cell], name: str = "timing") -> Sheet | None:
    """Return seconds and throughput of every stage, method and backbone, work shared by suites counted once; None without cells."""
    timed = list(
        {c.raw.get("config_hash"): c for c in cells if c.raw.get("seconds") is not None}.values()
    )
    if not timed:
        return None
    rows, records = [], []
    for stage in ("pretrain", "speed", "finetune", "probe", "map"):
        for method in in_order({c.method for c in timed if c.stage == stage}, METHODS):
            for backbone in sorted(
                {c.backbone or "" for c in timed if (c.stage, c.method) == (stage, method)}
            ):
                chosen = [
                    c
                    for c in timed
                    if (c.stage, c.method, c.backbone or "") == (stage, method, backbone)
                ]
                seconds = spread(dict(enumerate(float(c.raw["seconds"]) for c in chosen)))
                rate = spread(
                    dict(
                        enumerate(
                            float(c.raw["graphs_per_s"])
                            for c in chosen
                            if c.raw.get("graphs_per_s")
                        )
                    )
                )
                words = [
                    stage,
                    label(method, METHODS),
                    label(backbone, BACKBONES) or DASH,
                    str(len(chosen)),
                ]
                words += [
                    f"{seconds.mean * seconds.count:,.0f}",
                    f"{seconds.mean:,.1f}",
                    f"{rate.mean:,.0f}" if rate.count else DASH,
                ]
                rows.append(tuple(map(Item, words)))
                records.append({
                    "stage": stage, "method": method, "backbone": backbone, "cells": len(chosen),
                    "seconds_mean": seconds.mean, "seconds_sd": seconds.sd, "graphs_per_s_mean": rate.mean, "graphs_per_s_sd": rate.sd,
                })  # fmt: skip
    heads = ("Stage", "Method", "Backbone", "Cells", "Seconds in all", "Seconds a cell", "Graphs/s")
    notes = ("Wall clock of the machines below, whatever else they were doing.", *provenance(timed))
    return Sheet(name, "Timing", heads, tuple(rows), 3, notes=notes, records=tuple(records))


def speed_grid(cells: Iterable[Cell], domain: str) -> Grid | None:
    """Return the pre-training throughput of each method on graphs of one domain; None without cells of the speed suite."""
    timed = [
        c
        for c in cells
        if c.stage in ("speed", "pretrain")
        and c.suite == "speed"
        and c.domain == domain
        and c.raw.get("graphs_per_s")
    ]
    if not timed:
        return None
    place = label(domain, PLACES)
    rows: dict[Row, list[Cell]] = {}
    backbones = in_order({c.backbone or "" for c in timed}, BACKBONES)
    for group, backbone in enumerate(backbones):
        for method in in_order(
            {c.method for c in timed if (c.backbone or "") == backbone}, METHODS
        ):
            heads = (label(method, METHODS), label(backbone, BACKBONES))
            rows[Row(f"{method}/{backbone}", heads, heads[0], group)] = [
                c for c in timed if (c.method, c.backbone or "") == (method, backbone)
            ]
    measures: dict[str, Callable[[Cell], float | None]] = {
        "rate": lambda c: float(c.raw["graphs_per_s"]),
        "views": _views_per_second,
    }
    series = {
        (row.key, kind): _by_seed(chosen, measure)
        for row, chosen in rows.items()
        for kind, measure in measures.items()
    }
    return Grid(
        name=f"speed-{place}",
        kind="speed",
        title=f"Pre-training throughput, {place}",
        heads=("Method", "Backbone"),
        rows=tuple(rows),
        columns=tuple(kind for kind in RATES if any(series[row.key, kind] for row in rows)),
        labels=RATES,
        metric="graphs_per_s",
        series=series,
        reference=YARDSTICK,
        averaged=False,
        notes=provenance(timed),
    )


def speed_sheet(grid: Grid) -> Sheet:
    """Return throughput as a table, each rate beside its share of AttrMasking's under the same backbone."""
    rows: list[tuple[Item, ...]] = []
    records: list[dict[str, Any]] = []
    for row in grid.rows:
        items = [Item(head) for head in row.heads]
        for column in grid.columns:
            rate, share = spread(grid.series[row.key, column]), relative_speed(grid, row, column)
            sd = "" if rate.count < 2 else f" ± {rate.sd:,.0f}"
            items += [
                Item(f"{rate.mean:,.0f}{sd}" if rate.count else DASH),
                Item(f"{share.mean:.2f}" if share.count else DASH),
            ]
            records.append({
                "row": row.key, "column": RATES[column], "mean": rate.mean, "sd": rate.sd, "runs": rate.count, "to_yardstick": share.mean
            })  # fmt: skip
        rows.append((*items, Item(str(len(grid.series[row.key, "rate"])))))
    heads = tuple(head for c in grid.columns for head in (RATES[c], f"to {METHODS[YARDSTICK]}"))
    notes = (
        "Mean ± sample standard deviation over runs; views are encoded copies of a graph, parts of one by their nodes.",
        *grid.notes,
    )
    return Sheet(
        grid.name,
        grid.title,
        (*grid.heads, *heads, "Runs"),
        tuple(rows),
        2,
        notes=notes,
        records=tuple(records),
    )


def relative_speed(grid: Grid, row: Row, column: str) -> Spread:
    """Return how many times as fast as AttrMasking under the same backbone a row is."""
    backbone = row.key.rpartition("/")[2]
    unit, own = (
        spread(grid.series.get((f"{YARDSTICK}/{backbone}", column), {})),
        spread(grid.series[row.key, column]),
    )
    return spread({None: own.mean / unit.mean}) if unit.count and own.count else spread({})


def _views_per_second(cell: Cell) -> float | None:
    counted: Mapping[str, Any] = (cell.raw.get("scores") or {}).get("throughput") or {}
    views = counted.get(
        "node_views", cell.raw.get("views")
    )  # part of a graph counts for its share of the nodes
    return None if views is None else float(cell.raw["graphs_per_s"]) * float(views)


def _by_seed(
    cells: Sequence[Cell], measure: Callable[[Cell], float | None]
) -> dict[int | None, float]:
    return {c.seed: rate for c in cells if (rate := measure(c)) is not None}
