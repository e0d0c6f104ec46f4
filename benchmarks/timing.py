"""What timings of sides that take turns are made of, and the machine that they depend on."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

INSTRUCTION_SETS = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}


def clocked(
    work: Callable[[int], object], clock: Callable[[], Any] = time.process_time
) -> Callable[[int], Any]:
    """Return ``work`` that returns its seconds.

    Args:
        work: Called with the number of the turn.
        clock: By default the processor's, which other jobs disturb least.
    """

    def run(number: int) -> Any:
        began = clock()
        work(number)
        return clock() - began

    return run


def ratios(base: list[float], other: list[float]) -> list[float]:
    """Return how many times faster than ``base`` the other side is, turn by turn, sorted."""
    return sorted(b / o for b, o in zip(base, other, strict=True))


def summary(seconds: list[float], graphs: int) -> dict[str, Any]:
    """Return median, quartiles and all values."""
    first, _, third = quantiles(seconds, n=4) if len(seconds) > 1 else (seconds[0],) * 3
    quartiles = {"first_quartile_s": first, "third_quartile_s": third}
    rate = graphs / median(seconds)
    return {"median_s": median(seconds), **quartiles, "graphs_per_s": rate, "steps_s": seconds}


def machine() -> dict[str, Any]:
    """Return what figures depend on."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    named = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    flags = {word for line in lines if line.startswith("flags") for word in line.split()}
    packages = ("torch", "torch_geometric", "rdkit", "numpy")
    return {
        "cpu": next(named, platform.processor()),
        "instruction_sets": sorted(flags & INSTRUCTION_SETS),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
