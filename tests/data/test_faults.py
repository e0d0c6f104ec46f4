"""System calls that fail, by strace; benchmarks/reliability lets many more fail, in every verb."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from graphlog.data.store import StoreBuilder
from graphlog.domains.molecule.schema import MOLECULE
from graphlog.errors import GraphLoGError

REPLACE = "replacing(path) as new: new.write_text('new' * 100)"
SCRATCH = "scratch_folder(path): raise SystemExit('nothing failed')"


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
        StoreBuilder(MOLECULE, path)
    assert list(parent.iterdir()) == []
