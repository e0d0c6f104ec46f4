"""Stages timed on a benchmark of seconds, and torch_geometric's side beside ours."""

import sys
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmark_support import hide_matplotlib, read_table, tiny_scale
from graphlog.benchmark import Request, run_benchmark
from graphlog.benchmark.cells import SCALES
from graphlog.benchmark.pages import label
from graphlog.benchmark.speed import (
    OF_A_STEP,
    PlainGIN,
    _best,
    collating,
    finetuning,
    parse,
    product_operations,
)
from graphlog.data.store import GraphStore
from graphlog.encoders.base import EncoderConfig
from graphlog.encoders.encoder import build_encoder
from graphlog.inputs import read
from graphlog.training.setting import has_fast_bf16

REQUEST = Request("speed", "smoke", seeds=[0], methods=["graphlog"], stages=["stage-speed"])
STAGES = {*OF_A_STEP, "parse", "step", "kmeans", "finetune", "embed"}
SMILES = ["CCO", "c1ccccc1O", "CC(=O)N", "C#N"]
FORMATS = ["fp32", *(["bf16"] if has_fast_bf16(torch.device("cpu")) else [])]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setitem(SCALES, "smoke", tiny_scale())
    hide_matplotlib(monkeypatch)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _by_rule(folder: Path) -> dict[str, pd.Series]:
    rows = read_table(folder / "speed.csv.gz")
    rows = rows[rows["rule"] != ""]
    return {str(r): part.set_index("metric")["value"] for r, part in rows.groupby("rule")}


def test_every_stage_and_limit_has_a_row(tmp_path: Path):
    pytest.importorskip("torch_geometric")
    outcome = run_benchmark(REQUEST, tmp_path)
    assert not outcome.failed
    assert len(outcome.computed) == 1
    found = _by_rule(tmp_path)
    assert all((values > 0).all() for values in found.values())
    assert set(found["fp32"].index) == STAGES
    assert set(found["torch_geometric"].index) == STAGES - {"kmeans"}
    limits = {f"{kind}-{p}" for kind in ("product", "layer", "share") for p in FORMATS}
    assert set(found["limits"].index) == {"copy", *limits}
    for precision in FORMATS:
        assert STAGES - {"kmeans", "parse"} <= set(found[precision].index)
        assert set(found[f"batches {precision}"].index) == {"32", "64"}
        parts = found[precision][list(OF_A_STEP)].sum()
        assert found[precision]["step"] == pytest.approx(parts, rel=1e-12)
    page = (tmp_path / "report" / "speed.md").read_text(encoding="utf-8")
    assert all(f"| {label(stage)} " in page for stage in STAGES)
    assert "## Limits of the machine" in page
    assert run_benchmark(REQUEST, tmp_path).computed == []


def test_without_torch_geometric_its_columns_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    assert not run_benchmark(REQUEST, tmp_path).failed
    assert "torch_geometric" not in _by_rule(tmp_path)
    page = (tmp_path / "report" / "speed.md").read_text(encoding="utf-8")
    assert "torch_geometric" not in page


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


def test_the_plain_side_is_the_gin_of_its_formula():
    pytest.importorskip("torch_geometric")
    store = read(SMILES, workers=1)
    torch.manual_seed(0)
    network = PlainGIN(build_encoder(EncoderConfig(layers=2, dim=6), store.schema, 0)).eval()
    batch = store[:]
    h = sum(t(batch.x[:, i]) for i, t in enumerate(network.node.tables))
    for number, layer in enumerate(network.layers):
        tables = network.edges[number].tables
        total = [row.clone() for row in h]
        for k, (u, v) in enumerate(batch.edge_index.T.tolist()):
            edge = sum(t(batch.edge_attr[k, i]) for i, t in enumerate(tables))
            total[v] = total[v] + torch.relu(h[u] + edge)
        h = network.norms[number](layer.nn(torch.stack(total)))
        h = torch.relu(h) if number == 0 else h
    means = [h[a:b].mean(0) for a, b in zip(batch.ptr[:-1], batch.ptr[1:], strict=True)]
    node_emb, graph_emb = network(batch)
    torch.testing.assert_close(node_emb, h)
    torch.testing.assert_close(graph_emb, torch.stack(means))


def test_the_plain_side_joins_the_same_batches():
    pytest.importorskip("torch_geometric")
    store = read(SMILES, workers=1)
    collate = collating(store[:])
    for number, wanted in ((None, store[:]), (2, store[:2])):
        found = collate(number)
        assert torch.equal(found.x, wanted.x)
        assert torch.equal(found.ptr, wanted.ptr)
        assert torch.equal(found.batch, wanted.batch)
        edges = [
            sorted(zip(b.edge_index.T.tolist(), b.edge_attr.tolist(), strict=True))
            for b in (found, wanted)
        ]
        assert edges[0] == edges[1]


def test_the_plain_side_parses_as_many_and_learns():
    pytest.importorskip("torch_geometric")
    assert [data.num_nodes for data in parse(SMILES)] == [3, 7, 4, 2]
    store = read(SMILES, workers=1)
    encoder = build_encoder(EncoderConfig(layers=2, dim=6), store.schema, 0)
    finetuning(encoder, collating(store[:]), torch.device("cpu"))()
