"""Weisfeiler-Lehman subtree counts (Shervashidze et al., 2011), a baseline without learning."""

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_matrix, hstack

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import Attribute
from graphlog.data.store import GraphStore

ROUNDS = 4
"""How often labels are refined by those of the neighbors."""
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15))


def wl_counts(store: GraphStore, rounds: int = ROUNDS) -> csr_matrix:
    """Return how often each refined node label occurs in each graph, all rounds side by side.

    Labels start as the categorical node attributes, or the degree where there are none; those of
    edges are refined in. Continuous attributes are not looked at. A multiset of neighbors is known
    by a sum of 64-bit hashes.
    """
    batch = store[:]
    labels = _dense(_codes(batch.x.numpy(), store.schema.node, batch.num_nodes))
    if not any(c.is_categorical for c in store.schema.node):
        labels = _dense(
            np.bincount(batch.edge_index[1].numpy(), minlength=batch.num_nodes).astype(np.int64)
        )
    edges = _codes(batch.edge_attr.numpy(), store.schema.edge, batch.num_edges)
    counts = [_histogram(labels, batch)]
    for _ in range(rounds):
        labels = _refined(labels, edges, batch)
        counts.append(_histogram(labels, batch))
    return csr_matrix(hstack(counts))


def wl_kernel(store: GraphStore, rounds: int = ROUNDS) -> Float[np.ndarray, "M M"]:
    """Return the cosines of all graphs' label counts."""
    counts = wl_counts(store, rounds).astype(np.float64)
    products = np.asarray((counts @ counts.T).todense())
    norms = np.sqrt(np.diag(products))
    return products / np.outer(norms, norms)


def _codes(values: np.ndarray, columns: tuple[Attribute, ...], rows: int) -> Int64[np.ndarray, "R"]:
    """Return one number a row for all its categorical columns together."""
    key = np.zeros(rows, dtype=np.int64)
    for k, column in enumerate(columns):
        if column.is_categorical:
            key = key * column.cardinality + values[:, k].astype(np.int64)
            key = _dense(key)
    return key


def _refined(
    labels: Int64[np.ndarray, "V"], edges: Int64[np.ndarray, "E"], batch: GraphBatch
) -> Int64[np.ndarray, "V"]:
    source, target = batch.edge_index.numpy()
    message = _hash(_hash(labels)[source] + _hash(edges + 1) * _MIX[2])
    gathered = np.zeros(len(labels), dtype=np.uint64)
    np.add.at(gathered, target, message)
    return _dense(_hash(_hash(labels) * _MIX[0] + gathered))


def _histogram(labels: Int64[np.ndarray, "V"], batch: GraphBatch) -> csr_matrix:
    ones = np.ones(len(labels))
    return csr_matrix(
        (ones, (batch.batch.numpy(), labels)),
        shape=(batch.num_graphs, int(labels.max(initial=-1)) + 1),
    )


def _dense(labels: np.ndarray) -> Int64[np.ndarray, "V"]:
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _hash(values: np.ndarray) -> np.ndarray:
    """Return splitmix64 of every number."""
    z = values.astype(np.uint64) + _MIX[2]
    z = (z ^ (z >> np.uint64(30))) * _MIX[0]
    z = (z ^ (z >> np.uint64(27))) * _MIX[1]
    return z ^ (z >> np.uint64(31))
