"""Reductions over packed graphs: rows ``ptr[n]:ptr[n + 1]`` belong to graph ``n``."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


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
