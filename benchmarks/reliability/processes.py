"""Commands as processes: killed, with failing system calls, with little of what they need."""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from harness import Case, Ended, start
from inputs import Job, jobs
from typer.main import get_command

from graphlog.cli.main import app

ERRORS = {
    **dict.fromkeys(("write", "pwrite64", "copy_file_range"), ("ENOSPC", "EIO")),
    **dict.fromkeys(("fsync", "fdatasync", "close", "unlink", "unlinkat", "rmdir"), ("EIO",)),
    **dict.fromkeys(("rename", "renameat", "renameat2", "link"), ("ENOSPC", "EIO", "KILL")),
    **dict.fromkeys(("mkdir", "mkdirat", "ftruncate", "fallocate"), ("ENOSPC",)),
    **dict.fromkeys(("read", "pread64", "getdents64"), ("EIO",)),
    **{"openat": ("ENOSPC", "EMFILE", "EIO"), "flock": ("ENOLCK",), "mmap": ("ENOMEM",)},
}
"""System calls that are let fail, and how; ``KILL``: the process is killed in their place."""
_CALL = re.compile(
    rf'^({"|".join(ERRORS)})\((?:(?:AT_FDCWD<[^>]*>, )?"([^"]*)"|\d+<(/[^>]*)>)?', re.MULTILINE
)
"""Its name and that of its file, in a line of a trace."""
_REMOVING = ("unlink", "unlinkat", "rmdir")
Work = Callable[["Trial", int, random.Random, Path], str]
"""Disturbs a job, given the seed, what it draws from it and a folder; returns how that ended."""


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
        options = self.job.again if again or self.job.old else ""
        return start(f"{self.job.words} {options}", folder, **how)

    def problem(self, folder: Path, ended: Ended, may_leave: bool) -> str:
        """Return what is wrong after a disturbed run, and after a second one, or nothing.

        The output must be the old one or the new one, of several files each, and the second run
        must give what an undisturbed one does and leave nothing unfinished.
        """
        seen = self.job.seen(folder)
        if ended.code == 0 and seen != self.whole:
            return "exit code 0 without the whole output"
        old, new = (v if isinstance(v, dict) else {"": v} for v in (self.before, self.whole))
        parts = seen if isinstance(seen, dict) else {"": seen}
        if seen is not None and any(v not in (old.get(k), new.get(k)) for k, v in parts.items()):
            return "neither the old output nor the new one"
        if seen is None and self.before is not None:
            return "the old output is lost"
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


def _each(good: Path, seeds: range, work: Work, leave_out: str = "") -> Iterator[Case]:
    for name, job in jobs(good).items():
        if name == leave_out:
            continue
        trial = Trial(job, good.parent / "undisturbed")
        for seed in seeds:
            draw = random.Random(f"{name}-{seed}")
            yield Case(name, seed, partial(work, trial, seed, draw), 300.0)


def kills(good: Path, seeds: range) -> Iterator[Case]:
    """Yield jobs killed at a random moment, or when something unfinished appears.

    Of ``benchmark`` a second process works on the same folder and goes on.
    """

    def work(trial: Trial, seed: int, draw: random.Random, beside: Path) -> str:
        folder, waits = trial.place(beside), seed % 2 == 1
        moment = draw.uniform(0, 0.02 if waits else trial.seconds)

        def strike(pid: int) -> None:
            end = time.monotonic() + 3 * trial.seconds
            while waits and time.monotonic() < end and not unfinished(folder):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
                time.sleep(0.0005)
            time.sleep(moment)
            os.kill(pid, signal.SIGKILL)  # it is not waited for yet, so its number is its own

        other = 0
        if trial.job.words.startswith("benchmark") and (other := os.fork()) == 0:
            (beside / "other").mkdir()
            (beside / "other" / "case").symlink_to(folder)
            os._exit(trial.start(beside / "other" / "case").code)
        ended = trial.start(folder, during=strike)
        if other and (code := os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])):
            return f"wrong: the process beside it ended with {code}"
        if ended.code not in (0, -signal.SIGKILL):
            return f"wrong: exit code {ended.code}: {ended.line}"
        problem = trial.problem(folder, ended, may_leave=True)
        return f"wrong: {problem}" if problem else f"same: exit code {ended.code}"

    yield from _each(good, seeds, work)


def faults(good: Path, seeds: range, at_renames: bool = False) -> Iterator[Case]:
    """Yield jobs of which one system call on a file of theirs fails; needs strace.

    With ``at_renames`` they are killed in place of one rename, the first for seed 0, and so on.
    """

    def work(trial: Trial, seed: int, draw: random.Random, beside: Path) -> str:
        first = trial.place(beside / "a")
        _, trace = traced(trial, first, ["-e", f"trace={','.join(ERRORS)}"])
        found = _calls(trace, (str(beside), str(good)))
        if at_renames:
            found = [key for key in found if key[0].startswith("rename")]
            found = [found[seed % len(found)]]
        call, name = draw.choice(sorted({key[:2] for key in found}))
        number = draw.choice([n for c, w, n in found if (c, w) == (call, name)])
        error = "KILL" if at_renames else draw.choice(ERRORS[call])
        folder = trial.place(beside / "b")
        how = "signal=KILL" if error == "KILL" else f"error={error}"
        inject = ["-e", f"trace={call}", "-e", f"inject={call}:{how}:when={number}"]
        ended, _ = traced(trial, folder, inject)
        problem = ended.problem if error != "KILL" else ""
        problem = problem or trial.problem(folder, ended, error == "KILL" or call in _REMOVING)
        where = f"{call} {number} of {name}, {error}"
        return f"{'wrong' if problem else 'done'}: {where}: {problem or ended.line}"

    yield from _each(good, seeds, work)


def traced(trial: Trial, folder: Path, arguments: list[str]) -> tuple[Ended, str]:
    """Run a job under strace and return how it ended, and the trace."""
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
    return ended, log.read_text(errors="replace")


def _calls(trace: str, ours: tuple[str, ...]) -> list[tuple[str, str, int]]:
    """Return call, name of its file without what differs from run to run, and its number."""
    numbers, found = Counter[str](), list[tuple[str, str, int]]()
    for call, named, opened in _CALL.findall(trace):
        numbers[call] += 1
        name = named or opened
        if name.startswith(ours) or (name and not name.startswith("/")):
            short = re.sub(r"[-._][0-9a-z_]{8}\b|\d+", "", Path(name).name)
            found.append((call, short, numbers[call]))
    return found


def hash_seeds(good: Path, seeds: range) -> Iterator[Case]:
    """Yield jobs under hash seeds; the output must be that of no seed."""

    def work(trial: Trial, seed: int, _: random.Random, beside: Path) -> str:
        folder = trial.place(beside)
        trial.start(folder, before=_changing({"PYTHONHASHSEED": str(seed)}), is_new=True)
        return "same" if trial.job.seen(folder) == trial.whole else "wrong"

    yield from _each(good, seeds, work, leave_out="benchmark")


def _changing(variables: Mapping[str, str | None]) -> Callable[[], None]:
    """Return what sets variables of the environment, or (None) removes them."""

    def change() -> None:
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    return change


_NOWHERE = "/dev/null/nothing"
_CACHES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR")
_KEPT = ("PATH", "OMP_NUM_THREADS", "PYTHONPATH", "TMPDIR")
_ASCII = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LIMITS: dict[str, Callable[[], object]] = {
    "64 open files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    "no HOME": _changing(dict.fromkeys(("HOME", *_CACHES))),
    "a home that cannot be written": _changing({"HOME": _NOWHERE, **dict.fromkeys(_CACHES)}),
    "LANG=C without UTF-8": _changing(_ASCII),
    "no variables but PATH": _changing({k: None for k in os.environ if k not in _KEPT}),
    "a terminal of 20 columns": _changing({"COLUMNS": "20", "LINES": "5", "FORCE_COLOR": "1"}),
    "one processor": lambda: os.sched_setaffinity(0, {0}),
    "standard input closed": lambda: os.close(0),
    "standard output closed": lambda: os.close(1),
    "standard error closed": lambda: os.close(2),
    "standard output full": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1),
    "TMPDIR that cannot be written": _changing(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), _NOWHERE)),
    "files of 2 kB at most": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048)),
}
"""What a job has to do without: what is done in its process before it begins."""


def limits(good: Path, seeds: range) -> Iterator[Case]:
    """Yield jobs that lack something: the same output, or one line and nothing left behind."""

    def work(trial: Trial, seed: int, _: random.Random, beside: Path) -> str:
        name, folder = list(LIMITS)[seed % len(LIMITS)], trial.place(beside)
        ended = trial.start(folder, before=LIMITS[name], is_new=True)
        problem = ended.problem if "error closed" not in name else ""
        if not problem and ended.code == 0 and trial.job.seen(folder) != trial.whole:
            problem = "exit code 0, another output"
        if not problem and ended.code and not trial.job.resumes and not trial.job.old:
            left = sorted(p.name for p in folder.iterdir())
            problem = f"left {', '.join(left)}" if left else ""
        result = "wrong" if problem else "refused" if ended.code else "same"
        return f"{result}: {name}: {problem or ended.line}"

    yield from _each(good, seeds, work, leave_out="benchmark")


def options(good: Path, seeds: range) -> Iterator[Case]:
    """Yield random command lines; each must end with 0, or with 2 and one line."""
    values = ["0", "-1", "1e9", "nan", "x", "a,b", "../x", "ä", "none", "run", "molecules.csv"]
    verbs: dict[str, Any] = dict(get_command(app).commands)  # type: ignore[attr-defined]
    for slow in ("quickstart", "benchmark"):
        del verbs[slow]

    def work(seed: int, beside: Path) -> str:
        draw, folder = random.Random(f"options-{seed}"), beside / "case"
        shutil.copytree(good, folder)
        words = [draw.choice(sorted(verbs))]
        command = verbs[words[0]]
        while hasattr(command, "commands"):
            words.append(draw.choice(sorted(command.commands)))
            command = command.commands[words[-1]]
        for parameter in command.params:
            if not parameter.required and draw.random() >= 2 / len(command.params):
                continue
            if parameter.param_type_name == "option":
                words.append(draw.choice(parameter.opts))
            if not getattr(parameter, "is_flag", False):
                known = [str(c) for c in parameter.type_descriptor.choices or ()]
                words.append(draw.choice(known if known and draw.random() < 0.8 else values))
        ended = start(" ".join(words), folder)
        result = "wrong" if ended.problem else "refused" if ended.code else "done"
        return f"{result}: {' '.join(words)}: {ended.problem or ended.line}"

    yield from (Case("options", seed, partial(work, seed), 120.0) for seed in seeds)
