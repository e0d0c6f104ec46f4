"""Who may write to a run folder, and what happens when nobody can."""

import os
import resource
import signal
import stat
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphlog.errors import ConfigError, GraphLoGError
from graphlog.training.log import Progress, read_metrics
from graphlog.training.pretrain import run_pretraining
from graphlog.training.runfolder import RunFolder, remove_run
from graphlog.training.trainer import TrainingInterrupted
from training_support import (
    After,
    families,
    finished,
    job,
    outcome,
    server,
    small_config,
    spawn,
    undisturbed,
)


def test_a_run_leaves_what_it_promises(tmp_path: Path):
    run = finished(tmp_path / "deep" / "run")
    assert {p.name for p in run.iterdir()} == {
        *"config.toml versions.json metrics.jsonl model.safetensors checkpoint".split(),
        *"graphlog.json .lock".split(),
    }
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["step"] for row in rows] == [2, 3, 4]
    assert {"epoch", "phase", "loss", "loss_graph", "graphs_per_s"} <= rows[0].keys()
    assert [row["phase"] for row in rows] == ["local", "joint", "joint"]


def test_an_existing_run_is_refused_replaced_or_continued(tmp_path: Path):
    run = finished(tmp_path / "run")
    store, config, before = families(64), small_config(epochs=2), outcome(run)
    with pytest.raises(ConfigError, match="`resume=True` or replace it with `overwrite=True`"):
        run_pretraining(store, config, run)
    with pytest.raises(ConfigError, match="contradict"):
        RunFolder.open(run, resume=True, overwrite=True)
    (run / "notes.txt").write_text("mine")
    (run / "input.json").write_text("{}")  # what the run was trained on
    run_pretraining(store, config, run, overwrite=True)
    assert outcome(run) == before
    assert not (run / "input.json").exists()
    assert (run / "notes.txt").read_text() == "mine"


def test_a_file_is_no_run_folder(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="is a file or holds"):
        RunFolder.open(tmp_path / "thesis.tex")


def test_a_linked_checkpoint_folder_is_unlinked_and_what_it_points_to_stays(tmp_path: Path):
    run, scratch = finished(tmp_path / "run"), tmp_path / "scratch"
    (run / "checkpoint").rename(scratch)
    (run / "checkpoint").symlink_to(scratch)
    before, kept = outcome(run), sorted(p.name for p in scratch.iterdir())
    run_pretraining(families(64), small_config(epochs=2), run, overwrite=True)
    assert outcome(run) == before
    assert not (run / "checkpoint").is_symlink()
    assert sorted(p.name for p in scratch.iterdir()) == kept


def test_only_files_of_the_run_are_removed(tmp_path: Path):
    run = finished(tmp_path / "run")
    (run / "thesis.partial").write_text("mine")
    (run / "model.safetensors.0123456789abcdef.partial").write_text("half a model")
    for mine in ("checkpoint/best.pt", "checkpoint/step-4/notes", "tensorboard/x.txt"):
        (run / mine).parent.mkdir(exist_ok=True)
        (run / mine).write_text("mine")
    RunFolder.open(run, overwrite=True).close()
    assert {str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()} == {
        *".lock graphlog.json thesis.partial checkpoint/best.pt checkpoint/step-4/notes".split(),
        "tensorboard/x.txt",
    }
    remove_run(finished(tmp_path / "whole"), "pretrain")
    assert not (tmp_path / "whole").exists()


FOREIGN = (
    ["checkpoint/best.pt", "metrics.jsonl"],
    ["thesis.tex"],
    ["model.safetensors"],
    ["targets-egfr.csv"],
    ["tensorboard/events.out.tfevents.1.host"],
    ["config.toml", "checkpoint/step-000000001.safetensors"],
    ["graphlog.json", "metrics.jsonl"],
    [".lock", "model.safetensors"],
    [".lock"],
)


@pytest.mark.parametrize("names", FOREIGN, ids=str)
@pytest.mark.parametrize("kind", ["pretrain", "finetune", "probe"])
def test_files_of_other_programs_are_never_removed(names: list[str], kind: str, tmp_path: Path):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('kind = "finetune"  # mine')
    for choice in ({"resume": True}, {"overwrite": True}):
        advice = "its graphlog.json is damaged" if "graphlog.json" in names else "choose another"
        with pytest.raises(ConfigError, match=f"other files, not a run; .*{advice}"):
            RunFolder.open(tmp_path, kind, **choice)
    assert {(tmp_path / n).read_text() for n in names} == {'kind = "finetune"  # mine'}


def test_a_run_killed_before_its_mark_was_written_can_be_started_again(tmp_path: Path):
    (tmp_path / ".lock").write_text("4711")
    (tmp_path / "graphlog.json.0123456789abcdef.partial").write_text("{")
    RunFolder.open(tmp_path).close()
    assert {p.name for p in tmp_path.iterdir()} == {".lock", "graphlog.json"}


def test_a_linked_lock_is_not_written_through(tmp_path: Path):
    (tmp_path / "precious.txt").write_text("17")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "precious.txt")
    with pytest.raises(ConfigError, match="other files, not a run"):
        RunFolder.open(tmp_path / "run", overwrite=True)
    assert (tmp_path / "precious.txt").read_text() == "17"


def test_a_folder_in_use_names_the_process(tmp_path: Path):
    process = spawn(job, str(tmp_path / "run"), {"epochs": 10_000}, False)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.01)
    with pytest.raises(ConfigError, match=f"in use by process {process.pid}"):
        RunFolder.open(tmp_path / "run", resume=True)
    process.kill()
    process.join()
    RunFolder.open(tmp_path / "run", resume=True).close()  # the dead hold no locks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_says_how_to_go_on(number: int, tmp_path: Path):
    store, config = families(), small_config(checkpoint_every_s=1e6)
    # a background job is started deaf to SIGINT
    started_with = signal.signal(number, signal.default_int_handler)
    before, interrupt = signal.getsignal(number), partial(os.kill, os.getpid(), number)
    with pytest.raises(TrainingInterrupted, match=r"after step 8; continue with `resume=True`"):
        run_pretraining(store, config, tmp_path / "run", progress=After(8, interrupt))
    assert signal.getsignal(number) is before
    signal.signal(number, started_with)
    run_pretraining(store, config, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == undisturbed(checkpoint_every_s=1e6)


class Swallower(Progress):
    """Interrupts the preparations and loses the exception, as an ``except:`` in a library does."""

    def begin(self, total: int, done: int = 0) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_an_interrupt_that_a_library_swallows_stops_the_first_step(tmp_path: Path):
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with pytest.raises(TrainingInterrupted, match="after step 1"):
        run_pretraining(families(), small_config(), tmp_path / "run", progress=Swallower())
    signal.signal(signal.SIGTERM, before)


def without_rights(run: str, lines: Any) -> None:
    """Try to train into ``run`` as a user who owns nothing."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        job(run, {}, resume=False)
    except GraphLoGError as e:
        lines.put(str(e))


def told_by(target: Any, *arguments: Any) -> str:
    lines = server().Queue()
    process = spawn(target, *arguments, lines)
    line = lines.get(timeout=120)
    process.join()
    return str(line)


def test_a_read_only_folder_gives_one_line(tmp_path: Path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    assert "Permission denied; choose another path or change its permissions" in told_by(
        without_rights, str(locked / "run")
    )
    assert list(locked.iterdir()) == []


def until_full(run: str, steps: int, lines: Any) -> None:
    """Train until, after some steps, no file may grow any further."""
    torch.set_num_threads(1)
    limits = (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    full = After(steps, partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits))
    try:
        config = small_config(checkpoint_every_s=0.0)
        run_pretraining(families(), config, Path(run), progress=full)
    except GraphLoGError as e:
        lines.put(str(e))


def test_a_full_disk_gives_one_line_and_leaves_the_last_checkpoint(tmp_path: Path):
    run = tmp_path / "run"
    line = told_by(until_full, str(run), 7)
    assert "File too large" in line
    assert "what was saved before is whole; free space, then continue with `resume=True`" in line
    assert max(p.name for p in (run / "checkpoint").glob("step-*")) == "step-000000006.safetensors"
    run_pretraining(families(), small_config(checkpoint_every_s=0.0), run, resume=True)
    assert outcome(run) == undisturbed(checkpoint_every_s=0.0)
