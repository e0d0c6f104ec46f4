"""Graphs go to the store and come back as they were; what does not fit is named."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

from downstream_support import tiny_encoder
from graphlog.domains.molecule import MOLECULE, featurize_smiles
from graphlog.errors import ConfigError, DataError
from graphlog.pyg import from_pyg, to_pyg


def _same(a: Data, b: Data) -> bool:
    pairs = [
        (getattr(a, k, None), getattr(b, k, None)) for k in ("x", "edge_index", "edge_attr", "y")
    ]
    return all(
        one is two is None or (one is not None and two is not None and torch.equal(one, two))
        for one, two in pairs
    )


def _ring(n: int, width: int = 3, seed: int = 0) -> Data:
    draw = torch.Generator().manual_seed(seed)
    nodes = torch.arange(n)
    edges = torch.stack([torch.cat([nodes, (nodes + 1) % n]), torch.cat([(nodes + 1) % n, nodes])])
    return Data(
        x=torch.randn(n, width, generator=draw),
        edge_index=edges,
        edge_attr=torch.rand(2 * n, 2, generator=draw),
        y=torch.tensor([[float(seed)]]),
    )


def test_molecules_come_back_with_the_codes_and_order_they_had(tiny_store):
    graphs = to_pyg(tiny_store)
    again = from_pyg(graphs, schema="molecule")
    assert again.schema == MOLECULE
    assert again.undirected
    assert all(_same(a, b) for a, b in zip(graphs, to_pyg(again), strict=True))
    batch, expected = again[:], tiny_store[:]
    assert torch.equal(batch.x, expected.x)
    assert torch.equal(batch.edge_index, expected.edge_index)


def test_batches_are_split_into_their_graphs():
    graphs = [_ring(n, seed=n) for n in range(3, 83)]
    for batched in (DataLoader(graphs, batch_size=8), Batch.from_data_list(graphs)):
        store = from_pyg(batched)
        assert store.num_nodes.tolist() == list(range(3, 83))
        assert all(_same(a, b) for a, b in zip(graphs, to_pyg(store), strict=True))
    one = graphs[0]
    by_hand = Batch(x=one.x, edge_index=one.edge_index, batch=torch.zeros(3, dtype=torch.long))
    with pytest.raises(DataError, match="item 1 is a Batch without the limits of its graphs"):
        from_pyg([one, by_hand])


def test_an_encoder_takes_graphs_of_torch_geometric(tiny_store):
    encoder, graphs = tiny_encoder(), to_pyg(tiny_store)
    encoding = encoder(Batch.from_data_list(graphs))
    expected = encoder(tiny_store[:])
    assert torch.equal(encoding.node_emb, expected.node_emb)
    assert torch.equal(encoding.graph_emb, expected.graph_emb)
    assert torch.equal(encoder(graphs[1]).graph_emb, encoder(tiny_store[1:2]).graph_emb)
    embeddings = encoder.embed(tiny_store)
    for source in (graphs, Batch.from_data_list(graphs), DataLoader(graphs, batch_size=2)):
        np.testing.assert_allclose(encoder.embed(source), embeddings, atol=1e-6)
    with pytest.raises(DataError, match="unclosed ring"):  # a missing row would shift the others
        encoder(["CCO", "C1CC"])


def test_smiles_travel_as_texts():
    chunk, _ = featurize_smiles(["CCO", "C"], MOLECULE)
    assert chunk.texts is not None
    x = torch.tensor([[5, 0], [5, 0], [7, 0]])
    edges, attributes = (
        torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        torch.zeros(4, 2, dtype=torch.int64),
    )
    graphs = [
        Data(x=x, edge_index=edges, edge_attr=attributes, smiles="CCO"),
        Data(x=x[:1], edge_index=edges[:, :0], smiles="C"),
    ]
    assert from_pyg(graphs, "molecule").texts() == ["CCO", "C"]


def test_a_molecule_in_the_family_s_codes_is_the_molecule_we_would_read(tiny_store, tiny_smiles):
    data = to_pyg(tiny_store)[tiny_smiles.index("CC(=O)O")]
    assert data.x[:, 0].tolist() == [5, 5, 7, 7]
    assert data.edge_attr[:, 0].tolist() == [0, 0, 1, 1, 0, 0]
    assert torch.equal(data.edge_index[:, 0::2], data.edge_index.flip(0)[:, 1::2])


def test_continuous_attributes_in_any_edge_order_come_back_exactly():
    graphs = [_ring(n, seed=n) for n in (3, 8, 5)]
    store = from_pyg(graphs)
    assert not store.undirected
    assert [a.is_categorical for a in (*store.schema.node, *store.schema.edge)] == [False] * 5
    assert all(_same(a, b) for a, b in zip(graphs, to_pyg(store), strict=True))
    assert store.labels is not None
    assert store.labels[:, 0].tolist() == [3.0, 8.0, 5.0]


def test_integer_columns_become_categories_with_room_for_mask_and_self_loop():
    graph = Data(
        x=torch.tensor([[0, 4], [2, 1]]),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        edge_attr=torch.tensor([3, 3]),
    )
    store = from_pyg([graph])
    assert [a.cardinality for a in store.schema.node] == [4, 6]
    assert store.schema.node_mask == (3.0, 5.0)
    assert [a.cardinality for a in store.schema.edge] == [6]
    assert (store.schema.edge_mask, store.schema.self_loop) == ((4.0,), (5.0,))
    assert store.undirected
    assert torch.equal(store[:].x, graph.x)


def test_one_hot_rows_become_one_column():
    graph = Data(x=torch.eye(4)[[2, 0, 3]], edge_index=torch.tensor([[0, 1], [1, 0]]))
    store = from_pyg([graph])
    assert store[:].x.tolist() == [[2], [0], [3]]
    assert store[:].x.dtype == torch.int64
    assert store.schema.edge == ()


def test_graphs_without_attributes_get_their_degrees():
    star = torch.tensor([[0, 1, 0, 2, 0, 3], [1, 0, 2, 0, 3, 0]])
    store = from_pyg(
        [Data(edge_index=star, num_nodes=5), Data(edge_index=star[:, :2], num_nodes=2)]
    )
    assert store.schema.node[0].name == "degree"
    assert store[:].x[:, 0].tolist() == [3, 1, 1, 1, 0, 1, 1]


def test_a_batch_converts_like_its_store(tiny_store):
    part = to_pyg(tiny_store.take(np.array([3, 1])))
    whole = to_pyg(tiny_store)
    assert _same(part[0], whole[3])
    assert _same(part[1], whole[1])


def test_missing_labels_are_nan():
    store = from_pyg(
        [_ring(3), Data(x=torch.randn(2, 3), edge_index=torch.zeros(2, 0, dtype=torch.int64))]
    )
    assert store.labels is not None
    assert store.labels[0, 0] == 0
    assert np.isnan(store.labels[1, 0])


def test_one_graph_is_a_collection_of_one():
    assert len(from_pyg(_ring(3))) == 1


def _broken(**changes: object) -> Data:
    graph = _ring(4)
    for key, value in changes.items():
        graph[key] = value
    return graph


@pytest.mark.parametrize(
    ("graphs", "schema", "words"),
    [
        ([], None, "no graph"),
        (
            [_ring(3), _broken(edge_index=torch.tensor([[0], [9]]), edge_attr=torch.zeros(1, 2))],
            None,
            "graph 1.*0 - 9",
        ),
        (
            [_ring(3), _broken(edge_index=torch.tensor([[0], [-1]]), edge_attr=torch.zeros(1, 2))],
            None,
            "graph 1.*0 - -1",
        ),
        ([_ring(3), _broken(x=torch.full((4, 3), torch.nan))], None, "graph 1: `x` must be finite"),
        (
            [_ring(3), _broken(edge_attr=torch.full((8, 2), torch.inf))],
            None,
            "graph 1: `edge_attr` must be finite",
        ),
        ([_ring(3), _ring(3, width=2)], None, "graph 1: `x` must have 3 columns"),
        ([_ring(3), _ring(4), _ring(5, width=4)], None, "graph 2: `x` must have 3 columns"),
        (
            [_ring(3), HeteroData()],
            None,
            "item 1 must be a torch_geometric Data object, found HeteroData",
        ),
        ([1, 2], None, "item 0 must be a torch_geometric Data object, found int"),
        ([_broken(edge_attr=torch.zeros(3, 2))], None, "graph 0: `edge_attr` must have 8 rows"),
        ([_broken(edge_index=torch.zeros(2, 8))], None, "graph 0: `edge_index` must be integers"),
        ([_ring(3)], "molecule", "`x` must have 2 columns"),
        (
            [Data(x=torch.tensor([[500, 0]]), edge_index=torch.zeros(2, 0, dtype=torch.int64))],
            "molecule",
            "atomic_number.*500",
        ),
        ([_broken(y=torch.zeros(4)), _ring(3)], None, "same number of labels"),
    ],
)
def test_what_does_not_fit_is_named(graphs, schema, words):
    with pytest.raises(DataError, match=words):
        from_pyg(graphs, schema)


def test_an_unknown_schema_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'molecule'"):
        from_pyg([_ring(3)], "molecul")
