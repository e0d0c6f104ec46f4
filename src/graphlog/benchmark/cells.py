"""The folder of a benchmark: finished cells, models, locks; safe for several processes and for sudden death."""

import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphlog.benchmark.grid import NOT_OF_THE_OUTCOME, CellSpec
from graphlog.downstream.report import json_ready
from graphlog.errors import ConfigError
from graphlog.files import acquire_lock, replacing, writing

FORMAT, VERSION = "graphlog-cell", 1
_LABELS = ("suite", "scale", "method", "backbone", "variant")
"""What a cell is called, as opposed to what it found."""


class Folder:
    """A folder that a benchmark is computed in."""

    def __init__(self, path: Path) -> None:
        """Name the folder; it is made by the first cell.

        Raises:
            ConfigError: If there is a file of that name.
        """
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file; name a folder for the benchmark.")
        self.path = path
        self.cells, self.models, self.runs = path / "cells", path / "models", path / "runs"
        self.stores, self.locks, self.failures = (
            path / "stores",
            path / "locks",
            path / "failures.jsonl",
        )

    def make(self) -> None:
        """Make the folders.

        Raises:
            GraphLoGError: If that is not possible.
        """
        with writing(self.path):
            for folder in (self.cells, self.models, self.runs, self.stores, self.locks):
                folder.mkdir(parents=True, exist_ok=True)

    def model(self, spec: CellSpec) -> Path:
        """Return the run folder of the model that a cell makes or needs."""
        return self.models / spec.model

    def read(self, spec: CellSpec) -> dict[str, Any] | None:
        """Return a finished cell.

        A file that is damaged, or whose settings are not those of ``spec``, is as good as none. Settings that the
        program did not have when the file was written do not matter: at their defaults they change nothing.
        """
        found = _parsed(self.cells / f"{spec.key}.json")
        if (
            found is None
            or found.get("config_hash") != spec.config_hash
            or not _agree(found.get("config", {}), spec.config)
        ):
            return None
        return found

    def has(self, spec: CellSpec) -> bool:
        """Return whether a cell is finished; one that another suite has computed under another name is entered under this one."""
        if self.read(spec) is not None:
            return True
        twin = self._twin(spec)
        if twin is None:
            return False
        self.write(spec, {key: value for key, value in twin.items() if key not in _LABELS})
        return True

    def write(self, spec: CellSpec, found: Mapping[str, Any]) -> None:
        """Write a finished cell in one piece."""
        head = {
            "format": FORMAT,
            "version": VERSION,
            "stage": spec.stage,
            "suite": spec.suite,
            "scale": spec.scale,
        }
        head |= {
            "domain": spec.domain,
            "method": spec.method.name,
            "backbone": spec.backbone,
            "variant": dict(spec.variant),
        }
        head |= {"dataset": spec.dataset, "seed": spec.seed, "command": spec.command}
        fields = {**found, **head, "config": spec.config, "config_hash": spec.config_hash}
        with replacing(self.cells / f"{spec.key}.json") as unfinished:
            unfinished.write_text(
                json.dumps(json_ready(fields), indent=1, sort_keys=True) + "\n", encoding="utf-8"
            )

    def fail(self, spec: CellSpec, error: Exception) -> None:
        """Put a cell that could not be computed on the list of failures."""
        row = {
            "cell": spec.key,
            "error": str(error),
            "kind": type(error).__name__,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        with writing(self.failures), self.failures.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps(row) + "\n"
            )  # one write of one short line: processes do not cut into each other

    @contextmanager
    def claimed(self, name: str, *, wait: bool = False) -> Generator[bool]:
        """Hold the lock ``name`` inside the block; give False at once if another process does, or ``wait`` for it.

        The operating system frees the lock of a process that dies.
        """
        with writing(self.locks):
            lock = acquire_lock(self.locks / f"{name}.lock", wait=wait)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                lock.release()

    def _twin(self, spec: CellSpec) -> dict[str, Any] | None:
        for path in sorted(self.cells.glob(f"{spec.stage}-*-{spec.config_hash[:8]}.json")):
            found = _parsed(path)
            if (
                found is not None
                and found.get("config_hash") == spec.config_hash
                and _agree(found.get("config", {}), spec.config)
            ):
                return found
        return None


def _parsed(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None  # pyright: ignore[reportUnknownVariableType]


def _agree(before: Any, now: Any) -> bool:
    """Return whether two settings are equal wherever both say something that decides the outcome."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return all(
            _agree(before[key], now[key]) for key in before.keys() & now.keys() - NOT_OF_THE_OUTCOME
        )  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return json.dumps(before) == json.dumps(now) or before == now
