"""The machine and the versions that figures depend on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

INSTRUCTION_SETS = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}


def machine() -> dict[str, Any]:
    """Return what figures depend on."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    about = {name.strip(): value for name, _, value in (line.partition(":") for line in lines)}
    packages = ("torch", "torch_geometric", "rdkit", "numpy")
    return {
        "cpu": about.get("model name", platform.processor()).strip(),
        "instruction_sets": sorted(INSTRUCTION_SETS.intersection(about.get("flags", "").split())),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
