"""Steps of GraphPartition over graphs it has cut before, beside AttrMasking's, in one process.

Steps of the two are interleaved. The suite ``speed`` times a first epoch, in which every graph is
cut by METIS; later epochs find the cuts remembered.

    python benchmarks/seen_before.py --out benchmarks/results
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import torch

from graphlog.api import read_molecules
from graphlog.benchmark.cells import Request, plan_cells
from graphlog.benchmark.speed import TimedObjective
from graphlog.data.batch import BatchSampler
from graphlog.data.store import GraphStore
from graphlog.domains.protein.reading import open_named_proteins
from graphlog.training.log import Silent
from graphlog.training.precision import choose_device
from step import machine, publish

METHODS = ("attrmasking", "graphpartition")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=16, help="measured steps of each side and domain"
    )
    parser.add_argument(
        "--batches",
        type=int,
        default=4,
        help="batches that are seen once before the clock runs, and then over and over",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--out", type=Path, help="folder for seen-before.json; standard output otherwise"
    )
    return parser.parse_args()


def seconds_of_steps(
    store: GraphStore, domain: str, num_batches: int, steps: int
) -> dict[str, Any]:
    """Return median and quartiles of a step's seconds.

    With them, AttrMasking's median over GraphPartition's.
    """
    request = Request("speed", "small", METHODS, seeds=[0], domain=domain, stages=["speed"])
    configs = plan_cells(request)[0].together
    timed = {name: TimedObjective(store, config, Silent()) for name, config in configs.items()}
    size = configs[METHODS[0]].batch_size
    batches = BatchSampler(len(store), size, 0, drop_last=True).epoch(0)[:num_batches]
    for objective in timed.values():
        for batch in batches:
            objective.step(batch)
    taken: dict[str, list[float]] = {name: [] for name in METHODS}
    for number in range(steps):
        for name in METHODS[:: 1 if number % 2 else -1]:
            taken[name].append(timed[name].step(batches[number % len(batches)]))
    return {
        "graphs": len(store),
        "batch_size": size,
        "steps": steps,
        "step_s": {name: quantiles(values, n=4) for name, values in taken.items()},
        f"ratio_{domain}": median(taken["attrmasking"]) / median(taken["graphpartition"]),
    }


def sample(store: GraphStore, count: int) -> GraphStore:
    """Return graphs drawn at random, so that a batch is as mixed as in training."""
    return store.subset(np.random.default_rng(0).permutation(len(store))[:count])


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    stores: Mapping[str, GraphStore] = {
        "molecule": read_molecules("zinc250k", schema="molecule", limit=4096),
        "protein": sample(open_named_proteins("string-6239"), 4096),
    }
    result: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/seen_before.py", *sys.argv[1:]])
    }
    result |= {"machine": machine(choose_device("cpu")), "load_before": load, "idle": load < 0.5}
    for domain, store in stores.items():
        found = seconds_of_steps(store, domain, options.batches, options.steps)
        result |= {key: found.pop(key) for key in list(found) if key.startswith("ratio")}
        result[domain] = found
    result["load_after"] = os.getloadavg()[0]
    publish(result, options.out, "seen-before")


if __name__ == "__main__":
    main()
