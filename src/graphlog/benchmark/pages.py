"""The report: one page a table of results, in Markdown, CSV and LaTeX, with its figures."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from graphlog.benchmark.cells import PAPER
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.tables import DASH, map_frame, score_tables, speed_frames, suite_of
from graphlog.errors import MissingExtraError
from graphlog.files import write_text

_LEGEND = (
    "Scores are of the test fold, in per cent where the metric allows: mean ± sample standard "
    "deviation over seeds. **Bold**: best measured mean of the column. *Italics*: printed in the "
    "paper. A seed whose score is undefined (a fold of one class) is left out and the count shown.",
    "Averages are taken per seed over the data sets shown. Rank: mean over the data sets of the "
    "rank among the rows measured in full, 1 is best.",
    "Δ: the row's average minus the reference's with the same seed, mean over seeds, with a 95 % "
    "Student-t interval. A row without seeds is compared with every seed.",
    "Fingerprints are not trained further: a forest has one score under every rule; their linear "
    "model has C = 0.1 beside the last epoch, C by validation beside the best one.",
)
_OTHER_DATA = (
    f"Paper: {PAPER['source']}, {PAPER['runs']} runs, pre-trained on 395,000 protein ego-networks "
    "and fine-tuned on 40 functions of eight species, tested on another species: other data and "
    "another split than here. Compare orders and differences, not levels."
)


def write_pages(folder: BenchmarkFolder, out: Path) -> list[Path]:
    """Write one page a table of results (Markdown, CSV, LaTeX, figures) and ``index.md``.

    The files depend on the tables alone; pages of scores hold nothing that was timed. Without
    matplotlib the index says that no figures were drawn.

    Returns:
        The files written, in order, the index last.

    Raises:
        DataError: If there are no cells, or a file cannot be used.
    """
    names, index, written = folder.pages(), ["# Benchmark", ""], list[Path]()
    out.mkdir(parents=True, exist_ok=True)
    figures: Mapping[str, Mapping[str, list[Path]]] = {}
    try:
        from graphlog.benchmark.figures import draw_pages

        figures = draw_pages(folder, out)
    except MissingExtraError as error:
        index += [f"Figures were not drawn: {error}", ""]
    for name in names:
        rows, title, drawn = folder.rows(name), suite_of(name).title, figures.get(name, {})
        tables = score_tables(name, rows)
        numbers = speed_frames(rows)
        if (rows["rule"] == "quality").any():
            numbers[title] = map_frame(rows)
        frames = {table.title: table.frame("**{}**", "*{}*") for table in tables} | numbers
        if not frames:  # nothing but pre-training so far
            continue
        lines = [f"# {title}", ""]
        for head, frame in frames.items():
            lines += [f"## {head}", "", _markdown(frame), ""]
            for path in (path for path in drawn.get(head, ()) if path.suffix == ".png"):
                lines += [f"![{head}]({path.name})", ""]
        lines += ["<!-- notes -->", "## How to read this page", ""]
        legend = _LEGEND if tables else ()
        lines += [f"- {note}" for note in [*legend, *_notes(name, rows)]]
        written += [path for paths in drawn.values() for path in paths]
        files = {"md": "\n".join(lines) + "\n"}
        files["tex"] = "\n".join(
            frame.to_latex(index=False, escape=True, caption=head)
            for head, frame in ({table.title: table.frame() for table in tables} | numbers).items()
        )
        records = [table.records() for table in tables] or list(frames.values())
        files["csv"] = pd.concat(records).to_csv(index=False)
        for kind, text in files.items():
            write_text(out / f"{name}.{kind}", text)
            written.append(out / f"{name}.{kind}")
        head, frame = next(iter(frames.items()))
        index += [f"## {title}", "", f"{head}:", "", _markdown(frame)]
        index += ["", f"[All tables and figures]({name}.md)", ""]
    write_text(out / "index.md", "\n".join(index))
    return [*written, out / "index.md"]


def _markdown(frame: pd.DataFrame) -> str:
    return frame.to_markdown(index=False, floatfmt=",.4g", missingval=DASH)


def _notes(name: str, rows: pd.DataFrame) -> list[str]:
    """Return data, settings, machine, versions and command of a page; nothing that was timed."""
    suite = suite_of(name)
    cells = [json.loads(text) for text in rows["details"].unique() if text]
    found: dict[str, set[str]] = {}

    def add(head: str, values: Mapping[str, Any]) -> None:
        text = ", ".join(f"{k} {v}" for k, v in values.items() if not isinstance(v, dict))
        found.setdefault(head, set()).add(text)

    for cell in cells:
        settings = cell["settings"]
        if "pretrain" in settings:
            kept = ("epochs", "batch_size", "learning_rate", "precision")
            pretrain = {k: v for k, v in settings["pretrain"].items() if k in kept}
            add("Pre-training", pretrain | settings["pretrain"].get("encoder", {}))
        if "finetune" in settings:
            add("Fine-tuning", settings["finetune"])
        add("Machine", cell["machine"])
        add("Versions", cell["versions"])
    notes = [f"{head}: {'; '.join(sorted(texts))}." for head, texts in found.items()]
    notes += [f"Note: {text}" for text in sorted({t for c in cells for t in c.get("notes", ())})]
    if names := set(rows["calibrated_on"]) - {""}:
        about = "Graphs of pre-training, on which batch norms of all encoders are calibrated"
        notes.insert(0, f"{about}, untrained ones too: {names.pop()}.")
    if suite.paper and suite.paper != "table_1":
        notes.append(_OTHER_DATA)
    elif suite.paper:
        notes.append(
            f"Paper: {PAPER['source']}, Table 1, {PAPER['runs']} runs, fine-tuned; averages of "
            "other columns than its eight are derived."
        )
    domain = " --domain protein" if name.endswith("-protein") else ""
    scales = sorted(set(rows["scale"]))
    command = name.removesuffix("-protein")
    runs = (f"`graphlog benchmark {command} -o DIR --scale {s}{domain}`" for s in scales)
    return [*notes, f"Command: {'; '.join(runs)}."]
