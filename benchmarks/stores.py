r"""Seconds and memory from inputs to stores and from stores to training, a process a measurement.

    python benchmarks/stores.py molecules --out benchmarks/results/featurize.json
    python benchmarks/stores.py molecules --source zinc2m --limit 0 --schemas molecule --repeats 1
    python benchmarks/stores.py proteins --out benchmarks/results/protein-store.json
    python benchmarks/stores.py millions --rows 20000000 --folder FOLDER
    python benchmarks/stores.py millions --folder FOLDER --use STORE
    python benchmarks/stores.py opening --source STORE
    python benchmarks/stores.py graphs

Memory is the resident memory of a process and of all its workers together, sampled; pages that they
share are counted once for each. ``millions`` repeats the molecules of ``zinc2m``, each with another
first atom or counter-ion, so that few rows are the same; training and embedding the whole store and
its first 200,000 graphs take turns, in processor time. ``opening`` is what the checks of a store's
structure cost beside the hashes of its files. ``graphs`` trains two epochs on four rings with
chords, a batch of two graphs, two layers of 16.
"""

import argparse
import contextlib
import gzip
import itertools
import json
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from timing import clocked, machine

Found = dict[str, Any]
FEW = 200_000
HEADS = ("", "C", "N", "O", "F", "CC", "CN", "CO", "NC", "OC", "FC", "Cl", "ClC", "BrC", "CCC")
IONS = ("", ".Cl", ".Br", ".O", ".CO", ".CCO", ".N", ".CC#N", ".CS", ".CCl", ".Cl.Cl", ".O.O")


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
    from graphlog.datasets.catalogue import fetch
    from graphlog.domains.protein.reading import verify_file

    spec = DATASETS[name]
    labels = str(fetch(spec, None, verify_file))
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


def written(table: Path) -> Iterator[str]:
    """Yield the molecules of a file of SMILES, then all of them changed once, twice, ..."""
    for turn in itertools.count():
        with gzip.open(table, "rt") as lines:
            for smiles in (line.split()[0] for line in lines):
                may_grow = smiles[0] == "C" and smiles[1:2] in set("CcNnOS[")
                is_grown = may_grow and turn < len(HEADS)
                yield HEADS[turn] + smiles if is_grown else smiles + IONS[turn % len(IONS)]


def featurize_table(table: str, path: str) -> Found:
    """Featurize with the command."""
    from graphlog.cli.main import main

    assert main(["featurize", table, "-o", path]) == 0
    return {"store_bytes": sum(p.stat().st_size for p in Path(path).iterdir())}


def train(store: Any, steps: int = 45, batch: int = 256) -> Found:
    """Return seconds of the processor until the first step, and graphs a second after the fifth."""
    import graphlog

    times: list[float] = []

    class Clock:
        def on_row(self, row: Any) -> None:
            times.append(time.process_time())
            if len(times) == steps:
                raise SystemExit

    small: Found = {"epochs": 1, "batch_size": batch, "training": {"log_every": 1}}
    small["encoder"] = {"dim": 300, "layers": 5}
    began = time.process_time()
    with contextlib.suppress(SystemExit):
        graphlog.pretrain(store, "attrmasking", callbacks=[Clock()], **small)
    rate = (steps - 5) * batch / (times[-1] - times[4])
    return {"start_s": times[0] - began, "train_graphs_per_s": rate}


def embed(store: Any, graphs: int = 4096) -> Found:
    """Return graphs a second of the processor, embedded from all over a store."""
    import graphlog

    chosen = store.subset(range(0, len(store), len(store) // graphs))
    encoder, began = graphlog.load("graphlog-mol"), time.process_time()
    graphlog.embed(encoder, chosen)
    return {"embed_graphs_per_s": len(chosen) / (time.process_time() - began)}


def use(path: str) -> Found:
    """Train on and embed a store and a part of it in turns."""
    import torch

    import graphlog

    torch.set_num_threads(1)
    began = time.perf_counter()
    whole = graphlog.open_store(path)
    found: Found = {"graphs": len(whole), "opened_s": time.perf_counter() - began}
    stores = {"few": whole.subset(range(FEW)), "whole": whole}
    turns: dict[str, list[Found]] = {name: [] for name in stores}
    for _, (name, store) in itertools.product(range(3), stores.items()):
        turns[name].append({**train(store), **embed(store)})
        lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
        found[f"own MB after {name}"] = next(int(w[1]) / 1024 for w in lines if w[0] == "RssAnon:")
    for name, rows in turns.items():
        found[name] = {key: median(row[key] for row in rows) for key in rows[0]}
    return found


def millions(options: argparse.Namespace) -> Found:
    """Measure a table of millions of molecules: featurized, trained on, embedded."""
    if options.use:
        return alone(use, options.use)
    options.folder.mkdir(parents=True, exist_ok=True)
    table, store = options.folder / "molecules.csv", options.folder / "store"
    source = Path(os.environ["GRAPHLOG_MIRROR"]) / "chem/pretrain/zinc_moses_1937k.smi.gz"
    with table.open("w") as file:
        file.write("smiles\n")
        file.writelines(f"{s}\n" for s in itertools.islice(written(source), options.rows))
    found = {"rows": options.rows, "table_bytes": table.stat().st_size}
    found["featurize"] = alone(featurize_table, str(table), str(store))
    found["use"] = alone(use, str(store))
    shutil.rmtree(store)
    table.unlink()
    return found


def opening(options: argparse.Namespace) -> Found:
    """Measure opening a store with and without the checks of its structure, in turns."""
    from graphlog.benchmark.speed import in_turns
    from graphlog.data import manifest
    from graphlog.data.store import open_store

    def opened(check: Callable[[Any], bool]) -> None:
        manifest._is_sound = check
        manifest._hashed.clear()
        manifest._sound.clear()
        open_store(options.source)

    checks: dict[str, Callable[[Any], bool]] = {
        "with": manifest._is_sound,
        "without": lambda _: True,
    }
    sides = {name: clocked(lambda _, c=c: opened(c)) for name, c in checks.items()}
    seconds = in_turns(sides, options.repeats)
    found = {f"{side}_ms": 1e3 * median(taken) for side, taken in seconds.items()}
    return {**found, "share": found["with_ms"] / found["without_ms"] - 1}


def train_rings(objective: str, nodes: int) -> Found:
    """Pre-train on rings with chords."""
    import graphlog

    ring = [[k, (k + 1) % nodes] for k in range(nodes)]
    chords = [[k, (k + 7) % nodes] for k in range(0, nodes, 5)]
    line = json.dumps({"edges": ring + chords, "x": ["abcd"[k % 4] for k in range(nodes)]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graphs.jsonl"
        path.write_text(f"{line}\n" * 4)
        graphs = graphlog.read_graphs(path)
    network = {"dim": 16, "layers": 2}
    graphlog.pretrain(graphs, objective=objective, epochs=2, batch_size=2, encoder=network)
    return {}


def graphs(_: argparse.Namespace) -> Found:
    """Measure every objective at every size."""
    found: Found = {}
    for objective in ("graphlog", "attrmasking", "graphmae"):
        for nodes in (2_000, 4_000, 8_000):
            peak = alone(train_rings, objective, nodes)["peak_mb"]
            found[f"{objective}, {nodes:,} nodes"] = f"{peak:,.0f} MB"
    return found


PARTS = {f.__name__: f for f in (molecules, proteins, millions, opening, graphs)}


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
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path, help="for a table and a store of millions")
    parser.add_argument("--use", help="a store of millions that is there")
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
