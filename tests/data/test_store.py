"""A store gives back the graphs that went in, in any order; an epoch has each of them once."""

import csv
import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cli_support import at_most
from graphlog.data.graphs import FeatureSchema, GraphChunk, Reject, rejects_of_output, write_rejects
from graphlog.data.manifest import Source
from graphlog.data.store import StoreBuilder, epoch_batches, open_store, seeded_permutation
from graphlog.errors import DataError, GraphLoGError
from store_support import (
    CODES,
    EDGELESS,
    FLOATS,
    RICH,
    SCHEMAS,
    assert_same,
    build,
    graph_lists,
    make_graph,
    make_graphs,
    to_chunk,
)


@pytest.mark.parametrize("name", SCHEMAS)
@given(data=st.data())
def test_roundtrip_in_any_order(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
):
    schema = SCHEMAS[name]
    graphs = data.draw(graph_lists(schema, tasks=2))
    undirected = data.draw(st.booleans())
    path = data.draw(st.sampled_from([None, tmp_path_factory.mktemp("s") / "store"]))
    chunks = st.integers(1, 7)
    store = build(graphs, schema, path, chunk=data.draw(chunks), undirected=undirected)
    everything = list(range(len(graphs)))
    assert_same(store, graphs, everything)
    assert_same(store, graphs, data.draw(st.permutations(everything)))
    assert_same(store, graphs, data.draw(st.lists(st.sampled_from(everything), max_size=8)))
    assert store.rows.tolist() == [g.row for g in graphs]
    assert store.num_rows == graphs[-1].row + 1
    assert store.num_nodes.tolist() == [len(g.x) for g in graphs]
    assert store.num_edges.tolist() == [len(g.edges) * (1 + undirected) for g in graphs]
    assert store.texts() == [g.text for g in graphs]
    other = build(graphs, schema, chunk=data.draw(chunks), undirected=undirected)
    assert other.digest == store.digest


@given(graphs=graph_lists(CODES, tasks=1), data=st.data())
def test_subset_is_a_view(graphs: list, data: st.DataObject):
    store = build(graphs, CODES)
    outer = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1))
    inner = data.draw(st.lists(st.integers(0, len(outer) - 1), min_size=1))
    view = store.subset(outer).subset(inner)
    chosen = [outer[k] for k in inner]
    assert len(view) == len(chosen)
    assert view.rows.tolist() == [graphs[k].row for k in chosen]
    assert view.texts() == [graphs[k].text for k in chosen]
    np.testing.assert_array_equal(view.labels, np.stack([graphs[k].label for k in chosen]))
    assert_same(view, [graphs[k] for k in chosen], list(range(len(chosen))))


def test_save_keeps_everything(tmp_path: Path):
    graphs = make_graphs(1100, tasks=3)
    builder = StoreBuilder(CODES, None, ("a", "b", "c"), Source(name="x.csv"))
    builder.add(to_chunk(graphs))
    builder.reject(Reject(1100, "C(", "unclosed\nring"))
    store = builder.finish()
    saved = store.save(tmp_path / "store")
    assert saved.digest == store.digest == open_store(tmp_path / "store").digest
    assert saved.rejects == store.rejects == [Reject(1100, "C(", "unclosed\nring")]
    assert (saved.tasks, saved.num_rows) == (("a", "b", "c"), 1101)
    assert saved.source == Source(name="x.csv")
    assert saved.texts([1099, 0, 512]) == [graphs[k].text for k in (1099, 0, 512)]
    part = store.subset([7, 3]).save(tmp_path / "part")
    assert_same(part, [graphs[7], graphs[3]], [0, 1])
    assert part.rows.tolist() == [0, 1]
    assert (part.num_rows, part.rejects) == (2, [])
    assert {p.name for p in tmp_path.iterdir()} == {"store", "part"}


def test_digests_tell_stores_and_views_apart():
    graphs = make_graphs(10)
    store = build(graphs, CODES)
    views = [store.subset(some) for some in ([0], [1], [0, 1])]
    assert len({s.digest for s in (build(graphs[:9], CODES), store, *views)}) == 5
    assert build(graphs, CODES).digest == store.digest


def test_large_graphs_and_isolated_nodes():
    rng = np.random.default_rng(0)
    graphs = [
        make_graph(rng, CODES, v, e, k)
        for k, (v, e) in enumerate([(1, 0), (700, 900), (300, 0), (70_000, 3), (2, 1)])
    ]
    graphs[3].edges[0, 0] = 69_999
    store = build(graphs, CODES, chunk=2)
    assert store.contents.arrays["endpoints"].dtype == np.uint32
    assert_same(store, graphs, [4, 3, 2, 1, 0])


def test_types_of_a_batch():
    for schema, dtype in ((CODES, torch.int64), (FLOATS, torch.float32), (EDGELESS, torch.int64)):
        batch = build(make_graphs(3, schema), schema)[:]
        assert (batch.x.dtype, batch.edge_attr.dtype) == (dtype, dtype)
        assert (batch.edge_index.dtype, batch.y) == (torch.int64, None)
    assert batch.edge_attr.shape[1] == 0


def test_ways_to_index():
    store = build(make_graphs(6), CODES)
    mask = np.array([False, True, False, False, True, False])
    for way in (mask, np.array([1, 4]), torch.tensor([1, 4]), slice(1, None, 3), [-5, -2]):
        assert torch.equal(store[way].x, store[[1, 4]].x)
        assert store.texts(way) == store.texts([1, 4])
    assert torch.equal(store[-1].x, store[5].x)
    assert store[[]].num_graphs == 0
    assert store[3:3].num_nodes == 0
    for wrong in ([6], [-7], [0.5], [True, False]):
        with pytest.raises(IndexError):
            store.take(wrong)


def test_a_store_is_immutable(tmp_path: Path):
    store = build(make_graphs(6, tasks=1), CODES, tmp_path / "s")
    with pytest.raises(AttributeError):
        store.indices = np.arange(2)
    for kept in (store, build(make_graphs(2), CODES)):
        assert not any(array.flags.writeable for array in kept.contents.arrays.values())
    batch = store[:]
    before = batch.x.clone()
    batch.x.zero_()
    batch.y.zero_()
    assert torch.equal(store[:].x, before)


def test_without_texts_the_error_says_so():
    store = build(make_graphs(3), CODES, texts=False)
    with pytest.raises(DataError, match="without its texts"):
        store.texts([0])


def test_an_empty_store(tmp_path: Path):
    with StoreBuilder(CODES, tmp_path / "s") as builder:
        builder.reject(Reject(0, "", "empty"))
        store = builder.finish()
    assert (len(store), store.num_rows, store.rejects) == (0, 1, [Reject(0, "", "empty")])
    assert store[:].num_graphs == 0


def test_texts_of_any_kind():
    graphs = make_graphs(4)
    for graph, text in zip(graphs, ["", "a\nb\0c", "é\udcff", "C" * 1_000_000], strict=True):
        graph.text = text
    assert build(graphs, CODES).texts([3, 2, 1, 0]) == [g.text for g in reversed(graphs)]


def test_another_process_gets_the_same_store(tmp_path: Path):
    graphs = make_graphs(6)
    for store in (
        build(graphs, CODES),
        build(graphs, CODES, tmp_path / "s"),
        build(graphs, CODES, tmp_path / "s").subset([4, 2]),
    ):
        again = pickle.loads(pickle.dumps(store))
        assert again.digest == store.digest
        assert torch.equal(again[:].x, store[:].x)
    assert len(pickle.dumps(open_store(tmp_path / "s"))) < 1000


def test_it_describes_itself(tmp_path: Path):
    text = repr(build(make_graphs(6, tasks=1), CODES, tmp_path / "s").subset([0, 1]))
    assert text.startswith("GraphStore(2 of 6 'codes' graphs, 1 task, 0 rejected rows")


@pytest.mark.parametrize("schema", [CODES, RICH])
def test_bytes_a_molecule(schema: FeatureSchema):
    """26 atoms of 40 kinds and 28 bonds, rows not those of the input: at most 150 bytes."""
    rng = np.random.default_rng(0)
    kinds = make_graph(rng, schema, 40, 20, 0)
    graphs = [make_graph(rng, schema, 26, 28, 2 * k) for k in range(3000)]
    for graph in graphs:
        graph.x = kinds.x[rng.integers(0, 40, 26)]
        graph.edge_attr = kinds.edge_attr[rng.integers(0, 20, 28)]
    store = build(graphs, schema, chunk=1000)
    assert store.nbytes / len(store) <= 126


@pytest.mark.parametrize("schema", [FLOATS, RICH])
def test_more_distinct_rows_than_codes(schema: FeatureSchema):
    rng, n = np.random.default_rng(0), 70_000
    if schema is FLOATS:
        x = np.stack([np.zeros(n), rng.permutation(n)], 1).astype(np.float32)
    else:
        x = np.stack([rng.integers(0, a.cardinality, n) for a in RICH.node], 1)
    edges, attributes = np.empty((2, 0), np.int64), np.empty((0, len(schema.edge)), x.dtype)
    stores = []
    for step in (1000, 7000):
        builder = StoreBuilder(schema)
        for rows in np.split(np.arange(n // 10), range(step, n // 10, step)):
            part = x[10 * rows[0] : 10 * rows[-1] + 10]
            counts = np.full(len(rows), 10)
            builder.add(GraphChunk(counts, 0 * counts, part, edges, attributes, rows))
        stores.append(builder.finish())
    assert "node_rows" in stores[0].contents.arrays
    np.testing.assert_array_equal(stores[0][:].x.numpy(), x)
    assert stores[0].digest == stores[1].digest


def test_chunks_of_a_large_store_take_no_memory_for_the_others():
    n = 300_000
    none, no_edges = np.zeros(n, np.int64), np.zeros((2, 0), np.int64)
    many = GraphChunk(none + 1, none, none[:, None], no_edges, no_edges.T[:, :0], np.arange(n))
    builder = StoreBuilder(EDGELESS)
    builder.add(many)
    store = builder.finish()
    with at_most(8 * n / 2):
        assert sum(map(len, store.chunks())) == n


def test_rejected_rows_are_read_some_at_a_time():
    builder = StoreBuilder(EDGELESS)
    for row in range(2000):
        builder.reject(Reject(row, "C" * 10_000, "too long"))
    store = builder.finish()
    with at_most(store.contents.arrays["rejects"].nbytes / 3):
        assert sum(1 for _ in store.iter_rejects()) == 2000


@given(
    n=st.integers(0, 200),
    size=st.integers(1, 50),
    seed=st.integers(0, 1 << 40),
    epoch=st.integers(0, 100),
)
def test_an_epoch_covers_each_graph_once(n: int, size: int, seed: int, epoch: int):
    batches = epoch_batches(n, size, seed, epoch)
    drawn = np.concatenate([np.empty(0, np.int64), *batches])
    assert sorted(drawn.tolist()) == list(range(n))
    assert all(len(b) == size for b in batches[:-1])
    again = epoch_batches(n, size, seed, epoch)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_epochs_and_seeds_differ():
    orders = {
        tuple(np.concatenate(epoch_batches(500, 32, seed, epoch)))
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4


def test_the_order_is_pinned():
    """Another NumPy must draw the same order, else a resumed run would not be the same run."""
    assert seeded_permutation(8, 0, 1).tolist() == [7, 4, 5, 1, 6, 2, 0, 3]


def test_positions_are_uniform():
    """Chi-square of where graph 0 lands in 20,000 epochs; false alarm 1e-6."""
    places = [int(np.argmin(seeded_permutation(10, 7, epoch))) for epoch in range(20_000)]
    chi_square = ((np.bincount(places, minlength=10) - 2000) ** 2 / 2000).sum()
    assert chi_square < 45.1


DEFECTS: list[tuple[FeatureSchema, str, tuple[int, ...], float, str]] = [
    (CODES, "x", (40, 0), -1, "'kind' has a value that is not in the schema"),
    (CODES, "x", (40, 0), 120, "'kind' has a value that is not in the schema"),
    (CODES, "edge_attr", (0, 0), 7, "'bond' has a value that is not in the schema"),
    (FLOATS, "x", (0, 0), 0.5, "'kind' has a value that is not in the schema"),
    (FLOATS, "x", (0, 0), np.nan, "'kind' has a value that is not in the schema"),
    (FLOATS, "x", (0, 1), np.nan, "'weight' has a value that is not in the schema"),
    (FLOATS, "x", (0, 1), np.inf, "'weight' has a value that is not in the schema"),
    (CODES, "edge_index", (1, -1), -1, "an edge leaves its graph"),
    (CODES, "edge_index", (1, -1), 1000, "an edge leaves its graph"),
    (CODES, "labels", (0, 0), np.inf, "a label is infinite"),
]


@pytest.mark.parametrize(("schema", "name", "place", "value", "message"), DEFECTS)
def test_values_that_cannot_be(
    schema: FeatureSchema, name: str, place: tuple[int, ...], value: float, message: str
) -> None:
    chunk = to_chunk(make_graphs(4, schema, tasks=1))
    chunk.check(schema)
    getattr(chunk, name)[place] = value
    with pytest.raises(AssertionError, match=message):
        chunk.check(schema)


@pytest.mark.parametrize(
    "changes",
    [
        {"node_counts": np.array([1, 1, 1, 1])},
        {"edge_counts": np.array([1, 1, 1, 1])},
        {"rows": np.array([0, 1, 2, -3])},
        {"texts": ["one"]},
    ],
)
def test_arrays_that_do_not_belong_together(changes: dict):
    with pytest.raises(AssertionError):
        replace(to_chunk(make_graphs(4)), **changes).check(CODES)


def test_a_graph_has_a_node():
    chunk = to_chunk(make_graphs(4))
    first, second, *others = chunk.node_counts
    counts = np.array([first + second, 0, *others])
    with pytest.raises(AssertionError, match="a graph has no nodes"):
        replace(chunk, node_counts=counts).check(CODES)


def test_rejects_as_csv(tmp_path: Path):
    rejects = [Reject(3, 'C1"CC,\n', "ring not closed"), Reject(9, "\udcff", "not text")]
    assert write_rejects(tmp_path, rejects, "out") == tmp_path / "rejects.csv"
    with (tmp_path / "rejects.csv").open(newline="", encoding="utf-8") as f:
        rows = list(csv.reader(f))
    assert rows == [
        ["row", "input", "reason", "output"],
        ["3", 'C1"CC,\n', "ring not closed", "out"],
        ["9", "\\udcff", "not text", "out"],
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["rejects.csv"]
    with pytest.raises(GraphLoGError, match=r"cannot write \S+rejects\.csv: "):
        write_rejects(tmp_path / "none", rejects, "out")


@pytest.mark.parametrize("has_links", [True, False])
def test_two_commands_at_once_lose_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
):
    def rejects() -> Iterator[Reject]:
        assert write_rejects(tmp_path, [Reject(1, "x", "other")], "other").name == "rejects.csv"
        yield Reject(3, "y", "own\rreason")

    if has_links:
        assert write_rejects(tmp_path, rejects(), "out") == tmp_path / "out.rejects.csv"
        assert rejects_of_output(tmp_path, "other") == tmp_path / "rejects.csv"
    else:
        monkeypatch.setattr("os.link", Mock(side_effect=PermissionError))
        assert write_rejects(tmp_path, [], "other") == tmp_path / "rejects.csv"
        assert [path.name for path in tmp_path.iterdir()] == ["rejects.csv"]


def test_a_list_is_found_by_a_first_row_of_any_length(tmp_path: Path):
    for output in ("out", "other"):
        write_rejects(tmp_path, [Reject(1, "C" * 200_000, "long")], output)
        assert rejects_of_output(tmp_path, output).exists()
    assert rejects_of_output(tmp_path, "other") == tmp_path / "other.rejects.csv"
    (tmp_path / "rejects.csv").write_text("row,input,reason,output\n\n1,C,long,out\n")
    assert rejects_of_output(tmp_path, "out") == tmp_path / "rejects.csv"
    assert rejects_of_output(tmp_path, "new") == tmp_path / "new.rejects.csv"


@pytest.mark.parametrize("kill_at", ["fsync", "link"])
def test_a_killed_command_leaves_no_second_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: str
):
    """The first command ends after it called ``kill_at``, and removes nothing."""
    function = getattr(os, kill_at)

    def killed(*arguments: Any) -> None:
        function(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, kill_at, killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            write_rejects(tmp_path, [Reject(1, "x", "old")], "out")
    assert len(list(tmp_path.iterdir())) == (1 if kill_at == "fsync" else 2)
    for path in tmp_path.glob("*.partial"):
        write_rejects(tmp_path, [], "out")
        assert path.exists()  # so young, another command may be writing it
        os.utime(path, (0, 0))
    assert write_rejects(tmp_path, [Reject(1, "x", "new")], "out") == tmp_path / "rejects.csv"
    assert [path.name for path in tmp_path.iterdir()] == ["rejects.csv"]
    assert "new" in (tmp_path / "rejects.csv").read_text()


def test_other_edges_have_other_neighbors():
    batch = build(make_graphs(3), CODES)[:]
    assert batch.with_attributes(batch.x + 1).adjacency is batch.adjacency
    assert batch.to("meta").host_ptr is batch.ptr
    few = replace(batch, edge_index=batch.edge_index[:, :2], edge_attr=batch.edge_attr[:2])
    assert len(few.adjacency.senders) == 2
