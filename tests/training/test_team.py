"""Several processes on one machine compute what one computes, or say in one line why not."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import calibrate
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.graphlog import GraphLoG
from graphlog.training.pretrain import Pretraining, run_pretraining
from graphlog.training.settings import resolve_config
from graphlog.training.trainer import ALONE, TrainingInterrupted, joined
from training_support import SMALL, After, families, outcome, small_config, together

TOLERANCE = 2e-5
"""Sums of a few hundred float32 terms in another order; relative to the largest entry."""
CASES = [(name, size) for name in OBJECTIVES if name != "descriptorpred" for size in (33, 2)]


def recipe(objective: str) -> str:
    return "graphlog" if objective == "graphlog" else "default"  # its default needs molecules


def _steps(rank: int) -> dict[str, dict[str, torch.Tensor]]:
    """Return losses and mean gradients of one step of each objective, its batch and dropout."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    with joined(torch.device("cpu")) as team:
        for name, size in CASES:
            options = {**SMALL, "schema": "families", "encoder.dropout": 0.2}
            job = Pretraining(families(64), resolve_config(name, recipe(name), options))
            calibrate(job.encoder, families(64), 0)  # else all graphs, and prototypes, are equal
            job.join(team)
            if isinstance(job.objective, GraphLoG):
                job.begin_phase(1)
                assert all(torch.pdist(p).min() > 1e-3 for p in job.objective.prototypes)
            losses = job.loss(job.load(np.arange(size)), 1)
            losses.total.backward()
            named = [(n, p) for n, p in job.parameters() if p.grad is not None]
            team.average_gradients([p for _, p in named], False)
            terms = {"total": losses.total, **losses.terms, **losses.watch}
            terms = {n: v.detach() for n, v in terms.items()}
            norms = {n: b.clone() for n, b in job.encoder.named_buffers()}
            found[f"{name} {size}"] = terms | norms | {n: p.grad for n, p in named}
    return found


def test_every_objective_has_the_losses_and_gradients_of_one_process(tmp_path: Path):
    alone, teams = _steps(0), together(3, tmp_path, _steps)  # of 2 graphs one process has none
    for case, expected in alone.items():
        largest = max(float(v.abs().max()) for k, v in expected.items() if k.startswith("model."))
        for name, value in expected.items():
            scale = largest if name.startswith(("model.", "objective.")) else 1.0
            for team in teams:
                gap = float((team[case][name].double() - value.double()).abs().max())
                assert gap <= TOLERANCE * max(scale, float(value.abs().max())), (case, name, gap)


def molecules() -> GraphStore:
    from graphlog.api import read_molecules

    heads = ["C" * length + f"({atom})" for length in range(2, 7) for atom in "ONS"]
    return read_molecules([head + tail for head in heads for tail in ("C", "CCC")])


def _train(rank: int, run: str, objective: str, resume: bool = False, steps: int = 0) -> str:
    """Train, the second process being asked to stop; return how that ended."""
    store = molecules() if objective == "descriptorpred" else families(97)
    options = {**SMALL, "schema": store.schema.name, "encoder.batch_norm": False, "batch_size": 16}
    options["seed"] = 1  # with seed 0 all embeddings are equal: K-means would split rounding errors
    config = resolve_config(objective, recipe(objective), options)
    progress = After(steps, lambda: os.kill(os.getpid(), signal.SIGTERM)) if rank == 1 else None
    try:
        run_pretraining(store, config, Path(run), resume=resume, progress=progress)
    except TrainingInterrupted as e:
        return str(e).split(";")[0]
    return "done"


@pytest.mark.parametrize("objective", ["graphlog", "descriptorpred"])
def test_a_run_of_two_processes_that_one_continues_is_that_of_one(objective: str, tmp_path: Path):
    run = str(tmp_path / "two")
    assert _train(0, str(tmp_path / "one"), objective) == "done"
    ended = together(2, tmp_path / "out", _train, run, objective, False, 3)
    assert ended == ["stopped after step 4"] * 2  # one more step agrees to stop
    assert _train(0, run, objective, resume=True) == "done"
    expected, found = outcome(tmp_path / "one"), outcome(tmp_path / "two")
    assert found["cursor"] == expected["cursor"]
    for row, wanted in zip(found["rows"], expected["rows"], strict=True):
        numbers = {k: v for k, v in wanted.items() if isinstance(v, float)}
        assert {k: row[k] for k in numbers} == pytest.approx(numbers, rel=1e-4)
        assert row | numbers == wanted


def _disagree(rank: int, what: str) -> str:
    options: dict[str, Any] = {"settings": {"epochs": 1 + rank}, "batch": {"batch_size": 2}}
    graphs = families(40, seed=rank if what == "data" else 0)
    run_pretraining(graphs, small_config(**options.get(what, {})), None)
    return "trained"


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("settings", "ConfigError: the processes disagree: training.epochs is 1 in process 0"),
        ("data", "ConfigError: the processes disagree: data digest is"),
        ("batch", "ConfigError: 3 processes share batches of 2 graphs"),
    ],
)
def test_processes_that_cannot_train_together_are_refused(what: str, line: str, tmp_path: Path):
    first, *others = together(3, tmp_path, _disagree, what)
    assert first.startswith(line)
    for other in others:
        assert other.startswith("ProcessLostError: the first process of this run refused to start")


def _vanish(rank: int) -> str:
    config = small_config(epochs=1000)
    if rank == 0:
        run_pretraining(families(), config, None)
    with joined(torch.device("cpu")) as team:
        Pretraining(families(), config).join(team)
    return "left"


def test_a_process_that_is_left_alone_says_so_in_one_line(tmp_path: Path):
    first, second = together(2, tmp_path, _vanish)
    assert second == "left"
    assert first.startswith("ProcessLostError: another process of this run ended")
    assert "\n" not in first


def test_a_process_alone_is_a_team_of_one():
    assert (ALONE.size, ALONE.is_first, ALONE.exchange("a")) == (1, True, ["a"])
