r"""A table of millions of molecules: featurized, trained on, embedded.

The molecules are those of a data set, each repeated with another first atom or another counter-ion,
so that few rows are the same. While featurizing, memory is that of the process and its workers.
Training and embedding the whole store and its first 200,000 graphs are measured in turns, in
processor time.

    python benchmarks/large_store.py --rows 20000000 --folder FOLDER --out large-store.json
"""

import argparse
import contextlib
import gzip
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import featurize
from featurize import Sampler

FEW = 200_000
HEADS = ("", "C", "N", "O", "F", "CC", "CN", "CO", "NC", "OC", "FC", "Cl", "ClC", "BrC", "CCC")
IONS = ("", ".Cl", ".Br", ".O", ".CO", ".CCO", ".N", ".CC#N", ".CS", ".CCl", ".Cl.Cl", ".O.O")


def molecules(table: Path) -> Iterator[str]:
    """Yield the molecules of a file of SMILES, then all of them changed once, twice, ..."""
    for turn in itertools.count():
        with gzip.open(table, "rt") as lines:
            for line in lines:
                smiles = line.split()[0]
                may_grow = smiles[0] == "C" and smiles[1:2] in set("CcNnOS[")
                if may_grow and turn < len(HEADS):
                    yield HEADS[turn] + smiles
                else:
                    yield smiles + IONS[turn % len(IONS)]


def write_table(source: Path, rows: int, path: Path) -> None:
    """Write a CSV table of that many molecules."""
    with path.open("w") as file:
        file.write("smiles\n")
        file.writelines(f"{smiles}\n" for smiles in itertools.islice(molecules(source), rows))


def featurized(table: Path, store: Path) -> dict[str, Any]:
    """Featurize in a process of its own."""
    words = [sys.executable, "-m", "graphlog", "featurize", str(table), "-o", str(store)]
    with Sampler() as memory:
        began = time.perf_counter()
        subprocess.run(words, env={**os.environ, "PYTHONPATH": featurize.SOURCE}, check=True)
        ended = time.perf_counter()
    return {"seconds": ended - began, "peak_mb_all": memory.peak / 1e6}


def memory() -> dict[str, float]:
    """Return megabytes of this process: its own, and pages of the mapped store."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    found = {line[0]: int(line[1]) / 1024 for line in lines if line[0].startswith(("Rss", "VmHWM"))}
    return {"own": found["RssAnon:"], "mapped": found["RssFile:"], "peak": found["VmHWM:"]}


def train(store: Any, steps: int = 45, batch: int = 256) -> dict[str, float]:
    """Return seconds of the processor until the first step, and graphs a second after the fifth."""
    import graphlog

    times: list[float] = []

    class Clock:
        def on_row(self, row: Any) -> None:
            times.append(time.process_time())
            if len(times) == steps:
                raise SystemExit

    began = time.process_time()
    with contextlib.suppress(SystemExit):
        graphlog.pretrain(
            store,
            "attrmasking",
            epochs=1,
            batch_size=batch,
            training={"log_every": 1},
            encoder={"dim": 300, "layers": 5},
            callbacks=[Clock()],
        )
    rate = (steps - 5) * batch / (times[-1] - times[4])
    return {"start_s": times[0] - began, "graphs_per_s": rate}


def embed(encoder: Any, store: Any, graphs: int = 4096) -> dict[str, float]:
    """Return graphs a second of the processor, embedded from all over a store."""
    import graphlog

    chosen = store.subset(range(0, len(store), len(store) // graphs))
    began = time.process_time()
    graphlog.embed(encoder, chosen)
    return {"graphs_per_s": len(chosen) / (time.process_time() - began)}


def used(path: Path) -> dict[str, Any]:
    """Train on and embed a store and a part of it in turns; the body of a process of its own."""
    import torch

    import graphlog

    torch.set_num_threads(1)
    began = time.perf_counter()
    whole = graphlog.open_store(path)
    result: dict[str, Any] = {"graphs": len(whole), "opened_s": time.perf_counter() - began}
    encoder = graphlog.load("graphlog-mol")
    stores = {"few": whole.subset(range(FEW)), "whole": whole}
    turns: dict[str, list[dict[str, float]]] = {}
    for _ in range(3):
        for name, store in stores.items():
            turns.setdefault(f"train {name}", []).append(train(store))
            result[f"MB after training {name}"] = memory()
    for _ in range(3):
        for name, store in stores.items():
            turns.setdefault(f"embed {name}", []).append(embed(encoder, store))
    for name, found in turns.items():
        result[name] = {key: median(turn[key] for turn in found) for key in found[0]}
    return result | {"MB at the end": memory()}


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="for table and store")
    parser.add_argument("--out", type=Path, help="JSON file; standard output otherwise")
    parser.add_argument("--use", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.use is not None:
        print(json.dumps(used(options.use)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    table, store = options.folder / "molecules.csv", options.folder / "store"
    mirror = Path(os.environ["GRAPHLOG_MIRROR"])
    result: dict[str, Any] = {"rows": options.rows, "machine": featurize.machine()}
    result["load_before"] = os.getloadavg()
    write_table(mirror / "chem/pretrain/zinc_moses_1937k.smi.gz", options.rows, table)
    result["table_bytes"] = table.stat().st_size
    result["featurize"] = featurized(table, store)
    sizes = [p.stat().st_size for p in store.iterdir()]
    result["store_bytes"] = sum(sizes)
    words = [sys.executable, __file__, "--folder", str(options.folder), "--use", str(store)]
    environment = {**os.environ, "PYTHONPATH": featurize.SOURCE}
    ended = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE)
    result["use"] = json.loads(ended.stdout)
    result["load_after"] = os.getloadavg()
    shutil.rmtree(store)
    table.unlink()
    text = json.dumps(result, indent=1) + "\n"
    if options.out is None:
        print(text, end="")
    else:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
