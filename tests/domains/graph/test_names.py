"""Names of graphs stand beside what is worked out for them."""

import pytest

import graphlog
from cli_support import read_table
from graphlog.downstream.pretrained import random_encoder
from graphs_support import lines, tables


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
    path = lines(tmp_path / "g.jsonl", [*graphs[:3], "{", *graphs[3:]])
    encoder = _embed(path, tmp_path / "e.csv")
    expected = ["g0", "g1", "g2", "", "g3", "g4", "", "g6", "g7"]
    assert _column(tmp_path / "e.csv", "id") == expected
    assert _column(tmp_path / "e.csv", "row") == [str(k) for k in range(9)]
    graphlog.embed_file(encoder, path, tmp_path / "few.csv", limit=4)
    assert _column(tmp_path / "few.csv", "id") == expected[:4]
    graphlog.neighbors_file(encoder, path, path, tmp_path / "n.csv", k=1)
    assert _column(tmp_path / "n.csv", "id") == expected
    assert set(_column(tmp_path / "n.csv", "neighbor_id")) <= {*expected, ""}


def test_a_bad_first_line_does_not_hide_the_names(tmp_path, graphs):
    _embed(lines(tmp_path / "g.jsonl", ["{", *graphs]), tmp_path / "e.csv")
    assert _column(tmp_path / "e.csv", "id") == ["", *(graph["id"] for graph in graphs)]


def test_names_of_graphs_in_tables(tmp_path):
    path = tables(tmp_path / "f")
    _embed(path, tmp_path / "e.csv")
    assert _column(tmp_path / "e.csv", "graph") == ["a", "b"]


def test_files_without_names_have_row_numbers_only(tmp_path, graphs):
    path = lines(tmp_path / "g.jsonl", [{"edges": graph["edges"]} for graph in graphs])
    _embed(path, tmp_path / "e.csv")
    assert list(read_table(tmp_path / "e.csv")[0])[:2] == ["row", "e0"]
