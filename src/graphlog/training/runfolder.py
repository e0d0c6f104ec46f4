"""The folder of a run: who may write to it, what lies in it, and its checkpoints.

A checkpoint is a folder of a safetensors file and a manifest, complete or not there at all.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from graphlog import __version__
from graphlog.errors import ConfigError, ModelFileError
from graphlog.files import acquire_lock, writing
from graphlog.training.precision import NumberFormat

if TYPE_CHECKING:
    from filelock import BaseFileLock

MODEL, CHECKPOINTS = "model.safetensors", "checkpoint"
FORMAT = "graphlog-checkpoint"
VERSION = 1
KEPT = 2
LABELED_KINDS = ("finetune", "probe")
"""Kinds of runs on labels, by their ``config.toml``; those of pre-training name none."""
_TENSORS, _MANIFEST = "state.safetensors", "manifest.json"
_LOCK = ".lock"
_FILES = (
    *("config.toml", "metrics.jsonl", MODEL, "versions.json", CHECKPOINTS),
    *("scores.json", "split.json"),  # of runs on labels
    "tensorboard",
)
_BAD_BATCH = re.compile(r"nonfinite-step-\d+\.json")
_UNFINISHED = re.compile(r"(.+)\.\d+\.partial")  # as written by graphlog.files.beside
_TARGETS = re.compile(r"targets-[0-9a-f]{16}\.(npy|f16|growing)")
_PACKAGES = (
    *("torch", "numpy", "rdkit", "scikit-learn"),
    *("safetensors", "pydantic", "torch_geometric"),
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
    def open(
        cls,
        path: Path,
        kind: str = "pretrain",
        *,
        resume: bool | None = False,
        overwrite: bool = False,
    ) -> Self:
        """Create, continue or empty the folder, and lock it against other processes.

        Arguments are those of :func:`check_usable`.

        Raises:
            ConfigError: If it exists and neither ``resume`` nor ``overwrite`` is set, if both are,
                or if another process is using it.
            GraphLoGError: If it cannot be written to.
        """
        check_usable(path, kind, resume, overwrite)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            lock = _lock(path)
            # a replaced run is removed, and always what a killed process was writing
            for entry in list(path.iterdir()):
                name = entry.name
                if not (_is_unfinished(name) or (overwrite and _belongs_to_run(name))):
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:  # of a link only the link: what it points to lies elsewhere
                    entry.unlink()
        return cls(path, lock)

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
    # its own word: a checkout that is not installed has no metadata
    packages = {"graphlog-torch": __version__}
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


def check_usable(path: Path, kind: str, resume: bool | None, overwrite: bool) -> None:
    """Check that a folder is free, or that of a run to be continued or replaced.

    Args:
        path: The folder.
        kind: ``pretrain``, ``finetune`` or ``probe``: what is to be run.
        resume: Whether the run is to be continued; None where such a run cannot be.
        overwrite: Whether it is to be replaced.

    Raises:
        ConfigError: If it is neither, or is to be both continued and replaced.
        GraphLoGError: If it cannot be looked into.
    """
    if resume and overwrite:
        raise ConfigError("`resume` and `overwrite` contradict each other; choose one.")
    with writing(path):
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file; name a folder for the run.")
        entries = [e for e in path.iterdir() if e.name != _LOCK] if path.exists() else []
    if entries and not (resume or overwrite):
        going_on = "" if resume is None else "continue it with `resume=True` or "
        raise ConfigError(f"run folder {path} exists; {going_on}replace it with `overwrite=True`.")
    known = all(_belongs_to_run(e.name) or _is_unfinished(e.name) for e in entries)
    found = _kind_of(path / "config.toml")
    if entries and not known and found is None:
        raise ConfigError(f"{path} holds other files and is no run folder; choose another folder.")
    if resume and found not in (None, kind):
        raise ConfigError(
            f"{path} holds a run of {found}, which {kind} cannot continue; name another folder, "
            "or replace it with `overwrite=True`."
        )


def _kind_of(config: Path) -> str | None:
    """Return the kind of run that a ``config.toml`` is of; None where it is another program's."""
    try:
        tables = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if {"objective", "training"} <= tables.keys():
        return "pretrain"
    kind = tables.get("kind")
    return kind if kind in LABELED_KINDS else None


def _belongs_to_run(name: str) -> bool:
    return name in _FILES or bool(_TARGETS.fullmatch(name) or _BAD_BATCH.fullmatch(name))


def _is_unfinished(name: str) -> bool:
    """Return whether a process of this folder was writing the file when it was killed."""
    found = _UNFINISHED.fullmatch(name)
    return found is not None and _belongs_to_run(found[1])


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


class _NewerFormatError(ModelFileError):
    """A checkpoint that a later version wrote: whole, but not ours to read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a run between two steps."""

    step: int
    """Optimizer steps done."""
    tensors: dict[str, Tensor]
    """``model.*``, ``objective.*``, ``optim.*`` and the sums of the running log row."""
    fields: dict[str, Any]
    """JSON-ready rest: cursor, configuration, digests, alarms said."""


def save_checkpoint(root: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint and remove all but the newest two.

    The folder appears under its final name by one rename, after its files have reached the disk: a
    process killed at any moment leaves the previous checkpoint as it was.
    """
    root.mkdir(exist_ok=True)
    final = root / f"step-{checkpoint.step:09d}"
    if final.exists():  # a run is a function of its step: what is there is what would be written
        return final
    partial = root / f"{final.name}.partial"
    _remove(partial)
    partial.mkdir()
    payload = safetensors.torch.save(
        {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
    )
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "step": checkpoint.step,
        "sha256": hashlib.sha256(payload).hexdigest(),
        "fields": checkpoint.fields,
    }
    manifest["checksum"] = _checksum(manifest)
    _write(partial / _TENSORS, payload)
    _write(partial / _MANIFEST, json.dumps(manifest, indent=1).encode())
    os.rename(partial, final)
    _sync(root)
    for old in _newest_first(root)[KEPT:]:
        _remove(old)
    return final


def load_checkpoint(root: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest checkpoint that is whole; None where none was ever completed.

    Raises:
        ModelFileError: If there are checkpoints but every one is damaged.
    """
    problems: list[str] = []
    for folder in _newest_first(root):
        try:
            found = _read(folder)
        except _NewerFormatError:
            raise  # an older checkpoint would be a step back, and starting again a loss
        except ModelFileError as e:
            problems.append(str(e))
            continue
        if problems:
            say(f"{problems[0]}; going back to the checkpoint of step {found.step}.")
        return found
    if problems:
        raise ModelFileError(
            f"{problems[0]}, and no older checkpoint is whole; start again with `overwrite=True`."
        )
    return None


def recorded_precision(root: Path) -> NumberFormat | None:
    """Return the number format that the run of these checkpoints computes in; None if unknown."""
    try:
        newest = load_checkpoint(root, lambda _: None)
    except ModelFileError:  # reported when the checkpoint is restored
        return None
    return None if newest is None else newest.fields.get("environment", {}).get("precision")


def discard_after(root: Path, step: int) -> None:
    """Remove checkpoints after ``step``, and what a killed process was writing."""
    for folder in _newest_first(root):
        if _step(folder) > step:
            _remove(folder)
    for folder in root.glob("step-*.partial"):
        shutil.rmtree(folder)


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _newest_first(root: Path) -> list[Path]:
    return sorted(
        (p for p in root.glob("step-*") if p.name.removeprefix("step-").isdigit()),
        key=_step,
        reverse=True,
    )


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _read(folder: Path) -> Checkpoint:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        payload = (folder / _TENSORS).read_bytes()
    except OSError as e:
        raise ModelFileError(
            f"checkpoint {folder} cannot be read ({Path(str(e.filename)).name}: {e.strerror})"
        ) from None
    except ValueError as e:
        raise ModelFileError(f"checkpoint {folder} cannot be read ({e})") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise ModelFileError(f"checkpoint {folder} was not written by graphlog")
    version: Any = manifest.get("version")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(version, int):
        raise ModelFileError(f"checkpoint {folder} is malformed (its manifest has no version)")
    if version > VERSION:
        reads = f"checkpoint format {version}, this one reads {VERSION}"
        raise _NewerFormatError(
            f"{folder}: written by a newer graphlog ({reads}); upgrade graphlog-torch."
        )
    checksum: Any = manifest.pop("checksum", None)
    if checksum != _checksum(manifest):
        raise ModelFileError(f"checkpoint {folder} is damaged (its manifest was changed)")
    try:
        if hashlib.sha256(payload).hexdigest() != manifest["sha256"]:
            raise ModelFileError(f"checkpoint {folder} is damaged (its sha256 does not match)")
        return Checkpoint(
            step=manifest["step"],
            tensors=safetensors.torch.load(payload),
            fields=manifest["fields"],
        )
    except (SafetensorError, KeyError) as e:
        raise ModelFileError(
            f"checkpoint {folder} is malformed ({type(e).__name__}: {e})"
        ) from None


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Return the hash of all other fields: a changed cursor or score would go unnoticed."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _write(path: Path, payload: bytes) -> None:
    with path.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Rename, then delete, so that a half-deleted folder never looks like a checkpoint."""
    if not folder.exists():
        return
    doomed = folder.with_name(folder.name + ".old.partial")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(folder, doomed)
    shutil.rmtree(doomed)
