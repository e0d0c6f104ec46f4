"""Graphs as a file gives them: numbers or words in columns, and the lines they stand on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64

from graphlog.data.chunk import distinct

Column = npt.NDArray[Any]
"""One attribute of many nodes or edges: int64, float64, or objects (numbers, words, None where missing)."""


MOST_NODES = 10_000_000
"""Nodes of one graph at most: a number beyond is a slip, and would take all memory."""
_INT64 = range(-(2**63), 2**63)


class Place(NamedTuple):
    """Where something is listed: its first line, and how many lines further each next item stands."""

    file: str = ""
    line: int = 0
    step: int = 0
    lines: tuple[int, ...] = ()
    """The line of each item, where there are gaps."""

    def of(self, item: int) -> str:
        """Return the words for the line of an item, or nothing where lines are not known."""
        file = f"{self.file} " if self.file else ""
        line = self.lines[item] if self.lines else self.line + item * self.step
        return f"{file}line {line}: " if line else ""


NOWHERE = Place()


@dataclass(frozen=True, slots=True, eq=False)
class RawGraph:
    """One graph before its attributes have codes."""

    row: int
    """Number of the graph in its input, from 0."""
    text: str
    """What to call it: its name, or the beginning of its line."""
    num_nodes: int = 0
    """Number of nodes."""
    edge_index: Int64[np.ndarray, "2 E"] = field(
        default_factory=lambda: np.zeros((2, 0), dtype=np.int64)
    )
    """Ends of each listed edge, numbered within the graph."""
    node: tuple[Column, ...] = ()
    """Node attributes, column by column."""
    edge: tuple[Column, ...] = ()
    """Edge attributes, column by column."""
    labels: tuple[Any, ...] = ()
    """A number, a word or None a label column."""
    node_place: Place = NOWHERE
    """Where its nodes are listed."""
    edge_place: Place = NOWHERE
    """Where its edges are listed."""
    problem: str | None = None
    """Why it cannot be used; the other fields mean nothing then."""


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
        """Number of different neighbours of each node, itself aside; the two directions of an edge are one neighbour."""
        total = int(self.node_counts.sum())
        first = (np.cumsum(self.node_counts) - self.node_counts)[self.edge_graph]
        ends = self.edge_index + first
        ends = ends[:, ends[0] != ends[1]]
        keys = distinct(ends.min(axis=0) * total + ends.max(axis=0))
        return np.bincount(
            np.concatenate([keys // max(total, 1), keys % max(total, 1)]), minlength=total
        ).astype(np.int64)


def column(values: Sequence[Any]) -> Column:
    """Return values as one array: whole numbers, numbers, or objects where there are words or gaps.

    Whole numbers that 64 bits do not hold become numbers, and those that no number holds infinite.

    Example:
        >>> column([1, 2.5]).dtype, column([True, 2]).dtype, column([1, None]).dtype
        (dtype('float64'), dtype('int64'), dtype('O'))
    """
    kinds = {type(v) for v in values}
    if kinds <= {int, bool}:
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            return np.array([as_float(v) for v in values], dtype=np.float64)
    if kinds <= {int, bool, float}:
        return np.array([as_float(v) for v in values], dtype=np.float64)
    array = np.empty(len(values), dtype=object)
    array[:] = [as_float(v) if isinstance(v, int) and v not in _INT64 else v for v in values]
    return array


def as_float(value: float) -> float:
    """Return a number of any size; infinity where none is as large.

    Example:
        >>> as_float(-(10**400))
        -inf
    """
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def join(graphs: Sequence[RawGraph]) -> RawGraphs:
    """Return graphs, none with a problem and all with equally many columns, end to end."""
    node, edge = (len(graphs[0].node), len(graphs[0].edge)) if graphs else (0, 0)
    return RawGraphs(
        node_counts=np.array([g.num_nodes for g in graphs], dtype=np.int64),
        edge_counts=np.array([g.edge_index.shape[1] for g in graphs], dtype=np.int64),
        edge_index=np.concatenate(
            [np.zeros((2, 0), dtype=np.int64), *(g.edge_index for g in graphs)], axis=1
        ),
        node=tuple(_joined([g.node[k] for g in graphs]) for k in range(node)),
        edge=tuple(_joined([g.edge[k] for g in graphs]) for k in range(edge)),
    )


def _joined(parts: Sequence[Column]) -> Column:
    parts = [p for p in parts if len(p)]
    if not parts:
        return np.zeros(0, dtype=np.int64)
    if any(p.dtype == object for p in parts):
        return np.concatenate([p.astype(object) for p in parts])
    return np.concatenate(parts)


TEXT_KEPT = 200
"""Characters of a bad line that are kept beside the reason of its rejection."""


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """Graphs in a file or folder."""

    name: str
    """What to call it in messages."""
    node: tuple[str, ...]
    """Names of node attributes."""
    edge: tuple[str, ...]
    """Names of edge attributes."""
    labels: tuple[str, ...]
    """Names of labels."""
    read: Callable[[], Iterator[RawGraph]]
    """Goes over the graphs, from the first, each time."""
    classes: tuple[str, ...] = ()
    """Labels that name classes even where they are numbers."""
    matrices: bool = False
    """Whether attributes are nameless matrices, which may be one-hot."""


def cell(text: str) -> Any:
    """Return what is written: a whole number, a number, a word, or None for nothing.

    Example:
        >>> cell("3"), cell(" 3.0"), cell("C.ar"), cell("")
        (3, 3.0, 'C.ar', None)
    """
    text = text.strip()
    if not text:
        return None
    for kind in (int, float):
        try:
            # Python's own numbers may have underscores; data's may not
            return text if "_" in text else kind(text)
        except ValueError:
            continue
    return text
