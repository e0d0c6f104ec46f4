"""What the processes that compute one batch together tell each other, with gradients.

Every process has a loss of its own; what is minimized is their mean, so the gradients of all
processes are averaged after the backward pass.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional as F

from graphlog.errors import ProcessLostError, setting


@contextmanager
def lost_peers() -> Generator[None]:
    """Turn the failure of a collective operation into one line."""
    try:
        yield
    except RuntimeError as e:
        reason = str(e).strip().splitlines()[0].rpartition("] ")[2]
        raise ProcessLostError(
            f"another process of this run ended or does not answer ({reason}); "
            f"the last checkpoint is whole: continue with {setting('resume', True)}.",
            option="resume",
        ) from None


@dataclass(frozen=True, slots=True)
class Peers:
    """The processes that compute a batch together, and which of them this one is."""

    rank: int
    """Number of this process, from 0."""
    size: int
    """Number of processes."""
    group: Any = None
    """Process group that they talk by; None: that of the run."""

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over processes, without gradient."""
        total = values.detach().clone()
        with lost_peers():
            dist.all_reduce(total, group=self.group)
        return total

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their means over processes, in one message."""
        flat = self.total(torch.cat([t.reshape(-1) for t in tensors])).div_(self.size)
        parts = flat.split([t.numel() for t in tensors])
        for tensor, mean in zip(tensors, parts, strict=True):
            tensor.copy_(mean.view_as(tensor))

    def all_rows(self, rows: Shaped[Tensor, "R *S"], counts: Sequence[int]) -> Tensor:
        """Return the rows of every process, in the order of processes, without gradient.

        Args:
            rows: Those of this process.
            counts: Rows of each process.
        """
        longest = max(counts)
        if longest == 0:
            return rows.detach().clone()
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: rows.shape[0]] = rows.detach()
        sent = padded.view(longest, -1).view(torch.uint8)  # a group need not know every type
        received = [torch.empty_like(sent) for _ in counts]
        with lost_peers():
            dist.all_gather(received, sent, group=self.group)
        kept = [part[:count] for part, count in zip(received, counts, strict=True)]
        return torch.cat(kept).view(rows.dtype).view(-1, *rows.shape[1:])

    def gather(self, rows: Float[Tensor, "R *S"], counts: Sequence[int]) -> Tensor:
        """Return what :meth:`all_rows` does, with gradient.

        Every process must compute the same loss of all rows: what each then knows about its own
        rows is complete, and nothing is sent on the way back.
        """
        return _Gather.apply(rows, counts, self)  # pyright: ignore[reportReturnType]


class _Gather(torch.autograd.Function):
    """Rows of all processes from rows of each."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Sequence[int], peers: Peers) -> Tensor:
        first = sum(counts[: peers.rank])
        ctx.own, ctx.size = slice(first, first + rows.shape[0]), peers.size
        return peers.all_rows(rows, counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        # the same loss is counted by every process, and gradients are averaged
        return grads[0][ctx.own] * ctx.size, None, None


class Moments(NamedTuple):
    """Statistics of the rows of all processes together."""

    rows: int
    mean: Float[Tensor, "D"]
    variance: Float[Tensor, "D"]
    """Divided by the number of rows."""


@torch.no_grad()
def shared_moments(
    x: Float[Tensor, "R D"], counts: Float[Tensor, "R"] | None = None, peers: Peers | None = None
) -> Moments:
    """Return the mean and variance of every column.

    Args:
        x: Rows.
        counts: How often each row counts; None: once.
        peers: The processes that hold the rows together; None: this one has all.
    """
    own = x.new_zeros(3, x.shape[1], dtype=torch.float64)
    single = torch.promote_types(x.dtype, torch.float32)
    if x.shape[0] and counts is None:
        own[0] = x.shape[0]
        own[1], own[2] = torch.batch_norm_update_stats(x.to(single), None, None, 0.0)  # pyright: ignore
    elif x.shape[0] and counts is not None:
        own[0] = counts.sum()
        share = (counts / own[0, 0]).to(single)
        with torch.autocast(x.device.type, enabled=False):  # as torch's own batch norm
            mean = share @ x.to(single)
            own[1], own[2] = mean, share @ (x - mean).square_()
    if peers is not None:
        every = peers.all_rows(own, [3] * peers.size).view(peers.size, 3, -1)
        rows, means, variances = every.unbind(1)
        total = rows.sum(0)
        mean = (rows * means).sum(0) / total.clamp_min(1)
        variance = (rows * (variances + (means - mean).square())).sum(0) / total.clamp_min(1)
        own = torch.stack([total, mean, variance])
    return Moments(int(own[0, 0]), own[1].to(single), own[2].to(single))


def normalize(
    x: Float[Tensor, "R D"],
    moments: Moments,
    weight: Float[Tensor, "D"],
    bias: Float[Tensor, "D"],
    eps: float,
    counts: Float[Tensor, "R"] | None = None,
    peers: Peers | None = None,
) -> Float[Tensor, "R D"]:
    """Return batch normalization by :func:`shared_moments`, through which gradients flow."""
    return _Normalize.apply(x, weight, bias, moments, eps, counts, peers)  # pyright: ignore[reportReturnType]


class _Normalize(torch.autograd.Function):
    """Normalization whose gradient sums over the rows of all processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        moments: Moments,
        eps: float,
        counts: Tensor | None,
        peers: Peers | None,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, moments.mean, moments.variance, counts)
        ctx.count, ctx.eps, ctx.peers = moments.rows, eps, peers
        if x.shape[0] == 0:
            return x.clone()
        return F.batch_norm(x, moments.mean, moments.variance, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, counts = ctx.saved_tensors
        dy = grads[0].contiguous()
        own = torch.zeros(2, weight.shape[0], dtype=weight.dtype, device=weight.device)
        if x.shape[0]:
            _, own[0], own[1] = torch.ops.aten.native_batch_norm_backward(
                dy, x, weight, mean, variance, None, None, False, ctx.eps, [False, True, True]
            )
        over_all = (own if ctx.peers is None else ctx.peers.total(own)) / ctx.count
        rate = (variance + ctx.eps).rsqrt()
        # dx = w r (dy - n (mean(dy) + xhat mean(dy xhat))) with xhat = (x - m) r, n the count
        slope = -weight * rate * rate * over_all[0]
        shift = -weight * rate * over_all[1] - slope * mean
        through_moments = torch.addcmul(shift, x.to(weight.dtype), slope)
        if counts is not None:
            through_moments.mul_(counts[:, None])
        dx = through_moments.addcmul_(dy.to(weight.dtype), weight * rate)
        return dx.to(x.dtype), own[0], own[1], None, None, None, None
