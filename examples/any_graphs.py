"""Read graphs from JSON lines, pre-train, cross-validate, and embed new graphs."""

import json
import random
import tempfile
from pathlib import Path

import graphlog


def ring_or_star(kind: str, size: int) -> str:
    """Return a graph with a color and a weight on every node as a line of JSON."""
    edges = (
        [[k, (k + 1) % size] for k in range(size)]
        if kind == "ring"
        else [[0, k] for k in range(1, size)]
    )
    nodes = [[random.choice(["red", "blue"]), random.gauss(10.0, 3.0)] for _ in range(size)]
    return json.dumps({"edges": edges, "x": nodes, "y": kind})


random.seed(0)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "graphs.jsonl"
    path.write_text(
        "\n".join(
            ring_or_star(kind, random.randint(4, 9)) for _ in range(30) for kind in ("ring", "star")
        )
    )

    graphs = graphlog.read_graphs(path)
    for attribute in graphs.schema.node:
        print(attribute)

    encoder = graphlog.pretrain(graphs, epochs=3, batch_size=16, encoder={"layers": 2, "dim": 16})
    print(graphlog.fold_probe(encoder, graphs, folds=5, seeds=(0,)))

    path.write_text(
        '{"edges": [[0, 1]], "x": [["red", 9.0], ["green", 11.0]]}\n'
        '{"edges": [[0, 1]], "x": [["red", 9.0], ["blue", 11.0]]}\n'
    )
    print("an unseen color is a NaN row:", encoder.embed(path)[:, 0])
