"""What an encoder returns, its configuration, and the input of a message-passing layer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, TypeVar

import torch
from jaxtyping import Float, Int
from pydantic import Field, SerializeAsAny, field_validator, model_serializer, model_validator
from torch import Tensor, nn

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.domains import DOMAINS
from graphlog.encoders import LAYERS
from graphlog.encoders.attributes import expand_attributes
from graphlog.errors import check_name
from graphlog.ops.collectives import Peers, normalize, shared_moments
from graphlog.ops.neighbors import Adjacency
from graphlog.ops.segment import segment_ids, segment_sum


class Encoding(NamedTuple):
    """Embeddings of a batch (Eq. 5): of every node's neighborhood, and of every graph."""

    node_emb: Float[Tensor, "V D"]
    """Subgraph embeddings ``h_v``."""
    graph_emb: Float[Tensor, "N D"]
    """Graph embeddings ``h_G``."""


class LayerConfig(FrozenConfig):
    """Settings of one kind of layer, which names its subclass ``Config``."""

    def resolve_auto(self, domain: str) -> Self:
        """Return the settings with every ``auto`` replaced by what graphs of ``domain`` need."""
        return self


LayerSettings = TypeVar("LayerSettings", bound=LayerConfig)


class EncoderConfig(FrozenConfig):
    """The shape of an encoder; the settings of the backbone's layer are given beside the others.

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
    layer: SerializeAsAny[LayerConfig] = LayerConfig()
    """Settings of the backbone's layer; in files they stand beside the others."""

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, name: str) -> str:
        check_name("backbone", name, LAYERS)
        return name

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, values: dict[str, Any]) -> dict[str, Any]:
        return _collect_layer_settings(values, "encoder.")

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str = "") -> Self:
        """Validate ``values``, those of the layer first for clear messages."""
        return super().parse(_collect_layer_settings(values, where), where)

    @model_serializer(mode="wrap")
    def _serialize_flat(self, serialize: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        values = serialize(self)
        layer = values.pop("layer", {})  # absent where defaults are left out
        return {**values, **layer}

    def layer_as(self, kind: type[LayerSettings]) -> LayerSettings:
        """Return the settings of the layer; the defaults if it is not of ``kind``."""
        return self.layer if isinstance(self.layer, kind) else kind()

    @classmethod
    def setting_names(cls) -> list[str]:
        """Return the names of all settings, those of every kind of layer included."""
        return [*(name for name in cls.model_fields if name != "layer"), *_layer_settings(*LAYERS)]

    def resolve_auto(self, domain: str) -> "EncoderConfig":
        """Return the settings with every ``auto`` replaced by what graphs of ``domain`` need."""
        is_wide = domain in DOMAINS and DOMAINS[domain].wide_edges
        batch_norm = not is_wide if self.batch_norm == "auto" else self.batch_norm
        layer = self.layer.resolve_auto(domain)
        return self.updated({"batch_norm": batch_norm, **layer.model_dump()}, "encoder.")


def _collect_layer_settings(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    backbone = str(values.get("backbone", "gin"))
    options = {k: values[k] for k in _layer_settings(backbone) if k in values}
    rest = {key: value for key, value in values.items() if key not in options}
    if "layer" not in rest:
        kind = _layer_config(LAYERS.get(backbone))
        known = {key: value for key, value in options.items() if key in kind.model_fields}
        rest["layer"] = kind.parse(known, where)
    return rest


def _layer_config(layer: object) -> type[LayerConfig]:
    return getattr(layer, "Config", LayerConfig)


def _layer_settings(*backbones: str) -> list[str]:
    kinds = [_layer_config(LAYERS.get(name)) for name in backbones]
    return list(dict.fromkeys(key for kind in kinds for key in kind.model_fields))


def with_self_loops(edges: Adjacency) -> tuple[Adjacency, Int[Tensor, "K"]]:
    """Return the neighborhoods with a self-loop first in every row, without sorting again.

    The edges are renumbered in the order of their targets. Also returned is the row of
    ``edge_attr`` of each edge; a self-loop has the number after the last row.
    """
    num_edges = edges.senders.shape[0]
    node = torch.arange(edges.in_degree.shape[0], device=edges.senders.device)
    every = torch.arange(num_edges, device=node.device)
    # a row's loop and the loops of the rows above come first
    place = every + segment_ids(edges.offsets, num_edges) + 1
    back_place = every + segment_ids(edges.back_offsets, num_edges) + 1
    loop, back_loop = edges.offsets[:-1] + node, edges.back_offsets[:-1] + node
    number = torch.empty_like(edges.order).scatter_(0, edges.order, place)
    total = num_edges + node.shape[0]
    senders, receivers, rows, back_order = (node.new_empty(total) for _ in range(4))
    senders[place], senders[loop] = edges.senders, node
    rows[place], rows[loop] = edges.order, num_edges
    receivers[back_place], receivers[back_loop] = edges.receivers, node
    back_order[back_place], back_order[back_loop] = number[edges.back_order], loop
    step = torch.arange(node.shape[0] + 1, device=node.device)
    looped = Adjacency(
        offsets=edges.offsets + step,
        senders=senders,
        order=torch.arange(total, device=node.device),
        back_offsets=edges.back_offsets + step,
        receivers=receivers,
        back_order=back_order,
        in_degree=edges.in_degree + 1,
    )
    return looped, rows


class Neighborhood:
    """The edges of a batch with self-loops, and the sums over them that no parameter changes.

    Every layer adds up edge vectors linearly, so that the sum at a node is (sum of its edges'
    indicator columns) times the layer's weights; those sums, V x K with K about ten, are taken once
    for all layers.
    """

    def __init__(self, batch: GraphBatch, schema: FeatureSchema, dtype: torch.dtype) -> None:
        self.batch = batch
        self.dtype = dtype
        self._schema = schema
        self.adjacency, self._rows = with_self_loops(batch.adjacency)

    @cached_property
    def receivers(self) -> Int[Tensor, "E"]:
        """Target of each edge."""
        return segment_ids(self.adjacency.offsets, self.adjacency.senders.shape[0])

    @cached_property
    def count(self) -> Float[Tensor, "V 1"]:
        """Number of edges into each node."""
        return self.adjacency.in_degree.to(self.dtype)[:, None]

    @cached_property
    def norm(self) -> Float[Tensor, "E"]:
        """Symmetric normalization of each edge, 1 / sqrt(count of target * count of source)."""
        scale = self.count[:, 0].rsqrt()
        return scale[self.receivers] * scale[self.adjacency.senders]

    @cached_property
    def indicators(self) -> Float[Tensor, "E K"]:
        """Indicator columns of each edge's attributes (see ``expand_attributes``)."""
        values = self.batch.edge_attr
        loop = torch.tensor(
            [self._schema.self_loop or ()], dtype=values.dtype, device=values.device
        )
        return expand_attributes(torch.cat([values, loop]), self._schema.edge, self.dtype)[
            self._rows
        ]

    @cached_property
    def indicator_sums(self) -> Float[Tensor, "V K"]:
        """Sum of the indicators over each node's edges."""
        return segment_sum(self.indicators, self.adjacency.offsets)

    @cached_property
    def normalized_indicator_sums(self) -> Float[Tensor, "V K"]:
        """The same, each edge weighted by :attr:`norm`."""
        return segment_sum(self.indicators * self.norm[:, None], self.adjacency.offsets)


class MessagePassing(nn.Module, ABC):
    """One layer of Eq. 1, built from ``(config, schema)``: new node embeddings from old ones."""

    @abstractmethod
    def forward(self, h: Float[Tensor, "V D"], neighborhood: Neighborhood) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""


class NodeNorm(nn.BatchNorm1d):
    """Batch normalization over the nodes of a batch.

    A single node has no variance: it is normalized by the running statistics, which then stay as
    they are.
    """

    peers: Peers | None = None
    """The processes that hold the nodes of a batch together; None where this one has them all."""

    def forward(self, input: Float[Tensor, "V D"]) -> Float[Tensor, "V D"]:
        """Return the normalized values."""
        if self.training and self.peers is not None:
            return self._over_all(input, self.peers)
        if self.training and input.shape[0] < 2:
            return self._by_running_statistics(input)
        return super().forward(input)

    def _over_all(self, input: Tensor, peers: Peers) -> Tensor:
        moments = shared_moments(input, peers)
        if moments.rows < 2:
            return self._by_running_statistics(input)
        batches, mean, variance = (
            self.get_buffer(name) for name in ("num_batches_tracked", "running_mean", "running_var")
        )
        batches += 1
        share = self.momentum or 1 / int(batches)  # no momentum: the average of all batches
        mean.lerp_(moments.mean, share)
        variance.lerp_(moments.variance * (moments.rows / (moments.rows - 1)), share)
        return normalize(input, moments, self.weight, self.bias, self.eps, peers)

    def _by_running_statistics(self, input: Tensor) -> Tensor:
        if input.shape[0] == 0:
            return input
        return nn.functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )
