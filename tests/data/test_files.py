"""Locks, folders for unfinished files, CSV that no spreadsheet computes, failing system calls."""

import csv
import errno
import multiprocessing
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from graphlog.data.store import StoreBuilder
from graphlog.errors import GraphLoGError
from graphlog.files import (
    MARK,
    acquire_lock,
    beside,
    excel_safe,
    folder_kind,
    mark_folder,
    open_csv,
    release_lock,
    scratch_folder,
    write_text,
)
from store_support import CODES
from training_support import spawn


def hold(path: Path, connection: Any) -> None:
    lock = acquire_lock(path)
    connection.send(lock is not None)
    connection.recv()


def test_a_lock_is_held_by_one_process_and_freed_when_it_is_killed(tmp_path: Path):
    ours, theirs = multiprocessing.Pipe()
    process = spawn(hold, tmp_path / "lock", theirs)
    assert ours.recv()
    (tmp_path / "lock").write_text("a note")
    assert acquire_lock(tmp_path / "lock") is None
    assert (tmp_path / "lock").read_text() == "a note"
    process.kill()
    process.join()
    lock = acquire_lock(tmp_path / "lock")
    assert lock is not None
    release_lock(lock)


def test_a_lock_that_cannot_be_freed_is_left_to_the_system(tmp_path: Path, monkeypatch: Any):
    lock = acquire_lock(tmp_path / "lock")
    assert lock is not None

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr("fcntl.flock", fail)
        release_lock(lock)
    release_lock(lock)
    assert acquire_lock(tmp_path / "lock") is not None


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(tmp_path: Path):
    """In a container every process may have the number 1, also the next one after a kill."""
    out = tmp_path / "out.npz"
    for left in (".out.npz.partial-1-0123abcd", ".other.npz.partial-1-0123abcd"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "embeddings.npy").touch()
    with scratch_folder(out) as first, scratch_folder(out) as second:
        assert first.is_dir()
        assert second.is_dir()
        assert first != second
    assert [p.name for p in tmp_path.iterdir()] == [".other.npz.partial-1-0123abcd"]


@pytest.mark.parametrize("call", ["mkdir", "acquire"])
def test_ctrl_c_leaves_no_folder_of_unfinished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
):
    """The signal arrives as soon as the folder exists, or when its lock is held."""
    owner = Path if call == "mkdir" else FileLock
    function = getattr(owner, call)

    def interrupted(*arguments: Any, **options: Any) -> None:
        function(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, call, interrupted)
        with pytest.raises(KeyboardInterrupt), scratch_folder(tmp_path / "out.npz"):
            pass
    assert list(tmp_path.iterdir()) == []


FORMULAS, HARMLESS = (
    ("=1+1", "+x", "-CC", "@SUM(A1)", " =1", "\uff1d1"),
    ("C=C", "-1.5", "+1e5", "-0,77", "-"),
)
# cells and what is written of them, so that no spreadsheet computes
CELLS = {text: f"'{text}" for text in FORMULAS} | {c: str(c) for c in (*HARMLESS, "a\rb", "", 7)}


@pytest.mark.parametrize("safe", [True, False])
def test_formulas_become_text_only_where_asked(tmp_path: Path, safe: bool):
    path = tmp_path / "cells.csv"
    with excel_safe() if safe else nullcontext(), open_csv(path) as table:
        table.writerow(CELLS)
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.reader(file)
    assert row == (list(CELLS.values()) if safe else [str(cell) for cell in CELLS])
    assert path.read_text(encoding="utf-8").startswith('"') == safe


@pytest.mark.parametrize("note", ["1", "999999999", "other-host:4711", ""])
def test_a_lock_file_of_another_host_or_a_dead_process_is_no_lock(tmp_path: Path, note: str):
    """Only the kernel's lock counts, not what a file says: it ends with its process, anywhere."""
    (tmp_path / "lock").write_text(note)
    lock = acquire_lock(tmp_path / "lock")
    assert lock is not None
    lock.release()


def test_a_link_at_a_guessed_name_is_not_written_through(tmp_path: Path) -> None:
    precious, out = tmp_path / "precious.txt", tmp_path / "out.txt"
    precious.write_text("mine")
    (tmp_path / f"out.txt.{os.getpid()}.partial").symlink_to(precious)
    with beside(out) as first, beside(out) as second:
        assert first != second
        first.write_text("one")
        second.write_text("two")
    assert (precious.read_text(), out.read_text()) == ("mine", "one")


def test_a_link_in_the_place_of_an_output_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    (tmp_path / "out.txt").symlink_to(tmp_path / "precious.txt")
    write_text(tmp_path / "out.txt", "new")
    assert not (tmp_path / "out.txt").is_symlink()
    assert (tmp_path / "precious.txt").read_text() == "mine"


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such permissions")
def test_a_replaced_output_keeps_its_permissions(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    write_text(out, "old")
    out.chmod(0o640)
    write_text(out, "new")
    assert (out.read_text(), out.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_folder_is_known_by_its_signed_mark(tmp_path: Path) -> None:
    assert folder_kind(tmp_path) is None
    mark_folder(tmp_path, "search")
    assert folder_kind(tmp_path) == "search"
    text = (tmp_path / MARK).read_text()
    for other in (text.replace("search", "finetune"), "{}", "[]", "[" * 2000, "1" * 900, ""):
        (tmp_path / MARK).write_text(other)
        assert folder_kind(tmp_path) is None
    (tmp_path / MARK).rename(tmp_path / "elsewhere")
    (tmp_path / MARK).symlink_to("/dev/zero")
    assert folder_kind(tmp_path) is None


REPLACE = "replacing(path) as new: new.write_text('new' * 100)"
SCRATCH = "scratch_folder(path): raise SystemExit('nothing failed')"


# strace lets a call fail; benchmarks/reliability lets many more fail, in every verb
@cache
def can_inject() -> bool:
    if shutil.which("strace") is None:
        return False
    command = ["strace", "-qq", "-o", "/dev/null", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def disturbed(call: str, error: str, code: str, path: Path) -> str:
    """Run ``code`` with a kind of call failing, and return the error that it printed."""
    if not can_inject():
        pytest.skip("needs strace, and the right to use it")
    tracing = ["-e", f"trace={call}", "-e", f"inject={call}:error={error}"]
    program = (
        "import sys; from pathlib import Path; path = Path(sys.argv[1])\n"
        "from graphlog.errors import GraphLoGError\n"
        f"try:\n    {code}\n"
        "except GraphLoGError as e: print(e, file=sys.stderr)\n"
    )
    command = ["strace", "-f", "-qq", "-o", "/dev/null", *tracing]
    words = [*command, sys.executable, "-B", "-c", program, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize(("error", "says"), [("EIO", "Input/output"), ("ENOSPC", "No space left")])
def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path, call: str, error: str, says: str):
    path = tmp_path / "out"
    path.write_text("old")
    code = f"from graphlog.files import replacing\n    with {REPLACE}"
    said = disturbed(call, error, code, path)
    assert f"cannot write {path}: {says}" in said
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_no_folder_is_left_where_locks_do_not_work(tmp_path: Path):
    code = f"from graphlog.files import scratch_folder\n    with {SCRATCH}"
    assert "No locks available" in disturbed("flock", "ENOLCK", code, tmp_path / "out.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="paths end at 4,095 bytes on Linux")
def test_no_store_is_left_that_cannot_be_locked(tmp_path: Path):
    """The unfinished folder can be made, but the path of its lock is too long."""
    room = 4093 - len(f"..partial-{os.getpid()}-12345678")
    parent = tmp_path
    while room - len(str(parent)) > 250:
        parent /= "d" * 100
    path = parent / ("s" * (room - len(str(parent)) - 1))
    with pytest.raises(GraphLoGError, match="File name too long"):
        StoreBuilder(CODES, path)
    assert list(parent.iterdir()) == []
