"""Ego-networks cut out of a whole network, many at once, and what they hold in few numbers."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int, Integer

from graphlog.data.chunk import GraphChunk, ragged_ranges
from graphlog.data.store import GraphStore
from graphlog.domains.protein.network import ProteinNetwork
from graphlog.domains.protein.schema import CHANNELS, PROTEIN, ProteinOptions
from graphlog.errors import ConfigError

_CELLS = 1 << 22
"""Entries of the table that says where in an ego-network a protein stands: a row for each centre cut together."""

_ROW_OF_CODE: Float[np.ndarray, "128 9"] = np.zeros(
    (1 << len(CHANNELS), len(PROTEIN.edge)), dtype=np.float32
)
_ROW_OF_CODE[:, : len(CHANNELS)] = (
    np.arange(1 << len(CHANNELS))[:, None] >> np.arange(len(CHANNELS))
) & 1


class _Members(NamedTuple):
    """Proteins of many ego-networks, ego-network after ego-network, the centre first in each."""

    graph: Int[np.ndarray, "V"]
    protein: Int[np.ndarray, "V"]
    place: Int[np.ndarray, "V"]


def ego_networks(
    network: ProteinNetwork, centres: Integer[np.ndarray, "n"], options: ProteinOptions
) -> GraphChunk:
    """Return the ego-network of every centre, with the centre as node 0.

    The proteins of an ego-network are the centre, then its partners, strongest first, then theirs, and so on; both caps of
    ``options`` apply in this order. All interactions between these proteins are kept.

    Args:
        network: The whole network.
        centres: Numbers of proteins; they become the rows of the graphs.
        options: Radius and caps.
    """
    # a separate table for every batch keeps its size bounded whatever the network's
    table = np.full(
        (max(1, _CELLS // max(len(network.proteins), 1)), len(network.proteins)), -1, dtype=np.int32
    )
    parts = [
        _cut(network, centres[k : k + len(table)].astype(np.int64), options, table)
        for k in range(0, len(centres), len(table))
    ]
    node_counts, edge_counts, ends, codes = (
        np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)
    )
    return GraphChunk(
        node_counts=node_counts,
        edge_counts=edge_counts,
        x=np.ones((int(node_counts.sum()), 1), dtype=np.int64),
        edge_index=ends,
        edge_attr=_ROW_OF_CODE[codes],
        rows=centres.astype(np.int64),
        texts=[network.proteins[p] for p in centres.tolist()],
    )


def in_batches(
    centres: Integer[np.ndarray, "n"], size: int = 1024
) -> Iterator[Integer[np.ndarray, "b"]]:
    """Yield the centres ``size`` at a time."""
    for start in range(0, len(centres), size):
        yield centres[start : start + size]


def _cut(
    network: ProteinNetwork,
    centres: Int[np.ndarray, "b"],
    options: ProteinOptions,
    table: Integer[np.ndarray, "B N"],
) -> tuple[
    Int[np.ndarray, "b"], Int[np.ndarray, "b"], Integer[np.ndarray, "2 E"], Integer[np.ndarray, "E"]
]:
    members = _reach(network, centres, options, table.reshape(-1))
    place = table.reshape(-1)
    cell = members.graph * table.shape[1] + members.protein
    place[cell] = members.place
    starts = network.once_offsets[members.protein]
    counts = network.once_offsets[members.protein + 1] - starts
    listed = ragged_ranges(starts, counts)
    graph = np.repeat(members.graph, counts)
    here, there = (
        np.repeat(members.place, counts),
        place[graph * table.shape[1] + network.once_partners[listed]],
    )
    inside = there >= 0
    place[cell] = -1
    ends = np.stack(
        [np.minimum(here[inside], there[inside]), np.maximum(here[inside], there[inside])]
    )
    sizes = np.bincount(members.graph, minlength=len(centres))
    return (
        sizes,
        np.bincount(graph[inside], minlength=len(centres)),
        ends,
        network.once_codes[listed[inside]],
    )


def _reach(
    network: ProteinNetwork,
    centres: Int[np.ndarray, "b"],
    options: ProteinOptions,
    seen: Integer[np.ndarray, "C"],
) -> _Members:
    """Return the proteins within the radius, in the order in which they are reached; ``seen`` is left as it was."""
    n = len(network.proteins)
    found = [np.arange(len(centres)) * n + centres]
    seen[found[0]] = 0
    for _ in range(options.radius):
        frontier = found[-1]
        starts = network.offsets[frontier % n]
        counts = np.minimum(network.offsets[frontier % n + 1] - starts, options.neighbours)
        cell = (
            np.repeat(frontier // n, counts) * n + network.partners[ragged_ranges(starts, counts)]
        )
        cell = cell[seen[cell] < 0]
        _, first = np.unique(cell, return_index=True)
        found.append(cell[np.sort(first)])
        seen[found[-1]] = 0
    every = np.concatenate(found)
    seen[every] = -1
    every = every[np.argsort(every // n, kind="stable")]
    graph = every // n
    sizes = np.bincount(graph, minlength=len(centres))
    place = np.arange(len(every)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = place < options.nodes
    return _Members(graph[kept], every[kept] % n, place[kept])


NAME = "ego-network statistics + logistic regression"
"""What the row is called."""
NAMES = (
    *("proteins", "interactions", "partners of the centre", "density"),
    *(f"interactions by {name}" for name in CHANNELS),
    *(f"the centre's by {name}" for name in CHANNELS),
)
"""The columns; all but the density are logarithms of one more than the count."""
_GRAPHS_AT_ONCE = 1024


def ego_statistics(store: GraphStore) -> Float32[np.ndarray, "M 18"]:
    """Return for each ego-network its sizes, and by evidence channel how many interactions it and its centre have.

    Raises:
        ConfigError: If the graphs are no ego-networks.
    """
    if store.schema != PROTEIN:
        raise ConfigError(
            f"ego-network statistics are of graphs of schema 'protein', found '{store.schema.name}'."
        )
    parts = [
        _of(store, start, min(start + _GRAPHS_AT_ONCE, len(store)))
        for start in range(0, len(store), _GRAPHS_AT_ONCE)
    ]
    return np.concatenate([np.empty((0, len(NAMES)), np.float32), *parts])


def _of(store: GraphStore, start: int, stop: int) -> Float32[np.ndarray, "B 18"]:
    batch = store[start:stop]
    source, graph = batch.edge_index[0].numpy(), batch.batch.numpy()
    channels, count = batch.edge_attr.numpy()[:, : len(CHANNELS)].astype(np.float64), stop - start
    owner = graph[source]
    is_centre = source == batch.ptr[:-1].numpy()[owner]
    nodes, edges = batch.sizes.numpy().astype(np.float64), np.bincount(owner, minlength=count) / 2
    by_channel = np.stack([np.bincount(owner, column, count) / 2 for column in channels.T], axis=1)
    of_centre = np.stack(
        [np.bincount(owner[is_centre], column, count) for column in channels[is_centre].T], axis=1
    )
    partners = np.bincount(owner[is_centre], minlength=count)
    density = edges / np.maximum(nodes * (nodes - 1) / 2, 1)
    counts = np.concatenate(
        [np.stack([nodes, edges, partners], axis=1), by_channel, of_centre], axis=1
    )
    return np.insert(np.log1p(counts), 3, density, axis=1).astype(np.float32)
