"""What the stages share: where they work, and what every cell tells of its making."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from graphlog.benchmark.cells import Folder
from graphlog.benchmark.grid import CellSpec
from graphlog.benchmark.sources import Graphs
from graphlog.training.config import PretrainConfig
from graphlog.training.log import Progress
from graphlog.training.precision import choose_device
from graphlog.training.runfolder import versions

Found = dict[str, Any]
"""What a cell holds beyond its name and settings."""
_PACKAGES = ("graphlog-torch", "torch", "rdkit", "scikit-learn")


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where cells are computed and who is told."""

    folder: Folder
    graphs: Graphs
    progress: Progress
    measured: dict[Any, dict[str, dict[str, Any]]] = field(
        default_factory=dict[Any, dict[str, dict[str, Any]]]
    )
    """Throughputs that were measured together, by what was."""


def settings_of(spec: CellSpec) -> PretrainConfig:
    """Return the settings of a cell that has an encoder."""
    if spec.pretraining is None:
        raise ValueError(f"{spec.title} has no encoder")
    return spec.pretraining


def facts(spec: CellSpec, data: Mapping[str, Any], seconds: float, rate: float | None) -> Found:
    """Return what every cell tells: data, time, versions, machine."""
    packages = versions("")["packages"]
    return {
        "data": dict(data),
        "seconds": round(seconds, 3),
        "graphs_per_s": None if rate is None else round(rate, 1),
        "versions": {name: packages[name] for name in _PACKAGES if name in packages},
        "machine": machine("cpu" if spec.pretraining is None else spec.pretraining.device),
        "notes": [],
    }


def machine(device: str) -> dict[str, Any]:
    """Return what the numbers were computed on."""
    chosen = choose_device(device)
    name = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else "cpu"
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": name,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
