"""Apply a function in several processes or on a Ray cluster, with results in order."""

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
"""Smallest number of pieces for which starting processes saves time."""
_TEXTS_A_PIECE = 1000
Engine = Literal["local", "ray"]
ENGINES = get_args(Engine)

ADDRESS = "RAY_ADDRESS"
"""Environment variable with the address of the cluster, ``HOST:PORT`` of its head."""
_RETRIES = 3
"""Number of times that a piece is repeated by other workers after a worker has died."""
_TIMEOUT_S = 7.0
"""Seconds to wait for an answer of the cluster."""
_THIS_MACHINE = "local"
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

_ray: ContextVar[Any] = ContextVar("_ray", default=None)
"""The module ``ray`` while a cluster is in use."""
_last_work: dict[Any, Any] = {}
"""In a worker, the function that it called last, by its reference in the object store."""


def available_workers() -> int:
    """Return the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_workers(workers: int | None) -> int:
    """Return the number of processes to use; None means one per core, 0 and 1 this process only."""
    if workers is not None and workers < 0:
        raise out_of_range("workers", "0 or more", workers)
    return available_workers() if workers is None else workers


def map_in_order(
    work: Callable[[Piece], Result], pieces: Iterable[tuple[Key, Piece]], workers: int
) -> Iterator[tuple[Key, Result]]:
    """Yield ``(key, work(piece))`` for each ``(key, piece)`` of ``pieces``, in their order.

    With few pieces or one worker, the work is done in this process. Otherwise ``work`` must be a
    function of a module and the pieces plain data; keys are not sent. The processes do not import
    the user's script, so it needs no ``if __name__ == "__main__"``. A DataError is raised if one
    dies.
    """
    stream = iter(pieces)
    head = list(islice(stream, WORTH_A_POOL if workers > 1 else 0))
    if workers < 2 or len(head) < WORTH_A_POOL:
        for key, piece in chain(head, stream):
            yield key, work(piece)
        return
    # unlike multiprocessing, loky does not run the user's script again in spawned processes, and
    # its processes do not inherit the threads of torch by a fork
    from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

    executor: Any = ProcessPoolExecutor(
        max_workers=workers, initializer=_end_with_parent, initargs=(os.getpid(),)
    )
    waiting: deque[tuple[Key, Future[Result]]] = deque()
    try:
        for key, piece in chain(head, stream):
            with _sigint_blocked():
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


def _end_with_parent(parent: int) -> None:
    """End this worker when its parent has ended, since it would wait for work forever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    if sys.platform != "win32":  # where getppid does not change when the parent ends
        threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _sigint_blocked() -> Generator[None]:
    """Delay Ctrl-C until the end of the block; processes started in the block ignore it.

    A terminal sends it to all processes. Each worker would print a traceback, although this process
    ends the workers.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its start would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def spread_in_order(
    work: Callable[[Piece], Result], pieces: Iterable[tuple[Key, Piece]], workers: int
) -> Iterator[tuple[Key, Result]]:
    """Yield the results of :func:`map_in_order`, computed on the cluster if one is in use.

    Neither ``work`` nor the pieces may contain paths, since other machines do not have the files.
    On a cluster, ``work`` may be a method of an object that can be pickled, such as a model. A
    ProcessLostError is raised if workers of the cluster die repeatedly, or do not have the code.
    """
    ray = _ray.get()
    return map_in_order(work, pieces, workers) if ray is None else _map_on_ray(ray, work, pieces)


def spread_texts(
    work: Callable[[list[str]], Result], texts: Sequence[str], workers: int | None = None
) -> list[Result]:
    """Return the results of ``work`` for each thousand texts, by :func:`spread_in_order`."""
    starts = range(0, len(texts), _TEXTS_A_PIECE)
    pieces = ((None, [str(text) for text in texts[k : k + _TEXTS_A_PIECE]]) for k in starts)
    return [result for _, result in spread_in_order(work, pieces, check_workers(workers))]


def device_for(engine: str, device: str) -> str:
    """Return the device to compute on: ``cpu`` with Ray, which accepts no other but ``auto``."""
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
    """Let :func:`spread_in_order` use an engine, ``local`` or ``ray``, in the block.

    Ray connects to the cluster of the variable ``RAY_ADDRESS``, or starts one on this machine. If
    the caller has initialized Ray, this session is used and not ended. The ``device`` is the type
    of that of the model.

    Raises:
        ConfigError: If the engine or address is invalid, or the engine does not have the device.
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
    is_new = not ray.is_initialized()
    if is_new:
        address = os.environ.get(ADDRESS) or _THIS_MACHINE
        options: dict[str, Any] = {"num_cpus": available_workers(), "include_dashboard": False}
        if address != _THIS_MACHINE:
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
        if is_new:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Check that a cluster answers at ``address``; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise ConfigError(
            f"{ADDRESS} must be HOST:PORT of the head of a cluster, such as 10.0.0.1:6379, found "
            f"'{address}'."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S).close()
    except OSError as e:
        raise ProcessLostError(
            f"no Ray cluster answers at {address} ({e.strerror or e}); start one with `ray start "
            f"--head`, correct {ADDRESS}, or unset it to use this machine alone."
        ) from None


def _map_on_ray(
    ray: Any, work: Callable[[Piece], Result], pieces: Iterable[tuple[Key, Piece]]
) -> Iterator[tuple[Key, Result]]:
    task: Any = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run)
    shared = [ray.put(work)]  # Ray passes a reference in a list unchanged
    waiting: deque[tuple[Key, Any]] = deque()
    try:
        for key, piece in pieces:
            waiting.append((key, task.remote(shared, piece)))
            # read again every time, since a cluster can grow and shrink
            if len(waiting) > 2 * ray.cluster_resources().get("CPU", 1):
                first, reference = waiting.popleft()
                yield first, ray.get(reference)
        while waiting:
            first, reference = waiting.popleft()
            yield first, ray.get(reference)
    except ray.exceptions.RayError as e:
        cause = getattr(e, "cause", None)  # the error that the work raised
        if cause is not None and not isinstance(cause, ray.exceptions.RayError):
            raise cause from None
        text = first_line(e) if cause is None else str(cause).strip().splitlines()[-1]
        raise ProcessLostError(
            f"workers of the Ray cluster failed over the same rows {_RETRIES + 1} times ({text}); "
            "install the same versions of graphlog and its plug-ins on every machine, give the "
            "workers more memory, or embed and predict in smaller batches "
            f"({setting('batch_size')}).",
            option="batch_size",
        ) from e
    finally:
        for _, reference in waiting:
            ray.cancel(reference)


def _run(shared: list[Any], piece: Any) -> Any:
    """Call the function in a worker, which keeps it for the next piece and uses one thread."""
    import ray  # pyright: ignore[reportMissingImports]

    reference = shared[0]
    if reference not in _last_work:
        _last_work.clear()
        _last_work[reference] = ray.get(reference)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
    return _last_work[reference](piece)
