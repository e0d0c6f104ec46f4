"""A benchmark of seconds on molecules that come with RDKit, here or in a process to be killed."""

import importlib.util
import json
import os
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import graphlog.benchmark.pages as pages
import training_support
from graphlog.benchmark import run_benchmark
from graphlog.benchmark.folder import BenchmarkFolder, newest_cells
from graphlog.benchmark.methods import SCALES, Scale

OWN_FILE = Path(__file__).parent / "objectives" / "degree_pred.py"
METHODS = ("untrained", "graphlog", "ecfp-lr")
_TIMED = {"seconds", "graphs_per_s"}


def tiny_scale() -> Scale:
    """The smoke scale, smaller still."""
    settings = replace(
        SCALES["smoke"].domains["molecule"],
        source="nci5k",
        limit=64,
        encoder={"layers": 2, "dim": 8},
        training={"epochs": 2, "batch_size": 16, "learning_rate": 1e-3, "checkpoint_every_s": 0.0},
        finetuning={"epochs": 1, "batch_size": 128, "layer": "last", "checkpoint_every_s": 0.0},
        mapped=30,
        timed_steps=1,
    )
    return Scale(seeds=(0,), domains={"molecule": settings})


def no_figures() -> tuple[None, str]:
    """Stands in for what draws, which takes longer than all the rest and is tested elsewhere."""
    return None, "not in this test."


def job(
    folder: str, out: str, suite: str = "molecules", choices: dict[str, Any] | None = None
) -> None:
    """Run the tiny benchmark and write the keys of what this process computed.

    The body of a process that may be killed.
    """
    torch.set_num_threads(1)
    SCALES["smoke"] = tiny_scale()  # pyright: ignore[reportIndexIssue]
    pages._load_figures = no_figures
    outcome = run_benchmark(suite, folder, scale="smoke", **{"methods": METHODS, **(choices or {})})
    Path(out).write_text(json.dumps(outcome.computed))


def start(folder: Path, out: Path, **choices: Any) -> BaseProcess:
    """Start :func:`job` as a process of its own."""
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [here, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    )
    process: BaseProcess = training_support.server().Process(
        target=job, args=(str(folder), str(out), "molecules", choices)
    )
    process.start()
    return process


def cells(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the cells of a folder by key, without what was timed."""
    rows, details = newest_cells(BenchmarkFolder(folder).load())
    rows = rows[~rows["metric"].isin(_TIMED)]
    found: dict[str, dict[str, Any]] = {}
    for key, cell in details.items():
        part = rows[rows["cell"] == key]
        places = part[["rule", "fold", "task", "metric"]].itertuples(index=False, name=None)
        scores = dict(zip(places, part["value"], strict=True))
        head = part.iloc[0] if len(part) else {}
        kept = {name: cell[name] for name in cell.keys() - {"timing_notes"}}
        names = ("stage", "method", "variant", "dataset")
        found[key] = {**kept, **{name: str(head[name]) for name in names}, "scores": scores}
    return found


def rules(cell: dict[str, Any]) -> set[str]:
    """Return the selection rules that a cell has scores under."""
    return {rule for rule, *_ in cell["scores"]}


def tables(folder: Path) -> dict[str, str]:
    """Return the tables of scores of a report."""
    files = [p for kind in ("md", "csv", "tex") for p in (folder / "report").glob(f"*.{kind}")]
    return {p.name: p.read_text() for p in files if not p.name.startswith("speed")}


def own_objective() -> ModuleType:
    """Return the module of an objective that the package does not know."""
    spec = importlib.util.spec_from_file_location("degree_pred", OWN_FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
