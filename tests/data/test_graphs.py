"""Graphs that contradict their schema or themselves, and the list of rejected rows."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphlog.data.graphs import Reject, write_rejects
from graphlog.errors import GraphLoGError
from store_support import CODES, FLOATS, make_graphs, to_chunk


def chunk_with(schema=CODES, **changes):
    return replace(to_chunk(make_graphs(4, schema)), **changes)


@pytest.mark.parametrize("bad", [-1, 120])
def test_unknown_codes(bad: int):
    chunk = chunk_with()
    chunk.x[int(chunk.node_counts[:2].sum()), 0] = bad
    with pytest.raises(AssertionError, match="'kind' has a value"):
        chunk.check(CODES)
    chunk = chunk_with()
    chunk.edge_attr[0, 0] = 7
    with pytest.raises(AssertionError, match="'bond' has a value"):
        chunk.check(CODES)


@pytest.mark.parametrize(("column", "bad"), [(0, 0.5), (0, np.nan), (1, np.nan), (1, np.inf)])
def test_values_that_are_not_numbers(column: int, bad: float):
    chunk = chunk_with(FLOATS)
    chunk.x[0, column] = bad
    with pytest.raises(AssertionError, match="has a value that is not in the schema"):
        chunk.check(FLOATS)


@pytest.mark.parametrize("bad", [-1, 1000])
def test_edges_that_leave_their_graph(bad: int):
    chunk = chunk_with()
    chunk.edge_index[1, -1] = bad
    with pytest.raises(AssertionError, match="leaves its graph"):
        chunk.check(CODES)


def test_empty_graphs_and_infinite_labels():
    chunk = chunk_with()
    counts = chunk.node_counts.copy()
    counts[1], counts[0] = 0, counts[0] + counts[1]
    with pytest.raises(AssertionError, match="no nodes"):
        replace(chunk, node_counts=counts).check(CODES)
    with pytest.raises(AssertionError, match="infinite"):
        replace(chunk, labels=np.full((4, 1), np.inf, np.float32)).check(CODES)
    replace(chunk, labels=np.full((4, 1), np.nan, np.float32)).check(CODES)


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
        chunk_with(**changes).check(CODES)


def test_rejects_as_csv(tmp_path: Path):
    rejects = [Reject(3, 'C1"CC,\n', "ring not closed"), Reject(9, "\udcff", "not text")]
    write_rejects(tmp_path / "rejects.csv", rejects, "out")
    with (tmp_path / "rejects.csv").open(newline="", encoding="utf-8") as f:
        rows = list(csv.reader(f))
    assert rows == [
        ["row", "input", "reason", "output"],
        ["3", 'C1"CC,\n', "ring not closed", "out"],
        ["9", "\\udcff", "not text", "out"],
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["rejects.csv"]
    with pytest.raises(GraphLoGError, match=r"cannot write \S+rejects\.csv: "):
        write_rejects(tmp_path / "none" / "rejects.csv", rejects, "out")
