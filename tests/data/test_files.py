"""Locks, and folders for unfinished files."""

import multiprocessing
from pathlib import Path
from typing import Any

from graphlog.files import acquire_lock, scratch_folder


def hold(path: Path, connection: Any) -> None:
    lock = acquire_lock(path)
    connection.send(lock is not None)
    connection.recv()


def test_a_lock_is_held_by_one_process_and_freed_when_it_is_killed(tmp_path: Path):
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=hold, args=(tmp_path / "lock", theirs)
    )
    process.start()
    assert ours.recv()
    (tmp_path / "lock").write_text("a note")
    assert acquire_lock(tmp_path / "lock") is None
    assert (tmp_path / "lock").read_text() == "a note"
    process.kill()
    process.join()
    lock = acquire_lock(tmp_path / "lock")
    assert lock is not None
    lock.release()


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(tmp_path: Path):
    """In a container every process may have the number 1, also the next one after a kill."""
    out = tmp_path / "out.npz"
    for left in (".out.npz.partial-1", ".other.npz.partial-1"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "embeddings.npy").touch()
    with scratch_folder(out) as first, scratch_folder(out) as second:
        assert first.is_dir()
        assert second.is_dir()
        assert first != second
    assert [p.name for p in tmp_path.iterdir()] == [".other.npz.partial-1"]
