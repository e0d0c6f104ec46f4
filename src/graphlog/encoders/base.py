"""Vectors of attributes, the input of a message-passing layer, and what an encoder returns."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, Self, TypeVar, no_type_check

import torch
from jaxtyping import Float, Int, Shaped
from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.data.schema import Attribute, FeatureSchema
from graphlog.domains import DOMAINS
from graphlog.encoders import LAYERS
from graphlog.errors import DataError, check_name
from graphlog.ops.collectives import Peers, normalize, shared_moments
from graphlog.ops.colors import ColorClasses
from graphlog.ops.neighbors import Adjacency, gather_rows, neighbor_sum, one_sender_each
from graphlog.ops.segment import segment_mean, segment_sum


def code_rows(values: Shaped[Tensor, "R F"], columns: tuple[Attribute, ...]) -> Int[Tensor, "R C"]:
    """Return the row of each code in the stacked tables of the categorical columns.

    Raises:
        DataError: If a code is outside its column (looked for on the CPU only: elsewhere it would
            stall the device).
    """
    coded = [i for i, c in enumerate(columns) if c.is_categorical]
    sizes = torch.tensor([columns[i].cardinality for i in coded], dtype=torch.int64)
    codes = (values if len(coded) == len(columns) else values[:, coded]).to(torch.int64)
    if codes.device.type == "cpu" and codes.numel():
        low, high = codes.aminmax(dim=0)
        wrong = (low < 0) | (high >= sizes)
        if wrong.any():
            bad = int(wrong.nonzero()[0])
            column, value = columns[coded[bad]], int(low[bad] if low[bad] < 0 else high[bad])
            raise DataError(
                f"attribute '{column.name}' must be in [0, {column.cardinality}), found {value};"
                " the graphs do not follow this schema."
            )
    return codes + (sizes.cumsum(0) - sizes).to(codes.device)


def table_rows(columns: tuple[Attribute, ...]) -> int:
    """Return the number of indicator columns: codes, continuous columns, and a bias for these."""
    continuous = sum(not c.is_categorical for c in columns)
    return sum(c.cardinality for c in columns) + continuous + (continuous > 0)


def expand_attributes(
    values: Shaped[Tensor, "R F"], columns: tuple[Attribute, ...], dtype: torch.dtype
) -> Float[Tensor, "R K"]:
    """Return the indicator columns of each row.

    These are one-hot codes, standardized continuous columns, and a 1 for the bias of the latter.
    """
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
    """Return ``(value - shift) / scale`` of continuous columns, as the schema defines."""
    if all(c.shift == 0.0 and c.scale == 1.0 for c in columns):
        return values
    shift, scale = (
        torch.tensor([getattr(c, key) for c in columns], dtype=torch.float64)
        for key in ("shift", "scale")
    )
    return ((values.double() - shift.to(values.device)) / scale.to(values.device)).float()


class AttributeTable(nn.Module):
    """The sum of one learned vector per column.

    A code selects a row of its column's table, a number scales a vector and adds a bias:
    ``table(values)`` is ``expand_attributes(values) @ table.weight``.
    """

    def __init__(self, columns: tuple[Attribute, ...], dim: int) -> None:
        super().__init__()
        self.columns = columns
        self.weight = nn.Parameter(torch.empty(table_rows(columns), dim))
        """A row for each indicator column."""
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw tables Xavier-uniform and continuous columns as a linear layer (Hu et al., 2020)."""
        start, dim = 0, self.weight.shape[1]
        for column in self.columns:
            bound = math.sqrt(6 / (column.cardinality + dim))
            self.weight[start : start + column.cardinality].uniform_(-bound, bound)
            start += column.cardinality
        if start < self.weight.shape[0]:
            bound = 1 / math.sqrt(self.weight.shape[0] - start - 1)
            self.weight[start:].uniform_(-bound, bound)

    def forward(self, values: Shaped[Tensor, "R F"]) -> Float[Tensor, "R D"]:
        """Return the vector of each row of attributes."""
        if self.columns and all(c.is_categorical for c in self.columns):
            return F.embedding_bag(code_rows(values, self.columns), self.weight, mode="sum")
        return expand_attributes(values, self.columns, self.weight.dtype) @ self.weight


class NodeRows(NamedTuple):
    """A vector for every node of a batch; nodes of equal environments may share a row."""

    rows: Float[Tensor, "R D"]
    """The vectors."""
    classes: ColorClasses | None = None
    """Which row is a node's; None where every node has its own, in order."""

    def spread(self) -> Float[Tensor, "V D"]:
        """Return one row a node."""
        return self.rows if self.classes is None else gather_rows(self.rows, self.classes.members)

    def at(self, nodes: Int[Tensor, "A"]) -> Float[Tensor, "A D"]:
        """Return the rows of some nodes."""
        return self.rows[nodes if self.classes is None else self.classes.inverse[nodes]]

    def mean(self, batch: GraphBatch) -> Float[Tensor, "N D"]:
        """Return the mean over the nodes of each graph; 0 for a graph without nodes."""
        if self.classes is None:
            return segment_mean(self.rows, batch.ptr)
        total = neighbor_sum(self.rows, self.classes.pooled(batch.ptr))
        return total / batch.sizes.clamp(min=1).to(total.dtype)[:, None]


class Encoding:
    """Embeddings of a batch (Eq. 5): of every node's neighborhood, and of every graph.

    It unpacks into the two: ``node_emb, graph_emb = encoder(batch)``.
    """

    def __init__(
        self, nodes: Callable[[], Float[Tensor, "V D"]], graph_emb: Float[Tensor, "N D"]
    ) -> None:
        """Keep the embeddings of graphs, and how to get those of nodes."""
        self._nodes = nodes
        self._modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        self.graph_emb = graph_emb
        """Graph embeddings ``h_G``."""

    @cached_property
    def node_emb(self) -> Float[Tensor, "V D"]:
        """Subgraph embeddings ``h_v``, written out when they are first asked for.

        They have gradients where the graphs' have, wherever they are asked for.
        """
        inference, gradients = self._modes
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return self._nodes()

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.node_emb, self.graph_emb))


class LayerConfig(FrozenConfig):
    """Settings of one kind of layer, which names its subclass ``Config``."""

    def resolve_auto(self, domain: str) -> Self:
        """Return the settings with every ``auto`` replaced by what graphs of ``domain`` need."""
        return self


LayerSettings = TypeVar("LayerSettings", bound=LayerConfig)


class EncoderConfig(FrozenConfig):
    """The shape of an encoder.

    ``auto`` follows the schema's domain: proteins get the biology variants of Hu et al. (2020).
    """

    backbone: str = "gin"
    """Name of the layer in ``graphlog.encoders.LAYERS``."""
    layers: int = Field(default=5, ge=1, le=1000)
    """Rounds of message passing."""
    dim: int = Field(default=300, ge=1, le=65_536)
    """Width of a layer's node embeddings."""
    jk: Literal["last", "concat", "max", "sum"] = "last"
    """Jumping knowledge: which layers make the node embedding; all but ``last`` use the input
    too."""
    readout: Literal["mean", "sum", "max", "attention", "mean+center"] = "mean"
    """How node embeddings become a graph embedding (Eq. 2). ``mean+center`` takes the mean in
    pre-training; downstream, the center node's embedding is appended (biology of Hu et al.)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped after every layer, the last one included."""
    batch_norm: Literal["auto"] | bool = "auto"
    """Batch normalization after every layer: chemistry has it, biology does not."""
    sharing: Literal["auto", "off"] = "auto"
    """Whether nodes of equal environments are computed once, where a batch has enough of them. The
    results are the same but for rounding."""
    layer: SerializeAsAny[LayerConfig] = LayerConfig()
    """Settings of the backbone's layer, a table of their own."""

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, name: str) -> str:
        check_name("backbone", name, LAYERS)
        return name

    @field_validator("layer", mode="before")
    @classmethod
    @no_type_check  # ValidationInfo cannot be checked at run time
    def _of_the_backbone(cls, given: object, others: ValidationInfo) -> LayerConfig:
        if not isinstance(given, Mapping | LayerConfig):
            raise ValueError(f"must be a table of settings, found {given!r}")
        kind = getattr(LAYERS.get(others.data.get("backbone", "")), "Config", LayerConfig)
        values = given.model_dump() if isinstance(given, LayerConfig) else given
        return kind.parse(values, "encoder.layer.")

    def layer_as(self, kind: type[LayerSettings]) -> LayerSettings:
        """Return the settings of the layer; the defaults if it is not of ``kind``."""
        return self.layer if isinstance(self.layer, kind) else kind()

    def resolve_auto(self, domain: str) -> "EncoderConfig":
        """Return the settings with every ``auto`` replaced by what graphs of ``domain`` need."""
        is_wide = domain in DOMAINS and DOMAINS[domain].wide_edges
        batch_norm = not is_wide if self.batch_norm == "auto" else self.batch_norm
        layer = self.layer.resolve_auto(domain)
        return self.updated({"batch_norm": batch_norm, "layer": layer}, "encoder.")


class Neighborhood:
    """The edges of a batch with self-loops, and the sums over them that no parameter changes.

    Every layer adds up edge vectors linearly, so that the sum at a node is (sum of its edges'
    indicator columns) times the layer's weights; those sums, V x K with K about ten, are taken once
    for all layers.
    """

    counts: Float[Tensor, "R"] | None = None
    """How many nodes each new row stands for; None: one each."""

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
        """Symmetric normalization of each edge, 1 / sqrt(count of target * count of source)."""
        scale = self.count[:, 0].rsqrt()
        return scale[self.adjacency.receivers] * scale[self.adjacency.senders]

    @cached_property
    def indicators(self) -> Float[Tensor, "E K"]:
        """Indicator columns of each edge's attributes (see ``expand_attributes``)."""
        values = self.batch.edge_attr
        loop = torch.tensor(
            [self._schema.self_loop or ()], dtype=values.dtype, device=values.device
        )
        return expand_attributes(torch.cat([values, loop]), self._schema.edge, self.dtype)[
            self.adjacency.order
        ]

    @cached_property
    def indicator_sums(self) -> Float[Tensor, "R K"]:
        """Sum of the indicators over each receiver's edges."""
        return segment_sum(self.indicators, self.adjacency.offsets)

    @cached_property
    def normalized_indicator_sums(self) -> Float[Tensor, "R K"]:
        """The same, each edge weighted by :attr:`norm`."""
        return segment_sum(self.indicators * self.norm[:, None], self.adjacency.offsets)

    def own_rows(self, values: Float[Tensor, "S H"]) -> Float[Tensor, "R H"]:
        """Return the old row of each receiver itself."""
        return values


class SharedNeighborhood(Neighborhood):
    """A neighborhood for a layer that computes each environment once.

    Receivers are the first nodes of the new classes (or all nodes), senders are the old classes.
    ``batch`` is the whole batch: its nodes are not the rows that a layer is given.
    """

    def __init__(
        self, whole: Neighborhood, old: ColorClasses, new: ColorClasses | None, has_degrees: bool
    ) -> None:
        """Choose the edges.

        Args:
            whole: The neighborhood of all nodes.
            old: Classes whose rows the layer gets.
            new: Classes whose rows the layer returns; None: one a node.
            has_degrees: Whether classes tell degrees apart, as :attr:`norm` needs.
        """
        self.batch, self._whole, self._old = whole.batch, whole, old
        self.dtype, self._has_degrees = whole.dtype, has_degrees
        edges = whole.adjacency
        if new is None:
            self._nodes, self._edges, offsets = slice(None), slice(None), edges.offsets
            senders, order = edges.senders, edges.order
        else:
            self.counts, self._nodes = new.counts.to(whole.dtype), new.nodes
            first = edges.offsets[:-1].index_select(0, new.nodes)
            degree = edges.offsets[1:].index_select(0, new.nodes) - first
            offsets = nn.functional.pad(degree.cumsum(0), (1, 0))
            within = torch.repeat_interleave(first - offsets[:-1], degree)
            self._edges = within + torch.arange(within.shape[0], device=within.device)
            senders = edges.senders.index_select(0, self._edges)
            order = edges.order.index_select(0, self._edges)
        self.adjacency = Adjacency(
            offsets, old.inverse.index_select(0, senders), old.nodes.shape[0], order
        )

    @cached_property
    def norm(self) -> Float[Tensor, "E"]:
        """As of all nodes."""
        assert self._has_degrees, "a layer that uses `norm` must declare `needs_degrees`"
        return self._whole.norm[self._edges]

    @cached_property
    def indicators(self) -> Float[Tensor, "E K"]:
        """As of all nodes."""
        return self._whole.indicators[self._edges]

    @cached_property
    def indicator_sums(self) -> Float[Tensor, "R K"]:
        """As of all nodes."""
        return self._whole.indicator_sums[self._nodes]

    @cached_property
    def normalized_indicator_sums(self) -> Float[Tensor, "R K"]:
        """As of all nodes."""
        assert self._has_degrees, "a layer that uses `norm` must declare `needs_degrees`"
        return self._whole.normalized_indicator_sums[self._nodes]

    def own_rows(self, values: Float[Tensor, "S H"]) -> Float[Tensor, "R H"]:
        """Return the old row of each receiver's class."""
        own = self._old.inverse[self._nodes]
        return gather_rows(values, one_sender_each(own, self._old.nodes.shape[0]))


class MessagePassing(nn.Module, ABC):
    """One layer of Eq. 1, built from ``(config, schema)``: new node embeddings from old ones."""

    shares_environments: ClassVar[bool] = False
    """Whether a node's new row follows from its old row, those of its neighbors and its edges, all
    found by ``neighborhood``. The layer is then given and asked for one row per distinct
    environment: ``h`` has a row a sender, the result a row a receiver of the adjacency."""
    needs_degrees: ClassVar[bool] = False
    """Whether the degrees of neighbors are used too, as by ``neighborhood.norm``."""

    def __init_subclass__(cls, **options: object) -> None:
        """Let a new ``forward`` declare anew whether it shares."""
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

    A single node has no variance: it is normalized by the running statistics, which then stay as
    they are.
    """

    peers: Peers | None = None
    """The processes that hold the nodes of a batch together; None where this one has them all."""

    def forward(
        self, input: Float[Tensor, "R D"], counts: Float[Tensor, "R"] | None = None
    ) -> Float[Tensor, "R D"]:
        """Return the normalized values.

        Args:
            input: Rows.
            counts: How many nodes each row stands for; None: one.
        """
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
        share = self.momentum or 1 / int(batches)  # no momentum: the average of all batches
        unbiased = moments.variance * (moments.rows / (moments.rows - 1))
        # by `data`, as torch's own kernel: no pass before this one reads them any more
        mean.data.lerp_(moments.mean.to(mean.dtype), share)
        variance.data.lerp_(unbiased.to(variance.dtype), share)
        return normalize(input, moments, self.weight, self.bias, self.eps, counts, self.peers)

    def _by_running_statistics(self, input: Tensor) -> Tensor:
        if input.shape[0] == 0:
            return input
        # of copies, which a pass after this one does not change before the gradients are taken
        mean, variance = (self.get_buffer(n).clone() for n in ("running_mean", "running_var"))
        return nn.functional.batch_norm(
            input, mean, variance, self.weight, self.bias, False, 0.0, self.eps
        )
