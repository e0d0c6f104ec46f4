r"""Seconds and memory from inputs to stores, a process a measurement.

    python benchmarks/stores.py molecules --out benchmarks/results/featurize.json
    python benchmarks/stores.py molecules --source zinc2m --limit 0 --schemas molecule --repeats 1
    python benchmarks/stores.py proteins --out benchmarks/results/protein-store.json

Memory is the resident memory of a process and of all its workers together, sampled; pages that they
share are counted once for each.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import tempfile
import threading
import time
import timeit
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from timing import machine

Found = dict[str, Any]


class Sampler:
    """Follows the resident memory of this process and its descendants."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        own = psutil.Process()
        while not self._over.wait(0.1):
            now = 0
            for process in (own, *own.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
                    now += process.memory_info().rss
            self.peak = max(self.peak, now)


def alone(work: Callable[..., Found], *given: Any) -> Found:
    """Return what some work found, in a process of its own, with its seconds and peak memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, work, *given).result()


def _measured(work: Callable[..., Found], *given: Any) -> Found:
    import graphlog.api  # noqa: F401 - what is measured is the work alone

    with Sampler() as memory:
        began = time.perf_counter()
        found = work(*given)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, **found, "peak_mb": memory.peak / 1e6}


def repeated(times: int, work: Callable[..., Found], *given: Any) -> Found:
    """Return the medians of several measurements, and all seconds."""
    runs = [alone(work, *given) for _ in range(times)]
    medians = {key: round(median(run[key] for run in runs), 3) for key in runs[0]}
    return {**medians, "all_seconds": [round(run["seconds"], 3) for run in runs]}


def featurize(source: str, schema: str, workers: int, limit: int) -> Found:
    """Read a data set or file, parse it and write a checksummed store."""
    import graphlog

    with tempfile.TemporaryDirectory() as folder:
        where: Found = {"workers": workers, "store_path": Path(folder) / "store"}
        began = time.perf_counter()
        store = graphlog.read_molecules(source, schema=schema, limit=limit or None, **where)
        rate = store.num_rows / (time.perf_counter() - began)
        size = store.nbytes / max(len(store), 1)
        return {"rows": store.num_rows, "molecules_per_s": rate, "bytes_per_molecule": size}


def molecules(options: argparse.Namespace) -> Found:
    """Measure every schema on every number of workers."""
    source = options.source or ("zinc250k" if os.environ.get("GRAPHLOG_MIRROR") else "wehi10k")
    found: list[Found] = []
    for schema, workers in itertools.product(options.schemas, options.workers):
        given = (source, schema, workers, options.limit)
        found.append(
            {"schema": schema, "workers": workers, **repeated(options.repeats, featurize, *given)}
        )
        print(found[-1], flush=True)
    return {"source": source, "limit": options.limit or None, "measured": found}


def build_proteins(name: str, path: str) -> Found:
    """Build the store of a named set with a table of labels from its network."""
    import graphlog
    from graphlog.datasets import DATASETS
    from graphlog.domains.protein.reading import FILES

    spec = DATASETS[name]
    labels = str(FILES.fetch(spec))
    networks = spec.details["networks"][0]
    began = time.perf_counter()
    store = graphlog.read_proteins(networks, labels=labels, store_path=path, workers=2)
    sizes = {"graphs": len(store), "nodes_a_graph": float(store.num_nodes.mean())}
    sizes |= {"edges_a_graph": float(store.num_edges.mean()), "store_mb": store.nbytes / 1e6}
    return {"seconds": time.perf_counter() - began, **sizes}


def proteins(options: argparse.Namespace) -> Found:
    """Measure the store of ego-networks: built, opened, opened for a batch, verified."""
    from graphlog.data.store import open_store
    from graphlog.inputs import fetch_dataset

    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{k}" for k in range(options.repeats)]
        builds = [alone(build_proteins, options.source or "worm-go40", path) for path in paths]
        parts: dict[str, Callable[[], object]] = {
            "open_ms": lambda: open_store(paths[0]),
            "open_and_32_graphs_ms": lambda: open_store(paths[0])[:32],
            "open_and_verify_ms": lambda: open_store(paths[0]).verify(),
        }
        once = partial(timeit.repeat, number=1)
        times = {name: 1e3 * median(once(work, repeat=50)) for name, work in parts.items()}
    fetch = partial(fetch_dataset, options.source or "worm-go40")
    return {"builds": builds, **times, "named_set_again_ms": 1e3 * once(fetch, repeat=2)[1]}


PARTS = {"molecules": molecules, "proteins": proteins}


def main() -> None:
    """Measure one part and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--source", help="data set, file or store")
    parser.add_argument("--limit", type=int, default=100_000, help="rows at most; 0 reads all")
    parser.add_argument("--schemas", nargs="+", default=["molecule", "molecule-rich"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file; standard output otherwise")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    load = os.getloadavg()[0]
    result = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), "load_before": load}
    result |= PARTS[options.part](options)
    text = json.dumps({**result, "load_after": os.getloadavg()[0]}, indent=1) + "\n"
    print(text, end="") if options.out is None else options.out.write_text(text)


if __name__ == "__main__":
    main()
