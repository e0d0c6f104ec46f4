"""Peak memory of pre-training on graphs of thousands of nodes, one process a measurement.

python benchmarks/large_graphs.py

Each process trains two epochs on four rings with chords, a batch of two graphs, two layers of 16.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

SIZES = (2_000, 4_000, 8_000)
OBJECTIVES = ("graphlog", "attrmasking", "graphmae")


def train(objective: str, nodes: int) -> None:
    """Train and print the objective, the number of nodes and the peak of resident memory."""
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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{objective}, {nodes:,} nodes: {peak:,.0f} MB", flush=True)


def main() -> None:
    """Measure every objective at every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--objectives", nargs="+", default=OBJECTIVES)
    options = parser.parse_args()
    spawned = multiprocessing.get_context("spawn")
    for objective in options.objectives:
        for nodes in options.sizes:
            process = spawned.Process(target=train, args=(objective, nodes))
            process.start()
            process.join()
            if process.exitcode:
                sys.exit(f"{objective}, {nodes:,} nodes: ended with {process.exitcode}")


if __name__ == "__main__":
    main()
