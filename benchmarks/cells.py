"""Finished cells of a script in one compressed file, a JSON a line; a killed script loses none."""

import gzip
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

import graphlog


class Cells:
    """Cells by name in a ``.jsonl.gz`` file. One process writes at a time.

    Args:
        path: The file; created by the first cell.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cells: dict[str, dict[str, Any]] = {}
        if path.exists():
            with gzip.open(path, "rt", encoding="utf-8") as file:
                self._cells = {cell.pop("name"): cell for cell in map(json.loads, file)}

    def __contains__(self, name: str) -> bool:
        return name in self._cells

    def named(self, prefix: str = "") -> dict[str, dict[str, Any]]:
        """Return the cells whose names begin with ``prefix``, sorted by name."""
        return {name: cell for name, cell in sorted(self._cells.items()) if name.startswith(prefix)}

    def add(self, name: str, cell: dict[str, Any]) -> None:
        """Add a cell and replace the file in one piece."""
        self._cells[name] = {**cell, "machine": machine(), "graphlog": graphlog.__version__}
        self.save()

    def save(self) -> None:
        """Write all cells, sorted by name: equal cells give equal bytes."""
        lines = [json.dumps({"name": n, **c}, sort_keys=True) for n, c in self.named().items()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".writing")
        unfinished.write_bytes(gzip.compress("".join(f"{x}\n" for x in lines).encode(), mtime=0))
        unfinished.replace(self.path)


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    return {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
        "torch": torch.__version__,
    }
