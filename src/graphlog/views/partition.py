"""Balanced partitions of graphs by METIS, each topology partitioned once and remembered."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8, UInt64
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.chunk import distinct, mixed, ragged_ranges
from graphlog.errors import MissingExtraError


class Partitioner:
    """Cuts every graph into parts of almost equal size with few edges between them.

    METIS works on one graph at a time. What it says of a topology is kept under a 64-bit
    fingerprint of (size, edges), so that from the second epoch on a batch costs a search in a
    sorted list. The memory is one byte a node and 24 bytes a topology.
    """

    def __init__(self, parts: int) -> None:
        """Raise MissingExtraError where METIS is not installed."""
        try:
            import pymetis
        except ImportError:
            raise MissingExtraError("pymetis", "partition") from None
        self._metis, self.parts = pymetis, parts
        self._options = self._metis.Options(seed=0)
        self._known = _Known()

    def __call__(self, batch: GraphBatch) -> Int[Tensor, "V"]:
        """Return the part of every node, numbered from 0 by first occurrence in its graph."""
        ptr, edges = batch.ptr.cpu().numpy(), batch.edge_index.cpu().numpy()
        sizes = np.diff(ptr)
        keys = _fingerprints(ptr, edges, batch.batch.cpu().numpy())
        new = np.setdiff1d(keys, self._known.keys)
        if len(new):
            self._learn(keys, new, ptr, edges)
        starts = self._known.starts[np.searchsorted(self._known.keys, keys)]
        found = self._known.labels[ragged_ranges(starts, sizes)]
        return torch.from_numpy(found.astype(np.int64)).to(batch.ptr.device)

    def _learn(self, keys: np.ndarray, new: np.ndarray, ptr: np.ndarray, edges: np.ndarray) -> None:
        graphs = np.argsort(keys, kind="stable")
        graphs = graphs[np.searchsorted(keys[graphs], new)]
        total = int(ptr[-1])
        joined = edges[:, edges[0] != edges[1]]
        directions = joined[0] * total + joined[1], joined[1] * total + joined[0]
        both = distinct(np.concatenate(directions))  # METIS wants symmetry
        source, target = both // total, both % total
        offsets = np.searchsorted(source, np.arange(total + 1))
        # a Python loop, but over topologies never seen before, not over the graphs of every step
        labels = [
            self._cut(offsets[ptr[g] : ptr[g + 1] + 1], target, int(ptr[g]))
            for g in graphs.tolist()
        ]
        lengths, old = np.array([len(part) for part in labels]), self._known
        places = np.searchsorted(old.keys, new)
        starts = np.cumsum(lengths) - lengths + len(old.labels)
        self._known = _Known(
            np.insert(old.keys, places, new),
            np.insert(old.starts, places, starts),
            np.concatenate([old.labels, *labels]),
        )

    def _cut(self, offsets: np.ndarray, target: np.ndarray, start: int) -> np.ndarray:
        size = offsets.shape[0] - 1
        if size <= self.parts:
            return np.arange(size, dtype=np.uint8)
        neighbors = self._metis.CSRAdjacency(
            offsets - offsets[0], target[offsets[0] : offsets[-1]] - start
        )
        # recursive bisection: on graphs of this size the direct method leaves parts empty
        labels = np.asarray(
            self._metis.part_graph(
                self.parts, neighbors, recursive=True, options=self._options
            ).vertex_part
        )
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse].astype(np.uint8)


class _Known(NamedTuple):
    """Fingerprints in ascending order, and the labels found for each, end to end."""

    keys: UInt64[np.ndarray, "K"] = np.empty(0, np.uint64)
    starts: Int64[np.ndarray, "K"] = np.empty(0, np.int64)
    labels: UInt8[np.ndarray, "L"] = np.empty(0, np.uint8)


def _fingerprints(ptr: np.ndarray, edges: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Return a hash of each graph's size and set of directed edges, whatever their order."""
    graph = batch[edges[0]]
    local = (edges - ptr[:-1][graph]).astype(np.uint64)
    total = np.zeros(len(ptr) - 1, dtype=np.uint64)
    np.add.at(total, graph, mixed((local[0] << np.uint64(32)) | local[1]))
    return mixed(total ^ mixed(np.diff(ptr).astype(np.uint64)))
