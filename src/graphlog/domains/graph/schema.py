"""Schemas of any graphs: inferred from their attributes; and attributes turned into their codes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from graphlog.data.graphs import Attribute, FeatureSchema, GraphChunk, is_continuous
from graphlog.domains.graph.raw import (
    FLOAT32_MAX,
    MAX_NODES,
    Collection,
    Column,
    RawGraph,
    RawGraphs,
    join,
)
from graphlog.errors import DataError, check_name

_SMALLEST_SPREAD = 1e-6


class Moments:
    """Mean and spread of columns of numbers that come piece by piece."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self.mean = self.squares = np.zeros(columns)

    def add(self, rows: Num[np.ndarray, "R F"]) -> None:
        """Include more rows; all numbers must be finite."""
        if len(rows):
            values, total = np.ascontiguousarray(rows.T), self.count + len(rows)
            mean = values.mean(axis=1)
            shift = mean - self.mean
            self.squares = self.squares + ((values - mean[:, None]) ** 2).sum(axis=1)
            self.squares += shift * shift * self.count * len(rows) / total
            self.mean = self.mean + shift * len(rows) / total
            self.count = total

    @property
    def scale(self) -> Float[np.ndarray, "F"]:
        """The deviations, or 1 where the numbers are equal but for rounding."""
        spread = np.sqrt(self.squares / max(self.count, 1))
        is_spread = spread > _SMALLEST_SPREAD * np.maximum(1.0, np.abs(self.mean))
        return np.where(is_spread, spread, 1.0)


class ScaleSurvey:
    """Mean and deviation of every quantity in graphs that are used.

    What is rejected may hold anything, and dropped edges are in no store: they must not count.

    Args:
        schema: Of the graphs.
    """

    def __init__(self, schema: FeatureSchema) -> None:
        self._schema = schema
        self._node, self._edge = Moments(len(schema.node)), Moments(len(schema.edge))

    def add(self, chunk: GraphChunk) -> None:
        """Include more graphs."""
        self._node.add(chunk.x)
        self._edge.add(chunk.edge_attr)

    def scaled(self) -> FeatureSchema:
        """Return the schema with these means and deviations."""
        node, edge = (
            tuple(
                a if a.is_categorical else replace(a, shift=shift, scale=scale)
                for a, shift, scale in zip(
                    columns, found.mean.tolist(), found.scale.tolist(), strict=True
                )
            )
            for columns, found in ((self._schema.node, self._node), (self._schema.edge, self._edge))
        )
        return with_columns(self._schema, node, edge)


def with_columns(
    schema: FeatureSchema, node: tuple[Attribute, ...], edge: tuple[Attribute, ...]
) -> FeatureSchema:
    """Return the schema with other columns, and the rows that stand for no value in them."""
    return replace(
        schema,
        node=node,
        edge=edge,
        node_mask=_special_row(node, 1),
        edge_mask=_special_row(edge, 2) if edge else None,
        self_loop=_special_row(edge, 1) if edge else None,
    )


def _special_row(columns: Sequence[Attribute], from_last: int) -> tuple[float, ...]:
    """Return a code that stands for no value, or in continuous columns the mean."""
    return tuple(float(c.cardinality - from_last) if c.is_categorical else c.shift for c in columns)


Kind = Literal["categorical", "continuous"]

MAX_CODES = 4096
"""Whole numbers below this are codes; a column of words may have at most this many values."""
FEW_VALUES = 64
"""Other whole numbers (negative or large) are categories up to this many different ones, and
quantities beyond."""
DEGREE_CAP = 255
"""Largest degree with a code of its own."""
_SPECIAL_CODES = {"node": 1, "edge": 2}
"""Codes after the values: "masked", and for edges "self-loop"."""


class ColumnSurvey:
    """The different values of a column while they are few, and of which types it has how many."""

    def __init__(self) -> None:
        self.values: set[int | str] | None = set()
        self.num_words = self.num_numbers = 0
        self.has_fractions = False

    def add(self, column: Column) -> None:
        """Include more of the column; what is missing or not finite is ignored."""
        words: list[str] = []
        if column.dtype == object:
            words = [v for v in column.tolist() if isinstance(v, str)]
            numbers = [v for v in column.tolist() if not isinstance(v, str) and v is not None]
            is_float = any(isinstance(v, float) for v in numbers)
            column = np.array(numbers, dtype=np.float64 if is_float else np.int64)
        self.num_words += len(words)
        if column.dtype.kind == "f":
            usable = column[np.abs(column) <= FLOAT32_MAX]  # NaN compares false
            whole = usable == np.floor(usable)
            # Numbers written with a point are quantities even if all of them are whole; next to a
            # NaN, which makes whole numbers floats, it takes a fraction.
            if len(usable):
                self.has_fractions |= len(usable) == len(column) or not bool(whole.all())
            self.num_numbers += len(usable)
            column = usable[whole & (np.abs(usable) < 2**53)].astype(np.int64)
        else:
            self.num_numbers += len(column)
        if self.values is not None:
            self.values.update(np.unique(column).tolist(), words)
            if len(self.values) > MAX_CODES:
                self.values = None

    @property
    def is_constant(self) -> bool:
        """Whether there is only one value, and it is a category."""
        return not self.has_fractions and self.values is not None and len(self.values) == 1

    @property
    def _ordered(self) -> list[Any]:
        """The values, numbers first."""
        return sorted(self.values or (), key=lambda value: (isinstance(value, str), value))

    @property
    def _are_codes(self) -> bool:
        ordered = self._ordered
        return not self.num_words and (not ordered or 0 <= ordered[0] <= ordered[-1] < MAX_CODES)

    def kind(self) -> Kind:
        """Return whether the column holds categories or quantities."""
        if self.num_words:
            # a few words among fractions are mistakes, to be rejected; otherwise all are names
            is_mistake = self.has_fractions and self.num_words <= self.num_numbers
            return "continuous" if is_mistake else "categorical"
        if self.has_fractions or self.values is None:
            return "continuous"
        is_code = self._are_codes or len(self.values) <= FEW_VALUES
        return "categorical" if is_code else "continuous"

    def attribute(self, name: str, kind: Kind, special: int) -> Attribute:
        """Return the column of the schema, with ``special`` codes after the values.

        Raises:
            DataError: If there are too many different categories.
        """
        if kind == "continuous":
            return Attribute(name, 0)
        if self.values is None:
            raise DataError(
                f"attribute '{name}' has more than {MAX_CODES:,} different values, too many for "
                "categories; leave it out."
            )
        values = self._ordered
        if self._are_codes:
            values = [k if k in self.values else "" for k in range(max(values, default=0) + 1)]
        return Attribute(name, len(values) + special, values=tuple(map(str, values)))


class Survey:
    """Collects what all graphs of an input hold; :meth:`schema` returns how to read them.

    Args:
        node: Names of node attributes.
        edge: Names of edge attributes.
        matrices: Whether attributes are matrices without names, which may be one-hot.
    """

    def __init__(self, node: Sequence[str], edge: Sequence[str], matrices: bool = False) -> None:
        self.names = {"node": tuple(node), "edge": tuple(edge)}
        self.columns = {kind: [ColumnSurvey() for _ in names] for kind, names in self.names.items()}
        self._is_one_hot = {kind: matrices and len(n) > 1 for kind, n in self.names.items()}
        self._hot = {"node": set[int](), "edge": set[int]()}
        self.max_degree = 0

    def add(self, graphs: RawGraphs) -> None:
        """Include more graphs."""
        for kind, columns in (("node", graphs.node), ("edge", graphs.edge)):
            for survey, column in zip(self.columns[kind], columns, strict=True):
                survey.add(column)
            if self._is_one_hot[kind]:
                positions, is_bad = _hot_positions(columns)
                self._is_one_hot[kind] = not is_bad.any()
                self._hot[kind] |= set(np.unique(positions).tolist())
        if all(c.is_constant for c in self.columns["node"]):
            self.max_degree = max(self.max_degree, int(graphs.degrees.max(initial=0)))

    def schema(
        self, kinds: Mapping[str, str] | None = None, keep_constant: bool = True
    ) -> FeatureSchema:
        """Return the schema of the graphs, without means (see :class:`ScaleSurvey`).

        Args:
            kinds: Columns to be read as ``categorical`` or ``continuous`` whatever they hold.
            keep_constant: Whether node attributes that never change are kept; if not, the degree
                replaces them.

        Raises:
            ConfigError: If ``kinds`` has an unknown column or kind.
            DataError: If a column has too many categories.
        """
        chosen: dict[str, Any] = dict(kinds or {})
        known = (*self.names["node"], *self.names["edge"])
        for key, kind in chosen.items():
            check_name("attribute", key, known)
            check_name("kind of attribute", kind, ("categorical", "continuous"))
        node, edge = self._attributes("node", chosen), self._attributes("edge", chosen)
        is_constant = all(c.is_constant for c in self.columns["node"])
        if not node or (is_constant and not keep_constant):
            codes = min(self.max_degree, DEGREE_CAP) + 1
            node = (Attribute("degree", codes + _SPECIAL_CODES["node"], origin="degree"),)
        schema = FeatureSchema("inferred", "graph", node, edge, masked="node")
        return with_columns(schema, node, edge)

    def _attributes(self, kind: str, chosen: Mapping[str, Any]) -> tuple[Attribute, ...]:
        names, special, hot = self.names[kind], _SPECIAL_CODES[kind], self._hot[kind]
        if self._is_one_hot[kind] and hot and chosen.keys().isdisjoint(names):
            values = tuple(str(k) if k in hot else "" for k in range(len(names)))
            return (Attribute(f"{kind}_0", len(values) + special, values=values, origin="one-hot"),)
        return tuple(
            survey.attribute(name, chosen.get(name, survey.kind()), special)
            for name, survey in zip(names, self.columns[kind], strict=True)
        )


def _hot_positions(columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of the 1 in every row, and which rows are not 0 except for a single 1."""
    matrix = np.stack([_as_numbers(column) for column in columns], axis=1)
    is_bad = ~(np.isin(matrix, (0, 1)).all(axis=1) & (matrix.sum(axis=1) == 1))
    return matrix.argmax(axis=1), is_bad


def in_order(graphs: Collection, schema: FeatureSchema) -> Collection:
    """Return graphs whose attributes are in the order of the schema's columns of the same names.

    Files without a header stay as they are.

    Raises:
        DataError: If a column of the schema is missing, or the schema does not know one.
    """
    if not graphs.has_header:
        return graphs
    node = _positions(graphs.name, "node", graphs.node, schema.node)
    edge = _positions(graphs.name, "edge", graphs.edge, schema.edge)

    def read() -> Iterator[RawGraph]:
        for graph in graphs.read():
            if graph.problem is None:
                columns = (tuple(graph.node[k] for k in node), tuple(graph.edge[k] for k in edge))
                graph = graph._replace(node=columns[0], edge=columns[1])
            yield graph

    return replace(graphs, read=read)


def _positions(
    where: str, kind: str, names: Sequence[str], columns: Sequence[Attribute]
) -> Sequence[int]:
    """Return the position among ``names`` of each column of the schema."""
    wanted = [column.name for column in columns]
    if set(names) == set(wanted):
        return [names.index(name) for name in wanted]
    # The schema of a file without a header has numbers for names, or none of its own columns.
    is_unnamed = wanted == [f"{kind}_{k}" for k in range(len(wanted))]
    if wanted and (is_unnamed or all(column.origin != "given" for column in columns)):
        return range(len(names))
    differences = {
        "missing": [name for name in wanted if name not in names],
        "unknown": [name for name in names if name not in wanted],
    }
    found = "; ".join(f"{what}: {', '.join(which)}" for what, which in differences.items() if which)
    known = ", ".join(wanted) or "none"
    raise DataError(
        f"{where}: {kind} columns must be those of the schema ({known}), in any order; {found}. "
        "Rename, add or drop columns."
    )


class Unfit(NamedTuple):
    """A node or edge with a value that the schema has no code for."""

    item: int
    """Its number among all nodes, or all edges."""
    reason: str
    """What is wrong."""


def attribute_codes(
    graphs: RawGraphs, kind: str, columns: tuple[Attribute, ...]
) -> tuple[Float[np.ndarray, "R F"], list[Unfit]]:
    """Return attributes in the codes of the schema's ``columns``, and what does not fit.

    Args:
        graphs: The graphs.
        kind: ``node`` or ``edge``: whose attributes.
        columns: Those of the schema.

    Raises:
        DataError: If the number of columns differs.
    """
    if kind == "node":
        attributes, items = graphs.node, int(graphs.node_counts.sum())
    else:
        attributes, items = graphs.edge, graphs.edge_index.shape[1]
    if len(columns) == 1 and columns[0].origin == "degree":
        degrees = np.minimum(graphs.degrees, columns[0].cardinality - 2)
        return degrees.astype(np.float64)[:, None], []
    unfit: list[Unfit] = []
    if len(columns) == 1 and columns[0].origin == "one-hot" and items and len(attributes) != 1:
        known = columns[0].values
        if len(attributes) != len(known):
            expected = f"{len(known)} columns, 0 but for a single 1"
            raise DataError(f"{kind} attributes must be {expected}, found {len(attributes)}.")
        positions, is_bad = _hot_positions(attributes)
        reason = f"{kind} attributes must be 0 but for a single 1"
        unfit += [Unfit(item, reason) for item in np.flatnonzero(is_bad).tolist()]
        any_known = next(k for k, text in enumerate(known) if text)
        attributes = (np.where(is_bad, any_known, positions),)
    if len(attributes) != len(columns) and items:
        names = ", ".join(c.name for c in columns) or "none"
        expected = f"{len(columns)} attributes ({names})"
        raise DataError(f"every {kind} must have {expected}, found {len(attributes)}.")
    codes = np.zeros((items, len(columns)))
    for k, (values, attribute) in enumerate(zip(attributes, columns, strict=False)):
        convert = _category_codes if attribute.is_categorical else _finite_numbers
        codes[:, k], is_bad = convert(values, attribute)
        name = f"{kind} attribute '{attribute.name}'"
        for item in np.flatnonzero(is_bad).tolist():
            unfit.append(Unfit(item, f"{name} {_problem(values[item], attribute)}"))
    return codes, unfit


def _category_codes(values: Column, attribute: Attribute) -> tuple[np.ndarray, np.ndarray]:
    """Return the code of every value, and which values have none."""
    if not attribute.values:  # codes as they are: one of the named schemas
        codes, _ = _finite_numbers(values, attribute)
        is_bad = ~((codes >= 0) & (codes < attribute.cardinality) & (codes == np.floor(codes)))
        return np.where(is_bad, 0, codes), is_bad | (_as_numbers(values) != codes)
    code_of = {text: code for code, text in enumerate(attribute.values) if text}
    different, inverse = values, np.arange(len(values))
    if values.dtype != object:
        different, inverse = np.unique(values, return_inverse=True)
    codes = np.array([code_of.get(text_of(v), -1) for v in different.tolist()], dtype=np.int64)
    codes = codes[inverse.reshape(-1)]
    return np.maximum(codes, 0), codes < 0


def _finite_numbers(values: Column, _: Attribute) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as numbers, and which of them are no finite number."""
    numbers = _as_numbers(values)
    with np.errstate(over="ignore"):
        is_bad = ~np.isfinite(numbers.astype(np.float32))
    return np.where(is_bad, 0.0, numbers), is_bad


def _problem(value: object, attribute: Attribute) -> str:
    if value is None:
        return "is missing"
    if not attribute.is_categorical:
        return f"must be a finite number, found {text_of(value)!r}"
    if not attribute.values:
        return f"must be a code in [0, {attribute.cardinality}), found {text_of(value)}"
    if isinstance(value, float) and not np.isfinite(value):
        return f"must be finite, found {value}"
    unknown = "a category that the schema does not know: it was not there when the schema was made"
    return f"is {text_of(value)!r}, {unknown}"


def _as_numbers(values: Column) -> Float[np.ndarray, "R"]:
    if values.dtype == object:
        numbers = [v if isinstance(v, int | float) else np.nan for v in values.tolist()]
        return np.array(numbers, dtype=np.float64)
    return values.astype(np.float64)


def text_of(value: object) -> str:
    """Return the name of a category, the same however its number is written."""
    is_whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if is_whole else str(value)  # pyright: ignore[reportArgumentType]


def chunk_of(
    graphs: Sequence[RawGraph], schema: FeatureSchema, directed: bool = False
) -> tuple[GraphChunk, dict[int, str]]:
    """Return the usable graphs in the codes of ``schema``, and why each other one is not usable.

    ``rows`` of the chunk and keys of the reasons are positions in ``graphs``. Quantities are still
    those of the input, not yet rounded to the 32 bits of a store.

    Unless ``directed``, an edge stands for both directions however often and in whichever direction
    it is listed, and self-loops are dropped, since every encoder adds one to each node.

    Args:
        graphs: The graphs.
        schema: How to read their attributes.
        directed: Whether an edge is one direction only.

    Raises:
        DataError: If the number of attributes differs from the schema's.
    """
    problems = {k: graph.problem for k, graph in enumerate(graphs) if graph.problem is not None}
    tried = [k for k in range(len(graphs)) if k not in problems]
    raw = join([graphs[k] for k in tried])
    x, unfit_nodes = attribute_codes(raw, "node", schema.node)
    edge_attr, unfit_edges = attribute_codes(raw, "edge", schema.edge)
    for unfit, counts, kind in (
        (unfit_nodes, raw.node_counts, "node"),
        (unfit_edges, raw.edge_counts, "edge"),
    ):
        ends = np.cumsum(counts)
        for item, reason in unfit:
            at = int(np.searchsorted(ends, item, side="right"))
            local, graph = item - int(ends[at] - counts[at]), graphs[tried[at]]
            place = (graph.node_place if kind == "node" else graph.edge_place).of(local)
            problems.setdefault(tried[at], f"{place}{kind} {local}: {reason}")
    edges = np.arange(raw.edge_index.shape[1])
    if not directed:
        edges = _undirected_edges(raw, edge_attr, tried, problems)
    good = np.array([k not in problems for k in tried], dtype=np.bool_)
    node_graph = np.repeat(np.arange(len(tried)), raw.node_counts)
    edges = edges[good[raw.edge_graph[edges]]]
    edge_counts = np.bincount(raw.edge_graph[edges], minlength=len(tried))[good]
    chunk = GraphChunk(
        node_counts=raw.node_counts[good],
        edge_counts=edge_counts.astype(np.int64),
        x=x[good[node_graph]].astype(np.float64 if is_continuous(schema.node) else np.int64),
        edge_index=raw.edge_index[:, edges],
        edge_attr=edge_attr[edges].astype(np.float64 if is_continuous(schema.edge) else np.int64),
        rows=np.array(tried, dtype=np.int64)[good],
        undirected=not directed,
    )
    return chunk, problems


def check_sizes(graph: RawGraph) -> str | None:
    """Return what is wrong with the number of nodes or the ends of edges; None if nothing is."""
    if graph.num_nodes < 1:
        return "has no node"
    if graph.num_nodes > MAX_NODES:
        limit = f"more than the {MAX_NODES:,} that a graph may have"
        return f"{graph.node_place.of(0)}has {graph.num_nodes:,} nodes, {limit}"
    outside = ((graph.edge_index < 0) | (graph.edge_index >= graph.num_nodes)).any(axis=0)
    if not outside.any():
        return None
    e = int(outside.argmax())
    a, b = graph.edge_index[:, e].tolist()
    return f"{graph.edge_place.of(e)}edge {a} - {b} must join nodes in [0, {graph.num_nodes})"


def _undirected_edges(
    raw: RawGraphs, edge_attr: np.ndarray, tried: Sequence[int], problems: dict[int, str]
) -> np.ndarray:
    """Return the first listing of every edge; adds graphs whose listings differ to ``problems``."""
    graph, ends = raw.edge_graph, raw.edge_index
    low, high = ends.min(axis=0, initial=2**62), ends.max(axis=0, initial=-1)
    order = np.lexsort((high, low, graph))  # stable: listings of an edge stay in their order
    keys = np.stack([graph, low, high])[:, order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    first = order[is_first][np.cumsum(is_first) - 1]
    for e in order[(edge_attr[order] != edge_attr[first]).any(axis=1)].tolist():
        a, b = ends[:, e].tolist()
        problem = f"edge {a} - {b} is listed twice with different attributes"
        advice = "correct it, or read the graphs as directed"
        problems.setdefault(tried[int(graph[e])], f"{problem}; {advice}")
    chosen = np.sort(order[is_first])
    return chosen[ends[0, chosen] != ends[1, chosen]]
