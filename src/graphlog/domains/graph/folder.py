"""A folder of tables: ``edges.csv``, and optionally ``nodes.csv`` and ``graphs.csv``."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphlog.data.tables import listed
from graphlog.domains.graph.raw import (
    MAX_NODES,
    BadGraphError,
    Collection,
    Place,
    RawGraph,
    cell,
    column,
)
from graphlog.errors import DataError
from graphlog.files import open_text

KEYS: Mapping[str, tuple[str, ...]] = {
    "graphs": ("graph",),
    "nodes": ("graph", "node"),
    "edges": ("graph", "source", "target"),
}
"""The tables and the columns each must have; other columns are attributes, or labels of graphs."""
_NUM_NODES = "num_nodes"
_SUFFIXES = (".csv", ".csv.gz", ".csv.zst")


class _Rows(NamedTuple):
    """The rows of one graph in one table."""

    graph: str
    place: Place
    keys: list[list[str]]
    values: list[list[Any]]

    def columns(self) -> tuple[Any, ...]:
        return tuple(column(values) for values in zip(*self.values, strict=True))


def find_tables(folder: Path) -> dict[str, Path]:
    """Return the tables in ``folder``; none unless ``edges.csv`` is there."""
    tables = {
        name: path
        for name in KEYS
        for suffix in reversed(_SUFFIXES)
        if (path := folder / f"{name}{suffix}").is_file()
    }
    return tables if "edges" in tables else {}


def open_folder(folder: Path) -> Collection:
    """Return the graphs of a folder of tables.

    The rows of a graph are consecutive, and graphs come in the same order in every table: that of
    ``graphs.csv``, else of ``nodes.csv``, else of ``edges.csv``. ``nodes.csv`` names the nodes.
    Without it, the nodes are those that edges name, or, if ``graphs.csv`` has a column
    ``num_nodes``, the numbers from 0 to ``num_nodes - 1``.

    Raises:
        DataError: If a table lacks a column.
    """
    tables = find_tables(folder)
    columns = {name: _columns_of_table(path, KEYS[name]) for name, path in tables.items()}
    return Collection(
        name=str(folder),
        node=columns.get("nodes", ()),
        edge=columns["edges"],
        labels=tuple(name for name in columns.get("graphs", ()) if name != _NUM_NODES),
        read=lambda: _read_tables(tables, columns),
        names=KEYS["graphs"][0],
        has_header=True,
    )


def _columns_of_table(path: Path, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table besides ``keys``."""
    with open_text(path) as lines:
        try:
            header = [name.strip() for name in next(csv.reader(lines), [])]
        except csv.Error as e:
            raise DataError(f"{path}, line 1: not valid CSV ({e}).") from None
    for key in keys:
        if header.count(key) != 1:
            found = listed(header) or "an empty file"
            raise DataError(f"{path}: must have one column '{key}', found {found}.")
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise DataError(f"{path}: column {min(repeated)!r} occurs twice; rename one.")
    return tuple(name for name in header if name not in keys)


def _rows_of_table(path: Path, keys: Sequence[str], lines: Iterator[str]) -> Iterator[_Rows]:
    """Yield the rows of a table graph by graph."""
    reader = csv.reader(lines)
    header = [name.strip() for name in next(reader)]
    key_columns = [header.index(key) for key in keys]
    value_columns = [k for k, name in enumerate(header) if name not in keys]

    def numbered() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in filter(None, reader):
                if len(row) != len(header):
                    expected = f"must have {len(header)} fields as the header has"
                    raise DataError(
                        f"{path}, line {reader.line_num}: {expected}, found {len(row)}."
                    )
                yield reader.line_num, row
        except csv.Error as e:
            raise DataError(f"{path}, line {reader.line_num}: not valid CSV ({e}).") from None

    seen: set[str] = set()
    for graph, group in groupby(numbered(), lambda item: item[1][key_columns[0]].strip()):
        numbers, rows = zip(*group, strict=True)
        if graph in seen:
            problem = f"rows of graph '{graph}' are not consecutive; sort the table by graph"
            raise DataError(f"{path}, line {numbers[0]}: {problem}.")
        seen.add(graph)
        yield _Rows(
            graph,
            Place(path.name, numbers),
            [[row[k].strip() for k in key_columns[1:]] for row in rows],
            [[cell(row[k]) for k in value_columns] for row in rows],
        )


def _read_tables(
    tables: Mapping[str, Path], columns: Mapping[str, tuple[str, ...]]
) -> Iterator[RawGraph]:
    order, number = next(iter(tables)), 0
    with ExitStack() as stack:
        groups = {
            name: _rows_of_table(path, KEYS[name], stack.enter_context(open_text(path)))
            for name, path in tables.items()
        }
        following = {name: next(rows, None) for name, rows in groups.items()}
        while (current := following[order]) is not None:
            listed: dict[str, _Rows] = {}
            for name, rows in following.items():
                if rows is not None and rows.graph == current.graph:
                    listed[name], following[name] = rows, next(groups[name], None)
            try:
                yield _graph_of_tables(number, current.graph, listed, columns)
            except BadGraphError as e:
                yield RawGraph(number, current.graph, problem=str(e), name=current.graph)
            number += 1
        for name, rows in following.items():
            if rows is not None:
                raise DataError(
                    f"{tables[name]}, line {rows.place.lines[0]}: graph '{rows.graph}' is not in "
                    f"{tables[order].name}, or not in its place; list graphs in the same order."
                )


def _graph_of_tables(
    row: int, name: str, listed: Mapping[str, _Rows], columns: Mapping[str, tuple[str, ...]]
) -> RawGraph:
    about: dict[str, Any] = {}
    if "graphs" in listed:
        if len(listed["graphs"].values) > 1:
            problem = f"graph '{name}' occurs twice; keep one row"
            raise BadGraphError(f"{listed['graphs'].place.of(1)}{problem}")
        about = dict(zip(columns["graphs"], listed["graphs"].values[0], strict=True))
    num_nodes = about.pop(_NUM_NODES, None)
    nodes, edges = listed.get("nodes"), listed.get("edges")
    ends = edges.keys if edges else []
    edge_place = edges.place if edges else Place()
    if nodes is not None:
        numbers = _listed_nodes(nodes)
    elif "nodes" in columns:
        raise BadGraphError(f"graph '{name[:40]}' has no row in nodes.csv")
    else:
        numbers = _unlisted_nodes(ends, edge_place, num_nodes)
    for k, pair in enumerate(ends):
        for end in pair:
            if end not in numbers:
                problem = f"node '{end[:40]}' is not in graph '{name[:40]}'"
                raise BadGraphError(f"{edge_place.of(k)}{problem}")
    pairs = [[numbers[a], numbers[b]] for a, b in ends]
    empty = column([])
    return RawGraph(
        row=row,
        text=name,
        num_nodes=len(numbers),
        edge_index=np.array(pairs, dtype=np.int64).reshape(-1, 2).T,
        node=nodes.columns() if nodes else (),
        edge=edges.columns() if edges else (empty,) * len(columns["edges"]),
        labels=tuple(about.values()),
        node_place=nodes.place if nodes else Place(),
        edge_place=edge_place,
        name=name,
    )


def _listed_nodes(nodes: _Rows) -> dict[str, int]:
    """Return the number of each node of ``nodes.csv``."""
    numbers: dict[str, int] = {}
    for k, (name,) in enumerate(nodes.keys):
        if name in numbers:
            raise BadGraphError(f"{nodes.place.of(k)}node '{name[:40]}' is listed twice")
        numbers[name] = k
    return numbers


def _unlisted_nodes(ends: Sequence[Sequence[str]], place: Place, num_nodes: Any) -> dict[str, int]:
    """Return the number of each node that ``num_nodes`` counts or edges name."""
    if num_nodes is not None:
        if not isinstance(num_nodes, int) or not 0 < num_nodes <= MAX_NODES:
            expected = f"must be a whole number from 1 to {MAX_NODES:,}"
            raise BadGraphError(f"`num_nodes` {expected}, found {num_nodes!r:.40}")
        return {str(k): k for k in range(num_nodes)}
    values = {end: cell(end) for pair in ends for end in pair}
    for k, pair in enumerate(ends):
        for end in pair:
            if not end or (isinstance(values[end], int) and values[end] < 0):
                problem = f"a node must be a name or a number from 0, found '{end}'"
                raise BadGraphError(f"{place.of(k)}{problem}")
    if not values:
        raise BadGraphError(
            "has no edge, so its nodes are unknown: list them in nodes.csv, or count them in "
            "graphs.csv (num_nodes)"
        )
    names = list(values)
    if all(isinstance(value, int) for value in values.values()):
        names.sort(key=values.__getitem__)
    return {name: k for k, name in enumerate(names)}
