"""Readers of graphs: JSON lines, a folder of tables, TUDataset, the text format of the GIN family.

``docs/how-to/any-graphs.md`` describes the formats.
"""

import csv
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from pydantic_core import from_json

from graphlog.data.tables import listed
from graphlog.domains.graph.raw import (
    MAX_NODES,
    BadGraphError,
    Collection,
    Column,
    Place,
    RawGraph,
    as_float,
    as_number,
    attribute_cell,
    cell,
    check_value,
    column,
    label_cell,
)
from graphlog.errors import DataError
from graphlog.files import open_text

_MAX_TEXT = 200
"""Number of characters of a line that become the text of a graph without a name."""
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "graphs": ("graph",),
    "nodes": ("graph", "node"),
    "edges": ("graph", "source", "target"),
}
"""Required columns of each table; the others are attributes of nodes or edges, or graph labels."""
_TABLE_SUFFIXES = (".csv", ".csv.gz", ".csv.zst")
_PARTS = (
    "A graph_indicator node_labels node_attributes edge_labels edge_attributes graph_labels "
    "graph_attributes"
).split()
"""Parts of a TUDataset, in files ``NAME_<part>.txt``; the first two are required."""
_TEXT_SUFFIXES = (".txt", ".txt.gz", ".txt.zst")
_MOST_DIGITS = 18
"""Largest number of digits in a count of graphs or nodes."""
_MIN_BOMB, _BOMB_RATIO = 1 << 26, 200
"""Size in bytes and factor of expansion; a file in a zip that exceeds both is refused."""


def open_collection(path: Path) -> Collection:
    """Return the graphs of a file or folder; raise a DataError if its format is unknown."""
    opener = find_opener(path)
    if opener is not None:
        return opener()
    if path.is_dir():
        known = "edges.csv, a .jsonl file, or NAME_A.txt and NAME_graph_indicator.txt"
        raise DataError(f"{path}: holds no graphs; a folder of graphs has {known}.")
    if str(path) == "-":
        raise DataError("standard input: graphs are read twice; save them as a file, and name it.")
    known = "a folder of tables, .jsonl, .ndjson, TUDataset's .zip, and GIN's .txt"
    raise DataError(f"{path}: is not a file of graphs; known are {known}.")


def find_opener(path: Path) -> Callable[[], Collection] | None:
    """Return the function that opens a file or folder; None if it has none of the formats."""
    if path.is_dir():
        if tables := _find_tables(path):
            return partial(_open_tables, path, tables)
        files = [file for file in path.iterdir() if file.name.endswith(_JSON_SUFFIXES)]
        if len(files) > 1:
            raise DataError(f"{path}: holds {len(files)} JSON-lines files; name the one to read.")
        if files:
            return partial(_open_jsonlines, files[0])
    if path.is_dir() or path.suffix == ".zip":
        return partial(open_tudataset, path) if _find_parts(path) else None
    if path.name.endswith(_JSON_SUFFIXES):
        return partial(_open_jsonlines, path)
    return _find_text_opener(path) if path.name.endswith(_TEXT_SUFFIXES) else None


_End = Annotated[int, Field(gt=-(2**31), lt=2**31)]


class _Line(BaseModel):
    """A graph in a line of JSON."""

    model_config = ConfigDict(strict=True, extra="forbid")
    edges: list[tuple[_End, _End]]
    x: list[Any] | None = None
    edge_attr: list[Any] | None = None
    y: Any = None
    num_nodes: PositiveInt | None = None
    id: Any = ""

    @classmethod
    def parse(cls, text: str) -> "_Line":
        try:
            return cls.model_validate_json(text)
        except ValidationError as e:
            first = e.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                known = ", ".join(cls.model_fields)
                raise BadGraphError(f"unknown key {place!r:.40}; known: {known}") from None
            problem = f"{place}: {first['msg']}" if place else first["msg"]
            raise BadGraphError(f"{problem}, found {first['input']!r:.40}") from None

    def labels(self) -> dict[str, Any]:
        if isinstance(self.y, dict):
            return {str(name): value for name, value in self.y.items()}
        values = self.y if isinstance(self.y, list) else [] if self.y is None else [self.y]
        return {"y" if len(values) == 1 else f"y{k}": value for k, value in enumerate(values)}


def _open_jsonlines(path: Path) -> Collection:
    """Return the graphs of a file; the first line with attributes or labels tells their number.

    Labels with names are collected from all lines.
    """
    node = edge = 0
    labels, has_id, are_named = dict[str, Any](), None, False
    for _, text in _json_lines(path):
        try:
            line = _Line.parse(text)
        except BadGraphError:
            continue
        node, edge = node or _width(line.x), edge or _width(line.edge_attr)
        if not labels or (are_named and isinstance(line.y, dict)):
            labels, are_named = labels | line.labels(), isinstance(line.y, dict)
        has_id = "id" in line.model_fields_set if has_id is None else has_id
        if node and edge and labels and not are_named:
            break
    names = tuple(labels)
    return Collection(
        name=str(path),
        node=tuple(f"node_{k}" for k in range(node)),
        edge=tuple(f"edge_{k}" for k in range(edge)),
        labels=names,
        read=lambda: _read_json(path, names, bool(has_id)),
        matrices=True,
        text_name="id" if has_id else "",
    )


def _width(rows: list[Any] | None) -> int:
    """Return the number of columns of a matrix; a list of single values is one column."""
    first = rows[0] if rows else []
    return len(first) if isinstance(first, list) else 1


def _json_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line.strip()


def _read_json(path: Path, labels: tuple[str, ...], has_id: bool) -> Iterator[RawGraph]:
    for row, (number, line) in enumerate(_json_lines(path)):
        try:
            graph = _graph_of_line(row, number, line, labels)
            yield graph if graph.text or has_id else graph._replace(text=line[:_MAX_TEXT])
        except BadGraphError as e:
            text = _name_of_bad_line(line) or line[:_MAX_TEXT]
            yield RawGraph(row, text, problem=f"line {number}: {e}")


def _name_of_bad_line(line: str) -> str:
    """Return the ``id`` of a line, which may be incomplete; empty if there is none."""
    try:
        content = from_json(line, allow_partial=True)
    except ValueError:
        return ""
    return _id_text(content.get("id")) if isinstance(content, dict) else ""


def _id_text(content: Any) -> str:
    return "" if content is None else str(content)


def _graph_of_line(row: int, number: int, text: str, labels: tuple[str, ...]) -> RawGraph:
    line, place = _Line.parse(text), Place(lines=(number,))
    edges = np.array(line.edges, dtype=np.int64).reshape(-1, 2).T
    node, stated, values = _matrix(line.x, "x"), line.num_nodes, line.labels()
    num_nodes = len(node[0]) if node else stated or int(edges.max(initial=-1)) + 1
    if stated not in (None, num_nodes):
        raise BadGraphError(f"`x` has {num_nodes} rows and `num_nodes` is {stated}")
    label_problem, is_complete = None, isinstance(line.y, dict) or len(values) == len(labels)
    if values and not (is_complete and values.keys() <= set(labels)):
        expected = f"`y` must be {len(labels)} labels ({', '.join(labels)})"
        label_problem = f"{expected}, found {', '.join(values):.80}"
    return RawGraph(
        row=row,
        text=_id_text(line.id),
        num_nodes=num_nodes,
        edge_index=edges,
        node=node,
        edge=_matrix(line.edge_attr, "edge_attr"),
        labels=tuple(map(values.get, labels)),
        node_place=place,
        edge_place=place,
        label_problem=label_problem,
    )


def _matrix(rows: list[Any] | None, name: str) -> tuple[Column, ...]:
    """Return the columns of a matrix; a list of single values is one column."""
    lists = [row if isinstance(row, list) else [row] for row in rows or ()]
    widths = {len(row) for row in lists}
    if len(widths) > 1:
        raise BadGraphError(f"rows of `{name}` must have equally many attributes, found {widths}")
    columns, quoted = range(max(widths, default=0)), f"`{name}`"
    return tuple(column([check_value(row[k], quoted) for row in lists]) for k in columns)


class _Rows(NamedTuple):
    """The rows of one graph in one table."""

    graph: str
    """Name of the graph."""
    place: Place
    """Lines of the rows."""
    keys: list[list[str]]
    """Names of the node, or of the source and target, in each row; none in a table of graphs."""
    values: list[list[Any]]
    """Attributes or labels in each row."""

    def columns(self) -> tuple[Column, ...]:
        return tuple(column(values) for values in zip(*self.values, strict=True))


def _find_tables(folder: Path) -> dict[str, Path]:
    """Return the paths of the tables in a folder; none if it has no ``edges.csv``."""
    tables = {
        name: path
        for name in _KEYS
        for suffix in reversed(_TABLE_SUFFIXES)
        if (path := folder / f"{name}{suffix}").is_file()
    }
    return tables if "edges" in tables else {}


class _Table:
    """One table of a folder; its columns ``keys`` name the graph and its nodes."""

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self.path, self._keys = path, keys
        self.is_in_order = False
        """Whether the graphs are known to be in the order of those of the first table."""
        _, header = next(self._rows(), (0, []))
        self._header = [name.strip() for name in header]
        for name in (*keys, *self._header):
            if not name:
                column = self._header.index(name) + 1
                raise DataError(
                    f"{path}: column {column} has no name; name it, or leave it out (an index of "
                    "pandas: to_csv(..., index=False))."
                )
            if self._header.count(name) != 1:
                found = listed(self._header) or "an empty file"
                raise DataError(f"{path}: must have one column '{name}', found {found}.")
        self.columns = tuple(name for name in self._header if name not in keys)

    def graphs(self) -> Generator[_Rows]:
        """Yield the rows graph by graph."""
        keys = [self._header.index(key) for key in self._keys]
        values = [self._header.index(name) for name in self.columns]
        read_cell = attribute_cell if keys[1:] else label_cell  # a table of graphs holds labels
        seen: set[str] = set()
        below_header = islice(self._rows(), 1, None)
        for graph, group in groupby(below_header, lambda item: item[1][keys[0]].strip()):
            numbers, rows = zip(*group, strict=True)
            if graph in seen:
                raise DataError(
                    f"{self.path}, line {numbers[0]}: rows of graph {graph[:40]!r} are not "
                    "consecutive; sort the table by graph."
                )
            seen.add(graph)
            yield _Rows(
                graph,
                Place(self.path.name, numbers),
                [[_node_name(row[k]) for k in keys[1:]] for row in rows],
                [[read_cell(row[k]) for k in values] for row in rows],
            )

    def check_order(self, first: "_Table") -> None:
        """Raise an error unless all graphs are in the first table, in the same order."""
        with closing(first.graphs()) as expected, closing(self.graphs()) as graphs:
            names = (rows.graph for rows in expected)
            for rows in graphs:
                if rows.graph not in names:  # `in` continues after the last graph found
                    raise DataError(
                        f"{self.path}, line {rows.place.lines[0]}: graph {rows.graph[:40]!r} is "
                        f"not in {first.path.name}, or not in its place; list graphs in the same "
                        "order."
                    )
        self.is_in_order = True

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield line number and fields of each row that is not blank, the header included."""
        width = 0
        with open_text(self.path) as lines:
            reader = csv.reader(lines)
            try:
                for row in filter(None, reader):
                    width = width or len(row)
                    if len(row) != width:
                        must = f"must have {width} fields as the header has"
                        raise csv.Error(f"{must}, found {len(row)}")
                    yield reader.line_num, row
            except csv.Error as e:
                where = f"{self.path}, line {reader.line_num}"
                raise DataError(f"{where}: not valid CSV ({e}).") from None


def _node_name(text: str) -> str:
    """Return the name of a node; 2.0 becomes 2, because pandas writes 2.0 beside missing values.

    Example:
        >>> _node_name(" 2.0"), _node_name("a.0")
        ('2', 'a.0')
    """
    name = text.strip()
    number = name.removesuffix(".0")
    return number if number.removeprefix("-").isdecimal() else name


def _open_tables(folder: Path, paths: Mapping[str, Path]) -> Collection:
    """Return the graphs of a folder of tables, in the order of its first table."""
    tables = {name: _Table(path, _KEYS[name]) for name, path in paths.items()}
    columns = {name: table.columns for name, table in tables.items()}
    return Collection(
        name=str(folder),
        node=columns.get("nodes", ()),
        edge=columns["edges"],
        labels=tuple(name for name in columns.get("graphs", ()) if name != "num_nodes"),
        read=lambda: _read_tables(tables),
        text_name="graph",
        has_header=True,
    )


def _read_tables(tables: Mapping[str, _Table]) -> Iterator[RawGraph]:
    first, number = next(iter(tables)), 0
    with ExitStack() as stack:  # closes the files even if an error is kept with its traceback
        readers = {k: stack.enter_context(closing(table.graphs())) for k, table in tables.items()}
        following = {name: next(reader, None) for name, reader in readers.items()}
        while (current := following[first]) is not None:
            of_graph: dict[str, _Rows] = {}
            for name, rows in following.items():
                if rows is not None and rows.graph == current.graph:
                    of_graph[name], following[name] = rows, next(readers[name], None)
                elif rows is not None and not tables[name].is_in_order:
                    # the table has no rows of this graph, or has them in the wrong place
                    tables[name].check_order(tables[first])
            try:
                yield _graph_of_tables(number, current.graph, of_graph, tables)
            except BadGraphError as e:
                yield RawGraph(number, current.graph, problem=str(e))
            number += 1
        for name, rows in following.items():
            if rows is not None:
                tables[name].check_order(tables[first])


def _graph_of_tables(
    row: int, graph: str, of_graph: Mapping[str, _Rows], tables: Mapping[str, _Table]
) -> RawGraph:
    labels: dict[str, Any] = {}
    if "graphs" in of_graph:
        rows = of_graph["graphs"]
        if len(rows.values) > 1:
            problem = f"graph {graph[:40]!r} occurs twice; keep one row"
            raise BadGraphError(f"{rows.place.of(1)}{problem}")
        labels = dict(zip(tables["graphs"].columns, rows.values[0], strict=True))
    stated = as_number(labels.pop("num_nodes", None))
    no_rows = _Rows(graph, Place(), [], [])
    nodes, edges = of_graph.get("nodes", no_rows), of_graph.get("edges", no_rows)
    unnamed = 0
    if "nodes" in of_graph:
        names = [name for (name,) in nodes.keys]
        if stated not in (None, len(names)):
            raise BadGraphError(f"nodes.csv has {len(names)} nodes and `num_nodes` is {stated}")
    elif "nodes" in tables:
        raise BadGraphError(f"graph {graph[:40]!r} has no row in nodes.csv")
    elif stated is not None:
        if not isinstance(stated, int) or not 0 < stated <= MAX_NODES:
            expected = f"must be a whole number from 1 to {MAX_NODES:,}"
            raise BadGraphError(f"`num_nodes` {expected}, found {stated!r:.40}")
        names = list(map(str, range(stated)))
        if not all(end.isdecimal() for pair in edges.keys for end in pair):
            names = _nodes_of_edges(edges)
            unnamed = stated - len(names)
        if unnamed < 0:
            raise BadGraphError(f"edges.csv names {len(names)} nodes and `num_nodes` is {stated}")
    else:
        names = _nodes_of_edges(edges)
    numbers: dict[str, int] = {}
    for k, name in enumerate(names):
        if numbers.setdefault(name, k) != k:
            raise BadGraphError(f"{nodes.place.of(k)}node {name[:40]!r} is listed twice")
    for k, pair in enumerate(edges.keys):
        for end in pair:
            if end not in numbers:
                problem = f"node {end[:40]!r} is not in graph {graph[:40]!r}"
                raise BadGraphError(f"{edges.place.of(k)}{problem}")
    pairs = [[numbers[a], numbers[b]] for a, b in edges.keys]
    return RawGraph(
        row=row,
        text=graph,
        num_nodes=len(numbers) + unnamed,
        edge_index=np.array(pairs, dtype=np.int64).reshape(-1, 2).T,
        node=nodes.columns(),
        edge=edges.columns(),
        labels=tuple(labels.values()),
        node_place=nodes.place,
        edge_place=edges.place,
        node_names=names,
    )


def _nodes_of_edges(edges: _Rows) -> list[str]:
    """Return the names of the nodes that have edges, in ascending order if all are numbers."""
    values = {end: cell(end) for pair in edges.keys for end in pair}
    for k, pair in enumerate(edges.keys):
        for end in pair:
            if not end or (isinstance(values[end], int) and values[end] < 0):
                problem = f"a node must be a name or a number from 0, found {end[:40]!r}"
                raise BadGraphError(f"{edges.place.of(k)}{problem}")
    if not values:
        raise BadGraphError(
            "has no edge, so its nodes are unknown: list them in nodes.csv, or count them in "
            "graphs.csv (num_nodes)"
        )
    if all(isinstance(value, int) for value in values.values()):
        return sorted(values, key=values.__getitem__)
    return list(values)


def _find_parts(path: Path) -> dict[str, str]:
    """Return the files of a folder or zip by part; none if a required one is missing."""
    if path.is_dir():
        names = [file.name for file in path.iterdir()]
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, OSError) as e:
            raise DataError(f"{path}: cannot be read as a zip ({e}); download it again.") from None
    sets = {PurePosixPath(n).name.removesuffix("_A.txt") for n in names if n.endswith("_A.txt")}
    if len(sets) > 1:
        names = ", ".join(sorted(sets)[:3])
        raise DataError(f"{path}: holds several sets ({names}); keep each in its own folder.")
    by_file = {PurePosixPath(n).name: n for n in names}
    parts = {part: f"{name}_{part}.txt" for name in sets for part in _PARTS}
    parts = {part: by_file[file] for part, file in parts.items() if file in by_file}
    return parts if "graph_indicator" in parts else {}


def open_tudataset(path: Path) -> Collection:
    """Return the graphs of a folder or zip, kept in memory, since edges may refer to any node.

    Labels of nodes, edges and graphs are categories; attributes are quantities.
    """
    parts = _find_parts(path)
    if not parts:
        required = "NAME_A.txt and NAME_graph_indicator.txt"
        raise DataError(f"{path}: must hold {required}, found neither or only one.")
    files = {part: _TextFile(path, member) for part, member in parts.items()}
    node, edge, labels = (_tu_columns(files, kind) for kind in ("node", "edge", "graph"))
    return Collection(
        name=str(path),
        node=tuple(node),
        edge=tuple(edge),
        labels=tuple(labels),
        read=lambda: _read_tudataset(files, node, edge, labels),
        classes=tuple(name for name in labels if name.startswith("label")),
    )


class _TextFile:
    """A file of a TUDataset: rows with equal numbers of fields."""

    def __init__(self, folder: Path, member: str) -> None:
        self.name, self._folder = PurePosixPath(member).name, folder
        lines = _tu_text(folder, member).rstrip().split("\n")
        self.rows = [[cell(field) for field in line.split(",")] for line in lines if lines != [""]]
        for k, row in enumerate(self.rows):
            if not lines[k].strip():
                raise self.error(k, "must not be blank, since lines are counted; remove it")
            if len(row) != len(self.rows[0]):
                raise self.error(k, f"must have {len(self.rows[0])} columns, found {len(row)}")

    def error(self, row: int, problem: str) -> DataError:
        return DataError(f"{self._folder}: {self.name}, line {row + 1}: {problem}.")

    def integers(self, width: int) -> Int64[np.ndarray, "R W"]:
        for k, row in enumerate(self.rows):
            if len(row) != width or any(type(v) is not int or abs(v) >= 2**63 for v in row):
                text = ", ".join(map(str, row))
                raise self.error(k, f"must be {width} whole numbers, found {text!r:.80}")
        return np.array(self.rows, dtype=np.int64).reshape(-1, width)

    def check_count(self, count: int, kind: str) -> None:
        if len(self.rows) != count:
            expected = f"must have {count} lines, one for each {kind}, found {len(self.rows)}"
            raise DataError(f"{self._folder}: {self.name}: {expected}; download it again.")


def _tu_text(path: Path, member: str) -> str:
    if path.is_dir():
        with open_text(path / member) as lines:
            return "".join(lines)
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(member)
            if info.file_size > max(_MIN_BOMB, _BOMB_RATIO * info.compress_size):
                raise zipfile.BadZipFile(f"it claims to expand to {info.file_size:,} bytes")
            return archive.read(info).decode("utf-8", "replace")
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError) as e:
        # a RuntimeError means that it is encrypted, or compressed by an unknown method
        advice = "download it again, or unpack it yourself"
        raise DataError(f"{path}: {member} cannot be unpacked ({e}); {advice}.") from None


def _tu_columns(files: Mapping[str, _TextFile], kind: str) -> dict[str, Column]:
    """Return the columns of labels and attributes of nodes, edges or graphs by name."""
    columns: dict[str, Column] = {}
    for stem in ("label", "attribute"):
        file = files.get(f"{kind}_{stem}s")
        rows = file.rows if file is not None else []
        for k, values in enumerate(zip(*rows, strict=True)):
            if stem == "attribute":
                values = [as_float(v) if isinstance(v, int) else v for v in values]
            else:  # 1.0 is the label 1
                values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
            columns[stem if len(rows[0]) == 1 else f"{stem}_{k}"] = column(values)
    return columns


def _read_tudataset(
    files: Mapping[str, _TextFile],
    node: Mapping[str, Column],
    edge: Mapping[str, Column],
    labels: Mapping[str, Column],
) -> Iterator[RawGraph]:
    indicator, listing = files["graph_indicator"], files["A"]
    graph_of = indicator.integers(1)[:, 0]
    wrong = np.flatnonzero((np.diff(graph_of, prepend=graph_of[:1]) < 0) | (graph_of < 1))
    if len(wrong):
        row = int(wrong[0])
        problem = f"graphs must be numbered from 1 and in order, found {graph_of[row]}"
        raise indicator.error(row, problem)
    total = int(graph_of.max(initial=0))
    if total > 2 * len(graph_of):
        problem = f"numbers {total} graphs, but there are {len(graph_of)} nodes; leave no gaps"
        raise indicator.error(len(graph_of) - 1, problem)
    ends = listing.integers(2) - 1
    outside = np.flatnonzero(((ends < 0) | (ends >= len(graph_of))).any(axis=1))
    if len(outside):
        row = int(outside[0])
        problem = f"must be in [1, {len(graph_of)}], found {(ends[row] + 1).tolist()}"
        raise listing.error(row, f"nodes {problem}")
    for kind, count in (("node", len(graph_of)), ("edge", len(ends)), ("graph", total)):
        for part in (f"{kind}_labels", f"{kind}_attributes"):
            if part in files:
                files[part].check_count(count, kind)
    order = np.argsort(graph_of[ends[:, 0]], kind="stable")
    numbers = np.arange(1, total + 2)
    starts = np.searchsorted(graph_of, numbers)
    edge_starts = np.searchsorted(graph_of[ends[order, 0]], numbers)
    node_files = [files[part].name for part in ("node_labels", "node_attributes") if part in files]
    node_file = " or ".join(node_files or [indicator.name])
    label_rows = list(zip(*(values.tolist() for values in labels.values()), strict=True))
    for g in range(total):
        start, stop = int(starts[g]), int(starts[g + 1])
        edges = order[edge_starts[g] : edge_starts[g + 1]]
        across = edges[graph_of[ends[edges, 1]] != g + 1]
        problem = None
        if len(across):
            problem = f"{listing.name}, line {across[0] + 1}: joins nodes of two graphs"
        yield RawGraph(
            row=g,
            text=f"graph {g + 1}",
            num_nodes=stop - start,
            edge_index=ends[edges].T - start,
            node=tuple(values[start:stop] for values in node.values()),
            edge=tuple(values[edges] for values in edge.values()),
            labels=label_rows[g] if labels else (),
            node_place=Place(node_file, range(start + 1, stop + 1)),
            edge_place=Place(listing.name, (edges + 1).tolist()),
            problem=problem,
        )


def _find_text_opener(path: Path) -> Callable[[], Collection] | None:
    """Return the function that opens JSON lines or GIN's format; None for other texts."""
    try:
        with open_text(path) as lines:
            first, second = (next(lines, "").split() for _ in range(2))
    except DataError:
        return None
    if "".join(first).startswith('{"'):  # such as standard input, which has no suffix
        return partial(_open_jsonlines, path)
    counts = [*first, *second[:1]]
    are_counts = all(word.isdecimal() and len(word) <= _MOST_DIGITS for word in counts)
    is_gin = (len(first), len(second)) == (1, 2) and are_counts
    return partial(_open_gin, path) if is_gin else None


def _open_gin(path: Path) -> Collection:
    """Return the graphs of a file; the line of a node is ``tag degree neighbors… attributes…``."""
    first = next((graph for graph in _read_gin(path) if graph.problem is None), RawGraph(0, ""))
    return Collection(
        name=str(path),
        node=("tag", *(f"attribute_{k}" for k in range(len(first.node) - 1))),
        labels=("label",),
        read=lambda: _read_gin(path),
        classes=("label",),
    )


def _read_gin(path: Path) -> Iterator[RawGraph]:
    with open_text(path) as lines:
        numbered = enumerate(lines, 1)
        number, line = next(numbered)
        total = int(line)
        for row in range(total):
            number, line = next(numbered, (number + 1, ""))
            try:
                size, label = line.split()
                nodes = [node.split() for _, node in islice(numbered, int(size))]
            except ValueError:
                must = f"must be 'nodes label' of graph {row} of {total}"
                found = f"found {line.strip()!r:.40}"
                raise DataError(f"{path}, line {number}: {must}, {found}.") from None
            if len(nodes) < int(size):
                problem = f"ends within graph {row} of {total}; the file is cut off"
                raise DataError(f"{path}: {problem}.")
            place = Place(lines=range(number + 1, number + 1 + len(nodes)))
            try:
                yield _gin_graph(row, cell(label), nodes, place)
            except BadGraphError as e:
                yield RawGraph(row, f"graph {row}", problem=str(e))
            number += len(nodes)
        for number, line in numbered:
            if line.strip():
                problem = f"more lines than the {total} graphs of the first line have"
                raise DataError(f"{path}, line {number}: {problem}.")


def _gin_graph(row: int, label: Any, nodes: list[list[str]], place: Place) -> RawGraph:
    ends: list[tuple[int, int]] = []
    attributes: list[list[Any]] = []
    for k, words in enumerate(nodes):
        try:
            degree = int(words[1])
            neighbors = list(map(int, words[2 : 2 + degree]))
        except (ValueError, IndexError):
            degree, neighbors = -1, list[int]()
        values = [words[0], *words[2 + degree :]] if len(neighbors) == degree else []
        if not values or len(values) != len((attributes or [values])[0]):
            expected = "must be 'tag degree neighbors' with as many neighbors as the degree says"
            raise BadGraphError(f"{place.of(k)}{expected}, found {' '.join(words)[:40]!r}")
        for neighbor in neighbors:
            if not 0 <= neighbor < len(nodes):
                must = f"neighbor {neighbor} must be a node in [0, {len(nodes)})"
                raise BadGraphError(f"{place.of(k)}{must}")
            ends.append((k, neighbor))
        attributes.append(list(map(cell, values)))
    return RawGraph(
        row=row,
        text=f"graph {row}",
        num_nodes=len(nodes),
        edge_index=np.array(ends, dtype=np.int64).reshape(-1, 2).T,
        node=tuple(map(column, zip(*attributes, strict=True))),
        labels=(label,),
        node_place=place,
    )
