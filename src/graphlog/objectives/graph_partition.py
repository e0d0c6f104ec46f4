"""GraphPartition: predict which nodes METIS puts into one part (You et al., 2020)."""

import math
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import optional
from graphlog.objectives.base import LossTerms, Objective, Recipes, comparison_recipe
from graphlog.ops.contrastive import full_precision, mean_or_zero
from graphlog.ops.dense import linear
from graphlog.ops.sparse import filled, pad_values, plan_padding, segment_mean


class GraphPartitionConfig(FrozenConfig):
    """Settings of GraphPartition."""

    parts: int = Field(4, ge=2, le=255)
    """Number of parts of each graph; a graph of fewer nodes has one part per node."""


class GraphPartitionViews(NamedTuple):
    """A batch and the part of each of its nodes."""

    batch: GraphBatch
    parts: Int[Tensor, "V"]
    """Number of the part of each node within its graph."""


def same_part_loss(
    node_emb: Float[Tensor, "V D"],
    parts: Int[Tensor, "V"],
    ptr: Int[Tensor, "P"],
    bias: Float[Tensor, ""],
) -> LossTerms:
    r"""Return the mean binary cross-entropy of "same part" over all pairs of nodes of one graph.

    The score of a pair is :math:`(h_u - \bar h)^\top (h_v - \bar h) / \sqrt D + b` with the mean
    :math:`\bar h` over the nodes of the graph. The numbering of the parts does not matter.
    """
    sizes = ptr.diff()
    centered = node_emb - torch.repeat_interleave(
        segment_mean(node_emb, ptr), sizes, dim=0, output_size=node_emb.shape[0]
    )
    padding = plan_padding(ptr)
    padded = (padding.rows_of_buckets(), pad_values(parts, padding), filled(padding))
    losses: list[Tensor] = []
    hits: list[Tensor] = []
    for bucket, rows, part, is_node in zip(padding.buckets, *padded, strict=True):
        nodes = centered.index_select(0, rows).view(*bucket, node_emb.shape[1])
        is_other = ~torch.eye(bucket.size, dtype=torch.bool, device=rows.device)
        pairs = is_node[:, :, None] & is_node[:, None, :] & is_other
        scores = (nodes @ nodes.mT)[pairs] / node_emb.shape[1] ** 0.5 + bias
        same = (part[:, :, None] == part[:, None, :])[pairs]
        losses.append(F.binary_cross_entropy_with_logits(scores, same.to(scores), reduction="none"))
        hits.append((scores.detach() > 0) == same)
    loss = mean_or_zero(torch.cat(losses))
    accuracy = mean_or_zero(torch.cat(hits).to(loss))
    return LossTerms(loss, {"same_part": loss}, {"accuracy": accuracy})


class GraphPartition(Objective[GraphPartitionViews]):
    """Prediction of which nodes share a part of METIS, from a linear map of the node embeddings."""

    Config: ClassVar[type[FrozenConfig]] = GraphPartitionConfig
    RECIPES: ClassVar[Recipes] = {"default": comparison_recipe()}

    def __init__(self, config: GraphPartitionConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.partitioner = Partitioner(config.parts)
        self.linear = nn.Linear(encoder.dim, encoder.dim, bias=False)  # centering cancels a bias
        # the log odds that two nodes share a part if parts are drawn uniformly
        self.bias = nn.Parameter(torch.tensor(-math.log(config.parts - 1)))

    def views(self, batch: GraphBatch, generator: Generator) -> GraphPartitionViews:
        """Return the batch and the parts of its nodes; no random numbers are drawn."""
        return GraphPartitionViews(batch, self.partitioner(batch))

    def loss(
        self, views: GraphPartitionViews, encoder: GraphEncoder, generator: Generator
    ) -> LossTerms:
        """Return the mean loss over pairs of nodes of one graph."""
        scores = full_precision(linear(encoder(views.batch).node_emb, self.linear))
        with torch.autocast(scores.device.type, enabled=False):
            return same_part_loss(scores, views.parts, views.batch.ptr, self.bias)


class Partitioner:
    """Cuts graphs into parts of almost equal size with few edges between them.

    METIS works on one graph at a time. Its result for a topology is cached under a 64-bit
    fingerprint of the size and the edges, so that from the second epoch on a batch costs only one
    look-up per graph. The cache has about 130 bytes per topology, plus one per node.
    """

    def __init__(self, parts: int) -> None:
        """Raise MissingExtraError if METIS is not installed."""
        with optional("pymetis", "partition"):
            import pymetis
        self._metis, self.parts = pymetis, parts
        self._options = self._metis.Options(seed=0)
        self._cache: dict[int, bytes] = {}
        """Part of each node, one byte per node, by fingerprint of the topology."""

    def __call__(self, batch: GraphBatch) -> Int[Tensor, "V"]:
        """Return the number of the part of every node within its graph."""
        ptr, edges = batch.ptr.cpu().numpy(), batch.edge_index.cpu().numpy()
        keys = _fingerprints(ptr, edges, batch.batch.cpu().numpy()).tolist()
        if new := {key: graph for graph, key in enumerate(keys) if key not in self._cache}:
            self._add(new, ptr, edges)
        parts = np.frombuffer(b"".join(self._cache[key] for key in keys), np.uint8)
        return torch.from_numpy(parts.astype(np.int64)).to(batch.ptr.device)

    def _add(self, graphs: dict[int, int], ptr: np.ndarray, edges: np.ndarray) -> None:
        """Cut the graphs of new fingerprints, and add their parts to the cache."""
        total = int(ptr[-1])
        one, other = edges[:, edges[0] != edges[1]]
        # METIS needs every edge in both directions
        both = np.unique(np.concatenate([one * total + other, other * total + one]))
        source, target = both // total, both % total
        offsets = np.searchsorted(source, np.arange(total + 1))
        for key, graph in graphs.items():
            start, stop = int(ptr[graph]), int(ptr[graph + 1])
            self._cache[key] = self._cut(offsets[start : stop + 1], target, start).tobytes()

    def _cut(self, offsets: np.ndarray, target: np.ndarray, start: int) -> np.ndarray:
        size = offsets.shape[0] - 1
        if size <= self.parts:
            return np.arange(size, dtype=np.uint8)
        nodes = target[offsets[0] : offsets[-1]] - start
        neighbors = self._metis.CSRAdjacency(offsets - offsets[0], nodes)
        # on small graphs, the direct k-way method leaves parts empty; recursive bisection does not
        cut = self._metis.part_graph(self.parts, neighbors, recursive=True, options=self._options)
        return np.asarray(cut.vertex_part, dtype=np.uint8)


def _fingerprints(ptr: np.ndarray, edges: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Return a hash of the size and the directed edges of each graph, in any order of the edges."""
    from pandas.util import hash_array

    graph = batch[edges[0]]
    local = (edges - ptr[:-1][graph]).astype(np.uint64)
    total = np.zeros(len(ptr) - 1, dtype=np.uint64)
    np.add.at(total, graph, hash_array((local[0] << np.uint64(32)) | local[1]))
    return hash_array(total ^ hash_array(np.diff(ptr).astype(np.uint64)))
