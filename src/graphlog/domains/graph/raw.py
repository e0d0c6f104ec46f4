"""Graphs as a file lists them, numbers or words in columns, before their attributes have codes.

Also the simplest of such files, lines of JSON:
``{"edges": [[0, 1]], "x": [[6], [8]], "edge_attr": [[1]], "y": 0}``.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64
from scipy.sparse import csr_matrix

from graphlog.files import open_text

Column = npt.NDArray[Any]
"""One attribute of many nodes or edges: int64, float64, or objects (numbers, words, None)."""

MAX_NODES = 10_000_000
"""Largest number of nodes of a graph; a larger one is a mistake, and would fill the memory."""
_MAX_TEXT = 200
"""Characters of a bad line that are kept beside the reason of its rejection."""
_JSON_KEYS = ("edges", "x", "edge_attr", "y", "num_nodes", "id")
"""The keys of a line; only ``edges`` is required."""
JSON_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")
_INT64 = range(-(2**63), 2**63)
FLOAT32_MAX = float(np.finfo(np.float32).max)
_NO_EDGES: Int64[np.ndarray, "2 0"] = np.zeros((2, 0), dtype=np.int64)


class Place(NamedTuple):
    """Where the nodes or edges of a graph are listed."""

    file: str = ""
    """Name of the file; empty where there is only one."""
    lines: Sequence[int] = ()
    """Line of each item, or one line for all; empty if unknown."""

    def of(self, item: int) -> str:
        """Return the beginning of a message about an item, empty if its line is unknown."""
        if not self.lines:
            return ""
        line = self.lines[item if len(self.lines) > 1 else 0]
        return f"{self.file}, line {line}: ".removeprefix(", ")


class RawGraph(NamedTuple):
    """One graph before its attributes have codes."""

    row: int
    """Number of the graph in its input, from 0."""
    text: str
    """Its name, or the beginning of its line."""
    num_nodes: int = 0
    """Number of nodes."""
    edge_index: Int64[np.ndarray, "2 E"] = _NO_EDGES
    """Ends of each listed edge, numbered within the graph."""
    node: tuple[Column, ...] = ()
    """Node attributes, column by column."""
    edge: tuple[Column, ...] = ()
    """Edge attributes, column by column."""
    labels: tuple[Any, ...] = ()
    """A number, a word or None for each label column."""
    node_place: Place = Place()
    """Where its nodes are listed."""
    edge_place: Place = Place()
    """Where its edges are listed."""
    problem: str | None = None
    """Why it cannot be used; fields but the first two and ``name`` have no meaning then."""
    name: str = ""
    """What the input calls it; empty if nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class RawGraphs:
    """Many graphs end to end."""

    node_counts: Int64[np.ndarray, "n"]
    """Nodes of each graph."""
    edge_counts: Int64[np.ndarray, "n"]
    """Listed edges of each graph."""
    edge_index: Int64[np.ndarray, "2 E"]
    """Ends of each edge, numbered within its graph."""
    node: tuple[Column, ...]
    """Node attributes, column by column."""
    edge: tuple[Column, ...]
    """Edge attributes, column by column."""

    @property
    def edge_graph(self) -> Int64[np.ndarray, "E"]:
        """Graph of each edge."""
        return np.repeat(np.arange(len(self.edge_counts)), self.edge_counts)

    @property
    def degrees(self) -> Int64[np.ndarray, "V"]:
        """Number of different neighbors of each node, not counting itself or directions."""
        total = int(self.node_counts.sum())
        first = (np.cumsum(self.node_counts) - self.node_counts)[self.edge_graph]
        ends = self.edge_index + first
        ends = ends[:, ends[0] != ends[1]]
        listed = csr_matrix((np.ones(ends.shape[1]), ends), shape=(total, total))
        return (listed + listed.T).tocsr().getnnz(axis=1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """Graphs in a file or folder."""

    name: str
    """Its name in messages."""
    node: tuple[str, ...]
    """Names of node attributes."""
    edge: tuple[str, ...]
    """Names of edge attributes."""
    labels: tuple[str, ...]
    """Names of labels."""
    read: Callable[[], Iterator[RawGraph]]
    """Iterates over the graphs; may be called again."""
    classes: tuple[str, ...] = ()
    """Labels that are classes even if they are numbers."""
    matrices: bool = False
    """Whether attributes are matrices without names, which may be one-hot."""
    names: str = ""
    """Column or key of the names of graphs; empty where they have none."""
    has_header: bool = False
    """Whether the file names its attributes, so that their order means nothing."""
    has_texts: bool = False
    """Whether the texts of graphs say what they are, and so are kept."""
    keep_constant: bool = False
    """Whether node attributes that never change are kept; if not, the degree replaces them."""


def cell(text: str) -> Any:
    """Return the content of a field: a whole number, a number, a word, or None if it is empty.

    Example:
        >>> cell("3"), cell(" 3.0"), cell("C.ar"), cell("")
        (3, 3.0, 'C.ar', None)
    """
    text = text.strip()
    if not text or "_" in text:  # Python's numbers may contain underscores; data's may not
        return text or None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def column(values: Sequence[Any]) -> Column:
    """Return values as one array: whole numbers, numbers, or objects if there are words or gaps.

    Whole numbers beyond 64 bits become floating-point numbers, infinite if need be.

    Example:
        >>> column([1, 2.5]).dtype, column([True, 2]).dtype, column([1, None]).dtype
        (dtype('float64'), dtype('int64'), dtype('O'))
    """
    kinds = {type(v) for v in values}
    if kinds <= {int, bool}:
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            pass
    if kinds <= {int, bool, float}:
        return np.array([as_float(v) for v in values], dtype=np.float64)
    array = np.empty(len(values), dtype=object)
    array[:] = [as_float(v) if isinstance(v, int) and v not in _INT64 else v for v in values]
    return array


def as_float(value: float) -> float:
    """Return a number of any size as a float, infinite if it is too large.

    Example:
        >>> as_float(-(10**400))
        -inf
    """
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def join(graphs: Sequence[RawGraph]) -> RawGraphs:
    """Return graphs end to end; none may have a problem, and all must have the same columns."""
    node, edge = (len(graphs[0].node), len(graphs[0].edge)) if graphs else (0, 0)
    return RawGraphs(
        node_counts=np.array([g.num_nodes for g in graphs], dtype=np.int64),
        edge_counts=np.array([g.edge_index.shape[1] for g in graphs], dtype=np.int64),
        edge_index=np.concatenate([_NO_EDGES, *(g.edge_index for g in graphs)], axis=1),
        node=tuple(_joined([g.node[k] for g in graphs]) for k in range(node)),
        edge=tuple(_joined([g.edge[k] for g in graphs]) for k in range(edge)),
    )


def _joined(parts: Sequence[Column]) -> Column:
    parts = [part for part in parts if len(part)]
    if any(part.dtype == object for part in parts):
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


class _Layout(NamedTuple):
    """Widths of the matrices and names of the labels, from the first line that has them."""

    node: int | None = None
    edge: int | None = None
    labels: tuple[str, ...] | None = None
    has_id: bool | None = None
    """Whether the first graph has a name."""


class BadGraphError(Exception):
    """Why a graph cannot be used."""


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
        read=lambda: _read(path, layout),
        matrices=True,
        names="id" if layout.has_id else "",
    )


def _find_layout(path: Path) -> _Layout:
    layout = _Layout()
    for _, line in _lines(path):
        try:
            record = _parse(line)
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


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line.strip()


def _read(path: Path, layout: _Layout) -> Iterator[RawGraph]:
    for row, (number, line) in enumerate(_lines(path)):
        try:
            yield _graph(row, Place(lines=(number,)), line, layout)
        except BadGraphError as e:
            yield RawGraph(row, line[:_MAX_TEXT], problem=f"line {number}: {e}")


def _graph(row: int, place: Place, line: str, layout: _Layout) -> RawGraph:
    record = _parse(line)
    edges = _edges(record["edges"])
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
    labels = _labels(record.get("y"), layout.labels or ())
    name = str(record.get("id", ""))[:_MAX_TEXT]
    text = name or line[:_MAX_TEXT]
    return RawGraph(row, text, num_nodes, edges, node, edge, labels, place, place, None, name)


def _parse(line: str) -> dict[str, Any]:
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


def _edges(pairs: Any) -> np.ndarray:
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


def _labels(y: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
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
