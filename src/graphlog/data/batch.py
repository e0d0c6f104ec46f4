"""A batch of graphs, packed, and which graphs make up each batch.

The batch is the one thing that travels between store, views and encoder. Its graphs are a function
of (seed, epoch), so a run can resume anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from graphlog.ops.neighbors import Adjacency, build_adjacency


@dataclass(frozen=True, slots=True, eq=False)
class GraphBatch:
    """``N`` graphs packed into one, with torch_geometric's field names, so its layers apply."""

    x: Shaped[Tensor, "V Fx"]
    """Node attributes: int64 codes, or float32 where the schema has a continuous column."""
    edge_index: Int[Tensor, "2 E"]
    """Directed edges, source row above target row, as batch-global node indices."""
    edge_attr: Shaped[Tensor, "E Fe"]
    """Edge attributes; ``Fe`` may be 0."""
    batch: Int[Tensor, "V"]
    """Graph of each node, non-decreasing."""
    ptr: Int[Tensor, "P"]
    """Node range of each graph: graph ``n`` owns nodes ``ptr[n]:ptr[n + 1]``; ``P = N + 1``."""
    y: Float[Tensor, "N T"] | None = None
    """Labels, NaN where absent."""
    _adjacency: list[Adjacency] = field(default_factory=list[Adjacency], repr=False)
    _host_ptr: Int[Tensor, "P"] | None = field(default=None, repr=False)

    @property
    def num_graphs(self) -> int:
        """Number of graphs ``N``."""
        return self.ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes ``V``."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of directed edges ``E``."""
        return self.edge_index.shape[1]

    @property
    def sizes(self) -> Int[Tensor, "N"]:
        """Number of nodes of each graph."""
        return self.ptr[1:] - self.ptr[:-1]

    @property
    def host_ptr(self) -> Int[Tensor, "P"]:
        """``ptr`` in the memory of the CPU, so that sizes are known without asking the device."""
        return self.ptr.cpu() if self._host_ptr is None else self._host_ptr

    @property
    def adjacency(self) -> Adjacency:
        """Sorted neighborhoods, built on first use and shared by all views with the same edges."""
        if not self._adjacency:
            self._adjacency.append(build_adjacency(self.edge_index, self.num_nodes))
        return self._adjacency[0]

    def with_attributes(
        self, x: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> "GraphBatch":
        """Return the same graphs with other attributes; the adjacency is shared, not rebuilt."""
        return replace(
            self,
            x=self.x if x is None else x,
            edge_attr=self.edge_attr if edge_attr is None else edge_attr,
        )

    def part(self, first: int, last: int) -> "GraphBatch":
        """Return the graphs ``first:last`` as a batch; the order of nodes and edges is kept."""
        ptr = self.ptr[first : last + 1]
        low, high = ptr[0], ptr[-1]
        edges = (self.edge_index[0] >= low) & (self.edge_index[0] < high)
        nodes = slice(int(low), int(high))
        return GraphBatch(
            self.x[nodes],
            self.edge_index[:, edges] - low,
            self.edge_attr[edges],
            self.batch[nodes] - first,
            ptr - low,
            None if self.y is None else self.y[first:last],
        )

    def to(self, device: torch.device | str) -> "GraphBatch":
        """Return the batch on ``device`` (itself if it is there already)."""
        if self.x.device == torch.device(device):
            return self
        return self._with_each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "GraphBatch":
        """Return the batch in memory from which a GPU copies while the CPU goes on."""
        return self._with_each(Tensor.pin_memory)

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> "GraphBatch":
        tensors = (self.x, self.edge_index, self.edge_attr, self.batch, self.ptr)
        y = None if self.y is None else change(self.y)
        return GraphBatch(*map(change, tensors), y=y, _host_ptr=self.host_ptr)


def seeded_permutation(n: int, *words: int) -> Int[np.ndarray, "n"]:
    """Return a permutation of ``range(n)`` that depends on ``words`` alone, not on NumPy's version.

    NumPy guarantees its bit streams for ever but not what its distributions make of them, so the
    raw stream is ranked.

    Args:
        n: Length.
        words: Non-negative integers: seed, epoch, …
    """
    stream = np.random.PCG64(np.random.SeedSequence(words))
    return np.argsort(stream.random_raw(n), kind="stable")


def epoch_batches(
    num_graphs: int, batch_size: int, seed: int = 0, epoch: int = 0
) -> list[Int[np.ndarray, "_"]]:
    """Return the graphs of each batch of an epoch, counted from 0, each graph once, in order.

    Example:
        >>> [len(batch) for batch in epoch_batches(5, 2)]
        [2, 2, 1]
    """
    order = seeded_permutation(num_graphs, seed, epoch)
    return [order[start : start + batch_size] for start in range(0, num_graphs, batch_size)]
