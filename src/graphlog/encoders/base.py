"""What an encoder returns, what it is configured by, and what one message-passing layer is given."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, field_validator
from torch import Tensor, nn

from graphlog.config import FrozenConfig
from graphlog.data.batch import Adjacency, GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.encoders.attributes import expand_attributes
from graphlog.errors import unknown_name
from graphlog.ops.segment import segment_ids, segment_sum


class Encoding(NamedTuple):
    """Embeddings of a batch (Eq. 5): of every node's neighbourhood, and of every graph."""

    node_emb: Float[Tensor, "V D"]
    """Subgraph embeddings ``h_v``."""
    graph_emb: Float[Tensor, "N D"]
    """Graph embeddings ``h_G``."""


class EncoderConfig(FrozenConfig):
    """The shape of an encoder. ``auto`` is settled by the schema's domain: the biology variants for proteins."""

    backbone: str = "gin"
    """Name of the layer in ``graphlog.encoders.LAYERS``."""
    layers: int = Field(default=5, ge=1)
    """Rounds of message passing."""
    dim: int = Field(default=300, ge=1)
    """Width of a layer's node embeddings."""
    jk: Literal["last", "concat", "max", "sum"] = "last"
    """Jumping knowledge: what the node embedding is made of; all but ``last`` use the input embedding too."""
    readout: Literal["mean", "sum", "max", "attention", "mean+centre"] = "mean"
    """How node embeddings become a graph embedding (Eq. 2). ``mean+centre`` pools the mean in pre-training and, in what
    is used downstream, puts the centre node's embedding beside it, as the biology of the pre-train-GNNs family does."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped after every layer, the last one included."""
    heads: int = Field(default=2, ge=1)
    """Attention heads, averaged; only the attention backbones have them."""
    edge_mode: Literal["auto", "add", "concat"] = "auto"
    """GIN: add the edge's vector to the neighbour's (chemistry), or join the two and normalise inside the MLP (biology)."""
    batch_norm: Literal["auto"] | bool = "auto"
    """Batch normalisation after every layer: chemistry has it, biology does not."""

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, name: str) -> str:
        from graphlog.encoders import LAYERS  # the table is filled by modules that import this one

        if name not in LAYERS:
            raise unknown_name("backbone", name, LAYERS)
        return name

    def settled(self, domain: str) -> "EncoderConfig":
        """Return the settings with every ``auto`` replaced by what ``domain`` calls for."""
        biology = domain == "protein"
        edge_mode = ("concat" if biology else "add") if self.edge_mode == "auto" else self.edge_mode
        batch_norm = not biology if self.batch_norm == "auto" else self.batch_norm
        return self.updated({"edge_mode": edge_mode, "batch_norm": batch_norm}, "encoder.")


def with_self_loops(edges: Adjacency) -> tuple[Adjacency, Int[Tensor, "K"]]:
    """Return the neighbourhoods with a self-loop first in every row, without sorting again.

    The edges are renumbered in the order of their targets. Also returned is the row of ``edge_attr`` of
    each edge; a self-loop has the number after the last row.
    """
    num_edges, node = (
        edges.senders.shape[0],
        torch.arange(edges.in_degree.shape[0], device=edges.senders.device),
    )
    every = torch.arange(num_edges, device=node.device)
    place = (
        every + segment_ids(edges.offsets, num_edges) + 1
    )  # a row's loop and the loops of the rows above come first
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


class Neighbourhood:
    """The edges of a batch and a self-loop for each node, and the sums over them that no parameter changes.

    Every layer adds up edge vectors linearly, so that the sum at a node is (sum of its edges' indicator columns)
    times the layer's weights; those sums, V x K with K about ten, are taken once for all layers.
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
        """Symmetric normalisation of each edge, 1 / sqrt(count of its target * count of its source)."""
        scale = self.count[:, 0].rsqrt()
        return scale[self.receivers] * scale[self.adjacency.senders]

    @cached_property
    def indicators(self) -> Float[Tensor, "E K"]:
        """Indicator columns of each edge's attributes (see :func:`~graphlog.encoders.attributes.expand_attributes`)."""
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
    def normalised_indicator_sums(self) -> Float[Tensor, "V K"]:
        """The same, each edge weighted by :attr:`norm`."""
        return segment_sum(self.indicators * self.norm[:, None], self.adjacency.offsets)


class MessagePassing(nn.Module, ABC):
    """One layer of Eq. 1, built from ``(config, schema)``: new node embeddings from old ones and edge attributes."""

    @abstractmethod
    def forward(
        self, h: Float[Tensor, "V D"], neighbourhood: Neighbourhood
    ) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""


class NodeNorm(nn.BatchNorm1d):
    """Batch normalisation over the nodes of a batch.

    A single node has no variance: it is normalised by the running statistics, which then stay as they are.
    """

    def forward(self, input: Float[Tensor, "V D"]) -> Float[Tensor, "V D"]:
        """Return the normalised values."""
        if self.training and input.shape[0] < 2:
            return nn.functional.batch_norm(
                input,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                False,
                0.0,
                self.eps,
            )
        return super().forward(input)
