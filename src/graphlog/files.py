"""Files that are whole or not there, and text from files compressed or not, UTF-8 or Latin-1."""

import bz2
import codecs
import csv
import ctypes
import errno
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import secrets
import shutil
import stat
import sys
import warnings
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from graphlog.errors import DataError, GraphLoGError, optional

if TYPE_CHECKING:
    from filelock import BaseFileLock

EXCEL_SAFE: ContextVar[bool] = ContextVar("EXCEL_SAFE", default=False)
"""Whether :func:`open_csv` writes what spreadsheets take for formulas as text."""
LONGEST_LINE = 1 << 26
"""Characters of a line; a file without line ends is no table and must not fill the memory."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
"""Endings of compressed files."""
LOCK = "lock"
"""Name of the lock in a folder of unfinished files."""
MARK = "graphlog.json"
"""Name of the file by which a folder is known as one of ours; see :func:`mark_folder`."""
UNFINISHED = re.compile(r"(.+)\.[0-9a-f]{16}\.partial")
"""Names of the files of :func:`beside`; the group is the name of the file in its place."""
ADVICE: Mapping[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or write to another disk"),
    **dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM), "choose another path or change its permissions"
    ),
    errno.EFBIG: "write to another disk, or raise the limit (ulimit -f)",
    errno.EIO: "check the disk, or write to another one",
}
"""What to do where an output cannot be written, by the number of the error."""
CHECK_PATH = "check the path, or choose another one"
"""The same for any other number."""
Identity = tuple[int, int, int, int, int]
_MARK_BYTES = 1024
_ATTEMPTS = 20
"""New folders that another process may take for dead before theirs is locked."""
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula starts with in a spreadsheet, also in full width."""


@contextmanager
def beside(path: Path) -> Generator[Path]:
    """Give a new file beside ``path`` to write to, and rename it into place after the block.

    Nothing is left of it where that fails; a power failure leaves the old file or the new one. Its
    name cannot be guessed, and a link of that name is not followed.

    Raises:
        OSError: As it comes, with the name of the file that was asked for.
    """
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    try:
        # O_EXCL: a new file or an error, whatever lies there
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        with suppress(OSError):  # who may read it was decided by its owner
            unfinished.chmod(path.stat().st_mode & 0o777 | stat.S_IWUSR)
        yield unfinished
        put(unfinished, path)
    except OSError as e:
        if e.filename not in (None, str(unfinished), unfinished):
            raise
        raise OSError(e.errno, e.strerror or str(e), str(path)) from None
    finally:
        # on a disk that refuses even this, what went wrong first is what matters
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def put(finished: Path, path: Path) -> None:
    """Move a finished file to its place once its content is on the disk.

    Raises:
        OSError: With the name of ``path``; also if a device or a pipe is there, which would be
            lost.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError(errno.EEXIST, "is no regular file")
        with finished.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(finished, path)
    except OSError as e:
        raise OSError(e.errno, e.strerror or str(e), str(path)) from None


@contextmanager
def writing(path: Path, advice: str = "") -> Generator[None]:
    """Turn a full disk or a read-only folder into one line, with ``advice`` or that of ADVICE.

    Raises:
        GraphLoGError: In place of any OSError of the block but that of a closed pipe.
    """
    try:
        yield
    except BrokenPipeError:  # standard output, and not `path`
        raise
    except OSError as e:
        remedy = advice or ADVICE.get(e.errno, CHECK_PATH)
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


def link_target(path: Path) -> Path:
    """Return the file that a link points to; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece, with the errors of :func:`replacing`."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file likewise."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def mark_folder(folder: Path, kind: str) -> None:
    """Sign a folder as one that holds a ``kind`` of ours, which a later command may replace."""
    write_json(folder / MARK, _mark(kind))


def folder_kind(folder: Path) -> str | None:
    """Return what :func:`mark_folder` signed a folder as; None for that of another program."""
    file = folder / MARK
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MARK_BYTES:
            return None
        mark: dict[str, str] = json.loads(file.read_bytes())
        return mark["kind"] if mark == _mark(mark["kind"]) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _mark(kind: str) -> dict[str, str]:
    mark = {"format": "graphlog-folder", "kind": kind}
    return {**mark, "sha256": hash_json(mark)}


@contextmanager
def excel_safe() -> Generator[None]:
    """Write CSV files whose text no spreadsheet takes for a formula, as ``--excel-safe`` does.

    A cell of text that starts like a formula gets an apostrophe before it, and every cell is
    quoted. Numbers stay as they are.

    Example:
        >>> with excel_safe():
        ...     graphlog.embed_file(encoder, "in.csv", "out.csv")  # doctest: +SKIP
    """
    token = EXCEL_SAFE.set(True)
    try:
        yield
    finally:
        EXCEL_SAFE.reset(token)


class CsvTable:
    """Writes the rows of a CSV file; see :func:`open_csv`."""

    def __init__(self, file: Any) -> None:
        self._file, self._neutral = file, EXCEL_SAFE.get()
        quoting = csv.QUOTE_ALL if self._neutral else csv.QUOTE_MINIMAL
        # of line ends in cells, csv quotes only those that end its rows
        self._writer = csv.writer(self, lineterminator="\r\n", quoting=quoting)

    def writerow(self, cells: Iterable[object]) -> None:
        """Write one row."""
        self._writer.writerow(map(_harmless, cells) if self._neutral else cells)

    def write(self, line: str) -> None:
        """Write a line of the csv module."""
        self._file.write(f"{line[:-2]}\n")


def storable(text: str) -> str:
    """Return a text as valid UTF-8; the name of a file may not be."""
    return text.encode("utf-8", "backslashreplace").decode()


def create_text(path: Path) -> TextIO:
    """Open a new file for text as it is; what UTF-8 cannot hold is escaped."""
    return path.open("w", encoding="utf-8", newline="", errors="backslashreplace")


@contextmanager
def open_csv(path: Path) -> Generator[CsvTable]:
    """Give what writes rows to the new CSV file ``path``, every table of ours that holds texts."""
    with create_text(path) as file:
        yield CsvTable(file)


def _harmless(cell: object) -> object:
    if not isinstance(cell, str) or not cell.lstrip().startswith(_FORMULA):
        return cell
    try:
        float(cell.replace(",", ".", 1))
    except ValueError:
        return cell if cell.strip() == "-" else f"'{cell}"
    return cell


def exchange(new: Path, old: Path) -> None:
    """Put ``new`` in the place of ``old``, and ``old`` in that of ``new``, both on one file system.

    On Linux and macOS no other process ever sees neither or a mixture; elsewhere, and on file
    systems that cannot do it, ``old`` is missing for a moment.
    """
    name, here, flags = {
        "linux": ("renameat2", -100, 2),  # AT_FDCWD, RENAME_EXCHANGE
        "darwin": ("renameatx_np", -2, 2),  # AT_FDCWD, RENAME_SWAP
    }.get(sys.platform, ("", 0, 0))
    rename = getattr(ctypes.CDLL(None), name, None) if name else None
    ends = here, os.fsencode(new), here, os.fsencode(old)
    if rename is None or rename(*ends, ctypes.c_uint(flags)) != 0:
        aside = new.with_name(f"{new.name}.old")
        old.replace(aside)
        new.replace(old)
        aside.replace(new)


def acquire_lock(path: Path, *, wait: bool = False) -> "BaseFileLock | None":
    """Lock the file ``path``; None where another process holds the lock and there is no ``wait``.

    The operating system frees the lock when its process ends, however it ends, so that no lock
    outlives a process that was killed. The file stays.

    Raises:
        OSError: If the file cannot be opened, or the file system has no locks.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire(poll_interval=0.2)
    except Timeout:
        return None
    return lock


def release_lock(lock: "BaseFileLock") -> None:
    """Free a lock; where that fails, the system frees it when the process ends."""
    with suppress(OSError):
        lock.release()


@contextmanager
def scratch_folder(out: Path) -> Generator[Path]:
    """Give a hidden folder beside ``out`` for unfinished files and remove it afterwards.

    Folders of the same file that a killed process left behind are removed first.

    Raises:
        GraphLoGError: If there cannot be one.
    """
    stem = out.absolute().with_name(f".{out.name}")
    unfinished = re.compile(rf"{re.escape(stem.name)}\.partial-[0-9]+-[0-9a-f]{{8}}")
    with writing(out):
        for old in stem.parent.iterdir():
            if unfinished.fullmatch(old.name) and old.is_dir() and not old.is_symlink():
                with suppress(OSError):
                    if unused := acquire_lock(old / LOCK):  # the process that held it was killed
                        shutil.rmtree(old, ignore_errors=True)
                        release_lock(unused)
        try:
            folder, lock = _locked_folder(stem)
        except OSError as e:  # nobody has asked for the folder
            raise OSError(e.errno, e.strerror or str(e), str(out)) from None
    try:
        yield folder
    finally:
        _remove(folder)
        release_lock(lock)


def _locked_folder(stem: Path) -> "tuple[Path, BaseFileLock]":
    """Make the folder ``<stem>.partial-…`` and lock it; nothing is left of it on an error."""
    for _ in range(_ATTEMPTS):
        folder = stem.with_name(f"{stem.name}.partial-{os.getpid()}-{secrets.token_hex(4)}")
        folder.mkdir()
        try:
            if lock := acquire_lock(folder / LOCK):
                return folder, lock
        except (FileNotFoundError, FileExistsError):
            continue  # removed as unused before it could be locked
        except BaseException:  # a signal too: the library of locks may only now be imported
            _remove(folder)
            raise
        shutil.rmtree(folder, ignore_errors=True)
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def _remove(folder: Path) -> None:
    """Remove a folder of this process as far as possible; twice, since what hinders may pass.

    Not for one that another process left: it may be about to use a new one of that name.
    """
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)


def identity_of(file: Path) -> Identity:
    """Return numbers that change with a file; no program can set the last, a time."""
    status = file.stat()
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *times


def hash_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def hash_json(value: Any) -> str:
    """Return the sha256 of a value as JSON, which is that of every equal value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _as_latin1(error: UnicodeError) -> tuple[str, int]:
    """Read the bytes that are not UTF-8 as Latin-1, which has a character for each."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("graphlog.latin1", _as_latin1)


@contextmanager
def open_text(path: Path | str) -> Generator[Iterator[str]]:
    """Give the lines of a file, or of standard input for ``-``, with their line ends.

    Compression and UTF-16 are told by content, not by name; the latter is said in a warning.

    Raises:
        DataError: If it cannot be read, is a zip archive, or its compressed data is damaged (raised
            where that is found).
    """
    name = "standard input" if str(path) == "-" else str(path)
    with open_bytes(path) as raw:
        head = b""
        with suppress(OSError, *DAMAGED):  # said where it is read
            head = raw.peek(4)[:4]
        if head == b"PK\3\4":
            raise DataError(
                f"{name}: is a zip archive or an Excel file; unpack it, or name it .xlsx."
            )
        zeros = tuple(byte == 0 for byte in head)
        encoding = {(False, True) * 2: "utf-16-le", (True, False) * 2: "utf-16-be"}.get(zeros)
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        if encoding is not None:
            warnings.warn(f"{name}: read as UTF-16 text", stacklevel=4)
        text = io.TextIOWrapper(
            raw, encoding=encoding or "utf-8-sig", errors="graphlog.latin1", newline=""
        )
        try:
            yield _lines(text, name)
        finally:
            text.detach()  # standard input stays open


@contextmanager
def open_bytes(path: Path | str) -> Generator[Any]:
    """Give the bytes of a file or, for ``-``, of standard input, decompressed by content, not name.

    Raises:
        DataError: If it cannot be opened.
    """
    is_stdin = str(path) == "-"
    name = "standard input" if is_stdin else str(path)
    try:
        raw: Any = sys.stdin.buffer if is_stdin else Path(path).open("rb")  # noqa: SIM115 - below
        raw = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
        head = raw.peek(4)[:4]
    except FileNotFoundError:
        raise DataError(f"no such file: {name}; check the path.", file=name) from None
    except IsADirectoryError:
        raise DataError(f"{name} is a folder; name a file in it, or a graph store.") from None
    except OSError as e:
        raise DataError(f"cannot read {name}: {e.strerror or e}.") from None
    with nullcontext() if is_stdin else raw:
        inflate = next((of for magic, of in _INFLATED.items() if head.startswith(magic)), None)
        yield raw if inflate is None else inflate(raw)


def _lines(text: io.TextIOWrapper, name: str) -> Iterator[str]:
    number = 0
    while True:
        try:
            line = text.readline(LONGEST_LINE)
        except DAMAGED as e:
            raise DataError(
                f"{name}: the compressed data is damaged or cut off after line {number} ({e}); "
                "fetch it again."
            ) from None
        except OSError as e:
            raise DataError(f"cannot read {name} after line {number}: {e.strerror or e}.") from None
        if not line:
            return
        number += 1
        if len(line) == LONGEST_LINE and not line.endswith(("\n", "\r")):
            raise DataError(
                f"{name}: line {number} has more than {LONGEST_LINE:,} characters; this is not a "
                "table of molecules."
            )
        yield line


class _Zstandard(io.RawIOBase):
    """What the frames of a compressed stream hold; an early end is an error, not an end."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        with optional("zstandard", "zstd"):
            import zstandard
        self._source, self._ready = source, memoryview(b"")
        self._new, self._error = zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
        self._frame = self._new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._frame.unused_data if self._frame.eof else b""
            block = block or self._source.read(1 << 10)  # at most 32 MB come of it
            if not block:
                if not self._frame.eof:
                    raise EOFError("it ends early")
                return 0
            if self._frame.eof:
                self._frame = self._new()
            try:
                self._ready = memoryview(self._frame.decompress(block))
            except self._error as e:
                raise EOFError(str(e)) from None
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


_INFLATED: dict[bytes, Callable[[Any], io.BufferedIOBase]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zX": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda raw: io.BufferedReader(_Zstandard(raw)),
}
"""What reads compressed content, by its first bytes."""
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
"""What reading damaged compressed content raises, apart from OSError."""
