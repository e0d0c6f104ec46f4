"""Processes killed with SIGKILL at any moment, then resumed, end as if nothing had happened."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training_support import job, outcome, spawn

EVERY_STEP = {"checkpoint_every_s": 0.0}
RUNS: dict[str, dict[str, Any]] = {
    "plain": EVERY_STEP,
    "sparse": {"checkpoint_every_s": 1e6},
    "average": {
        **EVERY_STEP,
        **{"fresh_moments": False, "schedule": "cosine", "warmup": 0.3, "average": 0.9},
    },
}


class Whole(dict[str, tuple[dict[str, Any], float]]):
    """What each run ends with when left alone, and how long it takes."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> tuple[dict[str, Any], float]:
        run, began = self.folder / name, time.monotonic()
        self[name] = finish(run, name, resume=False), time.monotonic() - began
        return self[name]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    found = Whole(tmp_path_factory.mktemp("whole"))
    warm = finish(found.folder / "warm", "plain", resume=False)
    assert warm == found["plain"][0]
    return found


def finish(run: Path, name: str = "plain", resume: bool = True) -> dict[str, Any]:
    process = spawn(job, str(run), RUNS[name], resume)
    process.join()
    assert process.exitcode == 0
    return outcome(run)


def killed_once(run: Path, reached: Callable[[], object], name: str = "plain", **how: bool) -> None:
    process = spawn(job, str(run), RUNS[name], how.get("resume", False))
    while process.is_alive() and not reached():
        time.sleep(0.0005)
    process.kill()
    process.join()


def step(run: Path, number: int) -> Path:
    return run / "checkpoint" / f"step-{number:09d}.safetensors"


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def test_killed_again_and_again(whole: Whole, tmp_path: Path):
    (expected, took), run, luck = whole["plain"], tmp_path / "run", random.Random(7)
    for attempt in range(5):
        killed_once(run, after(luck.uniform(0.1, 0.9) * took), resume=attempt > 0)
    assert finish(run) == expected


def test_killed_while_a_checkpoint_is_written(whole: Whole, tmp_path: Path):
    run = tmp_path / "run"
    for attempt in range(20):
        partial = lambda: list(run.glob("checkpoint/step-*.partial"))  # noqa: E731
        killed_once(run, partial, resume=attempt > 0)
        if partial():
            break
    else:
        pytest.fail("no kill hit the write of a checkpoint in 20 attempts")
    assert finish(run) == whole["plain"][0]
    assert not partial()


def test_killed_while_prototypes_are_fitted(whole: Whole, tmp_path: Path):
    # the checkpoint of step 5 ends the local phase; prototypes are fitted right after it
    for attempt in range(20):
        run = tmp_path / f"run{attempt}"
        killed_once(run, step(run, 5).exists)
        if not step(run, 6).exists():
            break
    else:
        pytest.fail("no kill hit the fitting of prototypes in 20 attempts")
    assert finish(run) == whole["plain"][0]


@pytest.mark.parametrize("number", [2, 5, 7, 12])
def test_killed_after_a_step(number: int, whole: Whole, tmp_path: Path):
    """On both sides of the border of phases, with moments kept and the average of weights."""
    run = tmp_path / "run"
    killed_once(run, step(run, number).exists, "average")
    assert finish(run, "average") == whole["average"][0]


def test_sparse_checkpoints_repeat_the_lost_steps(whole: Whole, tmp_path: Path):
    """With checkpoints at phases only, log rows of repeated steps are neither doubled nor lost."""
    run = tmp_path / "run"
    log = run / "metrics.jsonl"
    killed_once(run, lambda: log.exists() and "joint" in log.read_text(), "sparse")
    assert finish(run, "sparse") == whole["sparse"][0]
