"""Run commands that are killed, whose system calls fail, or that lack resources."""

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
"""System calls to disturb, with the errors to inject; ``KILL`` kills the process instead."""
_CALL = re.compile(
    rf'^({"|".join(ERRORS)})\((?:(?:AT_FDCWD<[^>]*>, )?"([^"]*)"|\d+<(/[^>]*)>)?', re.MULTILINE
)
"""Matches a system call in a line of a trace, with the path that it names or has opened."""
_REMOVING = ("unlink", "unlinkat", "rmdir")
Work = Callable[["Trial", int, random.Random, Path], str]
"""Function that disturbs a job, given seed, random generator and folder; returns the result."""


class Trial:
    """A job with its output when it is not disturbed, to compare other runs with."""

    def __init__(self, job: Job, parent: Path) -> None:
        """Run the job once."""
        self.job = job
        folder = self.prepare(parent)
        self.old_output, began = job.read_output(folder), time.monotonic()
        ended = self.start(folder)
        self.seconds, self.output = time.monotonic() - began, job.read_output(folder)
        assert self.output is not None, ended
        shutil.rmtree(parent)

    def prepare(self, parent: Path) -> Path:
        """Return a new folder, with an older output if the job replaces one."""
        folder = parent / "case"
        folder.mkdir(parents=True)
        if self.job.old:
            start(self.job.old, folder)
        return folder

    def start(self, folder: Path, again: bool = False, **how: Any) -> Ended:
        """Run the job; ``again`` adds the options of a second run."""
        options = self.job.again if again or self.job.old else ""
        return start(f"{self.job.words} {options}", folder, **how)

    def problem(self, folder: Path, ended: Ended, may_leave: bool) -> str:
        """Start a second run after a disturbed one; return what is wrong, or an empty text.

        After the disturbed run each output file must be the old one or the new one. The second run
        must give the same output as an undisturbed one. ``may_leave`` allows unfinished files.
        """
        output = self.job.read_output(folder)
        if ended.code == 0 and output != self.output:
            return "exit code 0 without the whole output"
        old, new, files = (
            v if isinstance(v, dict) else {"": v} for v in (self.old_output, self.output, output)
        )
        if output is not None and any(v not in (old.get(k), new.get(k)) for k, v in files.items()):
            return "neither the old output nor the new one"
        if output is None and self.old_output is not None:
            return "the old output is lost"
        if not may_leave and not self.job.resumes and (left := unfinished(folder)):
            return f"left {left[0]}"
        again = self.start(folder, again=True)
        if again.code:
            return f"the second run ends with {again.code}: {again.line}"
        if self.job.read_output(folder) != self.output:
            return "the second run gives something else"
        # A killed process may leave a small file with a unique name, which no later run reads.
        left = [n for n in unfinished(folder) if not re.fullmatch(r".+\.[0-9a-f]{16}\.partial", n)]
        return f"the second run left {left[0]}" if left and not may_leave else ""


def unfinished(folder: Path) -> list[str]:
    """Return the relative paths of unfinished files."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*partial*"))


def _cases(good: Path, seeds: range, work: Work, leave_out: str = "") -> Iterator[Case]:
    """Yield a case for each job and seed."""
    for name, job in jobs(good).items():
        if name == leave_out:
            continue
        trial = Trial(job, good.parent / "undisturbed")
        for seed in seeds:
            draw = random.Random(f"{name}-{seed}")
            yield Case(name, seed, partial(work, trial, seed, draw), 300.0)


def kills(good: Path, seeds: range) -> Iterator[Case]:
    """Yield jobs that are killed at a random time, or soon after an unfinished file appears.

    For the job ``benchmark``, a second process works in the same folder and is not killed.
    """

    def work(trial: Trial, seed: int, draw: random.Random, parent: Path) -> str:
        folder, waits = trial.prepare(parent), seed % 2 == 1
        delay = draw.uniform(0, 0.02 if waits else trial.seconds)

        def kill(pid: int) -> None:
            end = time.monotonic() + 3 * trial.seconds
            while waits and time.monotonic() < end and not unfinished(folder):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
                time.sleep(0.0005)
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)  # nobody has waited for it yet, so the ID is still valid

        other = 0
        if trial.job.words.startswith("benchmark") and (other := os.fork()) == 0:
            (parent / "other").mkdir()
            (parent / "other" / "case").symlink_to(folder)
            os._exit(trial.start(parent / "other" / "case").code)
        ended = trial.start(folder, during=kill)
        if other and (code := os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])):
            return f"wrong: the second process ended with {code}"
        if ended.code not in (0, -signal.SIGKILL):
            return f"wrong: exit code {ended.code}: {ended.line}"
        problem = trial.problem(folder, ended, may_leave=True)
        return f"wrong: {problem}" if problem else f"same: exit code {ended.code}"

    yield from _cases(good, seeds, work)


def faults(good: Path, seeds: range, at_renames: bool = False) -> Iterator[Case]:
    """Yield jobs in which one system call on one of their files fails; needs strace.

    With ``at_renames`` the job is killed at a rename instead: at the first one for seed 0, etc.
    """

    def work(trial: Trial, seed: int, draw: random.Random, parent: Path) -> str:
        undisturbed = trial.prepare(parent / "a")
        _, trace = traced(trial, undisturbed, ["-e", f"trace={','.join(ERRORS)}"])
        calls = _calls(trace, (str(parent), str(good)))
        if at_renames:
            calls = [key for key in calls if key[0].startswith("rename")]
            calls = [calls[seed % len(calls)]]
        call, name = draw.choice(sorted({key[:2] for key in calls}))
        number = draw.choice([n for c, w, n in calls if (c, w) == (call, name)])
        error = "KILL" if at_renames else draw.choice(ERRORS[call])
        folder = trial.prepare(parent / "b")
        how = "signal=KILL" if error == "KILL" else f"error={error}"
        inject = ["-e", f"trace={call}", "-e", f"inject={call}:{how}:when={number}"]
        ended, _ = traced(trial, folder, inject)
        problem = ended.problem if error != "KILL" else ""
        problem = problem or trial.problem(folder, ended, error == "KILL" or call in _REMOVING)
        where = f"{call} {number} of {name}, {error}"
        return f"{'wrong' if problem else 'done'}: {where}: {problem or ended.line}"

    yield from _cases(good, seeds, work)


def traced(trial: Trial, folder: Path, arguments: list[str]) -> tuple[Ended, str]:
    """Run a job under strace; return the result of the command and the trace."""
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


def _calls(trace: str, folders: tuple[str, ...]) -> list[tuple[str, str, int]]:
    """Return name, file and number of each call on files in these folders or with relative paths.

    Random parts and digits of the file names, which differ from run to run, are removed.
    """
    numbers, calls = Counter[str](), list[tuple[str, str, int]]()
    for call, named, opened in _CALL.findall(trace):
        numbers[call] += 1
        path = named or opened
        if path.startswith(folders) or (path and not path.startswith("/")):
            name = re.sub(r"[-._][0-9a-z_]{8}\b|\d+", "", Path(path).name)
            calls.append((call, name, numbers[call]))
    return calls


def hash_seeds(good: Path, seeds: range) -> Iterator[Case]:
    """Yield jobs with a fixed hash seed; the output must be the same as without one."""

    def work(trial: Trial, seed: int, _: random.Random, parent: Path) -> str:
        folder = trial.prepare(parent)
        trial.start(folder, before=_changing({"PYTHONHASHSEED": str(seed)}), is_new=True)
        return "same" if trial.job.read_output(folder) == trial.output else "wrong"

    yield from _cases(good, seeds, work, leave_out="benchmark")


def _changing(variables: Mapping[str, str | None]) -> Callable[[], None]:
    """Return a function that sets environment variables, and removes those that are None."""

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
"""Functions that limit the resources of a process, called in it before its command."""


def limits(good: Path, seeds: range) -> Iterator[Case]:
    """Yield jobs that lack a resource; they must give the same output, or one line and no files."""

    def work(trial: Trial, seed: int, _: random.Random, parent: Path) -> str:
        name, folder = list(LIMITS)[seed % len(LIMITS)], trial.prepare(parent)
        ended = trial.start(folder, before=LIMITS[name], is_new=True)
        problem = ended.problem if "error closed" not in name else ""
        if not problem and ended.code == 0 and trial.job.read_output(folder) != trial.output:
            problem = "exit code 0, another output"
        if not problem and ended.code and not trial.job.resumes and not trial.job.old:
            left = sorted(p.name for p in folder.iterdir())
            problem = f"left {', '.join(left)}" if left else ""
        result = "wrong" if problem else "refused" if ended.code else "same"
        return f"{result}: {name}: {problem or ended.line}"

    yield from _cases(good, seeds, work, leave_out="benchmark")


def options(good: Path, seeds: range) -> Iterator[Case]:
    """Yield random command lines; each must exit with 0, or with 2 and an error of one line."""
    values = ["0", "-1", "1e9", "nan", "x", "a,b", "../x", "ä", "none", "run", "molecules.csv"]
    commands: dict[str, Any] = dict(get_command(app).commands)  # type: ignore[attr-defined]
    del commands["quickstart"], commands["benchmark"]  # these are slow

    def work(seed: int, parent: Path) -> str:
        draw, folder = random.Random(f"options-{seed}"), parent / "case"
        shutil.copytree(good, folder)
        words = [draw.choice(sorted(commands))]
        command = commands[words[0]]
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
