"""Watch the resident memory of one process over many steps, calls and fine-tunings.

Each job runs in a process of its own, which reports its memory as it goes. It is fine where the
peak is at most 20 % (of small processes: 60 MB) above that of the first tenth, over 20 steps or
more.

    python benchmarks/soak.py                                   # about two minutes
    python benchmarks/soak.py --minutes 60 --out soak           # the long run: soak.json, soak.png
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

RATIO, SLACK_MB = 1.2, 60.0
FEWEST_STEPS = 20
"""A job that did fewer says nothing about growth."""
Report = Callable[[], bool]


def resident_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def training(report: Report) -> None:
    """Pre-training in bf16 with 5 layers of 300, each batch of another size."""
    import graphlog

    class Reporter:
        def on_row(self, row: Mapping[str, Any]) -> None:
            if not report():
                raise SystemExit  # the only end of a run that its callbacks have

    graphlog.pretrain(
        graphlog.read_molecules("nci5k", workers=1),
        epochs=1_000_000,
        precision="bf16",
        encoder={"dim": 300, "layers": 5},
        training={"log_every": 1},
        callbacks=[Reporter()],
    )


def embedding(report: Report) -> None:
    """Calls of ``embed`` on lists of another length each."""
    import graphlog

    encoder = graphlog.load("graphlog-mol")
    store = graphlog.read_molecules("nci5k", limit=400, workers=1)
    texts = list(store.texts(range(len(store))))
    number = 0
    while report():
        number += 1
        encoder.embed(texts[: 1 + number % 97])


def finetuning(report: Report) -> None:
    """Fine-tunings of one seed each."""
    import graphlog
    from graphlog.encoders.base import EncoderConfig

    store = graphlog.read_molecules("nci5k", limit=120, workers=1)
    encoder = graphlog.random_encoder(EncoderConfig(dim=32, layers=2), store.schema, seed=0)
    texts = list(store.texts(range(len(store))))
    table = {"smiles": texts, "y": [int("N" in text) for text in texts]}
    number = 0
    while report():
        number += 1
        graphlog.finetune(
            encoder, table, targets=["y"], seeds=(number,), epochs=1, split="random", baselines=()
        )


def benchmarking(report: Report) -> None:
    """Cells of a small benchmark: pre-trained, fine-tuned and probed, suite after suite."""
    import graphlog

    seed = 0
    while True:
        with tempfile.TemporaryDirectory() as folder:
            for method in ("attrmasking", "graphlog", "ecfp-lr"):
                graphlog.run_benchmark(
                    "molecules", folder, scale="smoke", methods=(method,), seeds=(seed,)
                )
                if not report():
                    return
        seed += 1


JOBS = {
    "training in bf16": training,
    "embed": embedding,
    "finetune": finetuning,
    "benchmark": benchmarking,
}


def _work(name: str, seconds: float, out: Any) -> None:
    began, told, number = time.monotonic(), -1.0, 0

    def report() -> bool:
        nonlocal told, number
        now = time.monotonic() - began
        if now - told >= seconds / 200 or now > seconds:
            out.send((now, number, resident_mb()))
            told = now
        number += 1
        return now < seconds

    with contextlib.suppress(SystemExit):
        JOBS[name](report)
    out.send(None)


def watch(name: str, seconds: float) -> list[tuple[float, int, float]]:
    """Run a job and return seconds, steps done and megabytes, many times."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, seconds, send))
    process.start()
    send.close()
    curve: list[tuple[float, int, float]] = []
    while (point := receive.recv()) is not None:
        curve.append(point)
    process.join()
    return curve


def verdict(curve: list[tuple[float, int, float]]) -> tuple[float, float, bool]:
    """Return the peak of the first tenth of the steps, that of all, and whether that is fine."""
    steps = curve[-1][1]
    early = max(mb for _, step, mb in curve if step <= max(steps / 10, 1))
    peak = max(mb for _, _, mb in curve)
    fine = steps >= FEWEST_STEPS and peak <= max(RATIO * early, early + SLACK_MB)
    return early, peak, fine


def draw(curves: dict[str, list[tuple[float, int, float]]], path: Path) -> None:
    """Draw memory against the number of steps, one panel a job."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(4 * len(curves), 3), squeeze=False)
    for axis, (name, curve) in zip(axes[0], curves.items(), strict=True):
        early = verdict(curve)[0]
        axis.plot([step for _, step, _ in curve], [mb for _, _, mb in curve], lw=1.5)
        axis.axhline(RATIO * early, color="#999999", lw=1, ls="--")
        axis.set(title=name, xlabel="steps or calls", ylabel="resident memory (MB)")
        axis.set_ylim(0, None)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Run the jobs one after the other and print a table; 1 if memory grew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="of all jobs together")
    parser.add_argument("--only", choices=sorted(JOBS), help="one job alone")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.png")
    options = parser.parse_args()
    names = [options.only] if options.only else list(JOBS)
    curves = {name: watch(name, 60 * options.minutes / len(names)) for name in names}
    print("| job | steps or calls | peak of the first tenth (MB) | peak (MB) | |")
    print("|---|---|---|---|---|")
    for name, curve in curves.items():
        early, peak, fine = verdict(curve)
        result = "fine" if fine else "grew, or too few steps"
        print(f"| {name} | {curve[-1][1]:,} | {early:.0f} | {peak:.0f} | {result} |")
    if options.out is not None:
        options.out.with_suffix(".json").write_text(json.dumps(curves) + "\n", encoding="utf-8")
        draw(curves, options.out.with_suffix(".png"))
    return 0 if all(verdict(curve)[2] for curve in curves.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
