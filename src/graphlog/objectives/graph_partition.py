"""GraphPartition: predict which nodes METIS puts together (You et al., 2020)."""

import math
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, UInt8, UInt64
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.graphs import ragged_ranges
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import optional
from graphlog.objectives.base import LossTerms, Objective, Recipes, comparison
from graphlog.ops.contrastive import full_precision, mean_or_zero
from graphlog.ops.dense import linear
from graphlog.ops.sparse import filled, pad_values, plan_padding, segment_mean


class GraphPartitionConfig(FrozenConfig):
    """Switches of GraphPartition."""

    parts: int = Field(4, ge=2, le=255)
    """Parts of each graph; a graph of fewer nodes has as many parts as nodes."""


class GraphPartitionViews(NamedTuple):
    """A batch and the part of each node."""

    batch: GraphBatch
    parts: Int[Tensor, "V"]


def same_part_loss(
    node_emb: Float[Tensor, "V D"],
    parts: Int[Tensor, "V"],
    ptr: Int[Tensor, "P"],
    bias: Float[Tensor, ""],
) -> LossTerms:
    r"""Return the mean binary cross-entropy of "same part" over node pairs of one graph.

    The score of a pair is :math:`(h_u - \bar h)^\top (h_v - \bar h) / \sqrt D + b` with the mean
    :math:`\bar h` over the nodes of the graph. What the parts are called does not matter.
    """
    sizes = ptr.diff()
    centered = node_emb - torch.repeat_interleave(
        segment_mean(node_emb, ptr), sizes, dim=0, output_size=node_emb.shape[0]
    )
    padding = plan_padding(ptr)
    rows_of = zip(padding.buckets, padding.rows_of_buckets(), strict=True)
    losses: list[Tensor] = []
    hits: list[Tensor] = []
    for (bucket, rows), part, full in zip(
        rows_of, pad_values(parts, padding), filled(padding), strict=True
    ):
        nodes = centered.index_select(0, rows).view(*bucket, node_emb.shape[1])
        pairs = (
            full[:, :, None]
            & full[:, None, :]
            & ~torch.eye(bucket.size, dtype=torch.bool, device=full.device)
        )
        scores = (nodes @ nodes.mT)[pairs] / node_emb.shape[1] ** 0.5 + bias
        same = (part[:, :, None] == part[:, None, :])[pairs]
        losses.append(F.binary_cross_entropy_with_logits(scores, same.to(scores), reduction="none"))
        hits.append((scores.detach() > 0) == same)
    loss = mean_or_zero(torch.cat(losses))
    return LossTerms(
        loss, {"same_part": loss}, {"accuracy": mean_or_zero(torch.cat(hits).to(loss))}
    )


class GraphPartition(Objective[GraphPartitionViews]):
    """A linear map of the node embeddings tells which nodes share a part that METIS cuts."""

    Config: ClassVar[type[FrozenConfig]] = GraphPartitionConfig
    RECIPES: ClassVar[Recipes] = {"default": comparison()}

    def __init__(self, config: GraphPartitionConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.partitioner = Partitioner(config.parts)
        self.linear = nn.Linear(encoder.dim, encoder.dim, bias=False)  # centering cancels a bias
        # nodes that cannot be told apart share a part as often as two drawn with replacement
        self.bias = nn.Parameter(torch.tensor(-math.log(config.parts - 1)))

    def views(self, batch: GraphBatch, generator: Generator) -> GraphPartitionViews:
        """Return the batch and the parts; nothing is drawn."""
        return GraphPartitionViews(batch, self.partitioner(batch))

    def loss(
        self, views: GraphPartitionViews, encoder: GraphEncoder, generator: Generator
    ) -> LossTerms:
        """Return the loss over pairs of nodes."""
        scores = full_precision(linear(encoder(views.batch).node_emb, self.linear))
        with torch.autocast(scores.device.type, enabled=False):
            return same_part_loss(scores, views.parts, views.batch.ptr, self.bias)


class Partitioner:
    """Cuts every graph into parts of almost equal size with few edges between them.

    METIS works on one graph at a time. What it says of a topology is kept under a 64-bit
    fingerprint of (size, edges), so that from the second epoch on a batch costs a search in a
    sorted list. The memory is one byte a node and 16 bytes a topology.
    """

    def __init__(self, parts: int) -> None:
        """Raise MissingExtraError where METIS is not installed."""
        with optional("pymetis", "partition"):
            import pymetis
        self._metis, self.parts = pymetis, parts
        self._options = self._metis.Options(seed=0)
        self._keys: UInt64[np.ndarray, "K"] = np.empty(0, np.uint64)
        """Fingerprints in ascending order."""
        self._starts: Int64[np.ndarray, "K"] = np.empty(0, np.int64)
        """Where the labels found for each begin."""
        self._labels: UInt8[np.ndarray, "L"] = np.empty(0, np.uint8)

    def __call__(self, batch: GraphBatch) -> Int[Tensor, "V"]:
        """Return the part of every node; only within a graph do the numbers mean something."""
        ptr, edges = batch.ptr.cpu().numpy(), batch.edge_index.cpu().numpy()
        keys = _fingerprints(ptr, edges, batch.batch.cpu().numpy())
        seen, graphs = np.unique(keys, return_index=True)
        is_new = ~np.isin(seen, self._keys)
        if is_new.any():
            self._learn(seen[is_new], graphs[is_new], ptr, edges)
        starts = self._starts[np.searchsorted(self._keys, keys)]
        found = self._labels[ragged_ranges(starts, np.diff(ptr))]
        return torch.from_numpy(found.astype(np.int64)).to(batch.ptr.device)

    def _learn(
        self, keys: np.ndarray, graphs: np.ndarray, ptr: np.ndarray, edges: np.ndarray
    ) -> None:
        """Cut the graphs of new fingerprints."""
        total = int(ptr[-1])
        one, other = edges[:, edges[0] != edges[1]]
        both = np.unique(np.concatenate([one * total + other, other * total + one]))
        source, target = both // total, both % total  # METIS wants symmetry
        offsets = np.searchsorted(source, np.arange(total + 1))
        # a Python loop, but over topologies never seen before, not over the graphs of every step
        labels = [
            self._cut(offsets[ptr[g] : ptr[g + 1] + 1], target, int(ptr[g]))
            for g in graphs.tolist()
        ]
        lengths, places = np.diff(ptr)[graphs], np.searchsorted(self._keys, keys)
        starts = np.cumsum(lengths) - lengths + len(self._labels)
        self._keys = np.insert(self._keys, places, keys)
        self._starts = np.insert(self._starts, places, starts)
        self._labels = np.concatenate([self._labels, *labels])

    def _cut(self, offsets: np.ndarray, target: np.ndarray, start: int) -> np.ndarray:
        size = offsets.shape[0] - 1
        if size <= self.parts:
            return np.arange(size, dtype=np.uint8)
        nodes = target[offsets[0] : offsets[-1]] - start
        neighbors = self._metis.CSRAdjacency(offsets - offsets[0], nodes)
        # recursive bisection: on graphs of this size the direct method leaves parts empty
        cut = self._metis.part_graph(self.parts, neighbors, recursive=True, options=self._options)
        return np.asarray(cut.vertex_part, dtype=np.uint8)


def _fingerprints(ptr: np.ndarray, edges: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Return a hash of each graph's size and set of directed edges, whatever their order."""
    from pandas.util import hash_array

    graph = batch[edges[0]]
    local = (edges - ptr[:-1][graph]).astype(np.uint64)
    total = np.zeros(len(ptr) - 1, dtype=np.uint64)
    np.add.at(total, graph, hash_array((local[0] << np.uint64(32)) | local[1]))
    return hash_array(total ^ hash_array(np.diff(ptr).astype(np.uint64)))
