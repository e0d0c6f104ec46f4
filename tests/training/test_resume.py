"""Processes killed with SIGKILL at any moment, then resumed, end as if nothing had happened."""

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from training_support import job, outcome, spawn, undisturbed

PLAIN: dict[str, Any] = {"checkpoint_every_s": 0.0}
SPARSE: dict[str, Any] = {"checkpoint_every_s": 1e6}
AVERAGE = {**PLAIN, "fresh_moments": False, "schedule": "cosine", "warmup": 0.3, "average": 0.9}


@pytest.fixture(scope="module")
def took(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds that the plain job takes in a process of its own."""
    spawn(time.sleep, 0).join()  # the first one waits for all that the others find imported
    began = time.monotonic()
    ends_alike(tmp_path_factory.mktemp("alone") / "run", resume=False)
    return time.monotonic() - began


def ends_alike(run: Path, overrides: dict[str, Any] = PLAIN, resume: bool = True) -> None:
    """Check that the job, run to its end, leaves what one leaves that nothing disturbs."""
    process = spawn(job, str(run), overrides, resume)
    process.join()
    assert process.exitcode == 0
    assert outcome(run) == undisturbed(**overrides)


def killed_once(
    run: Path,
    reached: Callable[[], object],
    overrides: dict[str, Any] = PLAIN,
    resume: bool = False,
) -> None:
    process = spawn(job, str(run), overrides, resume)
    while process.is_alive() and not reached():
        time.sleep(0.0005)
    process.kill()
    process.join()


def step(run: Path, number: int) -> Path:
    return run / "checkpoint" / f"step-{number:09d}.safetensors"


def has_passed(run: Path, number: int) -> bool:
    return any(path >= step(run, number) for path in run.glob("checkpoint/step-*.safetensors"))


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def test_killed_again_and_again(took: float, tmp_path: Path):
    run, luck = tmp_path / "run", random.Random(7)
    for attempt in range(5):
        killed_once(run, after(luck.uniform(0.1, 0.9) * took), resume=attempt > 0)
    ends_alike(run)


def test_killed_while_a_checkpoint_is_written(tmp_path: Path):
    run = tmp_path / "run"
    for attempt in range(20):
        halves = lambda: list(run.glob("checkpoint/step-*.partial"))  # noqa: E731
        killed_once(run, halves, resume=attempt > 0)
        if halves():
            break
    else:
        pytest.fail("no kill hit the write of a checkpoint in 20 attempts")
    ends_alike(run)
    assert not halves()


def test_killed_while_prototypes_are_fitted(tmp_path: Path):
    # the checkpoint of step 5 ends the local phase; prototypes are fitted right after it
    for attempt in range(20):
        run = tmp_path / f"run{attempt}"
        killed_once(run, step(run, 5).exists)
        if not step(run, 6).exists():
            break
    else:
        pytest.fail("no kill hit the fitting of prototypes in 20 attempts")
    ends_alike(run)


def test_killed_after_several_steps(tmp_path: Path):
    """On both sides of the border of phases, with moments kept and the average of weights."""
    run = tmp_path / "run"
    for number in (2, 5, 7, 12):
        killed_once(run, partial(has_passed, run, number), AVERAGE, resume=number > 2)
    ends_alike(run, AVERAGE)


def test_sparse_checkpoints_repeat_the_lost_steps(tmp_path: Path):
    """With checkpoints at phases only, log rows of repeated steps are neither doubled nor lost."""
    run = tmp_path / "run"
    log = run / "metrics.jsonl"
    killed_once(run, lambda: log.exists() and "joint" in log.read_text(), SPARSE)
    ends_alike(run, SPARSE)
