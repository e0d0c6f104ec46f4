"""Sums over neighbors, reductions over packed graphs, and comparisons within them.

Rows ``ptr[n]:ptr[n + 1]`` belong to graph ``n``. For comparisons, groups of unequal size are padded
into a few buckets. Sums over neighbors (the inside of Eq. 1) need no edge-sized tensor of
embeddings.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from graphlog.ops.autograd import differentiable_once

_TINY = 1e-12
_MAX_BUCKETS = 6
_ROW_COST = 32
"""What moving one row costs, in units of one entry of a similarity matrix; a flat optimum,
measured on two cores."""
_GPU_BUCKET_COST = 2e7
"""What a further bucket costs on a GPU, in the same unit: some sixty launches of kernels."""


def segment_ids(ptr: Int[Tensor, "P"], num_rows: int) -> Int[Tensor, "V"]:
    """Return the segment of each of ``num_rows`` rows."""
    segments = torch.arange(ptr.shape[0] - 1, device=ptr.device)
    return torch.repeat_interleave(segments, ptr.diff(), output_size=num_rows)


class _SegmentSum(torch.autograd.Function):
    """The rows are sorted already: the sum is one embedding-bag, its gradient one gather."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(ptr)
        ctx.num_rows = values.shape[0]
        rows = torch.arange(values.shape[0], device=values.device)
        return _bag(values.detach(), rows, ptr)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (ptr,) = ctx.saved_tensors
        return grads[0].index_select(0, segment_ids(ptr, ctx.num_rows)), None


def segment_sum(values: Float[Tensor, "V *D"], ptr: Int[Tensor, "P"]) -> Float[Tensor, "N *D"]:
    """Return the sum of each segment's rows; an empty segment gives 0.

    Example:
        >>> segment_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 3]))
        tensor([3., 4.])
    """
    rows = values.flatten(1) if values.dim() > 1 else values[:, None]
    total: Tensor = _SegmentSum.apply(rows.contiguous(), ptr)  # pyright: ignore[reportAssignmentType]
    return total.reshape(ptr.shape[0] - 1, *values.shape[1:])


def segment_mean(values: Float[Tensor, "V *D"], ptr: Int[Tensor, "P"]) -> Float[Tensor, "N *D"]:
    """Return the mean of each segment's rows; an empty segment gives 0."""
    total = segment_sum(values, ptr)
    sizes = ptr.diff().clamp(min=1).to(total.dtype)
    return total / sizes.reshape(-1, *[1] * (total.dim() - 1))


def segment_max(values: Float[Tensor, "V *D"], ptr: Int[Tensor, "P"]) -> Float[Tensor, "N *D"]:
    """Return the largest value of each segment per column; minus infinity for an empty one."""
    return torch.segment_reduce(values.contiguous(), "max", offsets=ptr, unsafe=True)


class _SegmentSoftmax(torch.autograd.Function):
    """Keeps the result alone; its gradient is two passes over it and one sum a segment."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ptr: Tensor) -> Tensor:
        segment = segment_ids(ptr, values.shape[0])
        largest = segment_max(values.detach(), ptr)
        weights = (values.detach() - largest.index_select(0, segment)).exp_()
        weights.div_(segment_sum(weights, ptr).index_select(0, segment))
        ctx.save_for_backward(weights, ptr)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        weights, ptr = ctx.saved_tensors
        pull = weights * grads[0]
        mean = segment_sum(pull, ptr).index_select(0, segment_ids(ptr, weights.shape[0]))
        return pull.addcmul_(weights, mean, value=-1.0), None


def segment_softmax(values: Float[Tensor, "V *D"], ptr: Int[Tensor, "P"]) -> Float[Tensor, "V *D"]:
    """Return the softmax of the values within each segment, column by column."""
    return _SegmentSoftmax.apply(values, ptr)  # pyright: ignore[reportReturnType]


class Bucket(NamedTuple):
    """Groups padded to one size."""

    groups: int
    size: int
    """Rows of each group after padding."""


class Padding(NamedTuple):
    """Where each row of a packed matrix lies once its groups are padded, bucket after bucket."""

    slot: Int[Tensor, "V"]
    """Row of the padded matrix that holds packed row ``v``."""
    rows: Int[Tensor, "T"]
    """Packed row that each padded row holds; 0 where it holds none."""
    buckets: tuple[Bucket, ...]
    smallest: int
    """Rows of the smallest group; 0 without groups."""

    @property
    def num_slots(self) -> int:
        """Rows of the padded matrix."""
        return self.rows.shape[0]

    def rows_of_buckets(self) -> tuple[Tensor, ...]:
        """Return ``rows`` bucket by bucket."""
        return self.rows.split([b.groups * b.size for b in self.buckets])


def plan_padding(ptr: Int[Tensor, "P"], host_ptr: Int[Tensor, "P"] | None = None) -> Padding:
    """Return the padding of groups ``ptr[g]:ptr[g + 1]`` into at most six cheapest buckets.

    A GPU, on which a bucket costs more than its padding, mostly gets one. Without ``host_ptr``, the
    same on the CPU, it has to be waited for.

    Example:
        >>> import torch
        >>> plan_padding(torch.tensor([0, 2, 3, 5])).buckets
        (Bucket(groups=1, size=1), Bucket(groups=2, size=2))
    """
    sizes = ptr.diff()
    order = torch.argsort(sizes, stable=True)
    on_host = np.sort((ptr.cpu() if host_ptr is None else host_ptr).diff().numpy())
    buckets = _cheapest_buckets(on_host, 0.0 if ptr.device.type == "cpu" else _GPU_BUCKET_COST)
    width = torch.cat([ptr.new_full((b.groups,), b.size) for b in buckets]) if buckets else sizes
    start = width.cumsum(0) - width
    first_slot = torch.empty_like(start)
    first_slot[order] = start
    group = segment_ids(ptr, int(on_host.sum()))
    row = torch.arange(group.shape[0], device=ptr.device)
    slot = (first_slot - ptr[:-1])[group] + row
    rows = row.new_zeros(sum(b.groups * b.size for b in buckets)).index_copy(0, slot, row)
    return Padding(slot, rows, buckets, int(on_host[0]) if on_host.size else 0)


def _cheapest_buckets(ordered: NDArray[np.int64], bucket_cost: float) -> tuple[Bucket, ...]:
    """Cut the sorted sizes where padded work is least: dynamic programming over distinct sizes."""
    if ordered.size == 0:
        return ()
    size, count = np.unique(ordered, return_counts=True)
    total = np.concatenate([[0], np.cumsum(count)])
    # work[i, j]: distinct sizes i..j-1 in one bucket, all padded to size j-1
    each = size.astype(np.float64) ** 2 + _ROW_COST * size
    work = (total[None, 1:] - total[:-1, None]) * each[None, :] + bucket_cost
    work[np.tril_indices(size.size, -1)] = np.inf
    best = work[0].copy()
    cuts: list[NDArray[np.int64]] = [np.zeros(size.size, dtype=np.int64)]
    for _ in range(min(_MAX_BUCKETS, size.size) - 1):
        through = np.concatenate([[0.0], best[:-1]])[:, None] + work
        cuts.append(through.argmin(axis=0))
        best = through.min(axis=0)
    buckets: list[Bucket] = []
    end = size.size
    for cut in reversed(cuts):
        if end == 0:
            break
        start = int(cut[end - 1])
        buckets.append(Bucket(int(total[end] - total[start]), int(size[end - 1])))
        end = start
    return tuple(reversed(buckets))


def grouped_cosine(
    x: Float[Tensor, "V D"], y: Float[Tensor, "V D"], padding: Padding, eps: float = 0.0
) -> tuple[Float[Tensor, "G S S"], ...]:
    r"""Return, per bucket, the cosines of all rows of ``x`` with all rows of ``y`` of their group.

    The cosine is :math:`x^\top y / (\|x\| \|y\| + \epsilon)`.

    Rows and columns beyond a group's size hold the similarities of some other row; mask them with
    :func:`filled`. The gradient is worked out by hand: only the similarities are ever scaled, not
    the embeddings, which are hundreds of times larger.
    """
    return _GroupedCosine.apply(x, y, padding, eps)  # pyright: ignore[reportReturnType]


class _GroupedCosine(torch.autograd.Function):
    """Batched products of gathered rows; the gradient gathers again rather than keeping them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, padding: Padding, eps: float) -> tuple[Tensor, ...]:
        x_norm, y_norm = x.norm(dim=1), y.norm(dim=1)
        similarities: list[Tensor] = []
        for bucket, rows in zip(padding.buckets, padding.rows_of_buckets(), strict=True):
            products = _gather(x, rows, bucket) @ _gather(y, rows, bucket).mT
            similarities.append(products.mul_(_inverse_lengths(x_norm, y_norm, rows, bucket, eps)))
        ctx.padding, ctx.eps = padding, eps
        ctx.save_for_backward(x, y, x_norm, y_norm, *similarities)
        return tuple(similarities)

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        x, y, x_norm, y_norm, *similarities = ctx.saved_tensors
        padding: Padding = ctx.padding
        flat_x = x.new_empty(padding.num_slots, x.shape[1])
        flat_y, start = torch.empty_like(flat_x), 0
        for bucket, rows, grad, similarity in zip(
            padding.buckets, padding.rows_of_buckets(), grads, similarities, strict=True
        ):
            stop = start + rows.shape[0]
            gx, gy = flat_x[start:stop].view(*bucket, -1), flat_y[start:stop].view(*bucket, -1)
            start = stop
            weight = grad * _inverse_lengths(x_norm, y_norm, rows, bucket, ctx.eps)
            # through the lengths: d s / d|x| = -s |y| / (|x| |y| + eps), and d|x| / dx = x / |x|
            pull = weight * similarity
            nx, ny = x_norm[rows].view(*bucket), y_norm[rows].view(*bucket)
            pull_x = (pull @ ny[:, :, None]).squeeze(2) / nx.clamp_min(_TINY)
            pull_y = (pull.mT @ nx[:, :, None]).squeeze(2) / ny.clamp_min(_TINY)
            xs, ys = _gather(x, rows, bucket), _gather(y, rows, bucket)
            torch.bmm(weight, ys, out=gx).addcmul_(xs, pull_x[:, :, None], value=-1.0)
            torch.bmm(weight.mT, xs, out=gy).addcmul_(ys, pull_y[:, :, None], value=-1.0)
        slot = padding.slot
        return flat_x.index_select(0, slot), flat_y.index_select(0, slot), None, None


def _gather(x: Tensor, rows: Tensor, bucket: Bucket) -> Tensor:
    return x.index_select(0, rows).view(*bucket, x.shape[1])


def _inverse_lengths(
    x_norm: Tensor, y_norm: Tensor, rows: Tensor, bucket: Bucket, eps: float
) -> Tensor:
    """Return 1 / (|x| |y| + eps), and 0 where that would divide by zero."""
    product = x_norm[rows].view(*bucket)[:, :, None] * y_norm[rows].view(*bucket)[:, None, :] + eps
    return (product > _TINY) / product.clamp_min(_TINY)


def pad_values(values: Shaped[Tensor, "V"], padding: Padding) -> list[Tensor]:
    """Return one zero-padded (groups, size) tensor per bucket, one value per packed row."""
    flat = values.new_zeros(padding.num_slots).index_copy(0, padding.slot, values)
    parts = flat.split([b.groups * b.size for b in padding.buckets])
    return [p.view(*b) for p, b in zip(parts, padding.buckets, strict=True)]


def unpad_values(values: list[Tensor], padding: Padding) -> Tensor:
    """Return one value per packed row from one (groups, size) tensor per bucket."""
    return torch.cat([v.reshape(-1) for v in values])[padding.slot]


def filled(padding: Padding) -> list[Tensor]:
    """Return for each bucket a (groups, size) mask of the slots that hold a row."""
    return pad_values(torch.ones_like(padding.slot, dtype=torch.bool), padding)


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
        table = h.detach().reshape(h.shape[0] * heads, h.shape[1] // heads)
        return table, rows, edges.offsets * heads

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        h, weight = ctx.saved_tensors
        edges: Adjacency = ctx.edges
        grad, grad_h, grad_weight = grads[0].contiguous(), None, None
        if ctx.needs_input_grad[0]:
            back = edges.reverse
            weights = weight.index_select(0, back.edges).to(grad.dtype).unbind(1)
            heads = [_bag(grad, back.receivers, back.offsets, w.contiguous()) for w in weights]
            grad_h = torch.cat(heads, dim=1) if len(heads) > 1 else heads[0]
        if ctx.needs_input_grad[1]:
            table, rows, offsets = _WeightedSum.bags(h, weight, edges)
            product = _weight_gradient(grad, table, rows, offsets)
            grad_weight = product.reshape(weight.shape).to(weight.dtype)
        return grad_h, grad_weight, None


def _weight_gradient(grad: Tensor, table: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """Return the inner product of each row of a bag with the bag's gradient."""
    if rows.shape[0] == 0 or table.shape[1] == 0:
        return table.new_zeros(rows.shape[0])
    bags = segment_ids(offsets, rows.shape[0])
    return torch.ops.aten._embedding_bag_per_sample_weights_backward(
        grad, table, rows, offsets[:-1], bags, 0
    )


class _EndSum(torch.autograd.Function):
    """Gathers forward, sums over sorted rows backward: no scattered addition in either."""

    @staticmethod
    def forward(ctx: Any, at_receiver: Tensor, at_sender: Tensor, edges: Adjacency) -> Tensor:
        ctx.edges = edges
        total = at_receiver.detach().index_select(0, edges.receivers)
        return total.add_(at_sender.detach().index_select(0, edges.senders))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        edges: Adjacency = ctx.edges
        grad, back = grads[0].contiguous(), edges.reverse
        return segment_sum(grad, edges.offsets), _bag(grad, back.edges, back.offsets), None


def end_sum(
    at_receiver: Float[Tensor, "R H"], at_sender: Float[Tensor, "S H"], edges: Adjacency
) -> Float[Tensor, "E H"]:
    """Return ``at_receiver[v] + at_sender[u]`` of every edge from ``u`` to ``v``."""
    return _EndSum.apply(at_receiver, at_sender, edges)  # pyright: ignore[reportReturnType]


class _WeightedRows(torch.autograd.Function):
    """One embedding-bag a head, whose weights are the head's."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(weight, rows, offsets)
        table, every = rows.detach(), torch.arange(rows.shape[0], device=rows.device)
        heads = weight.detach().to(rows.dtype).unbind(1)
        return torch.stack([_bag(table, every, offsets, w.contiguous()) for w in heads], dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        weight, rows, offsets = ctx.saved_tensors
        every = torch.arange(rows.shape[0], device=rows.device)
        heads = (grad.contiguous() for grad in grads[0].unbind(1))
        products = [_weight_gradient(grad, rows, every, offsets) for grad in heads]
        d_rows = None
        if ctx.needs_input_grad[1]:
            at_edge = grads[0].index_select(0, segment_ids(offsets, rows.shape[0]))
            d_rows = torch.einsum("eh,ehk->ek", weight.to(at_edge.dtype), at_edge)
        return torch.stack(products, dim=1), d_rows, None


def weighted_rows(
    weight: Float[Tensor, "E H"], rows: Float[Tensor, "E K"], offsets: Int[Tensor, "Vp1"]
) -> Float[Tensor, "V H K"]:
    r"""Return :math:`\sum_{e \to v} w_{e h} r_e` for every node ``v`` and head ``h``.

    Edges into node ``v`` are ``offsets[v]:offsets[v + 1]``.
    """
    return _WeightedRows.apply(weight, rows, offsets)  # pyright: ignore[reportReturnType]


def neighbor_sum(
    h: Float[Tensor, "S W"], edges: Adjacency, weight: Float[Tensor, "E *H"] | None = None
) -> Float[Tensor, "R D"]:
    r"""Return :math:`\sum_{(u, v)} w_{uv} h_u` for every receiver ``v``.

    0 without incoming edges. Float32, bfloat16 and float64, differentiable in ``h`` and in
    ``weight``, without which each edge has 1. Nothing of size E x D is kept. With ``H`` heads a row
    of ``h`` holds them one after the other, ``W = H * D``, and they are summed.
    """
    h = h.contiguous()
    if weight is None:
        return _Sum.apply(h, edges)  # pyright: ignore[reportReturnType]
    heads = weight if weight.dim() == 2 else weight[:, None]
    return _WeightedSum.apply(h, heads, edges)  # pyright: ignore[reportReturnType]


def gather_rows(h: Float[Tensor, "S W"], edges: Adjacency) -> Float[Tensor, "R W"]:
    """Return the row of each receiver's one sender; its gradient is a sum in a fixed order."""
    return _Gather.apply(h, edges)  # pyright: ignore[reportReturnType]
