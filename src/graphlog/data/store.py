"""GraphStore: all graphs of a data set, packed, immutable, mapped; a batch is index arithmetic."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Integer, Num

from graphlog.data.batch import GraphBatch
from graphlog.data.chunk import (
    TEXTS_A_BLOCK,
    Array,
    GraphChunk,
    Reject,
    ragged_ranges,
    unpack_texts,
)
from graphlog.data.html import store_html
from graphlog.data.manifest import Contents, contradiction, read_contents, refuse_changed
from graphlog.data.schema import FeatureSchema, is_continuous
from graphlog.errors import DataError, ModelFileError

_GRAPHS_A_CHUNK = 4096
_BYTES_A_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GraphStore:
    """A frozen sequence of graphs; ``store[a:b]`` and :meth:`take` make batches.

    :meth:`subset` gives a view. Made by :class:`~graphlog.data.builder.StoreBuilder` or
    :func:`open_store`.
    """

    contents: Contents
    """Manifest and arrays."""
    indices: Int[np.ndarray, "M"] | None = None
    """The graphs of a view; None for all of them."""
    limit: int | None = None
    """Rows of the input, if the view holds all graphs of the first ones, which then keep their
    numbers. Other views have a row a graph."""

    def __len__(self) -> int:
        """Return the number of graphs."""
        return (
            self.contents.manifest.counts["graphs"] if self.indices is None else len(self.indices)
        )

    def __getitem__(self, key: Any) -> GraphBatch:
        """Return the batch of a slice, an index, a sequence of indices, or a boolean mask."""
        return self.take(np.arange(*key.indices(len(self))) if isinstance(key, slice) else key)

    def __repr__(self) -> str:
        """Describe the store in one line."""
        name = self.schema.name
        counted = self.contents.manifest.counts["rejects"]
        rejects = counted if self.limit is None else len(self.rejects)
        view = "" if self.indices is None else f" of {self.contents.manifest.counts['graphs']:,}"
        tasks = f", {len(self.tasks)} task{'s' * (len(self.tasks) != 1)}" if self.tasks else ""
        where = "in memory" if self.contents.path is None else f"at {self.contents.path}"
        return (
            f"GraphStore({len(self):,}{view} '{name}' graphs{tasks}, {rejects:,} rejected rows, "
            f"{self.nbytes / 1e6:.1f} MB {where})"
        )

    def _repr_html_(self) -> str:
        return store_html(self)

    def __reduce__(self) -> Any:
        """Travel to another process as a path where there is one, so that workers share pages."""
        path, manifest = self.contents.path, self.contents.manifest
        return (
            (GraphStore, (self.contents, self.indices, self.limit))
            if path is None
            else (_reopen, (path.absolute(), manifest.digest, self.indices, self.limit))
        )

    @property
    def schema(self) -> FeatureSchema:
        """What the attributes mean."""
        return self.contents.schema

    @property
    def path(self) -> Path | None:
        """The folder it is mapped from; None in memory."""
        return self.contents.path

    @property
    def undirected(self) -> bool:
        """Whether each stored edge stands for both directions."""
        return self.contents.manifest.undirected

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the label columns."""
        return self.contents.manifest.tasks

    @property
    def source(self) -> dict[str, Any]:
        """Where the graphs came from, as told to the builder."""
        return dict(self.contents.manifest.source)

    @property
    def num_rows(self) -> int:
        """Rows of the input, rejected ones included."""
        return self.contents.manifest.counts["rows"] if self.limit is None else self.limit

    @property
    def nbytes(self) -> int:
        """Bytes of the packed graphs (a view's: the whole store's); no texts, labels or rejects."""
        aside = ("labels", "rejects", "text_blocks", "text_offsets", "parents")
        return sum(f.bytes for name, f in self.contents.manifest.files.items() if name not in aside)

    @property
    def digest(self) -> str:
        """Sha256 that tells these graphs from any others; a view's depends on its store."""
        whole = self.contents.manifest.digest
        if self.indices is None:
            return whole
        return hashlib.sha256(whole.encode() + self.indices.astype("<i8").tobytes()).hexdigest()

    @property
    def rows(self) -> Int[np.ndarray, "M"]:
        """Data row of the input each graph came from, from 0."""
        if "rows" not in self.contents.arrays:
            return np.arange(len(self)) if self.indices is None else self.indices.copy()
        return self._of_graphs("rows").astype(np.int64)

    @property
    def labels(self) -> Float[np.ndarray, "M T"] | None:
        """Labels, NaN where absent; None where the store has no tasks."""
        return np.array(self._of_graphs("labels"), dtype=np.float64) if self.tasks else None

    @property
    def num_nodes(self) -> Int[np.ndarray, "M"]:
        """Number of nodes of each graph."""
        return self._ranges("node", self._all())[1]

    @property
    def num_edges(self) -> Int[np.ndarray, "M"]:
        """Number of directed edges of each graph, as in a batch."""
        return self._ranges("edge", self._all())[1] * (2 if self.undirected else 1)

    @property
    def rejects(self) -> list[Reject]:
        """Input rows that could not become graphs."""
        return list(self.iter_rejects())

    def iter_rejects(self) -> Iterator[Reject]:
        """Yield the input rows that could not become graphs, without holding all in memory.

        Raises:
            ModelFileError: If the list is damaged.
        """
        total = self.contents.manifest.counts["rows"]
        for row, text, reason in self._lines("rejects", (int, str, str)):
            if not 0 <= row < total:
                raise contradiction(self.path)
            if row < self.num_rows:
                yield Reject(row, text, reason)

    def _lines(self, name: str, types: tuple[type, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the lines of an array of JSON lines, each a list of values of these types."""
        listed = self.contents.arrays.get(name, np.empty(0, np.uint8))
        rest = b""
        for start in range(0, len(listed), _BYTES_A_BLOCK):
            *lines, rest = (rest + listed[start : start + _BYTES_A_BLOCK].tobytes()).split(b"\n")
            for line in lines:
                try:
                    values = tuple(json.loads(line))
                except (ValueError, TypeError, RecursionError):
                    raise contradiction(self.path) from None
                if tuple(map(type, values)) != types:
                    raise contradiction(self.path)
                yield values
        if rest:
            raise contradiction(self.path)

    @property
    def has_texts(self) -> bool:
        """Whether the store keeps the text each graph was parsed from."""
        return "text_blocks" in self.contents.arrays

    @property
    def output_rows(self) -> Int[np.ndarray, "M"]:
        """Row of each graph in a row-aligned output: that of the input; in a view, its position."""
        return np.arange(len(self)) if self._is_renumbered else self.rows

    @property
    def num_output_rows(self) -> int:
        """Rows of a row-aligned output: those of the input; of a view, its graphs."""
        return len(self) if self._is_renumbered else self.num_rows

    @property
    def output_rejects(self) -> list[Reject]:
        """The rejected rows of a row-aligned output; a view has none."""
        return [] if self._is_renumbered else self.rejects

    @property
    def _is_renumbered(self) -> bool:
        return self.indices is not None and self.limit is None

    def output_status(self) -> list[str]:
        """Return ``ok``, or why there is no graph, for every row of a row-aligned output."""
        status = [""] * self.num_output_rows
        for row in self.output_rows.tolist():
            status[row] = "ok"
        for reject in self.output_rejects:
            if status[reject.row]:
                raise contradiction(self.path)
            status[reject.row] = reject.reason
        return status

    def take(self, indices: Any) -> GraphBatch:
        """Return the batch of the graphs at ``indices``, in that order, repeats allowed.

        Raises:
            IndexError: If an index is out of range.
            ModelFileError: If an edge leaves its graph, which no store written here has.
        """
        graphs = self._resolve(indices)
        nodes, node_counts = self._places("node", graphs)
        edges, edge_counts = self._places("edge", graphs)
        ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(node_counts)])
        ends = self._ends(edges, edge_counts, node_counts)
        ends = ends + np.repeat(ptr[:-1], edge_counts)[:, None]
        if self.undirected:
            edge_index = np.stack([ends.ravel(), ends[:, ::-1].ravel()])
            edges = np.repeat(edges, 2)
        else:
            edge_index = np.ascontiguousarray(ends.T)
        labels = self.contents.arrays["labels"][graphs] if self.tasks else None
        return GraphBatch(
            x=torch.from_numpy(self._attributes("node", nodes)),
            edge_index=torch.from_numpy(edge_index),
            edge_attr=torch.from_numpy(self._attributes("edge", edges)),
            batch=torch.from_numpy(np.repeat(np.arange(len(graphs)), node_counts)),
            ptr=torch.from_numpy(ptr),
            y=None if labels is None else torch.from_numpy(labels.astype(np.float32)),
        )

    def chunk(self, indices: Any) -> GraphChunk:
        """Return graphs as plain arrays, ready for another builder."""
        graphs = self._resolve(indices)
        nodes, node_counts = self._places("node", graphs)
        edges, edge_counts = self._places("edge", graphs)
        stored = GraphStore(self.contents, graphs)
        texts = stored.texts() if self.has_texts else None
        parents = enumerate(stored.parents() if texts is not None else ())
        return GraphChunk(
            node_counts=node_counts,
            edge_counts=edge_counts,
            x=self._attributes("node", nodes),
            edge_index=np.ascontiguousarray(
                self._ends(edges, edge_counts, node_counts).T.astype(np.int64)
            ),
            edge_attr=self._attributes("edge", edges),
            rows=stored.rows,
            texts=texts,
            labels=stored.labels,
            undirected=self.undirected,
            parents={k: parent for k, parent in parents if texts and parent != texts[k]},
        )

    def chunks(self) -> Iterator[GraphChunk]:
        """Yield all graphs as :meth:`chunk` does, some thousands at a time, at least one chunk."""
        for start in range(0, max(len(self), 1), _GRAPHS_A_CHUNK):
            yield self.chunk(np.arange(start, min(start + _GRAPHS_A_CHUNK, len(self))))

    def texts(self, indices: Any = None) -> list[str]:
        """Return the text each graph was parsed from; all of them by default.

        Raises:
            DataError: If the store was built without texts.
        """
        if not self.has_texts:
            what = "texts (SMILES)" if self.schema.domain == "molecule" else "texts"
            raise DataError(
                f"this store was built without its {what}; build it again with them kept."
            )
        graphs = self._all() if indices is None else self._resolve(indices)
        blocks, offsets = self.contents.arrays["text_blocks"], self.contents.arrays["text_offsets"]
        total = self.contents.manifest.counts["graphs"]
        found = np.empty(len(graphs), dtype=object)
        order = np.argsort(graphs, kind="stable")
        numbers, starts = np.unique(graphs[order] // TEXTS_A_BLOCK, return_index=True)
        for number, members in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
            count = min(TEXTS_A_BLOCK, total - number * TEXTS_A_BLOCK)
            texts = unpack_texts(
                blocks[int(offsets[number]) : int(offsets[number + 1])].tobytes(), count
            )
            found[members] = np.array(texts, dtype=object)[graphs[members] - number * TEXTS_A_BLOCK]
        return found.tolist()

    def parents(self, indices: Any = None) -> list[str]:
        """Return what folds and repeats go by: the text of each graph's parent, or its own.

        Raises:
            DataError: If the store was built without texts.
        """
        texts = self.texts(indices)
        if "parents" not in self.contents.arrays:
            return texts
        known = self.contents.parents
        if not known:
            known.update(self._lines("parents", (int, str)))
        graphs = self._all() if indices is None else self._resolve(indices)
        return [known.get(g, text) for g, text in zip(graphs.tolist(), texts, strict=True)]

    def output_texts(self) -> list[str]:
        """Return the text of every output row; empty where a row has no graph or no text."""
        texts = [""] * self.num_output_rows
        if len(self) and self.has_texts:
            for row, text in zip(self.output_rows.tolist(), self.texts(), strict=True):
                texts[row] = text
        return texts

    def subset(self, indices: Any) -> "GraphStore":
        """Return a view of the graphs at ``indices``; nothing is copied."""
        graphs = self._resolve(indices).copy()
        graphs.setflags(write=False)
        return GraphStore(self.contents, graphs)

    def first_rows(self, count: int) -> "GraphStore":
        """Return a view of the first rows of the input or, of a view, of its first graphs."""
        if self._is_renumbered:
            return self.subset(np.arange(min(count, len(self))))
        if count >= self.num_rows:
            return self
        return replace(self.subset(np.flatnonzero(self.rows < count)), limit=count)

    def save(self, path: Path | str) -> "GraphStore":
        """Write these graphs as a store and return it, mapped; a whole store keeps its digest.

        A view becomes a store of its own, with a row a graph.
        """
        from graphlog.data.builder import StoreBuilder  # it makes stores and imports this file

        rows = self.output_rows
        with StoreBuilder(self.schema, path, self.tasks, self.source) as builder:
            done = 0
            for chunk in self.chunks():
                builder.add(replace(chunk, rows=rows[done : done + len(chunk)]))
                done += len(chunk)
            for reject in self.output_rejects:
                builder.reject(reject)
            return builder.finish()

    def verify(self) -> None:
        """Hash every array and check that every edge joins nodes of its own graph.

        Raises:
            ModelFileError: If anything was changed or damaged since it was written.
        """
        refuse_changed(self.contents)
        whole = GraphStore(self.contents)
        for start in range(0, len(whole), _GRAPHS_A_CHUNK):
            graphs = np.arange(start, min(start + _GRAPHS_A_CHUNK, len(whole)))
            whole._ends(*whole._places("edge", graphs), whole._ranges("node", graphs)[1])

    def _all(self) -> Int[np.ndarray, "M"]:
        return np.arange(len(self)) if self.indices is None else self.indices

    def _resolve(self, indices: Any) -> Int[np.ndarray, "N"]:
        chosen = np.asarray(indices)
        if chosen.dtype == np.bool_:
            if chosen.shape != (len(self),):
                raise IndexError(f"a mask must have {len(self)} entries, found {chosen.shape}.")
            chosen = np.flatnonzero(chosen)
        if chosen.size and chosen.dtype.kind not in "iu":
            raise IndexError(f"indices must be integers, found {chosen.dtype}.")
        chosen = chosen.reshape(-1).astype(np.int64)
        wrong = (chosen < -len(self)) | (chosen >= len(self))
        if wrong.any():
            raise IndexError(
                f"graph {chosen[int(np.argmax(wrong))]} is out of range for a store of {len(self)}."
            )
        chosen = np.where(chosen < 0, chosen + len(self), chosen)
        return chosen if self.indices is None else self.indices[chosen]

    def _of_graphs(self, name: str) -> Array:
        array = self.contents.arrays[name]
        return array if self.indices is None else array[self.indices]

    def _ranges(self, kind: str, graphs: Integer[np.ndarray, "N"]) -> tuple[Array, Array]:
        offsets = self.contents.arrays[f"{kind}_offsets"]
        starts = offsets[graphs].astype(np.int64)
        return starts, offsets[graphs + 1].astype(np.int64) - starts

    def _places(self, kind: str, graphs: Integer[np.ndarray, "N"]) -> tuple[Array, Array]:
        """Return the nodes (or edges) of graphs among all of the store, and their numbers."""
        starts, counts = self._ranges(kind, graphs)
        return ragged_ranges(starts, counts), counts

    def _ends(self, edges: Array, edge_counts: Array, node_counts: Array) -> Array:
        """Return the two nodes of edges, numbered within their graphs."""
        ends = self.contents.arrays["endpoints"][edges]
        sizes = np.repeat(node_counts, edge_counts)
        if (ends[:, 0] >= sizes).any() or (ends[:, 1] >= sizes).any():
            raise contradiction(self.path)
        return ends

    def _attributes(self, kind: str, which: Integer[np.ndarray, "R"]) -> Num[np.ndarray, "R F"]:
        columns = self.schema.node if kind == "node" else self.schema.edge
        value_type = np.float32 if is_continuous(columns) else np.int64
        arrays, values = self.contents.arrays, self.contents.values
        if not columns:
            return np.empty((len(which), 0), value_type)
        if f"{kind}_rows" in arrays:
            return arrays[f"{kind}_rows"][which].astype(value_type)
        if kind not in values:
            values[kind] = arrays[f"{kind}_table"].astype(value_type)
        return values[kind][arrays[f"{kind}_codes"][which]]


def _reopen(path: Path, digest: str, indices: Any, limit: int | None) -> GraphStore:
    contents = read_contents(path, verify=False)  # the process that sent it has
    if contents.manifest.digest != digest:
        raise ModelFileError(f"{path}: replaced by another store while in use; start again.")
    return GraphStore(contents, indices, limit)


def open_store(path: Path | str) -> GraphStore:
    """Map the store in folder ``path``; its files are compared with their hashes, once a process.

    Raises:
        ModelFileError: If it is no store, is newer than this version reads, is incomplete, or was
            changed.
    """
    return GraphStore(read_contents(Path(path)))
