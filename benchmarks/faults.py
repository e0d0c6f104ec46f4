"""Let single system calls of a job fail, and see that it leaves the old or the new state.

``strace`` lets the N-th call of a kind fail that touches a file of the job: writing with ENOSPC or
EIO, syncing, renaming, opening, locking, reading. Short writes come from a limit on the size of
files. Each case is one run. It must

- end with exit code 0 and the whole output, or with 2 and one line on standard error;
- leave the old output or the new one (of several files each), and nothing unfinished but a run
  that can be resumed, or what could not be removed;
- be repeatable: a second run, undisturbed, gives what an undisturbed first run gives.

The trace of the undisturbed run also shows whether a file was synced before it was renamed into
place, which is what decides after a power failure.

By default one call of each kind on each file is let fail; ``--all`` takes every call and error.

    python benchmarks/faults.py                       # about 15 minutes on an idle machine
    python benchmarks/faults.py --only embed --all
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import small_jobs
from small_jobs import Ended, Job

ERRORS = {
    **dict.fromkeys(("write", "pwrite64", "writev", "copy_file_range"), ("ENOSPC", "EIO")),
    **dict.fromkeys(("fsync", "fdatasync", "close", "unlink", "unlinkat", "rmdir"), ("EIO",)),
    **dict.fromkeys(("rename", "renameat", "renameat2", "link"), ("ENOSPC", "EIO")),
    **dict.fromkeys(("mkdir", "mkdirat", "ftruncate", "fallocate"), ("ENOSPC",)),
    **dict.fromkeys(("read", "pread64", "getdents64"), ("EIO",)),
    **{"openat": ("ENOSPC", "EMFILE", "EIO"), "flock": ("ENOLCK",), "mmap": ("ENOMEM",)},
}
"""System calls that are let fail, and how."""
_CALL = re.compile(r"(\w+)\((.*)")
_WRITES = ("write", "pwrite64", "writev", "ftruncate", "copy_file_range")


class Fault(NamedTuple):
    """One call that is to fail; ``limit`` is a size that no file may exceed."""

    call: str
    error: str
    number: int
    what: str
    """Its arguments in the trace."""
    path: str = ""
    """The file it is about."""

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.call} #{self.number} {self.error}"


class Outcome(NamedTuple):
    """How a case ended; ``problems`` is empty where all was well."""

    result: str
    problems: list[str]
    said: str


def attach(arguments: list[str], log: Path) -> Callable[[int, Path], None]:
    """Return what attaches strace to the stopped process and continues it."""

    def during(pid: int, _: Path) -> None:
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        command = ["strace", "-qq", "-y", "-s", "0", "-o", str(log), "-p", str(pid), *arguments]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        status = Path(f"/proc/{pid}/status")
        end = time.monotonic() + 20
        while "TracerPid:\t0\n" in status.read_text() and time.monotonic() < end:
            time.sleep(0.001)
        os.kill(pid, signal.SIGCONT)
        tracers.append(tracer)

    return during


tracers: list[subprocess.Popen[bytes]] = []


def traced(job: Job, folder: Path, arguments: list[str]) -> tuple[Ended, list[str]]:
    """Run a job under strace and return how it ended, and the lines of the trace."""
    log = folder.parent / "trace"
    ended = job.start(folder, starts_stopped=True, during=attach(arguments, log))
    tracers.pop().wait()
    return ended, log.read_text(errors="replace").splitlines()


def calls_of(job: Job, folder: Path, good: Path) -> tuple[list[Fault], list[str]]:
    """Return the calls of an undisturbed run that touch its files, and the unsafe renames."""
    _, lines = traced(job, folder, ["-e", f"trace={','.join(ERRORS)}"])
    numbers: Counter[str] = Counter()
    found: list[Fault] = []
    ours = (str(folder.parent), str(good))
    for line in lines:
        match = _CALL.match(line)
        if match is None or match[1] not in ERRORS:
            continue
        call, rest = match[1], match[2]
        numbers[call] += 1
        path = _path(rest, folder)
        if path.startswith(ours):
            found += [Fault(call, e, numbers[call], rest[:160], path) for e in ERRORS[call]]
    return found, unsafe_renames(lines)


def chosen(faults: list[Fault]) -> list[Fault]:
    """Return one fault for each kind of call on each file, at a random one of its calls."""
    kinds: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        # names of temporary files differ from run to run
        name = re.sub(r"[-._][0-9a-z_]{8}\b|\d+", "", Path(fault.path).name)
        kinds.setdefault((fault.call, name), []).append(fault)
    return [luck.choice(alike) for alike in kinds.values()]


def _path(arguments: str, folder: Path) -> str:
    """Return the file that a call is about: its first path, or that of its descriptor."""
    quoted = re.match(r'(?:AT_FDCWD<[^>]*>, )?"([^"]*)"', arguments)
    if quoted:
        return quoted[1] if quoted[1].startswith("/") else f"{folder}/{quoted[1]}"
    named = re.search(r"\d+<(/[^>]*)>", arguments)
    return named[1] if named else ""


def unsafe_renames(lines: list[str]) -> list[str]:
    """Return the files that were renamed into place before they had reached the disk."""
    dirty: set[str] = set()
    found: list[str] = []
    for line in lines:
        match = _CALL.match(line)
        if match is None or " = -1 " in line:
            continue
        call, rest = match[1], match[2]
        opened = re.match(r"\d+<([^>]*)>", rest)
        if call in _WRITES and opened:
            dirty.add(opened[1])
        elif call in ("fsync", "fdatasync") and opened:
            dirty.discard(opened[1])
        elif call.startswith("rename"):
            names = re.findall(r'"([^"]*)"', rest)
            source = names[0]
            stale = {p for p in dirty if p == source or p.startswith(f"{source}/")}
            stale |= {p for p in dirty if not source.startswith("/") and p.endswith(f"/{source}")}
            found += [f"{Path(p).name} -> {names[1]}" for p in sorted(stale)]
            dirty -= stale
    return found


def unfinished(folder: Path) -> list[str]:
    """Return the names of what looks half-written, in the folder and that for temporary files."""
    places = [folder, folder.parent / "tmp"]
    names = [p for place in places for p in place.rglob("*") if not p.is_dir() or p.parent != place]
    return sorted(
        str(p.relative_to(folder.parent))
        for p in [*names, *folder.iterdir()]
        if "partial" in p.name or (p.parent.name == "tmp" and not p.name.startswith("torchind"))
    )


def judge(job: Job, fault: Fault, ended: Ended, before: object, whole: object) -> Outcome:
    """Return what is wrong with how a disturbed run ended, and with what a second one gives."""
    folder, problems = ended.folder, list[str]()
    errors = ended.err.count("graphlog: error: ")
    state: object = None
    try:
        state = job.seen(folder)
    except Exception as e:
        problems.append(f"the output does not open: {type(e).__name__}: {e}")
    if ended.code == 0 and state != whole:
        problems.append("exit code 0 without the whole output")
    elif ended.code not in (0, 2):
        problems.append(f"exit code {ended.code}")
    elif ended.code == 2 and (errors != 1 or not ended.line.startswith("graphlog: error: ")):
        problems.append(f"{errors} errors on standard error")
    if not is_old_or_new(state, before, whole):
        problems.append("a third state")
    removing = fault.call in ("unlink", "unlinkat", "rmdir")  # then what was to go stays
    if not job.resumable and not removing and (left := unfinished(folder)):
        problems.append(f"left {left[0]}")
    again = job.start(folder, again=True)
    if again.code != 0:
        problems.append(f"the second run ends with {again.code}: {again.line}")
    elif job.seen(folder) != whole:
        problems.append("the second run gives something else")
    elif not removing and (left := unfinished(folder)):
        problems.append(f"the second run left {left[0]}")
    return Outcome("refused" if ended.code == 2 else "done", problems, ended.err.strip()[-400:])


def is_old_or_new(state: object, before: object, whole: object) -> bool:
    """Return whether the output is one of both; of several files each may be either."""
    if isinstance(whole, dict) and isinstance(state, dict):
        old = before if isinstance(before, dict) else {}
        return all(content in (old.get(name), whole.get(name)) for name, content in state.items())
    return state in (before, whole)


def disturbed(job: Job, fault: Fault, folder: Path) -> Ended | None:
    """Run a job with one fault; None where the fault did not reach a call of the job's files."""
    if fault.call == "limit":
        return job.start(folder, largest_file=fault.number)
    inject = f"inject={fault.call}:error={fault.error}:when={fault.number}"
    ended, lines = traced(job, folder, ["-e", f"trace={fault.call}", "-e", inject])
    hit = next((line for line in lines if line.endswith("(INJECTED)")), "")
    near = re.sub(r"\d+", "", fault.what[:40])
    return ended if hit and re.sub(r"\d+", "", hit.partition("(")[2][:40]) == near else None


def cases(job: Job, name: str, root: Path, good: Path) -> Iterator[tuple[Fault, Outcome | None]]:
    """Run every fault of a job; yield how each ended."""
    with _folder(root, name) as folder:
        job.prepare(folder)
        before = job.seen(folder)
        faults, unsafe = calls_of(job, folder, good)
        whole = job.seen(folder)
        sizes = sorted({p.stat().st_size for p in folder.rglob("*") if p.is_file()})
    for line in unsafe:
        print(f"NOT SYNCED before it was renamed: {name}: {line}", flush=True)
    largest = sizes[-1] if sizes else 0
    limits = {300, *(luck.randrange(300, largest + 301) for _ in range(4)), *sizes[-2:]}
    if not options.all:
        faults = chosen(faults)
    if 0 < options.number < len(faults):
        faults = luck.sample(faults, options.number)
    faults += [Fault("limit", "EFBIG", size, "") for size in sorted(limits) if size >= 300]
    for fault in faults:
        with _folder(root, name) as folder:
            job.prepare(folder)
            ended = disturbed(job, fault, folder)
            yield fault, None if ended is None else judge(job, fault, ended, before, whole)


@contextlib.contextmanager
def _folder(root: Path, name: str) -> Iterator[Path]:
    """Give a folder of always the same name, so that runs do the same system calls."""
    beside = root / name.replace(" ", "-")
    shutil.rmtree(beside, ignore_errors=True)
    (beside / "case").mkdir(parents=True)
    try:
        yield beside / "case"
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def main() -> int:
    """Run the faults, print what is wrong and a table; 1 if anything is wrong."""
    if shutil.which("strace") is None:
        raise SystemExit("this needs strace; on Debian: apt install strace")
    small_jobs.preload()
    root = Path(tempfile.mkdtemp(prefix="faults-"))
    good = root / "good"
    good.mkdir()
    table: Counter[tuple[str, str]] = Counter()
    began, wrong = time.monotonic(), 0
    try:
        for name, job in small_jobs.make_inputs(good).items():
            if options.only and not any(part in name for part in options.only.split(",")):
                continue
            for fault, outcome in cases(job, name, root, good):
                table[name, "not reached" if outcome is None else outcome.result] += 1
                if outcome is not None and outcome.problems:
                    wrong += 1
                    table[name, "wrong"] += 1
                    print(f"WRONG {name}: {fault.name}: {'; '.join(outcome.problems)}")
                    print(f"      {fault.what[:110]}\n      {outcome.said!r}", flush=True)
                elif options.show and outcome is not None:
                    print(f"fine  {name}: {fault.name}: {outcome.said!r}", flush=True)
            done = sum(n for (job_name, _), n in table.items() if job_name == name)
            print(f"{name}: {done} cases, {time.monotonic() - began:.0f} s", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print("\n| job | done all the same | refused in one line | not reached | wrong |")
    print("|---|---|---|---|---|")
    for name in dict.fromkeys(name for name, _ in table):
        row = [table[name, k] for k in ("done", "refused", "not reached", "wrong")]
        print(f"| {name} | {' | '.join(map(str, row))} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="jobs whose name holds any of these words")
    parser.add_argument("--all", action="store_true", help="every call and error")
    parser.add_argument("--number", type=int, default=0, help="at most so many of each job")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of faults")
    parser.add_argument("--show", action="store_true", help="print every case")
    options = parser.parse_args()
    luck = random.Random(options.seed)
    raise SystemExit(main())
