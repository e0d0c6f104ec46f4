"""Sums over neighbors, reductions over the graphs of a batch, and comparisons within graphs.

Rows ``ptr[n]:ptr[n + 1]`` of a packed matrix belong to graph ``n``. To compare the rows of each
graph with each other, graphs are padded to a few sizes, the buckets. Sums over neighbors (the
messages of Eq. 1) need no tensor that has an embedding for each edge.
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
"""Bound below which a length, or a product of two lengths, counts as zero."""
_MAX_BUCKETS = 6
_ROW_COST = 32
"""Cost of copying one row, in entries of a similarity matrix; measured on two cores, where the
optimum is flat."""
_GPU_BUCKET_COST = 2e7
"""Cost of one more bucket on a GPU, in the same unit: about sixty kernel launches."""


def segment_ids(ptr: Int[Tensor, "P"], num_rows: int) -> Int[Tensor, "V"]:
    """Return the segment of each of ``num_rows`` rows."""
    segments = torch.arange(ptr.shape[0] - 1, device=ptr.device)
    return torch.repeat_interleave(segments, ptr.diff(), output_size=num_rows)


class _SegmentSum(torch.autograd.Function):
    """Sum of consecutive rows as one embedding bag; the gradient gathers rows."""

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
    """Return the sum of the rows of each segment, 0 for an empty segment.

    Example:
        >>> segment_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 3]))
        tensor([3., 4.])
    """
    rows = values.flatten(1) if values.dim() > 1 else values[:, None]
    total: Tensor = _SegmentSum.apply(rows.contiguous(), ptr)  # pyright: ignore[reportAssignmentType]
    return total.reshape(ptr.shape[0] - 1, *values.shape[1:])


def segment_mean(values: Float[Tensor, "V *D"], ptr: Int[Tensor, "P"]) -> Float[Tensor, "N *D"]:
    """Return the mean of the rows of each segment, 0 for an empty segment."""
    total = segment_sum(values, ptr)
    sizes = ptr.diff().clamp(min=1).to(total.dtype)
    return total / sizes.reshape(-1, *[1] * (total.dim() - 1))


def segment_max(values: Float[Tensor, "V *D"], ptr: Int[Tensor, "P"]) -> Float[Tensor, "N *D"]:
    """Return the largest value of each segment and column, minus infinity for an empty segment."""
    return torch.segment_reduce(values.contiguous(), "max", offsets=ptr, unsafe=True)


class _SegmentSoftmax(torch.autograd.Function):
    """Softmax within segments that stores only its result for the gradient."""

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
    """A number of groups that are padded to the same size."""

    groups: int
    size: int
    """Number of rows of each group after padding."""


class Padding(NamedTuple):
    """Positions of the rows of a packed matrix in a padded one, which has bucket after bucket."""

    slot: Int[Tensor, "V"]
    """Padded row of each packed row."""
    rows: Int[Tensor, "T"]
    """Packed row of each padded row, 0 for rows of padding."""
    buckets: tuple[Bucket, ...]
    smallest: int
    """Number of rows of the smallest group, 0 without groups."""

    @property
    def num_slots(self) -> int:
        """Number of rows of the padded matrix."""
        return self.rows.shape[0]

    def rows_of_buckets(self) -> tuple[Tensor, ...]:
        """Return the part of ``rows`` that belongs to each bucket."""
        return self.rows.split([b.groups * b.size for b in self.buckets])


def plan_padding(ptr: Int[Tensor, "P"], host_ptr: Int[Tensor, "P"] | None = None) -> Padding:
    """Return the cheapest padding of groups ``ptr[g]:ptr[g + 1]`` into at most six buckets.

    A GPU mostly gets a single bucket, since another one costs more than the padding that it saves.
    Without ``host_ptr``, a copy of ``ptr`` on the CPU, the GPU has to synchronize.

    Example:
        >>> import torch
        >>> plan_padding(torch.tensor([0, 2, 3, 5])).buckets
        (Bucket(groups=1, size=1), Bucket(groups=2, size=2))
    """
    sizes = ptr.diff()
    order = torch.argsort(sizes, stable=True)
    host_sizes = np.sort((ptr.cpu() if host_ptr is None else host_ptr).diff().numpy())
    buckets = _cheapest_buckets(host_sizes, 0.0 if ptr.device.type == "cpu" else _GPU_BUCKET_COST)
    width = torch.cat([ptr.new_full((b.groups,), b.size) for b in buckets]) if buckets else sizes
    start = width.cumsum(0) - width
    first_slot = torch.empty_like(start)
    first_slot[order] = start
    group = segment_ids(ptr, int(host_sizes.sum()))
    row = torch.arange(group.shape[0], device=ptr.device)
    slot = (first_slot - ptr[:-1])[group] + row
    rows = row.new_zeros(sum(b.groups * b.size for b in buckets)).index_copy(0, slot, row)
    return Padding(slot, rows, buckets, int(host_sizes[0]) if host_sizes.size else 0)


def _cheapest_buckets(sizes: NDArray[np.int64], bucket_cost: float) -> tuple[Bucket, ...]:
    """Return the buckets of least cost, by dynamic programming over the distinct sizes."""
    if sizes.size == 0:
        return ()
    size, count = np.unique(sizes, return_counts=True)
    total = np.concatenate([[0], np.cumsum(count)])
    # cost[i, j] is that of one bucket of the distinct sizes i to j, all padded to size j
    group_cost = size.astype(np.float64) ** 2 + _ROW_COST * size
    cost = (total[None, 1:] - total[:-1, None]) * group_cost[None, :] + bucket_cost
    cost[np.tril_indices(size.size, -1)] = np.inf
    best = cost[0].copy()
    cuts: list[NDArray[np.int64]] = [np.zeros(size.size, dtype=np.int64)]
    for _ in range(min(_MAX_BUCKETS, size.size) - 1):
        with_last = np.concatenate([[0.0], best[:-1]])[:, None] + cost
        cuts.append(with_last.argmin(axis=0))
        best = with_last.min(axis=0)
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
    r"""Return the cosines of all rows of ``x`` with all rows of ``y`` of their group, by bucket.

    The cosine is :math:`x^\top y / (\|x\| \|y\| + \epsilon)`. Entries of padding have the values of
    another row; mask them with :func:`filled`. Forward and backward pass divide the similarities by
    the lengths, not the embeddings, which are hundreds of times larger.
    """
    return _GroupedCosine.apply(x, y, padding, eps)  # pyright: ignore[reportReturnType]


class _GroupedCosine(torch.autograd.Function):
    """Batched products of gathered rows, which the backward pass gathers again to save memory."""

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
            # gradient of the lengths: ds / d|x| = -s |y| / (|x| |y| + eps), and d|x| / dx = x / |x|
            weighted = weight * similarity
            nx, ny = x_norm[rows].view(*bucket), y_norm[rows].view(*bucket)
            through_nx = (weighted @ ny[:, :, None]).squeeze(2) / nx.clamp_min(_TINY)
            through_ny = (weighted.mT @ nx[:, :, None]).squeeze(2) / ny.clamp_min(_TINY)
            xs, ys = _gather(x, rows, bucket), _gather(y, rows, bucket)
            torch.bmm(weight, ys, out=gx).addcmul_(xs, through_nx[:, :, None], value=-1.0)
            torch.bmm(weight.mT, xs, out=gy).addcmul_(ys, through_ny[:, :, None], value=-1.0)
        slot = padding.slot
        return flat_x.index_select(0, slot), flat_y.index_select(0, slot), None, None


def _gather(x: Tensor, rows: Tensor, bucket: Bucket) -> Tensor:
    return x.index_select(0, rows).view(*bucket, x.shape[1])


def _inverse_lengths(
    x_norm: Tensor, y_norm: Tensor, rows: Tensor, bucket: Bucket, eps: float
) -> Tensor:
    """Return 1 / (|x| |y| + eps), or 0 where the denominator is 0."""
    product = x_norm[rows].view(*bucket)[:, :, None] * y_norm[rows].view(*bucket)[:, None, :] + eps
    return (product > _TINY) / product.clamp_min(_TINY)


def pad_values(values: Shaped[Tensor, "V"], padding: Padding) -> list[Tensor]:
    """Return the values of packed rows as one zero-padded (groups, size) tensor per bucket."""
    flat = values.new_zeros(padding.num_slots).index_copy(0, padding.slot, values)
    parts = flat.split([b.groups * b.size for b in padding.buckets])
    return [p.view(*b) for p, b in zip(parts, padding.buckets, strict=True)]


def unpad_values(values: list[Tensor], padding: Padding) -> Tensor:
    """Return the values of packed rows, the inverse of :func:`pad_values`."""
    return torch.cat([v.reshape(-1) for v in values])[padding.slot]


def filled(padding: Padding) -> list[Tensor]:
    """Return a (groups, size) mask per bucket that is false for padding."""
    return pad_values(torch.ones_like(padding.slot, dtype=torch.bool), padding)


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
    """Row of each edge in the edge attributes of the batch."""

    @cached_property
    def receivers(self) -> Int[Tensor, "E"]:
        """Receiver of each edge."""
        return segment_ids(self.offsets, self.senders.shape[0])

    @property
    def in_degree(self) -> Int[Tensor, "R"]:
        """Number of edges into each receiver."""
        return self.offsets.diff()

    @cached_property
    def reverse(self) -> "Adjacency":
        """The reversed edges, whose ``order`` is their position in this adjacency.

        Gradients of sums over edges are sums over these. Sorting is stable, so that they are
        reproducible.
        """
        order = torch.argsort(self.senders, stable=True)
        offsets = group_offsets(self.senders, self.num_senders)
        senders = self.receivers.index_select(0, order)
        return Adjacency(offsets, senders, self.offsets.shape[0] - 1, order)

    @cached_property
    @torch.inference_mode(mode=False)  # the result is cached and may be used with gradients later
    def with_self_loops(self) -> "Adjacency":
        """The same edges, and for each node a self-loop that is the first of its incoming edges.

        Self-loops have the row of attributes that follows those of the edges.
        """
        num_edges, num_nodes = self.senders.shape[0], self.num_senders
        node = torch.arange(num_nodes + 1, device=self.senders.device)
        # each edge moves by the number of self-loops of its receiver and the nodes before it
        edge_place = torch.arange(num_edges, device=node.device) + self.receivers + 1
        loop_place = self.offsets[:-1] + node[:-1]
        senders, order = (node.new_empty(num_edges + num_nodes) for _ in range(2))
        senders[edge_place], senders[loop_place] = self.senders, node[:-1]
        order[edge_place], order[loop_place] = self.order, num_edges
        return Adjacency(self.offsets + node, senders, num_nodes, order)


def group_offsets(groups: Int[Tensor, "E"], count: int) -> Int[Tensor, "Gp1"]:
    """Return the offsets of ``count`` groups after the elements are sorted by group."""
    # `bincount` would make a GPU synchronize
    sizes = groups.new_zeros(count).index_add(0, groups, torch.ones_like(groups))
    return F.pad(sizes.cumsum(0), (1, 0))


def build_adjacency(edge_index: Int[Tensor, "2 E"], num_nodes: int) -> Adjacency:
    """Return the edges sorted by target; sorting is stable, so that sums are reproducible."""
    source, target = edge_index[0], edge_index[1]
    order = torch.argsort(target, stable=True)
    return Adjacency(group_offsets(target, num_nodes), source[order], num_nodes, order)


def one_sender_each(senders: Int[Tensor, "R"], num_senders: int) -> Adjacency:
    """Return an adjacency with one edge into each receiver, for :func:`gather_rows`."""
    number = torch.arange(senders.shape[0] + 1, device=senders.device)
    return Adjacency(number, senders, num_senders, number[:-1])


def _bag(table: Tensor, rows: Tensor, offsets: Tensor, weight: Tensor | None = None) -> Tensor:
    if rows.shape[0] == 0 or table.shape[1] == 0:  # embedding_bag rejects an empty table
        return table.new_zeros(offsets.shape[0] - 1, table.shape[1])
    return F.embedding_bag(
        rows, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=weight
    )


class _Sum(torch.autograd.Function):
    """Sum over incoming edges; its gradient is the sum over outgoing edges."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, edges: Adjacency) -> Tensor:
        ctx.edges = edges
        return _bag(h.detach(), edges.senders, edges.offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        back: Adjacency = ctx.edges.reverse
        return _bag(grads[0].contiguous(), back.senders, back.offsets), None


class _Gather(_Sum):
    """Sum over incoming edges if each receiver has exactly one: a copy of the sender's row."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, edges: Adjacency) -> Tensor:
        ctx.edges = edges
        return h.detach().index_select(0, edges.senders)


class _WeightedSum(torch.autograd.Function):
    """Sum over incoming edges and heads with a weight for each edge and head, in one kernel."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, edges: Adjacency) -> Tensor:
        ctx.save_for_backward(h, weight)
        ctx.edges = edges
        table, rows, offsets = _WeightedSum.bags(h, weight, edges)
        return _bag(table, rows, offsets, weight.detach().reshape(-1).to(h.dtype))

    @staticmethod
    def bags(h: Tensor, weight: Tensor, edges: Adjacency) -> tuple[Tensor, Tensor, Tensor]:
        """Return a table with a row per node and head, and the bags of rows to sum at each node."""
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
            weights = weight.index_select(0, back.order).to(grad.dtype).unbind(1)
            heads = [_bag(grad, back.senders, back.offsets, w.contiguous()) for w in weights]
            grad_h = torch.cat(heads, dim=1) if len(heads) > 1 else heads[0]
        if ctx.needs_input_grad[1]:
            table, rows, offsets = _WeightedSum.bags(h, weight, edges)
            product = _weight_gradient(grad, table, rows, offsets)
            grad_weight = product.reshape(weight.shape).to(weight.dtype)
        return grad_h, grad_weight, None


def _weight_gradient(grad: Tensor, table: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """Return the inner product of each row of a bag with the gradient of the bag."""
    if rows.shape[0] == 0 or table.shape[1] == 0:
        return table.new_zeros(rows.shape[0])
    bags = segment_ids(offsets, rows.shape[0])
    return torch.ops.aten._embedding_bag_per_sample_weights_backward(
        grad, table, rows, offsets[:-1], bags, 0
    )


class _EndSum(torch.autograd.Function):
    """Gather in the forward pass, and sum over sorted rows in the backward pass."""

    @staticmethod
    def forward(ctx: Any, at_receiver: Tensor, at_sender: Tensor, edges: Adjacency) -> Tensor:
        ctx.edges = edges
        total = at_receiver.detach().index_select(0, edges.receivers)
        return total.add_(at_sender.detach().index_select(0, edges.senders))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        edges: Adjacency = ctx.edges
        grad, back = grads[0].contiguous(), edges.reverse
        return segment_sum(grad, edges.offsets), _bag(grad, back.order, back.offsets), None


def end_sum(
    at_receiver: Float[Tensor, "R H"], at_sender: Float[Tensor, "S H"], edges: Adjacency
) -> Float[Tensor, "E H"]:
    """Return ``at_receiver[v] + at_sender[u]`` for every edge from ``u`` to ``v``."""
    return _EndSum.apply(at_receiver, at_sender, edges)  # pyright: ignore[reportReturnType]


class _WeightedRows(torch.autograd.Function):
    """One embedding bag for each head, with the weights of that head."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(weight, rows, offsets)
        table, index = rows.detach(), torch.arange(rows.shape[0], device=rows.device)
        heads = weight.detach().to(rows.dtype).unbind(1)
        return torch.stack([_bag(table, index, offsets, w.contiguous()) for w in heads], dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        weight, rows, offsets = ctx.saved_tensors
        index = torch.arange(rows.shape[0], device=rows.device)
        heads = (grad.contiguous() for grad in grads[0].unbind(1))
        products = [_weight_gradient(grad, rows, index, offsets) for grad in heads]
        d_rows = None
        if ctx.needs_input_grad[1]:
            edge_grad = grads[0].index_select(0, segment_ids(offsets, rows.shape[0]))
            d_rows = torch.einsum("eh,ehk->ek", weight.to(edge_grad.dtype), edge_grad)
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

    It is 0 without incoming edges. Each edge has the weight 1 if ``weight`` is None. With ``H``
    heads, a row of ``h`` holds ``W = H * D`` values, head after head, and heads are summed. The sum
    is differentiable with respect to ``h`` and ``weight``, in float32, bfloat16 and float64, and
    stores no tensor of size E x D.
    """
    h = h.contiguous()
    if weight is None:
        return _Sum.apply(h, edges)  # pyright: ignore[reportReturnType]
    heads = weight if weight.dim() == 2 else weight[:, None]
    return _WeightedSum.apply(h, heads, edges)  # pyright: ignore[reportReturnType]


def gather_rows(h: Float[Tensor, "S W"], edges: Adjacency) -> Float[Tensor, "R W"]:
    """Return the row of the only sender of each receiver; gradients are summed in a fixed order."""
    return _Gather.apply(h, edges)  # pyright: ignore[reportReturnType]
