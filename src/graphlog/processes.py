"""Which process of a run this is, by the variables that torchrun and ``--processes`` set."""

import os

SUPERVISOR = "GRAPHLOG_SUPERVISOR"
"""Variable with the number of the process that started this one by ``--processes``."""


def size() -> int:
    """Return how many processes train one model together; 1 for a process started alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Return whether this process writes the files of the run and speaks for it."""
    return size() == 1 or int(os.environ.get("RANK", "0")) == 0


def is_supervised() -> bool:
    """Return whether ``--processes`` started this process, which reports what happens to it."""
    return SUPERVISOR in os.environ


def is_orphan() -> bool:
    """Return whether the process that started this one by ``--processes`` is gone."""
    return is_supervised() and os.getppid() != int(os.environ[SUPERVISOR])
