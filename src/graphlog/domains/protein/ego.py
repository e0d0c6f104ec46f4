"""Ego-networks cut out of a whole network, many at once, and simple statistics of them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int, Integer

from graphlog.data.chunk import GraphChunk, ragged_ranges
from graphlog.data.store import GraphStore
from graphlog.domains.protein.network import ProteinNetwork
from graphlog.domains.protein.schema import CHANNELS, PROTEIN, ProteinOptions
from graphlog.errors import ConfigError

STATISTICS = (
    *("proteins", "interactions", "partners of the center", "density"),
    *(f"interactions by {name}" for name in CHANNELS),
    *(f"the center's by {name}" for name in CHANNELS),
)
"""Names of the columns of :func:`ego_statistics`; all but the density are log(1 + count)."""

_TABLE_ENTRIES = 1 << 22
"""Entries of the table of positions, which has a row for each center cut at the same time."""
_GRAPHS_PER_BATCH = 1024
_ROW_OF_CODE: Float[np.ndarray, "128 9"] = np.zeros(
    (1 << len(CHANNELS), len(PROTEIN.edge)), dtype=np.float32
)
_ROW_OF_CODE[:, : len(CHANNELS)] = (
    np.arange(1 << len(CHANNELS))[:, None] >> np.arange(len(CHANNELS))
) & 1


class _Members(NamedTuple):
    """Proteins of many ego-networks, one ego-network after the other, the center first in each."""

    graph: Int[np.ndarray, "V"]
    protein: Int[np.ndarray, "V"]
    position: Int[np.ndarray, "V"]


def ego_networks(
    network: ProteinNetwork, centers: Integer[np.ndarray, "n"], options: ProteinOptions
) -> GraphChunk:
    """Return the ego-network of every center, with the center as node 0.

    The proteins of an ego-network are the center, then its partners, strongest first, then theirs,
    and so on; both caps of ``options`` apply in this order. All interactions between these proteins
    are kept.

    Args:
        network: The whole network.
        centers: Numbers of proteins; they become the rows of the graphs.
        options: Radius and caps.
    """
    n = len(network.proteins)
    # one table for all batches, bounded in size however large the network
    table = np.full((max(1, _TABLE_ENTRIES // max(n, 1)), n), -1, dtype=np.int32)
    parts = [
        _cut(network, centers[k : k + len(table)].astype(np.int64), options, table)
        for k in range(0, len(centers), len(table))
    ]
    node_counts, edge_counts, edge_index, codes = (
        np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)
    )
    return GraphChunk(
        node_counts=node_counts,
        edge_counts=edge_counts,
        x=np.ones((int(node_counts.sum()), 1), dtype=np.int64),
        edge_index=edge_index,
        edge_attr=_ROW_OF_CODE[codes],
        rows=centers.astype(np.int64),
        texts=[network.proteins[p] for p in centers.tolist()],
    )


def _cut(
    network: ProteinNetwork,
    centers: Int[np.ndarray, "b"],
    options: ProteinOptions,
    table: Integer[np.ndarray, "B N"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return node counts, edge counts, edges and their codes; leaves ``table`` filled with -1."""
    n, position = table.shape[1], table.reshape(-1)
    members = _reach(network, centers, options, position)
    entry = members.graph * n + members.protein
    position[entry] = members.position
    starts = network.once_offsets[members.protein]
    counts = network.once_offsets[members.protein + 1] - starts
    interactions = ragged_ranges(starts, counts)
    graph, here = np.repeat(members.graph, counts), np.repeat(members.position, counts)
    there = position[graph * n + network.once_partners[interactions]]
    position[entry] = -1
    inside = there >= 0
    here, there = here[inside], there[inside]
    return (
        np.bincount(members.graph, minlength=len(centers)),
        np.bincount(graph[inside], minlength=len(centers)),
        np.stack([np.minimum(here, there), np.maximum(here, there)]),
        network.once_codes[interactions[inside]],
    )


def _reach(
    network: ProteinNetwork,
    centers: Int[np.ndarray, "b"],
    options: ProteinOptions,
    seen: Integer[np.ndarray, "C"],
) -> _Members:
    """Return the proteins within the radius in the order they are reached; restores ``seen``."""
    n = len(network.proteins)
    reached = [np.arange(len(centers)) * n + centers]
    seen[reached[0]] = 0
    for _ in range(options.radius):
        graph, protein = np.divmod(reached[-1], n)
        starts = network.offsets[protein]
        counts = np.minimum(network.offsets[protein + 1] - starts, options.neighbours)
        entry = np.repeat(graph, counts) * n + network.partners[ragged_ranges(starts, counts)]
        entry = entry[seen[entry] < 0]
        _, first = np.unique(entry, return_index=True)
        reached.append(entry[np.sort(first)])
        seen[reached[-1]] = 0
    entries = np.concatenate(reached)
    seen[entries] = -1
    entries = entries[np.argsort(entries // n, kind="stable")]
    graph, protein = np.divmod(entries, n)
    sizes = np.bincount(graph, minlength=len(centers))
    position = np.arange(len(entries)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_in = position < options.nodes
    return _Members(graph[is_in], protein[is_in], position[is_in])


def ego_statistics(store: GraphStore) -> Float32[np.ndarray, "M 18"]:
    """Return sizes, and interactions by evidence channel, of each ego-network and of its center.

    Raises:
        ConfigError: If the graphs are not ego-networks.
    """
    if store.schema != PROTEIN:
        raise ConfigError(
            "ego-network statistics need graphs of schema 'protein', found "
            f"'{store.schema.name}'; use a store of ego-networks."
        )
    starts = range(0, len(store), _GRAPHS_PER_BATCH)
    parts = [_statistics(store, k, min(k + _GRAPHS_PER_BATCH, len(store))) for k in starts]
    return np.concatenate([np.empty((0, len(STATISTICS)), np.float32), *parts])


def _statistics(store: GraphStore, start: int, stop: int) -> Float32[np.ndarray, "B 18"]:
    batch, count = store[start:stop], stop - start
    source, graph = batch.edge_index[0].numpy(), batch.batch.numpy()
    channels = batch.edge_attr.numpy()[:, : len(CHANNELS)].astype(np.float64)
    owner = graph[source]
    is_center = source == batch.ptr[:-1].numpy()[owner]
    nodes = batch.sizes.numpy().astype(np.float64)
    edges = np.bincount(owner, minlength=count) / 2
    density = edges / np.maximum(nodes * (nodes - 1) / 2, 1)
    by_channel = [np.bincount(owner, column, count) / 2 for column in channels.T]
    centers = owner[is_center]
    of_center = [np.bincount(centers, column, count) for column in channels[is_center].T]
    partners = np.bincount(centers, minlength=count)
    counts = np.stack([nodes, edges, partners, *by_channel, *of_center], axis=1)
    return np.insert(np.log1p(counts), 3, density, axis=1).astype(np.float32)
