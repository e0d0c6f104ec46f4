"""The folder of a run: who may write to it, and what lies in it."""

import json
import os
import platform
import re
import shutil
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from graphlog import __version__
from graphlog.errors import ConfigError
from graphlog.files import acquire_lock, replacing, writing

if TYPE_CHECKING:
    from filelock import BaseFileLock

MODEL, CHECKPOINTS = "model.safetensors", "checkpoint"
_LOCK = ".lock"
_FILES = (
    *("config.toml", "metrics.jsonl", MODEL, "versions.json", CHECKPOINTS),
    *("scores.json", "split.json"),  # of fine-tuning
    "tensorboard",
)
_BAD_BATCH = re.compile(r"nonfinite-step-\d+\.json")
_UNFINISHED = re.compile(r"(.+)\.\d+\.partial")  # as written by graphlog.files.beside
_TARGETS = re.compile(r"targets-[0-9a-f]{16}\.(npy|f16|growing)")
_PACKAGES = (
    "torch",
    "numpy",
    "rdkit",
    "scikit-learn",
    "safetensors",
    "pydantic",
    "torch_geometric",
)


class RunFolder:
    """An existing, locked run folder."""

    def __init__(self, path: Path, lock: "BaseFileLock") -> None:
        self.path = path
        self._lock = lock
        self.config = path / "config.toml"
        self.metrics = path / "metrics.jsonl"
        self.model = path / MODEL
        self.versions = path / "versions.json"
        self.checkpoints = path / CHECKPOINTS

    @classmethod
    def open(cls, path: Path, *, resume: bool = False, overwrite: bool = False) -> Self:
        """Create, continue or empty the folder, and lock it against other processes.

        Raises:
            ConfigError: If it exists and neither ``resume`` nor ``overwrite`` is set, if both are,
                or if another process is using it.
            GraphLoGError: If it cannot be written to.
        """
        if resume and overwrite:
            raise ConfigError("`resume` and `overwrite` contradict each other: choose one.")
        with writing(path):
            _check_usable(path, resume or overwrite)
            path.mkdir(parents=True, exist_ok=True)
            lock = _lock(path)
            # a replaced run is removed, and always what a killed process was writing
            for entry in list(path.iterdir()):
                name = entry.name
                if _is_unfinished(name) or (overwrite and _belongs_to_run(name)):
                    _remove(entry)
        return cls(path, lock)

    def write(self, path: Path, text: str) -> None:
        """Write a text file in one piece."""
        with replacing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")

    def write_json(self, path: Path, fields: dict[str, Any]) -> None:
        """Write a JSON file in one piece."""
        self.write(path, json.dumps(fields, indent=1) + "\n")

    def remove_targets(self) -> None:
        """Remove the targets computed for this run: they are large and no longer needed."""
        for path in list(self.path.iterdir()):
            if _TARGETS.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """Let other processes in."""
        self._lock.release()


def versions(data_digest: str) -> dict[str, Any]:
    """Return what a run depends on besides its settings: packages, platform, threads, data."""
    packages = {
        "graphlog-torch": __version__
    }  # its own word: a checkout that is not installed has no metadata
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "packages": packages,
        "data_digest": data_digest,
    }


def _check_usable(path: Path, may_exist: bool) -> None:
    """Raise ConfigError unless ``path`` is free, or a run folder that may be worked on."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file; name a folder for the run.")
    entries = [e for e in path.iterdir() if e.name != _LOCK] if path.exists() else []
    if entries and not may_exist:
        raise ConfigError(
            f"run folder {path} exists; continue it with --resume or replace it with --overwrite."
        )
    known = all(_belongs_to_run(e.name) or _is_unfinished(e.name) for e in entries)
    if entries and not known and not _is_of_run(path / "config.toml"):
        raise ConfigError(f"{path} holds other files and is no run folder; choose another folder.")


def _is_of_run(config: Path) -> bool:
    """Return whether a ``config.toml`` is one of ours: other programs have files of that name."""
    try:
        tables = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return {"objective", "training"} <= tables.keys() or tables.get("kind") == "finetune"


def _belongs_to_run(name: str) -> bool:
    return name in _FILES or bool(_TARGETS.fullmatch(name) or _BAD_BATCH.fullmatch(name))


def _is_unfinished(name: str) -> bool:
    """Return whether a process of this folder was writing the file when it was killed."""
    found = _UNFINISHED.fullmatch(name)
    return found is not None and _belongs_to_run(found[1])


def _remove(entry: Path) -> None:
    """Remove a file or folder; of a link only the link, for what it points to lies elsewhere."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()


def _lock(path: Path) -> "BaseFileLock":
    """Lock ``path/.lock`` and write the number of this process there."""
    file = path / _LOCK
    lock = acquire_lock(file)
    if lock is None:
        holder = ""
        with suppress(OSError):
            holder = file.read_text(encoding="ascii", errors="replace")[:32].strip()
        who = f"process {holder}" if holder else "another process"
        raise ConfigError(
            f"run folder {path} is in use by {who}; wait for it to end or choose another folder."
        )
    with suppress(OSError):  # Windows lets nobody write to a locked file
        file.write_text(str(os.getpid()), encoding="ascii")
    return lock
