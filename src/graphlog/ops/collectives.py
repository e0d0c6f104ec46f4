"""Communication, with gradients, between the processes that compute one batch together.

Each process has its own loss. Training minimizes the mean of the losses, so the gradients of all
processes are averaged after the backward pass.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch import distributed as dist

from graphlog.errors import ProcessLostError, first_line, setting
from graphlog.ops.autograd import differentiable_once


@contextmanager
def lost_peers() -> Generator[None]:
    """Raise a ProcessLostError with one line if a collective operation fails."""
    try:
        yield
    except RuntimeError as e:
        reason = first_line(e).rpartition("] ")[2]
        raise ProcessLostError(
            f"another process of this run ended or does not answer ({reason}); "
            f"the last checkpoint is whole: continue with {setting('resume', True)}.",
            option="resume",
        ) from None


@dataclass(frozen=True, slots=True)
class Peers:
    """The processes that compute a batch together, and the rank of this process."""

    rank: int
    """Number of this process, from 0."""
    size: int
    """Number of processes."""
    group: Any = None
    """Process group of the communication; None is the default group."""

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
        """Return the rows of all processes by rank, ``counts`` of each, without gradient."""
        longest = max(counts)
        if longest == 0:
            return rows.detach().clone()
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: rows.shape[0]] = rows.detach()
        sent = padded.view(longest, -1).view(torch.uint8)  # not every backend supports every type
        received = [torch.empty_like(sent) for _ in counts]
        with lost_peers():
            dist.all_gather(received, sent, group=self.group)
        kept = [part[:count] for part, count in zip(received, counts, strict=True)]
        return torch.cat(kept).view(rows.dtype).view(-1, *rows.shape[1:])

    def gather(self, rows: Float[Tensor, "R *S"], counts: Sequence[int]) -> Tensor:
        """Return the same as :meth:`all_rows`, with gradient.

        Every process must compute the same loss from all rows. Then the gradient of its own rows is
        complete in each process, and the backward pass needs no communication.
        """
        return _Gather.apply(rows, counts, self)  # pyright: ignore[reportReturnType]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Sequence[int], peers: Peers) -> Tensor:
        first = sum(counts[: peers.rank])
        ctx.own, ctx.size = slice(first, first + rows.shape[0]), peers.size
        return peers.all_rows(rows, counts)

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, None, None]:
        # only this process has the gradient of its rows, so this cancels the later average
        return grads[0][ctx.own] * ctx.size, None, None
