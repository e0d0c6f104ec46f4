"""Stores of graphs: packed, immutable and memory-mapped arrays from which batches are taken.

A :class:`GraphBatch` is passed from the store through views to the encoder. The graphs of each
batch depend on seed and epoch alone, so that a run can be resumed at any step. A
:class:`StoreBuilder` writes a store from a stream of graphs.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int, Integer, Num, Shaped
from torch import Tensor

from graphlog.data.graphs import (
    TEXTS_A_BLOCK,
    Array,
    ArrayWriter,
    AttributeWriter,
    FeatureSchema,
    GraphChunk,
    Reject,
    RejectKind,
    TextWriter,
    is_continuous,
    ragged_ranges,
    unpack_texts,
)
from graphlog.data.html import fields_table, html_table
from graphlog.data.manifest import (
    Contents,
    Manifest,
    Source,
    describe,
    inconsistent_arrays,
    is_ours,
    read_contents,
    write_manifest,
)
from graphlog.errors import ConfigError, DataError, GraphLoGError, ModelFileError, setting
from graphlog.files import exchange, scratch_folder
from graphlog.ops.sparse import Adjacency, build_adjacency


@dataclass(frozen=True, slots=True, eq=False)
class GraphBatch:
    """``N`` graphs as one disconnected graph, with the field names of torch_geometric."""

    x: Shaped[Tensor, "V Fx"]
    """Node attributes: int64 codes, or float32 if the schema has a continuous column."""
    edge_index: Int[Tensor, "2 E"]
    """Directed edges as node indices within the batch: sources in row 0, targets in row 1."""
    edge_attr: Shaped[Tensor, "E Fe"]
    """Edge attributes; ``Fe`` may be 0."""
    batch: Int[Tensor, "V"]
    """Index of the graph of each node, non-decreasing."""
    ptr: Int[Tensor, "P"]
    """Node range of each graph: graph ``n`` has nodes ``ptr[n]:ptr[n + 1]``; ``P = N + 1``."""
    y: Float[Tensor, "N T"] | None = None
    """Labels, NaN where missing."""
    schema: FeatureSchema | None = field(default=None, kw_only=True, repr=False)
    """Meaning of the attributes, for batches of a store."""
    # init=False, so that `replace` does not copy these caches to other edges or graphs
    _adjacency: list[Adjacency] = field(init=False, default_factory=list[Adjacency], repr=False)
    _host_ptr: Int[Tensor, "P"] | None = field(init=False, default=None, repr=False)

    @property
    def num_graphs(self) -> int:
        """Number of graphs ``N``."""
        return self.ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes ``V``."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of directed edges ``E``."""
        return self.edge_index.shape[1]

    @property
    def sizes(self) -> Int[Tensor, "N"]:
        """Number of nodes of each graph."""
        return self.ptr[1:] - self.ptr[:-1]

    @property
    def host_ptr(self) -> Int[Tensor, "P"]:
        """``ptr`` in CPU memory, which can be read without waiting for the device."""
        return self.ptr.cpu() if self._host_ptr is None else self._host_ptr

    @property
    def adjacency(self) -> Adjacency:
        """Sorted neighborhoods, built on first use and shared with :meth:`with_attributes`."""
        if not self._adjacency:
            self._adjacency.append(build_adjacency(self.edge_index, self.num_nodes))
        return self._adjacency[0]

    def with_attributes(
        self, x: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> "GraphBatch":
        """Return the same graphs with other attributes; the adjacency is shared, not rebuilt."""
        changed = replace(
            self,
            x=self.x if x is None else x,
            edge_attr=self.edge_attr if edge_attr is None else edge_attr,
        )
        for name in ("_adjacency", "_host_ptr"):
            object.__setattr__(changed, name, getattr(self, name))
        return changed

    def part(self, first: int, last: int) -> "GraphBatch":
        """Return the graphs ``first:last`` as a batch with the same order of nodes and edges."""
        ptr = self.ptr[first : last + 1]
        low, high = ptr[0], ptr[-1]
        edges = (self.edge_index[0] >= low) & (self.edge_index[0] < high)
        nodes = slice(int(low), int(high))
        return GraphBatch(
            self.x[nodes],
            self.edge_index[:, edges] - low,
            self.edge_attr[edges],
            self.batch[nodes] - first,
            ptr - low,
            None if self.y is None else self.y[first:last],
            schema=self.schema,
        )

    def to(self, device: torch.device | str) -> "GraphBatch":
        """Return the batch on ``device``; the same object if it is on this device already."""
        if self.x.device == torch.device(device):
            return self
        return self._moved(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "GraphBatch":
        """Return the batch in pinned memory, from which a GPU can copy asynchronously."""
        return self._moved(Tensor.pin_memory)

    def _moved(self, move: Callable[[Tensor], Tensor]) -> "GraphBatch":
        tensors = (self.x, self.edge_index, self.edge_attr, self.batch, self.ptr)
        y = None if self.y is None else move(self.y)
        moved = GraphBatch(*map(move, tensors), y=y, schema=self.schema)
        object.__setattr__(moved, "_host_ptr", self.host_ptr)
        return moved


def seeded_permutation(n: int, *words: int) -> Int[np.ndarray, "n"]:
    """Return a permutation of ``range(n)`` that depends only on ``words`` (seed, epoch).

    It sorts raw random numbers, since NumPy guarantees the stream of a bit generator for all
    versions, but not the results of ``Generator.permutation``.
    """
    stream = np.random.PCG64(np.random.SeedSequence(words))
    return np.argsort(stream.random_raw(n), kind="stable")


def sample_rows(total: int, limit: int, seed: int = 0) -> Int[np.ndarray, "_"]:
    """Return at most ``limit`` numbers below ``total``, drawn without replacement, sorted."""
    if total <= limit:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, size=limit, replace=False))


def epoch_batches(
    num_graphs: int, batch_size: int, seed: int = 0, epoch: int = 0
) -> list[Int[np.ndarray, "_"]]:
    """Return the indices of the graphs of each batch of an epoch: each graph once, in random order.

    Example:
        >>> [len(batch) for batch in epoch_batches(5, 2)]
        [2, 2, 1]
    """
    order = seeded_permutation(num_graphs, seed, epoch)
    return [order[start : start + batch_size] for start in range(0, num_graphs, batch_size)]


_GRAPHS_A_CHUNK = 4096
_BYTES_A_BLOCK = 1 << 20
_LARGEST_SHARE = 0.5
"""Largest share of bad rows; with more, the column or file is probably the wrong one."""
_EXAMPLES = 3
"""Number of bad rows that the error then shows."""
ON_ERROR = ("skip", "fail")
"""Handling of bad rows: list them and continue, or raise an error for the first one."""
_DRAWN, _WIDTH, _HEIGHT = 6, 160, 120
"""Number of graphs that a notebook shows, and the size of a drawing in pixels."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GraphStore:
    """An immutable sequence of graphs; ``store[a:b]`` and :meth:`take` return batches.

    :meth:`subset` returns a view. Stores are created by :class:`StoreBuilder` or
    :func:`open_store`.
    """

    contents: Contents
    """Manifest and arrays."""
    indices: Int[np.ndarray, "M"] | None = None
    """Indices of the graphs of a view; None for all graphs."""
    limit: int | None = None
    """Number of rows of a view of the first rows of the input, which keep their numbers.

    It is None for the whole store, and for other views, which have one row per graph."""
    drawn_by: ClassVar[Callable[["GraphStore", Sequence[int], int, int], list[str] | None] | None]
    drawn_by = None
    """Function that draws graphs of a store, given their indices, a width and a height.

    The package ``domains`` sets it, since this module must not import from there."""

    def __len__(self) -> int:
        """Return the number of graphs."""
        return self._counts["graphs"] if self.indices is None else len(self.indices)

    def __getitem__(self, key: Any) -> GraphBatch:
        """Return the batch of a slice, an index, a sequence of indices, or a boolean mask."""
        return self.take(key)

    def __repr__(self) -> str:
        """Return a description in one line."""
        rejects = self._counts["rejects"] if self.limit is None else len(self.rejects)
        view = "" if self.indices is None else f" of {self._counts['graphs']:,}"
        tasks = f", {len(self.tasks)} task{'s' * (len(self.tasks) != 1)}" if self.tasks else ""
        where = "in memory" if self.path is None else f"at {self.path}"
        return (
            f"GraphStore({len(self):,}{view} '{self.schema.name}' graphs{tasks}, {rejects:,} "
            f"rejected rows, {self.nbytes / 1e6:.1f} MB {where})"
        )

    def _repr_html_(self) -> str:
        fields = {
            "graphs": len(self),
            "rows": self.num_rows,
            "rejected": len(self.rejects),
            "schema": self.schema.name,
            "labels": ", ".join(self.tasks) or None,
        }
        first = range(min(_DRAWN, len(self)))
        drawings, texts = [""] * len(first), [""] * len(first)
        with suppress(GraphLoGError):  # the store may have been built without texts
            texts = self.texts(first)
            if GraphStore.drawn_by is not None:
                drawings = GraphStore.drawn_by(self, first, _WIDTH, _HEIGHT) or drawings
        figures = "".join(
            '<figure style="display:inline-block;margin:4px;background:#fff;color:#000">'
            f"{drawing}<figcaption>{escape(text[:40])}</figcaption></figure>"
            for drawing, text in zip(drawings, texts, strict=True)
            if drawing or text
        )
        return html_table(fields_table(fields, "GraphStore")) + figures

    def __reduce__(self) -> Any:
        """Pickle a memory-mapped store as its path, so that processes share its memory pages."""
        if self.path is None:
            return GraphStore, (self.contents, self.indices, self.limit)
        digest = self.contents.manifest.digest
        return _reopen, (self.path.absolute(), digest, self.indices, self.limit)

    @property
    def _counts(self) -> Mapping[Any, int]:
        return self.contents.manifest.counts

    @property
    def schema(self) -> FeatureSchema:
        """Meaning of the attributes."""
        return self.contents.schema

    @property
    def path(self) -> Path | None:
        """Folder from which the store is memory-mapped; None for a store in memory."""
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
    def source(self) -> Source:
        """Origin of the graphs, and how they were read."""
        return self.contents.manifest.source

    @property
    def num_rows(self) -> int:
        """Number of rows of the input, including rejected ones."""
        return self._counts["rows"] if self.limit is None else self.limit

    @property
    def nbytes(self) -> int:
        """Size in bytes of the graphs of the whole store, without texts, labels and rejects."""
        excluded = ("labels", "rejects", "text_blocks", "text_offsets", "parents")
        files = self.contents.manifest.files.items()
        return sum(file.bytes for name, file in files if name not in excluded)

    @property
    def digest(self) -> str:
        """Sha256 that identifies the graphs; that of a view is computed from store and indices."""
        whole = self.contents.manifest.digest
        if self.indices is None:
            return whole
        return hashlib.sha256(whole.encode() + self.indices.astype("<i8").tobytes()).hexdigest()

    @property
    def rows(self) -> Int[np.ndarray, "M"]:
        """Data row of the input of each graph, counted from 0."""
        if "rows" not in self.contents.arrays:
            return self._graphs().copy()
        return self._per_graph("rows").astype(np.int64)

    @property
    def labels(self) -> Float[np.ndarray, "M T"] | None:
        """Labels, NaN where missing; None for a store without tasks."""
        return self._per_graph("labels").astype(np.float64) if self.tasks else None

    @property
    def num_nodes(self) -> Int[np.ndarray, "M"]:
        """Number of nodes of each graph."""
        return self._ranges("node", self._graphs())[1]

    @property
    def num_edges(self) -> Int[np.ndarray, "M"]:
        """Number of directed edges of each graph, as in a batch."""
        return self._ranges("edge", self._graphs())[1] * (2 if self.undirected else 1)

    @property
    def rejects(self) -> list[Reject]:
        """Input rows that have no graph."""
        return list(self.iter_rejects())

    def iter_rejects(self) -> Iterator[Reject]:
        """Yield the input rows that have no graph, without holding all of them in memory."""
        for row, text, reason, kind in self._lines("rejects", (int, str, str, str)):
            if not 0 <= row < self._counts["rows"] or kind not in list(RejectKind):
                raise inconsistent_arrays(self.path)
            if row < self.num_rows:
                yield Reject(row, text, reason, RejectKind(kind))

    def _lines(self, name: str, types: tuple[type, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the lists of values of the given types that an array holds as lines of JSON."""
        content, rest = self.contents.arrays.get(name, np.empty(0, np.uint8)), b""
        for start in range(0, len(content), _BYTES_A_BLOCK):
            *lines, rest = (rest + content[start : start + _BYTES_A_BLOCK].tobytes()).split(b"\n")
            for line in lines:
                try:
                    values = tuple(json.loads(line))
                except (ValueError, TypeError, RecursionError):
                    raise inconsistent_arrays(self.path) from None
                if tuple(map(type, values)) != types:
                    raise inconsistent_arrays(self.path)
                yield values
        if rest:
            raise inconsistent_arrays(self.path)

    @property
    def has_texts(self) -> bool:
        """Whether the store has the text that each graph was parsed from."""
        return "text_blocks" in self.contents.arrays

    @property
    def output_rows(self) -> Int[np.ndarray, "M"]:
        """Row of each graph in an output aligned with the input; its position in a view."""
        return np.arange(len(self)) if self._is_renumbered else self.rows

    @property
    def num_output_rows(self) -> int:
        """Number of rows of an output aligned with the input; of a view, its number of graphs."""
        return len(self) if self._is_renumbered else self.num_rows

    @property
    def output_rejects(self) -> list[Reject]:
        """Rejected rows of an output aligned with the input; a view has none."""
        return [] if self._is_renumbered else self.rejects

    @property
    def _is_renumbered(self) -> bool:
        """Whether this is a view with one row per graph."""
        return self.indices is not None and self.limit is None

    def output_status(self) -> list[str]:
        """Return ``ok``, or the reason for which there is no graph, for every output row."""
        status = [""] * self.num_output_rows
        for row in self.output_rows.tolist():
            status[row] = "ok"
        for reject in self.output_rejects:
            if status[reject.row]:
                raise inconsistent_arrays(self.path)
            status[reject.row] = reject.reason
        return status

    def take(self, indices: Any) -> GraphBatch:
        """Return the batch of the graphs at ``indices``, in this order; repeats are allowed.

        Raises:
            IndexError: If an index is out of range.
            ModelFileError: If an edge leaves its graph, in a store of another program.
        """
        graphs = self._resolve(indices)
        node_counts, edge_counts, x, ends, edge_attr = self._gather(graphs)
        ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(node_counts)])
        ends = ends + np.repeat(ptr[:-1], edge_counts)[:, None]
        if self.undirected:
            edge_index = np.stack([ends.ravel(), ends[:, ::-1].ravel()])
            edge_attr = np.repeat(edge_attr, 2, axis=0)
        else:
            edge_index = np.ascontiguousarray(ends.T)
        labels = self.contents.arrays["labels"][graphs].astype(np.float32) if self.tasks else None
        return GraphBatch(
            x=torch.from_numpy(x),
            edge_index=torch.from_numpy(edge_index),
            edge_attr=torch.from_numpy(edge_attr),
            batch=torch.from_numpy(np.repeat(np.arange(len(graphs)), node_counts)),
            ptr=torch.from_numpy(ptr),
            y=None if labels is None else torch.from_numpy(labels),
            schema=self.schema,
        )

    def chunks(self) -> Iterator[GraphChunk]:
        """Yield all graphs in chunks; an empty store yields one empty chunk."""
        for start in range(0, max(len(self), 1), _GRAPHS_A_CHUNK):
            graphs = self._resolve(slice(start, start + _GRAPHS_A_CHUNK))
            node_counts, edge_counts, x, ends, edge_attr = self._gather(graphs)
            view = GraphStore(self.contents, graphs)
            texts = view.texts() if self.has_texts else None
            parents = enumerate(view.parents() if texts is not None else ())
            yield GraphChunk(
                node_counts=node_counts,
                edge_counts=edge_counts,
                x=x,
                edge_index=np.ascontiguousarray(ends.T.astype(np.int64)),
                edge_attr=edge_attr,
                rows=view.rows,
                texts=texts,
                labels=view.labels,
                undirected=self.undirected,
                parents={k: parent for k, parent in parents if texts and parent != texts[k]},
            )

    def texts(self, indices: Any = None) -> list[str]:
        """Return the text that each graph was parsed from; of all graphs by default.

        Raises:
            DataError: If the store was built without texts.
        """
        if not len(self):
            return []
        if not self.has_texts:
            name = "texts (SMILES)" if self.schema.domain == "molecule" else "texts"
            raise DataError(
                f"this store was built without its {name}; build it again with them kept."
            )
        graphs = self._graphs(indices)
        blocks, offsets = self.contents.arrays["text_blocks"], self.contents.arrays["text_offsets"]
        texts = np.empty(len(graphs), dtype=object)
        order = np.argsort(graphs, kind="stable")
        numbers, starts = np.unique(graphs[order] // TEXTS_A_BLOCK, return_index=True)
        for number, members in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
            first = number * TEXTS_A_BLOCK
            block = blocks[int(offsets[number]) : int(offsets[number + 1])].tobytes()
            unpacked = unpack_texts(block, min(TEXTS_A_BLOCK, self._counts["graphs"] - first))
            texts[members] = np.array(unpacked, dtype=object)[graphs[members] - first]
        return texts.tolist()

    def parents(self, indices: Any = None) -> list[str]:
        """Return the text by which to split data and find repeats: that of the parent, or its own.

        Raises:
            DataError: If the store was built without texts.
        """
        texts = self.texts(indices)
        if "parents" not in self.contents.arrays:
            return texts
        parents = self.contents.parents
        if not parents:
            parents.update(self._lines("parents", (int, str)))
        graphs = self._graphs(indices).tolist()
        return [parents.get(g, text) for g, text in zip(graphs, texts, strict=True)]

    def output_texts(self) -> list[str]:
        """Return the text of every output row, "" for a row without a graph or text."""
        texts = [""] * self.num_output_rows
        if len(self) and self.has_texts:
            for row, text in zip(self.output_rows.tolist(), self.texts(), strict=True):
                texts[row] = text
        return texts

    def subset(self, indices: Any) -> "GraphStore":
        """Return a view of the graphs at ``indices``, which copies no graphs."""
        graphs = self._resolve(indices).copy()
        graphs.setflags(write=False)
        return GraphStore(self.contents, graphs)

    def first_rows(self, count: int) -> "GraphStore":
        """Return a view of the first ``count`` rows of the input; of a view, its first graphs."""
        if self._is_renumbered:
            return self.subset(np.arange(min(count, len(self))))
        if count >= self.num_rows:
            return self
        return replace(self.subset(np.flatnonzero(self.rows < count)), limit=count)

    def save(self, path: Path | str, overwrite: bool = True) -> "GraphStore":
        """Write these graphs as a store and return it; that of a whole store has its digest.

        A view is saved with one row per graph. A store at ``path`` is replaced, unless
        ``overwrite`` is False.
        """
        rows = self.output_rows
        with StoreBuilder(self.schema, path, self.tasks, self.source, overwrite) as builder:
            done = 0
            for chunk in self.chunks():
                builder.add(replace(chunk, rows=rows[done : done + len(chunk)]))
                done += len(chunk)
            for reject in self.output_rejects:
                builder.reject(reject)
            return builder.finish()

    def _graphs(self, indices: Any = None) -> Int[np.ndarray, "N"]:
        """Return the indices of graphs in the whole store, of all graphs by default."""
        if indices is not None:
            return self._resolve(indices)
        return np.arange(len(self)) if self.indices is None else self.indices

    def _resolve(self, indices: Any) -> Int[np.ndarray, "N"]:
        """Return the indices in the whole store of a slice, an index, indices, or a mask."""
        is_slice = isinstance(indices, slice)
        chosen = np.arange(*indices.indices(len(self))) if is_slice else np.asarray(indices)
        if chosen.dtype == np.bool_:
            if chosen.shape != (len(self),):
                raise IndexError(f"a mask must have {len(self)} entries, found {chosen.shape}.")
            chosen = np.flatnonzero(chosen)
        if chosen.size and chosen.dtype.kind not in "iu":
            raise IndexError(f"indices must be integers, found {chosen.dtype}.")
        chosen = chosen.reshape(-1).astype(np.int64)
        wrong = chosen[(chosen < -len(self)) | (chosen >= len(self))]
        if len(wrong):
            raise IndexError(f"graph {wrong[0]} is out of range for a store of {len(self)}.")
        chosen = np.where(chosen < 0, chosen + len(self), chosen)
        return chosen if self.indices is None else self.indices[chosen]

    def _per_graph(self, name: str) -> Array:
        """Return the part of an array with one item per graph that belongs to these graphs."""
        array = self.contents.arrays[name]
        return array if self.indices is None else array[self.indices]

    def _ranges(self, kind: str, graphs: Integer[np.ndarray, "N"]) -> tuple[Array, Array]:
        """Return the first node or edge of each graph, and their number."""
        offsets = self.contents.arrays[f"{kind}_offsets"]
        starts = offsets[graphs].astype(np.int64)
        return starts, offsets[graphs + 1].astype(np.int64) - starts

    def _gather(self, graphs: Integer[np.ndarray, "N"]) -> tuple[Array, Array, Array, Array, Array]:
        """Return the concatenated arrays of graphs of the whole store.

        These are the numbers of nodes and of stored edges of each graph, the node attributes, the
        two nodes of each edge (numbered within the graph), and the edge attributes.
        """
        starts, node_counts = self._ranges("node", graphs)
        x = self._attributes("node", ragged_ranges(starts, node_counts))
        starts, edge_counts = self._ranges("edge", graphs)
        edges = ragged_ranges(starts, edge_counts)
        ends = self.contents.arrays["endpoints"][edges]
        if (ends >= np.repeat(node_counts, edge_counts)[:, None]).any():
            raise inconsistent_arrays(self.path)
        return node_counts, edge_counts, x, ends, self._attributes("edge", edges)

    def _attributes(self, kind: str, items: Integer[np.ndarray, "R"]) -> Num[np.ndarray, "R F"]:
        """Return the attributes of nodes or edges, given their indices in the whole store."""
        columns = self.schema.node if kind == "node" else self.schema.edge
        value_type = np.float32 if is_continuous(columns) else np.int64
        arrays, tables = self.contents.arrays, self.contents.values
        if not columns:
            return np.empty((len(items), 0), value_type)
        if f"{kind}_rows" in arrays:
            return arrays[f"{kind}_rows"][items].astype(value_type)
        if kind not in tables:
            tables[kind] = arrays[f"{kind}_table"].astype(value_type)
        try:
            return tables[kind][arrays[f"{kind}_codes"][items]]
        except IndexError:  # a code beyond the table
            raise inconsistent_arrays(self.path) from None


def _reopen(path: Path, digest: str, indices: Any, limit: int | None) -> GraphStore:
    contents = read_contents(path, verify=False)  # verified by the process that pickled it
    if contents.manifest.digest != digest:
        raise ModelFileError(f"{path}: replaced by another store while in use; start again.")
    return GraphStore(contents, indices, limit)


def open_store(path: Path | str) -> GraphStore:
    """Memory-map the store in folder ``path``; the hashes of its files are checked once.

    Raises:
        ModelFileError: If it is no store, of a newer version, incomplete, or changed.
    """
    return GraphStore(read_contents(Path(path)))


class StoreBuilder:
    """Writer of a :class:`GraphStore` from chunks of graphs, in memory or in the folder ``path``.

    With a path, memory holds one chunk and the table of distinct attribute rows. The files are
    written to a hidden folder next to ``path`` and moved there by :meth:`finish`. A store at
    ``path`` is replaced, unless ``overwrite`` is False. Use the builder as a context manager, which
    removes unfinished files; those of a killed process are removed by the next build.

    Raises:
        ConfigError: If ``path`` exists and is not a store, or must not be replaced.
        DataError: If the files cannot be written.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        path: Path | str | None = None,
        tasks: Sequence[str] = (),
        source: Source | None = None,
        overwrite: bool = True,
    ) -> None:
        self.schema, self.tasks, self.source = schema, tuple(tasks), source or Source()
        self.path, self.overwrite = None if path is None else Path(path), overwrite
        self._folder: Path | None = None
        self._arrays: dict[str, ArrayWriter] = {}
        self._texts: TextWriter | None = None
        self._undirected: bool | None = None
        self._lines: dict[str, list[str]] = {"rejects": [], "parents": []}
        self._counts = dict.fromkeys(("graphs", "nodes", "edges", "rows", "rejects"), 0)
        self._top_row = -1
        with ExitStack() as unfinished, _writing(self.path):
            if self.path is not None:
                _check_replaceable(self.path, overwrite)
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._folder = unfinished.enter_context(scratch_folder(self.path)) / "store"
                self._folder.mkdir()
            self._attributes = [
                AttributeWriter(name, columns, self._new_array)
                for name, columns in (("node", schema.node), ("edge", schema.edge))
                if columns
            ]
            self._append("node_offsets", np.zeros(1, np.int64))
            self._append("edge_offsets", np.zeros(1, np.int64))
            self._append("endpoints", np.empty((0, 2), np.int64))
            if self.tasks:
                self._append("labels", np.empty((0, len(self.tasks)), np.float32))
            self._unfinished = unfinished.pop_all()

    def _new_array(self, name: str) -> ArrayWriter:
        return ArrayWriter(None if self._folder is None else self._folder / f"{name}.bin")

    def _append(self, name: str, rows: Array) -> None:
        if name not in self._arrays:
            self._arrays[name] = self._new_array(name)
        self._arrays[name].append(rows)

    def add(self, chunk: GraphChunk) -> None:
        """Append graphs."""
        chunk.check(self.schema)
        has_texts = chunk.texts is not None
        if self._undirected is None:
            self._undirected = chunk.undirected
            self._texts = TextWriter(self._new_array) if has_texts else None
        tasks = 0 if chunk.labels is None else chunk.labels.shape[1]
        assert tasks == len(self.tasks), "`labels` must have a column for each of `tasks`"
        agrees = chunk.undirected == self._undirected and has_texts == (self._texts is not None)
        assert agrees, "chunks must agree on `undirected` and on whether they have `texts`"
        counts, graphs = self._counts, self._counts["graphs"]
        with _writing(self.path):
            self._append("node_offsets", counts["nodes"] + np.cumsum(chunk.node_counts))
            self._append("edge_offsets", counts["edges"] + np.cumsum(chunk.edge_counts))
            self._append("endpoints", chunk.edge_index.T)
            if "rows" in self._arrays or (chunk.rows != graphs + np.arange(len(chunk))).any():
                if "rows" not in self._arrays:
                    self._append("rows", np.arange(graphs))
                self._append("rows", chunk.rows)
            for writer, rows in zip(self._attributes, (chunk.x, chunk.edge_attr), strict=False):
                writer.append(rows)
            if chunk.labels is not None:
                self._append("labels", chunk.labels)
            if self._texts is not None and chunk.texts is not None:
                self._texts.append(chunk.texts)
                parents = ((graphs + k, parent) for k, parent in chunk.parents.items())
                self._lines["parents"] += map(json.dumps, parents)
            self._append_lines()
        self._top_row = max(self._top_row, int(chunk.rows.max(initial=-1)))
        counts["graphs"] += len(chunk)
        counts["nodes"] += len(chunk.x)
        counts["edges"] += len(chunk.edge_attr)

    def _append_lines(self) -> None:
        """Write the lines of JSON that are waiting."""
        for name, lines in self._lines.items():
            if lines:
                text = "".join(f"{line}\n" for line in lines)
                self._append(name, np.frombuffer(text.encode(), np.uint8))
                lines.clear()

    def reject(self, reject: Reject) -> None:
        """Record a row that has no graph."""
        values = reject.row, reject.text, reject.reason, reject.kind
        self._lines["rejects"].append(json.dumps(values))
        self._top_row = max(self._top_row, reject.row)
        self._counts["rejects"] += 1

    def finish(self) -> GraphStore:
        """Move the store to its path and return it; every row must have a graph or be rejected."""
        rows = self._counts["rows"] = self._counts["graphs"] + self._counts["rejects"]
        assert self._top_row == rows - 1, "every row of the input must be a graph or rejected"
        with _writing(self.path), self._unfinished:
            self._append_lines()
            arrays = {name: writer.finish() for name, writer in self._arrays.items()}
            writers = self._attributes if self._texts is None else [*self._attributes, self._texts]
            for writer in writers:
                arrays |= writer.finish()
            manifest = Manifest(
                schema=self.schema.to_dict(),
                counts=self._counts,
                undirected=self._undirected is not False,
                tasks=self.tasks,
                texts_sha256=None if self._texts is None else self._texts.sha256,
                source=self.source,
                files=describe(arrays, self._folder),
            ).signed()
            if self.path is None or self._folder is None:
                return GraphStore(Contents(manifest, self.schema, arrays))
            write_manifest(self._folder, manifest)
            try:
                self._folder.replace(self.path)
            except OSError:  # usually since `path` is a store
                if not self.path.exists():
                    raise
                _check_replaceable(self.path, self.overwrite)
                exchange(self._folder, self.path)
        return open_store(self.path)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove unfinished files."""
        self._unfinished.close()


def check_free(path: Path) -> None:
    """Raise a ConfigError if something exists at the path of a new store."""
    if path.exists():
        raise ConfigError(
            f"{path} exists already; replace it with {setting('overwrite', True)}, or name "
            "another folder.",
            option="overwrite",
        )


def _check_replaceable(path: Path, overwrite: bool) -> None:
    """Raise a ConfigError if something exists at ``path`` that must not be replaced."""
    if not overwrite:
        check_free(path)
    is_empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    # the path "." of the current folder has no name and cannot be replaced
    if path.exists() and (not path.name or not (is_empty or is_ours(path))):
        raise ConfigError(
            f"{path} exists and is not a graph store, or holds other files too, so it is not "
            "replaced; choose another name."
        )


@contextmanager
def _writing(path: Path | None) -> Generator[None]:
    """Turn any OSError of the block into a DataError for the store ``path``."""
    try:
        yield
    except OSError as e:
        raise DataError(
            f"cannot write the store {path}: {e.strerror or e}; free the disk or choose another "
            "folder (of temporary files: by the variable TMPDIR)."
        ) from None


def bad_row(where: str, reason: str, row: int | None = None) -> DataError:
    """Return the error for a bad row if such rows are not skipped."""
    return DataError(
        f"{where}: {reason}; fix it, or skip such rows with {setting('on_error', 'skip')}.",
        option="on_error",
        row=row,
    )


class RowCollector:
    """Collector that adds the graphs and rejected rows of an input to a builder and counts them.

    Messages call the input ``where`` and a row an ``item``. The function ``progress`` is called
    with the numbers of rows done and rejected.
    """

    def __init__(
        self,
        builder: StoreBuilder | None,
        where: str,
        on_error: str = "skip",
        progress: Callable[[int, int], None] | None = None,
        item: str = "data row",
    ) -> None:
        self.done = self.rejected = self._first_row = 0
        self._builder, self._where, self._on_error, self._item = builder, where, on_error, item
        self._progress = progress
        self._examples: list[Reject] = []

    def into(self, builder: StoreBuilder) -> None:
        """Add the following rows to another builder, in which they are numbered from 0."""
        self._builder, self._first_row = builder, self.done

    def add(self, chunk: GraphChunk | None, rejects: Iterable[Reject], rows: int) -> None:
        """Add the graphs and the rejected rows of the next ``rows`` rows."""
        for reject in rejects:
            self.reject(reject)
        if chunk is not None and self._builder is not None:
            self._builder.add(replace(chunk, rows=chunk.rows - self._first_row))
        self.done += rows
        if self._progress is not None:
            self._progress(self.done, self.rejected)

    def reject(self, reject: Reject) -> None:
        """Record a row without a graph; raise a DataError if bad rows are not skipped."""
        # some reasons of RDKit end in a line break
        reject = replace(reject, reason=" ".join(reject.reason.split()))
        is_bad = reject.kind != RejectKind.EXCLUDED
        if is_bad and self._on_error == "fail":
            text = f"{reject.text[:80]!a}: " if reject.text else ""
            where = f"{self._where}, {self._item} {reject.row}"
            raise bad_row(where, f"{text}{reject.reason}", reject.row)
        if self._builder is not None:
            self._builder.reject(replace(reject, row=reject.row - self._first_row))
        self.rejected += is_bad
        if is_bad and len(self._examples) < _EXAMPLES:
            self._examples.append(reject)

    def refuse_if_mostly_bad(self, advice: str) -> None:
        """Raise a DataError with ``advice`` and examples if more than half of the rows are bad."""
        if self.rejected > _LARGEST_SHARE * self.done:
            item = self._item.removeprefix("data ")
            examples = "; ".join(
                f"{item} {r.row}: " + (f"{r.text[:40]!a}: " if r.text else "") + r.reason
                for r in self._examples
            )
            raise DataError(
                f"{self._where}: {self.rejected:,} of {self.done:,} {item}s cannot be "
                f"used{advice}. {examples}."
            )
