"""What the processes that compute one batch together tell each other, with gradients.

Every process has a loss of its own; what is minimized is their mean, so the gradients of all
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
    """Turn the failure of a collective operation into one line."""
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
        """Return the rows of every process, ``counts`` of each, in their order; no gradient."""
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
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, None, None]:
        # the same loss is counted by every process, and gradients are averaged
        return grads[0][ctx.own] * ctx.size, None, None
