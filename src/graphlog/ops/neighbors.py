"""Sums over neighbors (the inside of Eq. 1) without an edge-sized tensor of embeddings."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from graphlog.ops.segment import segment_ids, segment_sum


class Reverse(NamedTuple):
    """The edges of an :class:`Adjacency` sorted by sender, for the gradients of its sums."""

    offsets: Int[Tensor, "Sp1"]
    """Edges out of sender ``u`` are ``offsets[u]:offsets[u + 1]`` of the other two."""
    receivers: Int[Tensor, "E"]
    """Receiver of each edge."""
    edges: Int[Tensor, "E"]
    """Position of each edge in the order of receivers."""


@dataclass(eq=False)
class Adjacency:
    """Directed edges from ``S`` senders to ``R`` receivers, sorted by receiver."""

    offsets: Int[Tensor, "Rp1"]
    """Edges into receiver ``v`` are ``offsets[v]:offsets[v + 1]`` of ``senders`` and ``order``."""
    senders: Int[Tensor, "E"]
    """Sender of each edge."""
    num_senders: int
    """Number of senders ``S``."""
    order: Int[Tensor, "E"]
    """Row of each edge in the attributes of the batch."""

    @cached_property
    def receivers(self) -> Int[Tensor, "E"]:
        """Receiver of each edge."""
        return segment_ids(self.offsets, self.senders.shape[0])

    @property
    def in_degree(self) -> Int[Tensor, "R"]:
        """Number of edges into each receiver."""
        return self.offsets.diff()

    @cached_property
    def reverse(self) -> Reverse:
        """The edges sorted by sender; sorting is stable, so sums are reproducible."""
        edges = torch.argsort(self.senders, stable=True)
        offsets = group_offsets(self.senders, self.num_senders)
        return Reverse(offsets, self.receivers.index_select(0, edges), edges)

    @cached_property
    @torch.inference_mode(mode=False)  # kept, and a pass with gradients may be the next to use it
    def with_self_loops(self) -> "Adjacency":
        """The same edges with one from each node to itself, first among those into it.

        Its row of attributes is the one after the last.
        """
        num_edges, num_nodes = self.senders.shape[0], self.num_senders
        node = torch.arange(num_nodes + 1, device=self.senders.device)
        # a node's own loop and the loops of the nodes before it come first
        place = torch.arange(num_edges, device=node.device) + self.receivers + 1
        loop = self.offsets[:-1] + node[:-1]
        senders, order = (node.new_empty(num_edges + num_nodes) for _ in range(2))
        senders[place], senders[loop] = self.senders, node[:-1]
        order[place], order[loop] = self.order, num_edges
        return Adjacency(self.offsets + node, senders, num_nodes, order)


def group_offsets(groups: Int[Tensor, "E"], count: int) -> Int[Tensor, "Gp1"]:
    """Return where each of ``count`` groups begins once the elements are sorted by group."""
    # for `bincount` a GPU would have to be waited for
    sizes = groups.new_zeros(count).index_add(0, groups, torch.ones_like(groups))
    return F.pad(sizes.cumsum(0), (1, 0))


def build_adjacency(edge_index: Int[Tensor, "2 E"], num_nodes: int) -> Adjacency:
    """Return the neighborhoods of ``num_nodes`` nodes; sorting is stable, sums reproducible."""
    source, target = edge_index[0], edge_index[1]
    order = torch.argsort(target, stable=True)
    return Adjacency(group_offsets(target, num_nodes), source[order], num_nodes, order)


def one_sender_each(senders: Int[Tensor, "R"], num_senders: int) -> Adjacency:
    """Return one edge into each receiver, for :func:`gather_rows`."""
    number = torch.arange(senders.shape[0] + 1, device=senders.device)
    return Adjacency(number, senders, num_senders, number[:-1])


def _bag(table: Tensor, rows: Tensor, offsets: Tensor, weight: Tensor | None = None) -> Tensor:
    if rows.shape[0] == 0 or table.shape[1] == 0:  # embedding_bag refuses an empty table
        return table.new_zeros(offsets.shape[0] - 1, table.shape[1])
    return F.embedding_bag(
        rows, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=weight
    )


class _Sum(torch.autograd.Function):
    """The gradient of a sum over incoming edges is the same sum over outgoing ones."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, edges: Adjacency) -> Tensor:
        ctx.edges = edges
        return _bag(h.detach(), edges.senders, edges.offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        back: Reverse = ctx.edges.reverse
        return _bag(grads[0].contiguous(), back.receivers, back.offsets), None


class _Gather(_Sum):
    """The same where each receiver has one edge: a copy of its sender's row."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, edges: Adjacency) -> Tensor:
        ctx.edges = edges
        return h.detach().index_select(0, edges.senders)


class _WeightedSum(torch.autograd.Function):
    """The same with a weight for each edge and head; the heads are summed inside the one kernel."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, edges: Adjacency) -> Tensor:
        ctx.save_for_backward(h, weight)
        ctx.edges = edges
        table, rows, offsets = _WeightedSum.bags(h, weight, edges)
        return _bag(table, rows, offsets, weight.detach().reshape(-1).to(h.dtype))

    @staticmethod
    def bags(h: Tensor, weight: Tensor, edges: Adjacency) -> tuple[Tensor, Tensor, Tensor]:
        """Return the table of every node and head, and the bags of its rows summed at each node."""
        heads = weight.shape[1]
        rows = (edges.senders[:, None] * heads + torch.arange(heads, device=h.device)).reshape(-1)
        return (
            h.detach().reshape(h.shape[0] * heads, h.shape[1] // heads),
            rows,
            edges.offsets * heads,
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        h, weight = ctx.saved_tensors
        edges: Adjacency = ctx.edges
        grad, grad_h, grad_weight = grads[0].contiguous(), None, None
        if ctx.needs_input_grad[0]:
            back = edges.reverse
            back_weight = weight.index_select(0, back.edges).to(grad.dtype)
            heads = [
                _bag(grad, back.receivers, back.offsets, w.contiguous())
                for w in back_weight.unbind(1)
            ]
            grad_h = torch.cat(heads, dim=1) if len(heads) > 1 else heads[0]
        if ctx.needs_input_grad[1]:
            table, rows, offsets = _WeightedSum.bags(h, weight, edges)
            product = _weight_gradient(
                grad, table, rows, offsets, segment_ids(offsets, rows.shape[0])
            )
            grad_weight = product.reshape(weight.shape).to(weight.dtype)
        return grad_h, grad_weight, None


def _weight_gradient(
    grad: Tensor, table: Tensor, rows: Tensor, offsets: Tensor, bags: Tensor
) -> Tensor:
    """Return the inner product of each row of a bag with the bag's gradient."""
    if rows.shape[0] == 0 or table.shape[1] == 0:
        return table.new_zeros(rows.shape[0])
    return torch.ops.aten._embedding_bag_per_sample_weights_backward(
        grad, table, rows, offsets[:-1], bags, 0
    )


class _EndSum(torch.autograd.Function):
    """Gathers forward, sums over sorted rows backward: no scattered addition in either."""

    @staticmethod
    def forward(ctx: Any, at_receiver: Tensor, at_sender: Tensor, edges: Adjacency) -> Tensor:
        ctx.edges = edges
        return (
            at_receiver.detach()
            .index_select(0, edges.receivers)
            .add_(at_sender.detach().index_select(0, edges.senders))
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        edges: Adjacency = ctx.edges
        grad = grads[0].contiguous()
        return (
            segment_sum(grad, edges.offsets),
            _bag(grad, edges.reverse.edges, edges.reverse.offsets),
            None,
        )


def end_sum(
    at_receiver: Float[Tensor, "R H"], at_sender: Float[Tensor, "S H"], edges: Adjacency
) -> Float[Tensor, "E H"]:
    """Return ``at_receiver[v] + at_sender[u]`` of every edge from ``u`` to ``v``."""
    return _EndSum.apply(at_receiver, at_sender, edges)  # pyright: ignore[reportReturnType]


class _WeightedRows(torch.autograd.Function):
    """One embedding-bag a head, whose weights are the head's."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(rows, offsets)
        every = torch.arange(rows.shape[0], device=rows.device)
        sums = [
            _bag(rows, every, offsets, w.contiguous())
            for w in weight.detach().to(rows.dtype).unbind(1)
        ]
        return torch.stack(sums, dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        rows, offsets = ctx.saved_tensors
        every, segments = (
            torch.arange(rows.shape[0], device=rows.device),
            segment_ids(offsets, rows.shape[0]),
        )
        products = [
            _weight_gradient(g.contiguous(), rows, every, offsets, segments)
            for g in grads[0].unbind(1)
        ]
        return torch.stack(products, dim=1), None, None


def weighted_rows(
    weight: Float[Tensor, "E H"], rows: Float[Tensor, "E K"], offsets: Int[Tensor, "Vp1"]
) -> Float[Tensor, "V H K"]:
    r"""Return :math:`\sum_{e \to v} w_{e h} r_e` for every node ``v`` and head ``h``.

    Differentiable in ``weight`` alone.

    Args:
        weight: Weight of each edge and head, edges in the order of their targets.
        rows: Values of each edge, likewise.
        offsets: Edges into node ``v`` are ``offsets[v]:offsets[v + 1]``.
    """
    return _WeightedRows.apply(weight, rows, offsets)  # pyright: ignore[reportReturnType]


def neighbor_sum(
    h: Float[Tensor, "S W"], edges: Adjacency, weight: Float[Tensor, "E *H"] | None = None
) -> Float[Tensor, "R D"]:
    r"""Return :math:`\sum_{(u, v)} w_{uv} h_u` for every receiver ``v``.

    The sum over its incoming edges. Float32, bfloat16 and float64, differentiable in ``h`` and in
    ``weight``. Nothing of size E x D is kept.

    Args:
        h: Values of the senders. With ``H`` heads a row holds them one after the other, ``W = H *
            D``.
        edges: Who sends to whom.
        weight: Weight of each edge, in the order of ``edges``; with two axes, of each edge and
            head, and then the heads are summed. None stands for 1.

    Returns:
        The sums; 0 for a receiver without incoming edges.
    """
    h = h.contiguous()
    if weight is None:
        return _Sum.apply(h, edges)  # pyright: ignore[reportReturnType]
    heads = weight if weight.dim() == 2 else weight[:, None]
    return _WeightedSum.apply(h, heads, edges)  # pyright: ignore[reportReturnType]


def gather_rows(h: Float[Tensor, "S W"], edges: Adjacency) -> Float[Tensor, "R W"]:
    """Return the row of each receiver's one sender; its gradient is a sum in a fixed order."""
    return _Gather.apply(h, edges)  # pyright: ignore[reportReturnType]
