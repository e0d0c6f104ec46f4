"""The folder of a run: who may write to it, what lies in it, and its checkpoints.

A checkpoint is a file, complete or not there at all.
"""

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
LABELED_KINDS = ("finetune", "probe")
"""Kinds of runs on labels."""
RUNS = ("pretrain", *LABELED_KINDS)
"""Kinds of all runs."""
_LOCK, _LOCK_BYTES = ".lock", 20
_TARGETS = re.compile(r"targets-[0-9a-f]{16}\.safetensors")
_OURS = re.compile(
    r"config\.toml|metrics\.jsonl|model\.safetensors|(versions|input|scores|split)\.json"
    rf"|nonfinite-step-\d+\.json|{_TARGETS.pattern}"
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
            ConfigError: As :func:`check_usable`, or if another process is using it.
            GraphLoGError: If it cannot be written to.
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
            # always what a killed process was writing
            for entry in list(path.iterdir()):
                if _is_unfinished(entry.name) or (overwrite and _OURS.fullmatch(entry.name)):
                    entry.unlink()  # of a link only the link: what it points to lies elsewhere
        return cls(path, lock)

    def remove_targets(self) -> None:
        """Remove the targets computed for this run: they are large and no longer needed."""
        for path in list(self.path.iterdir()):
            if _TARGETS.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """Let other processes in."""
        release_lock(self._lock)


def versions(data_digest: str) -> dict[str, Any]:
    """Return what a run depends on besides its settings: packages, platform, threads, data."""
    # its own word: a checkout that is not installed has no metadata
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
    """Check that a folder is free, or that of a run of this ``kind`` to be continued or replaced.

    ``resume`` is None where such a run cannot be continued; ``model`` is what a new one starts
    from, which may be named.

    Raises:
        ConfigError: If it is neither, is to be both continued and replaced, or is to be replaced
            and holds the model.
        GraphLoGError: If it cannot be looked into.
    """
    if resume and overwrite:
        raise ConfigError(
            f"{setting('resume')} and {setting('overwrite')} contradict each other; choose one.",
            option="resume",
        )
    with writing(path):
        if not path.exists() or (path.is_dir() and all(map(_is_left_over, path.iterdir()))):
            return
    found = folder_kind(path)
    what, kinds = ("run", RUNS) if kind in RUNS else (kind, (kind,))
    if found not in kinds:
        advice = "choose another folder"
        if found is None and (path / MARK).is_file():
            advice = f"if it is one, its {MARK} is damaged: copy that of another folder of {kind}"
        raise ConfigError(f"{path} is a file or holds other files, not a {what}; {advice}.")
    if overwrite and isinstance(model, str | os.PathLike):
        own = Path(model)
        if own.exists() and path.samefile(own if own.is_dir() else own.parent):
            raise ConfigError(
                f"{path} holds the model to start from, which would be lost; name another folder.",
                option="overwrite",
            )
    if overwrite or (resume and found == kind):
        return
    state, going_on = "exists", ""
    if resume:
        state = f"holds a run of {found}, which {kind} cannot continue"
    elif resume is not None:
        going_on = f"continue it with {setting('resume', True)} or "
    raise ConfigError(
        f"{what} folder {path} {state}; {going_on}replace it with {setting('overwrite', True)}.",
        option="overwrite",
    )


def _is_left_over(entry: Path) -> bool:
    """Return whether a run that ended before it began may have left the entry."""
    if entry.name != _LOCK:
        return _is_unfinished(entry.name)
    is_plain = entry.is_file() and not entry.is_symlink() and entry.stat().st_size <= _LOCK_BYTES
    return is_plain and re.fullmatch(rb"[0-9]*", entry.read_bytes()) is not None


def _is_unfinished(name: str) -> bool:
    """Return whether a process of this folder was writing the file when it was killed."""
    found = UNFINISHED.fullmatch(name)
    return found is not None and (found[1] == MARK or _OURS.fullmatch(found[1]) is not None)


def is_of_run(file: Path) -> bool:
    """Return whether a run wrote the file, which no later command is to replace."""
    is_run = folder_kind(file.absolute().parent) in RUNS
    return is_run and _OURS.fullmatch(file.name) is not None


def remove_checkpoints(root: Path) -> None:
    """Remove the checkpoints below a folder, and the folder if it holds nothing else."""
    _clear(root, _STEP_OR_PART)


def remove_run(path: Path, kind: str) -> None:
    """Remove what a run wrote, and the folder if it holds nothing else."""
    RunFolder.open(path, kind, overwrite=True).close()
    for name in (_LOCK, MARK):
        (path / name).unlink(missing_ok=True)
    with suppress(OSError):
        path.rmdir()


def _clear(root: Path, ours: re.Pattern[str]) -> None:
    """Remove our files, those of each seed too, and the folder if it holds nothing else."""
    if root.is_symlink():
        root.unlink()
    if not root.is_dir():
        return
    for entry in list(root.iterdir()):
        if _SEED.fullmatch(entry.name):
            _clear(entry, ours)
        elif ours.fullmatch(entry.name) and not entry.is_dir():
            entry.unlink()
    with suppress(OSError):
        root.rmdir()


def _lock(path: Path) -> "BaseFileLock":
    """Lock ``path/.lock`` and write the number of this process there."""
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
    with suppress(OSError):  # Windows lets nobody write to a locked file
        file.write_text(str(os.getpid()), encoding="ascii")
    return lock


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

    The file appears under its name by one rename, after its content has reached the disk: a
    process killed at any moment leaves the previous checkpoint as it was.
    """
    root.mkdir(exist_ok=True)
    path = root / f"step-{checkpoint.step:09d}.safetensors"
    if not path.exists():  # a run is a function of its step: what is there is what would be written
        tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
        write_tensors(
            path, "checkpoint", {"step": checkpoint.step, "fields": checkpoint.fields}, tensors
        )
        _keep(root, _newest_first(root)[:KEPT])
    return path


def load_checkpoint(root: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest checkpoint that is whole; None where none was ever completed.

    Raises:
        ModelFileError: If there are checkpoints but every one is damaged.
    """
    problem = ""
    for path in _newest_first(root):
        try:
            about, tensors = read_tensors(path, "checkpoint")
            found = Checkpoint(about["step"], tensors, about["fields"])
        except NewerFormatError:
            raise  # an older checkpoint would be a step back, and starting again a loss
        except ModelFileError as e:
            problem = problem or str(e)
        except KeyError as e:
            problem = problem or f"{path}: lacks {e}."
        else:
            if problem:
                say(f"{problem} Going back to the checkpoint of step {found.step}.")
            return found
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
    """Remove all other checkpoints, also what a killed process was writing."""
    for path in list(root.iterdir()):
        if _STEP_OR_PART.fullmatch(path.name) and not path.is_dir() and path not in kept:
            path.unlink()


def _newest_first(root: Path) -> list[Path]:
    found = (path for path in root.glob("step-*") if _STEP.fullmatch(path.name) and path.is_file())
    return sorted(found, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
