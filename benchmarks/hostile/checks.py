"""What must be true of the files and words that a command of ``hostile`` leaves."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from runner import Ended

Check = Callable[[Ended], str]
"""Returns what is wrong; nothing where all is well."""


def is_json(ended: Ended) -> str:
    """Standard output is one JSON document, without the NaN that JSON does not have."""
    try:
        json.loads(ended.out, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    except ValueError as e:
        return f"not JSON: {e}"
    return ""


def is_quiet(ended: Ended) -> str:
    """Nothing was said beside the result."""
    return f"--quiet said {ended.err!r}" if ended.err else ""


def is_silent_about_the_pipe(ended: Ended) -> str:
    """A reader that goes away is no error."""
    return f"said {ended.err!r}" if "rror" in ended.err else ""


def is_resumable(ended: Ended) -> str:
    """An interrupted run holds a checkpoint."""
    return (
        ""
        if any((ended.folder / "out" / "checkpoint").glob("**/step-*"))
        else "no checkpoint was left"
    )


def rejected_rows(folder: Path) -> tuple[int, ...]:
    """Return the rows that ``rejects.csv`` lists with a reason."""
    path = folder / "rejects.csv"
    if not path.is_file():
        return ()
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(int(row["row"]) for row in csv.DictReader(file) if row["reason"])


def lists(rejected: tuple[int, ...]) -> Check:
    """``rejects.csv`` lists exactly these rows."""

    def check(ended: Ended) -> str:
        found = rejected_rows(ended.folder)
        return "" if found == rejected else f"rejects.csv lists rows {found}, not {rejected}"

    return check


def embeds(rows: int, rejected: tuple[int, ...]) -> Check:
    """The archive has a row for each row of the input; those rejected are NaN and say why."""

    def check(ended: Ended) -> str:
        found = np.load(ended.folder / "out.npz")
        missing = tuple(np.flatnonzero(np.isnan(found["embeddings"]).any(1)).tolist())
        told = tuple(np.flatnonzero(found["status"] != "ok").tolist())
        if len(found["embeddings"]) != rows or missing != rejected or told != rejected:
            return (
                f"{len(found['embeddings'])} rows of {rows}; without a vector {missing}, "
                f"said so {told}, expected {rejected}"
            )
        return lists(rejected)(ended)

    return check


def places(rows: int, rejected: tuple[int, ...]) -> Check:
    """``members.csv`` has a line for each input row; those rejected have no path and say why."""

    def check(ended: Ended) -> str:
        with (ended.folder / "out" / "members.csv").open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        told = tuple(k for k, row in enumerate(table) if row["status"] != "ok")
        missing = tuple(k for k, row in enumerate(table) if not (row["path"] and row["novelty"]))
        found = rejected_rows(ended.folder / "out")
        if len(table) != rows or not missing == told == found == rejected:
            return (
                f"{len(table)} rows of {rows}; without a path {missing}, said so {told}, "
                f"listed {found}, expected {rejected}"
            )
        return ""

    return check


def predicts(rows: int, rejected: tuple[int, ...]) -> Check:
    """The table has a row for each row of the input; those rejected have no value and say why."""

    def check(ended: Ended) -> str:
        with (ended.folder / "out.csv").open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        told = tuple(k for k, row in enumerate(table) if row["graphlog_status"] != "ok")
        missing = tuple(k for k, row in enumerate(table) if not row["predicted_y"])
        if len(table) != rows or missing != rejected or told != rejected:
            return (
                f"{len(table)} rows of {rows}; without a value {missing}, "
                f"said so {told}, expected {rejected}"
            )
        return lists(rejected)(ended)

    return check


def divides(rows: int, rejected: tuple[int, ...]) -> Check:
    """The split names every usable row once."""

    def check(ended: Ended) -> str:
        found = json.loads((ended.folder / "split.json").read_text(encoding="utf-8"))
        named = sorted(found["train"] + found["valid"] + found["test"])
        return (
            ""
            if named == sorted(set(range(rows)) - set(rejected))
            else f"the split names rows {named} of {rows}"
        )

    return check


def copes(rows: int) -> Check:
    """Fuzzed rows end in row-aligned output, or in one line if most of them cannot be used."""

    def check(ended: Ended) -> str:
        if ended.code != 0:
            told = re.search(r"in\.csv: ([\d,]+) of ([\d,]+) rows cannot be used", ended.line)
            bad, of = (int(n.replace(",", "")) for n in told.groups()) if told else (0, 0)
            is_fair = of == rows and 2 * bad > rows and "take the bad rows out" in ended.line
            return "" if is_fair else "does not say how many of all rows are bad, and what to do"
        rejected = rejected_rows(ended.folder)
        if (ended.folder / "out.npz").is_file():
            return embeds(rows, rejected)(ended)
        return predicts(rows, rejected)(ended) if (ended.folder / "out.csv").is_file() else ""

    return check
