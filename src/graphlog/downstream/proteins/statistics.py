"""An ego-network in few numbers, no network learnt: the floor under every table of proteins, where fingerprints cannot be had."""

import numpy as np
from jaxtyping import Float32

from graphlog.data.store import GraphStore
from graphlog.domains.protein import CHANNELS, PROTEIN
from graphlog.errors import ConfigError

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
