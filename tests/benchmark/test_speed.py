"""Stages timed on a benchmark of seconds."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pandas as pd
import pytest
import torch

from benchmark_support import read_table
from graphlog.benchmark import Request, run_benchmark
from graphlog.benchmark.speed import OF_A_STEP, least
from graphlog.benchmark.tables import label
from graphlog.training.settings import has_fast_bf16

REQUEST = Request("speed", "smoke", seeds=[0], methods=["graphlog"], stages=["stage-speed"])
STAGES = {*OF_A_STEP, "parse", "step", "kmeans", "finetune", "embed"}
FORMATS = ["fp32", *(["bf16"] if has_fast_bf16(torch.device("cpu")) else [])]


def _by_rule(folder: Path) -> dict[str, pd.Series]:
    rows = read_table(folder / "speed.csv.gz")
    rows = rows[rows["rule"] != ""]
    return {str(r): part.set_index("metric")["value"] for r, part in rows.groupby("rule")}


@pytest.mark.usefixtures("tiny")
def test_every_stage_has_a_row(tmp_path: Path):
    outcome = run_benchmark(REQUEST, tmp_path)
    assert not outcome.failed
    assert len(outcome.computed) == 1
    found = _by_rule(tmp_path)
    assert all((values > 0).all() for values in found.values())
    assert set(found["fp32"].index) == STAGES
    for precision in FORMATS:
        assert STAGES - {"kmeans", "parse"} <= set(found[precision].index)
        assert set(found[f"batches {precision}"].index) == {"32", "64"}
        parts = found[precision][list(OF_A_STEP)].sum()
        assert found[precision]["step"] == pytest.approx(parts, rel=1e-12)
    page = (tmp_path / "report" / "speed.md").read_text(encoding="utf-8")
    assert all(f"| {label(stage)} " in page for stage in STAGES)
    assert run_benchmark(REQUEST, tmp_path).computed == []


def test_the_least_of_all_turns_but_the_first_counts():
    clock, order = count(), list[str]()
    waits: dict[str, Iterator[int]] = {"a": iter([0, 5, 3, 4]), "b": iter([0, 1, 7, 2])}

    def work(side: str) -> Iterator[str]:
        order.append(side)
        yield ""
        for _ in range(next(waits[side])):
            next(clock)
        yield "s"

    sides = {side: partial(work, side) for side in waits}
    best = least(sides, 3, lambda: float(next(clock)))
    assert best == {"a": {"s": 4.0}, "b": {"s": 2.0}}  # a look at the clock takes one
    assert order == ["b", "a", "a", "b", "b", "a", "a", "b"]
