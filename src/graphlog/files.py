"""Files that are whole or not there: written beside their place and renamed into it."""

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from graphlog.errors import GraphLoGError


@contextmanager
def beside(path: Path) -> Generator[Path]:
    """Give a path beside ``path`` to write to, and rename it into place after the block; nothing is left of it where that fails.

    Raises:
        OSError: As it comes, with the name of the file that was asked for.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as e:
        if e.filename not in (None, str(unfinished)):
            raise
        raise OSError(e.errno, e.strerror or str(e), str(path)) from None
    finally:
        with suppress(
            OSError
        ):  # on a disk that refuses even this, what went wrong first is what matters
            unfinished.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, advice: str = "") -> Generator[None]:
    """Turn a full disk or a read-only folder into one line.

    Raises:
        GraphLoGError: In place of any OSError of the block.
    """
    try:
        yield
    except OSError as e:
        remedy = advice or "free space or choose a folder you may write to"
        raise GraphLoGError(
            f"cannot write {e.filename or path}: {e.strerror or e}; {remedy}."
        ) from None


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Give a path beside ``path`` as :func:`beside` does, and say in one line what hindered it.

    Raises:
        GraphLoGError: In place of any OSError of the block.
    """
    with writing(path), beside(path) as unfinished:
        yield unfinished


def hash_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
