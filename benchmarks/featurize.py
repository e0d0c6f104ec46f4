r"""Molecules a second and peak memory of featurizing, both schemas, on one and on two workers.

Each measurement is a process of its own that reads a data set, parses it and writes a checksummed
store to disk. Memory is the resident memory of the process and of all its workers together,
sampled; pages they share are counted once for each.

    python benchmarks/featurize.py --out benchmarks/results/featurize.json
    python benchmarks/featurize.py --source zinc2m --schemas molecule --workers 2 --repeats 1 \
        --out memory.json
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

SAMPLED_EVERY_S = 0.1
SOURCE = str(Path(__file__).resolve().parent.parent / "src")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source",
        help="data set or file (default: zinc250k where $GRAPHLOG_MIRROR is set, else wehi10k)",
    )
    parser.add_argument(
        "--limit", type=int, default=100_000, help="rows to read at most; 0 reads all"
    )
    parser.add_argument("--schemas", nargs="+", default=["molecule", "molecule-rich"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file; standard output otherwise")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure_once(source: str, schema: str, workers: int, limit: int) -> dict[str, float]:
    """Return what one featurizing took; the body of each process."""
    from graphlog.api import read_molecules

    with tempfile.TemporaryDirectory() as folder, Sampler() as memory:
        began = time.perf_counter()
        store = read_molecules(
            source,
            schema=schema,
            workers=workers,
            limit=limit or None,
            store_path=Path(folder) / "store",
        )
        seconds = time.perf_counter() - began
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
        return {
            "rows": store.num_rows,
            "rejected": store.num_rows - len(store),
            "seconds": seconds,
            "molecules_per_s": store.num_rows / seconds,
            "bytes_per_molecule": store.nbytes / max(len(store), 1),
            "peak_mb_reader": own / 1e6,
            "peak_mb_all": max(memory.peak, own) / 1e6,
        }


class Sampler:
    """Follows the resident memory of this process and its descendants (Linux only)."""

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
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._over.wait(SAMPLED_EVERY_S):
            self.peak = max(
                self.peak, page * sum(_resident_pages(pid) for pid in _family(os.getpid()))
            )


def _resident_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has ended
        return 0


def _family(pid: int) -> list[int]:
    children: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += [int(child) for child in listing.read_text().split()]
        except OSError:
            continue
    return [pid, *(descendant for child in children for descendant in _family(child))]


def measure(source: str, schema: str, workers: int, limit: int, repeats: int) -> dict[str, Any]:
    """Return the medians of several processes, and every value of the rate."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    runs: list[dict[str, float]] = []
    for _ in range(repeats):
        words = [sys.executable, __file__, "--one", json.dumps([source, schema, workers, limit])]
        runs.append(
            json.loads(
                subprocess.run(words, check=True, stdout=subprocess.PIPE, env=environment).stdout
            )
        )
    return {
        "schema": schema,
        "workers": workers,
        **{key: round(median(run[key] for run in runs), 3) for key in runs[0]},
        "all_molecules_per_s": [round(run["molecules_per_s"], 1) for run in runs],
    }


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    lines = (
        Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    )
    named = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(named, platform.processor()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("rdkit", "numpy", "joblib")},
    }


def main() -> None:
    """Measure every schema on every number of workers and write the result."""
    options = parse_arguments()
    if options.one is not None:
        print(json.dumps(measure_once(*json.loads(options.one))))
        return
    source = options.source or ("zinc250k" if os.environ.get("GRAPHLOG_MIRROR") else "wehi10k")
    load = os.getloadavg()[0]
    result: dict[str, Any] = {
        "source": source,
        "limit": options.limit or None,
        "repeats": options.repeats,
        "machine": machine(),
    }
    result |= {"date": time.strftime("%Y-%m-%d"), "load_before": load, "idle": load < 0.5}
    result["measured"] = []
    for schema in options.schemas:
        for workers in options.workers:
            found = measure(source, schema, workers, options.limit, options.repeats)
            result["measured"].append(found)
            rate, memory = found["molecules_per_s"], found["peak_mb_all"]
            print(
                f"{schema:14s} {workers} workers {rate:9,.0f} molecules/s {memory:7,.0f} MB",
                file=sys.stderr,
                flush=True,
            )
    result["load_after"] = os.getloadavg()[0]
    text = json.dumps(result, indent=1) + "\n"
    if options.out is None:
        print(text, end="")
    else:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
