"""Stages timed on a benchmark of seconds: every row is there, and the page shows it."""

import sys
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmark_support import no_figures, tiny_scale
from graphlog.benchmark import run
from graphlog.benchmark.layout import DASH
from graphlog.benchmark.plain_gin import PlainGIN
from graphlog.benchmark.scales import SCALES
from graphlog.benchmark.stage_speed import _best, product_operations
from graphlog.benchmark.stage_tables import LIMIT_LABELS, OF_A_STEP, STAGE_LABELS
from graphlog.benchmark.table import BenchmarkFolder
from graphlog.data.store import GraphStore
from graphlog.encoders.base import EncoderConfig
from graphlog.encoders.encoder import build_encoder
from graphlog.inputs import read
from graphlog.training.precision import has_fast_bf16

CHOICES: dict[str, Any] = {
    "scale": "smoke",
    "seeds": [0],
    "methods": ["graphlog"],
    "stages": ["stage-speed"],
}
FORMATS = ["fp32", *(["bf16"] if has_fast_bf16(torch.device("cpu")) else [])]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setitem(SCALES, "smoke", tiny_scale())  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr("graphlog.benchmark.pages._load_figures", no_figures)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _by_rule(folder: Path) -> dict[str, pd.Series]:
    rows = BenchmarkFolder(folder).load()
    rows = rows[rows["rule"] != ""]
    return {str(r): part.set_index("metric")["value"] for r, part in rows.groupby("rule")}


def test_every_stage_and_limit_has_a_row(tmp_path: Path):
    pytest.importorskip("torch_geometric")
    outcome = run("speed", tmp_path, **CHOICES)
    assert not outcome.failed
    assert len(outcome.computed) == 1
    found = _by_rule(tmp_path)
    assert all((values > 0).all() for values in found.values())
    assert set(found["fp32"].index) == set(STAGE_LABELS)
    assert set(found["torch_geometric"].index) == set(STAGE_LABELS) - {"kmeans"}
    assert set(found["limits"].index) == {
        key for key in LIMIT_LABELS if key.rpartition("-")[2] in ("copy", *FORMATS)
    }
    for precision in FORMATS:
        assert set(STAGE_LABELS) - {"kmeans", "parse"} <= set(found[precision].index)
        assert set(found[f"batches {precision}"].index) == {"32", "64"}
        parts = found[precision][list(OF_A_STEP)].sum()
        assert found[precision]["step"] == pytest.approx(parts, rel=1e-12)
    page = (tmp_path / "report" / "speed.md").read_text(encoding="utf-8")
    assert "## Stages, molecules" in page
    assert all(f"| {label} " in page for label in STAGE_LABELS.values())
    assert "## Limits of the machine, molecules" in page
    assert "seconds of the processor, best of 1; batches of 16" in page
    assert run("speed", tmp_path, **CHOICES).computed == []


def test_without_torch_geometric_its_columns_are_empty_and_the_page_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    assert not run("speed", tmp_path, **CHOICES).failed
    assert "torch_geometric" not in _by_rule(tmp_path)
    page = (tmp_path / "report" / "speed.md").read_text(encoding="utf-8")
    assert "torch_geometric is not installed here, so its columns are empty." in page
    (line,) = [line for line in page.splitlines() if line.startswith("| Embed ")]
    assert [text.strip() for text in line.strip("|").split("|")][-2:] == [DASH, DASH]


def test_the_least_of_all_turns_but_the_first_counts():
    clock, order = count(), list[str]()
    waits: dict[str, Iterator[int]] = {"a": iter([0, 5, 3, 4]), "b": iter([0, 1, 7, 2])}

    def work(side: str) -> None:
        order.append(side)
        for _ in range(next(waits[side])):
            next(clock)

    parts = {side: [("", lambda: None), ("s", lambda s=side: work(s))] for side in waits}
    best = _best(parts, 3, lambda: float(next(clock)))
    assert best == {"a": {"s": 4.0}, "b": {"s": 2.0}}  # a look at the clock takes one
    assert order == ["b", "a", "a", "b", "b", "a", "a", "b"]


def _molecules() -> GraphStore:
    return read(["CCO", "c1ccccc1O", "CC(=O)N"], workers=1)


def test_operations_are_those_that_torch_counts():
    pytest.importorskip("torch_geometric")
    store = _molecules()
    batch = store[:]
    config = EncoderConfig(layers=3, dim=8)
    network = PlainGIN(build_encoder(config, store.schema, 0))
    with FlopCounterMode(display=False) as counter:
        network(batch).graph_emb.sum().backward()
    assert counter.get_total_flops() == product_operations(3, 8, batch.num_nodes)
