"""Many parsed graphs as plain arrays: what a domain hands to the store, and what could not be parsed."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Integer, Num

from graphlog.data.schema import Attribute, FeatureSchema
from graphlog.errors import DataError
from graphlog.files import replacing


@dataclass(frozen=True, slots=True)
class Reject:
    """An input row that could not become a graph."""

    row: int
    """Data row of the input, from 0."""
    text: str
    """What stood there."""
    reason: str
    """Why it cannot be used."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphChunk:
    """``n`` graphs, one behind the other, with graph-local node numbers."""

    node_counts: Integer[np.ndarray, "n"]
    """Nodes of each graph, at least 1."""
    edge_counts: Integer[np.ndarray, "n"]
    """Edges of each graph as listed here: bonds, not directions, where ``undirected``."""
    x: Num[np.ndarray, "V Fx"]
    """Node attributes, graph after graph."""
    edge_index: Integer[np.ndarray, "2 E"]
    """Node numbers within the graph; one column a bond, (begin, end), where ``undirected``."""
    edge_attr: Num[np.ndarray, "E Fe"]
    """Attributes of each listed edge; both directions of a bond share them."""
    rows: Integer[np.ndarray, "n"]
    """Data row of the input each graph came from, from 0."""
    texts: list[str] | None = None
    """The text each graph was parsed from (its SMILES)."""
    labels: Float[np.ndarray, "n T"] | None = None
    """Labels, NaN where absent."""
    undirected: bool = True
    """Whether each listed edge stands for both directions."""

    def __len__(self) -> int:
        """Return the number of graphs."""
        return len(self.node_counts)

    def check(self, schema: FeatureSchema) -> None:
        """Refuse graphs that do not fit ``schema`` or contradict themselves.

        Raises:
            ValueError: If the arrays do not belong together.
            DataError: If a graph has no node, an edge that leaves it, a value that is not finite, or an unknown code.
        """
        self._check_shapes(schema)
        if (self.node_counts < 1).any():
            raise DataError(
                f"{self._where(int(np.argmax(self.node_counts < 1)))} has no nodes; leave it out or give it one."
            )
        owner = np.repeat(np.arange(len(self)), self.edge_counts)
        sizes = self.node_counts[owner]
        outside = ((self.edge_index < 0) | (self.edge_index >= sizes)).any(axis=0)
        if outside.any():
            e = int(np.argmax(outside))
            a, b, size = int(self.edge_index[0, e]), int(self.edge_index[1, e]), int(sizes[e])
            raise DataError(
                f"{self._where(int(owner[e]))}: edge ({a}, {b}) must join nodes in [0, {size})."
            )
        nodes = np.repeat(np.arange(len(self)), self.node_counts)
        self._check_values(self.x, nodes, schema.node, "node")
        self._check_values(self.edge_attr, owner, schema.edge, "edge")
        if self.labels is not None and np.isinf(self.labels).any():
            raise DataError(
                f"{self._where(int(np.argmax(np.isinf(self.labels).any(axis=1))))}: a label is infinite; leave it empty."
            )

    def _check_shapes(self, schema: FeatureSchema) -> None:
        n, v, e = len(self), int(self.node_counts.sum()), int(self.edge_counts.sum())
        texts = n if self.texts is None else len(self.texts)
        labels = n if self.labels is None else len(self.labels)
        if not n == len(self.edge_counts) == len(self.rows) == texts == labels:
            raise ValueError("the per-graph arrays of a GraphChunk must have one entry a graph.")
        if (self.edge_counts < 0).any() or (self.rows < 0).any():
            raise ValueError("`edge_counts` and `rows` of a GraphChunk must not be negative.")
        if self.x.shape != (v, len(schema.node)):
            raise ValueError(
                f"`x` must be ({v}, {len(schema.node)}) for schema '{schema.name}', found {self.x.shape}."
            )
        if self.edge_index.shape != (2, e) or self.edge_attr.shape != (e, len(schema.edge)):
            found = f"{self.edge_index.shape} and {self.edge_attr.shape}"
            raise ValueError(
                f"`edge_index` and `edge_attr` must be (2, {e}) and ({e}, {len(schema.edge)}), found {found}."
            )

    def _check_values(
        self,
        values: Num[np.ndarray, "R F"],
        owner: Integer[np.ndarray, "R"],
        columns: tuple[Attribute, ...],
        kind: str,
    ) -> None:
        for k, column in enumerate(columns):
            v = values[:, k]
            if column.is_categorical:
                bad = ~((v >= 0) & (v < column.cardinality))
                if v.dtype.kind == "f":
                    bad |= v != np.floor(v)
                expected = f"a code in [0, {column.cardinality})"
            else:
                bad, expected = ~np.isfinite(v), "a finite number"
            if bad.any():
                r = int(np.argmax(bad))
                raise DataError(
                    f"{self._where(int(owner[r]))}: {kind} attribute '{column.name}' must be {expected}, found {v[r]}."
                )

    def _where(self, graph: int) -> str:
        return f"graph of input row {int(self.rows[graph])}"


_REJECT_COLUMNS = ["row", "input", "reason"]


def is_reject_list(path: Path) -> bool:
    """Return whether ``path`` is a file that :func:`write_rejects` wrote."""
    try:
        with path.open("rb") as f:
            return f.readline(64).rstrip() == ",".join(_REJECT_COLUMNS).encode()
    except OSError:
        return False


def write_rejects(path: Path | str, rejects: Iterable[Reject]) -> None:
    """Write ``row,input,reason`` as CSV, whole or not at all."""
    path = Path(path)
    with (
        replacing(path) as unfinished,
        unfinished.open("w", encoding="utf-8", newline="", errors="backslashreplace") as f,
    ):
        table = csv.writer(f)
        table.writerow(_REJECT_COLUMNS)
        table.writerows((r.row, r.text, r.reason) for r in rejects)
