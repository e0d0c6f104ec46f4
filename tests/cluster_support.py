"""Work for a Ray cluster; its workers import this module."""

import os
import signal
import time
from pathlib import Path

from graphlog.errors import DataError


def die_once(task: tuple[Path, int]) -> int:
    """Return the square of a number; the first worker that is given 3 is killed over it."""
    marker, number = task
    if number == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuse(number: int) -> int:
    raise DataError(f"row {number}: no number; leave it out.")


class Square:
    """Work that brings a tensor along, as a model does."""

    def __init__(self) -> None:
        import torch  # here, as workers that die and start again do so without it

        self.power = torch.tensor(2)

    def __call__(self, number: int) -> tuple[int, int]:
        """Return the square of a number, slowly, and the number of threads for computation."""
        import torch

        time.sleep(0.05)
        return number ** int(self.power), torch.get_num_threads()
