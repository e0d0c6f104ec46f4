"""Graphs of any kind as a domain: attributes are inferred; there are no texts and no groups.

Labels are numbers as they are, and words as the numbers of their classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from graphlog.data.graphs import FeatureSchema, Reject
from graphlog.data.manifest import Source, is_store
from graphlog.data.store import GraphStore, RowCollector, StoreBuilder
from graphlog.datasets import DatasetSpec
from graphlog.domains.base import Domain, HasDataSets, Input, Reading
from graphlog.domains.graph.formats import (
    GIN_SUFFIXES,
    JSON_SUFFIXES,
    find_opener,
    open_collection,
    open_tudataset,
)
from graphlog.domains.graph.raw import FLOAT32_MAX, Collection, RawGraph, as_float, join
from graphlog.domains.graph.schema import (
    ScaleSurvey,
    Survey,
    check_sizes,
    chunk_of,
    in_order,
    text_of,
)
from graphlog.errors import ConfigError, DataError, setting

_GRAPHS_PER_CHUNK = 1000
_MAX_CLASSES = 1000


class LabelSurvey:
    """Turns labels of graphs into numbers: numbers as they are, words as the numbers of classes.

    All labels must be added before the first is converted.

    Args:
        names: Names of the label columns.
        classes: Labels that are classes even if they are numbers.
        known: Classes of labels in the order of their numbers, if they are fixed.
    """

    def __init__(
        self,
        names: Sequence[str],
        classes: Sequence[str] = (),
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.names = tuple(names)
        self._always = frozenset(classes)
        self._known = {name: list(t) for name, t in (known or {}).items() if name in self.names}
        self._values: list[set[Any]] = [set() for _ in names]
        self._has_words = [False] * len(self.names)

    def add(self, labels: Sequence[Any]) -> None:
        """Include the labels of a graph.

        Raises:
            DataError: If a label has too many classes.
        """
        for k, value in enumerate(labels):
            if _is_missing(value):
                continue
            self._has_words[k] |= isinstance(value, str)
            has_classes = self._has_words[k] or self.names[k] in self._always
            if len(self._values[k]) <= _MAX_CLASSES or has_classes:
                self._values[k].add(value)
            if has_classes and len(self._values[k]) > _MAX_CLASSES:
                raise DataError(
                    f"label '{self.names[k]}' has more than {_MAX_CLASSES:,} classes; leave it out "
                    "if it is a name, and give quantities as numbers (TUDataset: "
                    "NAME_graph_attributes.txt)."
                )

    @property
    def classes(self) -> dict[str, list[str]]:
        """Classes of the labels that have any, in the order of their numbers.

        Numbers come first, then words.
        """
        classes = dict(self._known)
        for name, values, words in zip(self.names, self._values, self._has_words, strict=True):
            if name not in classes and (words or name in self._always):
                ordered = sorted(values, key=lambda value: (isinstance(value, str), value))
                classes[name] = list(dict.fromkeys(map(text_of, ordered)))
        return classes

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each label of two classes that are not called 0 and 1."""
        return tuple(
            f"label '{name}': class 0 is {words[0]}, class 1 is {words[1]}"
            for name, words in self.classes.items()
            if len(words) == 2 and words != ["0", "1"]
        )

    def problem(self, labels: Sequence[Any]) -> str | None:
        """Return what is wrong with the labels of a graph; None and NaN are missing labels."""
        for name, value in zip(self.names, labels, strict=False):
            if _is_missing(value):
                continue
            if not isinstance(value, str) and abs(as_float(value)) > FLOAT32_MAX:
                return f"label '{name}' must be finite and below {FLOAT32_MAX:.2g}, or left out"
            if name in self._known and text_of(value) not in self._known[name]:
                known = "a class that the given store does not have"
                return f"label '{name}' is {text_of(value)!r}, {known}"
        return None

    def values(self, labels: Sequence[Sequence[Any]]) -> Float64[np.ndarray, "N T"]:
        """Return the labels of graphs as numbers, NaN where missing."""
        numbers = {name: {t: k for k, t in enumerate(c)} for name, c in self.classes.items()}
        values = np.full((len(labels), len(self.names)), np.nan)
        for row, graph_labels in enumerate(labels):
            for k, (name, value) in enumerate(zip(self.names, graph_labels, strict=False)):
                if not _is_missing(value):
                    is_class = name in numbers
                    values[row, k] = numbers[name][text_of(value)] if is_class else value
        return values


def _is_missing(value: Any) -> bool:
    return value is None or value != value


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphReading(Reading):
    """How any graphs are read; all their labels are, whatever the targets, and by one process."""

    like: GraphStore | None = None
    """A store whose schema and numbers of classes are used."""
    kinds: Mapping[str, str] | None = None
    """Attributes to be read as ``categorical`` or ``continuous``, by name, where the inferred kind
    is wrong."""
    directed: bool | None = None
    """Whether an edge is one direction only; if not, it stands for both, however it is listed. None
    takes what the schema says, else both."""


class GraphDomain(Domain, HasDataSets):
    """Graphs in a folder of tables, JSON lines, TUDataset's or the GIN family's format."""

    name = "graph"
    reading = GraphReading

    def recognizes(self, path: Path) -> bool:
        """Return whether a file or folder holds graphs by its name or first lines."""
        if path.is_dir() and (is_store(path) or (path / "config.toml").is_file()):
            return False
        has_name = path.name.endswith((".zip", *JSON_SUFFIXES, *GIN_SUFFIXES))
        return (has_name or path.is_dir()) and find_opener(path) is not None

    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return any graphs as a store; those that cannot be used are in its ``rejects``.

        The input is read twice: to infer its attributes and classes, and to pack its graphs.

        Args:
            source: A folder of ``edges.csv``, ``nodes.csv`` and ``graphs.csv``; a ``.jsonl`` file
                with one graph a line; a folder or zip of TUDataset; a text file of the GIN family;
                or a data set (``mutag``).
            schema: The schema of a model that is to use the graphs; None infers it.
            reading: How.

        Raises:
            DataError: Naming file, line or graph, if the input cannot be read, or more than half of
                its graphs cannot.
            ConfigError: If an option does not go with the schema.
        """
        assert isinstance(reading, GraphReading)
        schema = reading.like.schema if reading.like is not None else schema
        if schema is not None and reading.kinds:
            raise ConfigError(
                f"{setting('schema')} already says what each attribute is; leave "
                f"{setting('kinds')} out.",
                option="kinds",
            )
        path = source.path if source.spec is None else self.fetch(source.spec, reading.data_dir)
        graphs = open_collection(Path(str(path)))
        if schema is not None and schema.domain != self.name:
            raise ConfigError(
                f"{graphs.name} holds graphs of any kind, but schema '{schema.name}' is for "
                f"{schema.domain}s; leave the schema out."
            )
        graphs = graphs if schema is None else in_order(graphs, schema)
        name = Path(source.name if source.path is None else source.path).name
        return pack(graphs, name, reading, schema)

    def rows(
        self, source: Input, store: GraphStore, reading: Reading
    ) -> Iterator[Mapping[str, str]]:
        """Yield the row number, and the name of each graph where a file has names."""
        plain, is_read = super().rows(source, store, reading), source.store is None
        graphs = open_collection(source.path) if is_read and source.path is not None else None
        if graphs is None or not graphs.names:
            yield from plain
            return
        for row, graph in zip(plain, islice(graphs.read(), reading.limit), strict=True):
            yield {**row, graphs.names: graph.name}

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a zip is whole and holds a TUDataset with the graphs that are expected."""
        try:
            return sum(1 for _ in open_tudataset(path).read()) == spec.rows
        except DataError:
            return False

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return ``stratified`` where the task, or without one every label, is of classes.

        Else ``random``.
        """
        if task is None and store.labels is not None:
            found = store.labels[~np.isnan(store.labels)]
            is_named = len(store.tasks) == 1 and store.tasks[0] in store.source.classes
            is_class = len(found) > 0 and (is_named or bool(np.isin(found, (0, 1)).all()))
            return "stratified" if is_class else "random"
        return "random" if task in (None, "regression") else "stratified"


def pack(
    graphs: Collection,
    name: str,
    how: GraphReading,
    schema: FeatureSchema | None = None,
    read_as: FeatureSchema | None = None,
) -> GraphStore:
    """Return graphs as a store.

    They are read twice: to infer their attributes and classes, and to pack them.

    Args:
        graphs: The graphs, their attributes in the order of the schema.
        name: What the manifest calls them.
        how: How they are read.
        schema: Schema of the store; None infers it.
        read_as: The schema to read their attributes by, where it is another one.

    Raises:
        DataError: If there is no graph, more than half cannot be used, or attributes do not fit.
        ConfigError: If the schema is that of graphs of the other direction.
    """
    directed = direction(schema, how.directed)
    known = None if how.like is None else how.like.source.classes
    labels = LabelSurvey(graphs.labels, graphs.classes, known)
    survey = Survey(graphs.node, graphs.edge, graphs.matrices)
    for chunk in _chunks(graphs, labels, how.limit):
        usable = [graph for graph in chunk if graph.problem is None]
        for graph in usable:
            labels.add(graph.labels)
        if schema is None and usable:
            survey.add(join(usable))
    is_inferred = schema is None
    if schema is None:
        schema = survey.schema(how.kinds, bool(how.kinds) or graphs.keep_constant)
    if schema.domain == DOMAIN.name:
        schema = replace(schema, directed=directed)
    origin = Source(name=name, classes=labels.classes, notes=labels.notes)
    with StoreBuilder(schema, how.store_path, labels.names, origin) as builder:
        collector = RowCollector(builder, graphs.name, how.on_error, how.progress, "graph")
        scales = ScaleSurvey(schema)
        for part in _chunks(graphs, labels, how.limit):
            try:
                chunk, reasons = chunk_of(part, read_as or schema, directed)
            except DataError as e:
                raise DataError(f"{graphs.name}: {e}") from None
            used = [part[k] for k in chunk.rows.tolist()]
            chunk = replace(
                chunk,
                rows=np.array([graph.row for graph in used], dtype=np.int64),
                labels=labels.values([graph.labels for graph in used]) if labels.names else None,
                texts=[graph.text for graph in used] if graphs.has_texts else None,
            )
            rejects = [Reject(part[k].row, part[k].text, reasons[k]) for k in sorted(reasons)]
            collector.add(chunk, rejects, len(part))
            scales.add(chunk)
        if not collector.done:
            raise DataError(f"{graphs.name}: holds no graph.")
        collector.refuse_if_mostly_bad("")
        if is_inferred:
            builder.schema = scales.scaled()
        return builder.finish()


def _chunks(graphs: Collection, labels: LabelSurvey, limit: int | None) -> Iterator[list[RawGraph]]:
    """Yield the graphs, those that cannot be used with their problems, some at a time."""
    checked = (
        graph._replace(problem=graph.problem or labels.problem(graph.labels) or check_sizes(graph))
        for graph in islice(graphs.read(), limit)
    )
    while chunk := list(islice(checked, _GRAPHS_PER_CHUNK)):
        yield chunk


def direction(schema: FeatureSchema | None, directed: bool | None) -> bool:
    """Return whether edges are one direction only, as the schema has them unless it does not say.

    Raises:
        ConfigError: If the schema says otherwise.
    """
    known = None if schema is None else schema.directed
    if None not in (known, directed) and known != directed:
        kind = "directed" if known else "undirected"
        raise ConfigError(
            f"the schema is that of {kind} graphs; leave {setting('directed')} out.",
            option="directed",
        )
    return bool(known if directed is None else directed)


DOMAIN = GraphDomain()
"""What the table of domains looks up."""
