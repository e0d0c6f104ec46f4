"""Kill each verb with SIGKILL many times, run it again, and compare the ends bit by bit.

Half of the kills come at random moments, half soon after something unfinished appears in the folder
of the output. What lies there after a kill must be the old output or the new one, or a run that can
be resumed; the second command must end as one that nobody killed, and leave nothing unfinished but
temporary files of the killed process, and ``NAME.….partial`` of a small file, which are counted.
Of ``benchmark`` two processes work on one folder: one is killed, the other goes on.

    python benchmarks/kill_resume.py --kills 20                 # of each verb
    python benchmarks/kill_resume.py --only pretrain --kills 50
"""

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import small_jobs
from faults import is_old_or_new, unfinished
from small_jobs import Job


def striking(moment: float, waits: bool, took: float) -> Callable[[int, Path], None]:
    """Return what kills a process ``moment`` seconds after its start, or after a partial file."""

    def during(pid: int, folder: Path) -> None:
        end = time.monotonic() + 3 * took
        while waits and time.monotonic() < end and not any(folder.rglob("*partial*")):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            time.sleep(0.0005)
        time.sleep(moment)
        os.kill(pid, signal.SIGKILL)  # it is not waited for yet, so its number is still its own

    return during


def kill_one(job: Job, folder: Path, moment: float, waits: bool, whole: Any, took: float) -> str:
    """Kill one run and start it again; return what is wrong with its end, or nothing."""
    job.prepare(folder)
    before = job.seen(folder)
    during = striking(moment, waits, took)
    if job.words[0] != "benchmark":
        ended = job.start(folder, during=during)
    else:
        (folder.parent / "other").mkdir()
        (folder.parent / "other" / "case").symlink_to(folder)
        other = threading.Thread(target=job.start, args=(folder.parent / "other" / "case",))
        other.start()
        ended = job.start(folder, during=during)
        other.join()
    try:
        state = job.seen(folder)
    except Exception as e:
        return f"after the kill the output does not open: {type(e).__name__}: {e}"
    if not is_old_or_new(state, before, whole):
        return "after the kill there is a third state"
    again = job.start(folder, again=True)
    if again.code != 0:
        return f"the second run ends with {again.code}: {again.line}"
    if job.seen(folder) != whole:
        return "the second run gives something else"
    for name in unfinished(folder):
        # nobody reads these again: temporary files, and a small file that was about to be renamed
        if not name.startswith("tmp/") and not re.fullmatch(r".+\.[0-9a-f]{16}\.partial", name):
            return f"the second run left {name}"
        killed["left behind"] += name.startswith("case/")
    killed["killed" if ended.code == -signal.SIGKILL else "ended before"] += 1
    return ""


killed: Counter[str] = Counter()


def main() -> int:
    """Print one line a verb and every wrong end; 1 if there is any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="of each job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="jobs whose name holds any of these words")
    parser.add_argument("--minutes", type=float, default=60, help="start no kill after that")
    options = parser.parse_args()
    luck, wrong, began = random.Random(options.seed), 0, time.monotonic()
    small_jobs.preload()
    root = Path(tempfile.mkdtemp(prefix="kills-"))
    (root / "good").mkdir()
    try:
        jobs = small_jobs.make_inputs(root / "good")
        wanted = [n for n in jobs if any(part in n for part in options.only.split(","))]
        for name in wanted:
            job, beside = jobs[name], root / name.replace(" ", "-")
            beside.mkdir()
            job.prepare(beside / "case")
            start = time.monotonic()
            job.start(beside / "case")
            took, whole = time.monotonic() - start, job.seen(beside / "case")
            tried = bad = 0
            killed.clear()
            while tried < options.kills and time.monotonic() - began < 60 * options.minutes:
                shutil.rmtree(beside)
                (beside / "case").mkdir(parents=True)
                waits = tried % 2 == 1
                moment = luck.uniform(0, 0.02 if waits else took)
                problem = kill_one(job, beside / "case", moment, waits, whole, took)
                tried += 1
                if problem:
                    bad += 1
                    print(f"WRONG {name}, kill {tried}: {problem}", flush=True)
            shutil.rmtree(beside)
            wrong += bad
            print(
                f"{name}: {tried} kills ({killed['ended before']} after the end), {bad} wrong, "
                f"{killed['left behind']} partial files left, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
