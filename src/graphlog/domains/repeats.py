"""Recognition of graphs with the same structure, by color refinement."""

from collections import Counter
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int, Int64

from graphlog.data.graphs import FeatureSchema
from graphlog.data.split import group_numbers
from graphlog.data.store import GraphBatch, GraphStore
from graphlog.domains import domain_of
from graphlog.ops.colors import refine_colors, stable_colors
from graphlog.ops.sparse import build_adjacency

Kinds = Int64[np.ndarray, "M"]
"""A number for each graph, equal for graphs that are repeats of each other."""
ROUNDS = 4
"""Number of times that the label of a node is refined by the labels of its neighbors."""
_MAX_COPIED_NODES = 1 << 16
"""Largest number of nodes in all copies of a graph; a graph has a copy per node or node pair."""
_MAX_MARKED = 100
"""Largest number of nodes of a graph that are marked to make all its nodes differ."""


@lru_cache(maxsize=1)
def repeat_kinds(store: GraphStore) -> Kinds | None:
    """Return equal numbers for graphs whose parents have the same structure.

    The result is None for proteins, since ego-networks of different proteins may be isomorphic.
    """
    domain = domain_of(store.schema)
    return same_structure(domain.parents(store)) if domain.finds_repeats else None


def equal_embedding_kinds(store: GraphStore, layers: int) -> Kinds | None:
    """Return equal numbers for graphs with equal embeddings in any network of ``layers`` layers.

    The result is None for proteins.
    """
    if not domain_of(store.schema).finds_repeats:
        return None
    batch = store[:]
    return _hashes(refine_colors(batch.x, batch.edge_attr, batch.adjacency, layers), batch)


def same_structure(store: GraphStore) -> Int64[np.ndarray, "M"]:
    """Return a number for each graph, equal for isomorphic graphs.

    Numeric attributes are compared exactly, in all 32 bits of a store. Two graphs that are not
    isomorphic have equal numbers only if they are very symmetric: their nodes have the same colors
    after color refinement, also with any one node marked (tried for up to 256 nodes) and with any
    two nodes marked (up to 40).
    """
    batch = store[:]
    hashes = _hashes(refine_colors(batch.x, batch.edge_attr, batch.adjacency, ROUNDS), batch)
    _, kinds, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(counts[kinds] > 1)
    # separately by size, since refinement takes as many rounds as the longest path of all needs
    scales = np.frexp(store.num_nodes[shared])[1]
    for scale in np.unique(scales):
        part = shared[scales == scale]
        kinds[part] = kinds.max() + 1 + group_numbers(_structure_keys(store.subset(part)))
    return np.unique(kinds, return_inverse=True)[1]


def _structure_keys(store: GraphStore) -> list[tuple[int, ...]]:
    """Return a key of each graph that isomorphic graphs share, and hardly any other graphs.

    It holds the hash of the node colors and, if different graphs may have that hash, the hashes of
    copies of the graph with marked nodes.
    """
    graphs, unsolved = store[:], np.arange(len(store))
    colors = stable_colors(graphs.x, graphs.edge_attr, graphs.adjacency)
    colored, color_hashes = graphs.with_attributes(colors[:, None]), _hashes(colors, graphs)
    ranked = torch.stack([colors, _ranks_of_twins(graphs, colors)], 1)
    marked = stable_colors(ranked, graphs.edge_attr, graphs.adjacency)
    marked_hashes = _hashes(marked, graphs)
    # Mark nodes until all nodes of a graph have different colors. The colors then determine the
    # edges, so that graphs with equal colors are isomorphic. Nodes of one color are mostly
    # symmetric, in which case it does not matter which of them is marked.
    for _ in range(_MAX_MARKED):
        graph_of_node = graphs.batch.numpy()
        order = np.lexsort((marked.numpy(), graph_of_node))
        ordered = np.stack([graph_of_node, marked.numpy()])[:, order]
        equal = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).all(axis=0))
        with_equal, first_equal = np.unique(ordered[0, equal], return_index=True)
        if not len(with_equal):
            break
        mark = torch.zeros_like(marked)
        mark[order[equal[first_equal]]] = 1
        is_left = torch.from_numpy(np.isin(graph_of_node, with_equal))
        unsolved = unsolved[with_equal]
        graphs, x = store.take(unsolved), torch.stack([marked, mark], 1)[is_left]
        marked = stable_colors(x, graphs.edge_attr, graphs.adjacency)
        marked_hashes[unsolved] = _hashes(marked, graphs)
    pairs = list(zip(color_hashes.tolist(), marked_hashes.tolist(), strict=True))
    example = {pair: k for k, pair in enumerate(pairs)}
    counts = Counter(color_hash for color_hash, _ in example)
    of_copies = {
        pair: _hashes_of_marked_copies(colored.part(k, k + 1))
        for pair, k in example.items()
        if counts[pair[0]] > 1
    }
    return [(pair[0], *of_copies.get(pair, ())) for pair in pairs]


def _ranks_of_twins(graphs: GraphBatch, colors: Int[torch.Tensor, "V"]) -> Int[torch.Tensor, "V"]:
    """Return the rank of each node among the nodes with its color and its neighbors.

    Such nodes may or may not be joined to each other. They are mostly symmetric, so that their
    order does not matter.
    """
    names = torch.randint(2**62, (graphs.num_nodes,), generator=torch.Generator().manual_seed(0))
    senders, receivers = graphs.edge_index
    neighbors = torch.zeros_like(names).index_add_(0, receivers, names[senders]) + colors
    places, ranks = torch.arange(len(names)), torch.zeros_like(names)
    for group in (neighbors, neighbors + names):  # twins that are not joined, and joined ones
        ordered, order = group.sort(stable=True)
        ranks[order] += places - torch.searchsorted(ordered, ordered)
    return ranks


def _hashes_of_marked_copies(graph: GraphBatch) -> tuple[int, ...]:
    """Return sorted hashes of the colors of copies of a graph with a different node marked in each.

    Unless the nodes of some copy all differ, the hashes of copies with any two nodes marked follow.
    A large graph has no hashes.
    """
    hashes, size = list[int](), graph.num_nodes
    for marks in (1, 2):
        copies = size**marks
        if copies * size > _MAX_COPIED_NODES:
            break
        copy, node = torch.arange(copies)[:, None], torch.arange(size)
        edges = (graph.edge_index[:, None] + size * copy).reshape(2, -1)
        marked = [(copy // size**k % size == node).reshape(-1) for k in range(marks)]
        x = torch.stack([graph.x[:, 0].repeat(copies), *marked], 1)
        edge_attr = graph.edge_attr.repeat(copies, 1)
        colors = stable_colors(x, edge_attr, build_adjacency(edges, copies * size))
        colors = colors.reshape(copies, size).sort(1).values
        hashes += sorted(colors.sum(1).tolist())
        if (colors.diff(dim=1) != 0).all(1).any():
            break
    return tuple(hashes)


def _hashes(colors: Int[torch.Tensor, "V"], graphs: GraphBatch) -> Int64[np.ndarray, "M"]:
    """Return a 64-bit hash of the size and the node colors of each graph."""
    hashes = graphs.sizes.numpy() * 0x3F58476D1CE4E5B9
    np.add.at(hashes, graphs.batch.numpy(), colors.numpy())
    return hashes


def subtree_labels(batch: GraphBatch, schema: FeatureSchema, rounds: int) -> Int64[np.ndarray, "V"]:
    """Return a 64-bit Weisfeiler-Lehman label of the subtree at each node.

    Only categorical attributes are used; nodes without any are labeled by their degrees.
    """
    edges = batch.adjacency
    node, edge = (
        [k for k, column in enumerate(columns) if column.is_categorical]
        for columns in (schema.node, schema.edge)
    )
    x = batch.x[:, node] if node else edges.in_degree[:, None]
    return refine_colors(x, batch.edge_attr[:, edge], edges, rounds).numpy()
