"""Run each case in its own process and folder, and run commands as processes."""

import contextlib
import importlib
import io
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pandas as pd

SOURCE = Path(__file__).resolve().parents[2] / "src"
sys.path.insert(0, str(SOURCE))
FINE = {"same", "read", "right", "done", "refused"}
"""Results of cases that pass: the expected output, or an error message of one line."""
MEMORY_BYTES = 6 << 30
"""Memory limit of a case; the inputs have only a few kilobytes."""
COLUMNS = ["campaign", "kind", "seed", "result", "detail", "commit"]


class Case(NamedTuple):
    """One case of a campaign."""

    kind: str
    seed: int
    work: Callable[[Path], str]
    """Function of an empty folder; returns the result, or ``result: details``."""
    timeout_s: float = 60.0


def run(campaign: str, cases: Iterable[Case], kinds: Sequence[str] | None, out: Path) -> None:
    """Try the cases, or those of some kinds, that have no row in the table ``out`` yet."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if not out.exists():
        out.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    rows = pd.read_csv(out, keep_default_na=False)
    done = set(rows[COLUMNS[:3]].itertuples(index=False, name=None))
    words = ["git", "-C", str(SOURCE), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    for case in cases:
        if (kinds and case.kind not in kinds) or (campaign, case.kind, case.seed) in done:
            continue
        result, detail = attempt(case)
        row = [campaign, case.kind, case.seed, result, detail[:1500], commit]
        pd.DataFrame([row]).to_csv(out, mode="a", header=False, index=False)
        if result not in FINE:
            print(f"{result}: {case.kind}, seed {case.seed}: {detail}", flush=True)


def counts(rows: pd.DataFrame) -> str:
    """Return the number of cases of each campaign by result, as a table in Markdown."""
    lines = ["| campaign | kinds | cases | ended as | not as they should |", "|" + "---|" * 5]
    for campaign, part in rows.groupby("campaign"):
        ends = part["result"].value_counts().sort_index()
        shown = ", ".join(f"{count:,} {result}" for result, count in ends.items())
        wrong, kinds = (~part["result"].isin(FINE)).sum(), part["kind"].nunique()
        lines.append(f"| `{campaign}` | {kinds} | {len(part):,} | {shown} | {wrong} |")
    return "\n".join(lines)


def attempt(case: Case) -> tuple[str, str]:
    """Try a case in a forked process; return its result and details."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="reliability-", ignore_cleanup_errors=True) as scratch:
        process = context.Process(target=_work, args=(case, Path(scratch), send))
        process.start()
        send.close()
        try:
            if receive.poll(case.timeout_s):
                return receive.recv()
            return "hang", f"more than {case.timeout_s:.0f} s"
        except EOFError:
            process.join()
            return "crash", f"exit code {process.exitcode}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)  # the case has its own process group
            process.join()


def _work(case: Case, folder: Path, out: Any) -> None:
    """Try a case in this process and send its result and details to the pipe ``out``."""
    from graphlog.errors import GraphLoGError

    os.setpgrp()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    os.chdir(folder)
    quiet = io.StringIO()
    try:
        with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
            result, _, detail = case.work(folder).partition(": ")
    except GraphLoGError as e:
        is_line = str(e) and "\n" not in str(e).strip()
        result, detail = "refused" if is_line else "many lines", str(e)
    except MemoryError as e:
        result, detail = "memory", str(e)
    except Exception:
        result, detail = "traceback", traceback.format_exc(limit=-3)
    out.send((result, detail))


class Ended(NamedTuple):
    """Exit code and output of a command."""

    code: int
    """Exit code, or minus the number of the signal that killed the process."""
    out: str
    err: str

    @property
    def line(self) -> str:
        """The last line on standard error."""
        return (self.err.strip().splitlines() or [""])[-1]

    @property
    def problem(self) -> str:
        """Description of an ending that is wrong for any command; empty if there is none."""
        if "Traceback" in self.err:
            return f"traceback: {self.err[-300:]}"
        if self.code not in (0, 2):
            return f"exit code {self.code}: {self.line}"
        if self.code == 2 and self.out.startswith('{\n  "error"'):  # with --json
            return "many lines" if "\n" in json.loads(self.out)["error"]["message"] else ""
        errors = self.err.count("graphlog: error: ")
        if self.code == 2 and (errors != 1 or not self.line.startswith("graphlog: error: ")):
            return f"{errors} errors: {self.err[-300:]}"
        return ""


def start(
    words: str,
    folder: Path,
    *,
    before: Callable[[], object] | None = None,
    during: Callable[[int], object] | None = None,
    is_new: bool = False,
) -> Ended:
    """Run ``graphlog WORDS`` in ``folder``, with output files and ``$TMPDIR`` next to the folder.

    ``before`` is called in the new process before the command; ``during`` is called with the
    process ID while the command runs. With ``is_new`` the process starts a new Python interpreter;
    otherwise it is forked from this one.
    """
    (folder.parent / "tmp").mkdir(exist_ok=True)
    pid = os.fork()
    if pid == 0:
        _become(words.split(), folder, before, is_new)
    if during is not None:
        during(pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    texts = ((folder.parent / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    return Ended(code, *texts)


def _become(
    words: list[str], folder: Path, before: Callable[[], object] | None, is_new: bool
) -> NoReturn:
    """Turn this forked process into the command, and exit."""
    code = 1
    try:
        os.chdir(folder)
        os.environ |= {"TMPDIR": str(folder.parent / "tmp"), "PYTHONPATH": str(SOURCE)}
        tempfile.tempdir = None  # forget the folder that was found in the old environment
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in enumerate(("stdout", "stderr"), 1):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(folder.parent / name, flags, 0o644), number)
        os.closerange(3, 64)
        if before is not None:
            before()
        if is_new:
            os.execv(sys.executable, [sys.executable, "-m", "graphlog", *words])
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            for number in range(3)
        )
        from graphlog.cli.main import main

        code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def preload() -> None:
    """Do the late imports of the commands once for all cases, and limit torch to one thread."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    late = ("matplotlib.pyplot", "pyarrow.parquet", "sklearn.ensemble", "sklearn.linear_model")
    ours = ("api", "benchmark", "cli.main", "report.run", "extras.tour", "extras.tune")
    for name in (*late, *(f"graphlog.{name}" for name in ours)):
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
