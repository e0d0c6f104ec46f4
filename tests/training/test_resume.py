"""Processes killed with SIGKILL at any moment, then resumed, end as if nothing had happened."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from training_support import outcome, start

EVERY_STEP = {"checkpoint_every_s": 0.0}
FIFTH = "step-000000005.safetensors"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], float]:
    """What the job ends with when left alone, and how long it takes."""
    runs = tmp_path_factory.mktemp("undisturbed")
    first = start(runs / "warm", EVERY_STEP, resume=False)
    first.join()
    began = time.monotonic()
    second = start(runs / "run", EVERY_STEP, resume=False)
    second.join()
    assert first.exitcode == second.exitcode == 0
    assert outcome(runs / "warm") == outcome(runs / "run")
    return outcome(runs / "run"), time.monotonic() - began


def finish(run: Path) -> dict[str, Any]:
    process = start(run, EVERY_STEP, resume=True)
    process.join()
    assert process.exitcode == 0
    return outcome(run)


def wait_for(found: Any, process: Any) -> None:
    while process.is_alive() and not found():
        time.sleep(0.0005)


@pytest.mark.parametrize("number", range(4))
def test_killed_at_a_random_moment(
    number: int, undisturbed: tuple[dict[str, Any], float], tmp_path: Path
) -> None:
    expected, took = undisturbed
    process = start(tmp_path / "run", EVERY_STEP, resume=False)
    time.sleep(random.Random(number).random() * took)
    process.kill()
    process.join()
    assert finish(tmp_path / "run") == expected


def test_killed_while_a_checkpoint_is_written(
    undisturbed: tuple[dict[str, Any], float], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for attempt in range(20):
        process = start(run, EVERY_STEP, resume=attempt > 0)
        wait_for(lambda: list(run.glob("checkpoint/step-*.partial")), process)
        process.kill()
        process.join()
        if list(run.glob("checkpoint/step-*.partial")):
            break
    else:
        pytest.fail("no kill hit the write of a checkpoint in 20 attempts")
    assert finish(run) == undisturbed[0]


def test_killed_while_prototypes_are_fitted(
    undisturbed: tuple[dict[str, Any], float], tmp_path: Path
) -> None:
    # the checkpoint of step 5 ends the local phase; prototypes are fitted right after it
    for attempt in range(20):
        run = tmp_path / f"run{attempt}"
        process = start(run, EVERY_STEP, resume=False)
        wait_for(lambda checkpoints=run / "checkpoint": (checkpoints / FIFTH).exists(), process)
        process.kill()
        process.join()
        if not (run / "checkpoint" / FIFTH.replace("5", "6")).exists():
            break
    else:
        pytest.fail("no kill hit the fitting of prototypes in 20 attempts")
    assert finish(run) == undisturbed[0]


def test_killed_again_and_again(undisturbed: tuple[dict[str, Any], float], tmp_path: Path) -> None:
    run, luck = tmp_path / "run", random.Random(7)
    for attempt in range(5):
        process = start(run, EVERY_STEP, resume=attempt > 0)
        time.sleep(luck.uniform(0.3, 0.7) * undisturbed[1])
        process.kill()
        process.join()
    assert finish(run) == undisturbed[0]


def test_sparse_checkpoints_repeat_the_lost_steps(tmp_path: Path) -> None:
    """With checkpoints at phases only, log rows of repeated steps are neither doubled nor lost."""
    sparse = {"checkpoint_every_s": 1e6}
    whole = start(tmp_path / "whole", sparse, resume=False)
    whole.join()
    run = tmp_path / "run"
    process = start(run, sparse, resume=False)
    wait_for(
        lambda: (run / "metrics.jsonl").exists() and "joint" in (run / "metrics.jsonl").read_text(),
        process,
    )
    process.kill()
    process.join()
    again = start(run, sparse, resume=True)
    again.join()
    assert outcome(run) == outcome(tmp_path / "whole")


def test_kept_moments_and_a_falling_rate_survive_kills(tmp_path: Path) -> None:
    """With Adam's moments kept between phases, kills on both sides of the border change nothing."""
    settings = {**EVERY_STEP, "fresh_moments": False, "schedule": "cosine"}
    whole = start(tmp_path / "whole", settings, resume=False)
    whole.join()
    for after in (FIFTH, FIFTH.replace("5", "7")):
        run = tmp_path / after
        process = start(run, settings, resume=False)
        wait_for(lambda found=run / "checkpoint" / after: found.exists(), process)
        process.kill()
        process.join()
        again = start(run, settings, resume=True)
        again.join()
        assert outcome(run) == outcome(tmp_path / "whole")
