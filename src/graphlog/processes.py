"""Run one command as several processes that train one model, and tell these processes apart."""

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
"""Environment variable with the id of the process that started this one for ``--processes``."""
PEER_LOST = 75
"""Exit code of a process that ends because it lost another one, which reports the reason."""
WORDS: ContextVar[Sequence[str]] = ContextVar("WORDS")
"""The words after ``graphlog`` on the command line."""
_POLL_S = 0.05
_PATIENCE_S = 30.0
"""Seconds that processes get to end by themselves after one has failed, to report the reason."""
_PATIENCE_AFTER_KILL_S = 5.0
"""Seconds that they get after one was killed by a signal, since a checkpoint may be in progress.

A process notices the loss of another only when a message to it fails. One that waits for the others
to start, or computes without messages for minutes, does not notice it and must be ended."""
_LIKELY = {"SIGKILL": " (out of memory?)", "SIGBUS": " (was a file of the store truncated?)"}
"""Usual cause of a signal, as a supplement to the message."""


def size() -> int:
    """Return the number of processes that train one model together; 1 for a single process."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Return whether this is the process that writes the files and messages of the run."""
    return size() == 1 or int(os.environ.get("RANK", "0")) == 0


def is_supervised() -> bool:
    """Return whether a process with ``--processes`` started this one and reports how it ends."""
    return SUPERVISOR in os.environ


def is_orphan() -> bool:
    """Return whether the process that started this one for ``--processes`` has ended."""
    return is_supervised() and os.getppid() != int(os.environ[SUPERVISOR])


@contextmanager
def signals_handled_by(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Handle SIGINT and SIGTERM by ``handler`` in the block, unless they are ignored (nohup)."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = {k: v for k, v in handlers.items() if v not in (signal.SIG_IGN, None)}
    for number in replaced:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in replaced.items():
            signal.signal(number, previous)


def run_processes(words: Sequence[str], count: int) -> int:
    """Run ``graphlog WORDS`` as ``count`` processes and return the exit code of the run.

    Only the first process prints; the messages of another one are shown only if it ended the run.
    Ctrl-C and SIGTERM are passed on once to each process.
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
        stderrs = [files.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        workers = [_start(words, environment, rank, stderrs[rank]) for rank in range(count)]

        def pass_on(number: int, _: FrameType | None) -> None:
            for worker in workers:
                worker.send_signal(number)  # has no effect on one that has ended

        with signals_handled_by(pass_on):
            try:
                stopped = _wait(workers)
            finally:
                _end(workers)
        return _outcome(workers, stopped, stderrs)


def _start(
    words: Sequence[str], environment: dict[str, str], rank: int, stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    # in its own session, the process does not receive the terminal's Ctrl-C a second time
    return subprocess.Popen(
        [sys.executable, "-m", "graphlog", *words],
        env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        stdin=subprocess.DEVNULL,
        stdout=None if rank == 0 else subprocess.DEVNULL,
        stderr=None if rank == 0 else stderr,
        start_new_session=True,
    )


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> set[int]:
    """Kill the workers that still run, with their child processes, and return their ranks."""
    running = {rank for rank, worker in enumerate(workers) if worker.poll() is None}
    for rank in running:
        if os.name == "posix":
            os.killpg(workers[rank].pid, signal.SIGKILL)
        else:
            workers[rank].kill()
        workers[rank].wait()
    return running


def _wait(workers: Sequence[subprocess.Popen[bytes]]) -> set[int]:
    """Wait for all workers; return the ranks that were killed because another one had failed."""
    deadline = float("inf")
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
    workers: Sequence[subprocess.Popen[bytes]], stopped: set[int], stderrs: Sequence[IO[bytes]]
) -> int:
    """Return the exit code of the process that ended the run, and print its messages."""
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
        stderrs[rank].seek(0)
        sys.stderr.write(stderrs[rank].read().decode(errors="replace"))
    elif codes[rank] == PEER_LOST:
        raise GraphLoGError(
            "the processes lost each other; the last checkpoint is whole: continue with "
            f"{setting('resume', True)}.",
            option="resume",
        )
    return codes[rank]
