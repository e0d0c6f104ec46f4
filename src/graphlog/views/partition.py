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
        self._sorted, self._recent = _Memory(), _Memory()

    def __call__(self, batch: GraphBatch) -> Int[Tensor, "V"]:
        """Return the part of every node, numbered from 0 by first occurrence in its graph."""
        ptr, edges = batch.ptr.cpu().numpy(), batch.edge_index.cpu().numpy()
        sizes = np.diff(ptr)
        keys = _fingerprints(ptr, edges, batch.batch.cpu().numpy())
        unknown = ~(self._sorted.knows(keys) | self._recent.knows(keys))
        if unknown.any():
            self._learn(keys, unknown, ptr, edges)
        out = np.empty(int(ptr[-1]), dtype=np.uint8)
        for memory in (self._sorted, self._recent):
            known = memory.knows(keys)
            out[ragged_ranges(ptr[:-1][known], sizes[known])] = memory.recall(
                keys[known], sizes[known]
            )
        return torch.from_numpy(out.astype(np.int64)).to(batch.ptr.device)

    def _learn(
        self, keys: np.ndarray, unknown: np.ndarray, ptr: np.ndarray, edges: np.ndarray
    ) -> None:
        new, graphs = np.unique(keys[unknown], return_index=True)
        graphs = np.flatnonzero(unknown)[graphs]
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
        self._recent = self._recent.joined(new, labels)
        if len(self._recent.keys) > max(4096, len(self._sorted.keys) // 4):
            self._sorted, self._recent = self._sorted.merged(self._recent), _Memory()

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


class _Memory(NamedTuple):
    """Fingerprints in ascending order, and the labels found for each, end to end."""

    keys: UInt64[np.ndarray, "K"] = np.empty(0, np.uint64)
    starts: Int64[np.ndarray, "K"] = np.empty(0, np.int64)
    labels: UInt8[np.ndarray, "L"] = np.empty(0, np.uint8)

    def knows(self, keys: np.ndarray) -> np.ndarray:
        if not len(self.keys):
            return np.zeros(len(keys), dtype=bool)
        return self.keys[np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)] == keys

    def recall(self, keys: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return self.labels[ragged_ranges(self.starts[np.searchsorted(self.keys, keys)], sizes)]

    def joined(self, keys: np.ndarray, labels: list[np.ndarray]) -> "_Memory":
        lengths = np.array([len(part) for part in labels])
        return self.merged(_Memory(keys, np.cumsum(lengths) - lengths, np.concatenate(labels)))

    def merged(self, other: "_Memory") -> "_Memory":
        keys = np.concatenate([self.keys, other.keys])
        order = np.argsort(keys, kind="stable")
        starts = np.concatenate([self.starts, other.starts + len(self.labels)])
        return _Memory(keys[order], starts[order], np.concatenate([self.labels, other.labels]))


def _fingerprints(ptr: np.ndarray, edges: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Return a hash of each graph's size and set of directed edges, whatever their order."""
    graph = batch[edges[0]]
    local = (edges - ptr[:-1][graph]).astype(np.uint64)
    total = np.zeros(len(ptr) - 1, dtype=np.uint64)
    np.add.at(total, graph, mixed((local[0] << np.uint64(32)) | local[1]))
    return mixed(total ^ mixed(np.diff(ptr).astype(np.uint64)))
