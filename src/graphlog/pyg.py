"""The face shown to PyTorch Geometric: lists of ``Data`` to a store and back."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.data import Data

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import Attribute, FeatureSchema, is_continuous
from graphlog.data.store import GraphChunk, GraphStore, StoreBuilder
from graphlog.domains import SCHEMAS
from graphlog.errors import DataError, unknown_name

Array = npt.NDArray[Any]

_CHUNK = 4096
_MAX_CODES = 4096
"""Integer columns with more values than this are numbers, not categories."""


def from_pyg(graphs: Iterable[Data] | Data, schema: str | FeatureSchema | None = None) -> GraphStore:
    """Build a store from torch_geometric graphs.

    Where all edges come as consecutive pairs ``(a, b), (b, a)`` with equal attributes, each pair is kept once;
    otherwise edges stay as they are. Either way they come back in their order.

    Args:
        graphs: A list of ``Data``, a data set, or one ``Data``; ``x``, ``edge_index``, ``edge_attr``, ``y`` and ``smiles`` are read.
        schema: ``"molecule"`` and the like take codes as they are (the pre-train-GNNs family's); None infers one:
            integer columns are categorical, a one-hot matrix becomes one categorical column, other columns are
            continuous, and graphs without ``x`` get their nodes' degrees.

    Returns:
        A store whose graph ``i`` is ``graphs[i]``.

    Raises:
        DataError: Naming the graph whose attributes, node numbers or widths do not fit.
        ConfigError: If the schema's name is unknown.
    """
    packed = _pack([graphs] if isinstance(graphs, Data) else list(graphs))
    if schema is None:
        schema, packed = _infer(packed)
    elif isinstance(schema, str):
        if schema not in SCHEMAS:
            raise unknown_name("schema", schema, SCHEMAS)
        schema = SCHEMAS[schema]
    _check_width("x", packed.x, schema.node)
    _check_width("edge_attr", packed.edge_attr, schema.edge)
    return _build(packed, schema)


def to_pyg(graphs: GraphStore | GraphBatch) -> list[Data]:
    """Return one ``Data`` a graph, with ``y`` where there are labels; :func:`from_pyg` reads them back."""
    batch = graphs if isinstance(graphs, GraphBatch) else graphs.take(np.arange(len(graphs)))
    edge_graph = batch.batch[batch.edge_index[0]]
    order = torch.sort(edge_graph, stable=True).indices
    counts = torch.bincount(edge_graph, minlength=batch.num_graphs).tolist()
    edge_index = (batch.edge_index - batch.ptr[edge_graph])[:, order].split(counts, dim=1)
    edge_attr = batch.edge_attr[order].split(counts)
    nodes = batch.x.split(batch.sizes.tolist())
    labels = [None] * batch.num_graphs if batch.y is None else list(batch.y[:, None])
    return [
        Data(x=x, edge_index=e, edge_attr=a if a.shape[1] else None, y=y)
        for x, e, a, y in zip(nodes, edge_index, edge_attr, labels, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Packed:
    """Many graphs end to end, edges with local node numbers."""

    node_counts: Array
    edge_counts: Array
    x: Array | None
    edge_index: Array
    edge_attr: Array
    labels: Array | None
    texts: list[str] | None


def _pack(graphs: list[Data]) -> _Packed:
    if not graphs:
        raise DataError("from_pyg: the collection holds no graph; give at least one.")
    edges = [_edges(g, n) for n, g in enumerate(graphs)]
    attributes = [_matrix(g.edge_attr, "edge_attr", e.shape[1], n) for n, (g, e) in enumerate(zip(graphs, edges, strict=True))]
    nodes = [_matrix(g.x, "x", int(g.num_nodes or 0), n) for n, g in enumerate(graphs)]
    node_counts = np.array([int(g.num_nodes or 0) for g in graphs], dtype=np.int64)
    edge_counts = np.array([e.shape[1] for e in edges], dtype=np.int64)
    packed = _Packed(
        node_counts=node_counts,
        edge_counts=edge_counts,
        x=None if all(g.x is None for g in graphs) else _joined(nodes, "x"),
        edge_index=np.concatenate(edges, axis=1),
        edge_attr=_joined(attributes, "edge_attr"),
        labels=_labels(graphs),
        texts=[str(g.smiles) for g in graphs] if all(isinstance(getattr(g, "smiles", None), str) for g in graphs) else None,
    )
    out = (packed.edge_index < 0) | (packed.edge_index >= np.repeat(node_counts, edge_counts))
    if out.any():
        at = int(out.any(axis=0).argmax())
        graph = _graph_of(at, edge_counts)
        a, b = packed.edge_index[:, at]
        raise DataError(
            f"graph {graph}: `edge_index` must number its {node_counts[graph]} nodes from 0, found the edge {a} - {b}; "
            "mend it with node numbers local to each graph."
        )
    return packed


def _edges(graph: Data, number: int) -> Array:
    if graph.edge_index is None:
        return np.zeros((2, 0), dtype=np.int64)
    edges = graph.edge_index.detach().cpu().numpy()
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"graph {number}: `edge_index` must be integers of shape (2, E), found {edges.dtype} of shape {edges.shape}.")
    return edges.astype(np.int64)


def _matrix(values: torch.Tensor | None, name: str, rows: int, number: int) -> Array:
    if values is None:
        return np.zeros((rows, 0), dtype=np.int64)
    matrix = values.detach().cpu().numpy()
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or len(matrix) != rows:
        raise DataError(f"graph {number}: `{name}` must have {rows} rows, one each, found shape {matrix.shape}.")
    return matrix.astype(np.int64) if matrix.dtype.kind in "iub" else matrix.astype(np.float32)


def _joined(matrices: list[Array], name: str) -> Array:
    width = max(m.shape[1] for m in matrices)
    for number, matrix in enumerate(matrices):
        if matrix.shape[1] != width and len(matrix):
            raise DataError(f"graph {number}: `{name}` must have {width} columns as in the other graphs, found {matrix.shape[1]}.")
    joined = np.concatenate([m.reshape(len(m), width) for m in matrices])
    if joined.dtype.kind == "f" and not np.isfinite(joined).all():
        at = int((~np.isfinite(joined)).any(axis=1).argmax())
        graph = _graph_of(at, np.array([len(m) for m in matrices]))
        raise DataError(f"graph {graph}: `{name}` must be finite, found NaN or infinity; replace or drop such values.")
    return joined


def _labels(graphs: list[Data]) -> Array | None:
    found = [None if g.y is None else torch.as_tensor(g.y).detach().cpu().numpy().reshape(-1).astype(np.float32) for g in graphs]
    widths = {len(y) for y in found if y is not None}
    if not widths:
        return None
    if len(widths) > 1:
        raise DataError(
            f"`y` must hold the same number of labels in every graph, found {sorted(widths)[:4]}; per-node labels are not read."
        )
    missing = np.full(widths.pop(), np.nan, dtype=np.float32)
    return np.stack([missing if y is None else y for y in found])


def _graph_of(position: int, counts: Array) -> int:
    return int(np.searchsorted(np.cumsum(counts), position, side="right"))


def _check_width(name: str, values: Array | None, columns: tuple[Attribute, ...]) -> None:
    width = 0 if values is None else values.shape[1]
    if width != len(columns) and not (name == "edge_attr" and values is not None and not len(values)):
        expected = ", ".join(c.name for c in columns) or "none"
        raise DataError(f"`{name}` must have {len(columns)} columns ({expected}), found {width}; schema=None infers what is there.")


def _infer(packed: _Packed) -> tuple[FeatureSchema, _Packed]:
    """Return a schema that fits the values, and the values in its codes."""
    node_columns, x, node_mask, _ = _infer_columns(_degrees(packed) if packed.x is None else packed.x, "node", special=1)
    if packed.x is None:
        node_columns = (replace(node_columns[0], name="degree"),)
    edge_columns, edge_attr, edge_mask, self_loop = _infer_columns(packed.edge_attr, "edge", special=2)
    schema = FeatureSchema(
        name="inferred",
        domain="graph",
        node=node_columns,
        edge=edge_columns,
        masked="node",
        node_mask=node_mask,
        edge_mask=edge_mask if edge_columns else None,
        self_loop=self_loop if edge_columns else None,
    )
    return schema, replace(packed, x=x, edge_attr=edge_attr)


def _infer_columns(values: Array, kind: str, special: int) -> tuple[tuple[Attribute, ...], Array, tuple[float, ...], tuple[float, ...]]:
    """Return columns, values, and the rows for "masked" and "self-loop": fresh codes, or 0 in continuous columns."""
    if values.shape[1] > 1 and len(values) and np.isin(values, (0, 1)).all() and (values.sum(axis=1) == 1).all():
        values = values.argmax(axis=1)[:, None]
    columns: list[Attribute] = []
    for i in range(values.shape[1]):
        low, high = (values[:, i].min(), values[:, i].max()) if len(values) else (0, 0)
        codes = values.dtype.kind == "i" and low >= 0 and high < _MAX_CODES
        columns.append(Attribute(f"{kind}_{i}", int(high) + 1 + special if codes else 0))
    mask = tuple(float(max(c.cardinality - special, 0)) for c in columns)
    loop = tuple(float(max(c.cardinality - 1, 0)) for c in columns)
    return tuple(columns), values, mask, loop


def _degrees(packed: _Packed) -> Array:
    offsets = np.cumsum(packed.node_counts) - packed.node_counts
    sources = packed.edge_index[0] + np.repeat(offsets, packed.edge_counts)
    return np.bincount(sources, minlength=int(packed.node_counts.sum()))[:, None].astype(np.int64)


def _is_paired(packed: _Packed) -> bool:
    """Return whether edges come as ``(a, b), (b, a)`` with equal attributes, graph by graph."""
    if (packed.edge_counts % 2).any():
        return False
    there, back = packed.edge_index[:, 0::2], packed.edge_index[:, 1::2]
    return bool((there == back[::-1]).all() and (packed.edge_attr[0::2] == packed.edge_attr[1::2]).all())


def _build(packed: _Packed, schema: FeatureSchema) -> GraphStore:
    undirected = _is_paired(packed)
    step = 2 if undirected else 1
    width = 0 if packed.labels is None else packed.labels.shape[1]
    builder = StoreBuilder(schema, None, tasks=tuple(f"y{t}" for t in range(width)), source={"kind": "torch_geometric"})
    x = np.zeros((0, len(schema.node))) if packed.x is None else packed.x
    x = x.astype(np.float32 if is_continuous(schema.node) else np.int64)
    edge_attr = packed.edge_attr.reshape(len(packed.edge_attr), len(schema.edge))
    edge_attr = edge_attr.astype(np.float32 if is_continuous(schema.edge) else np.int64)
    node_ptr = np.concatenate([[0], np.cumsum(packed.node_counts)])
    edge_ptr = np.concatenate([[0], np.cumsum(packed.edge_counts)])
    for start in range(0, len(packed.node_counts), _CHUNK):
        graphs = slice(start, start + _CHUNK)
        stop = min(start + _CHUNK, len(packed.node_counts))
        nodes, edges = slice(node_ptr[start], node_ptr[stop]), slice(edge_ptr[start], edge_ptr[stop], step)
        builder.add(
            GraphChunk(
                node_counts=packed.node_counts[graphs],
                edge_counts=packed.edge_counts[graphs] // step,
                x=x[nodes],
                edge_index=packed.edge_index[:, edges],
                edge_attr=edge_attr[edges],
                rows=np.arange(start, stop, dtype=np.int64),
                texts=None if packed.texts is None else packed.texts[graphs],
                labels=None if packed.labels is None else packed.labels[graphs],
                undirected=undirected,
            )
        )
    return builder.finish()
