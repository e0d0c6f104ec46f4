"""Schemas of any graphs: inferred from their attributes, and attributes turned into their codes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import Attribute, FeatureSchema, is_continuous
from graphlog.domains.graph.raw import MOST_NODES, Column, RawGraph, RawGraphs, join
from graphlog.errors import DataError, unknown_name

Kind = Literal["categorical", "continuous"]

MAX_CODES = 4096
"""Whole numbers from 0 below this are taken as codes as they are; a column of words has at most as many different ones."""
FEW_VALUES = 64
"""Other whole numbers (negative, or large) are categories up to this many different ones, and quantities beyond."""
DEGREE_CAP = 255
"""Largest degree with a code of its own."""
_SPECIAL = {"node": 1, "edge": 2}
"""Codes beyond the values: "masked", and for edges "self-loop"."""
_SMALLEST_SPREAD = 1e-6
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class ColumnSurvey:
    """What one column holds: its different values while they are few, and mean and spread of its numbers."""

    def __init__(self) -> None:
        self.values: set[int] | None = set()
        self.words: set[str] | None = set()
        self.num_words = self.count = 0
        self.has_fractions = False
        self.mean = self.squares = 0.0

    def add(self, column: Column) -> None:
        """Take in some more of the column; what is missing or not finite is passed over."""
        if column.dtype == object:
            words = [v for v in column.tolist() if isinstance(v, str)]
            self.num_words += len(words)
            self.words = _added(self.words, set(words))
            numbers = [v for v in column.tolist() if not isinstance(v, str) and v is not None]
            column = np.array(
                numbers,
                dtype=np.float64 if any(isinstance(v, float) for v in numbers) else np.int64,
            )
        if column.dtype.kind == "f":
            usable = column[np.abs(column) <= _FLOAT32_MAX]  # NaN compares false
            whole = usable == np.floor(usable)
            # numbers written with a point are quantities even where all happen to be whole; beside a NaN that cannot be told
            self.has_fractions |= bool(len(usable)) and (
                len(usable) == len(column) or not bool(whole.all())
            )
            self._weigh(usable)
            column = usable[whole & (np.abs(usable) < 2**53)].astype(np.int64)
        else:
            self._weigh(column.astype(np.float64))
        self.values = _added(self.values, set(np.unique(column).tolist()))

    def _weigh(self, numbers: np.ndarray) -> None:
        if not len(numbers):
            return
        count, mean = len(numbers), float(numbers.mean())
        total, apart = self.count + count, mean - self.mean
        self.squares += (
            float(((numbers - mean) ** 2).sum()) + apart * apart * self.count * count / total
        )
        self.mean += apart * count / total
        self.count = total

    @property
    def is_constant(self) -> bool:
        """Whether every value seen is the same category."""
        return not self.has_fractions and len(self.values or ()) + len(self.words or ()) == 1

    def kind(self) -> Kind:
        """Return what the column is taken for."""
        if self.num_words:
            # a few words among fractions are slips of the pen, to be rejected; otherwise all are names
            return (
                "continuous"
                if self.has_fractions and self.num_words <= self.count
                else "categorical"
            )
        if self.has_fractions or self.values is None:
            return "continuous"
        fits = not self.values or (min(self.values) >= 0 and max(self.values) < MAX_CODES)
        return "categorical" if fits or len(self.values) <= FEW_VALUES else "continuous"

    def attribute(self, name: str, kind: Kind, special: int) -> Attribute:
        """Return the column of the schema.

        Raises:
            DataError: If there are too many different categories.
        """
        if kind == "continuous":
            spread = float(np.sqrt(self.squares / self.count)) if self.count else 0.0
            return Attribute(
                name,
                0,
                shift=self.mean,
                scale=spread if spread > _SMALLEST_SPREAD * max(1.0, abs(self.mean)) else 1.0,
            )
        if (
            self.values is None
            or self.words is None
            or len(self.values) + len(self.words) > MAX_CODES
        ):
            raise DataError(
                f"attribute '{name}' has more than {MAX_CODES:,} different values, too many for categories; leave it out."
            )
        numbers = sorted(self.values)
        if not self.words and (not numbers or (numbers[0] >= 0 and numbers[-1] < MAX_CODES)):
            values = (
                tuple(str(k) if k in self.values else "" for k in range(numbers[-1] + 1))
                if numbers
                else ("",)
            )
        else:
            values = (*(str(v) for v in numbers), *sorted(self.words))
        return Attribute(name, len(values) + special, values=values)


class Survey:
    """What all graphs of an input hold; :meth:`schema` says how to read them."""

    def __init__(self, node: Sequence[str], edge: Sequence[str], matrices: bool = False) -> None:
        """Expect these columns.

        Args:
            node: Names of node attributes.
            edge: Names of edge attributes.
            matrices: Whether the columns are those of a nameless matrix, which may be one category in one-hot form.
        """
        self.names = {"node": tuple(node), "edge": tuple(edge)}
        self.columns = {kind: [ColumnSurvey() for _ in names] for kind, names in self.names.items()}
        self._may_be_one_hot = {
            kind: matrices and len(names) > 1 for kind, names in self.names.items()
        }
        self._seen_ones: dict[str, set[int]] = {"node": set(), "edge": set()}
        self.max_degree = 0

    def add(self, graphs: RawGraphs) -> None:
        """Take in some more graphs."""
        for kind, columns in (("node", graphs.node), ("edge", graphs.edge)):
            for survey, column in zip(self.columns[kind], columns, strict=True):
                survey.add(column)
            if self._may_be_one_hot[kind]:
                places = one_hot_places(columns)
                self._may_be_one_hot[kind] = places is not None
                self._seen_ones[kind] |= (
                    set() if places is None else set(np.unique(places).tolist())
                )
        if not self.names["node"] or all(c.is_constant for c in self.columns["node"]):
            self.max_degree = max(self.max_degree, int(graphs.degrees.max(initial=0)))

    def schema(
        self,
        name: str = "inferred",
        kinds: Mapping[str, str] | None = None,
        keep_constant: bool = True,
    ) -> FeatureSchema:
        """Return the schema of what was seen.

        Args:
            name: What to call it.
            kinds: Columns that are to be taken as ``categorical`` or ``continuous`` whatever they hold.
            keep_constant: Whether node attributes that never change are kept; else the degree takes their place.

        Raises:
            ConfigError: If ``kinds`` names a column or kind there is not.
            DataError: If a column has too many categories.
        """
        chosen: dict[str, Any] = dict(kinds or {})
        for key, kind in chosen.items():
            if key not in (known := [*self.names["node"], *self.names["edge"]]):
                raise unknown_name("attribute", key, known)
            if kind not in ("categorical", "continuous"):
                raise unknown_name("kind of attribute", str(kind), ("categorical", "continuous"))
        node, edge = self._attributes("node", chosen), self._attributes("edge", chosen)
        if not node or (not keep_constant and all(c.is_constant for c in self.columns["node"])):
            cap = min(self.max_degree, DEGREE_CAP)
            node = (Attribute("degree", cap + 1 + _SPECIAL["node"], origin="degree"),)
        return FeatureSchema(
            name=name,
            domain="graph",
            node=node,
            edge=edge,
            masked="node",
            node_mask=_special_row(node, 1),
            edge_mask=_special_row(edge, 2) if edge else None,
            self_loop=_special_row(edge, 1) if edge else None,
        )

    def _attributes(self, kind: str, chosen: Mapping[str, Any]) -> tuple[Attribute, ...]:
        names, special = self.names[kind], _SPECIAL[kind]
        if (
            self._may_be_one_hot[kind]
            and self._seen_ones[kind]
            and not any(n in chosen for n in names)
        ):
            values = tuple(str(k) if k in self._seen_ones[kind] else "" for k in range(len(names)))
            return (Attribute(f"{kind}_0", len(values) + special, values=values, origin="one-hot"),)
        return tuple(
            c.attribute(n, chosen.get(n, c.kind()), special)
            for n, c in zip(names, self.columns[kind], strict=True)
        )


def one_hot_places(columns: Sequence[Column]) -> np.ndarray | None:
    """Return the position of the 1 in every row; None where a row is not 0 but for a single 1."""
    if any(c.dtype == object for c in columns):
        return None
    matrix = np.stack(columns, axis=1)
    return (
        matrix.argmax(axis=1)
        if np.isin(matrix, (0, 1)).all() and (matrix.sum(axis=1) == 1).all()
        else None
    )


def _special_row(columns: Sequence[Attribute], from_last: int) -> tuple[float, ...]:
    """Return a code that stands for no value, or in continuous columns the mean."""
    return tuple(float(c.cardinality - from_last) if c.is_categorical else c.shift for c in columns)


def _added(values: Any, more: set[Any]) -> Any:
    """Return the union, or None once there are too many to keep."""
    if values is None or len(values) + len(more) > 2 * MAX_CODES:
        return None
    values |= more
    return values if len(values) <= MAX_CODES else None


class Unfit(NamedTuple):
    """A node or edge with a value that the schema has no place for."""

    item: int
    """Its number among all nodes, or all edges."""
    reason: str
    """What is wrong."""


def node_codes(
    graphs: RawGraphs, columns: tuple[Attribute, ...]
) -> tuple[Float[np.ndarray, "V F"], list[Unfit]]:
    """Return the node attributes of ``graphs`` under the schema's ``columns``, and what does not fit.

    Raises:
        DataError: If the number of columns is another.
    """
    if len(columns) == 1 and columns[0].origin == "degree":
        return np.minimum(graphs.degrees, columns[0].cardinality - 2).astype(np.float64)[
            :, None
        ], []
    return _codes("node", graphs.node, int(graphs.node_counts.sum()), columns)


def edge_codes(
    graphs: RawGraphs, columns: tuple[Attribute, ...]
) -> tuple[Float[np.ndarray, "E F"], list[Unfit]]:
    """Return the same of edge attributes."""
    return _codes("edge", graphs.edge, graphs.edge_index.shape[1], columns)


def _codes(
    kind: str, found: Sequence[Column], items: int, columns: tuple[Attribute, ...]
) -> tuple[Float[np.ndarray, "R F"], list[Unfit]]:
    unfit = list[Unfit]()
    if len(columns) == 1 and columns[0].origin == "one-hot" and items and len(found) != 1:
        if len(found) != len(columns[0].values):
            raise DataError(
                f"{kind} attributes must be {len(columns[0].values)} columns, 0 but for a single 1, found {len(found)}."
            )
        places, wrong = _places(found, columns[0])
        unfit += [Unfit(item, f"{kind} attributes {reason}") for item, reason in wrong]
        found = [places]
    if len(found) != len(columns) and items:
        names = ", ".join(c.name for c in columns) or "none"
        raise DataError(
            f"every {kind} must have {len(columns)} attributes ({names}), found {len(found)}."
        )
    codes = np.zeros((items, len(columns)))
    for k, (values, attribute) in enumerate(zip(found, columns, strict=False)):
        codes[:, k], wrong = (
            _known(values, attribute) if attribute.is_categorical else _numbers(values)
        )
        unfit += [
            Unfit(item, f"{kind} attribute '{attribute.name}' {reason}") for item, reason in wrong
        ]
    return codes, unfit


def _places(
    found: Sequence[Column], attribute: Attribute
) -> tuple[np.ndarray, Iterator[tuple[int, str]]]:
    """Return the position of the 1 in every row, and the rows that are not 0 but for a single 1."""
    matrix = np.stack([_as_numbers(c) for c in found], axis=1)
    bad = ~(np.isin(matrix, (0, 1)).all(axis=1) & (matrix.sum(axis=1) == 1))
    any_known = next(k for k, text in enumerate(attribute.values) if text)
    return np.where(bad, any_known, matrix.argmax(axis=1)), (
        (int(i), "must be 0 but for a single 1") for i in np.flatnonzero(bad)
    )


def _known(values: Column, attribute: Attribute) -> tuple[np.ndarray, Iterator[tuple[int, str]]]:
    if not attribute.values:  # codes as they are: one of the named schemas
        codes, _ = _numbers(values)
        bad = ~((codes >= 0) & (codes < attribute.cardinality) & (codes == np.floor(codes)))
        expected = f"must be a code in [0, {attribute.cardinality})"
        return np.where(bad, 0, codes), (
            (int(i), f"{expected}, found {_text(values[i])}") for i in np.flatnonzero(bad)
        )
    code_of = {text: code for code, text in enumerate(attribute.values) if text}
    if values.dtype == object:
        codes = np.array([code_of.get(_text(v), -1) for v in values.tolist()], dtype=np.int64)
    else:
        different, inverse = np.unique(values, return_inverse=True)
        codes = np.array([code_of.get(_text(v), -1) for v in different.tolist()], dtype=np.int64)[
            inverse.reshape(-1)
        ]
    return np.maximum(codes, 0), ((int(i), _unseen(values[i])) for i in np.flatnonzero(codes < 0))


def _unseen(value: object) -> str:
    if value is None:
        return "is missing"
    if isinstance(value, float) and not np.isfinite(value):
        return f"must be finite, found {value}"
    return f"is {_text(value)!r}, a category that the schema does not know: it was not there when the schema was made"


def _numbers(values: Column) -> tuple[np.ndarray, Iterator[tuple[int, str]]]:
    numbers = _as_numbers(values)
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(numbers.astype(np.float32))
    return np.where(bad, 0.0, numbers), (
        (int(i), _no_number(values[i])) for i in np.flatnonzero(bad)
    )


def _as_numbers(values: Column) -> Float[np.ndarray, "R"]:
    if values.dtype == object:
        return np.array(
            [v if isinstance(v, int | float) else np.nan for v in values.tolist()], dtype=np.float64
        )
    return values.astype(np.float64)


def _no_number(value: object) -> str:
    return "is missing" if value is None else f"must be a finite number, found {_text(value)!r}"


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(int(value)) if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """What became of some graphs."""

    chunk: GraphChunk
    """Those that could be used; ``rows`` are positions among the graphs given."""
    problems: Mapping[int, str]
    """Position of each other one, and why."""


def chunk_of(graphs: Sequence[RawGraph], schema: FeatureSchema, directed: bool = False) -> Coded:
    """Return the graphs under ``schema``.

    Unless ``directed``, an edge stands for both directions however often and whichever way it is listed, and an edge from a
    node to itself is left out, since every encoder gives each node one.

    Raises:
        DataError: If the attributes are not as many as the schema's.
    """
    problems = {
        k: found for k, g in enumerate(graphs) if (found := g.problem or misplaced(g)) is not None
    }
    kept = [k for k in range(len(graphs)) if k not in problems]
    raw = join([graphs[k] for k in kept])
    x, unfit_nodes = node_codes(raw, schema.node)
    edge_attr, unfit_edges = edge_codes(raw, schema.edge)
    node_ends, edge_ends = np.cumsum(raw.node_counts), np.cumsum(raw.edge_counts)
    for unfit, ends, name in ((unfit_nodes, node_ends, "node"), (unfit_edges, edge_ends, "edge")):
        for item, reason in unfit:
            at = int(np.searchsorted(ends, item, side="right"))
            local = item - int(ends[at - 1] if at else 0)
            graph = graphs[kept[at]]
            place = (graph.node_place if name == "node" else graph.edge_place).of(local)
            problems.setdefault(kept[at], f"{place}{name} {local}: {reason}")
    listed = (
        np.arange(raw.edge_index.shape[1]) if directed else _once(raw, edge_attr, kept, problems)
    )
    good = np.array([k not in problems for k in kept], dtype=np.bool_)
    of_node, of_edge = np.repeat(np.arange(len(kept)), raw.node_counts), raw.edge_graph[listed]
    listed = listed[good[of_edge]]
    chunk = GraphChunk(
        node_counts=raw.node_counts[good],
        edge_counts=np.bincount(raw.edge_graph[listed], minlength=len(kept))[good].astype(np.int64),
        x=x[good[of_node]].astype(np.float32 if is_continuous(schema.node) else np.int64),
        edge_index=raw.edge_index[:, listed],
        edge_attr=edge_attr[listed].astype(np.float32 if is_continuous(schema.edge) else np.int64),
        rows=np.array(kept, dtype=np.int64)[good],
        undirected=not directed,
    )
    return Coded(chunk, problems)


def misplaced(graph: RawGraph) -> str | None:
    """Return what is wrong with the number of nodes or those that edges join; None if nothing."""
    if graph.num_nodes < 1:
        return "has no node"
    if graph.num_nodes > MOST_NODES:
        return f"{graph.node_place.of(0)}has {graph.num_nodes:,} nodes, more than the {MOST_NODES:,} that a graph may have"
    outside = ((graph.edge_index < 0) | (graph.edge_index >= graph.num_nodes)).any(axis=0)
    if not outside.any():
        return None
    e = int(outside.argmax())
    a, b = graph.edge_index[:, e].tolist()
    return f"{graph.edge_place.of(e)}edge {a} - {b} must join nodes in [0, {graph.num_nodes})"


def _once(
    raw: RawGraphs, edge_attr: np.ndarray, kept: Sequence[int], problems: dict[int, str]
) -> np.ndarray:
    """Return the first listing of every undirected edge; graphs where two listings differ in attributes become problems."""
    graph, ends = raw.edge_graph, raw.edge_index
    low, high = ends.min(axis=0, initial=2**62), ends.max(axis=0, initial=-1)
    order = np.lexsort((np.arange(len(low)), high, low, graph))
    keys = np.stack([graph, low, high])[:, order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    firsts = order[is_first][np.cumsum(is_first) - 1] if len(order) else order
    differs = (edge_attr[order] != edge_attr[firsts]).any(axis=1)
    for e in np.flatnonzero(differs).tolist():
        a, b = ends[:, order[e]].tolist()
        what = f"edge {a} - {b} is listed twice with different attributes; mend it, or read the graphs as directed"
        problems.setdefault(kept[int(graph[order[e]])], what)
    chosen = np.sort(order[is_first])
    return chosen[ends[0, chosen] != ends[1, chosen]]
