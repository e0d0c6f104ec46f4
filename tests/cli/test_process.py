"""The command as its own process: entry points, pipes, signals, full disks.

Few of them: every start costs seconds.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cli_support import SMALL, Cli, run_command
from graphlog import processes
from graphlog.cli.main import VERBS
from graphlog.errors import GraphLoGError

COMMAND = [sys.executable, "-m", "graphlog"]
LONG = ["--epochs", "500", *SMALL[2:]]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_help_is_there_for_every_verb_and_loads_nothing_heavy():
    code = (
        "import sys; from graphlog.cli.main import VERBS, main\n"
        "assert main(['--help']) == main(['data', '--help']) == 0\n"
        "for name in VERBS: assert main([name, '--help']) == 0\n"
        "for verb in ('list', 'get', 'info', 'split'): assert main(['data', verb, '--help']) == 0\n"
        "heavy = {'torch', 'numpy', 'rdkit', 'sklearn', 'scipy', 'matplotlib', 'pandas'} "
        "& set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Example: graphlog") == 1 + len(VERBS) + 5
    assert done.stderr == ""


def test_the_process_ends_with_the_codes_of_the_convention(tmp_path: Path):
    done = subprocess.run(
        [*COMMAND, "featurize", "gone.csv", "-o", str(tmp_path / "s")],
        capture_output=True,
        text=True,
        env=_environment(),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("graphlog: error: ")


def test_a_missing_input_is_refused_before_anything_heavy_is_loaded():
    code = (
        "import sys; from graphlog.cli.main import main\n"
        "words = ['-m', 'random', '-o', 'z.npz']\n"
        "assert main(['embed', 'gone.csv', *words]) == main(['embed', 'bbpb', *words]) == 2\n"
        "heavy = {'torch', 'numpy', 'rdkit', 'sklearn', 'scipy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no such file: gone.csv" in done.stderr
    assert "did you mean 'bbbp'" in done.stderr


def test_standard_input_is_read_and_a_reader_that_leaves_is_no_error(
    tmp_path: Path, pretrained: Path
):
    molecules = "smiles\n" + "".join(f"{'C' * n}O\n" for n in range(1, 30))
    words = f"embed - -m {pretrained} -o {tmp_path}/e.npz --json".split()
    done = subprocess.run(
        [*COMMAND, *words],
        input=molecules,
        capture_output=True,
        text=True,
        env=_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"rows": 29' in done.stdout
    listing = subprocess.Popen(
        [*COMMAND, "data", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
    )
    assert listing.stdout is not None
    assert listing.stderr is not None
    listing.stdout.close()
    said = listing.stderr.read().decode()
    listing.stderr.close()
    assert listing.wait(timeout=120) == 141
    assert "Traceback" not in said


def test_a_run_in_progress_is_refused_to_others_and_ctrl_c_leaves_it_resumable(
    tmp_path: Path, store: Path, cli: Cli
):
    run = tmp_path / "run"
    words = ["pretrain", str(store), "-o", str(run)]
    running = subprocess.Popen(
        [*COMMAND, *words, *LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # tests in the background are started deaf to it
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (run / "metrics.jsonl").exists():
        time.sleep(0.1)
    cli(*words, *LONG, "--resume").refused("in use")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert out == ""
    assert "--resume" in err
    assert "Traceback" not in err
    assert not (run / "model.safetensors").exists()
    assert "unfinished" in cli(f"info {run}").out


def test_ctrl_c_inside_an_import_ends_with_the_same_code(tmp_path: Path):
    (tmp_path / "interrupted.py").write_text(
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
    words = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(words, cwd=tmp_path, env=_environment(), check=False)
    assert done.returncode == 130


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are posix")
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, molecules: Path, capsys: pytest.CaptureFixture[str]
):
    """In this process, whose output goes to no file that the limit could stop."""
    run = run_command(capsys)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        words = ["-m", "random", "-o", tmp_path / "e.npz", "--workers", "1", "--quiet"]
        ended = run(f"embed {molecules}", *words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    ended.refused()
    assert len(ended.err.strip().splitlines()) == 1
    assert {p.name for p in tmp_path.iterdir()} == set()


@pytest.mark.skipif(os.name != "posix", reason="process groups are posix")
def test_ctrl_c_in_a_terminal_reaches_the_workers_too_and_one_line_answers(tmp_path: Path):
    running = subprocess.Popen(
        [*COMMAND, "featurize", "wehi10k", "-o", str(tmp_path / "s"), "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not any(
        tmp_path.glob(".s.partial-*/store/endpoints.bin")
    ):
        time.sleep(0.01)
    time.sleep(0.5)  # the workers are starting
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out, err) == (130, "", "graphlog: interrupted.\n")
    assert list(tmp_path.iterdir()) == []


def test_sigterm_leaves_no_unfinished_files(tmp_path: Path, pretrained: Path) -> None:
    words = [*COMMAND, *f"embed wehi10k -m {pretrained} -o {tmp_path}/out.npz".split()]
    running = subprocess.Popen(words, stderr=subprocess.DEVNULL, env=_environment())
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not any(tmp_path.glob(".out.npz.partial-*")):
        time.sleep(0.01)
    running.terminate()
    assert running.wait(120) == 143
    assert list(tmp_path.iterdir()) == []


def test_several_processes_end_together_and_the_run_resumes(store: Path, tmp_path: Path):
    words = [*COMMAND, "pretrain", str(store), "-o", str(tmp_path / "run"), *LONG]
    words += ["--objective", "graphcl", "--set", "training.checkpoint_every_s=0"]
    checkpoints = tmp_path / "run" / "checkpoint"

    def start_until(step: int, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*words, "--processes", "2", *more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
            # a job in the background of a shell ignores Ctrl-C, and hands that on
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while not any(int(p.name[5:14]) > step for p in checkpoints.glob("step-*.safetensors")):
            assert process.poll() is None
            time.sleep(0.05)
        return process

    killed = start_until(0, "-q")
    children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    said = killed.communicate(timeout=120)[1].strip()
    assert killed.returncode == 2
    line = "graphlog: error: process 1 of 2 was ended by SIGKILL (out of memory?)"
    assert said.startswith(line)
    assert len(said.splitlines()) == 1
    reached = max(int(p.name[5:14]) for p in checkpoints.glob("step-*.safetensors"))

    stopped = start_until(reached, "--resume")
    stopped.send_signal(signal.SIGINT)
    said = stopped.communicate(timeout=120)[1]
    assert stopped.returncode == 130
    assert f"continuing from step {reached}" in said
    assert said.count("stopped after step") == 1
    assert not list(checkpoints.glob("*.partial"))


def test_a_process_killed_before_they_have_met_ends_the_others(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """They wait for one another without a word; only the one that started them can know."""
    monkeypatch.setattr(processes, "_PATIENCE_S", float("inf"))
    monkeypatch.setattr(processes, "_PATIENCE_AFTER_KILL_S", 0.2)
    started: list[subprocess.Popen[bytes]] = []
    start = vars(processes)["_start"]
    monkeypatch.setattr(processes, "_start", lambda *a: started.append(start(*a)) or started[-1])

    def kill() -> None:
        while len(started) < 2:
            time.sleep(0.01)
        started[1].send_signal(signal.SIGKILL)

    threading.Thread(target=kill).start()
    words = ["pretrain", str(store), "-o", str(tmp_path / "run"), *LONG, "-q"]
    with pytest.raises(GraphLoGError, match="process 1 of 2 was ended by SIGKILL"):
        processes.run_processes(words, 2)
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
    assert list(tmp_path.iterdir()) == []
