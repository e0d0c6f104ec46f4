"""Kill pre-training with SIGKILL many times, resume it each time, and compare the ends bit by bit.

A third of the kills come at random moments, a third while a checkpoint is being written, a third
while the prototypes are fitted (as far as the moment can be caught; the table says where each kill
fell).

    python benchmarks/kill_resume.py --kills 50
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 64,
    "encoder.dim": 32,
    "encoder.layers": 3,
    "encoder.dropout": 0.1,
    "checkpoint_every_s": 0.0,
    "log_every": 3,
    "watch_every": 4,
    "precision": "fp32",
    "device": "cpu",
}
GRAPHS = 600
LOCAL_STEPS = -(-GRAPHS // SETTINGS["batch_size"])


def pretrain(store: str, run: str) -> None:
    """Run or resume the job to its end; the body of the processes that are killed."""
    import torch

    from graphlog.data.store import open_store
    from graphlog.training import resolve_config, run_pretraining

    torch.set_num_threads(1)
    run_pretraining(
        open_store(Path(store)),
        resolve_config("graphlog", "default", SETTINGS),
        Path(run),
        resume=True,
    )


def start(store: Path, run: Path) -> BaseProcess:
    """Start the job in a process forked from a server that has imported all, computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["graphlog.training", "sklearn.cluster", "torch._dynamo"])
    process = context.Process(target=pretrain, args=(str(store), str(run)))
    process.start()
    return process


def end_of(run: Path) -> dict[str, Any]:
    """Return everything a finished run leaves, but for its speed."""
    from safetensors import safe_open

    from graphlog.encoders.modelfile import KEY

    newest = max((run / "checkpoint").glob("step-?????????"))
    with safe_open(run / "model.safetensors", "pt") as file:
        model = json.loads(file.metadata()[KEY])["sha256"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [{k: v for k, v in row.items() if k != "graphs_per_s"} for row in rows]
    return {
        "model": model,
        "state": json.loads((newest / "manifest.json").read_text())["sha256"],
        "rows": rows,
    }


def wait_until(process: BaseProcess, found: Callable[[], bool]) -> None:
    """Wait for a moment to come, or for the process to end before it."""
    while process.is_alive() and not found():
        time.sleep(0.0003)


def strike(process: BaseProcess, run: Path, kind: str, took: float, luck: random.Random) -> str:
    """Kill the process at a moment of the given kind and return where it really fell."""
    checkpoints = run / "checkpoint"
    if kind == "checkpoint":
        after = luck.randrange(1, 3 * LOCAL_STEPS)
        wait_until(process, lambda: (checkpoints / f"step-{after:09d}").exists())
        wait_until(process, lambda: any(checkpoints.glob("step-*.partial")))
    elif kind == "prototypes":
        wait_until(process, lambda: (checkpoints / f"step-{LOCAL_STEPS:09d}").exists())
        time.sleep(luck.uniform(0.0, 0.02))
    else:
        time.sleep(luck.uniform(0.0, took))
    process.kill()
    process.join()
    done = sorted(checkpoints.glob("step-?????????"))
    if any(checkpoints.glob("step-*.partial")):
        return "during the write of a checkpoint"
    if not done:
        return "before the first checkpoint"
    step = int(done[-1].name.removeprefix("step-"))
    if (run / "model.safetensors").exists():
        return "after the end"
    return "while prototypes were fitted" if step == LOCAL_STEPS else "between two checkpoints"


def main() -> int:
    """Print one line a kill and the verdict; 1 if any end differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    source = str(Path(__file__).resolve().parent.parent / "src")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    sys.path.insert(0, source)
    from graphlog.api import read_molecules

    luck, where, same = random.Random(options.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = root / "store"
        read_molecules("nci5k", schema="molecule-rich", limit=GRAPHS, workers=1, store_path=store)
        start(store, root / "warm").join()
        began = time.monotonic()
        start(store, root / "whole").join()
        took, expected = time.monotonic() - began, end_of(root / "whole")
        for number in range(options.kills):
            run = root / f"run{number}"
            kind = ("random", "checkpoint", "prototypes")[number % 3]
            place = strike(start(store, run), run, kind, took, luck)
            start(store, run).join()
            identical = end_of(run) == expected
            same += identical
            where[place] += 1
            print(
                f"kill {number + 1:3d}  {place:34s}  {'identical' if identical else 'DIFFERENT'}",
                flush=True,
            )
    for place, count in where.most_common():
        print(f"{count:4d} {place}")
    print(f"{options.kills} kills, {same} identical")
    return 0 if same == options.kills else 1


if __name__ == "__main__":
    raise SystemExit(main())
