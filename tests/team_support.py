"""Real processes that train together, on this machine."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from training_support import server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _member(rank: int, size: int, port: int, task: Callable[..., Any], out: str, args: Any) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    try:
        found = task(rank, *args)
    except Exception as e:
        found = f"{type(e).__name__}: {e}"
    torch.save(found, f"{out}/{rank}.pt")


def together(size: int, folder: Path, task: Callable[..., Any], *args: Any) -> list[Any]:
    """Return what ``task(rank, *args)`` returns, or raises, in each of ``size`` processes."""
    folder.mkdir(exist_ok=True)
    port = free_port()
    members = [
        server().Process(target=_member, args=(rank, size, port, task, str(folder), args))
        for rank in range(size)
    ]
    for member in members:
        member.start()
    for member in members:
        member.join(200)
    assert [member.exitcode for member in members] == [0] * size
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(size)]
