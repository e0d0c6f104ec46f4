"""Every verb where something is missing or scarce: open files, a home, a locale, an output.

Each case is a process of its own. Its output must have the bytes of one without limits, or it must
be refused in one line with exit code 2. Files that expand to gigabytes are read with a limit on
time; the peak of the resident memory of the command, without its workers, is reported.

    python benchmarks/limits.py                                 # about ten minutes on two cores
    python benchmarks/limits.py --only "featurize,embed .csv"
"""

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import small_jobs
from small_jobs import Job

SOURCE = str(Path(__file__).resolve().parent.parent / "src")
PATIENCE_S = 300


@dataclass(frozen=True)
class Limit:
    """What a process has to do without."""

    environment: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Variables to set, or to remove."""
    before: Callable[[], object] | None = None
    """Called in the new process before Python starts in it."""


def open_files(number: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))


def closed(descriptor: int) -> Callable[[], None]:
    return lambda: os.close(descriptor)


NOWHERE = "/dev/null/nothing"
"""A path that nobody, root included, can write to."""
CACHES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR")
_KEPT = ("PATH", "OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""The number of threads and the kernels decide how sums round."""
LIMITS = {
    "64 open files": Limit(before=open_files(64)),
    "no HOME": Limit({"HOME": None, **dict.fromkeys(CACHES)}),
    "a home that cannot be written": Limit({"HOME": NOWHERE, **dict.fromkeys(CACHES)}),
    "LANG=C without UTF-8": Limit(
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ),
    "no variables but PATH": Limit({name: None for name in os.environ if name not in _KEPT}),
    "a terminal of 20 columns": Limit({"COLUMNS": "20", "LINES": "5", "FORCE_COLOR": "1"}),
    "one processor": Limit(before=lambda: os.sched_setaffinity(0, {0})),
    "standard input closed": Limit(before=closed(0)),
    "standard output closed": Limit(before=closed(1)),
    "standard error closed": Limit(before=closed(2)),
    "standard output full": Limit(before=lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1)),
    "TMPDIR that cannot be written": Limit({"TMPDIR": NOWHERE, "TEMP": NOWHERE, "TMP": NOWHERE}),
}


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    error: str
    peak_mb: float


def start(words: list[str], folder: Path, limit: Limit, extra: dict[str, str]) -> Ended:
    """Run a command in ``folder`` under a limit; its output goes to ``stdout`` beside it."""
    environment = {**os.environ, **extra, "PYTHONPATH": SOURCE}
    for name, value in limit.environment.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    environment["PYTHONPATH"] = SOURCE
    with (folder.parent / "stdout").open("wb") as out, (folder.parent / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "graphlog", *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            preexec_fn=limit.before,
        )
        peak, end = 0.0, time.monotonic() + PATIENCE_S
        while process.poll() is None:
            peak = max(peak, _peak_mb(process.pid))
            time.sleep(0.02)
            if time.monotonic() > end:
                process.kill()
    error = (folder.parent / "stderr").read_text(errors="replace")
    return Ended(process.returncode, error, peak)


def _peak_mb(pid: int) -> float:
    """Return the peak of the resident memory of a process since its program started."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has ended
        return 0.0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) / 1024 if found else 0.0


def judge(job: Job, limit: str, folder: Path, ended: Ended, whole: Any) -> str:
    """Return ``same``, ``refused: …`` or what is wrong."""
    lines = ended.error.strip().splitlines()
    if ended.code == 0 and limit == "standard output closed" and job.seen(folder) is None:
        return "same, but nothing is printed"
    if ended.code == 0:
        return "same" if job.seen(folder) == whole else "WRONG: exit code 0, another output"
    if ended.code == 2 and "Traceback" not in ended.error:
        left = sorted(p.name for p in folder.iterdir())
        if left and not job.resumable:
            return f"WRONG: refused, but left {', '.join(left)}"
        return f"refused: {lines[-1] if lines else ''}"
    return f"WRONG: exit code {ended.code}: {lines[-1] if lines else ''}"


def verbs(root: Path, only: list[str]) -> list[dict[str, Any]]:
    """Run every verb under every limit."""
    found: list[dict[str, Any]] = []
    (root / "good").mkdir()
    small_jobs.preload()
    jobs = small_jobs.make_inputs(root / "good")
    wanted = [n for n in jobs if n != "benchmark" and (not only or n in only)]
    for name in wanted:
        job = jobs[name]
        whole: Any = None
        for place, limit in {"": Limit(), **LIMITS}.items():
            beside = root / "case"
            folder = beside / "case"
            folder.mkdir(parents=True)
            job.prepare(folder)
            words = [*job.words, *(job.again if job.old else ())]
            ended = start(words, folder, limit, job.environment)
            if not place:
                whole = job.seen(folder)
                assert whole is not None, f"{name}: {ended}"
            else:
                verdict = judge(job, place, folder, ended, whole)
                row = {"verb": name, "limit": place, "end": verdict, "MB": round(ended.peak_mb)}
                found.append(row)
                print(json.dumps(row), flush=True)
            shutil.rmtree(beside)
    return found


def write_bombs(folder: Path) -> dict[str, list[str]]:
    """Write small files that expand to gigabytes; return the options each is read with."""
    import pyarrow as pa
    from pyarrow import parquet

    block = b"C" * (1 << 24)
    with gzip.open(folder / "one_line.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"smiles\n")
        for _ in range(256):
            file.write(block)
    with gzip.open(folder / "many_lines.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"smiles\n")
        for _ in range(128):
            file.write(b"CC\n" * (1 << 23))
    cell = pa.DictionaryArray.from_arrays(
        pa.array([0] * 4_000, pa.int32()), pa.array(["C" * 900_000])
    )
    parquet.write_table(pa.table({"smiles": cell}), folder / "cells.parquet")
    with zipfile.ZipFile(folder / "book.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as book:
        for name in ("[Content_Types].xml", "xl/workbook.xml"):
            book.writestr(name, "<x/>")
        with book.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            for _ in range(256):
                sheet.write(block)
    return {
        "one_line.csv.gz": [],
        "many_lines.csv.gz": ["--limit", "20000"],
        "cells.parquet": [],
        "book.xlsx": [],
    }


def bombs(root: Path) -> list[dict[str, Any]]:
    """Featurize files that expand to gigabytes."""
    found: list[dict[str, Any]] = []
    (root / "bombs").mkdir()
    for name, options in write_bombs(root / "bombs").items():
        folder = root / "case" / "case"
        folder.mkdir(parents=True)
        path = root / "bombs" / name
        words = ["featurize", str(path), "-o", "out", "--workers", "1", *options]
        ended = start(words, folder, Limit(), {})
        lines = ended.error.strip().splitlines()
        one_line = ended.code in (0, 2) and "Traceback" not in ended.error
        row = {
            "verb": f"featurize {name} ({path.stat().st_size / 1e6:.1f} MB)",
            "limit": "expands to gigabytes",
            "end": f"{'' if one_line else 'WRONG: '}exit code {ended.code}: {lines[-1]}",
            "MB": round(ended.peak_mb),
        }
        found.append(row)
        print(json.dumps(row), flush=True)
        shutil.rmtree(root / "case")
    return found


def main() -> int:
    """Print a line a case and the counts; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of jobs, or 'bombs'")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    root = Path(tempfile.mkdtemp(prefix="limits-"))
    try:
        found = [] if only == ["bombs"] else verbs(root, only)
        if not only or "bombs" in only:
            found += bombs(root)
    finally:
        shutil.rmtree(root)
    ends = [row["end"].split(":")[0] for row in found]
    print(
        {end: ends.count(end) for end in sorted(set(ends))}, "peak MB", max(r["MB"] for r in found)
    )
    return int("WRONG" in ends)


if __name__ == "__main__":
    sys.exit(main())
