"""Any graphs in, a store out: which reader a source is for, its labels, and two passes over it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from graphlog.data.chunk import GraphChunk, Reject
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore, StoreBuilder, is_store, open_store
from graphlog.datasets.catalogue_networks import GRAPHS
from graphlog.datasets.download import fetch
from graphlog.domains.graph.folder import find_tables, open_folder
from graphlog.domains.graph.jsonlines import ENDINGS as JSON_ENDINGS
from graphlog.domains.graph.jsonlines import open_jsonlines
from graphlog.domains.graph.raw import Collection, RawGraph, as_float, join
from graphlog.domains.graph.schema import Survey, chunk_of, misplaced
from graphlog.domains.graph.tudataset import ENDINGS as GIN_ENDINGS
from graphlog.domains.graph.tudataset import find_parts, looks_like_gin, open_gin, open_tudataset
from graphlog.errors import ConfigError, DataError, unknown_name

_MOST_CLASSES = 1000
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class LabelSurvey:
    """What the labels of an input are; sees all before the first is written."""

    def __init__(
        self,
        names: Sequence[str],
        classes: Sequence[str] = (),
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Expect these columns; those in ``classes`` name classes even where they are numbers, those in ``known`` exactly these."""
        self.names = tuple(names)
        self._always = frozenset(classes)
        self._known = {
            name: list(texts) for name, texts in (known or {}).items() if name in self.names
        }
        self._values: list[set[Any]] = [set() for _ in names]
        self._has_words = [False] * len(self.names)

    def add(self, labels: Sequence[Any]) -> None:
        """Take in the labels of a graph."""
        for k, value in enumerate(labels):
            if value is None or (not isinstance(value, str) and not _fits(value)):
                continue
            self._has_words[k] |= isinstance(value, str)
            if len(self._values[k]) <= _MOST_CLASSES or self._has_words[k]:
                self._values[k].add(value)
            if self._has_words[k] and len(self._values[k]) > _MOST_CLASSES:
                raise DataError(
                    f"label '{self.names[k]}' has more than {_MOST_CLASSES:,} classes; leave it out if it is a name."
                )

    @property
    def classes(self) -> dict[str, list[str]]:
        """The classes of every label that names some, in the order of their numbers: numbers first, then words."""
        return self._known | {
            name: list(
                dict.fromkeys(
                    _text(v) for v in sorted(values, key=lambda v: (isinstance(v, str), v))
                )
            )
            for name, values, words in zip(self.names, self._values, self._has_words, strict=True)
            if name not in self._known and (words or name in self._always)
        }

    def wrong(self, labels: Sequence[Any]) -> str | None:
        """Return what is wrong with the labels of a graph; NaN is missing, as is None."""
        found = [
            (n, v)
            for n, v in zip(self.names, labels, strict=False)
            if not isinstance(v, str | None) and v == v
        ]
        infinite = next((name for name, value in found if not _fits(value)), None)
        if infinite is not None:
            return f"label '{infinite}' must be finite and below {_FLOAT32_MAX:.2g}, or left out"
        for name, value in zip(self.names, labels, strict=False):
            if (
                name in self._known
                and value is not None
                and value == value
                and _text(value) not in self._known[name]
            ):
                return f"label '{name}' is {_text(value)!r}, a class that the store to be like does not know"
        return None

    def values(self, labels: Sequence[Sequence[Any]]) -> Float32[np.ndarray, "N T"]:
        """Return the labels as numbers, NaN where missing."""
        number = {
            name: {text: k for k, text in enumerate(texts)} for name, texts in self.classes.items()
        }
        out = np.full((len(labels), len(self.names)), np.nan, dtype=np.float32)
        for row, found in enumerate(labels):
            for k, (name, value) in enumerate(zip(self.names, found, strict=False)):
                if value is not None and value == value:
                    out[row, k] = number[name][_text(value)] if name in number else value
        return out


def _fits(value: float) -> bool:
    """Return whether a number is finite once stored; NaN is not."""
    return abs(as_float(value)) <= _FLOAT32_MAX


def _text(value: Any) -> str:
    """Return the name of a class, the same however its number is written."""
    return (
        str(int(value))
        if isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
        else str(value)
    )


def is_graphs(source: Any) -> bool:
    """Return whether ``source`` is the path or name of a collection of graphs, not of molecules, proteins, or a store."""
    if not isinstance(source, str | Path) or str(source) == "-":
        return False
    path = Path(source)
    if not path.exists():
        return str(source) in GRAPHS
    if path.is_dir():
        is_run = (path / "config.toml").is_file()
        return (
            not is_store(path)
            and not is_run
            and bool(find_tables(path) or _json_files(path) or find_parts(path))
        )
    if path.name.endswith(JSON_ENDINGS) or path.suffix == ".zip":
        return True
    return path.name.endswith(GIN_ENDINGS) and looks_like_gin(path)


def open_collection(source: str | Path, data_dir: Path | str | None = None) -> Collection:
    """Return the graphs that ``source`` names.

    Raises:
        ConfigError: If there is neither such a file nor such a data set.
        DataError: If it is in none of the known formats, or cannot be fetched.
    """
    path = Path(source)
    if not path.exists():
        if str(source) not in GRAPHS:
            raise unknown_name("file, folder or set of graphs", str(source), GRAPHS)
        path = fetch(GRAPHS[str(source)], data_dir)
    if path.is_dir() and find_tables(path):
        return open_folder(path)
    if path.is_dir() and (files := _json_files(path)):
        if len(files) > 1:
            raise DataError(f"{path}: holds {len(files)} JSON-lines files; name the one to read.")
        return open_jsonlines(files[0])
    if path.is_dir() or path.suffix == ".zip":
        if path.is_dir() and not find_parts(path):
            raise DataError(
                f"{path}: holds no graphs: neither edges.csv, nor a .jsonl file, nor NAME_A.txt and NAME_graph_indicator.txt."
            )
        return open_tudataset(path)
    if path.name.endswith(JSON_ENDINGS):
        return open_jsonlines(path)
    if looks_like_gin(path):
        return open_gin(path)
    raise DataError(
        f"{path}: is no file of graphs; known are .jsonl, TUDataset's .zip, and GIN's .txt."
    )


def _json_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name.endswith(JSON_ENDINGS))


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
