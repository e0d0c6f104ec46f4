"""Graphs as files list them: columns of numbers and words that are not yet encoded."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64
from scipy.sparse import csr_matrix

from graphlog.data.tables import ABSENT

Column = npt.NDArray[Any]
"""Values of an attribute or label: an array of int64, float64 or objects (numbers, words, None)."""
Item = Literal["node", "edge", "graph"]
"""Kind of item that has attributes; the attributes of graphs are their labels."""

MAX_NODES = 10_000_000
"""Largest number of nodes of a graph; a larger number is a mistake, and would fill the memory."""
_NUMERAL = re.compile(r"[0-9]+[eE][0-9]+")
_INT64 = range(-(2**63), 2**63)
_NO_EDGES: Int64[np.ndarray, "2 0"] = np.zeros((2, 0), dtype=np.int64)


class Numeral(str):
    """A field such as ``2E1``: a number in a column of numbers, a name in a column of words."""

    __slots__ = ()


class BadGraphError(Exception):
    """A graph cannot be used; the message is the reason."""


class Place(NamedTuple):
    """Lines of a file that list the nodes or edges of a graph."""

    file: str = ""
    """Name of the file; empty if the input is one file."""
    lines: Sequence[int] = ()
    """Line of each node or edge, or one line for all; empty if unknown."""

    def of(self, item: int) -> str:
        """Return the beginning of a message about a node or edge; empty if its line is unknown."""
        if not self.lines:
            return ""
        line = self.lines[item if len(self.lines) > 1 else 0]
        return f"{self.file}, line {line}: ".removeprefix(", ")


class RawGraph(NamedTuple):
    """One graph whose attributes are not yet encoded."""

    row: int
    """Row of the input, from 0."""
    text: str
    """Name of the graph, or the beginning of its line."""
    num_nodes: int = 0
    """Number of nodes."""
    edge_index: Int64[np.ndarray, "2 E"] = _NO_EDGES
    """Source and target of each listed edge, numbered from 0."""
    node: tuple[Column, ...] = ()
    """Node attributes, column by column."""
    edge: tuple[Column, ...] = ()
    """Edge attributes, column by column."""
    labels: tuple[Any, ...] = ()
    """Number, word or None of each label."""
    node_place: Place = Place()
    """Lines that list the nodes."""
    edge_place: Place = Place()
    """Lines that list the edges."""
    problem: str | None = None
    """Reason why the graph cannot be used; then only ``row`` and ``text`` are valid."""
    label_problem: str | None = None
    """Reason why the graph cannot be used if labels are read."""
    node_names: Sequence[str] = ()
    """Names of the nodes; empty if they are numbered."""

    def where(self, item: Item, number: int) -> str:
        """Return the beginning of a message about a node or an edge; empty for the graph itself."""
        if item == "graph":
            return ""
        if item == "edge":
            return f"{self.place_of_edge(number)}: "
        return f"{self.node_place.of(number)}node {self._node_text(number)}: "

    def place_of_edge(self, number: int) -> str:
        """Return the line of an edge and its two nodes."""
        a, b = map(self._node_text, self.edge_index[:, number].tolist())
        return f"{self.edge_place.of(number)}edge {a} - {b}"

    def _node_text(self, node: int) -> str:
        return f"{self.node_names[node]:.40}" if self.node_names else str(node)

    def checked(self, wanted: Mapping[Item, Sequence[tuple[str, int]]]) -> "RawGraph":
        """Return the graph with only the wanted columns (names, indices), or with its problem."""
        if self.problem is not None:
            return self
        try:
            self._check_sizes()
            node = self._wanted_columns("node", self.num_nodes, wanted["node"])
            edge = self._wanted_columns("edge", self.edge_index.shape[1], wanted["edge"])
            labels = self._labels(wanted["graph"]) if wanted["graph"] else ()
        except BadGraphError as e:
            return self._replace(problem=str(e))
        return self._replace(node=node, edge=edge, labels=labels)

    def _labels(self, wanted: Sequence[tuple[str, int]]) -> tuple[Any, ...]:
        where = self.node_place.of(0)
        if self.label_problem is not None:
            raise BadGraphError(f"{where}{self.label_problem}")
        return tuple(check_value(self.labels[k], f"{where}label '{name}'") for name, k in wanted)

    def _check_sizes(self) -> None:
        nodes = self.num_nodes
        if nodes < 1:
            raise BadGraphError(f"{self.node_place.of(0)}has no node")
        if nodes > MAX_NODES:
            limit = f"more than the {MAX_NODES:,} that a graph may have"
            raise BadGraphError(f"{self.node_place.of(0)}has {nodes:,} nodes, {limit}")
        outside = ((self.edge_index < 0) | (self.edge_index >= nodes)).any(axis=0)
        if outside.any():
            where = self.place_of_edge(int(outside.argmax()))
            raise BadGraphError(f"{where} must join nodes in [0, {nodes})")

    def _wanted_columns(
        self, item: Item, count: int, wanted: Sequence[tuple[str, int]]
    ) -> tuple[Column, ...]:
        is_node = item == "node"
        columns, place = (self.node, self.node_place) if is_node else (self.edge, self.edge_place)
        where = place.of(0)
        if any(len(values) != count for values in columns):
            found = f"found those of {len(columns[0])}"
            raise BadGraphError(f"{where}must have attributes of {count} {item}s, {found}")
        if count and len(columns) != len(wanted):
            names = ", ".join(name for name, _ in wanted) or "none"
            must = f"{len(wanted)} attributes ({names})"
            raise BadGraphError(f"{where}every {item} must have {must}, found {len(columns)}")
        if not count:
            return (np.zeros(0, dtype=np.int64),) * len(wanted)
        return tuple(columns[k] for _, k in wanted)


@dataclass(frozen=True, slots=True, eq=False)
class RawGraphs:
    """Several graphs, concatenated."""

    counts: Mapping[Item, Int64[np.ndarray, "n"]]
    """Numbers of nodes and of listed edges of each graph; 1 for the graph itself."""
    edge_index: Int64[np.ndarray, "2 E"]
    """Source and target of each listed edge, numbered within its graph."""
    columns: Mapping[Item, tuple[Column, ...]]
    """Attributes of all nodes, edges and graphs, column by column."""

    def owners(self, item: Item) -> Int64[np.ndarray, "R"]:
        """Return the index of the graph of each node, edge or graph."""
        return np.repeat(np.arange(len(self.counts[item])), self.counts[item])

    @property
    def degrees(self) -> Int64[np.ndarray, "V"]:
        """Number of different neighbors of each node other than itself, in either direction."""
        nodes = self.counts["node"]
        ends = self.edge_index + (np.cumsum(nodes) - nodes)[self.owners("edge")]
        ends = ends[:, ends[0] != ends[1]]
        shape = (int(nodes.sum()), int(nodes.sum()))
        listed = csr_matrix((np.ones(ends.shape[1]), ends), shape=shape)
        return (listed + listed.T).tocsr().getnnz(axis=1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """Graphs in a file or folder, and their columns."""

    name: str
    """Name of the input in messages."""
    read: Callable[[], Iterator[RawGraph]]
    """Function that returns a new iterator over the graphs."""
    node: tuple[str, ...] = ()
    """Names of node attributes."""
    edge: tuple[str, ...] = ()
    """Names of edge attributes."""
    labels: tuple[str, ...] = ()
    """Names of labels."""
    classes: tuple[str, ...] = ()
    """Names of the labels that are classes even if they are numbers."""
    matrices: bool = False
    """Whether attributes are matrices without names, which may be one-hot encoded."""
    has_header: bool = False
    """Whether the input names its attributes, so that they may be in any order."""
    text_name: str = ""
    """Column or key that contains the texts, such as names; empty if they are not stored."""
    keep_constant: bool = False
    """Whether constant node attributes are kept; if not, the degree replaces them."""
    notes: tuple[str, ...] = ()
    """Notes to store with the graphs."""


def cell(text: str) -> Any:
    """Return the value of a field: an integer, a float, a word, or None if it is empty.

    Example:
        >>> cell("3"), cell(" 3.0"), cell("C.ar"), cell("")
        (3, 3.0, 'C.ar', None)
    """
    text = text.strip()
    if not text or "_" in text:  # Python's numbers may contain underscores; data's may not
        return text or None
    if _NUMERAL.fullmatch(text):
        return Numeral(text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def attribute_cell(text: str) -> Any:
    """Return the value of a field of an attribute as :func:`cell` does, but ``007`` is a word."""
    text = text.strip()
    return text if len(text) > 1 and text[0] == "0" and text.isdigit() else cell(text)


def label_cell(text: str) -> Any:
    """Return the value of a field of a label as :func:`cell` does, but ``007`` is a numeral."""
    value = attribute_cell(text)
    return Numeral(value) if isinstance(value, str) and value.isdecimal() else value


def as_number(value: Any) -> Any:
    """Return a numeral as a number, and any other value unchanged."""
    if not isinstance(value, Numeral):
        return value
    return int(value) if value.isdecimal() else float(value)


def is_absent(value: object) -> bool:
    """Return whether a value is a word for a missing value, as R and pandas write them."""
    return isinstance(value, str) and value.strip().lower() in ABSENT


def check_value(value: Any, name: str) -> Any:
    """Return a number or word, or None for an empty word; raise an error for other types."""
    if not isinstance(value, int | float | str | None):
        raise BadGraphError(f"{name} must hold numbers and words, found {value!r:.40}")
    return None if value == "" else value


def column(values: Sequence[Any]) -> Column:
    """Return values as one array, of objects if there are words or missing values.

    Integers of more than 64 bits become floats, infinite ones if they are too large. Integers
    together with NaN or infinity, but no other float, stay integers in an array of objects.

    Example:
        >>> column([1, 2.5]).dtype, column([True, 2]).dtype, column([1, None]).dtype
        (dtype('float64'), dtype('int64'), dtype('O'))
    """
    kinds = {type(v) for v in values}
    if kinds <= {int, bool}:
        with suppress(OverflowError):
            return np.array(values, dtype=np.int64)
    values = [as_float(v) if isinstance(v, int) and v not in _INT64 else v for v in values]
    has_floats = any(type(v) is float and math.isfinite(v) for v in values)
    if kinds <= {int, bool, float} and has_floats:
        return np.array(values, dtype=np.float64)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def as_float(value: float) -> float:
    """Return a number as a float, infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def join(graphs: Sequence[RawGraph]) -> RawGraphs:
    """Concatenate graphs; none may have a problem, and all must have the same columns."""
    counts: dict[Item, list[int]] = {
        "node": [graph.num_nodes for graph in graphs],
        "edge": [graph.edge_index.shape[1] for graph in graphs],
        "graph": [1] * len(graphs),
    }
    return RawGraphs(
        counts={item: np.array(numbers, dtype=np.int64) for item, numbers in counts.items()},
        edge_index=np.concatenate([_NO_EDGES, *(graph.edge_index for graph in graphs)], axis=1),
        columns={
            "node": tuple(map(np.concatenate, zip(*(graph.node for graph in graphs), strict=True))),
            "edge": tuple(map(np.concatenate, zip(*(graph.edge for graph in graphs), strict=True))),
            "graph": tuple(map(column, zip(*(graph.labels for graph in graphs), strict=True))),
        },
    )
