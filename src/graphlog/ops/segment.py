"""Reductions over packed graphs, and comparisons within them.

Rows ``ptr[n]:ptr[n + 1]`` belong to graph ``n``. For comparisons, groups of unequal size are padded
into a few buckets.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_TINY = 1e-12
_MAX_BUCKETS = 6
_ROW_COST = 32
"""What moving one row costs, in units of one entry of a similarity matrix; a flat optimum,
measured on two cores."""


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
        if values.numel() == 0:  # embedding_bag refuses an empty table
            return values.new_zeros(ptr.shape[0] - 1, values.shape[1])
        rows = torch.arange(values.shape[0], device=values.device)
        return F.embedding_bag(rows, values.detach(), ptr, mode="sum", include_last_offset=True)

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

    Args:
        ptr: Row range of each group.
        host_ptr: The same on the CPU; None copies it, for which a GPU has to be waited for.

    Example:
        >>> import torch
        >>> plan_padding(torch.tensor([0, 2, 3, 5])).buckets
        (Bucket(groups=1, size=1), Bucket(groups=2, size=2))
    """
    sizes = ptr.diff()
    order = torch.argsort(sizes, stable=True)
    on_host = np.sort((ptr.cpu() if host_ptr is None else host_ptr).diff().numpy())
    buckets = _cheapest_buckets(on_host)
    width = torch.cat([ptr.new_full((b.groups,), b.size) for b in buckets]) if buckets else sizes
    start = width.cumsum(0) - width
    first_slot = torch.empty_like(start)
    first_slot[order] = start
    group = segment_ids(ptr, int(on_host.sum()))
    row = torch.arange(group.shape[0], device=ptr.device)
    slot = (first_slot - ptr[:-1])[group] + row
    rows = row.new_zeros(sum(b.groups * b.size for b in buckets)).index_copy(0, slot, row)
    return Padding(slot, rows, buckets, int(on_host[0]) if on_host.size else 0)


def _cheapest_buckets(ordered: NDArray[np.int64]) -> tuple[Bucket, ...]:
    """Cut the sorted sizes where padded work is least: dynamic programming over distinct sizes."""
    if ordered.size == 0:
        return ()
    size, count = np.unique(ordered, return_counts=True)
    total = np.concatenate([[0], np.cumsum(count)])
    # work[i, j]: distinct sizes i..j-1 in one bucket, all padded to size j-1
    each = size.astype(np.float64) ** 2 + _ROW_COST * size
    work = (total[None, 1:] - total[:-1, None]) * each[None, :]
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

    Args:
        x: Rows of the result, packed by group.
        y: Columns of the result, packed likewise.
        padding: The plan for these groups.
        eps: Added to the product of the two lengths.
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
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        x, y, x_norm, y_norm, *similarities = ctx.saved_tensors
        padding: Padding = ctx.padding
        flat_x, flat_y = (
            x.new_empty(padding.num_slots, x.shape[1]),
            y.new_empty(padding.num_slots, y.shape[1]),
        )
        start = 0
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
        return (
            flat_x.index_select(0, padding.slot),
            flat_y.index_select(0, padding.slot),
            None,
            None,
        )


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
