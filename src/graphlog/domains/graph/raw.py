"""Graphs as a file lists them, numbers or words in columns, before their attributes have codes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64
from scipy.sparse import csr_matrix

Column = npt.NDArray[Any]
"""One attribute of many nodes or edges: int64, float64, or objects (numbers, words, None)."""

MAX_NODES = 10_000_000
"""Largest number of nodes of a graph; a larger one is a mistake, and would fill the memory."""
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
