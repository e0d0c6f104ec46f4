"""The folder of a run: who may write to it, and what lies in it."""

import json
import os
import platform
import re
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import torch

from graphlog import __version__
from graphlog.errors import ConfigError
from graphlog.files import replacing, writing

_LOCK = ".lock"
_OURS = ("config.toml", "metrics.jsonl", "model.safetensors", "versions.json", "checkpoint")
_TARGETS = re.compile(r"targets-[0-9a-f]{16}\.(npy|growing)")
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

    def __init__(self, path: Path, lock: int) -> None:
        """Take over a folder whose lock is held as the file descriptor ``lock``."""
        self.path = path
        self._lock = lock
        self.config = path / "config.toml"
        self.metrics = path / "metrics.jsonl"
        self.model = path / "model.safetensors"
        self.versions = path / "versions.json"
        self.checkpoints = path / "checkpoint"

    @classmethod
    def open(cls, path: Path, *, resume: bool = False, overwrite: bool = False) -> Self:
        """Create, continue or empty the folder, and lock it against other processes.

        Raises:
            ConfigError: If it exists and neither ``resume`` nor ``overwrite`` is given, both are, or
                another process is using it.
            GraphLoGError: If it cannot be written to.
        """
        if resume and overwrite:
            raise ConfigError("`resume` and `overwrite` contradict each other: choose one.")
        with writing(path):
            _check_usable(path, resume or overwrite)
            path.mkdir(parents=True, exist_ok=True)
            lock = _acquire(path)
            # an old run goes when it is replaced; what a killed process was writing goes always
            for entry in filter(_is_ours, list(path.iterdir())):
                if overwrite or entry.name.endswith(".partial"):
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        return cls(path, lock)

    def write(self, path: Path, text: str) -> None:
        """Write a text file in one piece."""
        with replacing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")

    def write_json(self, path: Path, fields: dict[str, Any]) -> None:
        """Write a JSON file in one piece."""
        self.write(path, json.dumps(fields, indent=1) + "\n")

    def forget_targets(self) -> None:
        """Remove the targets that were worked out for this run; they are large, and a run that has ended needs them no more."""
        for path in filter(_holds_targets, list(self.path.iterdir())):
            with suppress(OSError):
                path.unlink()

    def close(self) -> None:
        """Let other processes in."""
        os.close(self._lock)


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
    if entries and not (path / "config.toml").exists() and not all(map(_is_ours, entries)):
        raise ConfigError(f"{path} holds other files and is no run folder; choose another folder.")


def _is_ours(entry: Path) -> bool:
    return (
        entry.name in _OURS
        or entry.name.endswith(".partial")
        or entry.match("nonfinite-step-*.json")
        or _holds_targets(entry)
    )


def _holds_targets(entry: Path) -> bool:
    return _TARGETS.fullmatch(entry.name) is not None and entry.is_file()


def _acquire(path: Path) -> int:
    """Lock ``path/.lock``; the operating system frees it when the process ends, however it ends."""
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    if not try_lock(descriptor):
        holder = (
            os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            if hasattr(os, "pread")
            else ""
        )
        os.close(descriptor)
        who = f"process {holder}" if holder else "another process"
        raise ConfigError(
            f"run folder {path} is in use by {who}; wait for it to end or choose another folder."
        )
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int) -> bool:
        """Lock an open file if no other process has; the lock goes when the file is closed or its process ends."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Lock an open file if no other process has; the lock goes when the file is closed or its process ends."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
