"""Values that are too large, oddly typed or misplaced are named; none is a traceback."""

import csv
import zipfile
from typing import Any

import numpy as np
import pytest

from graphlog.api import read_graphs
from graphlog.domains.graph.raw import cell
from graphlog.downstream.report import Report, ScoreRow
from graphlog.errors import DataError
from graphs_support import lines, read_lines, read_tables, tables

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
    (["yes", "no", "YES", ""], ["YES", "no", "yes"], "3 classes (YES, no, yes)", ""),
    (["+", "-", "+", ""], ["+", "-"], "class 0 is +, class 1 is -", ""),
    (["none", "mild", "none", "na"], ["mild", "none"], "read as missing: na", ""),
    (["05", "10", "20", "30"], None, "", ""),
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


def test_a_header_too_long(tmp_path):
    header = "graph,source,target," + "9" * 200_000 + "\n"
    # one limit for the whole process, and readers of molecules raise it
    before = csv.field_size_limit(131_072)
    try:
        with pytest.raises(DataError, match=r"edges\.csv, line 1: not valid CSV"):
            read_graphs(tables(tmp_path / "f", header, None, None))
    finally:
        csv.field_size_limit(before)


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
