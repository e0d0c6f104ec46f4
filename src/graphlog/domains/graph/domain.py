"""Graphs of any kind as a domain: attributes are inferred; there are no texts and no groups."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.data.chunk import Reject
from graphlog.data.collector import RowCollector, check_reading
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore, StoreBuilder, is_store
from graphlog.datasets import DatasetSpec
from graphlog.domains.base import Domain, Input
from graphlog.domains.graph.folder import find_tables, open_folder
from graphlog.domains.graph.jsonlines import SUFFIXES, open_jsonlines
from graphlog.domains.graph.labels import LabelSurvey
from graphlog.domains.graph.raw import Collection, RawGraph, join
from graphlog.domains.graph.schema import Survey, check_sizes, chunk_of
from graphlog.domains.graph.tudataset import (
    GIN_SUFFIXES,
    find_parts,
    looks_like_gin,
    open_gin,
    open_tudataset,
)
from graphlog.errors import ConfigError, DataError

_GRAPHS_PER_CHUNK = 1000


class GraphDomain(Domain):
    """Graphs in a folder of tables, JSON lines, TUDataset's or the GIN family's format."""

    name = "graph"

    def recognizes(self, path: Path) -> bool:
        """Return whether a file or folder holds graphs by its name or first lines."""
        if path.is_dir():
            if is_store(path) or (path / "config.toml").is_file():
                return False
            return bool(find_tables(path) or _json_files(path) or find_parts(path))
        if path.name.endswith(SUFFIXES) or path.suffix == ".zip":
            return True
        return path.name.endswith(GIN_SUFFIXES) and looks_like_gin(path)

    def read(  # pyright: ignore[reportIncompatibleMethodOverride] - options are checked before
        self,
        source: Input,
        schema: FeatureSchema | None = None,
        *,
        targets: object = None,
        on_error: str = "skip",
        workers: int | None = None,
        limit: int | None = None,
        store_path: Path | str | None = None,
        data_dir: Path | str | None = None,
        progress: Callable[[int, int], None] | None = None,
        like: GraphStore | None = None,
        kinds: Mapping[str, str] | None = None,
        directed: bool = False,
    ) -> GraphStore:
        """Return any graphs as a store; those that cannot be used are in its ``rejects``.

        The input is read twice: to infer its attributes and classes, and to pack its graphs.

        Args:
            source: A folder of ``edges.csv``, ``nodes.csv`` and ``graphs.csv``; a ``.jsonl`` file
                with one graph a line; a folder or zip of TUDataset; a text file of the GIN family;
                or a data set (``mutag``).
            schema: The schema of a model that is to use the graphs; None infers it.
            targets: Not used: the store has all labels of the input.
            on_error: ``skip`` lists graphs that cannot be used and goes on; ``fail`` stops at the
                first.
            workers: Not used.
            limit: Largest number of graphs to read.
            store_path: Folder to write the store to; None keeps it in memory.
            data_dir: Where downloaded sets are kept.
            progress: Called as ``progress(graphs done, graphs rejected)``.
            like: A store whose schema and numbers of classes are used.
            kinds: Attributes to be read as ``categorical`` or ``continuous``, by name, where the
                inferred kind is wrong.
            directed: Whether an edge is one direction only; if not, it stands for both, however it
                is listed.

        Raises:
            DataError: Naming file, line or graph, if the input cannot be read, or more than half of
                its graphs cannot.
            ConfigError: If an option is not valid.
        """
        check_reading(on_error, limit)
        schema = like.schema if like is not None else schema
        if schema is not None and kinds:
            raise ConfigError("`schema` already says what each attribute is; leave `kinds` out.")
        path = source.path if source.spec is None else self.fetch(source.spec, data_dir)
        graphs = open_collection(Path(str(path)))
        if schema is not None and schema.domain != self.name:
            raise ConfigError(
                f"{graphs.name} holds graphs of any kind, but schema '{schema.name}' is for "
                f"{schema.domain}s; leave the schema out."
            )
        known = like.source.get("classes") if like is not None else None
        labels = LabelSurvey(graphs.labels, graphs.classes, known)
        survey = Survey(graphs.node, graphs.edge, graphs.matrices)
        for chunk in _chunks(graphs, limit):
            usable = [graph for graph in chunk if graph.problem is None]
            for graph in usable:
                labels.add(graph.labels)
            usable = [graph for graph in usable if check_sizes(graph) is None]
            if schema is None and usable:
                survey.add(join(usable))
        if schema is None:
            schema = survey.schema(kinds=kinds, keep_constant=bool(kinds))
        name = Path(source.name if source.path is None else source.path).name
        about: dict[str, Any] = {"name": name, "kind": "graphs", "directed": directed}
        about |= {"classes": labels.classes} if labels.classes else {}
        with StoreBuilder(schema, store_path, labels.names, about) as builder:
            collector = RowCollector(builder, graphs.name, on_error, progress, "graph")
            for chunk in _chunks(graphs, limit):
                _add_chunk(collector, chunk, schema, labels, directed, graphs.name)
            if not collector.done:
                raise DataError(f"{graphs.name}: holds no graph.")
            collector.refuse_if_mostly_bad("")
            return builder.finish(collector.done)

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a zip is whole and holds a TUDataset with the graphs that are expected."""
        try:
            return sum(1 for _ in open_tudataset(path).read()) == spec.rows
        except DataError:
            return False

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return ``stratified`` where classes are predicted, else ``random``."""
        return "random" if task in (None, "regression") else "stratified"


def open_collection(path: Path) -> Collection:
    """Return the graphs of a file or folder.

    Raises:
        DataError: If it has none of the known formats.
    """
    if path.is_dir():
        if find_tables(path):
            return open_folder(path)
        files = _json_files(path)
        if len(files) > 1:
            raise DataError(f"{path}: holds {len(files)} JSON-lines files; name the one to read.")
        if files:
            return open_jsonlines(files[0])
        if find_parts(path):
            return open_tudataset(path)
        known = "edges.csv, a .jsonl file, or NAME_A.txt and NAME_graph_indicator.txt"
        raise DataError(f"{path}: holds no graphs; a folder of graphs has {known}.")
    if path.suffix == ".zip":
        return open_tudataset(path)
    if path.name.endswith(SUFFIXES):
        return open_jsonlines(path)
    if looks_like_gin(path):
        return open_gin(path)
    known = ".jsonl, TUDataset's .zip, and GIN's .txt"
    raise DataError(f"{path}: is not a file of graphs; known are {known}.")


def _json_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES))


def _chunks(graphs: Collection, limit: int | None) -> Iterator[list[RawGraph]]:
    stream = islice(graphs.read(), limit)
    while chunk := list(islice(stream, _GRAPHS_PER_CHUNK)):
        yield chunk


def _add_chunk(
    collector: RowCollector,
    graphs: list[RawGraph],
    schema: FeatureSchema,
    labels: LabelSurvey,
    directed: bool,
    where: str,
) -> None:
    graphs = [g._replace(problem=g.problem or labels.problem(g.labels)) for g in graphs]
    try:
        chunk, reasons = chunk_of(graphs, schema, directed)
    except DataError as e:
        raise DataError(f"{where}: {e}") from None
    rejects = [Reject(graphs[k].row, graphs[k].text, reasons[k]) for k in sorted(reasons)]
    used = [graphs[k] for k in chunk.rows.tolist()]
    rows = np.array([graph.row for graph in used], dtype=np.int64)
    values = labels.values([graph.labels for graph in used]) if labels.names else None
    collector.add(replace(chunk, rows=rows, labels=values), rejects, len(graphs))
