"""torch_geometric's side computes what its formulas say, on the same batches as ours."""

import pytest
import torch

pytest.importorskip("torch_geometric")

from graphlog.benchmark.plain_gin import PlainGIN, collating, finetuning, parse
from graphlog.encoders.base import EncoderConfig
from graphlog.encoders.encoder import build_encoder
from graphlog.inputs import read

SMILES = ["CCO", "c1ccccc1O", "CC(=O)N", "C#N"]


def test_it_is_the_gin_of_its_formula():
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


def test_it_joins_the_same_batches():
    store = read(SMILES, workers=1)
    collate = collating(store[:])
    for count, wanted in ((None, store[:]), (2, store[:2])):
        found = collate(count)
        assert torch.equal(found.x, wanted.x)
        assert torch.equal(found.ptr, wanted.ptr)
        assert torch.equal(found.batch, wanted.batch)
        edges = [
            sorted(zip(b.edge_index.T.tolist(), b.edge_attr.tolist(), strict=True))
            for b in (found, wanted)
        ]
        assert edges[0] == edges[1]


def test_it_parses_as_many_and_learns():
    assert [data.num_nodes for data in parse(SMILES)] == [3, 7, 4, 2]
    store = read(SMILES, workers=1)
    encoder = build_encoder(EncoderConfig(layers=2, dim=6), store.schema, 0)
    finetuning(encoder, collating(store[:]), torch.device("cpu"))()
