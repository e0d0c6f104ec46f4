"""Resident memory of one process over many steps, calls and fine-tunings: it must not grow."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
from harness import Case
from inputs import untrained

RATIO, SLACK_MB, FEWEST = 1.2, 60.0, 20
"""A peak of at most 20 % (of small processes: 60 MB) above that of the first tenth is fine."""
Tick = Callable[[], None]
"""Called after every step; ends the job, by SystemExit, when its time is over."""


def training(tick: Tick) -> None:
    """Pre-training with 5 layers of 300, each batch of another size; in bf16 where it is fast."""
    import graphlog

    class Ticker:
        def on_row(self, row: Any) -> None:
            tick()

    graphlog.pretrain(
        graphlog.read_molecules("nci5k", workers=1),
        epochs=1_000_000,
        precision="auto",
        encoder={"dim": 300, "layers": 5},
        training={"log_every": 1},
        callbacks=[Ticker()],
    )


def embedding(tick: Tick) -> None:
    """Calls of ``embed`` on lists of another length each."""
    import graphlog

    encoder, texts = graphlog.load("graphlog-mol"), _texts(400)
    for number in count(1):
        tick()
        encoder.embed(texts[: 1 + number % 97])


def finetuning(tick: Tick) -> None:
    """Fine-tunings of one seed each."""
    import graphlog

    texts = _texts(120)
    table = {"smiles": texts, "y": [int("N" in text) for text in texts]}
    labeled: dict[str, Any] = {"targets": ["y"], "split": "random", "baselines": ()}
    for number in count(1):
        tick()
        graphlog.finetune(untrained(), table, seeds=(number,), epochs=1, **labeled)


def benchmarking(tick: Tick) -> None:
    """Cells of a small benchmark: pre-trained, fine-tuned and probed, suite after suite."""
    from graphlog.benchmark import Request, run_benchmark

    for seed in count():
        with tempfile.TemporaryDirectory() as folder:
            for method in ("attrmasking", "graphlog", "ecfp-lr"):
                run_benchmark(Request("molecules", "smoke", (method,), seeds=(seed,)), folder)
                tick()


def _texts(number: int) -> list[str]:
    import graphlog

    return graphlog.read_molecules("nci5k", limit=number, workers=1).texts()


JOBS = {"training": training, "embed": embedding, "finetune": finetuning, "benchmark": benchmarking}


def soak(_: Path, minutes: range) -> Iterator[Case]:
    """Yield every job, for as many minutes as there are numbers (``--number``)."""

    def work(name: str) -> str:
        end, curve, process = time.monotonic() + 60 * len(minutes), list[float](), psutil.Process()

        def tick() -> None:
            curve.append(process.memory_info().rss / 2**20)
            if time.monotonic() > end:
                raise SystemExit  # the only end of a run of pre-training that its callbacks have

        with suppress(SystemExit):
            JOBS[name](tick)
        early, peak = max(curve[: len(curve) // 10 + 1]), max(curve)
        is_flat = len(curve) > FEWEST and peak <= max(RATIO * early, early + SLACK_MB)
        found = f"{len(curve) - 1} steps, first tenth {early:.0f} MB, peak {peak:.0f} MB"
        return f"{'right' if is_flat else 'wrong'}: {found}"

    for name in JOBS:
        yield Case(name, len(minutes), lambda _, n=name: work(n), 60.0 * len(minutes) + 120)
