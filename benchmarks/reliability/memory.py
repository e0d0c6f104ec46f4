"""Check that the memory of a process does not grow over many steps, calls and fine-tunings."""

import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psutil
from harness import Case
from inputs import untrained

import graphlog
from graphlog.benchmark import Request, run_benchmark
from graphlog.benchmark.speed import TimedObjective
from graphlog.data.store import epoch_batches
from graphlog.training.log import Progress
from graphlog.training.settings import resolve_config

RATIO, SLACK_MB, MIN_STEPS = 1.2, 60.0, 20
"""The peak may be 20 % or 60 MB above the peak of the first tenth, whichever allows more."""


def training() -> Iterator[None]:
    """Do steps of pre-training with 5 layers of 300, on batches of different sizes."""
    config = resolve_config("graphlog", None, {"encoder": {"dim": 300, "layers": 5}})
    store = graphlog.read_molecules("nci5k", workers=1)
    timed = TimedObjective(store, config, Progress())
    for epoch in count():
        for rows in epoch_batches(len(store), config.batch_size, epoch=epoch):
            timed.step(rows)
            yield


def embedding() -> Iterator[None]:
    """Call ``embed`` on lists of different lengths."""
    encoder = graphlog.load("graphlog-mol")
    texts = graphlog.read_molecules("nci5k", limit=400, workers=1).texts()
    for number in count(1):
        encoder.embed(texts[: 1 + number % 97])
        yield


def finetuning() -> Iterator[None]:
    """Fine-tune with one seed again and again."""
    texts = graphlog.read_molecules("nci5k", limit=120, workers=1).texts()
    table = {"smiles": texts, "y": [int("N" in text) for text in texts]}
    labeled: dict[str, Any] = {"targets": ["y"], "split": "random", "baselines": ()}
    for number in count(1):
        graphlog.finetune(untrained(), table, seeds=(number,), epochs=1, **labeled)
        yield


def benchmarking() -> Iterator[None]:
    """Compute the cells of a small benchmark again and again, each time with another seed."""
    for seed in count():
        with tempfile.TemporaryDirectory() as folder:
            for method in ("attrmasking", "graphlog", "ecfp-lr"):
                run_benchmark(Request("molecules", "smoke", (method,), seeds=(seed,)), folder)
                yield


WORK = {"training": training, "embed": embedding, "finetune": finetuning, "benchmark": benchmarking}


def soak(_: Path, minutes: range) -> Iterator[Case]:
    """Yield a case for each kind of work, which lasts ``--number`` minutes."""

    def work(name: str) -> str:
        end, curve, process = time.monotonic() + 60 * len(minutes), list[float](), psutil.Process()
        for _ in WORK[name]():
            curve.append(process.memory_info().rss / 2**20)
            if time.monotonic() > end:
                break
        early, peak = max(curve[: len(curve) // 10 + 1]), max(curve)
        is_flat = len(curve) > MIN_STEPS and peak <= max(RATIO * early, early + SLACK_MB)
        detail = f"{len(curve)} steps, first tenth {early:.0f} MB, peak {peak:.0f} MB"
        return f"{'right' if is_flat else 'wrong'}: {detail}"

    for name in WORK:
        yield Case(name, len(minutes), lambda _, n=name: work(n), 60.0 * len(minutes) + 120)
