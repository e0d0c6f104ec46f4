"""A benchmark of seconds on molecules that come with RDKit, and made-up tables of results."""

import json
import sys
import zlib
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from graphlog.benchmark import Request, run_benchmark
from graphlog.benchmark.cells import SCALES, Setup
from graphlog.benchmark.folder import COLUMNS, LABELS

METHODS = ("untrained", "graphlog", "ecfp-lr")
_TIMED = ("seconds", "graphs_per_s")


def tiny_scale() -> dict[str, Setup]:
    """The smoke scale, smaller still."""
    often = {"checkpoint_every_s": 0.0}
    changes: dict[str, Any] = {"seeds": (0,), "source": "nci5k", "limit": 64, "mapped": 30}
    pretrain = {"encoder.layers": 2, "encoder.dim": 8, "epochs": 2, "batch_size": 16, **often}
    finetune = {"epochs": 1, "batch_size": 128, "layer": "last", **often}
    changes |= {"pretrain": pretrain, "finetune": finetune, "timed_steps": 1}
    return {"molecule": SCALES["smoke"]["molecule"].updated(changes)}


def hide_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the package believe that matplotlib is not installed: drawing is tested elsewhere."""
    drawing = ("matplotlib", "graphlog.report.style", "graphlog.benchmark.figures")
    for name in [name for name in sys.modules if name.startswith(drawing)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("graphlog.benchmark.figures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def job(folder: str, out: str) -> None:
    """Run the tiny benchmark and write what was computed: the body of a process to be killed."""
    torch.set_num_threads(1)
    SCALES["smoke"] = tiny_scale()
    hide_matplotlib(pytest.MonkeyPatch())
    outcome = run_benchmark(Request("molecules", "smoke", methods=METHODS), folder)
    Path(out).write_text(json.dumps(outcome.computed))


def read_table(path: Path) -> pd.DataFrame:
    """Return a table of results, its values to the last bit whatever the version of pandas."""
    values: dict[str, Any] = {"value": lambda text: float(text or "nan")}
    return pd.read_csv(path, keep_default_na=False, converters=values, dtype={"seed": str})


def untimed(folder: Path) -> pd.DataFrame:
    """Return the rows of the molecules in a folder but for what was timed."""
    rows = read_table(folder / "molecules.csv.gz")
    return rows[~rows["metric"].isin(_TIMED)].reset_index(drop=True)


def report_of(folder: Path) -> dict[str, str]:
    files = [p for kind in ("md", "csv", "tex") for p in (folder / "report").glob(f"*.{kind}")]
    return {p.name: p.read_text() for p in files}


def made_up(*words: Any) -> float:
    """Return a number in [0, 1) decided by the words."""
    return zlib.crc32(repr(words).encode()) % 10_000 / 10_000


def scores(
    methods: Iterable[str] = ("untrained",),
    datasets: Iterable[str] = ("bbbp",),
    seeds: Iterable[int | str] = (0, 1, 2),
    **labels: Any,
) -> list[dict[str, Any]]:
    """Return rows of test scores between 0.6 and 0.7, the same whenever asked."""
    usual = {"scale": "small", "stage": "finetune", "backbone": "gin", "rule": "fixed"}
    usual |= {"fold": "test", "metric": "roc_auc", "calibrated_on": "9 graphs of a (1)"}
    return [
        {
            **usual,
            **{"method": m, "dataset": d, "seed": str(s)},
            "value": 0.6 + 0.1 * made_up(m, d, s, sorted(labels.items())),
            **labels,
        }
        for m, d, s in product(methods, datasets, seeds)
    ]


def table_of(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame([{**dict.fromkeys(COLUMNS, ""), **row} for row in rows])
    return frame.sort_values(list(LABELS), kind="stable", ignore_index=True)


def write_table(folder: Path, name: str, rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Write a table of results into a folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = table_of(rows)
    frame.to_csv(folder / f"{name}.csv.gz", index=False)
    return frame
