"""Inference of a schema from the attributes of graphs, and encoding of attributes by a schema."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float64, Num

from graphlog.data.graphs import Attribute, FeatureSchema, GraphChunk, Reject, is_continuous
from graphlog.data.tables import WORDS, code_note, listed
from graphlog.domains.graph.raw import (
    Collection,
    Column,
    Item,
    Numeral,
    RawGraph,
    RawGraphs,
    as_number,
    cell,
    is_absent,
    join,
)
from graphlog.errors import DataError, check_name

Kind = Literal["categorical", "continuous"]

MAX_CODES = 4096
"""Non-negative integers below this are codes; a column of words has at most this many values."""
FEW_VALUES = 64
"""Other integers (negative, large) are categories up to this number of different values."""
MAX_CLASSES = 1000
"""Largest number of classes of a label."""
DEGREE_CAP = 255
"""Largest degree with its own code; larger degrees share it."""
_SPECIAL_CODES: Mapping[Item, int] = {"node": 1, "edge": 2}
"""Number of codes after the values: "masked", and for edges "self-loop"."""
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+")
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_ROUNDING_LIMIT = 0.01
"""Largest rounding error without a note, as a fraction of the standard deviation of a quantity."""


class Moments:
    """Means and standard deviations of columns as a store keeps them (float32), added in parts."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self.mean = self.squares = np.zeros(columns)
        self.rounding = np.zeros(columns)
        """Largest change of a value by rounding to 32 bits, for each column."""
        self.min, self.max = np.full(columns, np.inf), np.full(columns, -np.inf)

    def add(self, rows: Num[np.ndarray, "R F"]) -> None:
        """Add rows of finite numbers; matrices of integers, which are codes, are ignored."""
        if len(rows) and rows.dtype.kind == "f":
            given, total = np.ascontiguousarray(rows.T, np.float64), self.count + len(rows)
            values = given.astype(np.float32).astype(np.float64)
            self.rounding = np.maximum(self.rounding, np.abs(given - values).max(axis=1))
            self.min = np.minimum(self.min, given.min(axis=1))
            self.max = np.maximum(self.max, given.max(axis=1))
            mean = values.mean(axis=1)
            shift = mean - self.mean
            self.squares = self.squares + ((values - mean[:, None]) ** 2).sum(axis=1)
            self.squares += shift * shift * self.count * len(rows) / total
            self.mean = self.mean + shift * len(rows) / total
            self.count = total

    @property
    def std(self) -> Float64[np.ndarray, "F"]:
        """Standard deviation of each column; 0 if all its values are equal."""
        spread = np.sqrt(self.squares / max(self.count, 1))
        return np.where(self.max.astype(np.float32) > self.min.astype(np.float32), spread, 0.0)

    def scaled(self, columns: Sequence[Attribute]) -> tuple[Attribute, ...]:
        """Return the columns; quantities get their mean and standard deviation (1 instead of 0)."""
        scales = np.where(self.std > 0, self.std, 1.0).tolist()
        return tuple(
            a if a.is_categorical else replace(a, shift=shift, scale=scale)
            for a, shift, scale in zip(columns, self.mean.tolist(), scales, strict=True)
        )

    def notes(self, item: Item, columns: Sequence[Attribute]) -> list[str]:
        """Return a note on each quantity that 32 bits change by 1 % of its standard deviation."""
        return [
            f"{item} attribute '{a.name}': values near {mean:.4g} are rounded by up to {error:.2g} "
            f"(32 bits); their standard deviation is {std:.2g}; subtract a constant from them"
            for a, mean, error, std, varies in zip(
                columns, self.mean, self.rounding, self.std, self.max > self.min, strict=True
            )
            if not a.is_categorical and varies and error > _ROUNDING_LIMIT * std
        ]


def with_columns(
    schema: FeatureSchema, node: tuple[Attribute, ...], edge: tuple[Attribute, ...]
) -> FeatureSchema:
    """Return the schema with other columns, and their rows for "masked" and "self-loop"."""
    return replace(
        schema,
        node=node,
        edge=edge,
        node_mask=_special_row(node, 1),
        edge_mask=_special_row(edge, 2) if edge else None,
        self_loop=_special_row(edge, 1) if edge else None,
    )


def _special_row(columns: Sequence[Attribute], from_last: int) -> tuple[float, ...]:
    """Return a code of each column, counted from its last; in continuous columns the mean."""
    return tuple(float(c.cardinality - from_last) if c.is_categorical else c.shift for c in columns)


class ColumnSurvey:
    """Collects the different values of a column, up to a limit, and counts them by type."""

    def __init__(self) -> None:
        self.values: set[Any] = set()
        self.absent: set[str] = set()
        """Words for a missing value; in a column of words, they may be names (Na, none)."""
        self.numerals: set[str] = set()
        """Numerals such as ``2E1``: names in a column of words, else quantities."""
        self.num_words = self.num_numbers = 0
        self.has_fractions = False

    def add(self, column: Column) -> None:
        """Add values of the column; missing and infinite values are ignored."""
        words: list[str] = []
        if column.dtype == object:
            numerals = [v for v in column.tolist() if isinstance(v, Numeral)]
            self.num_numbers += len(numerals)
            if len(self.numerals) <= MAX_CODES:
                self.numerals.update(numerals)
            words = [v for v in column.tolist() if isinstance(v, str) and type(v) is not Numeral]
            self.absent.update(filter(is_absent, set(words)))
            words = [word for word in words if word not in self.absent]
            numbers = [v for v in column.tolist() if not isinstance(v, str | None) and isfinite(v)]
            is_float = any(isinstance(v, float) for v in numbers)
            column = np.array(numbers, dtype=np.float64 if is_float else np.int64)
        if column.dtype.kind == "f":
            column = column[np.abs(column) <= _FLOAT32_MAX]  # NaN compares false
            # numbers written with a point are quantities even if all are integers
            self.has_fractions |= len(column) > 0
        self.num_words += len(words)
        self.num_numbers += len(column)
        if len(self.values) <= MAX_CODES:
            self.values.update(np.unique(column).tolist(), words)

    @property
    def _known(self) -> set[Any]:
        """Values except words for a missing one; in a column of words, numerals are names too."""
        numerals = self.numerals if self.num_words else map(as_number, self.numerals)
        return self.values.union(numerals)

    @property
    def categories(self) -> set[Any]:
        """Values as categories, with words for a missing one unless all others are numbers."""
        has_only_numbers = self.num_numbers > 0 and not self.num_words
        return self._known if has_only_numbers else self._known | self.absent

    @property
    def decimal_comma(self) -> str | None:
        """A word such as ``0,5`` if all words are numbers with a comma, else None."""
        words = sorted(value for value in self.values if isinstance(value, str))
        return words[0] if words and all(map(_DECIMAL_COMMA.fullmatch, words)) else None

    @property
    def _are_codes(self) -> bool:
        return all(
            not isinstance(value, str) and 0 <= value < MAX_CODES and value == int(value)
            for value in self.categories
        )

    def kind(self) -> Kind:
        """Return whether the column holds categories or quantities."""
        if self.num_words:
            # a few words among fractions are mistakes, to be rejected; otherwise all are names
            is_mistake = self.has_fractions and self.num_words <= self.num_numbers
            return "continuous" if is_mistake else "categorical"
        is_few = len(self.values) <= (MAX_CODES if self._are_codes else FEW_VALUES)
        are_quantities = self.has_fractions or self.numerals
        return "categorical" if is_few and not are_quantities else "continuous"

    @property
    def is_class(self) -> bool:
        """Whether the label is a class: it has words that are not mistakes among fractions."""
        # 1.0 and 2.0 are not fractions here, because classes may be written so
        has_fractions = any(isinstance(v, float) and v % 1 for v in self.values)
        return self.num_words > (self.num_numbers if has_fractions else 0)

    @property
    def has_texts(self) -> bool:
        """Whether there are more different words than a label may have classes."""
        return sum(isinstance(value, str) for value in self.values) > MAX_CLASSES

    @property
    def absent_labels(self) -> set[str]:
        """Words for a missing label; beside other words, ``-``, ``?`` and ``none`` are classes."""
        classes = {"-", "?", "none"} if self.num_words else set[str]()
        return {word for word in self.absent if word.strip().lower() not in classes}

    def classes(self, name: str) -> tuple[str, ...]:
        """Return the names of the classes of a label; of active and inactive, active is class 1."""
        names = _names(name, self._known | (self.absent - self.absent_labels), MAX_CLASSES)
        is_reversed = [WORDS.get(word.strip().lower()) for word in names] == [1.0, 0.0]
        return names[::-1] if is_reversed else names

    def attribute(self, name: str, kind: Kind, special: int) -> Attribute:
        """Return the attribute for the schema, with ``special`` codes after those of the values."""
        if kind == "continuous":
            return Attribute(name, 0)
        values = _names(name, self.categories, MAX_CODES)
        if self._are_codes:  # each number is its own code
            codes = range(int(max(self._known, default=0)) + 1)
            values = tuple(str(code) if str(code) in values else "" for code in codes)
        return Attribute(name, len(values) + special, values=values)


def _names(column: str, values: set[Any], limit: int) -> tuple[str, ...]:
    """Return the names of categories, numbers first; raise an error for more than ``limit``."""
    if len(values) > limit:
        raise DataError(
            f"'{column}' has more than {limit:,} different values, too many for categories; leave "
            "it out if it is a name, and write quantities as numbers (TUDataset: in its files of "
            "attributes)."
        )
    ordered = sorted(values, key=lambda value: (isinstance(value, str), value))
    return tuple(dict.fromkeys(map(text_of, ordered)))


class Survey:
    """Collects the values of all attributes and labels of an input, to infer its schema."""

    def __init__(self, graphs: Collection, items: Sequence[Item]) -> None:
        names = {"node": graphs.node, "edge": graphs.edge, "graph": graphs.labels}
        self._graphs, self._max_degree = graphs, 0
        self._columns: dict[Item, dict[str, ColumnSurvey]] = {
            item: {name: ColumnSurvey() for name in names[item]} for item in items
        }
        # positions of the 1 in one-hot rows; an item with any other row is removed
        self._hot: dict[Item, set[int]] = {
            item: set()
            for item in items
            if graphs.matrices and item != "graph" and len(names[item]) > 1
        }

    @property
    def _is_constant(self) -> bool:
        return all(len(column.categories) == 1 for column in self._columns["node"].values())

    def add(self, graphs: RawGraphs) -> None:
        """Add graphs."""
        for item, surveys in self._columns.items():
            for survey, column in zip(surveys.values(), graphs.columns[item], strict=True):
                survey.add(column)
            if item in self._hot:
                positions, is_bad = _hot_positions(graphs.columns[item])
                self._hot[item].update(np.unique(positions).tolist())
                if is_bad.any():
                    del self._hot[item]
        if "node" in self._columns and self._is_constant:
            self._max_degree = max(self._max_degree, int(graphs.degrees.max(initial=0)))

    def check_constant(self) -> None:
        """Raise an error if a node attribute varies: a schema of degrees would not read it."""
        columns = self._columns.get("node", {}).items()
        if varying := [name for name, column in columns if len(column.categories) > 1]:
            raise DataError(
                f"{self._graphs.name}: node attributes ({', '.join(varying)}) are unknown to the "
                "schema, which uses node degrees instead; drop them, or train a model with them."
            )

    def schema(self, kinds: Mapping[str, str] | None = None) -> FeatureSchema:
        """Return the schema of the graphs without means; for ``kinds`` see ``GraphReading``."""
        chosen: dict[str, Any] = dict(kinds or {})
        known = (*self._columns["node"], *self._columns["edge"])
        for name, kind in chosen.items():
            check_name("attribute", name, known)
            check_name("kind of attribute", kind, ("categorical", "continuous"))
        node, edge = self._attributes("node", chosen), self._attributes("edge", chosen)
        if not node or (self._is_constant and not chosen and not self._graphs.keep_constant):
            codes = min(self._max_degree, DEGREE_CAP) + 1
            node = (Attribute("degree", codes + _SPECIAL_CODES["node"], origin="degree"),)
        schema = FeatureSchema("inferred", "graph", node, edge, masked="node")
        return with_columns(schema, node, edge)

    def _attributes(self, item: Item, chosen: Mapping[str, Any]) -> tuple[Attribute, ...]:
        columns, special, hot = self._columns[item], _SPECIAL_CODES[item], self._hot.get(item)
        if hot and chosen.keys().isdisjoint(columns):
            values = tuple(str(k) if k in hot else "" for k in range(len(columns)))
            return (Attribute(f"{item}_0", len(values) + special, values=values, origin="one-hot"),)
        return tuple(
            survey.attribute(name, chosen.get(name, survey.kind()), special)
            for name, survey in columns.items()
        )

    def labels(self, known: Mapping[str, Sequence[str]], are_wanted: bool) -> tuple[Attribute, ...]:
        """Return the labels: words become classes (in the order ``known``), numbers quantities.

        Columns with too many different words are left out unless ``are_wanted``.
        """
        labels: list[Attribute] = []
        for name, survey in self._columns["graph"].items():
            classes = tuple(known.get(name, ()))
            if not classes and (survey.is_class or name in self._graphs.classes):
                if survey.has_texts and not are_wanted:
                    continue
                classes = survey.classes(name)
            labels.append(Attribute(name, len(classes), values=classes))
        return tuple(labels)

    def notes(self, classes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return notes on the labels and attributes that were not read as they are written."""
        notes: list[str] = []
        for item, columns in self._columns.items():
            kind = "label" if item == "graph" else f"{item} attribute"
            for name, survey in columns.items():
                if (word := survey.decimal_comma) is not None:
                    problem = f"words such as {word} are read as categories"
                    notes.append(f"{kind} '{name}': {problem}; write numbers with a decimal point")
        for name, survey in self._columns["graph"].items():
            words = classes.get(name, ())
            if survey.has_texts and survey.is_class and not words:
                problem = f"more than {MAX_CLASSES:,} different words"
                notes.append(f"column '{name}' of graphs is left out: {problem}")
            if words == [str(k) for k in range(len(words))]:
                pass  # each class is its own number
            elif len(words) == 2:
                notes.append(f"label '{name}': class 0 is {words[0]}, class 1 is {words[1]}")
            elif words:
                kinds = "one class" if len(words) == 1 else f"{len(words)} classes"
                alike = len({word.lower() for word in words}) < len(words)
                hint = "; some differ in case only: write each class in one way" if alike else ""
                notes.append(f"label '{name}': {kinds} ({listed(words)}){hint}")
            codes = sorted(filter(str.isdecimal, survey.numerals))
            if codes and not words:
                notes.append(code_note(f"label '{name}'", codes[0]))
            if survey.absent_labels:
                absent = listed(sorted(survey.absent_labels))
                notes.append(f"label '{name}': read as missing: {absent}")
        return tuple(notes)


def _hot_positions(columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of the 1 in every row, and a mask of the rows that are not one-hot."""
    matrix = np.stack([_as_numbers(column) for column in columns], axis=1).astype(np.float32)
    is_bad = ~(np.isin(matrix, (0, 1)).all(axis=1) & (matrix.sum(axis=1) == 1))
    return matrix.argmax(axis=1), is_bad


def columns_wanted(
    graphs: Collection, item: Literal["node", "edge"], columns: tuple[Attribute, ...] | None
) -> list[tuple[str, int]]:
    """Return the name of each attribute to read, and its index among those of the input.

    ``columns`` are those of the schema. None reads all, and so does a schema of degrees, with which
    :meth:`Survey.check_constant` is called. Named attributes may be in any order, but must be those
    of the schema.
    """
    given = graphs.node if item == "node" else graphs.edge
    origin, wanted = columns[0].origin if columns else "given", given
    if columns is not None and origin != "degree":
        wanted = tuple(column.name for column in columns)
    if columns and origin == "one-hot":
        wanted = given if len(given) == 1 else tuple(map(str, range(len(columns[0].values))))
        return [(name, k) for k, name in enumerate(wanted)]
    if graphs.has_header and set(given) == set(wanted):
        return [(name, given.index(name)) for name in wanted]
    # in the schema of a file without a header, names are numbers
    is_numbered = bool(wanted) and wanted == tuple(f"{item}_{k}" for k in range(len(wanted)))
    if graphs.has_header and not is_numbered:
        differences = {
            "missing": [name for name in wanted if name not in given],
            "unknown": [name for name in given if name not in wanted],
        }
        other = "; ".join(f"{k}: {', '.join(names)}" for k, names in differences.items() if names)
        known = ", ".join(wanted) or "none"
        raise DataError(
            f"{graphs.name}: {item} columns must be those of the schema ({known}), in any order; "
            f"{other}. Rename, add or drop columns."
        )
    return [(name, k) for k, name in enumerate(wanted)]


def attribute_codes(
    graphs: RawGraphs, item: Item, columns: tuple[Attribute, ...]
) -> tuple[Float[np.ndarray, "R F"], dict[int, str]]:
    """Return the encoded attributes, and the problem of each node, edge or graph that has one.

    A missing label is NaN; a missing attribute is a problem.
    """
    attributes, count = graphs.columns[item], int(graphs.counts[item].sum())
    problems: dict[int, str] = {}
    if len(columns) == 1 and columns[0].origin == "degree":
        degrees = np.minimum(graphs.degrees, columns[0].cardinality - 2)
        return degrees.astype(np.float64)[:, None], problems
    if len(columns) == 1 and columns[0].origin == "one-hot" and len(attributes) > 1:
        known = columns[0].values
        positions, is_bad = _hot_positions(attributes)
        reason = f"{item} attributes must be 0 but for a single 1"
        problems |= dict.fromkeys(np.flatnonzero(is_bad).tolist(), reason)
        any_known = next(k for k, text in enumerate(known) if text)
        attributes = (np.where(is_bad, any_known, positions),)
    codes = np.zeros((count, len(columns)))
    for k, (values, attribute) in enumerate(zip(attributes, columns, strict=bool(count))):
        convert = _category_codes if attribute.is_categorical else _finite_numbers
        codes[:, k], is_bad = convert(values, attribute)
        kind = "label" if item == "graph" else f"{item} attribute"
        if item == "graph":
            missing = [
                v is None or v != v or (is_absent(v) and v not in attribute.values)
                for v in values.tolist()
            ]
            is_missing = np.array(missing, dtype=np.bool_)
            codes[is_missing, k] = np.nan
            is_bad = is_bad & ~is_missing
        for position in np.flatnonzero(is_bad).tolist():
            problem = _problem(values[position], attribute)
            problems.setdefault(position, f"{kind} '{attribute.name}' {problem}")
    return codes, problems


def _category_codes(values: Column, attribute: Attribute) -> tuple[np.ndarray, np.ndarray]:
    """Return the code of every value, and a mask of the values without one."""
    if not attribute.values:  # a named schema, in which values are codes
        codes, _ = _finite_numbers(values, attribute)
        is_bad = ~((codes >= 0) & (codes < attribute.cardinality) & (codes == np.floor(codes)))
        return np.where(is_bad, 0, codes), is_bad | (_as_numbers(values) != codes)
    code_of = {text: code for code, text in enumerate(attribute.values) if text}
    are_numbers = not any(isinstance(cell(text), str) for text in code_of)
    unique, inverse = values, np.arange(len(values))
    if values.dtype != object:
        unique, inverse = np.unique(values, return_inverse=True)
    names = map(as_number, unique.tolist()) if are_numbers else unique.tolist()
    # None and NaN are missing, also where a category has such a name
    found = [
        -1 if name is None or name != name else code_of.get(text_of(name), -1) for name in names
    ]
    codes = np.array(found, dtype=np.int64)[inverse.reshape(-1)]
    return np.maximum(codes, 0), codes < 0


def _finite_numbers(values: Column, _: Attribute) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as numbers, and a mask of those that are not finite in 32 bits."""
    numbers = _as_numbers(values)
    with np.errstate(over="ignore"):
        is_bad = ~np.isfinite(numbers.astype(np.float32))
    return np.where(is_bad, 0.0, numbers), is_bad


def _problem(value: object, attribute: Attribute) -> str:
    if value is None:
        return "is missing"
    if not attribute.is_categorical:
        limit = f"a finite number up to {_FLOAT32_MAX:.2g}"
        return f"must be {limit}, found {str(value)!r:.40}"
    if not attribute.values:
        return f"must be a code in [0, {attribute.cardinality}), found {text_of(value)}"
    if isinstance(value, float) and not np.isfinite(value):
        return f"must be finite, found {value}"
    unknown = "a category that the schema does not know: it was not there when the schema was made"
    return f"is {text_of(value)!r}, {unknown}"


def _as_numbers(values: Column) -> Float[np.ndarray, "R"]:
    if values.dtype == object:
        numbers = map(as_number, values.tolist())
        numbers = [v if isinstance(v, int | float) else np.nan for v in numbers]
        return np.array(numbers, dtype=np.float64)
    return values.astype(np.float64)


def text_of(value: object) -> str:
    """Return the name of a category; an integer has one name in all types (True, 1, 1.0)."""
    is_whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if is_whole else str(value)  # pyright: ignore[reportArgumentType]


def chunk_of(
    graphs: Sequence[RawGraph],
    schema: FeatureSchema,
    labels: tuple[Attribute, ...] = (),
    directed: bool = False,
) -> tuple[GraphChunk, list[Reject]]:
    """Return the usable graphs encoded by ``schema``, and the others with the reasons.

    Quantities are not yet rounded to the 32 bits of a store. Unless ``directed``, an edge that is
    listed several times or in both directions is one undirected edge, and self-loops are dropped,
    because every encoder adds one to each node.
    """
    candidates = [graph for graph in graphs if graph.problem is None]
    raw = join(candidates)
    problems: dict[int, str] = {}
    codes: dict[Item, Float[np.ndarray, "R F"]] = {}
    items: tuple[Item, ...] = ("graph", "node", "edge")
    for item, columns in zip(items, (labels, schema.node, schema.edge), strict=True):
        codes[item], item_problems = attribute_codes(raw, item, columns)
        owner, counts = raw.owners(item), raw.counts[item]
        first = np.cumsum(counts) - counts
        for position, reason in item_problems.items():
            k = int(owner[position])
            problems.setdefault(k, candidates[k].where(item, position - int(first[k])) + reason)
    owner = raw.owners("edge")
    edges = np.arange(len(owner))
    if not directed:
        edges = _undirected_edges(candidates, raw, codes["edge"], problems)
    good = np.array([k not in problems for k in range(len(candidates))], dtype=np.bool_)
    edges = edges[good[owner[edges]]]
    edge_counts = np.bincount(owner[edges], minlength=len(candidates))[good]
    x, edge_attr = codes["node"][good[raw.owners("node")]], codes["edge"][edges]
    used = [graph for k, graph in enumerate(candidates) if k not in problems]
    chunk = GraphChunk(
        node_counts=raw.counts["node"][good],
        edge_counts=edge_counts.astype(np.int64),
        x=x.astype(np.float64 if is_continuous(schema.node) else np.int64),
        edge_index=raw.edge_index[:, edges],
        edge_attr=edge_attr.astype(np.float64 if is_continuous(schema.edge) else np.int64),
        rows=np.array([graph.row for graph in used], dtype=np.int64),
        texts=[graph.text for graph in used],
        labels=codes["graph"][good] if labels else None,
        undirected=not directed,
    )
    bad = [graph for graph in graphs if graph.problem is not None]
    bad += [candidates[k]._replace(problem=problem) for k, problem in problems.items()]
    rejects = [Reject(graph.row, graph.text, str(graph.problem)) for graph in bad]
    return chunk, sorted(rejects, key=lambda reject: reject.row)


def _undirected_edges(
    graphs: Sequence[RawGraph], raw: RawGraphs, edge_attr: np.ndarray, problems: dict[int, str]
) -> np.ndarray:
    """Return the first listing of every edge; add graphs whose listings differ to ``problems``."""
    graph, ends = raw.owners("edge"), raw.edge_index
    edge_attr = edge_attr.astype(np.float32)  # as a store keeps them
    low, high = ends.min(axis=0, initial=2**62), ends.max(axis=0, initial=-1)
    order = np.lexsort((high, low, graph))  # stable: listings of an edge stay in their order
    keys = np.stack([graph, low, high])[:, order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    first = order[is_first][np.cumsum(is_first) - 1]
    for e in order[(edge_attr[order] != edge_attr[first]).any(axis=1)].tolist():
        k = int(graph[e])
        where = graphs[k].place_of_edge(e - int(np.searchsorted(graph, k)))
        problem = "is listed twice with different attributes"
        advice = "correct it, or read the graphs as directed"
        problems.setdefault(k, f"{where} {problem}; {advice}")
    chosen = np.sort(order[is_first])
    return chosen[ends[0, chosen] != ends[1, chosen]]
