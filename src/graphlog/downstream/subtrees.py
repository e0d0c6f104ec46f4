"""Subtrees of Weisfeiler and Lehman: what message passing can tell apart."""

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_matrix, hstack

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore
from graphlog.ops.colors import refine_colors
from graphlog.ops.neighbors import build_adjacency

ROUNDS = 4
"""How often labels are refined by those of the neighbors."""
_ODD = 0x3F58476D1CE4E5B9


def wl_counts(store: GraphStore) -> csr_matrix:
    """Return how often each refined node label occurs in each graph, all rounds side by side.

    Weisfeiler-Lehman subtree counts (Shervashidze et al., 2011). Labels start as the categorical
    node attributes, or the degree where there are none; those of edges are refined in. Continuous
    attributes are not looked at.
    """
    batch = store[:]
    labels = [_labels(batch, store.schema, rounds) for rounds in range(ROUNDS + 1)]
    histograms: list[csr_matrix] = []
    for of_nodes in labels:
        columns = np.unique(of_nodes, return_inverse=True)[1].reshape(-1)
        cells = (np.ones(len(columns)), (batch.batch.numpy(), columns))
        shape = (batch.num_graphs, int(columns.max(initial=-1)) + 1)
        histograms.append(csr_matrix(cells, shape=shape))
    return csr_matrix(hstack(histograms))


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
    hashes = batch.sizes.numpy() * _ODD
    np.add.at(hashes, batch.batch.numpy(), _labels(batch, store.schema, ROUNDS))
    return np.unique(hashes, return_inverse=True)[1].reshape(-1)


def _labels(batch: GraphBatch, schema: FeatureSchema, rounds: int) -> Int64[np.ndarray, "V"]:
    """Return the labels of all nodes after some refinements, as numbers of 64 bits."""
    edges = build_adjacency(batch.edge_index, batch.num_nodes)
    node, edge = (
        [k for k, column in enumerate(columns) if column.is_categorical]
        for columns in (schema.node, schema.edge)
    )
    x = batch.x[:, node] if node else edges.in_degree[:, None]
    return refine_colors(x, batch.edge_attr[:, edge], edges, rounds).numpy()
