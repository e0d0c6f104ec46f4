"""Sums over neighbors (the inside of Eq. 1) without an edge-sized tensor of embeddings."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from graphlog.ops.segment import segment_ids, segment_sum


class Adjacency(NamedTuple):
    """Directed edges sorted by target (for forward sums) and by source (for their gradients)."""

    offsets: Int[Tensor, "Vp1"]
    """Edges into node ``v`` are ``offsets[v]:offsets[v + 1]`` of ``senders`` and ``order``."""
    senders: Int[Tensor, "E"]
    """Source node of each edge, edges sorted by target."""
    order: Int[Tensor, "E"]
    """Position in ``edge_index`` of each sorted edge."""
    back_offsets: Int[Tensor, "Vp1"]
    """The same three for the reversed graph: edges out of each node."""
    receivers: Int[Tensor, "E"]
    """Target node of each edge, edges sorted by source."""
    back_order: Int[Tensor, "E"]
    """Position in ``edge_index`` of each edge sorted by source."""
    in_degree: Int[Tensor, "V"]
    """Number of edges into each node, self-loops of message passing not counted."""


def build_adjacency(edge_index: Int[Tensor, "2 E"], num_nodes: int) -> Adjacency:
    """Return the neighborhoods of ``num_nodes`` nodes; sorting is stable, sums reproducible."""
    source, target = edge_index[0], edge_index[1]
    order = torch.argsort(target, stable=True)
    back_order = torch.argsort(source, stable=True)
    # for `bincount` a GPU would have to be waited for
    ones, zeros = torch.ones_like(target), target.new_zeros(num_nodes)
    in_degree, out_degree = (zeros.index_add(0, ends, ones) for ends in (target, source))
    return Adjacency(
        offsets=F.pad(in_degree.cumsum(0), (1, 0)),
        senders=source[order],
        order=order,
        back_offsets=F.pad(out_degree.cumsum(0), (1, 0)),
        receivers=target[back_order],
        back_order=back_order,
        in_degree=in_degree,
    )


def _bag(table: Tensor, rows: Tensor, offsets: Tensor, weight: Tensor | None = None) -> Tensor:
    if rows.shape[0] == 0 or table.shape[1] == 0:  # embedding_bag refuses an empty table
        return table.new_zeros(offsets.shape[0] - 1, table.shape[1])
    return F.embedding_bag(
        rows, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=weight
    )


class _Sum(torch.autograd.Function):
    """The gradient of a sum over incoming edges is the same sum over outgoing ones."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        offsets: Tensor,
        senders: Tensor,
        back_offsets: Tensor,
        receivers: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(back_offsets, receivers)
        return _bag(h.detach(), senders, offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        back_offsets, receivers = ctx.saved_tensors
        return _bag(grads[0].contiguous(), receivers, back_offsets), None, None, None, None


class _WeightedSum(torch.autograd.Function):
    """The same with a weight for each edge and head; the heads are summed inside the one kernel.

    The edges must be numbered in the order of their targets, as ``with_self_loops`` numbers them:
    the weights are in that order, and ``back_order`` is looked up in them.
    """

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
            back_weight = weight.index_select(0, edges.back_order).to(grad.dtype)
            heads = [
                _bag(grad, edges.receivers, edges.back_offsets, w.contiguous())
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
        receivers = segment_ids(edges.offsets, edges.senders.shape[0])
        return (
            at_receiver.detach()
            .index_select(0, receivers)
            .add_(at_sender.detach().index_select(0, edges.senders))
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        edges: Adjacency = ctx.edges
        grad = grads[0].contiguous()
        return (
            segment_sum(grad, edges.offsets),
            _bag(grad, edges.back_order, edges.back_offsets),
            None,
        )


def end_sum(
    at_receiver: Float[Tensor, "V H"], at_sender: Float[Tensor, "V H"], edges: Adjacency
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
    h: Float[Tensor, "V W"], edges: Adjacency, weight: Float[Tensor, "E *H"] | None = None
) -> Float[Tensor, "V D"]:
    r"""Return :math:`\sum_{(u, v)} w_{uv} h_u` for every node ``v``.

    The sum over its incoming edges. Float32, bfloat16 and float64, differentiable in ``h`` and in
    ``weight``. Nothing of size E x D is kept.

    Args:
        h: Values of the nodes. With ``H`` heads a row holds them one after the other, ``W = H *
            D``.
        edges: The neighborhoods, sorted both ways. With weights, the edges must be numbered in the
            order of their targets, as ``with_self_loops`` numbers them.
        weight: Weight of each edge, in the order of targets; with two axes, of each edge and head,
            and then the heads are summed. None stands for 1.

    Returns:
        The sums; 0 for a node without incoming edges.
    """
    h = h.contiguous()
    if weight is None:
        return _Sum.apply(h, edges.offsets, edges.senders, edges.back_offsets, edges.receivers)  # pyright: ignore[reportReturnType]
    heads = weight if weight.dim() == 2 else weight[:, None]
    return _WeightedSum.apply(h, heads, edges)  # pyright: ignore[reportReturnType]
