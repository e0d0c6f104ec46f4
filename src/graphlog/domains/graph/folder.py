"""A folder of tables: ``edges.csv``, and where there is more to say ``nodes.csv`` and ``graphs.csv``."""

import csv
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphlog.domains.graph.raw import MOST_NODES, Collection, Place, RawGraph, cell, column
from graphlog.errors import DataError
from graphlog.files import open_text

KEYS: Mapping[str, tuple[str, ...]] = {
    "edges": ("graph", "source", "target"),
    "nodes": ("graph", "node"),
    "graphs": ("graph",),
}
"""The tables, and the columns each must have; all others are attributes, or labels of graphs."""
_NUM_NODES = "num_nodes"
_ENDINGS = (".csv", ".csv.gz", ".csv.zst")


class _Block(NamedTuple):
    """The rows of one graph in one table."""

    graph: str
    lines: list[int]
    keys: list[list[str]]
    values: list[list[Any]]


def find_tables(folder: Path) -> dict[str, Path]:
    """Return the tables in ``folder``: none unless ``edges.csv`` is there."""
    found = {
        name: path
        for name in KEYS
        for ending in reversed(_ENDINGS)
        if (path := folder / f"{name}{ending}").is_file()
    }
    return found if "edges" in found else {}


def open_folder(folder: Path) -> Collection:
    """Return the graphs of a folder of tables.

    Rows of a graph stand together, and graphs come in the same order in every table: that of ``graphs.csv``, else of
    ``nodes.csv``, else of ``edges.csv``. Nodes are called what ``nodes.csv`` calls them; without it, they are those that edges
    name, or, where ``graphs.csv`` has a column ``num_nodes``, the numbers from 0 below that.

    Raises:
        DataError: If a table lacks a column.
    """
    tables = find_tables(folder)
    columns = {name: _columns(path, KEYS[name]) for name, path in tables.items()}
    return Collection(
        name=str(folder),
        node=columns.get("nodes", ()),
        edge=columns["edges"],
        labels=tuple(c for c in columns.get("graphs", ()) if c != _NUM_NODES),
        read=lambda: _read(tables, columns),
    )


def _columns(path: Path, keys: Sequence[str]) -> tuple[str, ...]:
    with open_text(path) as lines:
        try:
            header = [name.strip() for name in next(csv.reader(lines), [])]
        except csv.Error as e:
            raise DataError(f"{path} line 1: is no CSV ({e}).") from None
    for key in keys:
        if header.count(key) != 1:
            raise DataError(
                f"{path}: must have one column '{key}', found {', '.join(header) or 'an empty file'}."
            )
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise DataError(f"{path}: column '{min(repeated)}' is there twice; rename one.")
    return tuple(name for name in header if name not in keys)


class _Blocks:
    """A table graph by graph; knows the graph it stands at, and those it has passed."""

    def __init__(self, path: Path, keys: Sequence[str], lines: Iterator[str]) -> None:
        self.path, self._keys = path, keys
        self._rows = csv.reader(lines)
        header = [name.strip() for name in next(self._rows)]
        self._width = len(header)
        self._key_places = [header.index(key) for key in keys]
        self._value_places = [k for k, name in enumerate(header) if name not in keys]
        self._passed: set[str] = set()
        self._row = self._next()

    @property
    def graph(self) -> str | None:
        """The graph whose rows come next; None at the end."""
        return None if self._row is None else self._row[self._key_places[0]].strip()

    @property
    def line(self) -> int:
        """Line of its first row."""
        return self._rows.line_num

    def take(self) -> _Block:
        """Return the next graph's rows."""
        graph, line = str(self.graph), self.line
        if graph in self._passed:
            raise DataError(
                f"{self.path} line {line}: rows of graph '{graph}' stand apart; sort the table by graph."
            )
        self._passed.add(graph)
        lines: list[int] = []
        keys: list[list[str]] = []
        values: list[list[Any]] = []
        while self._row is not None and self.graph == graph:
            lines.append(self.line)
            keys.append([self._row[k].strip() for k in self._key_places[1:]])
            values.append([cell(self._row[k]) for k in self._value_places])
            self._row = self._next()
        return _Block(graph, lines, keys, values)

    def take_if(self, graph: str) -> _Block | None:
        """Return the rows of ``graph`` if they come next."""
        return self.take() if self.graph == graph else None

    def _next(self) -> list[str] | None:
        try:
            row = next((r for r in self._rows if r), None)
        except csv.Error as e:
            raise DataError(f"{self.path} line {self._rows.line_num}: is no CSV ({e}).") from None
        if row is not None and len(row) != self._width:
            raise DataError(
                f"{self.path} line {self._rows.line_num}: must have {self._width} fields as the header has, found {len(row)}."
            )
        return row


def _read(tables: Mapping[str, Path], columns: Mapping[str, tuple[str, ...]]) -> Iterator[RawGraph]:
    with _opened(tables) as blocks:
        order = next(name for name in ("graphs", "nodes", "edges") if name in blocks)
        row = 0
        while (name := blocks[order].graph) is not None:
            listed = {table: b.take_if(name) for table, b in blocks.items()}
            yield _graph(row, name, listed, columns, blocks)
            row += 1
        for table, rest in blocks.items():
            if rest.graph is not None:
                where = f"{rest.path} line {rest.line}: graph '{rest.graph}' is not in {blocks[order].path.name}, or not in its place"
                raise DataError(f"{where}; list the graphs in the same order in {table}.csv.")


@contextmanager
def _opened(tables: Mapping[str, Path]) -> Generator[dict[str, _Blocks]]:
    with ExitStack() as stack:
        yield {
            name: _Blocks(path, KEYS[name], stack.enter_context(open_text(path)))
            for name, path in tables.items()
        }


def _graph(
    row: int,
    name: str,
    listed: Mapping[str, _Block | None],
    columns: Mapping[str, tuple[str, ...]],
    blocks: Mapping[str, _Blocks],
) -> RawGraph:
    described, nodes, edges = listed.get("graphs"), listed.get("nodes"), listed.get("edges")
    said: dict[str, Any] = {}
    if described is not None:
        if len(described.values) > 1:
            raise DataError(
                f"{blocks['graphs'].path} line {described.lines[1]}: graph '{name}' is there twice; keep one row."
            )
        said = dict(zip(columns["graphs"], described.values[0], strict=True))
    labels = tuple(value for key, value in said.items() if key != _NUM_NODES)
    node_place, edge_place = _place(blocks, "nodes", nodes), _place(blocks, "edges", edges)
    names, problem = _node_names(
        name, nodes, edges, said.get(_NUM_NODES), "nodes" in blocks, node_place, edge_place
    )
    if problem is not None:
        return RawGraph(row, name, problem=problem)
    number = {text: k for k, text in enumerate(names)}
    ends = edges.keys if edges else []
    for e, pair in enumerate(ends):
        for end in pair:
            if end not in number:
                return RawGraph(
                    row,
                    name,
                    problem=f"{edge_place.of(e)}node '{end[:40]}' is none of graph '{name[:40]}'",
                )
    return RawGraph(
        row=row,
        text=name,
        num_nodes=len(names),
        edge_index=np.array([[number[a], number[b]] for a, b in ends], dtype=np.int64)
        .reshape(-1, 2)
        .T,
        node=_as_columns(nodes, len(columns.get("nodes", ()))),
        edge=_as_columns(edges, len(columns["edges"])),
        labels=labels,
        node_place=node_place,
        edge_place=edge_place,
    )


def _place(blocks: Mapping[str, _Blocks], table: str, block: _Block | None) -> Place:
    if block is None:
        return Place()
    first, last, count = block.lines[0], block.lines[-1], len(block.lines)
    return Place(
        blocks[table].path.name, first, 1, () if last - first == count - 1 else tuple(block.lines)
    )


def _node_names(
    name: str,
    nodes: _Block | None,
    edges: _Block | None,
    num_nodes: Any,
    has_table: bool,
    node_place: Place,
    edge_place: Place,
) -> tuple[list[str], str | None]:
    """Return what the nodes of a graph are called, or what is wrong with them."""
    if nodes is not None:
        names = [keys[0] for keys in nodes.keys]
        first = {text: k for k, text in reversed(list(enumerate(names)))}
        repeated = next((k for k, text in enumerate(names) if first[text] != k), None)
        return (
            names,
            None
            if repeated is None
            else f"{node_place.of(repeated)}node '{names[repeated][:40]}' is listed twice",
        )
    if has_table:
        return [], f"graph '{name[:40]}' has no row in nodes.csv"
    if num_nodes is not None:
        if not isinstance(num_nodes, int) or not 0 < num_nodes <= MOST_NODES:
            return (
                [],
                f"`num_nodes` must be a whole number from 1 to {MOST_NODES:,}, found {num_nodes!r:.40}",
            )
        return [str(k) for k in range(num_nodes)], None
    ends = {end: e for e, pair in enumerate(edges.keys if edges else []) for end in pair}
    as_numbers = {end: value for end in ends if isinstance(value := cell(end), int)}
    for end, e in ends.items():
        if not end or as_numbers.get(end, 0) < 0:
            return [], f"{edge_place.of(e)}a node must be a name or a number from 0, found '{end}'"
    if not ends:
        return (
            [],
            "has no edge, so its nodes are not known: list them in nodes.csv, or count them in graphs.csv (num_nodes)",
        )
    return sorted(ends, key=lambda end: as_numbers[end]) if len(as_numbers) == len(ends) else list(
        ends
    ), None


def _as_columns(block: _Block | None, width: int) -> tuple[Any, ...]:
    return tuple(
        column([values[k] for values in block.values] if block else []) for k in range(width)
    )
