"""Domain of graphs of any kind: attributes are inferred; there are no groups."""

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
    """Options by which graphs are read; without targets, all labels are read."""

    like: GraphStore | None = None
    """Store whose schema and classes are used."""
    kinds: Mapping[str, str] | None = None
    """Kind of each attribute by name, ``categorical`` or ``continuous``, if not to be inferred."""
    directed: bool | None = None
    """Whether an edge has only the direction in which it is listed; if not, it has both. None takes
    the value of the schema; without a schema, edges have both."""


class GraphDomain(Domain):
    """Domain of graphs in folders of tables, JSON lines, TUDatasets or the GIN family's format."""

    name = "graph"
    reads_targets = True
    reading = GraphReading

    def recognizes(self, path: Path) -> bool:
        """Return whether names or first lines show that a file or folder contains graphs."""
        if is_store(path) or (path / "config.toml").is_file():
            return False
        return find_opener(path) is not None

    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return the graphs as a store; those that cannot be used are in its ``rejects``.

        Raises:
            DataError: If the input or most graphs cannot be read; it names file, line or graph.
            ConfigError: If an option does not fit the schema.
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

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a zip is complete and contains a TUDataset with the expected graphs."""
        try:
            return sum(1 for _ in open_tudataset(path).read()) == spec.rows
        except DataError:
            return False

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return ``stratified`` for classes, else ``random``; without a task, by the labels."""
        if task is None and store.labels is not None:
            are_named = [name in store.source.classes for name in store.tasks]
            is_known = ~np.isnan(store.labels)
            is_class = ~is_known | np.isin(store.labels, (0, 1)) | are_named
            return "stratified" if is_known.any() and is_class.all() else "random"
        return "random" if task in (None, "regression") else "stratified"


def pack(
    graphs: Collection,
    name: str,
    reading: GraphReading,
    schema: FeatureSchema | None = None,
    read_as: FeatureSchema | None = None,
) -> GraphStore:
    """Return graphs as a store.

    They are read twice, first to infer attributes and classes, then to encode them. ``schema`` is
    that of the store, and is inferred if it is None. ``read_as`` is the schema of the values in
    ``graphs``, if it is another one.

    Raises:
        DataError: If there is no graph, more than half cannot be used, or attributes do not fit.
        ConfigError: If one of schema and options is of directed graphs, and the other is not.
    """
    names, targets = graphs.labels, reading.targets if reading.targets != "auto" else None
    if targets is not None:
        targets = [targets] if isinstance(targets, str) else targets
        for target in targets:
            check_name("target", target, names)
        graphs = replace(graphs, labels=tuple(name for name in names if name in targets))
    known = None if schema is None else schema.directed
    if None not in (known, reading.directed) and known != reading.directed:
        kind = "directed" if known else "undirected"
        raise ConfigError(
            f"the schema is that of {kind} graphs; leave {setting('directed')} out.",
            option="directed",
        )
    directed = bool(known if reading.directed is None else reading.directed)
    is_inferred, columns = schema is None, read_as or schema
    wanted: dict[Item, list[tuple[str, int]]] = {
        "node": columns_wanted(graphs, "node", columns and columns.node),
        "edge": columns_wanted(graphs, "edge", columns and columns.edge),
        "graph": [(name, names.index(name)) for name in graphs.labels],
    }

    def parts() -> Iterator[list[RawGraph]]:
        checked = (graph.checked(wanted) for graph in islice(graphs.read(), reading.limit))
        while part := list(islice(checked, _GRAPHS_PER_CHUNK)):
            yield part

    items = _surveyed_items(graphs, columns)
    survey = Survey(graphs, items)
    if len(items) > 1 or graphs.labels:
        for part in parts():
            if usable := [graph for graph in part if graph.problem is None]:
                survey.add(join(usable))
    if not is_inferred:
        survey.check_constant()
    known_classes = {} if reading.like is None else reading.like.source.classes
    labels = survey.labels(known_classes, are_wanted=targets is not None)
    wanted["graph"] = [(label.name, names.index(label.name)) for label in labels]
    classes = {label.name: list(label.values) for label in labels if label.values}
    schema = schema or survey.schema(reading.kinds)
    if schema.domain == DOMAIN.name:
        schema = replace(schema, directed=directed)
    notes = (*graphs.notes, *survey.notes(classes))
    origin = Source(name=name, text_name=graphs.text_name, classes=classes, notes=notes)
    tasks = [label.name for label in labels]
    with StoreBuilder(schema, reading.store_path, tasks, origin, reading.overwrite) as builder:
        collector = RowCollector(builder, graphs.name, reading.on_error, reading.progress, "graph")
        node, edge = Moments(len(schema.node)), Moments(len(schema.edge))
        for part in parts():
            chunk, rejects = chunk_of(part, read_as or schema, labels, directed)
            if not graphs.text_name:
                chunk = replace(chunk, texts=None)
            collector.add(chunk, rejects, len(part))
            node.add(chunk.x)
            edge.add(chunk.edge_attr)
        if not collector.done:
            raise DataError(f"{graphs.name}: holds no graph.")
        collector.refuse_if_mostly_bad("")
        if is_inferred:  # means are of graphs and edges that are kept, known only now
            rounding = node.notes("node", schema.node) + edge.notes("edge", schema.edge)
            builder.source = origin.model_copy(update={"notes": (*origin.notes, *rounding)})
            scaled = node.scaled(schema.node), edge.scaled(schema.edge)
            builder.schema = with_columns(schema, *scaled)
        return builder.finish()


def _surveyed_items(graphs: Collection, columns: FeatureSchema | None) -> tuple[Item, ...]:
    """Return the items whose values are collected before the graphs are encoded."""
    if columns is None:
        return "node", "edge", "graph"
    has_unread = bool(graphs.node) and columns.node[0].origin == "degree"
    return ("node", "graph") if has_unread else ("graph",)


DOMAIN = GraphDomain()
"""Domain of graphs of any kind, as registered in :data:`graphlog.domains.DOMAINS`."""
