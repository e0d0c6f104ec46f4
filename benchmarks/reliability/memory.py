"""Resident memory of one process over many steps, calls and fine-tunings: it must not grow."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import Case

RATIO, SLACK_MB, FEWEST = 1.2, 60.0, 20
"""A peak of at most 20 % (of small processes: 60 MB) above that of the first tenth is fine."""
Report = Callable[[], bool]


def training(report: Report) -> None:
    """Pre-training with 5 layers of 300, each batch of another size; in bf16 where it is fast."""
    import graphlog

    class Reporter:
        def on_row(self, row: Any) -> None:
            if not report():
                raise SystemExit  # the only end of a run that its callbacks have

    try:
        graphlog.pretrain(
            graphlog.read_molecules("nci5k", workers=1),
            epochs=1_000_000,
            precision="auto",
            encoder={"dim": 300, "layers": 5},
            training={"log_every": 1},
            callbacks=[Reporter()],
        )
    except SystemExit:
        return


def embedding(report: Report) -> None:
    """Calls of ``embed`` on lists of another length each."""
    import graphlog

    encoder, texts, number = graphlog.load("graphlog-mol"), _texts(400), 0
    while report():
        number += 1
        encoder.embed(texts[: 1 + number % 97])


def finetuning(report: Report) -> None:
    """Fine-tunings of one seed each."""
    from inputs import untrained

    import graphlog

    texts, number = _texts(120), 0
    table = {"smiles": texts, "y": [int("N" in text) for text in texts]}
    labeled: dict[str, Any] = {"targets": ["y"], "split": "random", "baselines": ()}
    while report():
        number += 1
        graphlog.finetune(untrained(), table, seeds=(number,), epochs=1, **labeled)


def benchmarking(report: Report) -> None:
    """Cells of a small benchmark: pre-trained, fine-tuned and probed, suite after suite."""
    from graphlog.benchmark import Request, run_benchmark

    seed, methods = 0, ("attrmasking", "graphlog", "ecfp-lr")
    while True:
        with tempfile.TemporaryDirectory() as folder:
            for method in methods:
                run_benchmark(Request("molecules", "smoke", (method,), seeds=(seed,)), folder)
                if not report():
                    return
        seed += 1


def _texts(count: int) -> list[str]:
    import graphlog

    store = graphlog.read_molecules("nci5k", limit=count, workers=1)
    return list(store.texts(range(len(store))))


JOBS = {"training": training, "embed": embedding, "finetune": finetuning, "benchmark": benchmarking}


def soak(_: Path, minutes: range) -> Iterator[Case]:
    """Yield every job, for as many minutes as there are numbers (``--number``)."""

    def work(name: str) -> str:
        began, curve = time.monotonic(), list[float]()

        def report() -> bool:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            curve.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
            return time.monotonic() - began < 60 * len(minutes)

        JOBS[name](report)
        early, peak = max(curve[: len(curve) // 10 + 1]), max(curve)
        is_flat = len(curve) > FEWEST and peak <= max(RATIO * early, early + SLACK_MB)
        found = f"{len(curve) - 1} steps, first tenth {early:.0f} MB, peak {peak:.0f} MB"
        return f"{'right' if is_flat else 'wrong'}: {found}"

    for name in JOBS:
        yield Case(name, len(minutes), lambda _, n=name: work(n), 60.0 * len(minutes) + 120)
