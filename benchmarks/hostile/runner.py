"""One command as a process of its own, in a folder of its own: how ``hostile`` runs its cases."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

PATIENCE_S = 300.0


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    """Exit code; minus the number of the signal that killed it."""
    out: str
    err: str
    new: frozenset[str]
    """Names that appeared in the folder, and in the folder for temporary files."""
    folder: Path

    @property
    def line(self) -> str:
        """The last line on standard error."""
        return (self.err.strip().splitlines() or [""])[-1]


@dataclass(frozen=True)
class Case:
    """A command, and what a user may expect of it."""

    group: str
    name: str
    words: Sequence[str]
    """The command; its first word is the verb."""
    code: int = 2
    """Exit code."""
    says: Sequence[str] = ()
    """Words that the last line on standard error must hold."""
    prepare: Callable[[Path], object] | None = None
    """Fills the folder that the command runs in."""
    check: Callable[[Ended], str] | None = None
    """Returns what is wrong with what was written; nothing where all is well."""
    stdin: bytes = b""
    during: Callable[[int, Path], object] | None = None
    """Done to the running process (its id and folder)."""
    largest_file: int | None = None
    """Bytes of any file the process may write, as with ``ulimit -f``."""
    may_leave: frozenset[str] = frozenset()
    """Names that a refused command may leave."""
    mount: str = ""
    """Options of a tmpfs mounted at ``small`` once the folder is filled.

    What lies there then is copied into it.
    """
    environment: dict[str, str] = field(default_factory=dict[str, str])
    stdout: str = ""
    """Where standard output goes, if not into a file."""
    pipe_closed: bool = False
    """Nobody reads standard output; starts Python anew, for its exit matters here."""
    starts_stopped: bool = False
    """Stop before the command begins, so that ``during`` can attach to it and continue it."""


def run(case: Case, folder: Path) -> Ended:
    """Run a case in ``folder``; what is there already stays."""
    folder.mkdir(exist_ok=True)
    beside = folder.parent
    if case.prepare is not None:
        case.prepare(folder)
    (beside / "tmp").mkdir(exist_ok=True)
    (beside / "stdin").write_bytes(case.stdin)
    for name in ("stdout", "stderr"):
        (beside / name).write_bytes(b"")  # a process killed at once opens neither
    with _mounted(folder / "small", case.mount):
        before = _names(folder)
        code = _wait(_unread(case, folder)) if case.pipe_closed else _wait(_forked(case, folder))
        out, err = (
            (beside / name).read_bytes().decode(errors="replace") for name in ("stdout", "stderr")
        )
        forgotten = {
            p.name for p in (beside / "tmp").iterdir() if not p.name.startswith("torchinductor")
        }  # that one is torch's cache
        new = _names(folder) - before | {f"$TMPDIR/{name}" for name in forgotten}
        return Ended(code, out, err, frozenset(new), folder)


def wait_for(found: Callable[[], bool], pid: int) -> bool:
    """Wait until something is there; False if the process ended, or patience did, before."""
    end = time.monotonic() + PATIENCE_S
    while not found():
        if (
            time.monotonic() > end
            or os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        ):
            return False
        time.sleep(0.002)
    return True


def may_mount() -> bool:
    """Return whether this user may mount a file system, which a full or read-only disk needs."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = (
            subprocess.run(
                ["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False
            ).returncode
            == 0
        )
        if mounted:
            subprocess.run(["umount", folder], check=True)
        return mounted


@contextmanager
def _mounted(point: Path, options: str) -> Generator[None]:
    if not options:
        yield
        return
    point.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(point)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(point)], check=True)


def _names(folder: Path) -> set[str]:
    small = folder / "small"
    return {p.name for p in folder.iterdir()} | (
        {f"small/{p.name}" for p in small.iterdir()} if small.is_dir() else set()
    )


def _wait(pid: int) -> int:
    end = time.monotonic() + PATIENCE_S
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)  # the case's own session and nobody else's
        time.sleep(0.005)


def _unread(case: Case, folder: Path) -> int:
    readable, writable = os.pipe()
    os.close(readable)
    with (folder.parent / "stderr").open("wb") as errors:
        command = [sys.executable, "-m", "graphlog", *case.words]
        process = subprocess.Popen(
            command, cwd=folder, stdout=writable, stderr=errors, start_new_session=True
        )
    os.close(writable)
    process.returncode = 0  # it is waited for by its number, like the others
    return process.pid


def _forked(case: Case, folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        _become_the_command(case, folder)
    if case.during is not None:
        case.during(pid, folder)
    return pid


def _become_the_command(case: Case, folder: Path) -> NoReturn:
    """Be ``python -m graphlog`` from here on, without starting Python and importing all again."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update({"TMPDIR": str(folder.parent / "tmp"), **case.environment})
        tempfile.tempdir = None
        _redirect(folder.parent, case.stdout)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if case.largest_file is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does when it starts
            resource.setrlimit(resource.RLIMIT_FSIZE, (case.largest_file, resource.RLIM_INFINITY))
        from graphlog.cli.main import main

        if case.starts_stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            code = main(list(case.words))
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _redirect(beside: Path, stdout: str) -> None:
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, name, mode in (
        (0, "stdin", os.O_RDONLY),
        (1, stdout or "stdout", new),
        (2, "stderr", new),
    ):
        opened = os.open(beside / name, mode, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
