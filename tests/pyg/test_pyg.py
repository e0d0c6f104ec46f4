"""Graphs go to the store and come back as they were; what does not fit is named."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

from downstream_support import tiny_encoder
from graphlog.api import read_graphs
from graphlog.data.graphs import Attribute, FeatureSchema
from graphlog.data.store import GraphStore
from graphlog.errors import ConfigError, DataError
from graphlog.inputs import read
from graphlog.pyg import from_pyg, to_pyg
from graphlog.sklearn import GraphEmbedder
from graphs_support import lines


def _is_same_graph(a: Data, b: Data) -> bool:
    """Return whether nodes are the same in their order, and edges in any."""
    ours, theirs = (
        sorted(torch.cat([g.edge_index.T.double(), g.edge_attr.double()], 1).tolist())
        for g in (a, b)
    )
    return torch.equal(a.x, b.x) and ours == theirs


def _ring(n: int, width: int = 3, seed: int = 0, directed: bool = False) -> Data:
    draw, nodes = torch.Generator().manual_seed(seed), torch.arange(n)
    edges = torch.stack([nodes, (nodes + 1) % n])
    x, edge_attr = torch.randn(n, width, generator=draw), torch.rand(2 * n, 2, generator=draw)
    if not directed:
        edge_attr[n:] = edge_attr[:n]
    edge_index = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(x=x, edge_index=edge_index, edge_attr=edge_attr, y=torch.tensor([[float(seed)]]))


def test_batches_are_split_into_their_graphs():
    graphs = [_ring(n, seed=n) for n in range(3, 83)]
    batched = Batch.from_data_list(graphs)
    for source in (DataLoader(graphs, batch_size=8), batched, iter(graphs)):
        store = from_pyg(source)
        assert store.num_nodes.tolist() == list(range(3, 83))
        assert all(_is_same_graph(a, b) for a, b in zip(graphs, to_pyg(store), strict=True))
    one = graphs[0]
    assert len(from_pyg(one)) == 1
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


def test_a_molecule_in_the_family_s_codes_is_the_molecule_we_would_read(tiny_store, tiny_smiles):
    graphs = to_pyg(tiny_store)
    for graph, text in zip(graphs, tiny_smiles, strict=True):
        del graph.codes
        graph.smiles = text
        if not graph.num_edges:
            graph.edge_attr = None
    again = from_pyg(graphs, "molecule")
    np.testing.assert_array_equal(again[:].x, tiny_store[:].x)
    assert again.texts() == tiny_smiles
    data = graphs[tiny_smiles.index("CC(=O)O")]
    assert data.x[:, 0].tolist() == [5, 5, 7, 7]
    assert data.edge_attr[:, 0].tolist() == [0, 0, 1, 1, 0, 0]
    assert torch.equal(data.edge_index[:, 0::2], data.edge_index.flip(0)[:, 1::2])


def test_directed_edges_come_back_exactly_in_their_order():
    graphs = [_ring(n, seed=n, directed=True) for n in (3, 8, 5)]
    with pytest.raises(DataError, match=r"graph 0: edge .* different attributes.*as directed"):
        from_pyg(graphs)
    store = from_pyg(graphs, directed=True)
    encoder = tiny_encoder(schema=store.schema)
    np.testing.assert_array_equal(encoder.embed(graphs), encoder.embed(store))
    with pytest.raises(ConfigError, match="that of directed graphs; leave `directed` out"):
        from_pyg(graphs, store.schema, directed=False)
    undirected = from_pyg([_ring(3)], replace(store.schema, directed=False))
    with pytest.raises(DataError, match=r"other columns, codes or directions"):
        encoder.embed(to_pyg(undirected))
    assert not store.undirected
    assert [a.is_categorical for a in (*store.schema.node, *store.schema.edge)] == [False] * 5
    for graph, again in zip(graphs, to_pyg(store), strict=True):
        assert all(torch.equal(graph[k], again[k]) for k in ("x", "edge_index", "edge_attr", "y"))
    assert store.labels[:, 0].tolist() == [3.0, 8.0, 5.0]


def test_integer_columns_become_categories_with_room_for_mask_and_self_loop():
    graph = Data(
        x=torch.tensor([[0, 4], [2, 1]]),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        edge_attr=torch.tensor([3, 3]),
    )
    store = from_pyg([graph])
    schema = store.schema
    assert [a.cardinality for a in (*schema.node, *schema.edge)] == [4, 6, 6]
    assert (schema.node_mask, schema.edge_mask) == ((3.0, 5.0), (4.0,))
    assert schema.self_loop == (5.0,)
    assert store.undirected
    assert torch.equal(store[:].x, graph.x)


def test_what_is_not_read_is_noted():
    (note,) = from_pyg([_ring(4), _broken(edge_weight=torch.ones(8), load=[1])]).source.notes
    assert note.startswith("not read: edge_weight, load; put attributes in `x` and `edge_attr`")


def _broken(**changes: object) -> Data:
    graph = _ring(4)
    for key, value in changes.items():
        graph[key] = value
    return graph


def _joined(end: int) -> Data:
    return _broken(edge_index=torch.tensor([[0], [end]]), edge_attr=torch.zeros(1, 2))


BAD_GRAPHS: list[tuple[object, str]] = [
    (_joined(9), "graph 1.*0 - 9"),
    (_joined(-1), "graph 1.*0 - -1"),
    (_broken(x=torch.full((4, 3), torch.nan)), "graph 1: `x` must be finite"),
    (_broken(edge_attr=torch.full((8, 2), torch.inf)), "graph 1: `edge_attr` must be finite"),
    (_ring(3, width=2), "graph 1: every node must have 3 attributes"),
    (HeteroData(), "graph 1: must be a torch_geometric Data object, found HeteroData"),
    (2, "graph 1: must be a torch_geometric Data object, found int"),
    (
        _broken(edge_attr=torch.zeros(3, 2)),
        "graph 1: must have attributes of 8 edges, found those of 3",
    ),
    (_broken(edge_index=torch.zeros(2, 8)), "graph 1: `edge_index` must be integers"),
    (_broken(y=torch.zeros(4)), "same number of labels"),
    (_broken(y=torch.tensor([torch.inf])), "graph 1: `y` must be finite"),
    (_broken(x=list("abcd")), "graph 1: `x` must be a tensor of numbers"),
    (_broken(edge_index="no"), "graph 1: `edge_index` must be a tensor of numbers"),
    (
        _broken(edge_index=None, edge_attr=None, adj_t=torch.eye(4)),
        "graph 1: has its edges in `adj_t`",
    ),
    (Data(x=torch.zeros(0, 3)), "graph 1: has no node"),
]


@pytest.mark.parametrize(("graph", "words"), BAD_GRAPHS, ids=[words for _, words in BAD_GRAPHS])
def test_what_does_not_fit_is_named(graph, words):
    with pytest.raises(DataError, match=words):
        from_pyg([_ring(3), graph])


def test_what_does_not_fit_a_schema_is_named():
    with pytest.raises(DataError, match="no graph"):
        from_pyg([])
    with pytest.raises(DataError, match="every node must have 2 attributes"):
        from_pyg([_ring(3)], "molecule")
    heavy = Data(x=torch.tensor([[500, 0]]), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(DataError, match=r"atomic_number.*500"):
        from_pyg([heavy], "molecule")
    with pytest.raises(ConfigError, match="did you mean 'molecule'"):
        from_pyg([_ring(3)], "molecul")


def _values(values: list[int], **more: object) -> Data:
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    return Data(x=torch.tensor(values)[:, None], edge_index=path, **more)


def _stores(folder: Path, tiny_store: GraphStore) -> list[GraphStore]:
    words = [
        {"edges": [[0, 1], [1, 2]], "x": [["red", 1.5], ["blue", -2.0], ["red", 0.25 * k]]}
        for k in range(5)
    ]
    bonded = [{"edges": [[0, 1]], "edge_attr": [["single"]]}, {"edges": [], "num_nodes": 3}]
    loops = [{"edges": [[0, 0], [0, 1], [0, 1], [1, 0]], "edge_attr": [[1], [2], [3], [4]]}]
    return [
        tiny_store,
        read_graphs(lines(folder / "words.jsonl", words)),
        read_graphs(lines(folder / "bonded.jsonl", bonded)),
        read_graphs(lines(folder / "loops.jsonl", loops), directed=True),
        from_pyg([_values([-1, 0, 1, 1]), _values([-1, -1, 0, 0])]),
        from_pyg([Data(x=torch.eye(7)[[2, 0, 3]], edge_index=torch.tensor([[0], [1]]))]),
        from_pyg([_ring(n, seed=n, directed=True) for n in (3, 5)], directed=True),
    ]


def test_every_store_comes_back_as_it_was(tmp_path: Path, tiny_store: GraphStore):
    for store in _stores(tmp_path, tiny_store):
        graphs, expected = to_pyg(store), store[:]
        batched = Batch.from_data_list(graphs)
        for source, schema in (
            (graphs, None),
            (graphs, store.schema),
            (pickle.loads(pickle.dumps(graphs)), store.schema),
            (batched, store.schema),
            (to_pyg(expected), store),
        ):
            again = from_pyg(source, schema)
            assert again.schema == store.schema
            assert again[:].x.dtype == expected.x.dtype
            for name in ("x", "edge_index", "edge_attr", "ptr"):
                assert torch.equal(getattr(again[:], name), getattr(expected, name)), name
        encoder = tiny_encoder(schema=store.schema)
        whole = encoder.embed(store)
        np.testing.assert_array_equal(encoder.embed(graphs), whole)
        np.testing.assert_allclose(encoder.embed(graphs[-1:]), whole[-1:], atol=1e-6)


def test_codes_are_not_taken_for_values():
    store = from_pyg([_values([-1, 0, 1, 1]), _values([-1, -1, 0, 0])])
    graphs = to_pyg(store)
    assert graphs[1].x[:, 0].tolist() == [0, 0, 1, 1]
    other = from_pyg([_values([0, 1, 2, 3])])
    with pytest.raises(DataError, match=r"codes of a store of schema 'inferred'.*delete their"):
        from_pyg(graphs, other.schema)
    with pytest.raises(DataError, match="codes of a store"):
        tiny_encoder(schema=other.schema).embed(graphs)
    with pytest.raises(DataError, match="one kind at a time"):
        from_pyg([graphs[0], _values([0, 1, 1, 0])])
    with pytest.raises(DataError, match=r"codes of a batch.*schema=store\.schema"):
        from_pyg(to_pyg(replace(store[:], schema=None)))
    del graphs[1].codes
    assert from_pyg(graphs[1:], store.schema)[:].x[:, 0].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("has_attributes", [False, True])
def test_edges_are_read_as_those_of_files(tmp_path: Path, has_attributes: bool):
    once = [[0, 1], [2, 1], [2, 0], [2, 3]]
    back = [[b, a] for a, b in once]
    in_turn = [pair for both in zip(once, back, strict=True) for pair in both]
    with_loops = [[0, 0], *once, [2, 2], *back]
    weight = {(0, 1): 1.5, (1, 2): -0.5, (0, 2): 2.0, (2, 3): 0.0}
    records, graphs = list[dict[str, Any]](), list[Data]()
    for edges in (once, back, in_turn, once + back, once + once + back, with_loops):
        record: dict[str, Any] = {"edges": edges, "x": [[0.5], [1.5], [-1.0], [2.0]]}
        if has_attributes:
            record["edge_attr"] = [[weight.get((min(pair), max(pair)), 9.0)] for pair in edges]
        records.append(record)
        columns = {name: torch.tensor(values) for name, values in record.items()}
        graphs.append(Data(edge_index=columns.pop("edges").T, **columns))
    file = read_graphs(lines(tmp_path / "graphs.jsonl", records))
    store = from_pyg(graphs, file.schema)
    assert store.undirected
    assert store.num_edges.tolist() == file.num_edges.tolist() == [8] * len(graphs)
    assert torch.equal(store[:].edge_index, file[:].edge_index)
    assert torch.equal(store[:].edge_attr, file[:].edge_attr)
    encoder = tiny_encoder(schema=file.schema)
    embedded = encoder.embed(graphs)
    np.testing.assert_array_equal(embedded, encoder.embed(file))
    np.testing.assert_allclose(embedded, embedded[:1].repeat(len(graphs), 0), atol=1e-5)
    np.testing.assert_array_equal(encoder(graphs[4]).graph_emb.shape, (1, encoder.config.dim))


def test_a_bad_graph_of_a_list_is_a_row_of_nan():
    good = [_values([-1, 0, 1, 1]), _values([1, 1, 0, -1]), _values([0, 0, 0, 0])]
    encoder = tiny_encoder(schema=from_pyg(good).schema)
    bad = [
        _values([-1, 0, 7, 1]),
        Data(x=torch.full((4, 1), torch.nan), edge_index=good[0].edge_index),
        Data(x=torch.zeros((0, 1), dtype=torch.int64)),
        Data(x=good[0].x, edge_index=torch.tensor([[0], [4]])),
        Data(x=good[0].x.repeat(1, 2), edge_index=good[0].edge_index),
        Data(x=list("abcd"), edge_index=good[0].edge_index),
        None,
    ]
    expected = encoder.embed(good)
    for graph in bad:
        mixed = [good[0], graph, good[1], good[2]]
        found = encoder.embed(mixed)
        np.testing.assert_array_equal(np.isnan(found).all(1), [False, True, False, False])
        np.testing.assert_array_equal(found[[0, 2, 3]], expected)
        with pytest.raises(DataError, match=r"graphs, row 1: .*on_error='skip'"):
            encoder.embed(mixed, on_error="fail")
        with pytest.raises(DataError, match="row 1: "):
            encoder(mixed)  # a missing row would shift the others
        features = GraphEmbedder(encoder, invalid="nan").fit_transform(mixed)
        np.testing.assert_array_equal(features, found)
        with pytest.raises(DataError, match=r"graph 1 .*set invalid='nan'"):
            GraphEmbedder(encoder).fit_transform(mixed)
        store = from_pyg(mixed, encoder.schema, on_error="skip")
        assert store.rows.tolist() == [0, 2, 3]
        assert [reject.row for reject in store.rejects] == [1]
    with pytest.raises(DataError, match="2 of 3 graphs cannot be used"):
        encoder.embed([bad[0], good[0], bad[0]])


def test_labels_that_may_be_those_of_nodes_are_refused():
    def graph(*y: float, shape: tuple[int, ...] = (-1,)) -> Data:
        edges = torch.tensor([[0, 1], [1, 2]])
        return Data(edge_index=edges, num_nodes=3, y=torch.tensor(y).reshape(shape))

    of_nodes = [graph(0.0, 1.0, 0.0), graph(1.0, 1.0, 0.0)]
    with pytest.raises(DataError, match=r"as many labels as every graph has nodes: .*\(1, T\)"):
        from_pyg(of_nodes)
    with pytest.warns(UserWarning, match="labels of nodes are not read, and these are left out"):
        assert read(of_nodes).labels is None
    rows = [graph(0.0, 1.0, 0.0, shape=(1, 3)), graph(1.0, 1.0, 0.0, shape=(1, 3))]
    assert from_pyg(rows).labels.tolist() == [[0, 1, 0], [1, 1, 0]]
    assert from_pyg([graph(0.0, 1.0), graph(1.0, 1.0)]).labels.tolist() == [[0, 1], [1, 1]]


def test_labels_and_texts_stay_with_their_graphs():
    graphs = [_values([k, 0, 1, 1], y=torch.tensor([float(k)]), smiles="C" * k) for k in (1, 2, 3)]
    graphs[1].x = graphs[1].x * torch.nan
    del graphs[2].y
    store = from_pyg(graphs, on_error="skip")
    assert store.texts() == ["C", "CCC"]
    np.testing.assert_array_equal(store.labels[:, 0], [1.0, np.nan])
    assert store.rejects[0].text == "CC"


def test_a_store_of_graphs_serves_as_their_schema():
    store = from_pyg([_values([-1, 0, 1, 1])])
    again = read_graphs([_values([1, 1, 0, 0])], schema=store)
    assert again[:].x[:, 0].tolist() == [2, 2, 1, 1]
    with pytest.raises(ConfigError, match=r"`directed`.* by `graphlog.from_pyg`"):
        read_graphs([_values([1, 1, 0, 0])], directed=True)


def test_a_model_is_not_taken_for_a_schema():
    store = from_pyg([_values([-1, 0, 1, 1])])
    encoder: Any = tiny_encoder(schema=store.schema)
    for graphs in ([_values([1, 1, 0, 0])], to_pyg(store)):
        with pytest.raises(ConfigError, match=r"found Encoder; .* `model\.schema`"):
            from_pyg(graphs, encoder)
        assert from_pyg(graphs, encoder.schema).schema == store.schema


def test_an_edge_is_listed_alike_if_its_attributes_are_equal_in_32_bits() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    weight = torch.tensor([[0.1 + 0.2], [0.3]], dtype=torch.float64)
    assert weight[0] != weight[1]
    store = from_pyg([Data(x=torch.rand(2, 1), edge_index=edges, edge_attr=weight)])
    assert store[:].edge_attr.tolist() == [[float(np.float32(0.3))]] * 2


def test_two_columns_may_have_one_name() -> None:
    node = (Attribute("a", 4), Attribute("a", 4))
    schema = FeatureSchema("mine", "graph", node, (), "node", node_mask=(3.0, 3.0))
    x, edges = torch.tensor([[0, 1], [1, 2], [2, 0]]), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    store = from_pyg([Data(x=x, edge_index=edges)], schema)
    assert store[:].x.tolist() == x.tolist()
