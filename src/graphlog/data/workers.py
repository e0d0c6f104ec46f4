"""Work spread over processes, results in order, never more in flight than a few pieces."""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, TypeVar

from graphlog.errors import ConfigError, DataError

Key = TypeVar("Key")
Piece = TypeVar("Piece")
Result = TypeVar("Result")

WORTH_A_POOL = 5
"""Pieces of work below which starting processes takes longer than doing it."""


def available_workers() -> int:
    """Return the number of processor cores this process may use."""
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    )


def check_workers(workers: int | None) -> int:
    """Return the number of processes to use, all cores for None.

    Raises:
        ConfigError: If it is not a whole number from 0 (0 and 1: this process alone).
    """
    if workers is None:
        return available_workers()
    if workers < 0:
        raise ConfigError(f"`workers` must be 0 or more, found {workers}.")
    return workers


def map_in_order(
    work: Callable[[Piece], Result], pieces: Iterable[tuple[Key, Piece]], workers: int
) -> Iterator[tuple[Key, Result]]:
    """Yield ``(key, work(piece))`` in the order of ``pieces``, which are ``(key, piece)``.

    Few pieces, or one worker, stay in this process. ``work`` must be a function of a module and its
    pieces plain data; keys stay in this process. The processes do not import
    the caller's script, so it needs no ``if __name__ == "__main__"``.

    Raises:
        DataError: If a process dies.
    """
    stream = iter(pieces)
    head = list(islice(stream, WORTH_A_POOL if workers > 1 else 0))
    if workers < 2 or len(head) < WORTH_A_POOL:
        for key, piece in chain(head, stream):
            yield key, work(piece)
        return
    # not multiprocessing's: its spawned processes run the user's script again, its forked ones
    # inherit torch's threads
    from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

    executor: Any = ProcessPoolExecutor(
        max_workers=workers, initializer=_end_with, initargs=(os.getpid(),)
    )
    waiting: deque[tuple[Key, Future[Result]]] = deque()
    try:
        for key, piece in chain(head, stream):
            with _ctrl_c_held_back():
                waiting.append((key, executor.submit(work, piece)))
            if len(waiting) > 2 * workers:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    except BrokenProcessPool as e:
        said = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise DataError(
            f"a worker process died, killed or out of memory ({said}); use fewer workers (1: none)."
        ) from None
    finally:
        for _, future in waiting:
            future.cancel()
        executor.shutdown(wait=True)


def _end_with(parent: int) -> None:
    """End this worker when its parent has ended: it would wait for work for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    if sys.platform != "win32":  # there the number of a dead parent stays
        threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ctrl_c_held_back() -> Generator[None]:
    """Let Ctrl-C wait for the end of the block; processes started in it never hear it.

    A terminal sends it to all of them: the workers would each print a traceback, while this process
    ends them anyway.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started later, it would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
