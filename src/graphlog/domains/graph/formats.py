"""Files of graphs: lines of JSON, a folder of tables, TUDataset, the text format of the GIN family.

A line is ``{"edges": [[0, 1]], "x": [[6], [8]], "edge_attr": [[1]], "y": 0}``; the tables are
``edges.csv``, and optionally ``nodes.csv`` and ``graphs.csv``.
"""

import csv
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from graphlog.data.tables import listed
from graphlog.domains.graph.raw import MAX_NODES, Collection, Column, Place, RawGraph, cell, column
from graphlog.errors import DataError
from graphlog.files import open_text

_MAX_TEXT = 200
"""Characters of a bad line that are kept beside the reason of its rejection."""
_JSON_KEYS = ("edges", "x", "edge_attr", "y", "num_nodes", "id")
"""The keys of a line; only ``edges`` is required."""
JSON_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")
KEYS: Mapping[str, tuple[str, ...]] = {
    "graphs": ("graph",),
    "nodes": ("graph", "node"),
    "edges": ("graph", "source", "target"),
}
"""The tables and the columns each must have; other columns are attributes, or labels of graphs."""
_NUM_NODES = "num_nodes"
_TABLE_SUFFIXES = (".csv", ".csv.gz", ".csv.zst")
PARTS = tuple(
    (
        "A graph_indicator node_labels node_attributes edge_labels edge_attributes graph_labels "
        "graph_attributes"
    ).split()
)
"""What follows ``NAME_`` in the files of TUDataset; the first two are required."""
GIN_SUFFIXES = (".txt", ".txt.gz", ".txt.zst")
_MIN_BOMB, _BOMB_RATIO = 1 << 26, 200
"""A member of a zip that is larger, and expands by more than this factor, only fills the memory."""


def open_collection(path: Path) -> Collection:
    """Return the graphs of a file or folder.

    Raises:
        DataError: If it has none of the known formats.
    """
    found = find_opener(path)
    if found is not None:
        return found(path)
    if path.is_dir():
        known = "edges.csv, a .jsonl file, or NAME_A.txt and NAME_graph_indicator.txt"
        raise DataError(f"{path}: holds no graphs; a folder of graphs has {known}.")
    known = ".jsonl, TUDataset's .zip, and GIN's .txt"
    raise DataError(f"{path}: is not a file of graphs; known are {known}.")


def find_opener(path: Path) -> Callable[[Path], Collection] | None:
    """Return what opens a file or folder by its names or first lines; None if nothing does."""
    if path.is_dir():
        if find_tables(path):
            return open_folder
        if _json_files(path):
            return _open_json_folder
        return open_tudataset if find_parts(path) else None
    if path.suffix == ".zip":
        return open_tudataset
    if path.name.endswith(JSON_SUFFIXES):
        return open_jsonlines
    return open_gin if looks_like_gin(path) else None


def _json_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(JSON_SUFFIXES))


def _open_json_folder(folder: Path) -> Collection:
    files = _json_files(folder)
    if len(files) > 1:
        raise DataError(f"{folder}: holds {len(files)} JSON-lines files; name the one to read.")
    return open_jsonlines(files[0])


class BadGraphError(Exception):
    """Why a graph cannot be used."""


class _Layout(NamedTuple):
    """Widths of the matrices and names of the labels, from the first line that has them."""

    node: int | None = None
    edge: int | None = None
    labels: tuple[str, ...] | None = None
    has_id: bool | None = None
    """Whether the first graph has a name."""


def open_jsonlines(path: Path) -> Collection:
    """Return the graphs of a file.

    Nodes are numbered from 0. Their number is that of the rows of ``x``, else ``num_nodes``, else
    one more than the largest number in an edge. Attributes are rows of numbers or words, or plain
    values if there is only one. ``y`` is a number, a word, a list of them, an object with names, or
    null.
    """
    layout = _find_layout(path)
    return Collection(
        name=str(path),
        node=tuple(f"node_{k}" for k in range(layout.node or 0)),
        edge=tuple(f"edge_{k}" for k in range(layout.edge or 0)),
        labels=layout.labels or (),
        read=lambda: _read_json(path, layout),
        matrices=True,
        names="id" if layout.has_id else "",
    )


def _find_layout(path: Path) -> _Layout:
    layout = _Layout()
    for _, line in _json_lines(path):
        try:
            record = _parse_json(line)
        except BadGraphError:
            continue
        node, edge, labels, has_id = layout
        layout = _Layout(
            _width(record.get("x")) if node is None else node,
            _width(record.get("edge_attr")) if edge is None else edge,
            _label_names(record.get("y")) if labels is None else labels,
            "id" in record if has_id is None else has_id,
        )
        if None not in layout:
            break
    return layout


def _json_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line.strip()


def _read_json(path: Path, layout: _Layout) -> Iterator[RawGraph]:
    for row, (number, line) in enumerate(_json_lines(path)):
        try:
            yield _graph_of_line(row, Place(lines=(number,)), line, layout)
        except BadGraphError as e:
            yield RawGraph(row, line[:_MAX_TEXT], problem=f"line {number}: {e}")


def _graph_of_line(row: int, place: Place, line: str, layout: _Layout) -> RawGraph:
    record = _parse_json(line)
    edges = _json_edges(record["edges"])
    node = _matrix(record.get("x"), "x", layout.node or 0)
    edge = _matrix(record.get("edge_attr"), "edge_attr", layout.edge or 0)
    if any(len(c) != edges.shape[1] for c in edge):
        expected = f"`edge_attr` must have {edges.shape[1]} rows, one for each edge"
        raise BadGraphError(f"{expected}, found {len(edge[0])}")
    stated = record.get("num_nodes")
    if stated is not None and (type(stated) is not int or stated < 1):
        raise BadGraphError(f"`num_nodes` must be a whole number from 1, found {stated!r:.40}")
    num_nodes = len(node[0]) if node else stated or int(edges.max(initial=-1)) + 1
    if stated not in (None, num_nodes):
        raise BadGraphError(f"`x` has {num_nodes} rows and `num_nodes` is {stated}")
    labels = _json_labels(record.get("y"), layout.labels or ())
    name = str(record.get("id", ""))[:_MAX_TEXT]
    text = name or line[:_MAX_TEXT]
    return RawGraph(row, text, num_nodes, edges, node, edge, labels, place, place, None, name)


def _parse_json(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if "\\u" in line:  # half of a surrogate pair is valid JSON, but cannot be stored as text
            json.dumps(record, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:  # also whole numbers of thousands of digits
        raise BadGraphError(f"is not valid JSON ({e})") from None
    if not isinstance(record, dict) or "edges" not in record:
        raise BadGraphError('must be an object with "edges": [[0, 1], ...]')
    for key in record:
        if key not in _JSON_KEYS:
            raise BadGraphError(f"unknown key {key!r}; known: {', '.join(_JSON_KEYS)}")
    return record


def _json_edges(pairs: Any) -> np.ndarray:
    if not isinstance(pairs, list) or any(not isinstance(p, list) or len(p) != 2 for p in pairs):
        raise BadGraphError("`edges` must be a list of pairs of node numbers")
    if any(type(end) is not int or abs(end) >= 2**31 for pair in pairs for end in pair):
        raise BadGraphError("`edges` must hold whole numbers")
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _width(rows: Any) -> int | None:
    if not isinstance(rows, list) or not rows:
        return None
    return len(rows[0]) if isinstance(rows[0], list) else 1


def _matrix(rows: Any, name: str, width: int) -> tuple[Any, ...]:
    """Return a matrix column by column."""
    if rows is None:
        if width and name == "x":
            raise BadGraphError(f"has no `x`, where others have {width} attributes a node")
        return tuple(column([]) for _ in range(width))
    if not isinstance(rows, list):
        raise BadGraphError(f"`{name}` must be a list, one entry each")
    listed = [row if isinstance(row, list) else [row] for row in rows]
    for k, row in enumerate(listed):
        if len(row) != width:
            expected = f"`{name}` must have {width} attributes a row, as the first graph has"
            raise BadGraphError(f"{expected}, found {len(row)} in row {k}")
        for value in row:
            if not _is_plain(value):
                raise BadGraphError(f"`{name}` must hold numbers and words, found {value!r:.40}")
    return tuple(column([None if row[k] == "" else row[k] for row in listed]) for k in range(width))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str)


def _label_names(y: Any) -> tuple[str, ...] | None:
    if y is None:
        return None
    if isinstance(y, dict):
        return tuple(map(str, y))
    return tuple(f"y{k}" for k in range(len(y))) if isinstance(y, list) and len(y) != 1 else ("y",)


def _json_labels(y: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if y is None:
        return (None,) * len(names)
    if isinstance(y, dict) and set(y) == set(names):
        values = [y[name] for name in names]
    elif _label_names(y) == names:
        values = y if isinstance(y, list) else [y]
    else:
        found = len(y) if isinstance(y, dict | list) else 1
        raise BadGraphError(f"`y` must be {len(names)} labels ({', '.join(names)}), found {found}")
    if not all(map(_is_plain, values)):
        raise BadGraphError("`y` must hold numbers, words or null")
    return tuple(None if value == "" else value for value in values)


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
        for suffix in reversed(_TABLE_SUFFIXES)
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


def find_parts(path: Path) -> dict[str, str]:
    """Return the files in a folder or zip by part; none unless both required ones are there.

    Raises:
        DataError: If there are several sets, or the zip is damaged.
    """
    names = [p.name for p in path.iterdir()] if path.is_dir() else _zip_members(path)
    sets = {PurePosixPath(n).name.removesuffix("_A.txt") for n in names if n.endswith("_A.txt")}
    if len(sets) > 1:
        names = ", ".join(sorted(sets)[:3])
        raise DataError(f"{path}: holds several sets ({names}); keep each in its own folder.")
    by_file = {PurePosixPath(n).name: n for n in names}
    parts = {part: f"{name}_{part}.txt" for name in sets for part in PARTS}
    parts = {part: by_file[file] for part, file in parts.items() if file in by_file}
    return parts if "graph_indicator" in parts else {}


def _zip_members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError) as e:
        raise DataError(f"{path}: cannot be read as a zip ({e}); download it again.") from None


def open_tudataset(path: Path) -> Collection:
    """Return the graphs of a folder or zip.

    Labels of nodes, edges and graphs are categories; attributes are quantities. The files are held
    in memory, since edges refer to nodes of the whole set.

    Raises:
        DataError: Naming file and line, if a file is damaged or the files do not belong together.
    """
    files = _Files(path)
    labels = files.columns("graph")
    return Collection(
        name=str(path),
        node=tuple(files.columns("node")),
        edge=tuple(files.columns("edge")),
        labels=tuple(labels),
        read=files.graphs,
        classes=tuple(name for name in labels if name.startswith("label")),
    )


class _Files:
    """The files of one set."""

    def __init__(self, path: Path) -> None:
        self._path, self._parts = path, find_parts(path)
        if not self._parts:
            required = "NAME_A.txt and NAME_graph_indicator.txt"
            raise DataError(f"{path}: must hold {required}, found neither or only one.")

    def columns(self, kind: str) -> dict[str, Column]:
        """Return the columns of labels and attributes of nodes, edges or graphs by name."""
        columns: dict[str, Column] = {}
        for stem in ("label", "attribute"):
            rows = self._rows.get(f"{kind}_{stem}s", [])
            for k, values in enumerate(zip(*rows, strict=True)):
                columns[stem if len(rows[0]) == 1 else f"{stem}_{k}"] = column(values)
        return columns

    @cached_property
    def _rows(self) -> dict[str, list[list[Any]]]:
        """The fields of every line, by part."""
        parts: dict[str, list[list[Any]]] = {}
        for part in self._parts:
            lines = self._text(part).split("\n")
            while lines and not lines[-1].strip():
                lines.pop()
            rows = parts[part] = [[cell(word) for word in line.split(",")] for line in lines]
            for k, row in enumerate(rows):
                if not lines[k].strip():
                    raise self._error(
                        part, k, "must not be blank, since lines are counted; remove it"
                    )
                if len(row) != len(rows[0]):
                    raise self._error(
                        part, k, f"must have {len(rows[0])} columns, found {len(row)}"
                    )
        return parts

    def _name(self, part: str) -> str:
        return PurePosixPath(self._parts[part]).name

    def _error(self, part: str, row: int, problem: str) -> DataError:
        return DataError(f"{self._path}: {self._name(part)}, line {row + 1}: {problem}.")

    def _text(self, part: str) -> str:
        if self._path.is_dir():
            with open_text(self._path / self._parts[part]) as lines:
                return "".join(lines)
        try:
            with zipfile.ZipFile(self._path) as archive:
                member = archive.getinfo(self._parts[part])
                if member.file_size > max(_MIN_BOMB, _BOMB_RATIO * member.compress_size):
                    raise zipfile.BadZipFile(f"it claims to expand to {member.file_size:,} bytes")
                return archive.read(member).decode("utf-8", "replace")
        except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError) as e:
            # the last: encrypted, or compressed in another way
            advice = "download it again, or unpack it yourself"
            problem = f"{self._parts[part]} cannot be unpacked ({e})"
            raise DataError(f"{self._path}: {problem}; {advice}.") from None

    def _integers(self, part: str, width: int) -> Int64[np.ndarray, "R W"]:
        rows = self._rows[part]
        for k, row in enumerate(rows):
            if len(row) != width or any(type(v) is not int or abs(v) >= 2**63 for v in row):
                text = ", ".join(map(str, row))
                raise self._error(part, k, f"must be {width} whole numbers, found {text:.80}")
        return np.array(rows, dtype=np.int64).reshape(-1, width)

    def _attributes(self, kind: str, count: int) -> tuple[Column, ...]:
        for part in (f"{kind}_labels", f"{kind}_attributes"):
            if part in self._rows and len(self._rows[part]) != count:
                actual = len(self._rows[part])
                problem = f"must have {count} lines, one for each {kind}, found {actual}"
                raise DataError(f"{self._path}: {self._name(part)}: {problem}; download it again.")
        return tuple(self.columns(kind).values())

    def graphs(self) -> Iterator[RawGraph]:
        """Yield the graphs in their order."""
        graph_of = self._integers("graph_indicator", 1)[:, 0]
        wrong = np.flatnonzero((np.diff(graph_of, prepend=graph_of[:1]) < 0) | (graph_of < 1))
        if len(wrong):
            problem = "graphs must be numbered from 1 and in order"
            row = int(wrong[0])
            raise self._error("graph_indicator", row, f"{problem}, found {graph_of[row]}")
        total = int(graph_of.max(initial=0))
        if total > 2 * len(graph_of):
            problem = f"numbers {total} graphs, but there are {len(graph_of)} nodes"
            raise self._error("graph_indicator", len(graph_of) - 1, f"{problem}; leave no gaps")
        ends = self._integers("A", 2) - 1
        outside = np.flatnonzero(((ends < 0) | (ends >= len(graph_of))).any(axis=1))
        if len(outside):
            row = int(outside[0])
            problem = f"must be in [1, {len(graph_of)}], found {(ends[row] + 1).tolist()}"
            raise self._error("A", row, f"nodes {problem}")
        node = self._attributes("node", len(graph_of))
        edge = self._attributes("edge", len(ends))
        labels = [values.tolist() for values in self._attributes("graph", total)]
        order = np.argsort(graph_of[ends[:, 0]], kind="stable")
        numbers = np.arange(1, total + 2)
        starts = np.searchsorted(graph_of, numbers)
        edge_starts = np.searchsorted(graph_of[ends[order, 0]], numbers)
        parts = [part for part in ("node_labels", "node_attributes") if part in self._parts]
        listed = " or ".join(map(self._name, parts or ["graph_indicator"]))
        for g in range(total):
            start, stop = int(starts[g]), int(starts[g + 1])
            edges = order[edge_starts[g] : edge_starts[g + 1]]
            across = edges[graph_of[ends[edges, 1]] != g + 1]
            problem = None
            if len(across):
                problem = f"{self._name('A')}, line {across[0] + 1}: joins nodes of two graphs"
            yield RawGraph(
                row=g,
                text=f"graph {g + 1}",
                num_nodes=stop - start,
                edge_index=ends[edges].T - start,
                node=tuple(values[start:stop] for values in node),
                edge=tuple(values[edges] for values in edge),
                labels=tuple(values[g] for values in labels),
                node_place=Place(listed, range(start + 1, stop + 1)),
                problem=problem,
            )


def looks_like_gin(path: Path) -> bool:
    """Return whether a file begins as the GIN family's format: a number, two numbers, a node."""
    try:
        first, second, third = _gin_head(path)
    except DataError:
        return False
    is_counted = len(first) == 1 and len(second) == 2 and len(third) >= 2
    return is_counted and None not in (_count(first[0]), _count(second[0]))


def _gin_head(path: Path) -> list[list[str]]:
    with open_text(path) as lines:
        return [next(lines, "").split() for _ in range(3)]


def open_gin(path: Path) -> Collection:
    """Return the graphs of a file in the text format of the GIN family.

    The first line is the number of graphs; each graph is a line ``nodes label`` and a line ``tag
    degree neighbors… attributes…`` for each node. Tags are categories and labels are classes.
    """
    words = _gin_head(path)[-1]
    degree = _count(words[1]) if len(words) > 1 else None
    extra = max(len(words) - 2 - degree, 0) if degree is not None else 0
    return Collection(
        name=str(path),
        node=("tag", *(f"attribute_{k}" for k in range(extra))),
        edge=(),
        labels=("label",),
        read=lambda: _read_gin(path, extra),
        classes=("label",),
    )


def _count(word: str) -> int | None:
    """Return a whole number from 0 that 64 bits hold; None if the word is none."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 19 else None


def _read_gin(path: Path, extra: int) -> Iterator[RawGraph]:
    with open_text(path) as lines:
        numbered = enumerate(lines, 1)
        total = _count(next(numbered)[1].strip()) or 0
        for row in range(total):
            number, line = next(numbered, (0, ""))
            words = line.split()
            size = _count(words[0]) if len(words) == 2 else None
            if size is None:
                where = f"{path}, line {number}"
                if not number:
                    where = f"{path}: ends before graph {row} of {total}"
                text = line.strip()[:40]
                raise DataError(f"{where}: must be 'nodes label' of graph {row}, found {text!r}.")
            nodes = list(islice(numbered, size))
            if len(nodes) != size:
                problem = f"ends within graph {row} of {total}; the file is cut off"
                raise DataError(f"{path}: {problem}.")
            yield _gin_graph(row, number, words[1], [node.split() for _, node in nodes], extra)
        for number, line in numbered:
            if line.strip():
                problem = f"more lines than the {total} graphs of the first line have"
                raise DataError(f"{path}, line {number}: {problem}.")


def _gin_graph(row: int, line: int, label: str, nodes: list[list[str]], extra: int) -> RawGraph:
    place = Place(lines=range(line + 1, line + 1 + len(nodes)))
    ends: list[tuple[int, int]] = []
    attributes: list[list[Any]] = []
    for k, words in enumerate(nodes):
        degree = _count(words[1]) if len(words) > 1 else None
        problem, neighbors = None, list[int | None]()
        if degree is None or len(words) != 2 + degree + extra:
            expected = "must be 'tag degree neighbors' with as many neighbors as the degree says"
            problem = f"{expected}, found {' '.join(words)[:40]!r}"
        else:
            neighbors = [_count(word) for word in words[2 : 2 + degree]]
            for word, neighbor in zip(words[2:], neighbors, strict=False):
                if neighbor is None or neighbor >= len(nodes):
                    problem = f"neighbor {word} must be a node in [0, {len(nodes)})"
                    break
        if problem is not None:
            return RawGraph(row, f"graph {row}", problem=f"{place.of(k)}{problem}")
        ends += [(k, neighbor) for neighbor in neighbors if neighbor is not None]
        attributes.append([cell(word) for word in (words[0], *words[2 + len(neighbors) :])])
    return RawGraph(
        row=row,
        text=f"graph {row}",
        num_nodes=len(nodes),
        edge_index=np.array(ends, dtype=np.int64).reshape(-1, 2).T,
        node=tuple(column([values[k] for values in attributes]) for k in range(1 + extra)),
        labels=(cell(label),),
        node_place=place,
    )
