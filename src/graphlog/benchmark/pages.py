"""The report: one page a topic, in Markdown, CSV and LaTeX, with its figures."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from graphlog.benchmark.layout import (
    DAGGER,
    DASH,
    MARKDOWN,
    table_frame,
    table_latex,
    table_records,
)
from graphlog.benchmark.methods import (
    BACKBONE_LABELS,
    METHOD_LABELS,
    METRIC_LABELS,
    in_order,
    label,
)
from graphlog.benchmark.pivots import Table
from graphlog.benchmark.table import BenchmarkFolder, newest_cells
from graphlog.benchmark.tables import score_tables, speed_tables, timing
from graphlog.errors import DataError, MissingExtraError
from graphlog.files import replacing

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


@dataclass(slots=True)
class Page:
    """The tables and figures of one topic."""

    topic: str
    title: str
    tables: list[Table]
    extra: list[tuple[str, pd.DataFrame]]
    """Headings and tables of text that are no tables of scores."""
    figures: dict[str, list[Path]]
    """Figures by the table that they follow; the others under an empty name."""
    cells: list[Mapping[str, Any]]
    """Details of the cells."""


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
    groups = _by_scale(folder)
    out.mkdir(parents=True, exist_ok=True)
    figures, reason = _load_figures()
    written: list[Path] = []
    index = ["# Benchmark", ""]
    if reason:
        index += [f"Figures were not drawn: {reason}", ""]
    for name, (rows, details) in groups.items():
        index += [f"# {name}", ""] if name else []
        suffix = _suffix(name)
        for page in _pages(rows, details):
            _draw(page, rows, details, folder, figures, out, suffix)
            written += [
                _write(out / f"{page.topic}{suffix}.md", page_markdown(page)),
                *(path for paths in page.figures.values() for path in paths),
            ]
            if page.tables:
                records = pd.concat([table_records(table) for table in page.tables])
                latex = "\n".join(table_latex(table) for table in page.tables)
                written += [
                    _write(out / f"{page.topic}{suffix}.csv", records.to_csv(index=False)),
                    _write(out / f"{page.topic}{suffix}.tex", latex),
                ]
            index += _entry(page, suffix)
    return [*written, _write(out / "index.md", "\n".join(index).rstrip() + "\n")]


def draw_pages(folder: BenchmarkFolder, out: Path) -> list[Path]:
    """Draw the figures of all pages alone.

    Raises:
        DataError: If there are no cells, or a file cannot be used.
        MissingExtraError: If matplotlib is not installed.
    """
    from graphlog.benchmark import figures

    out.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for name, (rows, details) in _by_scale(folder).items():
        for page in _pages(rows, details):
            _draw(page, rows, details, folder, figures, out, _suffix(name))
            drawn += [path for paths in page.figures.values() for path in paths]
    return drawn


def page_markdown(page: Page) -> str:
    """Return a page as Markdown."""
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
        lines += _pictures(table.title, page.figures.get(table.name, []))
    lines += _pictures(page.title, page.figures.get("", []))
    for heading, frame in page.extra:
        lines += [f"## {heading}", "", _markdown(frame), ""]
    notes = [note for table in page.tables for note in table.notes]
    legend = _LEGEND if any(table.kind != "speed" for table in page.tables) else ()
    lines += ["<!-- notes -->", "## How to read this page", ""]
    lines += [f"- {note}" for note in dict.fromkeys([*legend, *notes, *_provenance(page.cells)])]
    return "\n".join(lines).rstrip() + "\n"


def _pages(rows: pd.DataFrame, details: Mapping[str, Mapping[str, Any]]) -> list[Page]:
    """Return the pages that there are results for."""
    tables = score_tables(rows)
    order = {"methods": 1, "halves": 2}
    pages: list[Page] = []
    for topic, title in TOPICS.items():
        own = [table for table in tables if table.topic == topic]
        if topic == "backbones":  # averages first, data sets below
            own.sort(key=lambda t: (not t.is_primary, order.get(t.kind, 0)))
        own.sort(key=lambda t: not t.is_primary)
        cells = {cell for table in own for cell in table.scores["cell"]}
        extra: list[tuple[str, pd.DataFrame]] = []
        if topic == "embedding-map":
            cells = set(rows.loc[rows["stage"] == "map", "cell"])
        if topic == "speed":
            own = speed_tables(rows, details)
            cells = set(rows["cell"])
            extra = [("Seconds of every stage", _timing_frame(timing(rows, details)))]
        if cells:
            cell_details = [details[cell] for cell in sorted(cells) if cell in details]
            pages.append(Page(topic, title, own, extra, {}, cell_details))
    return pages


def _by_scale(folder: BenchmarkFolder) -> dict[str, tuple[pd.DataFrame, dict[str, Any]]]:
    """Return the results of each scale, source and split by heading: none where there is one."""
    rows = folder.load()
    if rows.empty:
        raise DataError(
            f"{folder.path} holds no cells yet; run `graphlog benchmark SUITE -o DIR` first."
        )
    rows, details = newest_cells(rows)
    groups = [
        (f"Scale {scale} {changes}".rstrip(), part)
        for (scale, changes), part in rows.groupby(["scale", "changes"])
    ]
    return {name if len(groups) > 1 else "": (part, details) for name, part in groups}


def _suffix(name: str) -> str:
    words = name.removeprefix("Scale ").replace("=", "-").split()
    return "".join(f"-{word}" for word in words)


def _draw(
    page: Page,
    rows: pd.DataFrame,
    details: Mapping[str, Mapping[str, Any]],
    folder: BenchmarkFolder,
    figures: ModuleType | None,
    out: Path,
    suffix: str,
) -> None:
    if figures is None:
        return
    if page.topic == "embedding-map":
        page.figures[""] = figures.draw_maps(rows, details, folder, out, suffix)
    elif page.topic == "speed":
        for table in page.tables:
            page.figures[table.name] = figures.draw_speed(table, out, suffix)
    else:
        page.figures = figures.draw_scores(page.tables, out, suffix)


def _entry(page: Page, suffix: str) -> list[str]:
    """Return what the index shows of a page: its first table of scores, and a link."""
    name = f"{page.topic}{suffix}.md"
    lines = [f"## {page.title}", ""]
    first = next((table for table in page.tables if table.kind != "speed"), None)
    if first is not None:
        lines += [f"{first.title}:", "", _markdown(table_frame(first, MARKDOWN), first), ""]
    return [*lines, f"[All tables and figures]({name})", ""]


def _markdown(frame: pd.DataFrame, table: Table | None = None) -> str:
    named = len(table.heads) + bool(table.paper) if table else 1
    aligned = ["left"] * named + ["right"] * (len(frame.columns) - named)
    return frame.to_markdown(index=False, disable_numparse=True, colalign=aligned)


def _pictures(caption: str, paths: Iterable[Path]) -> list[str]:
    shown = [f"![{caption}]({path.name})" for path in paths if path.suffix == ".png"]
    return [line for picture in shown for line in (picture, "")]


def _timing_frame(timings: pd.DataFrame) -> pd.DataFrame:
    stages = {
        stage: place for place, stage in enumerate(("pretrain", "speed", "finetune", "probe"))
    }
    methods = in_order(timings["method"], METHOD_LABELS)
    order = [
        (stages.get(stage, len(stages)), methods.index(method), backbone)
        for stage, method, backbone in zip(
            timings["stage"], timings["method"], timings["backbone"], strict=True
        )
    ]
    timings = timings.iloc[
        [place for _, place in sorted(zip(order, range(len(order)), strict=True))]
    ]
    rates = timings.get("graphs_per_s", pd.Series(math.nan, index=timings.index))
    return pd.DataFrame(
        {
            "Stage": timings["stage"],
            "Method": [label(name, METHOD_LABELS) for name in timings["method"]],
            "Backbone": [label(name, BACKBONE_LABELS) or DASH for name in timings["backbone"]],
            "Cells": timings["cells"].astype(str),
            "Seconds a cell": [f"{seconds:,.1f}" for seconds in timings["seconds"]],
            "Graphs/s": [DASH if math.isnan(rate) else f"{rate:,.0f}" for rate in rates],
        }
    )


def _provenance(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return data, settings, machine, versions and commands of cells; nothing that was timed."""
    makers: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "Metric": lambda c: label(str(c.get("metric") or ""), METRIC_LABELS),
        "Pre-training": _pretraining,
        "Fine-tuning": _finetuning,
        "Split": lambda c: str(_inner(c, "data", "dataset").get("split") or ""),
        "Seeds": lambda c: "" if c["seed"] is pd.NA else str(c["seed"]),
        "Protocol": lambda c: str(c["protocol"]),
        "Machine": _machine,
        "Versions": lambda c: ", ".join(
            f"{name} {version}" for name, version in sorted(_inner(c, "versions").items())
        ),
        "Command": lambda c: f"`{c['command']}`" if c.get("command") else "",
    }
    lines: list[str] = []
    for head, maker in makers.items():
        texts = sorted({text for cell in cells if (text := maker(cell))})
        separator = ", " if head in ("Seeds", "Protocol", "Split") else "; "
        lines += [f"{head}: {separator.join(texts)}."] if texts else []
    return [*lines, *sorted({str(note) for cell in cells for note in cell.get("notes") or ()})]


def _pretraining(cell: Mapping[str, Any]) -> str:
    data, settings = _inner(cell, "data", "pretrain"), _inner(cell, "config", "pretrain")
    if not data.get("graphs"):
        return ""
    encoder = _inner(settings, "encoder")
    parts = [f"{data['graphs']:,} graphs of {data.get('name', 'unnamed data')}"]
    parts += [_counted(settings.get("epochs"), "epoch")]
    parts += [f"batches of {settings['batch_size']}"] if settings.get("batch_size") else []
    if {"layers", "dim"} <= encoder.keys():
        parts.append(f"encoder {encoder['layers']} x {encoder['dim']}")
    return ", ".join(filter(None, parts))


def _finetuning(cell: Mapping[str, Any]) -> str:
    settings = _inner(cell, "config", "finetune")
    batch = f"batches of {settings['batch_size']}" if settings.get("batch_size") else ""
    return ", ".join(filter(None, [_counted(settings.get("epochs"), "epoch"), batch]))


def _machine(cell: Mapping[str, Any]) -> str:
    machine = _inner(cell, "machine")
    parts = [str(machine.get("processor") or ""), _counted(machine.get("cores"), "core")]
    parts += [_counted(machine.get("threads"), "thread"), str(machine.get("device") or "")]
    return ", ".join(filter(None, parts))


def _counted(count: Any, what: str) -> str:
    return "" if count is None else f"{count:,} {what}{'s' * (count != 1)}"


def _inner(values: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for name in path:
        values = values.get(name) or {}
    return values


def _write(path: Path, text: str) -> Path:
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
    return path


def _load_figures() -> tuple[ModuleType | None, str]:
    """Return the module that draws, or None and the reason why there is none."""
    try:
        from graphlog.benchmark import figures
    except MissingExtraError as error:
        return None, str(error)
    return figures, ""
