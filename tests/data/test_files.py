"""Locks, folders for unfinished files, CSV that no spreadsheet computes."""

import csv
import errno
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

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


CELLS = ("=1+1", "+x", "-CC", "@SUM(A1)", " =1", "\uff1d1", "C=C", "-1.5", "+1e5", "a\rb", "", 7)
SAFE = (
    "'=1+1",
    "'+x",
    "'-CC",
    "'@SUM(A1)",
    "' =1",
    "'\uff1d1",
    "C=C",
    "-1.5",
    "+1e5",
    "a\rb",
    "",
    "7",
)


@pytest.mark.parametrize("safe", [True, False])
def test_formulas_become_text_only_where_asked(tmp_path: Path, safe: bool):
    path = tmp_path / "cells.csv"
    if safe:
        with excel_safe(), open_csv(path) as table:
            table.writerow(CELLS)
    else:
        with open_csv(path) as table:
            table.writerow(CELLS)
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.reader(file)
    assert row == (list(SAFE) if safe else [str(cell) for cell in CELLS])
    assert path.read_text(encoding="utf-8").startswith('"') == safe


def test_a_lock_file_of_another_host_or_a_dead_process_is_no_lock(tmp_path: Path):
    """Only the kernel's lock counts, not what a file says: it ends with its process, anywhere."""
    for note in ("1", "999999999", "other-host:4711", ""):
        (tmp_path / "lock").write_text(note)
        lock = acquire_lock(tmp_path / "lock")
        assert lock is not None, note
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
