"""METIS over batches: balance, memory of topologies."""

import sys

import pytest
import torch

from encoder_support import SIZES, batch_for
from graphlog.errors import MissingExtraError
from graphlog.objectives.graph_partition import Partitioner
from store_support import collate


def test_parts_are_balanced() -> None:
    batch = batch_for()
    parts = Partitioner(4)(batch)
    for graph, size in enumerate(SIZES):
        mine = parts[batch.batch == graph].tolist()
        assert sorted(set(mine)) == list(range(min(size, 4)))
        counts = torch.bincount(torch.tensor(mine)).tolist()
        assert max(counts) - min(counts) <= 1 + size // 8


def test_few_edges_are_cut() -> None:
    batch = batch_for(sizes=[40] * 4)
    parts = Partitioner(2)(batch)
    cut = (parts[batch.edge_index[0]] != parts[batch.edge_index[1]]).double().mean()
    assert float(cut) < 0.35


def test_a_topology_is_cut_once_and_remembered_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs = [batch_for(sizes=[n], seed=n) for n in SIZES]
    partitioner = Partitioner(3)
    first = partitioner(collate(graphs))
    monkeypatch.setattr(partitioner, "_cut", lambda *_: pytest.fail("cut again"))
    again = partitioner(collate(graphs[::-1]))
    assert torch.cat(list(again.split(SIZES[::-1]))[::-1]).equal(first)
    assert partitioner(graphs[2]).equal(first.split(SIZES)[2])


def test_topologies_are_learned_batch_by_batch() -> None:
    partitioner = Partitioner(2)
    graphs = [batch_for(sizes=[12], seed=seed) for seed in range(40)]
    first = [partitioner(g) for g in graphs]
    assert torch.cat(first).equal(partitioner(collate(graphs)))


def test_metis_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingExtraError, match=r"graphlog-torch\[partition\]"):
        Partitioner(4)
