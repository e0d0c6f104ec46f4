"""Seconds of one pre-training step on ego-networks of proteins, ours beside torch_geometric's way, interleaved in one process.

python benchmarks/protein_step.py --out benchmarks/results
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphlog.domains.protein.stores import open_named_proteins
from graphlog.training.config import resolve_config
from graphlog.training.precision import choose_device
from protein_reference import ProteinReference
from step import machine, measure, publish, whole_run


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="measured steps of each side")
    parser.add_argument("--warmup", type=int, default=1, help="steps of each side before measuring")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="the other side needs some 60 MB a graph"
    )
    parser.add_argument(
        "--graphs",
        type=int,
        default=2048,
        help="ego-networks the batches are drawn from; 0 takes all",
    )
    parser.add_argument(
        "--pretrain-graphs",
        type=int,
        default=0,
        help="ego-networks of a whole run of ours beside it; 0 leaves it out",
    )
    parser.add_argument("--set", dest="name", default="string-6239", help="named network or set")
    parser.add_argument("--recipe", default="paper")
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--bf16",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: where the hardware computes in it",
    )
    parser.add_argument(
        "--out", type=Path, help="folder for protein-step-<machine>.json; standard output otherwise"
    )
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    settings = {"encoder": {"dim": options.dim, "layers": options.layers}, "schema": "protein"}
    config = resolve_config("graphlog", options.recipe, settings)
    every = open_named_proteins(options.name)
    count = min(options.graphs or len(every), len(every))
    # proteins stand by name in a network's store: a random sample, so that a batch is as mixed as in training
    store = every.subset(np.random.default_rng(0).permutation(len(every))[:count])
    load = os.getloadavg()[0]
    result: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/protein_step.py", *sys.argv[1:]]),
        "machine": machine(device),
    }
    result |= {"set": options.name, "graphs": count, "nodes_a_graph": float(store.num_nodes.mean())}
    result |= {
        "edges_a_graph": float(store.num_edges.mean()),
        "load_before": load,
        "idle": load < 0.5,
        "recipe": options.recipe,
    }
    result |= measure(options, config, store, device, ProteinReference)
    if options.pretrain_graphs:
        side = "ours_bf16" if "ours_bf16" in result else "ours_fp32"
        result["pretrain"] = whole_run(options, config, store, side.removeprefix("ours_"))
    result["load_after"] = os.getloadavg()[0]
    publish(result, options.out, f"protein-step-{device.type}")


if __name__ == "__main__":
    main()
