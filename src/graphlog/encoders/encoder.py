"""The encoder: input embedding, layers (Eq. 1), jumping knowledge and readout (Eq. 2)."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.batch import GraphBatch, epoch_batches
from graphlog.data.schema import FeatureSchema, is_continuous
from graphlog.data.store import GraphStore
from graphlog.encoders import LAYERS
from graphlog.encoders.base import (
    AttributeTable,
    EncoderConfig,
    Encoding,
    Neighborhood,
    NodeNorm,
    NodeRows,
    SharedNeighborhood,
)
from graphlog.ops.collectives import Peers
from graphlog.ops.colors import ColorClasses, color_classes
from graphlog.ops.segment import segment_max, segment_mean, segment_softmax, segment_sum

EmbeddingLayer = Literal["jk", "last", "jk+sum"]
BATCHES, BATCH_SIZE = 20, 64
"""Graphs that the statistics of batch norms are taken from."""
JUMPS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "last": lambda outputs: outputs[-1],
    "concat": lambda outputs: torch.cat(outputs, dim=1),
    "max": lambda outputs: torch.stack(outputs).amax(dim=0),
    "sum": lambda outputs: torch.stack(outputs).sum(dim=0),
}
"""Jumping knowledge: the node embedding from the input embedding and every layer's output."""

MEANS = ("mean", "mean+center")
"""Readouts that are the mean over nodes."""
POOLS: dict[str, Callable[[Float[Tensor, "V D"], Int[Tensor, "P"]], Float[Tensor, "N D"]]] = {
    "mean": segment_mean,
    "sum": segment_sum,
    "max": segment_max,
    "mean+center": segment_mean,
}


class Shard:
    """The part of a batch that one of several processes embeds, and the whole of what they embed.

    Neighboring graphs with about equal shares of the nodes; alone, all of them.
    """

    def __init__(self, batch: GraphBatch, peers: Peers | None) -> None:
        """Cut the batch, which is the same in every process.

        Args:
            batch: All graphs.
            peers: The processes that share it; None leaves all to this one.
        """
        self.batch, self.peers = batch, peers
        self._nodes, self._graphs = [batch.num_nodes], [batch.num_graphs]
        if peers is None:
            return
        ends = torch.arange(1, peers.size, device=batch.ptr.device) * batch.num_nodes
        inner = torch.searchsorted(batch.ptr, torch.div(ends, peers.size, rounding_mode="floor"))
        cuts = [0, *inner.tolist(), batch.num_graphs]
        self._graphs = [b - a for a, b in pairwise(cuts)]
        self._nodes = batch.ptr[cuts].diff().tolist()
        self.batch = batch.part(cuts[peers.rank], cuts[peers.rank + 1])

    def all_nodes(self, values: Float[Tensor, "V *D"]) -> Float[Tensor, "W *D"]:
        """Return the rows of the nodes of the whole batch."""
        return values if self.peers is None else self.peers.gather(values, self._nodes)

    def all_graphs(self, values: Float[Tensor, "N *D"]) -> Float[Tensor, "M *D"]:
        """Return the rows of the graphs of the whole batch."""
        return values if self.peers is None else self.peers.gather(values, self._graphs)

    def dropout(self, values: Float[Tensor, "V D"], rate: float) -> Float[Tensor, "V D"]:
        """Set a share of the values to zero; each is drawn as if one process had all rows."""
        if self.peers is None:
            return F.dropout(values, rate)
        scale = values.new_empty(sum(self._nodes), values.shape[1]).bernoulli_(1 - rate)
        first = sum(self._nodes[: self.peers.rank])
        return values * scale.div_(1 - rate)[first : first + values.shape[0]]


class Readout(nn.Module):
    """Permutation-invariant graph embedding. Implements Eq. 2.

    ``attention`` weighs each node by the softmax, within its graph, of a learned score.
    """

    def __init__(self, kind: str, dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.score = nn.Linear(dim, 1) if kind == "attention" else None

    def forward(self, node_emb: Float[Tensor, "V D"], batch: GraphBatch) -> Float[Tensor, "N D"]:
        """Return one embedding a graph."""
        if self.score is not None:
            weights = segment_softmax(self.score(node_emb), batch.ptr)
            return segment_sum(weights * node_emb, batch.ptr)
        return POOLS[self.kind](node_emb, batch.ptr)


class GraphEncoder(nn.Module):
    """Embeds the nodes and graphs of a batch. Implements Eqs. 1 and 2.

    Args:
        config: Shape of the encoder; what is ``auto`` follows the schema.
        schema: Meaning of the attributes it reads.
    """

    peers: Peers | None = None
    """The processes that embed each batch together, a shard each; None: this one alone."""

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.config = config.resolve_auto(schema.domain)
        """The settings, nothing ``auto``."""
        self.schema = schema
        self.dim = config.dim * (config.layers + 1 if config.jk == "concat" else 1)
        """Width of node and graph embeddings."""
        self.node = AttributeTable(schema.node, config.dim)
        make = LAYERS[config.backbone]
        self.layers = nn.ModuleList(make(self.config, schema) for _ in range(config.layers))
        self.norms = nn.ModuleList(
            NodeNorm(config.dim) for _ in range(config.layers if self.config.batch_norm else 0)
        )
        self.readout = Readout(config.readout, self.dim)
        self.whole = nn.Identity()
        """Passes on the graph embeddings of whole batches, for those who listen."""

    def layer_outputs(self, batch: GraphBatch) -> list[Tensor]:
        """Return the input embedding and the output of every layer, each (V, D)."""
        shard = Shard(batch, self.peers)
        return [shard.all_nodes(h.spread()) for h in self._layer_outputs(shard)]

    def _layer_outputs(self, shard: Shard) -> list[NodeRows]:
        batch = shard.batch
        whole = Neighborhood(batch, self.schema, self.node.weight.dtype)
        classes = iter(self._classes(batch))
        first = next(classes, None)
        x = batch.x if first is None else batch.x.index_select(0, first.nodes)
        outputs = [NodeRows(self.node(x), first)]
        dropout = self.config.dropout if self.training else 0.0
        for number, layer in enumerate(self.layers):
            old, new = outputs[-1].classes, next(classes, None)
            near = (
                whole if old is None else SharedNeighborhood(whole, old, new, self._needs_degrees)
            )
            h = layer(outputs[-1].rows, near)
            if self.norms:
                h = self.norms[number](h, near.counts)
            if number < len(self.layers) - 1:
                # a norm's output is needed by nobody else
                h = F.relu(h, inplace=len(self.norms) > 0)
            out = NodeRows(h, new)
            outputs.append(NodeRows(shard.dropout(out.spread(), dropout)) if dropout > 0 else out)
        return outputs

    @property
    def _needs_degrees(self) -> bool:
        return any(layer.needs_degrees for layer in self.layers)

    def _classes(self, batch: GraphBatch) -> list[ColorClasses]:
        """Return the classes of equal environments at the input and after each layer.

        The list ends where nodes are computed one by one: where few are alike; after the first
        dropout, which tells copies apart; and at once for numbers, for layers that do not share,
        and on a GPU, which would have to be waited for until the classes are counted.
        """
        numbers = is_continuous(self.schema.node) or is_continuous(self.schema.edge)
        capable = all(layer.shares_environments for layer in self.layers)
        here = batch.x.device.type == "cpu"
        if (
            self.config.sharing == "off"
            or numbers
            or not capable
            or not here
            or not batch.num_nodes
        ):
            return []
        drops = self.training and self.config.dropout > 0
        return color_classes(
            batch.x,
            batch.edge_attr,
            batch.adjacency,
            1 if drops else len(self.layers),
            with_degrees=self._needs_degrees,
        )

    def forward(self, batch: GraphBatch) -> Encoding:
        """Return the embeddings of every node and graph (Eq. 5)."""
        shard = Shard(batch, self.peers)
        return self._encoding(self._layer_outputs(shard), shard)

    def _encoding(self, outputs: list[NodeRows], shard: Shard) -> Encoding:
        def node_emb() -> Tensor:
            if self.config.jk == "last":
                return outputs[-1].spread()
            return JUMPS[self.config.jk]([h.spread() for h in outputs])

        if self.config.jk == "last" and self.readout.kind in MEANS:
            graph_emb = outputs[-1].mean(shard.batch)
        elif self.config.jk == "concat" and self.readout.kind in MEANS:
            graph_emb = torch.cat([h.mean(shard.batch) for h in outputs], dim=1)
        else:
            graph_emb = self.readout(node_emb(), shard.batch)
        return Encoding(
            lambda: shard.all_nodes(node_emb()), self.whole(shard.all_graphs(graph_emb))
        )

    def embedding_width(self, layer: EmbeddingLayer) -> int:
        """Return the number of columns of :meth:`embed_graphs`."""
        sides = 2 if self.config.readout == "mean+center" else 1
        if layer == "last":
            return sides * self.dim
        blocks = sides + 1 if layer == "jk+sum" else sides
        return blocks * (len(self.layers) + 1) * self.config.dim + 1

    def embed_graphs(self, batch: GraphBatch, layer: EmbeddingLayer = "jk") -> Float[Tensor, "N W"]:
        """Return graph embeddings for use without fine-tuning.

        Args:
            batch: The graphs.
            layer: ``last`` is the graph embedding of :meth:`forward`; ``jk`` joins the mean over
                nodes of the input embedding and of every layer, and the logarithm of the number of
                nodes. With the readout ``mean+center``, the center node's embedding stands beside
                each of these. In ``jk+sum`` the sums over nodes follow: what adds up over the parts
                of a graph is linear in them.
        """
        if layer == "last":
            return self._last(self(batch), batch)
        shard = Shard(batch, self.peers)
        return self._join_layers(self._layer_outputs(shard), shard, layer == "jk+sum")

    def embed_twice(self, batch: GraphBatch) -> Float[Tensor, "N W"]:
        """Return ``last`` and ``jk`` of :meth:`embed_graphs` side by side, of one pass."""
        encoding, all_layers = self.encode_and_embed(batch)
        return torch.cat([self._last(encoding, batch), all_layers], dim=1)

    def encode_and_embed(self, batch: GraphBatch) -> tuple[Encoding, Float[Tensor, "N W"]]:
        """Return what :meth:`forward` does, and the ``jk`` embedding of the same pass."""
        shard = Shard(batch, self.peers)
        outputs = self._layer_outputs(shard)
        return self._encoding(outputs, shard), self._join_layers(outputs, shard)

    def _last(self, encoding: Encoding, batch: GraphBatch) -> Tensor:
        if self.config.readout != "mean+center":
            return encoding.graph_emb
        # the center of an ego-network is its node 0
        return torch.cat([encoding.graph_emb, encoding.node_emb[batch.ptr[:-1]]], dim=1)

    def _join_layers(
        self, outputs: list[NodeRows], shard: Shard, with_sums: bool = False
    ) -> Float[Tensor, "N W"]:
        batch, has_center = shard.batch, self.config.readout == "mean+center"
        means = [h.mean(batch) for h in outputs]
        centers = [h.at(batch.ptr[:-1]) for h in outputs] if has_center else []
        sizes = batch.sizes.to(means[0].dtype)[:, None]
        sums = [mean * sizes for mean in means] if with_sums else []
        log_size = sizes.clamp(min=1).log()
        return shard.all_graphs(torch.cat([*means, *centers, log_size, *sums], dim=1))


def encoder_from_state(
    config: EncoderConfig, schema: FeatureSchema, state: Mapping[str, Tensor]
) -> GraphEncoder:
    """Return an encoder with these weights, which it takes copies of.

    Nothing is allocated before all names and shapes have matched, so that a file that promises
    more than it holds costs no memory.

    Raises:
        ValueError: If a weight is not a matrix of finite real numbers.
        RuntimeError: If names or shapes are not those of the encoder.
    """
    with torch.device("meta"):
        encoder = GraphEncoder(config, schema)
    copies = {name: _checked_copy(name, tensor) for name, tensor in state.items()}
    encoder.load_state_dict(copies, assign=True)
    return encoder


def _checked_copy(name: str, tensor: Tensor) -> Tensor:
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
        raise ValueError(f"`{name}` holds {tensor.dtype} in layout {tensor.layout}")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(f"`{name}` repeats its values: {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        return tensor.clone()
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"`{name}` holds values that are not finite")
    single = tensor if tensor.dtype == torch.float64 else tensor.float()
    return single.clone(memory_format=torch.contiguous_format)


def build_encoder(
    config: EncoderConfig, schema: FeatureSchema, seed: int | torch.Generator = 0
) -> GraphEncoder:
    """Return a freshly initialized encoder on the CPU: the same seed gives the same weights.

    Embeddings are drawn Xavier-uniform, linear layers as torch draws them. The global random state
    is left as it was.
    """
    if isinstance(seed, torch.Generator):
        seed = int(torch.randint(2**62, (), generator=seed, device=seed.device))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return GraphEncoder(config, schema)


def with_settings(network: GraphEncoder, **changes: Any) -> GraphEncoder:
    """Return a copy of an encoder, on its device, with other settings that no weight depends on."""
    with torch.random.fork_rng(devices=[]):  # the initial weights are replaced at once
        copy = GraphEncoder(network.config.updated(changes), network.schema)
    copy.load_state_dict(network.state_dict())
    return copy.to(next(network.parameters()).device)


def calibrate(network: GraphEncoder, graphs: GraphStore, seed: int = 0) -> None:
    """Set the running statistics of every batch norm to their averages over clean graphs.

    During training they follow corrupted views under weights that keep changing; what is used
    afterwards are whole graphs under the final weights. A batch counts by its number of graphs, so
    that a few left over count little. The network is in evaluation mode afterwards.

    Args:
        network: Its weights stay.
        graphs: Unlabeled; up to 20 batches of 64 are drawn.
        seed: Decides which.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d)]
    momenta = [norm.momentum for norm in norms]
    network.eval()
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    seen = 0
    with torch.no_grad():
        for indices in epoch_batches(len(graphs), BATCH_SIZE, seed)[:BATCHES]:
            batch = graphs.take(np.sort(indices))
            if batch.num_nodes > 1:  # one value has no variance
                seen += batch.num_graphs
                for norm in norms:
                    norm.momentum = batch.num_graphs / seen
                network(batch.to(next(network.parameters()).device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
