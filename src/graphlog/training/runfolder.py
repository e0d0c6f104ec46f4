"""The folder of a run: its lock, its files and its checkpoints, which are written atomically."""

import os
import platform
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from graphlog import __version__
from graphlog.encoders.modelfile import NewerFormatError, read_tensors, write_tensors
from graphlog.errors import ConfigError, ModelFileError, setting
from graphlog.files import (
    MARK,
    UNFINISHED,
    acquire_lock,
    folder_kind,
    mark_folder,
    release_lock,
    writing,
)

if TYPE_CHECKING:
    from filelock import BaseFileLock

CONFIG, MODEL, CHECKPOINTS = "config.toml", "model.safetensors", "checkpoint"
KEPT = 2
"""Number of checkpoints that are kept."""
LABELED_KINDS = ("finetune", "probe")
"""Kinds of runs that use labels."""
RUNS = ("pretrain", *LABELED_KINDS)
"""Kinds of all runs."""
_LOCK, _LOCK_BYTES = ".lock", 20
"""Name of the lock file, and its largest size."""
_TARGETS = re.compile(r"targets-[0-9a-f]{16}\.safetensors")
_RUN_FILES = re.compile(
    r"config\.toml|metrics\.jsonl|model\.safetensors|(versions|input|scores|split)\.json"
    rf"|{_TARGETS.pattern}"
)
_STEP = re.compile(r"step-[0-9]{9,18}\.safetensors")
_STEP_OR_PART = re.compile(rf"{_STEP.pattern}(\.[0-9a-f]{{16}}\.partial)?")
_SEED = re.compile(r"(.*-)?seed-[0-9]+")
_EVENTS = re.compile(r"events\.out\.tfevents\..+")
_PACKAGES = (
    *("torch", "numpy", "rdkit", "scikit-learn"),
    *("safetensors", "pydantic", "torch_geometric"),
)


class RunFolder:
    """An existing, locked run folder."""

    def __init__(self, path: Path, lock: "BaseFileLock") -> None:
        self.path = path
        self._lock = lock
        self.config = path / CONFIG
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

        Raises:
            ConfigError: Like :func:`check_usable`, or if another process uses the folder.
            GraphLoGError: If the folder cannot be written to.
        """
        check_usable(path, kind, resume, overwrite)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            lock = _lock(path)
            if folder_kind(path) != kind:
                mark_folder(path, kind)
            if overwrite:
                remove_checkpoints(path / CHECKPOINTS)
                _clear(path / "tensorboard", _EVENTS)
            # unfinished files of a killed process are always removed
            for entry in list(path.iterdir()):
                if _is_unfinished(entry.name) or (overwrite and _RUN_FILES.fullmatch(entry.name)):
                    entry.unlink()  # removes a link, but not the file that it refers to
        return cls(path.absolute(), lock)  # a callback may change the working directory

    def remove_targets(self) -> None:
        """Remove the targets computed for this run: they are large and no longer needed."""
        for path in list(self.path.iterdir()):
            if _TARGETS.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """Unlock the folder."""
        release_lock(self._lock)


def versions(data_digest: str) -> dict[str, Any]:
    """Return the versions and the environment of a run, and the digest of its data."""
    # not from the metadata of the package, which exists only if it is installed
    packages = {"graphlog-torch": __version__}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "packages": packages,
        "data_digest": data_digest,
    }


def check_usable(
    path: Path, kind: str, resume: bool | None, overwrite: bool, model: object = None
) -> None:
    """Check that a folder is free, or has a run of this ``kind`` to continue or replace.

    ``resume`` is None if runs of this kind cannot continue. ``model`` is the model that a new run
    starts from, which may be a path.

    Raises:
        ConfigError: If the folder cannot be used, if ``resume`` and ``overwrite`` are both true, or
            if the folder to replace contains the model.
        GraphLoGError: If the folder cannot be read.
    """
    if resume and overwrite:
        raise ConfigError(
            f"{setting('resume')} and {setting('overwrite')} contradict each other; choose one.",
            option="resume",
        )
    with writing(path):
        if not path.exists() or (path.is_dir() and all(map(_is_left_over, path.iterdir()))):
            return
    present = folder_kind(path)
    noun, kinds = ("run", RUNS) if kind in RUNS else (kind, (kind,))
    if present not in kinds:
        advice = "choose another folder"
        if present is None and (path / MARK).is_file():
            advice = f"if it is one, its {MARK} is damaged: copy that of another {noun}"
        raise ConfigError(f"{path} is a file or holds other files, not a {noun}; {advice}.")
    if overwrite and isinstance(model, str | os.PathLike):
        file = Path(model)
        if file.exists() and path.samefile(file if file.is_dir() else file.parent):
            raise ConfigError(
                f"{path} holds the model to start from, which would be lost; name another folder.",
                option="overwrite",
            )
    if overwrite or (resume and present == kind):
        return
    state, advice = "exists", ""
    if resume:
        state = f"holds a run of {present}, which {kind} cannot continue"
    elif resume is not None:
        advice = f"continue it with {setting('resume', True)} or "
    raise ConfigError(
        f"{noun} folder {path} {state}; {advice}replace it with {setting('overwrite', True)}.",
        option="overwrite",
    )


def _is_left_over(entry: Path) -> bool:
    """Return whether the entry is a lock or unfinished file of a run that never started."""
    if entry.name != _LOCK:
        return _is_unfinished(entry.name)
    is_plain = entry.is_file() and not entry.is_symlink() and entry.stat().st_size <= _LOCK_BYTES
    return is_plain and re.fullmatch(rb"[0-9]*", entry.read_bytes()) is not None


def _is_unfinished(name: str) -> bool:
    """Return whether this is an unfinished file of a run, left by a killed process."""
    match = UNFINISHED.fullmatch(name)
    return match is not None and (match[1] == MARK or _RUN_FILES.fullmatch(match[1]) is not None)


def is_of_run(file: Path) -> bool:
    """Return whether the file is part of a run, so that no other command may replace it."""
    is_run = folder_kind(file.absolute().parent) in RUNS
    return is_run and _RUN_FILES.fullmatch(file.name) is not None


def remove_checkpoints(root: Path) -> None:
    """Remove the checkpoints in a folder, and the folder if nothing else is in it."""
    _clear(root, _STEP_OR_PART)


def remove_run(path: Path, kind: str) -> None:
    """Remove the files of a run, and the folder if nothing else is in it."""
    RunFolder.open(path, kind, overwrite=True).close()
    for name in (_LOCK, MARK):
        (path / name).unlink(missing_ok=True)
    with suppress(OSError):
        path.rmdir()


def _clear(root: Path, names: re.Pattern[str]) -> None:
    """Remove matching files in ``root`` and its folders of seeds, and each folder if empty."""
    if root.is_symlink():
        root.unlink()
    if not root.is_dir():
        return
    for entry in list(root.iterdir()):
        if _SEED.fullmatch(entry.name):
            _clear(entry, names)
        elif names.fullmatch(entry.name) and not entry.is_dir():
            entry.unlink()
    with suppress(OSError):
        root.rmdir()


def is_in_use(path: Path) -> bool:
    """Return whether a process is writing the run in a folder."""
    with suppress(OSError):
        if (path / _LOCK).is_file():
            lock = acquire_lock(path / _LOCK)
            if lock is None:
                return True
            release_lock(lock)
    return False


def _lock(path: Path) -> "BaseFileLock":
    """Lock ``path/.lock`` and write the process ID to it."""
    file = path / _LOCK
    lock = acquire_lock(file)
    if lock is None:
        holder = ""
        with suppress(OSError):
            holder = file.read_text(encoding="ascii", errors="replace")[:32].strip()
        raise ConfigError(
            f"run folder {path} is in use by process {holder or '(unknown)'}; wait for it to end "
            "or choose another folder."
        )
    with suppress(OSError):  # on Windows a locked file cannot be written
        file.write_text(str(os.getpid()), encoding="ascii")
    return lock


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a run between two steps."""

    step: int
    """Number of optimizer steps done."""
    tensors: dict[str, Tensor]
    """Tensors of model (``model.*``), objective, optimizer (``optim.*``) and current log row."""
    fields: dict[str, Any]
    """All other state, JSON-ready: cursor, settings, digests, alarms."""


def save_checkpoint(root: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint atomically, and then remove all but the newest two."""
    root.mkdir(exist_ok=True)
    path = root / f"step-{checkpoint.step:09d}.safetensors"
    if not path.exists():  # an existing file is equal, since runs are deterministic
        tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
        write_tensors(
            path, "checkpoint", {"step": checkpoint.step, "fields": checkpoint.fields}, tensors
        )
        _keep(root, _newest_first(root)[:KEPT])
    return path


def load_checkpoint(root: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest undamaged checkpoint; None if there are no checkpoints.

    ``say`` is called with a message if newer checkpoints are damaged.

    Raises:
        ModelFileError: If every checkpoint is damaged, or one has a newer format.
    """
    problem = ""
    for path in _newest_first(root):
        try:
            about, tensors = read_tensors(path, "checkpoint")
            checkpoint = Checkpoint(about["step"], tensors, about["fields"])
        except NewerFormatError:
            raise  # falling back to an older checkpoint would lose work
        except ModelFileError as e:
            problem = problem or str(e)
        except KeyError as e:
            problem = problem or f"{path}: lacks {e}."
        else:
            if problem:
                say(f"{problem} Going back to the checkpoint of step {checkpoint.step}.")
            return checkpoint
    if problem:
        raise ModelFileError(
            f"{problem} No older checkpoint is whole; start again with "
            f"{setting('overwrite', True)}.",
            option="overwrite",
        )
    return None


def discard_after(root: Path, step: int) -> None:
    """Remove checkpoints after ``step``."""
    _keep(root, [path for path in _newest_first(root) if _step(path) <= step])


def _keep(root: Path, kept: Collection[Path]) -> None:
    """Remove all other checkpoints, including unfinished ones of killed processes."""
    for path in list(root.iterdir()):
        if _STEP_OR_PART.fullmatch(path.name) and not path.is_dir() and path not in kept:
            path.unlink()


def _newest_first(root: Path) -> list[Path]:
    files = (path for path in root.glob("step-*") if _STEP.fullmatch(path.name) and path.is_file())
    return sorted(files, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
