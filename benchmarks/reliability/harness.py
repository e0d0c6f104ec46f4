"""Cases, each tried in a process and a folder of its own, and commands run as processes."""

import contextlib
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pandas as pd

SOURCE = Path(__file__).resolve().parents[2] / "src"
sys.path.insert(0, str(SOURCE))
FINE = {"same", "read", "right", "done", "refused"}
"""How a case may end: with the numbers of the intact input, as it should, or in one line."""
MEMORY_BYTES = 6 << 30
"""Inputs of a few kilobytes have no business with more memory than this."""
STREAMS = ("stdin", "stdout", "stderr")
COLUMNS = ["campaign", "kind", "seed", "result", "detail", "commit"]


class Case(NamedTuple):
    """One case of a campaign."""

    kind: str
    seed: int
    work: Callable[[Path], str]
    """Given an empty folder, returns how it ended, with what is to be told after a colon."""
    patience_s: float = 60.0


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    """Exit code; minus the number of the signal that killed it."""
    out: str
    err: str

    @property
    def line(self) -> str:
        """The last line on standard error."""
        return (self.err.strip().splitlines() or [""])[-1]

    @property
    def problem(self) -> str:
        """What is wrong with how it ended, whatever it had to do; nothing where all is well."""
        if "Traceback" in self.err:
            return f"traceback: {self.err[-300:]}"
        if self.code not in (0, 2):
            return f"exit code {self.code}: {self.line}"
        if self.code == 2 and self.out.startswith('{\n  "error"'):  # as --json has it
            return "many lines" if "\n" in json.loads(self.out)["error"]["message"] else ""
        errors = self.err.count("graphlog: error: ")
        if self.code == 2 and (errors != 1 or not self.line.startswith("graphlog: error: ")):
            return f"{errors} errors: {self.err[-300:]}"
        return ""


def run(
    campaign: str, cases: Iterable[Case], kinds: Sequence[str] | None, kept: Path
) -> pd.DataFrame:
    """Try the cases that have no row in the table ``kept``, and return its rows of the campaign.

    Of some kinds alone, if these are named. A row is added when a case ends, so that a campaign
    that was stopped goes on where it was.
    """
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        kept.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    rows = pd.read_csv(kept, keep_default_na=False)
    done = set(rows[["campaign", "kind", "seed"]].itertuples(index=False, name=None))
    words = ["git", "-C", str(SOURCE), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    new = [
        case
        for case in cases
        if (not kinds or case.kind in kinds) and (campaign, case.kind, case.seed) not in done
    ]
    for case, result, detail in isolated(new):
        row = [campaign, case.kind, case.seed, result, detail[:1500], commit]
        pd.DataFrame([row]).to_csv(kept, mode="a", header=False, index=False)
        if result not in FINE:
            print(f"{result}: {case.kind}, seed {case.seed}: {detail}", flush=True)
    rows = pd.read_csv(kept, keep_default_na=False)
    return rows[rows["campaign"] == campaign]


def counts(rows: pd.DataFrame) -> str:
    """Return how many cases of every campaign ended how, as a table in Markdown."""
    frame = rows.assign(is_fine=rows["result"].isin(FINE))
    lines = [
        "| campaign | kinds | cases | ended as | not as they should |",
        "|---|---|---|---|---|",
    ]
    for campaign, part in frame.groupby("campaign", sort=True):
        ends = part["result"].value_counts().sort_index()
        shown = ", ".join(f"{count:,} {result}" for result, count in ends.items())
        numbers = (part["kind"].nunique(), f"{len(part):,}", shown, (~part["is_fine"]).sum())
        lines.append(f"| `{campaign}` | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def isolated(cases: Sequence[Case]) -> Iterator[tuple[Case, str, str]]:
    """Yield how each case ended, from a forked process; one that dies or hangs costs its case."""
    waiting = list(cases)
    context = multiprocessing.get_context("fork")
    while waiting:
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(waiting, send))
        process.start()
        send.close()
        while waiting:
            case = waiting.pop(0)
            try:
                if not receive.poll(case.patience_s):
                    raise TimeoutError
                yield (case, *receive.recv())
            except (EOFError, TimeoutError) as e:
                hung = isinstance(e, TimeoutError)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid or 0, signal.SIGKILL)  # its own group, see below
                process.join()
                detail = f"more than {case.patience_s:.0f} s" if hung else str(process.exitcode)
                yield case, "hang" if hung else "crash", detail
                break
        process.join()


def _work(cases: Sequence[Case], out: Any) -> None:
    os.setpgrp()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="reliability-") as scratch:
            os.chdir(scratch)
            out.send(ended(case.work, Path(scratch)))
            os.chdir("/")


def ended(work: Callable[[Path], str], folder: Path) -> tuple[str, str]:
    """Return how some work ended and what is to be told of it."""
    from graphlog.errors import GraphLoGError

    quiet = io.StringIO()
    try:
        with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
            result, _, detail = work(folder).partition(": ")
            return result, detail
    except GraphLoGError as e:
        is_line = str(e) and "\n" not in str(e).strip()
        return "refused" if is_line else "many lines", str(e)
    except MemoryError as e:
        return "memory", str(e)
    except Exception:
        return "traceback", traceback.format_exc(limit=-3)


def start(
    words: Sequence[str],
    folder: Path,
    *,
    environment: dict[str, str | None] | None = None,
    before: Callable[[], object] | None = None,
    during: Callable[[int], object] | None = None,
    stdin: bytes = b"",
    is_new: bool = False,
) -> Ended:
    """Run ``graphlog WORDS`` in ``folder``; standard streams and ``$TMPDIR`` are beside it.

    Args:
        words: The command.
        folder: Where it runs.
        environment: Variables to set, or (None) to remove.
        before: Called in the new process before the command.
        during: Called with the number of the process while it runs.
        stdin: What it reads on standard input.
        is_new: Start Python anew; otherwise the process is forked from this one.
    """
    (folder.parent / "tmp").mkdir(exist_ok=True)
    (folder.parent / "stdin").write_bytes(stdin)
    pid = os.fork()
    if pid == 0:
        _become_the_command(words, folder, environment or {}, before, is_new)
    if during is not None:
        during(pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    files = (folder.parent / name for name in ("stdout", "stderr"))
    return Ended(code, *(f.read_bytes().decode(errors="replace") for f in files))


def _become_the_command(
    words: Sequence[str],
    folder: Path,
    environment: dict[str, str | None],
    before: Callable[[], object] | None,
    is_new: bool,
) -> NoReturn:
    code = 1
    try:
        os.chdir(folder)
        os.environ["TMPDIR"], tempfile.tempdir = str(folder.parent / "tmp"), None
        os.environ["PYTHONPATH"] = str(SOURCE)
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        flags = (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_TRUNC] * 2)
        for number, (name, flag) in enumerate(zip(STREAMS, flags, strict=True)):
            os.dup2(os.open(folder.parent / name, flag, 0o644), number)
        os.closerange(3, 64)
        if before is not None:
            before()
        if is_new:
            os.execv(sys.executable, [sys.executable, "-m", "graphlog", *words])
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            for number in range(3)
        )
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from graphlog.cli.main import main

        code = main(list(words))
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


LATE = (
    *("matplotlib.pyplot", "optuna", "pyarrow.parquet", "sklearn.ensemble", "sklearn.linear_model"),
    *("graphlog.api", "graphlog.benchmark", "graphlog.cli.main", "graphlog.report.run"),
    *("graphlog.extras.tour", "graphlog.extras.tune"),
)
"""What the commands import late."""


def preload() -> None:
    """Import what the commands import late, once for all cases, which have one thread."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in LATE:
        import_module(name)
    import torch

    torch.set_num_threads(1)
