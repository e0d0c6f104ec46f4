"""Graphs of any kind as a domain: attributes are inferred; there are no texts and no groups.

Labels are numbers as they are, and words as the numbers of their classes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from graphlog.data.graphs import FeatureSchema
from graphlog.data.manifest import Source, is_store
from graphlog.data.store import GraphStore, RowCollector, StoreBuilder
from graphlog.datasets import DatasetSpec
from graphlog.domains.base import Domain, Input, Reading
from graphlog.domains.graph.formats import find_opener, open_collection, open_tudataset
from graphlog.domains.graph.raw import Collection, Item, RawGraph, join
from graphlog.domains.graph.schema import Moments, Survey, chunk_of, columns_wanted, with_columns
from graphlog.errors import ConfigError, DataError, check_name, setting

_GRAPHS_PER_CHUNK = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphReading(Reading):
    """How any graphs are read, by one process; without targets, all their labels are."""

    like: GraphStore | None = None
    """A store whose schema and numbers of classes are used."""
    kinds: Mapping[str, str] | None = None
    """Attributes, by name, to read as ``categorical`` or ``continuous`` instead of as inferred."""
    directed: bool | None = None
    """Whether an edge is one direction only; if not, it stands for both, however it is listed. None
    takes what the schema says, else both."""


class GraphDomain(Domain):
    """Graphs in a folder of tables, JSON lines, TUDataset's or the GIN family's format."""

    name = "graph"
    reads_targets = True
    reading = GraphReading

    def recognizes(self, path: Path) -> bool:
        """Return whether a file or folder holds graphs by its name or first lines."""
        if is_store(path) or (path / "config.toml").is_file():
            return False
        return find_opener(path) is not None

    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return any graphs as a store; those that cannot be used are in its ``rejects``.

        Raises:
            DataError: Naming file, line or graph, if the input or most graphs cannot be read.
            ConfigError: If an option does not go with the schema.
        """
        assert isinstance(reading, GraphReading)
        schema = reading.like.schema if reading.like is not None else schema
        if schema is not None and reading.kinds:
            raise ConfigError(
                f"the model, store or schema that is named already says what each attribute is; "
                f"drop {setting('kinds')}.",
                option="kinds",
            )
        path = source.path if source.spec is None else self.fetch(source.spec, reading.data_dir)
        graphs = open_collection(Path(str(path)))
        if schema is not None and schema.domain != self.name:
            raise ConfigError(
                f"{graphs.name} holds graphs of any kind, but schema '{schema.name}' is for "
                f"{schema.domain}s; leave the schema out."
            )
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
        """Return ``stratified`` for classes (without a task, if every label is one)."""
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

    They are read twice: to infer their attributes and classes, and to pack them. Their attributes
    are in the order of the schema; ``read_as`` says how they are given, where that is otherwise.

    Raises:
        DataError: If there is no graph, more than half cannot be used, or attributes do not fit.
        ConfigError: If the schema is that of graphs of the other direction.
    """
    names, chosen = graphs.labels, how.targets if how.targets != "auto" else None
    if chosen is not None:
        chosen = [chosen] if isinstance(chosen, str) else chosen
        for target in chosen:
            check_name("target", target, names)
        graphs = replace(graphs, labels=tuple(name for name in names if name in chosen))
    known = None if schema is None else schema.directed
    if None not in (known, how.directed) and known != how.directed:
        kind = "directed" if known else "undirected"
        raise ConfigError(
            f"the schema is that of {kind} graphs; leave {setting('directed')} out.",
            option="directed",
        )
    directed, is_inferred = bool(known if how.directed is None else how.directed), schema is None
    columns = read_as or schema
    wanted: dict[Item, list[tuple[str, int]] | None] = {
        "node": columns_wanted(graphs, "node", columns and columns.node),
        "edge": columns_wanted(graphs, "edge", columns and columns.edge),
        "graph": [(name, names.index(name)) for name in graphs.labels],
    }

    def parts() -> Iterator[list[RawGraph]]:
        checked = (graph.checked(wanted) for graph in islice(graphs.read(), how.limit))
        while part := list(islice(checked, _GRAPHS_PER_CHUNK)):
            yield part

    survey = Survey(graphs, ("node", "edge", "graph") if is_inferred else ("graph",))
    if is_inferred or graphs.labels:
        for part in parts():
            if usable := [graph for graph in part if graph.problem is None]:
                survey.add(join(usable))
    given = {} if how.like is None else how.like.source.classes
    labels = survey.labels(given, are_wanted=chosen is not None)
    wanted["graph"] = [(label.name, names.index(label.name)) for label in labels]
    classes = {label.name: list(label.values) for label in labels if label.values}
    schema = schema or survey.schema(how.kinds)
    if schema.domain == DOMAIN.name:
        schema = replace(schema, directed=directed)
    origin = Source(name=name, classes=classes, notes=(*graphs.notes, *survey.notes(classes)))
    tasks = [label.name for label in labels]
    with StoreBuilder(schema, how.store_path, tasks, origin, how.overwrite) as builder:
        collector = RowCollector(builder, graphs.name, how.on_error, how.progress, "graph")
        node, edge = Moments(len(schema.node)), Moments(len(schema.edge))
        for part in parts():
            chunk, rejects = chunk_of(part, read_as or schema, labels, directed)
            if not graphs.has_texts:
                chunk = replace(chunk, texts=None)
            collector.add(chunk, rejects, len(part))
            node.add(chunk.x)
            edge.add(chunk.edge_attr)
        if not collector.done:
            raise DataError(f"{graphs.name}: holds no graph.")
        collector.refuse_if_mostly_bad("")
        if is_inferred:  # rejected graphs and dropped edges do not count in means
            rounded = node.notes("node", schema.node) + edge.notes("edge", schema.edge)
            builder.source = origin.model_copy(update={"notes": (*origin.notes, *rounded)})
            scaled = node.scaled(schema.node), edge.scaled(schema.edge)
            builder.schema = with_columns(schema, *scaled)
        return builder.finish()


DOMAIN = GraphDomain()
"""What the table of domains looks up."""
