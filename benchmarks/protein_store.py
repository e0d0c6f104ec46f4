"""Seconds and memory from a labeled STRING network to a store of ego-networks, and to open it.

python benchmarks/protein_store.py --out benchmarks/results
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from graphlog.data.store import open_store
from graphlog.datasets import DATASETS
from graphlog.datasets.download import fetch
from graphlog.domains.protein.reading import verify_file
from graphlog.inputs import fetch_dataset
from step import machine

BUILD = """
import json, resource, sys, time
started = time.perf_counter()
from graphlog.api import read_proteins
imported = time.perf_counter()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
store = read_proteins(sys.argv[1], labels=sys.argv[2] or None, store_path=sys.argv[3], \
workers=2, limit=int(sys.argv[4]) or None)
done = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"import_s": imported - started, "build_s": done - imported, \
"peak_mb": peak / 1e3, "peak_before_mb": before / 1e3}))
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--set", dest="name", default="worm-go40", help="named set with a table of labels"
    )
    parser.add_argument("--limit", type=int, default=0, help="proteins at most; 0 takes all")
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--opens", type=int, default=50)
    parser.add_argument(
        "--out", type=Path, help="folder for protein-store.json; standard output otherwise"
    )
    return parser.parse_args()


def build(options: argparse.Namespace, path: Path) -> dict[str, float]:
    """Build the store in a fresh process and return its seconds and memory."""
    spec = DATASETS[options.name]
    words = [
        spec.details["networks"][0],
        str(fetch(spec, None, verify_file)),
        str(path),
        str(options.limit),
    ]
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *words], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def open_times(path: Path, count: int) -> dict[str, float]:
    """Milliseconds of opening, of opening and taking a first batch, and of hashing all.

    The files are in the page cache.
    """
    opened, taken = [], []
    for _ in range(count):
        started = time.perf_counter()
        store = open_store(path)
        opened.append(time.perf_counter() - started)
        store[:32]
        taken.append(time.perf_counter() - started)
    started = time.perf_counter()
    open_store(path).verify()
    verified = time.perf_counter() - started
    return {
        "open_ms": 1e3 * median(opened),
        "slowest_open_ms": 1e3 * max(opened),
        "open_and_32_graphs_ms": 1e3 * median(taken),
        "open_and_verify_ms": 1e3 * verified,
    }


def main() -> None:
    options = parse_arguments()
    load = os.getloadavg()[0]
    result: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/protein_store.py", *sys.argv[1:]])
    }
    result |= {
        "machine": machine(torch.device("cpu")),
        "set": options.name,
        "load_before": load,
        "idle": load < 0.5,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        result["builds"] = [build(options, path) for _ in range(options.builds)]
        store = open_store(path)
        result |= {
            "graphs": len(store),
            "nodes_a_graph": float(store.num_nodes.mean()),
            "edges_a_graph": float(store.num_edges.mean()),
        }
        result |= {"largest_graph": int(store.num_nodes.max()), "store_mb": store.nbytes / 1e6}
        result |= {
            "build_s": median(b["build_s"] for b in result["builds"]),
            "peak_mb": max(b["peak_mb"] for b in result["builds"]),
        }
        result |= open_times(path, options.opens)
    fetch_dataset(options.name)
    started = time.perf_counter()
    fetch_dataset(options.name)
    result |= {
        "named_set_again_ms": 1e3 * (time.perf_counter() - started),
        "load_after": os.getloadavg()[0],
    }
    text = json.dumps(result, indent=1)
    if options.out is None:
        print(text)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "protein-store.json"
    target.write_text(text + "\n", encoding="utf-8")
    print(target, {k: round(v, 2) for k, v in result.items() if k.endswith(("_s", "_ms", "_mb"))})


if __name__ == "__main__":
    main()
