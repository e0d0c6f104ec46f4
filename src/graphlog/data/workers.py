"""Work spread over processes or a Ray cluster, results in order, never many pieces in flight."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from typing import Any, Literal, TypeVar, get_args

from graphlog.errors import (
    ConfigError,
    DataError,
    ProcessLostError,
    check_name,
    first_line,
    optional,
    out_of_range,
    setting,
)

Key = TypeVar("Key")
Piece = TypeVar("Piece")
Result = TypeVar("Result")
WORTH_A_POOL = 5
"""Pieces of work below which starting processes takes longer than doing it."""
_TEXTS_A_PIECE = 1000
Engine = Literal["local", "ray"]
ENGINES = get_args(Engine)

ADDRESS = "RAY_ADDRESS"
"""Variable that names the cluster: ``HOST:PORT`` of its head."""
_RETRIES = 3
"""Other workers that a piece is given to after one has died over it."""
_ANSWERS_WITHIN_S = 7.0
_HERE = "local"
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

_ray: ContextVar[Any] = ContextVar("_ray", default=None)
"""The module ``ray`` while a cluster is in use."""
_held: dict[Any, Any] = {}
"""In a worker: the work that it was last given, by its place in the object store."""


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
        raise out_of_range("workers", "0 or more", workers)
    return workers


def map_in_order(
    work: Callable[[Piece], Result], pieces: Iterable[tuple[Key, Piece]], workers: int
) -> Iterator[tuple[Key, Result]]:
    """Yield ``(key, work(piece))`` in the order of ``pieces``, which are ``(key, piece)``.

    Few pieces, or one worker, stay in this process. ``work`` must be a function of a module and its
    pieces plain data; keys stay in this process. The processes do not import the caller's script,
    so it needs no ``if __name__ == "__main__"``.

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
        raise DataError(
            f"a worker process died, killed or out of memory ({first_line(e)}); use fewer workers "
            "(1: none)."
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


def spread_in_order(
    work: Callable[[Piece], Result], pieces: Iterable[tuple[Key, Piece]], workers: int
) -> Iterator[tuple[Key, Result]]:
    """Do what :func:`map_in_order` does, on a cluster where one is in use.

    Neither ``work`` nor its pieces may hold paths: other machines do not have the files. It may be
    a method of an object that can be pickled, such as a model.

    Raises:
        DataError: If a process of this machine dies.
        ProcessLostError: If workers of the cluster die over a piece again and again, or lack code.
    """
    ray = _ray.get()
    return map_in_order(work, pieces, workers) if ray is None else _map(ray, work, pieces)


def spread_texts(
    work: Callable[[list[str]], Result], texts: Sequence[str], workers: int | None = None
) -> list[Result]:
    """Return what ``work`` finds in a thousand texts at a time, as :func:`spread_in_order` does.

    Processes are as many as :func:`check_workers` returns.
    """
    starts = range(0, len(texts), _TEXTS_A_PIECE)
    pieces = ((None, [str(text) for text in texts[k : k + _TEXTS_A_PIECE]]) for k in starts)
    return [found for _, found in spread_in_order(work, pieces, check_workers(workers))]


def device_for(engine: str, device: str) -> str:
    """Return where to compute: tasks of a cluster use processors.

    Raises:
        ConfigError: If the device is none that the engine has.
    """
    if engine != "ray" or device == "cpu":
        return device
    if device != "auto":
        raise ConfigError(
            f"{setting('engine', 'ray')} computes on processors; drop {setting('device', device)}.",
            option="device",
        )
    return "cpu"


@contextmanager
def using(engine: str, device: str = "cpu") -> Generator[None]:
    """Let :func:`spread_in_order` use an engine inside the block: ``local`` or ``ray``.

    Ray joins the cluster that the variable ``RAY_ADDRESS`` names, and starts one on this machine
    where there is none; a session that the caller has started is used and left as it is.

    Args:
        engine: Name of the engine.
        device: Kind of device that the model of the work is on.

    Raises:
        ConfigError: If there is no such engine or address, or the engine has no such device.
        MissingExtraError: If Ray is not installed.
        ProcessLostError: If the cluster does not answer.
    """
    check_name("engine", engine, ENGINES)
    if engine == "local":
        yield
        return
    if device != "cpu":
        raise ConfigError(
            f"engine 'ray' computes on processors and the model is on '{device}'; move it by "
            ".to('cpu') first."
        )
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with optional("ray", "ray"):
        import ray  # pyright: ignore[reportMissingImports]
    is_ours = not ray.is_initialized()
    if is_ours:
        address = os.environ.get(ADDRESS) or _HERE
        options: dict[str, Any] = {"num_cpus": available_workers(), "include_dashboard": False}
        if address != _HERE:
            _check_reachable(address)
            options = {}
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (OSError, RuntimeError, ValueError) as e:
            raise ProcessLostError(f"cannot use Ray at {address}: {first_line(e)}") from e
    token = _ray.set(ray)
    try:
        yield
    finally:
        _ray.reset(token)
        if is_ours:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address without a cluster; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise ConfigError(
            f"{ADDRESS} must be HOST:PORT of the head of a cluster, such as 10.0.0.1:6379, found "
            f"'{address}'."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN_S).close()
    except OSError as e:
        raise ProcessLostError(
            f"no Ray cluster answers at {address} ({e.strerror or e}); start one with `ray start "
            f"--head`, correct {ADDRESS}, or unset it to use this machine alone."
        ) from None


def _map(
    ray: Any, work: Callable[[Piece], Result], pieces: Iterable[tuple[Key, Piece]]
) -> Iterator[tuple[Key, Result]]:
    task: Any = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run)
    shared = [ray.put(work)]  # in a list, so that Ray passes the reference and not the object
    waiting: deque[tuple[Key, Any]] = deque()
    try:
        for key, piece in pieces:
            waiting.append((key, task.remote(shared, piece)))
            # asked every time: a cluster grows and shrinks
            if len(waiting) > 2 * ray.cluster_resources().get("CPU", 1):
                first, found = waiting.popleft()
                yield first, ray.get(found)
        while waiting:
            first, found = waiting.popleft()
            yield first, ray.get(found)
    except ray.exceptions.RayError as e:
        cause = getattr(e, "cause", None)  # what the work has raised
        if cause is not None and not isinstance(cause, ray.exceptions.RayError):
            raise cause from None
        said = first_line(e) if cause is None else str(cause).strip().splitlines()[-1]
        raise ProcessLostError(
            f"workers of the Ray cluster failed over the same rows {_RETRIES + 1} times ({said}); "
            "install the same versions of graphlog and its plug-ins on every machine, give the "
            "workers more memory, or embed and predict in smaller batches "
            f"({setting('batch_size')}).",
            option="batch_size",
        ) from e
    finally:
        for _, found in waiting:
            ray.cancel(found)


def _run(shared: list[Any], piece: Any) -> Any:
    """Do the work in a worker, which keeps it for the next piece, on one thread."""
    import ray  # pyright: ignore[reportMissingImports]

    if shared[0] not in _held:
        _held.clear()
        _held[shared[0]] = ray.get(shared[0])
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
    return _held[shared[0]](piece)
