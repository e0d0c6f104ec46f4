"""Sums over neighbours (the inside of Eq. 1) without an edge-sized tensor of embeddings."""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from graphlog.ops.segment import segment_ids


@runtime_checkable
class Neighbours(Protocol):
    """Directed edges sorted by target and by source, as ``graphlog.data.adjacency.Adjacency`` holds them."""

    @property
    def offsets(self) -> Tensor:
        """Edges into node ``v`` are ``offsets[v]:offsets[v + 1]`` in the order by target."""
        ...

    @property
    def senders(self) -> Tensor:
        """Source of each edge, by target."""
        ...

    @property
    def order(self) -> Tensor:
        """Number of each edge, by target."""
        ...

    @property
    def back_offsets(self) -> Tensor:
        """Edges out of node ``v`` are ``back_offsets[v]:back_offsets[v + 1]`` in the order by source."""
        ...

    @property
    def receivers(self) -> Tensor:
        """Target of each edge, by source."""
        ...

    @property
    def back_order(self) -> Tensor:
        """Number of each edge, by source."""
        ...


def _bag(table: Tensor, rows: Tensor, offsets: Tensor, weight: Tensor | None = None) -> Tensor:
    if rows.shape[0] == 0 or table.shape[1] == 0:  # embedding_bag refuses an empty table
        return table.new_zeros(offsets.shape[0] - 1, table.shape[1])
    return F.embedding_bag(rows, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=weight)


class _Sum(torch.autograd.Function):
    """The gradient of a sum over incoming edges is the same sum over outgoing ones."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, offsets: Tensor, senders: Tensor, back_offsets: Tensor, receivers: Tensor) -> Tensor:
        ctx.save_for_backward(back_offsets, receivers)
        return _bag(h.detach(), senders, offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        back_offsets, receivers = ctx.saved_tensors
        return _bag(grads[0].contiguous(), receivers, back_offsets), None, None, None, None


class _WeightedSum(torch.autograd.Function):
    """The same with a weight for each edge and head; the heads are summed inside the one kernel."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, edges: Neighbours) -> Tensor:
        ctx.save_for_backward(h, weight)
        ctx.edges = edges
        table, rows, offsets = _WeightedSum.bags(h, weight, edges)
        return _bag(table, rows, offsets, weight.detach()[edges.order].reshape(-1).to(h.dtype))

    @staticmethod
    def bags(h: Tensor, weight: Tensor, edges: Neighbours) -> tuple[Tensor, Tensor, Tensor]:
        """Return the table of every node and head, and the bags of its rows that are summed at each node."""
        heads = weight.shape[1]
        rows = (edges.senders[:, None] * heads + torch.arange(heads, device=h.device)).reshape(-1)
        return h.detach().reshape(h.shape[0] * heads, h.shape[1] // heads), rows, edges.offsets * heads

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        h, weight = ctx.saved_tensors
        edges: Neighbours = ctx.edges
        grad, grad_h, grad_weight = grads[0].contiguous(), None, None
        if ctx.needs_input_grad[0]:
            back_weight = weight[edges.back_order].to(grad.dtype)
            heads = [_bag(grad, edges.receivers, edges.back_offsets, w.contiguous()) for w in back_weight.unbind(1)]
            grad_h = torch.cat(heads, dim=1) if len(heads) > 1 else heads[0]
        if ctx.needs_input_grad[1]:
            table, rows, offsets = _WeightedSum.bags(h, weight, edges)
            product = _weight_gradient(grad, table, rows, offsets, segment_ids(offsets, rows.shape[0]))
            grad_weight = torch.empty_like(weight)
            grad_weight[edges.order] = product.reshape(-1, weight.shape[1]).to(weight.dtype)
        return grad_h, grad_weight, None


def _weight_gradient(grad: Tensor, table: Tensor, rows: Tensor, offsets: Tensor, bags: Tensor) -> Tensor:
    """Return the inner product of each row of a bag with the bag's gradient: what torch's own embedding-bag does."""
    if rows.shape[0] == 0 or table.shape[1] == 0:
        return table.new_zeros(rows.shape[0])
    return torch.ops.aten._embedding_bag_per_sample_weights_backward(grad, table, rows, offsets[:-1], bags, 0)


def neighbour_sum(h: Float[Tensor, "V W"], edges: Neighbours, weight: Float[Tensor, "E *H"] | None = None) -> Float[Tensor, "V D"]:
    r"""Return :math:`\sum_{(u, v)} w_{uv} h_u` for every node ``v``: the sum over its incoming edges.

    Float32, bfloat16 and float64, differentiable in ``h`` and in ``weight``. Nothing of size E x D is kept.

    Args:
        h: Values of the nodes. With ``H`` heads a row holds them one after the other, ``W = H * D``.
        edges: The neighbourhoods, sorted both ways.
        weight: Weight of each edge, in the order of ``edge_index``; with two axes, of each edge and head,
            and then the heads are summed. None stands for 1.

    Returns:
        The sums; 0 for a node without incoming edges.
    """
    h = h.contiguous()
    if weight is None:
        return _Sum.apply(h, edges.offsets, edges.senders, edges.back_offsets, edges.receivers)  # pyright: ignore[reportReturnType]
    heads = weight if weight.dim() == 2 else weight[:, None]
    return _WeightedSum.apply(h, heads, edges)  # pyright: ignore[reportReturnType]
