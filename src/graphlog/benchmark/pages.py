"""The report: one page a topic, in Markdown, CSV and LaTeX, with its figures."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from graphlog.benchmark.folder import BenchmarkFolder, newest_cells
from graphlog.benchmark.methods import BACKBONE_LABELS, METHOD_LABELS, METRIC_LABELS, in_order
from graphlog.benchmark.paper_tables import score_tables, speed_tables, stage_tables
from graphlog.benchmark.table import (
    DAGGER,
    DASH,
    MARKDOWN,
    Table,
    table_frame,
    table_latex,
    table_records,
)
from graphlog.errors import DataError, MissingExtraError
from graphlog.files import write_text

TOPICS: Mapping[str, str] = {
    "molecules": "Table 1. Molecular properties",
    "biology": "Table 2. Biological functions",
    "backbones": "Table 3. Methods under each backbone",
    "ablation": "Table 4. GraphLoG with some of its losses",
    "sensitivity": "Figure 3. Depth of the prototypes and batch size",
    "embedding-map": "Figure 4. Embeddings and prototypes",
    "speed": "Throughput",
}
"""Pages and their headings."""
_LEGEND = (
    "Scores are of the test fold, in per cent where the metric allows: mean ± sample standard "
    "deviation over seeds. **Bold**: best measured mean of the column. *Italics*: printed in the "
    "paper.",
    "Averages are taken per seed over the data sets shown, then over the seeds that all of them "
    "have. Rank: mean over the data sets of the rank among the rows measured in full, 1 is best.",
    "Δ: the row's average minus the reference's with the same seed, mean over seeds, with a 95 % "
    "Student-t interval. A row without seeds is compared with every seed.",
)
_OLD_PROTOCOL = (
    "measured under protocol 1: fine-tuning for a few epochs did not lower its learning rate, "
    "batch norm was calibrated for untrained encoders only, and the rows of Table 4 and Figure 3 "
    "differed in their first epoch, in when the optimizer restarted or in the number of steps. "
    "Protocol 2 treats all rows alike."
)


@dataclass(frozen=True, slots=True)
class Page:
    """The tables of one topic, and the results that they come from."""

    topic: str
    suffix: str
    """Scale, source and split in file names; empty where the folder has one of each."""
    title: str
    tables: list[Table]
    rows: pd.DataFrame
    details: Mapping[str, Mapping[str, Any]]
    cells: set[str]
    """Cells that the page shows."""


def write_pages(folder: BenchmarkFolder, out: Path) -> list[Path]:
    """Write one page a topic (Markdown, CSV, LaTeX, figures) and ``index.md``.

    The files depend on the cells alone; pages of scores hold nothing that was timed. Cells of
    several scales are rendered apart, with the scale in the names. Without matplotlib the index
    says that no figures were drawn.

    Returns:
        The files written, in order, the index last.

    Raises:
        DataError: If there are no cells, or a file cannot be used.
    """
    pages = _pages(folder)
    out.mkdir(parents=True, exist_ok=True)
    figures, reason = _load_figures()
    written: list[Path] = []
    index = ["# Benchmark", "", *([f"Figures were not drawn: {reason}", ""] if reason else [])]
    for name, group in pages.items():
        index += [f"# {name}", ""] if name else []
        for page in group:
            drawn = _draw(page, figures, folder, out) if figures else {}
            stem = f"{page.topic}{page.suffix}"
            written.append(_write(out / f"{stem}.md", page_markdown(page, drawn)))
            written += [path for paths in drawn.values() for path in paths]
            if page.tables:
                records = pd.concat([table_records(table) for table in page.tables])
                latex = "\n".join(table_latex(table) for table in page.tables)
                written.append(_write(out / f"{stem}.csv", records.to_csv(index=False)))
                written.append(_write(out / f"{stem}.tex", latex))
            index += [f"## {page.title}", ""]
            if page.tables and page.topic != "speed":
                first = page.tables[0]
                index += [f"{first.title}:", "", _markdown(table_frame(first, MARKDOWN), first), ""]
            index += [f"[All tables and figures]({stem}.md)", ""]
    return [*written, _write(out / "index.md", "\n".join(index).rstrip() + "\n")]


def draw_pages(folder: BenchmarkFolder, out: Path) -> list[Path]:
    """Draw the figures of all pages alone.

    Raises:
        DataError: If there are no cells, or a file cannot be used.
        MissingExtraError: If matplotlib is not installed.
    """
    from graphlog.benchmark import figures

    out.mkdir(parents=True, exist_ok=True)
    pages = [page for group in _pages(folder).values() for page in group]
    figure_sets = [_draw(page, figures, folder, out) for page in pages]
    return [path for drawn in figure_sets for paths in drawn.values() for path in paths]


def page_markdown(page: Page, figures: Mapping[str, Sequence[Path]]) -> str:
    """Return a page as Markdown.

    Args:
        page: What it shows.
        figures: Figures by the table that they follow; the others under an empty name.
    """
    lines = [f"# {page.title}", ""]
    old = [table for table in page.tables if table.old_rows]
    if old:
        mixed = any(table.is_mixed for table in old)
        lines += [
            f"> {f'Rows marked {DAGGER} were' if mixed else 'All rows were'} {_OLD_PROTOCOL}",
            "",
        ]
    for table in page.tables:
        lines += [f"<!-- {table.name} -->", f"## {table.title}", ""]  # docs include single tables
        lines += [_markdown(table_frame(table, MARKDOWN), table), ""]
        lines += _pictures(table.title, figures.get(table.name, ()))
    lines += _pictures(page.title, figures.get("", ()))
    if page.topic == "speed":
        seconds = timing_frame(page.rows, page.details)
        lines += ["## Seconds of every stage", "", _markdown(seconds), ""]
    notes = [note for table in page.tables for note in table.notes]
    legend = _LEGEND if page.tables and page.topic != "speed" else ()
    cells = [page.details[cell] for cell in sorted(page.cells) if cell in page.details]
    lines += ["<!-- notes -->", "## How to read this page", ""]
    lines += [f"- {note}" for note in dict.fromkeys([*legend, *notes, *_provenance(cells)])]
    return "\n".join(lines).rstrip() + "\n"


def _pages(folder: BenchmarkFolder) -> dict[str, list[Page]]:
    """Return the pages of each scale, source and split by heading: none where there is one.

    Raises:
        DataError: If there are no cells.
    """
    rows = folder.load()
    if rows.empty:
        raise DataError(
            f"{folder.path} holds no cells yet; run `graphlog benchmark SUITE -o DIR` first."
        )
    rows, details = newest_cells(rows)
    parts = {
        f"{scale} {changes}".rstrip(): part
        for (scale, changes), part in rows.groupby(["scale", "changes"])
    }
    if len(parts) == 1:
        return {"": _pages_of(rows, details, "")}
    return {
        f"Scale {name}": _pages_of(part, details, "-" + name.replace(" ", "-").replace("=", "-"))
        for name, part in parts.items()
    }


def _pages_of(
    rows: pd.DataFrame, details: Mapping[str, Mapping[str, Any]], suffix: str
) -> list[Page]:
    """Return the pages that there are results for."""
    tables = score_tables(rows)
    order = {"methods": 1, "halves": 2}
    pages: list[Page] = []
    for topic, title in TOPICS.items():
        own = [table for table in tables if table.topic == topic]
        if topic == "backbones":  # averages first, data sets below
            own.sort(key=lambda t: order.get(t.kind, 0))
        own.sort(key=lambda t: not t.is_primary)
        cells = {cell for table in own for cell in table.scores["cell"]}
        if topic == "embedding-map":
            cells = set(rows.loc[rows["stage"] == "map", "cell"])
        elif topic == "speed":
            own, cells = [*speed_tables(rows, details), *stage_tables(rows)], set(rows["cell"])
        if cells:
            pages.append(Page(topic, suffix, title, own, rows, details, cells))
    return pages


def _draw(
    page: Page, figures: ModuleType, folder: BenchmarkFolder, out: Path
) -> dict[str, list[Path]]:
    """Draw the figures of a page and return the files by table."""
    if page.topic == "embedding-map":
        return {"": figures.draw_maps(page.rows, page.details, folder, out, page.suffix)}
    return figures.draw_tables(page.tables, out, page.suffix)


def _markdown(frame: pd.DataFrame, table: Table | None = None) -> str:
    named = len(table.heads) + bool(table.paper) if table else 1
    aligned = ["left"] * named + ["right"] * (len(frame.columns) - named)
    return frame.to_markdown(index=False, disable_numparse=True, colalign=aligned)


def _pictures(caption: str, paths: Iterable[Path]) -> list[str]:
    shown = [f"![{caption}]({path.name})" for path in paths if path.suffix == ".png"]
    return [line for picture in shown for line in (picture, "")]


def timing_frame(rows: pd.DataFrame, details: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return seconds and throughput of every stage, method and backbone, as printed.

    Work that several suites share is counted once.
    """
    hashes = rows["cell"].map({cell: fields["config_hash"] for cell, fields in details.items()})
    rows = rows[rows["metric"].isin(["seconds", "graphs_per_s"]) & (rows["rule"] == "")]
    rows = rows.assign(hash=hashes).drop_duplicates(["hash", "metric"])
    stages = ["pretrain", "speed", "stage-speed", "finetune", "probe", "map"]
    methods = in_order(rows["method"], METHOD_LABELS)
    places = {"stage": stages.index, "method": methods.index, "backbone": str}
    means = rows.pivot_table(index=list(places), columns="metric", values="value", aggfunc="mean")
    means["cells"] = rows[rows["metric"] == "seconds"].groupby(list(places)).size()
    means = means.reindex(columns=["graphs_per_s", "cells", "seconds"]).reset_index()
    means = means.sort_values(list(places), key=lambda c: c.map(places[str(c.name)]))
    return pd.DataFrame(
        {
            "Stage": means["stage"],
            "Method": [METHOD_LABELS.get(name, name) for name in means["method"]],
            "Backbone": [BACKBONE_LABELS.get(name, name) or DASH for name in means["backbone"]],
            "Cells": means["cells"].astype(str),
            "Seconds a cell": [f"{seconds:,.1f}" for seconds in means["seconds"]],
            "Graphs/s": [DASH if math.isnan(r) else f"{r:,.0f}" for r in means["graphs_per_s"]],
        }
    )


def _provenance(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return data, settings, machine, versions and commands of cells; nothing that was timed."""
    makers: Mapping[str, Callable[[Mapping[str, Any]], Iterable[Any]]] = {
        "Metric": lambda c: [METRIC_LABELS.get(c.get("metric") or "", c.get("metric"))],
        "Pre-training": _pretraining,
        "Fine-tuning": lambda c: _training(_inner(c, "config", "finetune")),
        "Split": lambda c: [_inner(c, "data", "dataset").get("split")],
        "Seeds": lambda c: [None if c["seed"] is pd.NA else str(c["seed"])],
        "Protocol": lambda c: [c["protocol"]],
        "Machine": _machine,
        "Versions": lambda c: [f"{n} {v}" for n, v in sorted(_inner(c, "versions").items())],
        "Command": lambda c: [f"`{c['command']}`"] if c.get("command") else [],
    }
    lines: list[str] = []
    for head, maker in makers.items():
        texts = {", ".join(str(part) for part in maker(cell) if part) for cell in cells} - {""}
        separator = ", " if head in ("Seeds", "Protocol", "Split") else "; "
        lines += [f"{head}: {separator.join(sorted(texts))}."] if texts else []
    return [*lines, *sorted({str(note) for cell in cells for note in cell.get("notes") or ()})]


def _pretraining(cell: Mapping[str, Any]) -> list[str]:
    data, settings = _inner(cell, "data", "pretrain"), _inner(cell, "config", "pretrain")
    if not data.get("graphs"):
        return []
    parts = [f"{data['graphs']:,} graphs of {data.get('name', 'unnamed data')}"]
    parts += _training(settings)
    encoder = _inner(settings, "encoder")
    if {"layers", "dim"} <= encoder.keys():
        parts.append(f"encoder {encoder['layers']} x {encoder['dim']}")
    return parts


def _training(settings: Mapping[str, Any]) -> list[str]:
    size = settings.get("batch_size")
    return [_counted(settings.get("epochs"), "epoch"), f"batches of {size}" if size else ""]


def _machine(cell: Mapping[str, Any]) -> list[str]:
    machine = _inner(cell, "machine")
    counts = [_counted(machine.get(f"{what}s"), what) for what in ("core", "thread")]
    return [machine.get("processor", ""), *counts, machine.get("device", "")]


def _counted(count: Any, what: str) -> str:
    return "" if count is None else f"{count:,} {what}{'s' * (count != 1)}"


def _inner(values: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for name in path:
        values = values.get(name) or {}
    return values


def _write(path: Path, text: str) -> Path:
    write_text(path, text)
    return path


def _load_figures() -> tuple[ModuleType | None, str]:
    """Return the module that draws, or None and the reason why there is none."""
    try:
        from graphlog.benchmark import figures
    except MissingExtraError as error:
        return None, str(error)
    return figures, ""
