"""Every format gives the same graphs, by name; what cannot be used is named by file or line."""

import gzip
import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphlog
from cli_support import read_table
from graphlog.api import read_graphs
from graphlog.datasets import DATASETS
from graphlog.domains.graph.raw import cell
from graphlog.downstream.pretrained import random_encoder
from graphlog.downstream.report import Report, ScoreRow
from graphlog.errors import ConfigError, DataError
from graphlog.inputs import resolve
from graphs_support import EDGES, GRAPHS, NODES, lines, read_lines, read_tables, rings, tables

GIN = "2\n3 yes\n5 1 1\n7 2 0 2\n5 1 1\n2 no\n5 1 1\n5 1 0\n"
TU = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n",
    "graph_indicator": "1\n1\n1\n2\n2\n",
    "graph_labels": "1\n-1\n",
    "node_labels": "5\n7\n5\n5\n5\n",
    "node_attributes": "0.5, 1.0\n0.25, 2.0\n1.5, 3.0\n0.5, 1.0\n0.5, 1.5\n",
    "edge_labels": "0\n0\n1\n1\n0\n0\n",
}


def tu_folder(path: Path, **changes: str) -> Path:
    path.mkdir()
    for part, text in (TU | changes).items():
        (path / f"SET_{part}.txt").write_text(text)
    return path


def test_a_folder_of_tables(tmp_path):
    store = read_graphs(tables(tmp_path / "f"))
    assert store.undirected
    assert store.num_nodes.tolist() == [3, 2]
    assert [a.name for a in store.schema.node] == ["color", "size"]
    assert store.schema.node[0].values == ("blue", "red")
    assert store[:].x.T.tolist() == [[1, 0, 1, 1, 1], [1.0, 2.0, 3.5, 1.0, 2.5]]
    assert store.tasks == ("y",)
    assert store.source.classes == {"y": ["no", "yes"]}
    assert store.labels[:, 0].tolist() == [1, 0]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed on Linux")
def test_an_error_that_is_kept_keeps_no_file_open(tmp_path):
    folder = tables(tmp_path / "f", graphs="graph,y\nb,no\n")
    open_before, errors = len([*Path("/proc/self/fd").iterdir()]), []
    for _ in range(3):
        with pytest.raises(DataError) as kept:
            read_graphs(folder)
        errors.append(kept)
    assert len([*Path("/proc/self/fd").iterdir()]) == open_before


COUNTED = [
    # edges, counts of nodes, numbers of nodes and edges found, degrees
    ("0,5,9\n0,9,11\n1,ann,bob\n", None, [3, 2], [4, 2], [1, 2, 1, 1, 1]),
    ("b,0,3\n", "graph,num_nodes\na,2\nb,4\n", [2, 4], [0, 2], [0, 0, 1, 0, 0, 1]),
    ("a,v,7\na,7,w\n", "graph,num_nodes\na,4\n", [4], [4], [1, 2, 1, 0]),
]


@pytest.mark.parametrize(("edges", "counts", "nodes", "ends", "degrees"), COUNTED)
def test_edges_or_counts_name_the_nodes(tmp_path, edges, counts, nodes, ends, degrees):
    store = read_tables(tmp_path, f"graph,source,target\n{edges}", None, counts)
    assert (store.num_nodes.tolist(), store.num_edges.tolist()) == (nodes, ends)
    assert store.schema.node[0].origin == "degree"
    assert store[:].x[:, 0].tolist() == degrees


def test_json_lines(tmp_path):
    records = [
        {"edges": [[0, 1]], "x": [[3], [0]], "edge_attr": [["s"]], "y": 0.5},
        {"edges": [], "x": [[1]], "edge_attr": None, "y": None},
    ]
    store = read_lines(tmp_path, records)
    assert store.num_nodes.tolist() == [2, 1]
    assert store[:].x[:, 0].tolist() == [3, 0, 1]
    assert store.schema.edge[0].values == ("s",)
    np.testing.assert_array_equal(store.labels, [[0.5], [np.nan]])


def test_gin_text(tmp_path):
    (tmp_path / "g.txt.gz").write_bytes(gzip.compress(GIN.encode()))
    store = read_graphs(tmp_path / "g.txt.gz")
    assert store.num_edges.tolist() == [4, 2]
    assert store.source.classes == {"label": ["no", "yes"]}
    assert store[:].x[:, 0].tolist() == [5, 7, 5, 5, 5]


@pytest.mark.parametrize("packed", [False, True])
def test_tudataset(tmp_path, packed):
    path = tu_folder(tmp_path / "SET")
    if packed:
        with zipfile.ZipFile(tmp_path / "SET.zip", "w") as archive:
            for file in path.iterdir():
                archive.write(file, f"SET/{file.name}")
        path = tmp_path / "SET.zip"
    store = read_graphs(path)
    assert [a.name for a in store.schema.node] == ["label", "attribute_0", "attribute_1"]
    assert store.source.classes == {"label": ["-1", "1"]}
    assert store.num_edges.tolist() == [4, 2]
    assert store[:].edge_attr[:, 0].tolist() == [0, 0, 1, 1, 0, 0]


def test_attributes_of_a_tudataset_are_quantities_even_if_whole(tmp_path):
    """And labels are categories, also as decimals."""
    whole = {"node_attributes": "1\n2\n300\n4\n5\n", "edge_attributes": "1\n1\n2\n2\n3\n3\n"}
    whole |= {"node_labels": "5.0\n7.0\n5.0\n5.0\n5.0\n"}
    first = read_graphs(tu_folder(tmp_path / "SET", **whole))
    for columns in (first.schema.node, first.schema.edge):
        assert [(a.name, a.is_categorical) for a in columns] == [
            ("label", True),
            ("attribute", False),
        ]
    new = tu_folder(tmp_path / "NEW", **(whole | {"node_attributes": "1\n7\n8\n9\n10\n"}))
    assert not read_graphs(new, schema=first.schema).rejects
    gap = tu_folder(tmp_path / "GAP", **(whole | {"node_attributes": "1\nNaN\n300\n4\n5\n"}))
    assert not read_graphs(gap, on_error="skip").schema.node[1].is_categorical


def test_zeros_before_digits_are_no_names_where_numbers_are_meant(tmp_path):
    edges, counted = "graph,source,target\n", "graph,num_nodes,y\na,03,05\n"
    store = read_tables(tmp_path, edges + "a,1,2\n", None, counted)
    assert (store.num_nodes.tolist(), store.labels.tolist()) == ([3], [[5.0]])
    named = read_tables(tmp_path, edges + "a,10,01\na,02,10\n")
    assert sorted(named[0:1].edge_index[0].tolist()) == [0, 1, 2, 2]


def test_what_is_a_collection_of_graphs(tmp_path):
    (tmp_path / "m.txt").write_text("CCO\n")
    (tmp_path / "g.txt").write_text(GIN)
    run = tables(tmp_path / "run")
    (run / "config.toml").write_text("kind = 'pretrain'\n")
    graphs = [tables(tmp_path / "f"), tu_folder(tmp_path / "SET"), tmp_path / "g.txt", "mutag"]
    others = [run, tmp_path / "m.txt", tmp_path, "bbbp", "-", ["CCO"]]
    assert {resolve(source).domain for source in graphs} == {"graph"}
    assert {resolve(source).domain for source in others} == {None, "molecule"}


def test_both_directions_are_one_edge_and_loops_go_unless_directed(tmp_path):
    records = [{"edges": [[0, 1], [1, 0], [1, 1], [0, 1]]}, {"edges": [[0, 1]]}]
    assert read_lines(tmp_path, records).num_edges.tolist() == [2, 2]
    assert read_lines(tmp_path, records, directed=True).num_edges.tolist() == [4, 1]


GOOD = {"edges": [[0, 1]], "x": [[1], [2]], "y": 1}
HUGE = 10**400
BAD_LINES: dict[str, str] = {
    '{"edges": [[0, 5]], "x": [[1], [2]]}': r"edge 0 - 5 must join nodes in \[0, 2\)",
    '{"edges": [[0, -1]], "x": [[1], [2]]}': "edge 0 - -1 must join",
    '{"edges": [[0, 1]], "x": [[NaN], [1]]}': "node 0: node attribute 'node_0' must be finite",
    '{"edges": [[0, 1]], "x": [[1], [Infinity]]}': "node 1: node attribute 'node_0' must be fin",
    '{"edges": [[0, 1]], "x": [[1, 2], [2, 3]]}': "every node must have 1 attr.*found 2",
    '{"edges": [[0, 1]], "x": [[1], [null]]}': "node 1: node attribute 'node_0' is missing",
    '{"edges": [[0, 1]]}': "every node must have 1 attributes .node_0., found 0",
    '{"x": [[1]]}': "edges: Field required",
    '{"edges": [[0, 1.5]], "x": [[1], [2]]}': "edges.0.1: Input should be a valid integer",
    '{"edges": [], "x": []}': "has no node",
    '{"edges": [[0, 1]], "x": [[1], [1]], "y": [1, 2]}': "`y` must be 1 labels",
    '{"edges": [[0, 1]], "x": [[1], [1]], "color": 3}': "unknown key 'color'; known: edges",
    "{": "Invalid JSON",
    '{"edges": [[0, 1]], "x": [[0], [' + "9" * 5000 + "]]}": "Invalid JSON",
    '{"edges": [[0, 1]], "x": [[0], [1]], "y": "\\ud800"}': "Invalid JSON",
    json.dumps(GOOD | {"x": [[0], [HUGE]]}): "node 1: .* must be finite, found inf",
    json.dumps(GOOD | {"x": [[None], [-HUGE]]}): "node 0: .* is missing",
    json.dumps(GOOD | {"x": [[""], [1]]}): "node 0: .* is missing",
    json.dumps(GOOD | {"y": HUGE}): "label 'y' must be a finite number up to 3.4e.38, found 'inf'",
    json.dumps(GOOD | {"y": -1e39}): "label 'y' must be a finite number up to .*, found '-1e.39'",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_rejected_by_name_and_the_others_stay_in_their_rows(tmp_path, line):
    records = [GOOD, line, GOOD]
    store = read_lines(tmp_path, records)
    assert store.rows.tolist() == [0, 2]
    assert [r.row for r in store.rejects] == [1]
    with pytest.raises(DataError, match=f"(line 2|graph 1): .*{BAD_LINES[line]}"):
        read_lines(tmp_path, records, on_error="fail")


def test_attributes_of_another_width_are_told_with_their_line(tmp_path):
    good = {"edges": [[0, 1]], "x": [[1], [2]], "edge_attr": [[0]]}
    bad = [good | {"x": [[1, 1], [2, 2]]}, good | {"edge_attr": [[0], [0]]}, good | {"edges": []}]
    store = read_lines(tmp_path, [good, "", good, good, bad[0], "", *bad[1:], good])
    reasons = [reject.reason for reject in store.rejects]
    assert [reason.partition(":")[0] for reason in reasons] == ["line 5", "line 7", "line 8"]
    assert "attributes of 0 edges" in reasons[2]


def test_a_folder_of_several_collections_says_so(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        lines(tmp_path / name, [GOOD])
    with pytest.raises(DataError, match="holds 2 JSON-lines files; name the one to read"):
        resolve(tmp_path)


def more(**added: str) -> Callable[[Path], Path]:
    """Return a writer of the folder of tables with lines added to some."""
    whole = {"edges": EDGES, "nodes": NODES, "graphs": GRAPHS}
    return lambda path: tables(path / "f", **(whole | {k: whole[k] + v for k, v in added.items()}))


def tu(**changes: str) -> Callable[[Path], Path]:
    """Return a writer of the TUDataset with some of its parts changed."""
    labels = {"edge_labels": "0\n1\n"} if "A" in changes else {}
    return lambda path: tu_folder(path / "SET", **(labels | changes))


def gin(old: str, new: str) -> Callable[[Path], Path]:
    """Return a writer of the file in GIN's format with a text in place of another."""
    return lambda path: write(path / "g.txt", GIN.replace(old, new))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def edges(*rows: str, columns: str = "") -> Callable[[Path], Path]:
    """Return a writer of a folder with a table of these edges and no other."""
    text = "\n".join([f"graph,source,target{columns}", *rows, ""])
    return lambda path: tables(path / "f", text, None, None)


def text(content: str) -> Callable[[Path], Path]:
    return lambda path: write(path / "g.txt", content)


def test_nodes_that_a_gap_turned_into_decimals_are_the_same_nodes(tmp_path: Path):
    """A data frame writes a column of whole numbers as 1.0, 2.0 where one of them is missing."""
    ring = [f"{g},{k},{(k + 1) % 4}.0" for g in "ab" for k in range(4)]
    ring[2] = "a,2,"
    store = read_graphs(edges(*ring)(tmp_path))
    assert [r.row for r in store.rejects] == [0]
    assert store[:].num_nodes == 4
    assert [len(ends) for ends in store[:].edge_index] == [8, 8]


HUGE_NUMBER = "9" * 5000
BAD_FILES: list[tuple[Callable[[Path], Path], str]] = [
    (more(edges="b,0,7,1\n"), "edges.csv, line 5: node '7' is not in graph 'b'"),
    (more(edges="b,0,-1,1\n"), "edges.csv, line 5: node '-1' is not in graph"),
    (
        lambda path: tables(
            path / "f", "graph,source,target\na,v,w\n", None, "graph,num_nodes\na,1\n"
        ),
        "edges.csv names 2 nodes and `num_nodes` is 1",
    ),
    (edges("1,0,1", "1,1,-2.0"), "a node must be a name or a number from 0, found '-2'"),
    (more(edges="b,1,0,nan\n"), "line 5: edge 1 - 0: edge attribute 'weight' must be a finite num"),
    (more(edges="b,1,0,9\n"), "csv, line 5: edge 1 - 0 is listed twice with different attributes"),
    (
        edges("1,x,y,1", "2,x,y,1", "2,y,x,2", columns=",w"),
        "edges.csv, line 4: edge y - x is listed twice",
    ),
    (tu(edge_labels="0\n0\n1\n1\n0\n1\n"), "SET_A.txt, line 6: edge 1 - 0 is listed twice"),
    (more(edges="a,0,1,1\n"), "edges.csv, line 5: rows of graph 'a' are not consecutive"),
    (more(edges="c,0,1,1\n"), "line 5: graph 'c' is not in graphs.csv"),
    (more(edges="b,0,1\n"), "edges.csv, line 5: not valid CSV .must have 4 fields"),
    (lambda path: tables(path / "f", "graph,source\n"), "must have one column 'target'"),
    (
        lambda path: tables(path / "f", ",graph,source,target\n0,a,0,1\n", None, None),
        r"edges.csv: column 1 has no name; name it, or leave it out .*index=False",
    ),
    (more(nodes="b,1,red,2\n"), "nodes.csv, line 7: node '1' is listed twice"),
    (more(nodes="b,9,,2\n"), "nodes.csv, line 7: node 9: node attribute 'color' is missing"),
    (more(graphs="b,no\n"), "graphs.csv, line 4: graph 'b' occurs twice"),
    (more(graphs="c,no\n"), "graph 'c' has no row in nodes.csv"),
    (
        lambda path: tables(path / "f", EDGES.replace("b,0,1,1.0\n", ""), None),
        "has no edge, so its nodes are unknown: list them in nodes.csv",
    ),
    (edges("a,0,-2"), "line 2: a node must be a name or a number from 0"),
    (
        edges("1,0,1,1.5", "", "", "1,1,2,nan", "2,0,1,1", columns=",w"),
        "edges.csv, line 5: edge 1 - 2:",
    ),
    (tu(A="1, 2\n2, 9\n"), "SET_A.txt, line 2: nodes must be in"),
    (tu(A="1, 2\n2, x\n"), "SET_A.txt, line 2: must be 2 whole numbers"),
    (tu(A="1, 2\n3, 4\n"), "SET_A.txt, line 2: joins nodes of two graphs"),
    (
        tu(A=f"1, {2**63}\n", edge_labels="0\n"),
        "line 1: must be 2 whole numbers, found .1, 92233720",
    ),
    (tu(graph_indicator=f"1\n1\n1\n2\n{10**15}\n"), "line 5: numbers 10+ graphs, but there are 5"),
    (tu(graph_indicator="1\n1\n2\n1\n2\n"), "indicator.txt, line 4: graphs must be numbered"),
    (tu(node_labels="1\n"), "node_labels.txt: must have 5 lines"),
    (tu(A="1, 2\n\n2, 9\n"), "SET_A.txt, line 2: must not be blank"),
    (tu(node_attributes="1, 2\n1\n"), "node_attributes.txt, line 2: must have 2 columns"),
    (gin("7 2 0 2", "7 2 0 3"), "line 4: neighbor 3 must be a node"),
    (gin("7 2 0 2", "7 2 0"), "line 4: must be 'tag degree neighbors'"),
    (gin("1 1\n5 1 0\n", "1"), "ends within graph 1"),
    (gin("5 1 0\n", "5 1 0\n1 no\n"), "line 9: more lines than the 2 graphs"),
    (gin("2 no", "two no"), "line 6: must be 'nodes label'"),
    (gin("2 no", f"{HUGE_NUMBER} no"), "line 6: must be 'nodes label'"),
    (text(f"1\n{10**15} 0\n0 1 1\n1 1 0\n"), "ends within graph 0 of 1"),
    (text(HUGE_NUMBER + GIN[1:]), "is not a file of graphs"),
    (gin("7 2 0 2", f"7 {HUGE_NUMBER} 0"), "line 4: must be 'tag degree"),
]


@pytest.mark.parametrize(("made", "words"), BAD_FILES, ids=[words for _, words in BAD_FILES])
def test_a_bad_line_of_a_file_is_named(tmp_path, made, words):
    with pytest.raises(DataError, match=words):
        read_graphs(made(tmp_path), on_error="fail")


@pytest.mark.parametrize("limit", [None, 1, 2])
@pytest.mark.parametrize("order", ["cab", "bca", "bac"])
def test_tables_in_another_order_are_refused_however_few_graphs_are_read(tmp_path, order, limit):
    edges = "".join(f"{graph},0,1\n" for graph in order)
    counts = "graph,num_nodes\na,2\nb,2\nc,2\n"
    folder = tables(tmp_path / "f", f"graph,source,target\n{edges}", None, counts)
    line = 2 + next(k for k in (1, 2) if order[k] < order[k - 1])
    with pytest.raises(DataError, match=rf"edges\.csv, line {line}: .* in the same order"):
        read_graphs(folder, limit=limit)


def test_quantities_as_labels_of_a_tudataset_are_refused_in_one_line(tmp_path):
    count = 1100
    numbers = "".join(f"{k}\n" for k in range(1, count + 1))
    path = tu_folder(tmp_path / "SET", graph_indicator=numbers, graph_labels=numbers, A="")
    for name in ("node_labels", "node_attributes", "edge_labels"):
        (path / f"SET_{name}.txt").unlink()
    with pytest.raises(DataError, match=r"more than 1,000 different values.* in its files of attr"):
        read_graphs(path)


def test_mostly_bad_graphs_are_refused(tmp_path):
    with pytest.raises(DataError, match="1 of 1 graphs cannot be used"):
        read_lines(tmp_path, [{"edges": [[0, 1]], "x": [[1]]}])
    with pytest.raises(DataError, match="2 of 3 graphs cannot be used"):
        read_lines(tmp_path, ["{", "{", {"edges": [[0, 1]]}])


def test_new_graphs_are_read_in_an_older_schema_and_unseen_categories_named(tmp_path):
    first = read_graphs(rings(tmp_path / "a.jsonl"))
    again = read_graphs(tmp_path / "a.jsonl", schema=first, limit=5)
    assert again.schema == first.schema
    new = [
        {"edges": [[0, 1]], "x": [[8, 0.5], [0, 0.5]], "edge_attr": [[0, 0.1]]},
        {"edges": [], "x": [[1, 9.0]]},
    ]
    unseen = "line 1: node 0: node attribute 'node_0' is '8', a category that the schema does not"
    with pytest.raises(DataError, match=unseen):
        read_lines(tmp_path, new, schema=first.schema, on_error="fail")


def test_classes_keep_the_numbers_of_the_store_to_be_like(tmp_path):
    first = read_graphs(rings(tmp_path / "a.jsonl"))
    record = {"edges": [[0, 1], [1, 2]], "x": [[0, 1.0]] * 3, "edge_attr": [[0, 0.1]] * 2}
    classes = ({"y": "class2"}, {}, {"y": "class1"}, {"y": "class9"})
    again = read_lines(tmp_path, [record | own for own in classes], schema=first)
    assert again.source.classes == first.source.classes
    np.testing.assert_array_equal(again.labels[:, 0], [2, np.nan, 1])
    (reject,) = again.rejects
    assert reject.row == 3
    assert reject.reason.startswith("label 'y' is 'class9', a category that the schema does not")


def test_names_of_files_need_not_be_utf_8(tmp_path):
    path = rings(tmp_path / os.fsdecode(b"a\xff.jsonl"))
    store = read_graphs(path, store_path=tmp_path / os.fsdecode(b"store\xff"))
    again = graphlog.open_store(str(store.path))
    assert again.source.name == "a\\udcff.jsonl"
    in_memory = read_graphs(path)
    assert (again.digest, again.schema) == (in_memory.digest, in_memory.schema)


NO_SENSE = [
    {"on_error": "stop"},
    {"limit": 0},
    {"kinds": {"nobody": "continuous"}},
    {"kinds": {"node_0": "color"}},
]


@pytest.mark.parametrize("options", NO_SENSE, ids=str)
def test_options_that_make_no_sense_are_refused(tmp_path, options):
    with pytest.raises(ConfigError):
        read_graphs(rings(tmp_path / "a.jsonl", count=2), **options)


@pytest.mark.parametrize("name", ["mutag", "ptc"])
def test_named_sets_hold_what_is_said_of_them(name, mirror):
    store = read_graphs(name)
    assert len(store) == DATASETS[name].rows
    assert not store.rejects
    assert store.undirected


def _column(path, name):
    return [row.get(name) for row in read_table(path)]


@pytest.fixture
def graphs():
    return [{"edges": [[0, k % 4 + 1]], "id": f"g{k}"} for k in range(8)]


def _embed(source, out, **options):
    store = graphlog.read_graphs(source)
    encoder = random_encoder(schema=store.schema, graphs=store)
    graphlog.embed_file(encoder, source, out, **options)
    return encoder


def test_ids_of_json_lines(tmp_path, graphs):
    del graphs[5]["id"]
    graphs[3]["id"] = long = "g3 " * 100
    graphs[7]["id"] = None
    graphs[6]["edges"] = "0-1"
    path = lines(tmp_path / "g.jsonl", [*graphs[:3], "{", *graphs[3:]])
    encoder = _embed(path, tmp_path / "e.csv")
    expected = ["g0", "g1", "g2", "{", long, "g4", "", "g6", ""]
    assert _column(tmp_path / "e.csv", "id") == expected
    assert _column(tmp_path / "e.csv", "row") == [str(k) for k in range(9)]
    graphlog.embed_file(encoder, path, tmp_path / "few.csv", limit=4)
    assert _column(tmp_path / "few.csv", "id") == expected[:4]
    graphlog.neighbors_file(encoder, path, path, tmp_path / "n.csv", k=1)
    assert _column(tmp_path / "n.csv", "id") == expected
    assert set(_column(tmp_path / "n.csv", "neighbor_id")) <= {*expected, ""}
    graphlog.embed_file(encoder, read_graphs(path), tmp_path / "store.csv")
    assert (tmp_path / "store.csv").read_bytes() == (tmp_path / "e.csv").read_bytes()


def test_graphs_from_standard_input(tmp_path, graphs, monkeypatch):
    path = lines(tmp_path / "g.jsonl", graphs)
    encoder = _embed(path, tmp_path / "e.csv")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    graphlog.embed_file(encoder, "-", tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "e.csv").read_bytes()
    with pytest.raises(DataError, match="standard input: graphs are read twice; save them"):
        read_graphs("-")


NAMED: dict[str, tuple[Callable[[Path, list], Path], str, list[str] | None]] = {
    "after a bad first line": (
        lambda path, graphs: lines(path / "g.jsonl", ["{", *graphs]),
        "id",
        ["{", *(f"g{k}" for k in range(8))],
    ),
    "in tables": (lambda path, graphs: tables(path / "f"), "graph", ["a", "b"]),
    "nowhere": (
        lambda path, graphs: lines(path / "g.jsonl", [{"edges": g["edges"]} for g in graphs]),
        "e0",
        None,
    ),
}


@pytest.mark.parametrize("where", NAMED)
def test_names_of_graphs_follow_the_row_numbers(tmp_path, graphs, where):
    made, column, names = NAMED[where]
    _embed(made(tmp_path, graphs), tmp_path / "e.csv")
    assert list(read_table(tmp_path / "e.csv")[0])[:2] == ["row", column]
    assert names is None or _column(tmp_path / "e.csv", column) == names


GRAPH: dict[str, Any] = {"edges": [[0, 1], [1, 2]], "x": [[0], [1], [2]]}


def test_a_node_number_that_would_fill_memory_rejects_its_graph(tmp_path):
    graphs = [{"edges": [[0, end]]} for end in (1, 1, 2_000_000_000)]
    (reject,) = read_lines(tmp_path, graphs).rejects
    assert reject.reason == (
        "line 3: has 2,000,000,001 nodes, more than the 10,000,000 that a graph may have"
    )
    edges, counts = "graph,source,target\na,0,1\nb,0,1\n", "graph,num_nodes\na,2\nb,2000000000\n"
    (reject,) = read_tables(tmp_path, edges, None, counts).rejects
    assert "from 1 to 10,000,000" in reject.reason


def test_a_row_that_is_not_one_hot_rejects_its_graph_only(tmp_path):
    good = {"edges": [[0, 1]], "x": [[1, 0, 0], [0, 1, 0]]}
    seen = read_lines(tmp_path, [good, good])
    assert seen.schema.node[0].origin == "one-hot"
    wrong = ([[1, 1, 0], [0, 1, 0]], [[None, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 0, 1]])
    records = [record for x in wrong for record in (good, good | {"x": x})]
    store = read_lines(tmp_path, [*records, good], schema=seen)
    assert store.rows.tolist() == [0, 2, 4, 6]
    nodes = [(r.row, r.reason.split(": ")[1]) for r in store.rejects]
    assert nodes == [(1, "node 0"), (3, "node 0"), (5, "node 1")]
    assert "0 but for a single 1" in store.rejects[0].reason
    assert "'2', a category" in store.rejects[2].reason
    assert store[:].x[:, 0].tolist() == [0, 1] * 4


def test_a_class_is_the_same_however_it_is_written(tmp_path):
    labels = [True, 1, 1.0, "1", False, "0", "other", "", None]
    store = read_lines(tmp_path, [GRAPH | {"y": y} for y in labels])
    assert store.source.classes == {"y": ["0", "1", "other"]}
    assert store.labels[:7, 0].tolist() == [1, 1, 1, 1, 0, 0, 2]
    assert (store.labels[7:] != store.labels[7:]).all()


LABELS: list[tuple[list[str], list[str] | None, str, str]] = [
    # labels, their classes, what a user is told, and why the last graph is rejected
    (["yes", "no", "NA", "N/A"], ["no", "yes"], "read as missing: N/A, NA", ""),
    (["0", "1", "NA", "null"], None, "read as missing: NA, null", ""),
    (["0.5", "1", "2.5", "-"], None, "read as missing: -", ""),
    (
        ["yes", "no", "YES", ""],
        ["YES", "no", "yes"],
        "3 classes (YES, no, yes); some differ in case only",
        "",
    ),
    (
        ["Active", "Inactive", "Active", ""],
        ["Inactive", "Active"],
        "class 0 is Inactive, class 1 is Active",
        "",
    ),
    (["+", "-", "+", ""], ["+", "-"], "class 0 is +, class 1 is -", ""),
    (["none", "mild", "none", "na"], ["mild", "none"], "read as missing: na", ""),
    (["2E1", "2D6", "2E1", "2E1"], ["2D6", "2E1"], "class 0 is 2D6, class 1 is 2E1", ""),
    (["1E400", "20", "2E1", "x"], ["20", "1E400", "2E1", "x"], "4 classes (20, 1E400, 2E1, x)", ""),
    (["0,5", "1,5", "2,5", "3"], ["3", "0,5", "1,5", "2,5"], "such as 0,5 are read as cat", ""),
    (["1", "2", "2", "b"], ["1", "2", "b"], "3 classes (1, 2, b)", ""),
    (["0.5", "1", "2.5", "low"], None, "", "label 'y' must be a finite number"),
]


@pytest.mark.parametrize(("labels", "classes", "note", "reason"), LABELS)
def test_what_words_are_as_labels(tmp_path, labels, classes, note, reason):
    rows = "".join(f'{k},2,"{label}"\n' for k, label in enumerate(labels))
    edges = "graph,source,target\n0,0,1\n"
    folder = tables(tmp_path / "f", edges, None, f"graph,num_nodes,y\n{rows}")
    records = [{"edges": [], "num_nodes": 2, "y": cell(label)} for label in labels]
    for source in (folder, lines(tmp_path / "g.jsonl", records)):
        store = read_graphs(source)
        assert store.source.classes == ({"y": classes} if classes else {})
        assert note in " ".join(store.source.notes)
        assert bool(note) == bool(store.source.notes)
        rejects = [(r.row, r.reason[: len(reason)]) for r in store.rejects]
        assert rejects == ([(3, reason)] if reason else [])
        if "read as missing" in note:
            known = [label not in note.partition(": ")[2].split(", ") for label in labels]
            assert np.isfinite(store.labels[:, 0]).tolist() == known


@pytest.mark.parametrize(
    ("values", "kind", "bad"),
    [
        ([0, 1, 2, "NA"], ("0", "1", "2"), [3]),
        ([0.5, 1, "n/a", "null"], (), [2, 3]),  # quantities
        (["Na", "C", "C", "O"], ("C", "Na", "O"), []),
        (["-", "-", "-", "-"], ("-",), []),
        ([1, "-", "=", "-"], ("1", "-", "="), []),
        (["None", None, "nan", math.nan], ("None", "nan"), [1, 3]),
    ],
)
def test_a_word_for_missing_is_a_category_beside_other_words(tmp_path, values, kind, bad):
    graphs = [{"edges": [[0, 1]], "x": [["Q", 0], ["R", 1]], "edge_attr": [v]} for v in values]
    store = read_lines(tmp_path, graphs)
    assert store.schema.edge[0].values == kind
    assert [r.row for r in store.rejects] == bad


def test_zeros_before_digits_make_another_category_in_every_format(tmp_path):
    kinds = ["007", "07", "7", "0", "00"]
    nodes = "".join(f"a,{k},{kind}\n" for k, kind in enumerate(kinds))
    folder = tables(tmp_path / "f", "graph,source,target\na,0,1\n", f"graph,node,k\n{nodes}", None)
    record = {"edges": [[0, 1]], "x": ["007", "07", 7, 0, "00"]}
    for source in (folder, lines(tmp_path / "g.jsonl", [record])):
        (column,) = read_graphs(source).schema.node
        assert column.values == ("0", "7", "00", "007", "07")


def test_named_labels_may_come_in_any_order(tmp_path):
    labels = ({"a": 1, "b": 0}, {"b": 5, "a": 2})
    store = read_lines(tmp_path, [GRAPH | {"y": y} for y in labels])
    assert store.labels.tolist() == [[1, 0], [2, 5]]


def test_a_damaged_or_encrypted_zip(tmp_path):
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("T/T_A.txt", "1, 2\n2, 1\n3, 4\n4, 3\n" * 200)
        archive.writestr("T/T_graph_indicator.txt", "1\n1\n2\n2\n")
    whole = path.read_bytes()
    directory = whole.find(b"PK\x01\x02")
    flipped = bytearray(whole)
    flipped[45] ^= 0xFF
    encrypted = bytearray(whole)
    encrypted[6] |= 1
    encrypted[directory + 8] |= 1
    for content in (flipped, encrypted):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"T_A\.txt cannot be unpacked"):
            read_graphs(path)


def test_a_zip_that_expands_without_end(tmp_path):
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("T/T_A.txt", b"1, 1\n" * (20 << 20))
        archive.writestr("T/T_graph_indicator.txt", "1\n")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match=r"T_A.txt cannot be unpacked \(it claims to expand to 10"):
        read_graphs(path)


def test_a_limit_holds_for_a_store_too(tmp_path):
    read_graphs(lines(tmp_path / "g.jsonl", [GRAPH, GRAPH, GRAPH]), store_path=tmp_path / "store")
    assert len(read_graphs(tmp_path / "store", limit=2)) == 2


def test_no_table_by_class_where_scores_are_of_all_together():
    row = ScoreRow("model", "rule", {"accuracy": [0.5]}, {})
    report = Report(
        "set", "multiclass", "accuracy", "10-fold", {"train": 9}, ("y=a", "y=b"), (row,)
    )
    assert len(report.tables()) == 1
