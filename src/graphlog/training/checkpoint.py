"""Checkpoints: folders of a safetensors file and a manifest, complete or not there at all."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from graphlog.errors import ModelFileError

FORMAT = "graphlog-checkpoint"
VERSION = 2
KEPT = 2
_TENSORS, _MANIFEST = "state.safetensors", "manifest.json"


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
            f"{problems[0]}, and no older checkpoint is whole; start again with --overwrite."
        )
    return None


def recorded_precision(root: Path) -> Literal["fp32", "bf16"] | None:
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
    if (checksum is not None or version > 1) and checksum != _checksum(manifest):
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
