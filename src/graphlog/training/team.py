"""The processes that train one model together, as torchrun or ``--processes`` starts them."""

import hashlib
import json
import os
import platform
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from graphlog import __version__, processes
from graphlog.encoders.encoder import GraphEncoder, NodeNorm
from graphlog.errors import ConfigError, GraphLoGError, ProcessLostError, setting
from graphlog.objectives.base import LossTerms, RegressionHead
from graphlog.ops.collectives import Peers

_STEP_TIMEOUT = timedelta(minutes=10)
"""A process that takes longer over one step counts as hung."""
_WAIT_TIMEOUT = timedelta(days=7)
"""While the first process computes descriptors, the others wait."""


class Team:
    """The processes of a run; a process that was started alone is a team of one."""

    def __init__(self, peers: Peers | None = None, notices: Peers | None = None) -> None:
        """Take over process groups.

        Args:
            peers: Exchange tensors on the device of the run; None for a process alone.
            notices: The same processes, which exchange texts, and may wait long.
        """
        self.peers, self._notices = peers, notices
        self.size = 1 if peers is None else peers.size
        """Number of processes."""
        self.is_first = peers is None or peers.rank == 0
        """Whether this process writes the files and speaks."""

    def exchange(self, text: str) -> list[str]:
        """Return the texts that all processes give, in the order of processes."""
        if self._notices is None:
            return [text]
        own = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        lengths = self._notices.all_rows(torch.tensor([len(own)]), [1] * self.size).tolist()
        found = self._notices.all_rows(own, lengths).split(lengths)
        return [bytes(each.tolist()).decode() for each in found]

    def refuse(self, error: GraphLoGError) -> None:
        """Raise ``error`` in the first process, and in the others that it has refused."""
        if self.is_first:
            raise error
        raise ProcessLostError(f"the first process of this run refused to start: {error}")

    def check_alike(self, what: Mapping[str, Any]) -> None:
        """Compare what must be the same in all processes.

        Raises:
            ConfigError: Naming the first entry that differs, and the process.
            ProcessLostError: The same, in all processes but the first.
        """
        every = [json.loads(text) for text in self.exchange(json.dumps(what, default=str))]
        for rank, other in enumerate(every):
            for key in dict.fromkeys([*every[0], *other]):
                first, here = every[0].get(key), other.get(key)
                if first != here:
                    self.refuse(
                        ConfigError(
                            f"the processes disagree: {key} is {first!r} in process 0 and {here!r} "
                            f"in process {rank}; start all with the same command, input and "
                            "versions."
                        )
                    )

    def check_batch(self, batch_size: int, graphs: int) -> None:
        """Refuse more processes than a batch has graphs.

        Raises:
            ConfigError: In the first process.
            ProcessLostError: In the others.
        """
        if self.size > min(batch_size, graphs):
            self.refuse(
                ConfigError(
                    f"{self.size} processes share batches of {min(batch_size, graphs)} graphs; "
                    f"start fewer, or give a larger {setting('batch_size')}."
                )
            )

    def share(self, modules: Iterable[nn.Module], separable: bool) -> None:
        """Let the encoders among the modules embed batches together.

        Args:
            modules: All modules of encoder and objective.
            separable: Whether each process is given graphs of its own rather than whole batches.
        """
        for module in modules:
            if isinstance(module, GraphEncoder):
                module.peers = None if separable else self.peers
                for norm in module.modules():
                    if isinstance(norm, NodeNorm):
                        norm.peers = self.peers
            elif isinstance(module, RegressionHead):
                module.peers = self.peers if separable else None

    def leave(self, modules: Iterable[nn.Module]) -> None:
        """Let the modules compute by themselves again."""
        for module in modules:
            if isinstance(module, GraphEncoder | NodeNorm | RegressionHead):
                module.peers = None

    def mean(self, losses: LossTerms) -> LossTerms:
        """Return the losses with their mean values over processes; the gradient stays as it is."""
        if self.peers is None:
            return losses
        values = [losses.total, *losses.terms.values(), *losses.watch.values()]
        means = [v.detach().float().clone() for v in values]
        self.peers.average_(means)
        terms = dict(zip(losses.terms, means[1:], strict=False))
        watch = dict(zip(losses.watch, means[1 + len(terms) :], strict=True))
        return LossTerms(losses.total + (means[0] - losses.total.detach()), terms, watch)

    def average_gradients(self, parameters: Iterable[nn.Parameter], wish: bool) -> bool:
        """Replace gradients by their means over processes.

        Args:
            parameters: Those of the step.
            wish: Whether this process was asked to stop.

        Returns:
            Whether any process was.
        """
        if self.peers is None:
            return wish
        gradients = [p.grad for p in parameters if p.grad is not None]
        flag = gradients[0].new_full((1,), float(wish))
        self.peers.average_([*gradients, flag])
        return bool(flag > 0)


ALONE = Team()


def fingerprint(modules: Sequence[nn.Module], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same in all processes: versions, settings and first weights."""
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in module.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return {
        "graphlog-torch": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        **settings,
        "the weights to start from": digest.hexdigest()[:12],
    }


@contextmanager
def joined(device: torch.device) -> Generator[Team]:
    """Give the team of this process, as the variables of ``torchrun`` describe it.

    Args:
        device: Where this process computes.

    Raises:
        ProcessLostError: If the other processes cannot be reached.
    """
    if processes.size() == 1:
        yield ALONE
        return
    if not dist.is_available():
        raise ConfigError("this build of torch has no torch.distributed; start one process.")
    before = dist.is_initialized()
    try:
        if not before:
            backend = "nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=_STEP_TIMEOUT)
        notices: Any = dist.new_group(backend="gloo", timeout=_WAIT_TIMEOUT)
    except (RuntimeError, ValueError) as e:
        address = ":".join(os.environ.get(k, "?") for k in ("MASTER_ADDR", "MASTER_PORT"))
        reason = str(e).strip().splitlines()[0]
        raise ProcessLostError(
            f"the processes of this run cannot reach each other at {address} ({reason})."
        ) from None
    try:
        peers = Peers(dist.get_rank(), dist.get_world_size())
        yield Team(peers, replace(peers, group=notices))
    finally:
        if not before:
            dist.destroy_process_group()
