"""Comparing things within groups of unequal size: padded into a few buckets, never all against all."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

_MAX_BUCKETS = 6
_ROW_COST = 32
"""What moving one row costs, in units of one entry of a similarity matrix; a flat optimum, measured on two cores."""


class Bucket(NamedTuple):
    """Groups padded to one size."""

    groups: int
    size: int
    """Rows of each group after padding."""


class Padding(NamedTuple):
    """Where each row of a packed matrix lies once its groups are padded, bucket after bucket."""

    slot: Int[Tensor, "V"]
    """Row of the padded matrix that holds packed row ``v``."""
    sizes: Int[Tensor, "G"]
    """Size of each group, in the order of the buckets."""
    buckets: tuple[Bucket, ...]

    @property
    def num_slots(self) -> int:
        """Rows of the padded matrix."""
        return sum(b.groups * b.size for b in self.buckets)


def plan_padding(ptr: Int[Tensor, "P"]) -> Padding:
    """Return the padding of groups ``ptr[g]:ptr[g + 1]`` into at most six buckets that waste the least work.

    Args:
        ptr: Row range of each group.

    Example:
        >>> import torch
        >>> plan_padding(torch.tensor([0, 2, 3, 5])).buckets
        (Bucket(groups=1, size=1), Bucket(groups=2, size=2))
    """
    sizes = ptr[1:] - ptr[:-1]
    ordered, order = torch.sort(sizes, stable=True)
    buckets = _cheapest_buckets(ordered.cpu().numpy())
    width = torch.cat([ptr.new_full((b.groups,), b.size) for b in buckets]) if buckets else sizes
    start = width.cumsum(0) - width
    first_slot = torch.empty_like(start)
    first_slot[order] = start
    group = torch.repeat_interleave(torch.arange(sizes.shape[0], device=ptr.device), sizes)
    slot = first_slot[group] + torch.arange(group.shape[0], device=ptr.device) - ptr[:-1][group]
    return Padding(slot, ordered, buckets)


def _cheapest_buckets(ordered: NDArray[np.int64]) -> tuple[Bucket, ...]:
    """Cut the sorted sizes where the padded work is smallest: exact dynamic programming over the distinct sizes."""
    ordered = ordered[ordered >= 0]
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


def pad(rows: Float[Tensor, "V D"], padding: Padding) -> list[Float[Tensor, "G S D"]]:
    """Return the rows of each bucket as one (groups, size, D) tensor; padding rows are zero.

    Every row is written once, so the gradient is a gather, with no atomic sums.
    """
    flat = rows.new_zeros(padding.num_slots, rows.shape[1]).index_copy(0, padding.slot, rows)
    parts = flat.split([b.groups * b.size for b in padding.buckets])
    return [p.view(b.groups, b.size, rows.shape[1]) for p, b in zip(parts, padding.buckets, strict=True)]


def filled(padding: Padding) -> list[Tensor]:
    """Return for each bucket a (groups, size) mask of the slots that hold a row."""
    parts = padding.sizes.split([b.groups for b in padding.buckets])
    return [
        torch.arange(b.size, device=s.device)[None, :] < s[:, None] for s, b in zip(parts, padding.buckets, strict=True)
    ]


def unpad(values: list[Tensor], padding: Padding) -> Tensor:
    """Return one value per packed row from one (groups, size) tensor per bucket, in packed order."""
    return torch.cat([v.reshape(-1) for v in values])[padding.slot]
