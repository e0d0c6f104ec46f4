"""Subtrees of Weisfeiler and Lehman: what message passing can tell apart."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_matrix, hstack

from graphlog.data.batch import GraphBatch
from graphlog.data.chunk import MIX, mixed
from graphlog.data.schema import Attribute
from graphlog.data.store import GraphStore

ROUNDS = 4
"""How often labels are refined by those of the neighbors."""
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
"""An odd number: a node's own label must not look like one of its neighbors'."""


def wl_counts(store: GraphStore) -> csr_matrix:
    """Return how often each refined node label occurs in each graph, all rounds side by side.

    Weisfeiler-Lehman subtree counts (Shervashidze et al., 2011). Labels start as the categorical
    node attributes, or the degree where there are none; those of edges are refined in. Continuous
    attributes are not looked at. A multiset of neighbors is known by a sum of 64-bit hashes.
    """
    batch = store[:]
    return csr_matrix(hstack([_histogram(labels, batch) for labels in _rounds(store, batch)]))


def wl_kernel(store: GraphStore) -> Float[np.ndarray, "M M"]:
    """Return the cosines of all graphs' label counts."""
    counts = wl_counts(store).astype(np.float64)
    products = np.asarray((counts @ counts.T).todense())
    norms = np.sqrt(np.diag(products))
    return products / np.outer(norms, norms)


def same_structure(store: GraphStore) -> Int64[np.ndarray, "M"]:
    """Return a number for each graph, equal where neither subtrees nor sizes tell graphs apart.

    Two different graphs may share one, as they would for an encoder of as many layers.
    """
    batch = store[:]
    *_, labels = _rounds(store, batch)
    hashes = np.zeros(len(store), dtype=np.uint64)
    np.add.at(hashes, batch.batch.numpy(), mixed(_hash(labels)))
    hashes += np.asarray(store.num_nodes).astype(np.uint64) * _FACTOR
    return _dense(hashes)


def _rounds(store: GraphStore, batch: GraphBatch) -> Iterator[Int64[np.ndarray, "V"]]:
    """Yield the labels of all nodes: as they are, and after each refinement."""
    labels = _dense(_codes(batch.x.numpy(), store.schema.node, batch.num_nodes))
    if not any(c.is_categorical for c in store.schema.node):
        labels = _dense(
            np.bincount(batch.edge_index[1].numpy(), minlength=batch.num_nodes).astype(np.int64)
        )
    edges = _codes(batch.edge_attr.numpy(), store.schema.edge, batch.num_edges)
    yield labels
    for _ in range(ROUNDS):
        labels = _refined(labels, edges, batch)
        yield labels


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
    message = mixed(_hash(labels)[source] + _hash(edges + 1) * MIX)
    gathered = np.zeros(len(labels), dtype=np.uint64)
    np.add.at(gathered, target, message)
    return _dense(mixed(_hash(labels) * _FACTOR + gathered))


def _histogram(labels: Int64[np.ndarray, "V"], batch: GraphBatch) -> csr_matrix:
    ones = np.ones(len(labels))
    return csr_matrix(
        (ones, (batch.batch.numpy(), labels)),
        shape=(batch.num_graphs, int(labels.max(initial=-1)) + 1),
    )


def _dense(labels: np.ndarray) -> Int64[np.ndarray, "V"]:
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _hash(labels: Int64[np.ndarray, "V"]) -> np.ndarray:
    return mixed(labels.astype(np.uint64))
