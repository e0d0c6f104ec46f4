"""Check that everyday tables are read correctly or refused, never read wrongly without a note."""

import gzip
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import Case
from inputs import untrained

from graphlog.downstream.tasks import open_labeled
from graphlog.errors import GraphLoGError

_CORES = (
    *("c1ccc({})cc1", "C1CCC({})CC1", "c1ccnc({})c1", "C1CN({})CCO1", "c1csc({})c1", "CC({})CO"),
    *("c1ccc2cc({})ccc2c1", "c1coc({})c1", "C1CCC({})C1", "C1CC({})C1", "c1cnc({})nc1"),
    *("C1CCN({})CC1", "c1cnc({})s1", "c1ccc2[nH]c({})cc2c1", "c1ccc(-c2ccc({})cc2)cc1"),
)
_GROUPS = ("C", "CC", "OC", "C(F)(F)F", "C#N", "CCO")
_SALTS = ("Cl", "Br", "OC(=O)c1ccccc1", "Cc1ccc(S(=O)(=O)O)cc1")
_BAD = ("C(", "ethanol", "", "c1ccc", "C(C)(C)(C)(C)C")
_HEADINGS = ("smiles", "SMILES", "Structure (SMILES)", "canonical_smiles", "Smiles ")
_ENCODINGS = ("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252")


@dataclass
class Truth:
    """The content of a table, and what must happen when the table is read."""

    smiles: list[str]
    base: list[int]
    """Number of the molecule without its salt; -1 if the row has no valid molecule."""
    labels: list[float]
    """Labels as numbers; NaN where a label is missing."""
    words: list[str]
    """Labels as they are written in the table."""
    unusual: str = ""
    """Text that a note must contain; empty if no note is required."""
    refused: bool = False
    """Whether reading the table must fail."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Options that are needed to read the table."""


def draw_truth(draw: random.Random) -> Truth:
    """Draw labeled molecules, with salts, repeated molecules and invalid SMILES."""
    molecules = [core.format(group) for core in _CORES for group in _GROUPS]
    chosen = draw.sample(range(len(molecules)), draw.randrange(24, 40))
    kind = draw.choice(("number", "number", "number", "class", "word"))
    value: Callable[[], float] = (
        (lambda: round(draw.uniform(-3, 5), 2)) if kind == "number" else lambda: draw.randrange(2)
    )
    offset = draw.choice((0, 0, 0, 1e6, 1e9)) if kind == "number" else 0
    rows = [(molecules[k], k, value() + offset) for k in chosen]
    for _ in range(draw.choice((0, 0, 3, 12))):
        smiles, k, y = draw.choice(rows[: len(chosen)])
        rows.append((f"{smiles}.{draw.choice(_SALTS)}" if draw.random() < 0.7 else smiles, k, y))
    rows += [(draw.choice(_BAD), -1, value() + offset) for _ in range(draw.choice((0, 0, 1, 4)))]
    draw.shuffle(rows)
    truth = Truth(*(list(column) for column in zip(*rows, strict=True)), words=[])  # type: ignore[arg-type]
    good = [k for k, base in enumerate(truth.base) if base >= 0]
    if kind == "number" and not offset and draw.random() < 0.3:
        stand_in, count = draw.choice(((-9999.0, 1), (-9999.0, 3), (999.0, 3), (99999.0, 2)))
        for k in draw.sample(good, count):
            truth.labels[k] = stand_in
        truth.unusual = f"{stand_in:g}"
    names = draw.choice((("yes", "no"), ("active", "inactive"), ("TRUE", "FALSE")))
    truth.words = [names[1 - int(y)] if kind == "word" else repr(float(y)) for y in truth.labels]
    for k in draw.sample(good, draw.choice((0, 0, 2, 5))):
        if not truth.unusual:
            truth.labels[k], truth.words[k] = np.nan, draw.choice(("", "NA", "nan", "N/A"))
    if kind == "number" and draw.random() < 0.12:
        truth.words[draw.choice(good)] = draw.choice(("high", ">10", "1.2.3", "5 mg", "~3"))
        truth.refused = True
    return truth


def write(truth: Truth, folder: Path, draw: random.Random) -> Path:
    """Write a table in a random format, and set the options that are needed to read it."""
    heading, has_comma = draw.choice(_HEADINGS), False
    columns = {heading: truth.smiles, "y": truth.words}
    if draw.random() < 0.5:
        columns |= {"name": [f"é{k} µM" for k in range(len(truth.smiles))]}
    if draw.random() < 0.4:
        columns = dict(sorted(columns.items(), reverse=True))
    frame, kind = pd.DataFrame(columns), draw.choice((*["csv"] * 5, "tsv", "csv.gz", "xlsx"))
    if kind == "xlsx":
        path = folder / "table.xlsx"
        with pd.ExcelWriter(path) as book:
            if draw.random() < 0.5:  # store labels as numbers, not as text
                numbers = pd.to_numeric(frame["y"], errors="coerce").astype(object)
                frame["y"] = numbers.fillna(frame["y"])
            frame.to_excel(book, sheet_name="data", index=False)
            if draw.random() < 0.4:
                pd.DataFrame({"about": ["made by hand"]}).to_excel(book, sheet_name="notes")
                truth.refused |= (is_unnamed := draw.random() < 0.5)
                truth.options |= {} if is_unnamed else {"sheet": "data"}
        return path
    delimiter = {"tsv": "\t"}.get(kind) or draw.choice((",", ",", ";", "\t"))
    if delimiter != "," and draw.random() < 0.5 and not truth.refused:
        frame["y"], has_comma = frame["y"].str.replace(".", ","), True
    if has_comma and draw.random() < 0.3:
        truth.options["decimal"] = ","
    text = frame.to_csv(
        None, sep=delimiter, index=False, lineterminator=draw.choice(("\n", "\r\n"))
    )
    encoding = draw.choice(_ENCODINGS)
    content = text.encode(encoding)
    if encoding in ("utf-16-le", "utf-16-be"):  # with a byte order mark, as Windows writes it
        content = "\ufeff".encode(encoding) + content
    path = folder / f"table.{kind}"
    path.write_bytes(gzip.compress(content) if kind == "csv.gz" else content)
    return path


def judge(truth: Truth, path: Path, draw: random.Random) -> str:
    """Read, split and embed a table; return the result of the comparison with the truth."""
    encoder, kind = untrained(), draw.choice(("random", "scaffold", "random-scaffold"))
    try:
        data = open_labeled(
            path, encoder.schema, targets=["y"], split=kind, workers=1, **truth.options
        )
    except GraphLoGError as e:
        is_line = "\n" not in str(e).strip()
        return f"{'refused' if truth.refused and is_line else 'refused though readable'}: {e}"
    if truth.refused:
        return "wrong: read although a label is no number, or a sheet was not named"
    base, labels = np.array(truth.base), np.array(truth.labels)
    good = np.flatnonzero(base >= 0)
    notes = " ".join((*data.notes, *data.repeat_notes, *data.label_notes))
    if data.store.rows.tolist() != good.tolist():
        return f"wrong: rows {data.store.rows.tolist()}, not {good.tolist()}"
    if not np.array_equal(data.labels[:, 0], labels[good], equal_nan=True):
        return f"wrong: labels {data.labels[:, 0].tolist()}, not {labels[good].tolist()}"
    if sorted(r.row for r in data.rejects) != np.flatnonzero(base < 0).tolist():
        return f"wrong: rejects {data.rejects}"
    sets = [set(base[good][rows].tolist()) for rows in data.split]
    if any(a & b for k, a in enumerate(sets) for b in sets[:k]):
        return f"wrong: a molecule and its salt in two sets of {kind}: {sets}"
    if truth.unusual and truth.unusual not in notes:
        return f"wrong: nothing is said of {truth.unusual}: {notes}"
    sheet = {k: v for k, v in truth.options.items() if k == "sheet"}
    vectors = encoder.embed(path, **sheet)
    if len(vectors) != len(base) or np.isnan(vectors).any(1).tolist() != (base < 0).tolist():
        return "wrong: embeddings are not in line with the rows"
    return f"right: {kind}"


def tables(_: Path, seeds: range) -> Iterator[Case]:
    """Yield cases that read a random table."""

    def work(seed: int, folder: Path) -> str:
        draw = random.Random(f"table-{seed}")
        truth = draw_truth(draw)
        return judge(truth, write(truth, folder, draw), draw)

    yield from (Case("table", seed, partial(work, seed)) for seed in seeds)
