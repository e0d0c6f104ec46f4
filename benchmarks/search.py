"""Time, memory and recall of the approximate index on clustered vectors, as it grows.

    python benchmarks/search.py nci5k -m graphlog-mol --sizes 50000,100000,200000

The vectors are embeddings of real molecules, repeated with normal noise half as long as the usual
distance between a molecule and the nearest other; the queries are further such copies. Times are
seconds of the processor.
"""

import argparse
import time
from typing import Any

import numpy as np
import torch

import graphlog
from graphlog.extras.neighbors import Index
from graphlog.ops.contrastive import unit_rows

QUERIES, K, ROWS_AT_ONCE = 200, 10, 10_000


def noise_of(vectors: np.ndarray) -> float:
    """Return the deviation of each coordinate."""
    distances = np.sqrt(np.maximum(2 - 2 * vectors[:1000] @ vectors.T, 0))
    nearest = np.partition(distances, 1, axis=1)[:, 1]
    return float(np.median(nearest)) / 2 / vectors.shape[1] ** 0.5


def copies(centers: np.ndarray, noise: float, count: int, rng: np.random.Generator) -> np.ndarray:
    chosen = centers[rng.integers(len(centers), size=count)]
    return unit_rows(torch.tensor(chosen + rng.normal(scale=noise, size=chosen.shape))).numpy()


def report(graph: Any, vectors: np.ndarray, queries: np.ndarray, built_s: float) -> None:
    found, seconds = {}, {}
    for exact, stored in ((False, graph), (True, vectors)):
        index = Index("", "last", stored, np.arange(len(vectors)), [])
        started = time.process_time()
        found[exact] = index.nearest(queries, K)[0]
        seconds[exact] = time.process_time() - started
    hits = [len(np.intersect1d(a, b)) for a, b in zip(found[False], found[True], strict=True)]
    print(
        f"{len(vectors):,} vectors: built in {built_s:.0f} s, {graph.memory_usage / 1e6:.0f} MB "
        f"(exact: {vectors.nbytes / 1e6:.0f} MB); recall@{K} {np.sum(hits) / K / QUERIES:.3f}; "
        f"a query takes {1000 * seconds[False] / QUERIES:.2f} ms "
        f"(exact: {1000 * seconds[True] / QUERIES:.1f} ms)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("molecules")
    parser.add_argument("-m", "--model", default="graphlog-mol")
    parser.add_argument("--sizes", default="50000,100000,200000")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    embeddings = graphlog.load(given.model).embed(given.molecules, "last")
    centers = unit_rows(torch.tensor(embeddings[~np.isnan(embeddings).any(axis=1)])).numpy()
    rng, noise = np.random.default_rng(0), noise_of(centers)
    print(f"{len(centers):,} molecules, width {centers.shape[1]}, noise {noise:.4f} a coordinate")
    queries = copies(centers, noise, QUERIES, rng)
    vectors = np.empty((sizes[-1], centers.shape[1]), dtype=np.float32)
    from usearch.index import Index as Approximate  # loaded before RDKit, it crashes there

    graph = Approximate(ndim=centers.shape[1], metric="cos", dtype="f16")
    built_s = 0.0
    for start in range(0, sizes[-1], ROWS_AT_ONCE):
        rows = slice(start, min(start + ROWS_AT_ONCE, sizes[-1]))
        vectors[rows] = copies(centers, noise, rows.stop - start, rng)
        started = time.process_time()
        graph.add(np.arange(rows.start, rows.stop, dtype=np.uint64), vectors[rows])
        built_s += time.process_time() - started
        if rows.stop in sizes:
            report(graph, vectors[: rows.stop], queries, built_s)


if __name__ == "__main__":
    main()
