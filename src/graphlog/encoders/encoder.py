"""The encoder: its settings, its modules, and how it embeds batches of graphs."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from itertools import pairwise
from threading import RLock
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.graphs import Attribute, FeatureSchema, is_continuous
from graphlog.data.store import GraphBatch, GraphStore, epoch_batches
from graphlog.domains import DOMAINS
from graphlog.encoders import LAYERS
from graphlog.errors import DataError, check_name
from graphlog.ops.collectives import Peers
from graphlog.ops.colors import ColorClasses, color_classes
from graphlog.ops.dense import normalize, shared_moments
from graphlog.ops.sparse import (
    Adjacency,
    gather_rows,
    neighbor_sum,
    one_sender_each,
    segment_max,
    segment_mean,
    segment_softmax,
    segment_sum,
)

EmbeddingLayer = Literal["jk", "last", "jk+sum"]
_GENERATORS = RLock()
"""Lock of the thread that uses torch's global generators."""
BATCHES, BATCH_SIZE = 20, 64
"""Number and size of the batches used to estimate the statistics of batch normalization."""
JUMPS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "last": lambda outputs: outputs[-1],
    "concat": lambda outputs: torch.cat(outputs, dim=1),
    "max": lambda outputs: torch.stack(outputs).amax(dim=0),
    "sum": lambda outputs: torch.stack(outputs).sum(dim=0),
}
"""Jumping knowledge: how input embedding and layer outputs make a node embedding."""

POOLS: dict[str, Callable[[Float[Tensor, "V D"], Int[Tensor, "P"]], Float[Tensor, "N D"]]] = {
    "mean": segment_mean,
    "sum": segment_sum,
    "max": segment_max,
}


def code_rows(values: Shaped[Tensor, "R F"], columns: tuple[Attribute, ...]) -> Int[Tensor, "R C"]:
    """Return the row of each code in the stacked tables of the categorical columns.

    Raises:
        DataError: If a code is out of range; only on a CPU, as a GPU would have to synchronize.
    """
    categorical = [i for i, c in enumerate(columns) if c.is_categorical]
    sizes = torch.tensor([columns[i].cardinality for i in categorical], dtype=torch.int64)
    codes = (values if len(categorical) == len(columns) else values[:, categorical]).long()
    first_rows = sizes.cumsum(0) - sizes
    if codes.device.type != "cpu":
        return codes + _on_device(codes.device, *first_rows.tolist())
    if codes.numel():
        low, high = codes.aminmax(dim=0)
        wrong = (low < 0) | (high >= sizes)
        if wrong.any():
            bad = int(wrong.nonzero()[0])
            column, value = columns[categorical[bad]], int(low[bad] if low[bad] < 0 else high[bad])
            raise DataError(
                f"attribute '{column.name}' must be in [0, {column.cardinality}), found {value};"
                " the graphs do not follow this schema."
            )
    return codes + first_rows


@cache
def _on_device(device: torch.device, *numbers: int) -> Int[Tensor, "C"]:
    """Return numbers as a tensor on a GPU; cached, since each copy to a GPU synchronizes."""
    return torch.tensor(numbers, device=device)


def table_rows(columns: tuple[Attribute, ...]) -> int:
    """Return the number of indicator columns: codes, continuous columns, and a bias if any."""
    continuous = sum(not c.is_categorical for c in columns)
    return sum(c.cardinality for c in columns) + continuous + (continuous > 0)


def expand_attributes(
    values: Shaped[Tensor, "R F"], columns: tuple[Attribute, ...], dtype: torch.dtype
) -> Float[Tensor, "R K"]:
    """Return one-hot codes, standardized continuous columns, and a bias of ones for the latter."""
    out = torch.zeros(values.shape[0], table_rows(columns), dtype=dtype, device=values.device)
    continuous = [i for i, c in enumerate(columns) if not c.is_categorical]
    if len(continuous) < len(columns):
        out.scatter_(1, code_rows(values, columns), 1.0)
    if continuous:
        out[:, -1 - len(continuous) : -1] = standardized(
            values[:, continuous], tuple(columns[i] for i in continuous)
        ).to(dtype)
        out[:, -1] = 1.0
    return out


def standardized(
    values: Shaped[Tensor, "R F"], columns: tuple[Attribute, ...]
) -> Shaped[Tensor, "R F"]:
    """Return ``(value - shift) / scale`` for continuous columns, as defined by the schema."""
    if all(c.shift == 0.0 and c.scale == 1.0 for c in columns):
        return values
    shift = torch.tensor([c.shift for c in columns], dtype=torch.float64, device=values.device)
    scale = torch.tensor([c.scale for c in columns], dtype=torch.float64, device=values.device)
    return ((values.double() - shift) / scale).float()


class AttributeTable(nn.Module):
    """Embeds attributes as the sum of one learned vector per column.

    A code selects a row of the table of its column; a number multiplies a vector, and a bias is
    added. ``table(values)`` equals ``expand_attributes(values) @ table.weight``.
    """

    def __init__(self, columns: tuple[Attribute, ...], dim: int) -> None:
        super().__init__()
        self.columns = columns
        self.weight = nn.Parameter(torch.empty(table_rows(columns), dim))
        """One row for each indicator column."""
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize tables Xavier-uniform, numbers as a linear layer (Hu et al. 2020)."""
        start, dim = 0, self.weight.shape[1]
        for column in self.columns:
            bound = math.sqrt(6 / (column.cardinality + dim))
            self.weight[start : start + column.cardinality].uniform_(-bound, bound)
            start += column.cardinality
        if start < self.weight.shape[0]:
            bound = 1 / math.sqrt(self.weight.shape[0] - start - 1)
            self.weight[start:].uniform_(-bound, bound)

    def forward(self, values: Shaped[Tensor, "R F"]) -> Float[Tensor, "R D"]:
        """Return one vector for each row of attributes."""
        if self.columns and all(c.is_categorical for c in self.columns):
            return F.embedding_bag(code_rows(values, self.columns), self.weight, mode="sum")
        return expand_attributes(values, self.columns, self.weight.dtype) @ self.weight


class NodeRows(NamedTuple):
    """Vectors for the nodes of a batch; nodes with equal environments may share a row."""

    rows: Float[Tensor, "R D"]
    """The vectors, one for each class of nodes."""
    classes: ColorClasses | None = None
    """The class of each node; None if every node has a row, in order."""

    def spread(self) -> Float[Tensor, "V D"]:
        """Return one row for each node."""
        return self.rows if self.classes is None else gather_rows(self.rows, self.classes.members)

    def at(self, nodes: Int[Tensor, "A"]) -> Float[Tensor, "A D"]:
        """Return one row for each of the given nodes."""
        return self.rows[nodes if self.classes is None else self.classes.inverse[nodes]]

    def mean(self, batch: GraphBatch) -> Float[Tensor, "N D"]:
        """Return the mean over the nodes of each graph; 0 for a graph without nodes."""
        if self.classes is None:
            return segment_mean(self.rows, batch.ptr)
        total = neighbor_sum(self.rows, self.classes.pooled(batch.ptr))
        return total / batch.sizes.clamp(min=1).to(total.dtype)[:, None]


class Encoding:
    """Embeddings of the nodes and graphs of a batch (Eq. 5).

    It can be unpacked: ``node_emb, graph_emb = encoder(batch)``.
    """

    def __init__(
        self, nodes: Callable[[], Float[Tensor, "V D"]], graph_emb: Float[Tensor, "N D"]
    ) -> None:
        """Store the graph embeddings, and a function that returns the node embeddings."""
        self._nodes = nodes
        self._modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        self.graph_emb = graph_emb
        """Graph embeddings ``h_G``."""

    @cached_property
    def node_emb(self) -> Float[Tensor, "V D"]:
        """Subgraph embeddings ``h_v``, computed at the first access.

        They have gradients if the graph embeddings have, wherever they are accessed.
        """
        inference, gradients = self._modes
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return self._nodes()

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.node_emb, self.graph_emb))


class LayerConfig(FrozenConfig):
    """Base class of the settings of a layer; the class of a layer names its own as ``Config``."""

    def resolve_auto(self, domain: str) -> Self:
        """Return the settings with every ``auto`` replaced by the value for ``domain``."""
        return self


LayerSettings = TypeVar("LayerSettings", bound=LayerConfig)


class EncoderConfig(FrozenConfig):
    """Settings of an encoder; for proteins, ``auto`` selects the variants of Hu et al. (2020)."""

    backbone: str = "gin"
    """Name of the layer in ``graphlog.encoders.LAYERS``."""
    layers: int = Field(default=5, ge=1, le=1000)
    """Number of message-passing layers."""
    dim: int = Field(default=300, ge=1, le=65_536)
    """Width of a layer's node embeddings."""
    jk: Literal["last", "concat", "max", "sum"] = "last"
    """Jumping knowledge: how layer outputs are combined into the node embedding; all but
    ``last`` include the input embedding."""
    readout: Literal["mean", "sum", "max", "attention", "mean+center"] = "mean"
    """How node embeddings give the graph embedding (Eq. 2). ``mean+center`` is the mean in
    pre-training; downstream, the embedding of the center node is appended (Hu et al., biology)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate after every layer, including the last."""
    batch_norm: Literal["auto"] | bool = "auto"
    """Whether to use batch normalization after every layer; ``auto``: not for proteins."""
    sharing: Literal["auto", "off"] = "auto"
    """``auto`` computes nodes with equal environments once if a batch has enough of them; results
    differ only by rounding."""
    layer: SerializeAsAny[LayerConfig] = LayerConfig()
    """Settings of the layer, whose names depend on the backbone."""

    @field_validator("backbone")
    @classmethod
    def _check_backbone(cls, name: str) -> str:
        check_name("backbone", name, LAYERS)
        return name

    @field_validator("layer", mode="before")
    @classmethod
    @no_type_check  # ValidationInfo cannot be checked at run time
    def _parse_layer(cls, given: object, others: ValidationInfo) -> LayerConfig:
        if not isinstance(given, Mapping | LayerConfig):
            raise ValueError(f"must be a table of settings, found {given!r}")
        kind = getattr(LAYERS.get(others.data.get("backbone", "")), "Config", LayerConfig)
        values = given.model_dump() if isinstance(given, LayerConfig) else given
        return kind.parse(values, "encoder.layer.")

    def layer_as(self, kind: type[LayerSettings]) -> LayerSettings:
        """Return the settings of the layer; the defaults of ``kind`` if they have another type."""
        return self.layer if isinstance(self.layer, kind) else kind()

    def resolve_auto(self, domain: str) -> "EncoderConfig":
        """Return the settings with every ``auto`` replaced by the value for ``domain``."""
        is_wide = domain in DOMAINS and DOMAINS[domain].wide_edges
        batch_norm = not is_wide if self.batch_norm == "auto" else self.batch_norm
        layer = self.layer.resolve_auto(domain)
        return self.updated({"batch_norm": batch_norm, "layer": layer}, "encoder.")


class Neighborhood:
    """The edges of a batch with self-loops, and sums over edges that do not depend on parameters.

    Layers sum edge vectors linearly. The sum at a node is therefore the sum of the indicator
    columns of its edges times the weights of the layer. The former sums (V x K, with K about 10)
    are computed once for all layers.
    """

    counts: Float[Tensor, "R"] | None = None
    """Number of nodes that share each output row; None: one each."""

    def __init__(self, batch: GraphBatch, schema: FeatureSchema, dtype: torch.dtype) -> None:
        self.batch = batch
        self.dtype = dtype
        self._schema = schema
        self.adjacency = batch.adjacency.with_self_loops

    @cached_property
    def count(self) -> Float[Tensor, "R 1"]:
        """Number of edges into each receiver."""
        return self.adjacency.in_degree.to(self.dtype)[:, None]

    @cached_property
    def norm(self) -> Float[Tensor, "E"]:
        """Symmetric normalization of each edge: 1 / sqrt(count of target * count of source)."""
        scale = self.count[:, 0].rsqrt()
        return scale[self.adjacency.receivers] * scale[self.adjacency.senders]

    @cached_property
    def indicators(self) -> Float[Tensor, "E K"]:
        """Indicator columns of each edge's attributes (see ``expand_attributes``)."""
        edges = self.batch.edge_attr
        loop = torch.tensor([self._schema.self_loop or ()], dtype=edges.dtype, device=edges.device)
        values = torch.cat([edges, loop])
        return expand_attributes(values, self._schema.edge, self.dtype)[self.adjacency.order]

    @cached_property
    def indicator_sums(self) -> Float[Tensor, "R K"]:
        """Sum of the indicator columns over the edges of each receiver."""
        return segment_sum(self.indicators, self.adjacency.offsets)

    @cached_property
    def normalized_indicator_sums(self) -> Float[Tensor, "R K"]:
        """Sum of the indicator columns of each receiver's edges, weighted by :attr:`norm`."""
        return segment_sum(self.indicators * self.norm[:, None], self.adjacency.offsets)

    def own_rows(self, values: Float[Tensor, "S H"]) -> Float[Tensor, "R H"]:
        """Return the input row of each receiver."""
        return values


class SharedNeighborhood(Neighborhood):
    """The neighborhood for a layer that computes each distinct environment once.

    Receivers are the first nodes of the output classes (or all nodes), senders are the input
    classes. ``batch`` is the whole batch, whose nodes are not the rows of the layer.
    """

    def __init__(
        self, whole: Neighborhood, old: ColorClasses, new: ColorClasses | None, has_degrees: bool
    ) -> None:
        """Select the edges from the input classes ``old`` to the output classes ``new``.

        If ``new`` is None, the layer returns one row per node. ``has_degrees`` tells whether nodes
        of a class have equal degrees, as :attr:`norm` needs.
        """
        self.batch, self.dtype = whole.batch, whole.dtype
        self._whole, self._old, self._has_degrees = whole, old, has_degrees
        self._nodes = self._edges = slice(None)
        edges, offsets = whole.adjacency, whole.adjacency.offsets
        if new is not None:
            self.counts, self._nodes = new.counts.to(whole.dtype), new.nodes
            first, degree = edges.offsets[new.nodes], edges.in_degree[new.nodes]
            offsets = F.pad(degree.cumsum(0), (1, 0))
            within = torch.repeat_interleave(first - offsets[:-1], degree)
            self._edges = within + torch.arange(within.shape[0], device=within.device)
        senders = old.inverse.index_select(0, edges.senders[self._edges])
        order = edges.order[self._edges]
        self.adjacency = Adjacency(offsets, senders, old.nodes.shape[0], order)

    @cached_property
    def norm(self) -> Float[Tensor, "E"]:
        """Symmetric normalization of the selected edges."""
        assert self._has_degrees, "a layer that uses `norm` must declare `needs_degrees`"
        return self._whole.norm[self._edges]

    @cached_property
    def indicators(self) -> Float[Tensor, "E K"]:
        """Indicator columns of the selected edges."""
        return self._whole.indicators[self._edges]

    @cached_property
    def indicator_sums(self) -> Float[Tensor, "R K"]:
        """Sum of the indicator columns over the edges of each receiver."""
        return self._whole.indicator_sums[self._nodes]

    def own_rows(self, values: Float[Tensor, "S H"]) -> Float[Tensor, "R H"]:
        """Return the input row of the class of each receiver."""
        classes = self._old.inverse[self._nodes]
        return gather_rows(values, one_sender_each(classes, self._old.nodes.shape[0]))


class MessagePassing(nn.Module, ABC):
    """Base class of message-passing layers (Eq. 1), which are built from ``(config, schema)``."""

    shares_environments: ClassVar[bool] = False
    """Whether the output row of a node depends only on the input rows of the node and its neighbors
    and on its edges, all read from ``neighborhood``. The layer then gets and returns one row per
    distinct environment: ``h`` has a row per sender, the result a row per receiver."""
    needs_degrees: ClassVar[bool] = False
    """Whether the layer also uses the degrees of neighbors, as ``neighborhood.norm`` does."""

    def __init_subclass__(cls, **options: object) -> None:
        """Reset ``shares_environments`` if ``forward`` is overridden without setting it."""
        super().__init_subclass__(**options)
        names = ("forward", "shares_environments")
        nearest = next(vars(base) for base in cls.__mro__ if any(n in vars(base) for n in names))
        if "shares_environments" not in nearest:
            cls.shares_environments = False

    @abstractmethod
    def forward(self, h: Float[Tensor, "S D"], neighborhood: Neighborhood) -> Float[Tensor, "R D"]:
        """Return the node embeddings after one round of messages."""


class NodeNorm(nn.BatchNorm1d):
    """Batch normalization over the nodes of a batch.

    A single node has no variance: it is normalized by the running statistics, which are not
    updated.
    """

    peers: Peers | None = None
    """Processes that share the nodes of a batch; None if this process has all nodes."""

    def forward(
        self, input: Float[Tensor, "R D"], counts: Float[Tensor, "R"] | None = None
    ) -> Float[Tensor, "R D"]:
        """Return normalized rows, each of which represents ``counts`` nodes (default: one)."""
        if self.training and (counts is not None or self.peers is not None):
            return self._by_moments(input, counts)
        if self.training and input.shape[0] < 2:
            return self._by_running_statistics(input)
        return super().forward(input)

    def _by_moments(self, input: Tensor, counts: Tensor | None) -> Tensor:
        moments = shared_moments(input, counts, self.peers)
        if moments.rows < 2:
            return self._by_running_statistics(input)
        batches, mean, variance = (
            self.get_buffer(name) for name in ("num_batches_tracked", "running_mean", "running_var")
        )
        batches += 1
        assert self.momentum is not None, "it is torch's default, or set by `calibrate`"
        unbiased = moments.variance * (moments.rows / (moments.rows - 1))
        # update `data`, as torch's kernel does: no earlier pass needs the old values
        mean.data.lerp_(moments.mean.to(mean.dtype), self.momentum)
        variance.data.lerp_(unbiased.to(variance.dtype), self.momentum)
        return normalize(input, moments, self.weight, self.bias, self.eps, counts, self.peers)

    def _by_running_statistics(self, input: Tensor) -> Tensor:
        if input.shape[0] == 0:
            return input
        # copies, so that a later pass does not change them before the backward pass
        mean, variance = (self.get_buffer(n).clone() for n in ("running_mean", "running_var"))
        return F.batch_norm(input, mean, variance, self.weight, self.bias, False, 0.0, self.eps)


class Shard:
    """The part of a batch that this process embeds: consecutive graphs, an equal share of nodes."""

    def __init__(self, batch: GraphBatch, peers: Peers | None) -> None:
        """Take the part of this process from a batch that is equal in every process."""
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
        """Apply dropout with the same random numbers as if one process had all rows."""
        if self.peers is None:
            return F.dropout(values, rate)
        scale = values.new_empty(sum(self._nodes), values.shape[1]).bernoulli_(1 - rate)
        first = sum(self._nodes[: self.peers.rank])
        return values * scale.div_(1 - rate)[first : first + values.shape[0]]


class Readout(nn.Module):
    """Permutation-invariant pooling of node embeddings. Implements Eq. 2.

    ``attention`` weights nodes by the softmax of a learned score over the nodes of the graph.
    """

    def __init__(self, kind: str, dim: int) -> None:
        super().__init__()
        self.kind = "mean" if kind == "mean+center" else kind
        self.score = nn.Linear(dim, 1) if kind == "attention" else None

    def forward(self, node_emb: Float[Tensor, "V D"], batch: GraphBatch) -> Float[Tensor, "N D"]:
        """Return one embedding for each graph."""
        if self.score is not None:
            weights = segment_softmax(self.score(node_emb), batch.ptr)
            return segment_sum(weights * node_emb, batch.ptr)
        return POOLS[self.kind](node_emb, batch.ptr)


class GraphEncoder(nn.Module):
    """Embeds the nodes and graphs of a batch. Implements Eqs. 1 and 2."""

    peers: Peers | None = None
    """Processes that share the work on each batch; None: this process embeds whole batches."""

    def __init__(self, config: EncoderConfig, schema: FeatureSchema) -> None:
        super().__init__()
        self.config = config.resolve_auto(schema.domain)
        """Settings without ``auto``."""
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
        """Identity on the graph embeddings of whole batches; forward hooks can read them here."""

    def encode_layers(self, batch: GraphBatch) -> tuple[Encoding, list[Tensor]]:
        """Return the result of :meth:`forward`, and (V, D) rows of the input and every layer."""
        shard = Shard(batch, self.peers)
        outputs = self._layer_outputs(shard)
        return self._encoding(outputs, shard), [shard.all_nodes(h.spread()) for h in outputs]

    def _layer_outputs(self, shard: Shard) -> list[NodeRows]:
        batch = shard.batch
        whole = Neighborhood(batch, self.schema, self.node.weight.dtype)
        classes = iter(self._classes(batch))
        first = next(classes, None)
        x = batch.x if first is None else batch.x.index_select(0, first.nodes)
        outputs = [NodeRows(self.node(x), first)]
        dropout = self.config.dropout if self.training else 0.0
        for number, layer in enumerate(self.layers):
            neighborhood, old, new = whole, outputs[-1].classes, next(classes, None)
            if old is not None:
                neighborhood = SharedNeighborhood(whole, old, new, self.needs_degrees)
            h = layer(outputs[-1].rows, neighborhood)
            if self.norms:
                h = self.norms[number](h, neighborhood.counts)
            if number < len(self.layers) - 1:
                # the output of batch normalization is not used elsewhere
                h = F.relu(h, inplace=len(self.norms) > 0)
            out = NodeRows(h, new)
            outputs.append(NodeRows(shard.dropout(out.spread(), dropout)) if dropout > 0 else out)
        return outputs

    @property
    def needs_degrees(self) -> bool:
        """Whether a layer uses the degrees of neighbors."""
        return any(layer.needs_degrees for layer in self.layers)

    def _classes(self, batch: GraphBatch) -> list[ColorClasses]:
        """Return the classes of equal environments at the input and after each layer.

        The list ends where every node is computed: if few environments are equal, and after the
        first dropout, which makes copies differ. It is empty for continuous attributes, for layers
        that do not share environments, and on a GPU, which would have to synchronize.
        """
        if (
            self.config.sharing == "off"
            or is_continuous(self.schema.node)
            or is_continuous(self.schema.edge)
            or not all(layer.shares_environments for layer in self.layers)
            or batch.x.device.type != "cpu"
            or batch.num_nodes == 0
        ):
            return []
        rounds = 1 if self.training and self.config.dropout > 0 else len(self.layers)
        return color_classes(
            batch.x, batch.edge_attr, batch.adjacency, rounds, with_degrees=self.needs_degrees
        )

    def forward(self, batch: GraphBatch) -> Encoding:
        """Return the embeddings of every node and graph (Eq. 5)."""
        shard = Shard(batch, self.peers)
        return self._encoding(self._layer_outputs(shard), shard)

    def _encoding(self, outputs: list[NodeRows], shard: Shard) -> Encoding:
        jump = self.config.jk
        used = outputs[-1:] if jump == "last" else outputs

        def node_emb() -> Tensor:
            return JUMPS[jump]([h.spread() for h in used])

        if self.readout.kind == "mean" and jump in ("last", "concat"):
            graph_emb = torch.cat([h.mean(shard.batch) for h in used], dim=1)
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

        ``last`` is the graph embedding of :meth:`forward`. ``jk`` concatenates the means over nodes
        of the input embedding and of every layer's output, and the logarithm of the number of
        nodes. ``jk+sum`` appends the sums over nodes, in which properties that add up over the
        parts of a graph are linear. With the readout ``mean+center``, the embeddings of the center
        node are included.
        """
        if layer == "last":
            return self._last(self(batch), batch)
        shard = Shard(batch, self.peers)
        return self._join_layers(self._layer_outputs(shard), shard, layer == "jk+sum")

    def embed_last_and_all(self, batch: GraphBatch) -> Float[Tensor, "N W"]:
        """Return ``last`` and ``jk`` of :meth:`embed_graphs`, concatenated, from one pass."""
        encoding, all_layers = self.encode_and_embed(batch)
        return torch.cat([self._last(encoding, batch), all_layers], dim=1)

    def encode_and_embed(self, batch: GraphBatch) -> tuple[Encoding, Float[Tensor, "N W"]]:
        """Return the result of :meth:`forward`, and the ``jk`` embedding from the same pass."""
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
    """Return an encoder with copies of these weights.

    No weights are allocated from the settings, so that a file that declares a larger encoder than
    it contains costs no memory.

    Raises:
        ValueError: If a weight is not a dense tensor of finite real numbers.
        RuntimeError: If names or shapes differ from those of the encoder.
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


@contextmanager
def torch_globals(device: torch.device | str = "cpu") -> Generator[None, None, None]:
    """Use torch's global generators exclusively, with float32 as the default type.

    Both are shared by all threads of the process and are restored after the block. Other threads
    wait, since their draws would change the random numbers.
    """
    device = torch.device(device)
    devices = [device] if device.type == "cuda" else []
    with _GENERATORS, torch.random.fork_rng(devices=devices):
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(default)


def build_encoder(
    config: EncoderConfig, schema: FeatureSchema, seed: int | torch.Generator = 0
) -> GraphEncoder:
    """Return a newly initialized encoder on the CPU; the same seed gives the same weights.

    Attribute tables are Xavier-uniform, linear layers have torch's initialization. The global
    random state does not change.
    """
    if isinstance(seed, torch.Generator):
        seed = int(torch.randint(2**62, (), generator=seed, device=seed.device))
    with torch_globals():
        torch.default_generator.manual_seed(seed)
        return GraphEncoder(config, schema)


def with_settings(network: GraphEncoder, **changes: Any) -> GraphEncoder:
    """Return a copy of an encoder, on its device, with other settings that change no weights."""
    with torch_globals():  # the initial weights are replaced below
        copy = GraphEncoder(network.config.updated(changes), network.schema)
    copy.load_state_dict(network.state_dict())
    return copy.to(next(network.parameters()).device)


def calibrate(network: GraphEncoder, graphs: GraphStore, seed: int = 0) -> None:
    """Set the running statistics of batch normalization to their averages over clean graphs.

    During training they are estimated from corrupted views and changing weights, but the network
    is used with unchanged graphs and the final weights. Up to 20 batches of 64 graphs are drawn;
    each is weighted by its number of graphs. The network is in evaluation mode afterwards.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d)]
    momenta = [norm.momentum for norm in norms]
    network.eval()
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    num_graphs, device = 0, next(network.parameters()).device
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for indices in epoch_batches(len(graphs), BATCH_SIZE, seed)[:BATCHES]:
            batch = graphs.take(np.sort(indices))
            if batch.num_nodes > 1:  # one value has no variance
                num_graphs += batch.num_graphs
                for norm in norms:
                    norm.momentum = batch.num_graphs / num_graphs
                network(batch.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
