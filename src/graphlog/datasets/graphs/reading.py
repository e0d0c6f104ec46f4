"""Any graphs in, store out: once over the input to find out what its attributes are, and once to pack it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.data.chunk import GraphChunk, Reject
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore, StoreBuilder, is_store, open_store
from graphlog.datasets.graphs.collection import Collection
from graphlog.datasets.graphs.labels import LabelSurvey
from graphlog.datasets.graphs.sources import open_collection
from graphlog.domains.generic import RawGraph, Survey, chunk_of, join, misplaced
from graphlog.errors import ConfigError, DataError, unknown_name

Progress = Callable[[int, int], None]
"""Called as ``progress(graphs done, graphs rejected)``."""
_GRAPHS_A_PIECE = 1000
_WORST_SHARE = 0.5


def read_graphs(
    source: str | Path,
    *,
    schema: FeatureSchema | GraphStore | None = None,
    kinds: Mapping[str, str] | None = None,
    directed: bool = False,
    on_error: str = "skip",
    store_path: Path | str | None = None,
    progress: Progress | None = None,
    limit: int | None = None,
    data_dir: Path | str | None = None,
) -> GraphStore:
    """Return any graphs as a store, with those that cannot be used in its ``rejects``, by number.

    Args:
        source: A folder of ``edges.csv``, ``nodes.csv`` and ``graphs.csv``; a ``.jsonl`` file with a graph a line; a folder or
            zip of TUDataset; a text file of the GIN family; the name of a set (``mutag``); or a store, which is returned.
        schema: How to read attributes: that of a model, so that these graphs are fit for it, or another store, whose numbers
            of classes are kept too; None finds out what they are.
        kinds: Where it does not guess right: attributes by name, to be taken as ``categorical`` or ``continuous``.
        directed: Whether an edge is one direction only; else it stands for both, however it is listed.
        on_error: ``skip`` lists graphs that cannot be used and goes on; ``fail`` stops at the first.
        store_path: Folder to write the store to; None keeps it in memory.
        progress: Called after each piece of work.
        limit: Graphs to read at most.
        data_dir: Where downloaded sets are kept.

    Raises:
        DataError: Naming file, line or graph, if the input cannot be read, or more than half of its graphs cannot.
        ConfigError: If an option is not valid.
    """
    if on_error not in ("skip", "fail"):
        raise unknown_name("--on-error", on_error, ["skip", "fail"])
    if limit is not None and limit < 1:
        raise ConfigError(f"`limit` must be 1 or more, found {limit}.")
    if schema is not None and kinds:
        raise ConfigError("`schema` says already what kind each attribute is; drop `kinds`.")
    if is_store(source):
        store = open_store(source)
        store = store if limit is None else store.subset(np.arange(min(limit, len(store))))
        return store if store_path is None else store.save(store_path)
    found = open_collection(source, data_dir)
    labels = LabelSurvey(
        found.labels,
        found.classes,
        schema.source.get("classes") if isinstance(schema, GraphStore) else None,
    )
    told = schema.schema if isinstance(schema, GraphStore) else schema
    settled = _surveyed(found, labels, limit, kinds if told is None else None, told)
    described: dict[str, Any] = {"name": Path(source).name, "kind": "graphs", "directed": directed}
    described |= {"classes": labels.classes} if labels.classes else {}
    with StoreBuilder(settled, store_path, labels.names, described) as builder:
        tally = _Tally(found.name, builder, on_error)
        for piece in _pieces(found.read(), limit):
            tally.add(piece, settled, labels, directed)
            if progress is not None:
                progress(tally.done, tally.rejected)
        tally.refuse_if_mostly_bad()
        return builder.finish(tally.done)


def _surveyed(
    found: Collection,
    labels: LabelSurvey,
    limit: int | None,
    kinds: Mapping[str, str] | None,
    schema: FeatureSchema | None,
) -> FeatureSchema:
    """Go over the input once, and return the schema given, or else the one found out."""
    survey = Survey(found.node, found.edge, found.matrices)
    for piece in _pieces(found.read(), limit):
        usable = [g for g in piece if g.problem is None]
        for graph in usable:
            labels.add(graph.labels)
        if schema is None:
            survey.add(join([g for g in usable if misplaced(g) is None]))
    if schema is None:
        return survey.schema(kinds=kinds, keep_constant=bool(kinds))
    if schema.domain != "graph":
        raise ConfigError(
            f"{found.name} holds any graphs, but schema '{schema.name}' is for {schema.domain}s; leave the schema out."
        )
    return schema


def _pieces(graphs: Iterable[RawGraph], limit: int | None) -> Iterator[list[RawGraph]]:
    stream = iter(graphs if limit is None else islice(graphs, limit))
    while piece := list(islice(stream, _GRAPHS_A_PIECE)):
        yield piece


class _Tally:
    """Takes in pieces in order: graphs and rejects to the builder, and counts."""

    def __init__(self, where: str, builder: StoreBuilder, on_error: str) -> None:
        self.done = self.rejected = 0
        self._where, self._builder, self._on_error = where, builder, on_error
        self._first: list[Reject] = []

    def add(
        self, piece: list[RawGraph], schema: FeatureSchema, labels: LabelSurvey, directed: bool
    ) -> None:
        """Add what became of a piece."""
        piece = [
            g
            if g.problem or (wrong := labels.wrong(g.labels)) is None
            else replace(g, problem=wrong)
            for g in piece
        ]
        try:
            coded = chunk_of(piece, schema, directed)
        except DataError as e:
            raise DataError(f"{self._where}: {e}") from None
        for k, reason in sorted(coded.problems.items()):
            self._reject(Reject(piece[k].row, piece[k].text, reason))
        chunk: GraphChunk = coded.chunk
        kept = [piece[k] for k in chunk.rows.tolist()]
        rows = np.array([g.row for g in kept], dtype=np.int64)
        values = labels.values([g.labels for g in kept]) if labels.names else None
        self._builder.add(replace(chunk, rows=rows, labels=values))
        self.done += len(piece)

    def _reject(self, reject: Reject) -> None:
        if self._on_error == "fail":
            raise DataError(f"{self._where}, graph {reject.row}: {reject.reason}.")
        self._builder.reject(reject)
        self.rejected += 1
        if len(self._first) < 3:
            self._first.append(reject)

    def refuse_if_mostly_bad(self) -> None:
        """Stop where there is nothing, or graphs are mostly bad."""
        if not self.done:
            raise DataError(f"{self._where}: holds no graph.")
        if self.rejected > _WORST_SHARE * self.done:
            examples = "; ".join(f"graph {r.row}: {r.reason}" for r in self._first)
            raise DataError(
                f"{self._where}: {self.rejected:,} of {self.done:,} graphs cannot be used. {examples}."
            )
