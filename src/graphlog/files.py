"""Write files atomically, lock them, and read text of any compression, in UTF-8 or Latin-1."""

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

from graphlog.errors import DataError, GraphLoGError, MissingExtraError

if TYPE_CHECKING:
    from filelock import BaseFileLock

zstd: Any = None
with suppress(ImportError):  # without the extra `zstd`
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

EXCEL_SAFE: ContextVar[bool] = ContextVar("EXCEL_SAFE", default=False)
"""Whether :func:`open_csv` escapes text that spreadsheets would execute as a formula."""
LONGEST_LINE = 1 << 26
"""Largest number of characters of a line; a file without line ends must not fill the memory."""
csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # a cell may fill a line
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
"""File name extensions of compressed files."""
_LOCK = "lock"
"""Name of the lock file in a folder of unfinished files."""
MARK = "graphlog.json"
"""Name of the file that marks a folder as written by graphlog; see :func:`mark_folder`."""
UNFINISHED = re.compile(r"(.+)\.[0-9a-f]{16}\.partial")
"""Names of the temporary files of :func:`beside`; the group is the name of the final file."""
ADVICE: Mapping[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or write to another disk"),
    **dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM), "choose another path or change its permissions"
    ),
    errno.EFBIG: "write to another disk, or raise the limit (ulimit -f)",
    errno.EIO: "check the disk, or write to another one",
}
"""Advice for an output that cannot be written, by the error number."""
CHECK_PATH = "check the path, or choose another one"
"""Advice for all other error numbers."""
Identity = tuple[int, int, int, int, int]
"""Numbers that change when a file changes; see :func:`identity_of`."""
_MARK_BYTES = 1024
_ATTEMPTS = 20
"""Number of attempts to lock a new folder before another process removes it as abandoned."""
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of formulas in spreadsheets, also in full width."""


@contextmanager
def beside(path: Path) -> Generator[Path]:
    """Yield a new temporary file next to ``path``, and rename it to ``path`` after the block.

    It is removed if the block fails. A power failure leaves either the old file or the new one. The
    temporary name cannot be guessed, and a link of that name is not followed.

    Raises:
        OSError: If the file cannot be written; the error names ``path``.
    """
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    try:
        # O_EXCL refuses a name that exists
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        with suppress(OSError):  # keep the permissions of a file that is replaced
            unfinished.chmod(path.stat().st_mode & 0o777 | stat.S_IWUSR)
        yield unfinished
        put(unfinished, path)
    except OSError as e:
        if e.filename not in (None, str(unfinished), unfinished):
            raise
        raise OSError(e.errno, e.strerror or str(e), str(path)) from None
    finally:
        with suppress(OSError):  # an earlier error matters more
            unfinished.unlink(missing_ok=True)


def put(finished: Path, path: Path) -> None:
    """Flush a finished file to the disk, and rename it to ``path``, which must not be a device."""
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
    """Report errors of writing, such as a full disk, in one line with ``advice`` or ``ADVICE``.

    Raises:
        GraphLoGError: Instead of any OSError of the block, except that of a closed pipe.
    """
    try:
        yield
    except BrokenPipeError:  # concerns standard output, not `path`
        raise
    except OSError as e:
        remedy = advice or ADVICE.get(e.errno, CHECK_PATH)
        raise GraphLoGError(
            f"cannot write {e.filename or path}: {e.strerror or e}; {remedy}."
        ) from None


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Yield a temporary file as :func:`beside` does, with the errors of :func:`writing`."""
    with writing(path), beside(path) as unfinished:
        yield unfinished


def link_target(path: Path) -> Path:
    """Return the file that a symbolic link points to; any other path unchanged."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, with the errors of :func:`replacing`."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, with the errors of :func:`replacing`."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def mark_folder(folder: Path, kind: str) -> None:
    """Mark a folder as an output of graphlog of a ``kind``, which a later command may replace."""
    write_json(folder / MARK, _mark(kind))


def folder_kind(folder: Path) -> str | None:
    """Return the kind that :func:`mark_folder` gave a folder; None for any other folder."""
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
    """Write CSV files in the block so that no spreadsheet executes text as a formula.

    Text that starts like a formula is preceded by an apostrophe, and every cell is quoted. Numbers
    do not change. The option ``--excel-safe`` does the same.

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
    """Writer of the rows of a CSV file; see :func:`open_csv`."""

    def __init__(self, file: Any) -> None:
        self._file, self._excel_safe = file, EXCEL_SAFE.get()
        quoting = csv.QUOTE_ALL if self._excel_safe else csv.QUOTE_MINIMAL
        # csv quotes a cell with \r or \n only if the character occurs in the line terminator
        self._writer = csv.writer(self, lineterminator="\r\n", quoting=quoting)

    def writerow(self, cells: Iterable[object]) -> None:
        """Write one row."""
        self._writer.writerow(map(_escape_formula, cells) if self._excel_safe else cells)

    def write(self, line: str) -> None:
        r"""Write a line that the csv module ended by \r\n, ended by \n instead."""
        self._file.write(f"{line[:-2]}\n")


def storable(text: str) -> str:
    """Return a text as valid UTF-8 with other characters escaped; file names may contain some."""
    return text.encode("utf-8", "backslashreplace").decode()


def create_text(path: Path) -> TextIO:
    """Open a new text file without newline translation; characters outside UTF-8 are escaped."""
    return path.open("w", encoding="utf-8", newline="", errors="backslashreplace")


@contextmanager
def open_csv(path: Path) -> Generator[CsvTable]:
    """Create the CSV file ``path`` and yield its writer, which respects :func:`excel_safe`."""
    with create_text(path) as file:
        yield CsvTable(file)


def _escape_formula(cell: object) -> object:
    if not isinstance(cell, str) or not cell.lstrip().startswith(_FORMULA):
        return cell
    try:
        float(cell.replace(",", ".", 1))
    except ValueError:
        return cell if cell.strip() == "-" else f"'{cell}"
    return cell


def exchange(new: Path, old: Path) -> None:
    """Exchange the names of two files or folders on one file system.

    The exchange is atomic on Linux and macOS. Elsewhere, and on file systems without this
    operation, ``old`` does not exist for a moment.
    """
    name, current_folder, flags = {
        "linux": ("renameat2", -100, 2),  # AT_FDCWD, RENAME_EXCHANGE
        "darwin": ("renameatx_np", -2, 2),  # AT_FDCWD, RENAME_SWAP
    }.get(sys.platform, ("", 0, 0))
    rename = getattr(ctypes.CDLL(None), name, None) if name else None
    names = current_folder, os.fsencode(new), current_folder, os.fsencode(old)
    if rename is None or rename(*names, ctypes.c_uint(flags)) != 0:
        aside = new.with_name(f"{new.name}.old")
        old.replace(aside)
        new.replace(old)
        aside.replace(new)


def acquire_lock(path: Path, *, wait: bool = False) -> "BaseFileLock | None":
    """Lock the file ``path``; return None if another process holds it and ``wait`` is False.

    The operating system frees the lock when the process ends or is killed. The file stays.

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
    """Release a lock; if that fails, the operating system does so when the process ends."""
    with suppress(OSError):
        lock.release()


@contextmanager
def scratch_folder(out: Path) -> Generator[Path]:
    """Yield a hidden folder next to ``out`` for unfinished files; it is removed after the block.

    Such folders of killed processes for the same ``out`` are removed first.
    """
    stem = out.absolute().with_name(f".{out.name}")
    folder = lock = None
    try:
        with writing(out):
            _remove_abandoned(stem)
            try:
                for _ in range(_ATTEMPTS):
                    # named before it is created, so that Ctrl-C at any moment leaves nothing behind
                    folder = stem.with_name(
                        f"{stem.name}.partial-{os.getpid()}-{secrets.token_hex(4)}"
                    )
                    folder.mkdir()
                    # another process may remove it as abandoned before it is locked
                    with suppress(FileNotFoundError, FileExistsError):
                        if lock := acquire_lock(folder / _LOCK):
                            break
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            except OSError as e:  # the user knows `out`, not the hidden folder
                raise OSError(e.errno, e.strerror or str(e), str(out)) from None
        yield folder
    finally:
        if folder:
            for _ in range(2):  # an error may be temporary
                shutil.rmtree(folder, ignore_errors=True)
        if lock:
            release_lock(lock)


def _remove_abandoned(stem: Path) -> None:
    """Remove the folders ``<stem>.partial-…`` of processes that were killed."""
    unfinished = re.compile(rf"{re.escape(stem.name)}\.partial-[0-9]+-[0-9a-f]{{8}}")
    for old in stem.parent.iterdir():
        if unfinished.fullmatch(old.name) and old.is_dir() and not old.is_symlink():
            with suppress(OSError):
                if lock := acquire_lock(old / _LOCK):
                    shutil.rmtree(old, ignore_errors=True)
                    release_lock(lock)


def identity_of(file: Path) -> Identity:
    """Return numbers that change when a file changes; no program can set the last one, a time."""
    s = file.stat()
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def hash_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def hash_json(value: Any) -> str:
    """Return the sha256 of a value as JSON with sorted keys; equal values have equal hashes."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _as_latin1(error: UnicodeError) -> tuple[str, int]:
    """Decode bytes that are not UTF-8 as Latin-1, in which every byte is a character."""
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("graphlog.latin1", _as_latin1)


@contextmanager
def open_text(path: Path | str) -> Generator[Iterator[str]]:
    """Yield an iterator over the lines, with line ends, of a file or of standard input (``-``).

    Compression and UTF-16 are recognized by content, not by name; UTF-16 is reported by a warning.

    Raises:
        DataError: If it cannot be read or is a zip archive, or when damaged compressed data is
            reached.
    """
    name = "standard input" if str(path) == "-" else str(path)
    with open_bytes(path) as raw:
        head = b""
        with suppress(OSError, *DAMAGED):  # reported when the lines are read
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
    """Open a file or standard input (``-``) as bytes; compression is recognized by content."""
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
        readers = (open_ for magic, open_ in _DECOMPRESSORS.items() if head.startswith(magic))
        decompress = next(readers, None)
        yield raw if decompress is None else decompress(raw)


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


def _open_zstandard(raw: io.BufferedIOBase) -> io.BufferedIOBase:
    if zstd is None:
        raise MissingExtraError("backports.zstd", "zstd")
    return zstd.ZstdFile(raw)


class _Streams(io.RawIOBase):
    """Content of concatenated bz2 or xz streams, with zeros between them.

    The readers of Python take a stream that is damaged at its start for the end of the file.
    """

    def __init__(self, raw: io.BufferedIOBase, decompressor: Callable[[], Any]) -> None:
        self._raw, self._decompressor, self._current = raw, decompressor, decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = block = b""
        while not data:
            if self._current.eof:
                block = self._current.unused_data.lstrip(b"\0")
                while not block:
                    if not (block := self._raw.read(io.DEFAULT_BUFFER_SIZE)):
                        return 0
                    block = block.lstrip(b"\0")
                self._current = self._decompressor()
            elif self._current.needs_input:
                block = self._raw.read(io.DEFAULT_BUFFER_SIZE)
                if not block:
                    raise EOFError("the last stream is not complete")
            data = self._current.decompress(block, len(buffer))
            block = b""
        buffer[: len(data)] = data
        return len(data)


_DECOMPRESSORS: dict[bytes, Callable[[Any], io.BufferedIOBase]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": lambda raw: io.BufferedReader(_Streams(raw, bz2.BZ2Decompressor)),
    b"\xfd7zX": lambda raw: io.BufferedReader(
        _Streams(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ))
    ),
    b"\x28\xb5\x2f\xfd": _open_zstandard,
}
"""Functions that open a compressed stream, by its first bytes."""
DAMAGED = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    *([zstd.ZstdError] if zstd else []),
)
"""Errors raised by reading damaged compressed content, besides OSError."""
