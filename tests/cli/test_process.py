"""The command as its own process, whose start takes seconds: pipes, signals, full disks."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cli_support import SMALL, Cli, left_in, short_files
from graphlog import processes
from graphlog.cli.main import VERBS
from graphlog.errors import GraphLoGError

COMMAND = ("-m", "graphlog")
LONG = SMALL.replace("--epochs 2", "--epochs 500")


def start(words: Sequence[str], **options: bool) -> subprocess.Popen[str]:
    """Start Python with these words; it can be interrupted, as a job in the background cannot."""
    return subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def ended(words: Sequence[str], given: str = "") -> tuple[int, str, str]:
    """Return how Python ends: its code, what it printed and what it said."""
    process = start(words)
    printed, said = process.communicate(given, timeout=120)
    return process.returncode, printed, said


def wait_for(is_there: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not is_there():
        time.sleep(0.01)


LIGHT = """
import sys
from graphlog.cli.main import VERBS, main

assert main(["--help"]) == main(["data", "--help"]) == 0
for words in [*VERBS, "data list", "data get", "data info", "data split"]:
    assert main([*words.split(), "--help"]) == 0
for source in ("gone.csv", "bbpb"):
    assert main(["embed", source, "-m", "random", "-o", "z.npz"]) == 2
heavy = {*"torch torch_geometric rdkit sklearn scipy matplotlib pandas pyarrow numpy".split()}
assert not heavy & {*sys.modules}, heavy & {*sys.modules}
import graphlog.data.store, graphlog.training.pretrain
assert "rdkit" not in sys.modules
"""


def test_help_and_a_missing_input_load_nothing_heavy_and_training_no_chemistry():
    found, printed, said = ended(["-c", LIGHT])
    assert found == 0, said
    assert printed.count("Example: graphlog") == 1 + len(VERBS) + 5
    gone, unknown = said.splitlines()
    assert "no such file: gone.csv" in gone
    assert "did you mean 'bbbp'" in unknown


def test_the_process_ends_with_the_codes_of_the_convention(cli: Cli):
    found, printed, said = ended([*COMMAND, *cli.words("featurize gone.csv -o s")])
    assert (found, printed) == (2, "")
    assert len(said.strip().splitlines()) == 1
    assert said.startswith("graphlog: error: ")


def test_a_reader_that_leaves_is_no_error():
    with start([*COMMAND, "--help"]) as helping:
        helping.stdout.close()
        assert "Traceback" not in helping.stderr.read()
    assert helping.returncode == 141


def test_a_run_in_progress_is_refused_to_others_and_ctrl_c_leaves_it_resumable(cli: Cli):
    line = f"pretrain {{store}} -o run {LONG}"
    running = start([*COMMAND, *cli.words(line)])
    wait_for(Path("run/metrics.jsonl").exists)
    cli.refused(f"{line} --resume", "in use")
    running.send_signal(signal.SIGINT)
    printed, said = running.communicate(timeout=120)
    assert (running.returncode, printed) == (130, ""), said
    assert "--resume" in said
    assert "Traceback" not in said
    assert not Path("run/model.safetensors").exists()
    assert "unfinished" in cli("info run").out


def test_ctrl_c_inside_an_import_ends_with_the_same_code(cli: Cli):
    Path("interrupted.py").write_text(
        "import runpy\n"
        "import graphlog.cli.main\n"
        "def main():\n"
        "    try:\n"
        "        exec('raise KeyboardInterrupt')  # as in the body of a dataclass\n"
        "    except KeyboardInterrupt:\n"
        "        return 130\n"
        "graphlog.cli.main.main = main\n"
        "runpy.run_module('graphlog', run_name='__main__')\n"
    )
    assert ended(["-m", "interrupted"])[0] == 130


def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
):
    """In this process, whose output goes to no file that the limit could stop."""
    (tmp_path / "e.npz").write_bytes(b"old")
    with short_files(200):
        line = f"embed {{molecules}} -m random -o {tmp_path}/e.npz --workers 1 --quiet"
        told = Cli(capsys, request).refused(line)
    assert len(told.err.strip().splitlines()) == 1
    assert left_in(tmp_path) == {"e.npz"}
    assert (tmp_path / "e.npz").read_bytes() == b"old"


@pytest.mark.skipif(os.name != "posix", reason="process groups are posix")
def test_ctrl_c_in_a_terminal_reaches_the_workers_too_and_one_line_answers(cli: Cli):
    words = cli.words("featurize wehi10k -o s --workers 2")
    running = start([*COMMAND, *words], start_new_session=True)
    wait_for(lambda: any(Path().glob(".s.partial-*/store/endpoints.bin")))
    time.sleep(0.5)  # the workers are starting
    os.killpg(running.pid, signal.SIGINT)
    printed, said = running.communicate(timeout=120)
    assert (running.returncode, printed, said) == (130, "", "graphlog: interrupted.\n")
    assert left_in() == set()


def test_sigterm_leaves_no_unfinished_files(cli: Cli) -> None:
    words = cli.words("embed wehi10k -m {pretrained} -o out.npz --batch-size 8")
    running = start([*COMMAND, *words])
    wait_for(lambda: any(Path().glob(".out.npz.partial-*")))
    running.terminate()
    running.communicate(timeout=120)
    assert running.returncode == 143
    assert left_in() == set()


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that ``--processes`` starts."""
    started: list[subprocess.Popen[bytes]] = []
    begin = vars(processes)["_start"]
    monkeypatch.setattr(processes, "_start", lambda *a: started.append(begin(*a)) or started[-1])
    return started


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """This process can be interrupted, as a job in the background cannot."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_several_processes_end_together_and_the_run_resumes(
    cli: Cli, workers: list[subprocess.Popen[bytes]]
):
    line = f"pretrain {{store}} -o run {LONG} --objective graphcl --processes 2"
    line += " --set training.checkpoint_every_s=0"

    def reached() -> int:
        return max((int(p.name[5:14]) for p in Path("run/checkpoint").glob("step-*s")), default=0)

    def beyond(step: int, act: Callable[[], None]) -> None:
        threading.Thread(target=lambda: (wait_for(lambda: reached() > step), act())).start()

    beyond(0, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert cli(line, code=130).err.count("stopped after step") == 1
    stopped_at = reached()
    beyond(stopped_at, lambda: workers[3].send_signal(signal.SIGKILL))
    said = cli(line, "--resume", code=2).err
    assert f"continuing from step {stopped_at}" in said
    told = said.strip().splitlines()[-1]
    assert told.startswith("graphlog: error: process 1 of 2 was ended by SIGKILL (out of memory?)")
    assert said.count("graphlog: error") == 1
    assert not list(Path("run/checkpoint").glob("*.partial"))


def test_a_process_killed_before_they_have_met_ends_the_others(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, workers: list[subprocess.Popen[bytes]]
):
    """They wait for one another without a word; only the one that started them can know."""
    monkeypatch.setattr(processes, "_PATIENCE_S", float("inf"))
    monkeypatch.setattr(processes, "_PATIENCE_AFTER_KILL_S", 0.2)

    def kill() -> None:
        wait_for(lambda: len(workers) == 2)
        workers[1].send_signal(signal.SIGKILL)

    threading.Thread(target=kill).start()
    with pytest.raises(GraphLoGError, match="process 1 of 2 was ended by SIGKILL"):
        processes.run_processes(cli.words(f"pretrain {{store}} -o run {LONG} -q"), 2)
    assert [process.returncode for process in workers] == [-signal.SIGKILL] * 2
    assert left_in() == set()
