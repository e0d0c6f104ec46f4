r"""Seconds and memory from SMILES to a store, a process a measurement.

    python benchmarks/stores.py --out benchmarks/results/featurize.json
    python benchmarks/stores.py --source zinc2m --limit 0 --schemas molecule --repeats 1

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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from machine import machine

Found = dict[str, Any]


@contextlib.contextmanager
def followed() -> Iterator[Found]:
    """Follow the resident memory of this process and its descendants, and return its peak."""
    found, over, own = {"peak_mb": 0.0}, threading.Event(), psutil.Process()

    def follow() -> None:
        while not over.wait(0.1):
            now = 0
            for process in (own, *own.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
                    now += process.memory_info().rss
            found["peak_mb"] = max(found["peak_mb"], now / 1e6)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    yield found
    over.set()
    thread.join()


def featurize(source: str, schema: str, workers: int, limit: int) -> Found:
    """Read a data set or file, parse it and write a checksummed store."""
    import graphlog.api

    with tempfile.TemporaryDirectory() as folder, followed() as memory:
        path, began = Path(folder) / "store", time.perf_counter()
        store = graphlog.api.read_molecules(
            source, schema=schema, limit=limit or None, workers=workers, store_path=path
        )
        seconds = time.perf_counter() - began
        found = {"seconds": seconds, "rows": store.num_rows}
        found |= {"molecules_per_s": store.num_rows / seconds}
        found |= {"bytes_per_molecule": store.nbytes / max(len(store), 1)}
    return found | memory


def repeated(times: int, *given: Any) -> Found:
    """Return the medians of several measurements, a process each, and all seconds."""
    runs: list[Found] = []
    for _ in range(times):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            runs.append(pool.submit(featurize, *given).result())
    medians = {key: round(median(run[key] for run in runs), 3) for key in runs[0]}
    return {**medians, "all_seconds": [round(run["seconds"], 3) for run in runs]}


def main() -> None:
    """Measure every schema on every number of workers and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", help="data set, file or store")
    parser.add_argument("--limit", type=int, default=100_000, help="rows at most; 0 reads all")
    parser.add_argument("--schemas", nargs="+", default=["molecule", "molecule-rich"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file; standard output otherwise")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    source = options.source or ("zinc250k" if os.environ.get("GRAPHLOG_MIRROR") else "wehi10k")
    load, measured = os.getloadavg()[0], list[Found]()
    for schema, workers in itertools.product(options.schemas, options.workers):
        found = repeated(options.repeats, source, schema, workers, options.limit)
        measured.append({"schema": schema, "workers": workers, **found})
        print(measured[-1], flush=True)
    result = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), "load_before": load}
    result |= {"source": source, "limit": options.limit or None, "measured": measured}
    text = json.dumps({**result, "load_after": os.getloadavg()[0]}, indent=1) + "\n"
    print(text, end="") if options.out is None else options.out.write_text(text)


if __name__ == "__main__":
    main()
