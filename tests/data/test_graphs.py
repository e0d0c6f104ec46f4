"""Graphs that contradict their schema or themselves, and the list of rejected rows."""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from graphlog.data.graphs import FeatureSchema, Reject, rejects_of_output, write_rejects
from graphlog.errors import GraphLoGError
from store_support import CODES, FLOATS, make_graphs, to_chunk

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
