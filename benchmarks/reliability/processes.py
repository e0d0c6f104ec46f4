"""Commands as processes: killed, with failing system calls, with little of what they need."""

import gzip
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import Case, Ended, start
from inputs import Job, jobs

ERRORS = {
    **dict.fromkeys(("write", "pwrite64", "copy_file_range"), ("ENOSPC", "EIO")),
    **dict.fromkeys(("fsync", "fdatasync", "close", "unlink", "unlinkat", "rmdir"), ("EIO",)),
    **dict.fromkeys(("rename", "renameat", "renameat2", "link"), ("ENOSPC", "EIO", "KILL")),
    **dict.fromkeys(("mkdir", "mkdirat", "ftruncate", "fallocate"), ("ENOSPC",)),
    **dict.fromkeys(("read", "pread64", "getdents64"), ("EIO",)),
    **{"openat": ("ENOSPC", "EMFILE", "EIO"), "flock": ("ENOLCK",), "mmap": ("ENOMEM",)},
}
"""System calls that are let fail, and how; ``KILL``: the process is killed in their place."""
_CALL = re.compile(r"(\w+)\((.*)")
_REMOVING = ("unlink", "unlinkat", "rmdir")
_PATIENCE_S = 300.0


class Trial:
    """One job, as it ends undisturbed, to compare others with."""

    def __init__(self, job: Job, beside: Path) -> None:
        """Run it once."""
        self.job = job
        folder = self.place(beside)
        self.before, began = job.seen(folder), time.monotonic()
        ended = self.start(folder)
        self.seconds, self.whole = time.monotonic() - began, job.seen(folder)
        assert self.whole is not None, ended
        shutil.rmtree(beside)

    def place(self, beside: Path) -> Path:
        """Return a folder with the older output that the job replaces, if it does."""
        folder = beside / "case"
        folder.mkdir(parents=True)
        if self.job.old:
            start(self.job.old, folder)
        return folder

    def start(self, folder: Path, again: bool = False, **how: Any) -> Ended:
        """Run the job."""
        words = [*self.job.words, *(self.job.again if again or self.job.old else ())]
        environment = {**self.job.environment, **how.pop("environment", {})}
        return start(words, folder, environment=environment, **how)

    def problem(self, folder: Path, ended: Ended, may_leave: bool) -> str:
        """Return what is wrong after a disturbed run, and after a second one, or nothing.

        The output must be the old one or the new one, of several files each, and the second run
        must give what an undisturbed one does and leave nothing unfinished.
        """
        seen = self.job.seen(folder)
        if ended.code == 0 and seen != self.whole:
            return "exit code 0 without the whole output"
        if seen not in (self.before, self.whole):
            old = self.before if isinstance(self.before, dict) else {}
            if not isinstance(self.whole, dict) or not isinstance(seen, dict):
                return "neither the old output nor the new one"
            if any(v not in (old.get(k), self.whole.get(k)) for k, v in seen.items()):
                return "neither the old output nor the new one"
        if not may_leave and not self.job.resumes and (left := unfinished(folder)):
            return f"left {left[0]}"
        again = self.start(folder, again=True)
        if again.code:
            return f"the second run ends with {again.code}: {again.line}"
        if self.job.seen(folder) != self.whole:
            return "the second run gives something else"
        # nobody reads a small file again that was about to be renamed, and it has a name of its own
        left = [n for n in unfinished(folder) if not re.fullmatch(r".+\.[0-9a-f]{16}\.partial", n)]
        return f"the second run left {left[0]}" if left and not may_leave else ""


def unfinished(folder: Path) -> list[str]:
    """Return what looks half-written."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*partial*"))


def _each(
    good: Path, seeds: range, work: Callable[[Trial, str, int, Path], str], leave_out: str = ""
) -> Iterator[Case]:
    for name, job in jobs(good).items():
        if name == leave_out:
            continue
        trial = Trial(job, good.parent / "undisturbed")
        for seed in seeds:
            yield Case(name, seed, lambda f, t=trial, n=name, s=seed: work(t, n, s, f), _PATIENCE_S)


def kills(good: Path, seeds: range, sign: int = signal.SIGKILL) -> Iterator[Case]:
    """Yield jobs that get a signal at a random moment, or when something unfinished appears.

    Of ``benchmark`` a second process works on the same folder and goes on.
    """

    def work(trial: Trial, name: str, seed: int, beside: Path) -> str:
        draw, folder = random.Random(f"{name}-{seed}"), trial.place(beside)
        waits = seed % 2 == 1
        moment = draw.uniform(0, 0.02 if waits else trial.seconds)

        def strike(pid: int) -> None:
            end = time.monotonic() + 3 * trial.seconds
            while waits and time.monotonic() < end and not any(folder.rglob("*partial*")):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
                time.sleep(0.0005)
            time.sleep(moment)
            os.kill(pid, sign)  # it is not waited for yet, so its number is its own

        other = 0
        if name == "benchmark" and (other := os.fork()) == 0:
            (beside / "other").mkdir()
            (beside / "other" / "case").symlink_to(folder)
            os._exit(trial.start(beside / "other" / "case").code)
        ended = trial.start(folder, during=strike)
        if other and (code := os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])):
            return f"wrong: the process beside it ended with {code}"
        if ended.code not in (0, -sign, 128 + sign):
            return f"wrong: exit code {ended.code}: {ended.line}"
        problem = trial.problem(folder, ended, may_leave=True)
        return f"wrong: {problem}" if problem else f"same: exit code {ended.code}"

    yield from _each(good, seeds, work)


def faults(good: Path, seeds: range, at_renames: bool = False) -> Iterator[Case]:
    """Yield jobs of which one system call on a file of theirs fails; needs strace.

    With ``at_renames`` they are killed in place of one rename, the first for seed 0, and so on.
    """

    def work(trial: Trial, name: str, seed: int, beside: Path) -> str:
        draw = random.Random(f"{name}-{seed}")
        first, second = beside / "a", beside / "b"
        _, lines = traced(trial, trial.place(first), ["-e", f"trace={','.join(ERRORS)}"])
        found = _calls(lines, (str(beside), str(good)))
        if at_renames:
            found = [key for key in found if key[0].startswith("rename")]
            found = [found[seed % len(found)]]
        call, name = draw.choice(sorted({key[:2] for key in found}))
        number = draw.choice([n for c, w, n in found if (c, w) == (call, name)])
        error = "KILL" if at_renames else draw.choice(ERRORS[call])
        folder = trial.place(second)
        how = "signal=KILL" if error == "KILL" else f"error={error}"
        inject = ["-e", f"trace={call}", "-e", f"inject={call}:{how}:when={number}"]
        ended, lines = traced(trial, folder, inject)
        where = f"{call} {number} of {name}, {error}"
        if error != "KILL" and (problem := ended.problem):
            return f"wrong: {where}: {problem}"
        problem = trial.problem(folder, ended, error == "KILL" or call in _REMOVING)
        return f"{'wrong' if problem else 'done'}: {where}: {problem or ended.line}"

    yield from _each(good, seeds, work)


def traced(trial: Trial, folder: Path, arguments: list[str]) -> tuple[Ended, list[str]]:
    """Run a job under strace and return how it ended, and the lines of the trace."""
    log, tracers = folder.parent / "trace", list[subprocess.Popen[bytes]]()

    def attach(pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        words = ["strace", "-qq", "-y", "-s", "0", "-o", str(log), "-p", str(pid), *arguments]
        tracers.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
        status, end = Path(f"/proc/{pid}/status"), time.monotonic() + 20
        while "TracerPid:\t0\n" in status.read_text() and time.monotonic() < end:
            time.sleep(0.001)
        os.kill(pid, signal.SIGCONT)

    ended = trial.start(folder, before=lambda: os.kill(os.getpid(), signal.SIGSTOP), during=attach)
    tracers[0].wait()
    return ended, log.read_text(errors="replace").splitlines()


def _calls(lines: list[str], ours: tuple[str, ...]) -> list[tuple[str, str, int]]:
    """Return call, name of its file without what differs from run to run, and its number."""
    numbers: Counter[str] = Counter()
    found: list[tuple[str, str, int]] = []
    for call, rest in (m.groups() for m in map(_CALL.match, lines) if m and m[1] in ERRORS):
        numbers[call] += 1
        path = re.match(r'(?:AT_FDCWD<[^>]*>, )?"([^"]*)"|\d+<(/[^>]*)>', rest)
        name = (path[1] or path[2]) if path else ""
        if name.startswith(ours) or (name and not name.startswith("/")):
            short = re.sub(r"[-._][0-9a-z_]{8}\b|\d+", "", Path(name).name)
            found.append((call, short, numbers[call]))
    return found


def hash_seeds(good: Path, seeds: range) -> Iterator[Case]:
    """Yield jobs under hash seeds; the output must be that of no seed."""

    def work(trial: Trial, _: str, seed: int, beside: Path) -> str:
        folder = trial.place(beside)
        trial.start(folder, environment={"PYTHONHASHSEED": str(seed)}, is_new=True)
        return "same" if trial.job.seen(folder) == trial.whole else "wrong"

    yield from _each(good, seeds, work, leave_out="benchmark")


_NOWHERE = "/dev/null/nothing"
_CACHES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR")
_KEPT = ("PATH", "OMP_NUM_THREADS", "PYTHONPATH", "TMPDIR")
LIMITS: dict[str, tuple[dict[str, str | None], Callable[[], object] | None]] = {
    "64 open files": ({}, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))),
    "no HOME": ({"HOME": None, **dict.fromkeys(_CACHES)}, None),
    "a home that cannot be written": ({"HOME": _NOWHERE, **dict.fromkeys(_CACHES)}, None),
    "LANG=C without UTF-8": (
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        None,
    ),
    "no variables but PATH": ({name: None for name in os.environ if name not in _KEPT}, None),
    "a terminal of 20 columns": ({"COLUMNS": "20", "LINES": "5", "FORCE_COLOR": "1"}, None),
    "one processor": ({}, lambda: os.sched_setaffinity(0, {0})),
    "standard input closed": ({}, lambda: os.close(0)),
    "standard output closed": ({}, lambda: os.close(1)),
    "standard error closed": ({}, lambda: os.close(2)),
    "standard output full": ({}, lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1)),
    "TMPDIR that cannot be written": (dict.fromkeys(("TMPDIR", "TEMP", "TMP"), _NOWHERE), None),
    "files of 2 kB at most": ({}, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))),
}
"""What a job has to do without: variables to set or remove, and what is done in its process."""


def limits(good: Path, seeds: range) -> Iterator[Case]:
    """Yield jobs that lack something: the same output, or one line and nothing left behind."""

    def work(trial: Trial, _: str, seed: int, beside: Path) -> str:
        limit, folder = list(LIMITS)[seed % len(LIMITS)], trial.place(beside)
        environment, before = LIMITS[limit]
        ended = trial.start(folder, environment=environment, before=before, is_new=True)
        problem = ended.problem if "error closed" not in limit else ""
        if not problem and ended.code == 0 and trial.job.seen(folder) != trial.whole:
            problem = "exit code 0, another output"
        if not problem and ended.code and not trial.job.resumes and not trial.job.old:
            left = sorted(p.name for p in folder.iterdir())
            problem = f"left {', '.join(left)}" if left else ""
        result = "wrong" if problem else "refused" if ended.code else "same"
        return f"{result}: {limit}: {problem or ended.line}"

    yield from _each(good, seeds, work, leave_out="benchmark")


def bombs(good: Path, _: range) -> Iterator[Case]:
    """Yield small files that expand to gigabytes, read with 2 GB of memory."""
    import pyarrow as pa
    from pyarrow import parquet

    block = b"C" * (1 << 24)
    for name, lines in {"one_line.csv.gz": block, "many_lines.csv.gz": b"CC\n" * (1 << 23)}.items():
        with gzip.open(good / name, "wb", compresslevel=1) as file:
            file.write(b"smiles\n")
            for _ in range(128):
                file.write(lines)
    cells = pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int32()), ["C" * 900_000])
    parquet.write_table(pa.table({"smiles": cells}), good / "cells.parquet")
    with zipfile.ZipFile(good / "book.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as book:
        for name in ("[Content_Types].xml", "xl/workbook.xml"):
            book.writestr(name, "<x/>")
        with book.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            for _ in range(128):
                sheet.write(block)

    def work(name: str, folder: Path) -> str:
        def scarce() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))

        words = ["featurize", str(good / name), "-o", "out", "--workers", "1", "--limit", "20000"]
        (folder / "case").mkdir()
        ended = start(words, folder / "case", before=scarce, is_new=True)
        result = "wrong" if ended.problem else "refused" if ended.code else "read"
        return f"{result}: {ended.problem or ended.line}"

    for name in ("one_line.csv.gz", "many_lines.csv.gz", "cells.parquet", "book.xlsx"):
        yield Case(name, 0, lambda f, n=name: work(n, f), _PATIENCE_S)
