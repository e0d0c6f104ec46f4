"""Which graphs repeat each other: those of one structure, by color refinement."""

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
"""A number for each graph, equal for graphs that repeat each other."""
ROUNDS = 4
"""How often labels of nodes are refined by those of the neighbors."""
_MOST_COPIED = 1 << 16
"""Nodes of all copies of a graph, one for each node or two that can be marked."""
_MOST_MARKS = 100
"""Nodes of a graph that are marked at most to make all of them differ."""


@lru_cache(maxsize=1)
def repeat_kinds(store: GraphStore) -> Kinds | None:
    """Return which graphs repeat each other: those whose parents have one structure.

    None of proteins: different ones may have ego-networks of one structure.
    """
    domain = domain_of(store.schema)
    return same_structure(domain.parents(store)) if domain.finds_repeats else None


def embedded_alike(store: GraphStore, layers: int) -> Kinds | None:
    """Return which graphs a network of so many layers embeds alike; None of proteins."""
    if not domain_of(store.schema).finds_repeats:
        return None
    batch = store[:]
    return _summed(refine_colors(batch.x, batch.edge_attr, batch.adjacency, layers), batch)


def same_structure(store: GraphStore) -> Int64[np.ndarray, "M"]:
    """Return a number for each graph, equal for isomorphic ones.

    Quantities are equal in all 32 bits of a store. Different graphs share a number only if they are
    very symmetric: color refinement tells them apart neither as they are nor with any one node
    marked (which is tried up to 256 nodes) nor any two (up to 40).
    """
    batch = store[:]
    hashes = _summed(refine_colors(batch.x, batch.edge_attr, batch.adjacency, ROUNDS), batch)
    _, kinds, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(counts[kinds] > 1)
    # apart by size, since refinement takes as many rounds as the longest paths of all need
    scales = np.frexp(store.num_nodes[shared])[1]
    for scale in np.unique(scales):
        part = shared[scales == scale]
        kinds[part] = kinds.max() + 1 + group_numbers(_structures(store.subset(part)))
    return np.unique(kinds, return_inverse=True)[1]


def _structures(store: GraphStore) -> list[tuple[int, ...]]:
    """Return what isomorphic graphs share, and hardly any others do.

    That is the colors of their nodes and, where different graphs may have these, the views of them.
    """
    graphs, left = store[:], np.arange(len(store))
    colors = stable_colors(graphs.x, graphs.edge_attr, graphs.adjacency)
    colored, first = graphs.with_attributes(colors[:, None]), _summed(colors, graphs)
    ranked = torch.stack([colors, _ranks_of_twins(graphs, colors)], 1)
    marked = stable_colors(ranked, graphs.edge_attr, graphs.adjacency)
    last = _summed(marked, graphs)
    # Where no two nodes of a graph are alike, colors say which are joined: equal ones prove graphs
    # isomorphic. Nodes are mostly alike by symmetry, so that it does not matter which is marked.
    for _ in range(_MOST_MARKS):
        nodes = graphs.batch.numpy()
        order = np.lexsort((marked.numpy(), nodes))
        ordered = np.stack([nodes, marked.numpy()])[:, order]
        alike = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).all(axis=0))
        found, which = np.unique(ordered[0, alike], return_index=True)
        if not len(found):
            break
        mark = torch.zeros_like(marked)
        mark[order[alike[which]]] = 1
        left, is_left = left[found], torch.from_numpy(np.isin(nodes, found))
        graphs, x = store.take(left), torch.stack([marked, mark], 1)[is_left]
        marked = stable_colors(x, graphs.edge_attr, graphs.adjacency)
        last[left] = _summed(marked, graphs)
    keys = list(zip(first.tolist(), last.tolist(), strict=True))
    example = {key: k for k, key in enumerate(keys)}
    counts = Counter(color for color, _ in example)
    views = {
        key: _views(colored.part(k, k + 1)) for key, k in example.items() if counts[key[0]] > 1
    }
    return [(key[0], *views.get(key, ())) for key in keys]


def _ranks_of_twins(graphs: GraphBatch, colors: Int[torch.Tensor, "V"]) -> Int[torch.Tensor, "V"]:
    """Return a place for each node among those of its color with the same neighbors.

    Such nodes are mostly symmetric, whether they are joined to each other or not, so that any order
    of them will do.
    """
    names = torch.randint(2**62, (graphs.num_nodes,), generator=torch.Generator().manual_seed(0))
    senders, receivers = graphs.edge_index
    around = torch.zeros_like(names).index_add_(0, receivers, names[senders]) + colors
    places, ranks = torch.arange(len(names)), torch.zeros_like(names)
    for group in (around, around + names):
        ordered, order = group.sort(stable=True)
        ranks[order] += places - torch.searchsorted(ordered, ordered)
    return ranks


def _views(graph: GraphBatch) -> tuple[int, ...]:
    """Return the colors of copies of a graph, in each of which another node is marked.

    If no node makes all of them differ, of copies with any two marked too. None of large graphs.
    """
    found, size = list[int](), graph.num_nodes
    for marks in (1, 2):
        copies = size**marks
        if copies * size > _MOST_COPIED:
            break
        copy, node = torch.arange(copies)[:, None], torch.arange(size)
        edges = (graph.edge_index[:, None] + size * copy).reshape(2, -1)
        marked = [(copy // size**k % size == node).reshape(-1) for k in range(marks)]
        x = torch.stack([graph.x[:, 0].repeat(copies), *marked], 1)
        edge_attr = graph.edge_attr.repeat(copies, 1)
        colors = stable_colors(x, edge_attr, build_adjacency(edges, copies * size))
        colors = colors.reshape(copies, size).sort(1).values
        found += sorted(colors.sum(1).tolist())
        if (colors.diff(dim=1) != 0).all(1).any():
            break
    return tuple(found)


def _summed(colors: Int[torch.Tensor, "V"], graphs: GraphBatch) -> Int64[np.ndarray, "M"]:
    """Return a number of 64 bits for the size and the colors of each graph."""
    hashes = graphs.sizes.numpy() * 0x3F58476D1CE4E5B9
    np.add.at(hashes, graphs.batch.numpy(), colors.numpy())
    return hashes


def subtree_labels(batch: GraphBatch, schema: FeatureSchema, rounds: int) -> Int64[np.ndarray, "V"]:
    """Return a number for the subtree of Weisfeiler and Lehman at each node, of 64 bits."""
    edges = build_adjacency(batch.edge_index, batch.num_nodes)
    node, edge = (
        [k for k, column in enumerate(columns) if column.is_categorical]
        for columns in (schema.node, schema.edge)
    )
    x = batch.x[:, node] if node else edges.in_degree[:, None]
    return refine_colors(x, batch.edge_attr[:, edge], edges, rounds).numpy()
