"""Which process of a run this is, and one command as several processes that train one model."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import IO

from graphlog.errors import ConfigError, GraphLoGError, setting

SUPERVISOR = "GRAPHLOG_SUPERVISOR"
"""Variable with the number of the process that started this one by ``--processes``."""
PEER_LOST = 75
"""Exit code of one of several processes, to the one that started them: another knows the reason."""
WORDS: ContextVar[Sequence[str]] = ContextVar("WORDS")
"""What follows ``graphlog`` on the command line."""
_POLL_S = 0.05
_PATIENCE_S = 30.0
"""Seconds in which processes end by themselves once one has failed: another may know the reason."""
_PATIENCE_AFTER_KILL_S = 5.0
"""The same once one was ended by a signal, of which no other knows: a checkpoint may be under way.
A process notices that another is gone by a message that fails. One that waits for the others to
start, or computes by itself for minutes, sends none."""
_LIKELY = {"SIGKILL": " (out of memory?)", "SIGBUS": " (was a file of the store truncated?)"}
"""What usually lies behind a signal."""


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


@contextmanager
def signals_handled_by(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Pass SIGINT and SIGTERM to ``handler`` inside the block, unless they are ignored (nohup)."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard = {k: v for k, v in before.items() if v not in (signal.SIG_IGN, None)}
    for number in heard:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in heard.items():
            signal.signal(number, previous)


def run_processes(words: Sequence[str], count: int) -> int:
    """Run ``graphlog WORDS`` as ``count`` processes and return the exit code of the run.

    The first one speaks; what the others say is shown only if it is what ended the run. Ctrl-C and
    SIGTERM are passed on to all, once each.

    Raises:
        ConfigError: If the processes were started by torchrun already.
        GraphLoGError: If a process was killed.
    """
    if "WORLD_SIZE" in os.environ:
        raise ConfigError(
            f"torchrun starts the processes already; leave out {setting('processes')}.",
            option="processes",
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        "OMP_NUM_THREADS": str(max((os.cpu_count() or 1) // count, 1)),
        **os.environ,
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        SUPERVISOR: str(os.getpid()),
    }
    with ExitStack() as files:
        said = [files.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        workers = [_start(words, environment, rank, said[rank]) for rank in range(count)]

        def pass_on(number: int, _: FrameType | None) -> None:
            for worker in workers:
                worker.send_signal(number)  # nothing to one that has ended

        with signals_handled_by(pass_on):
            try:
                stopped = _wait(workers)
            finally:
                _end(workers)
        return _outcome(workers, stopped, said)


def _start(
    words: Sequence[str], environment: dict[str, str], rank: int, said: IO[bytes]
) -> subprocess.Popen[bytes]:
    # a session of its own keeps the terminal's Ctrl-C from arriving twice
    return subprocess.Popen(
        [sys.executable, "-m", "graphlog", *words],
        env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        stdin=subprocess.DEVNULL,
        stdout=None if rank == 0 else subprocess.DEVNULL,
        stderr=None if rank == 0 else said,
        start_new_session=True,
    )


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> set[int]:
    """End the workers that are left, with their own, and return their ranks."""
    left = {rank for rank, worker in enumerate(workers) if worker.poll() is None}
    for rank in left:
        if os.name == "posix":
            os.killpg(workers[rank].pid, signal.SIGKILL)
        else:
            workers[rank].kill()
        workers[rank].wait()
    return left


def _wait(workers: Sequence[subprocess.Popen[bytes]]) -> set[int]:
    """Wait for all, and return the ranks that had to be stopped because another failed."""
    deadline = float("inf")
    # a list, so that every process is asked, whatever the ones before it say
    while None in (codes := [worker.poll() for worker in workers]):
        if any(codes):
            was_killed = any(code is not None and code < 0 for code in codes)
            patience = _PATIENCE_AFTER_KILL_S if was_killed else _PATIENCE_S
            deadline = min(deadline, time.monotonic() + patience)
        if time.monotonic() > deadline:
            return _end(workers)
        time.sleep(_POLL_S)
    return set()


def _outcome(
    workers: Sequence[subprocess.Popen[bytes]], stopped: set[int], said: Sequence[IO[bytes]]
) -> int:
    """Return the exit code of the process that ended the run, after its message if need be."""
    codes = [worker.returncode for worker in workers]
    if not any(codes):
        return 0
    faults = (r for r, code in enumerate(codes) if code not in (0, PEER_LOST) and r not in stopped)
    rank = next(faults, 0)
    if codes[rank] < 0:
        name = signal.Signals(-codes[rank]).name
        raise GraphLoGError(
            f"process {rank} of {len(workers)} was ended by {name}{_LIKELY.get(name, '')}, and the "
            "others with it; "
            f"the last checkpoint is whole: continue with {setting('resume', True)}.",
            option="resume",
        )
    if rank > 0:
        said[rank].seek(0)
        sys.stderr.write(said[rank].read().decode(errors="replace"))
    elif codes[rank] == PEER_LOST:
        raise GraphLoGError(
            "the processes lost each other; the last checkpoint is whole: continue with "
            f"{setting('resume', True)}.",
            option="resume",
        )
    return codes[rank]
