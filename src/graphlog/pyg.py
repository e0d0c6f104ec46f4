"""The face shown to PyTorch Geometric: lists of ``Data`` to a store and back."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.data import Batch, Data

from graphlog.data.batch import GraphBatch
from graphlog.data.builder import StoreBuilder
from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import Attribute, FeatureSchema, is_continuous
from graphlog.data.store import GraphStore
from graphlog.domains import schema_named
from graphlog.domains.graph.raw import RawGraphs
from graphlog.domains.graph.schema import Survey, attribute_codes
from graphlog.errors import DataError

Array = npt.NDArray[Any]

_CHUNK = 4096


def from_pyg(graphs: Iterable[Any] | Data, schema: str | FeatureSchema | None = None) -> GraphStore:
    """Build a store from torch_geometric graphs.

    If all edges come as consecutive pairs ``(a, b), (b, a)`` with equal attributes, each pair is
    stored once; otherwise edges stay as they are. Either way they come back in their order.

    Args:
        graphs: A list of ``Data``, a data set, a ``DataLoader`` or ``Batch`` (split into its
            graphs), or one ``Data``; ``x``, ``edge_index``, ``edge_attr``, ``y`` and ``smiles`` are
            read.
        schema: ``"molecule"`` and the like take codes as they are (the pre-train-GNNs family's).
            None infers one: integer columns are categorical, a one-hot matrix becomes one
            categorical column, other columns are continuous and are standardized when read by an
            encoder, and graphs without ``x`` get their nodes' degrees. The schema of another store
            or of a model makes these graphs fit for it; unknown categories are refused.

    Returns:
        A store whose graph ``i`` is ``graphs[i]``.

    Raises:
        DataError: Naming the graph whose attributes, node numbers or widths do not fit.
        ConfigError: If the schema's name is unknown.
    """
    items = [graphs] if isinstance(graphs, Data) else graphs
    packed = _pack([graph for k, item in enumerate(items) for graph in _split(item, k)])
    if schema is None:
        names = (
            tuple(f"{kind}_{k}" for k in range(len(columns)))
            for kind, columns in (("node", packed.raw.node), ("edge", packed.raw.edge))
        )
        survey = Survey(*names, matrices=True)
        survey.add(packed.raw)
        schema = survey.schema()
    elif isinstance(schema, str):
        schema = schema_named(schema)
    _check_width("x", packed.raw.node, schema.node, int(packed.raw.node_counts.sum()))
    _check_width("edge_attr", packed.raw.edge, schema.edge, packed.raw.edge_index.shape[1])
    return _build(packed, schema)


def to_pyg(graphs: GraphStore | GraphBatch) -> list[Data]:
    """Return one ``Data`` a graph, with ``y`` if there are labels; :func:`from_pyg` reads them."""
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
    """Many graphs end to end, and what else they carry."""

    raw: RawGraphs
    labels: Array | None
    texts: list[str] | None


def _split(item: Any, number: int) -> list[Any]:
    """Return the graphs of a batch; anything else as it is."""
    if not isinstance(item, Batch):
        return [item]
    try:
        return item.to_data_list()
    except RuntimeError:
        raise DataError(
            f"from_pyg: item {number} is a Batch without the limits of its graphs; make it with "
            "Batch.from_data_list or a DataLoader, or give the graphs themselves."
        ) from None


def _pack(graphs: list[Any]) -> _Packed:
    if not graphs:
        raise DataError("from_pyg: the collection holds no graph; give at least one.")
    for number, graph in enumerate(graphs):
        if not isinstance(graph, Data):
            raise DataError(
                f"from_pyg: item {number} must be a torch_geometric Data object, found "
                f"{type(graph).__name__}."
            )
    edges = [_edges(g, n) for n, g in enumerate(graphs)]
    node_counts = np.array([int(g.num_nodes or 0) for g in graphs], dtype=np.int64)
    edge_counts = np.array([e.shape[1] for e in edges], dtype=np.int64)
    attributes = [
        _matrix(g.edge_attr, "edge_attr", edges[n].shape[1], n) for n, g in enumerate(graphs)
    ]
    nodes = [_matrix(g.x, "x", int(g.num_nodes or 0), n) for n, g in enumerate(graphs)]
    edge_index = np.concatenate(edges, axis=1)
    out = (edge_index < 0) | (edge_index >= np.repeat(node_counts, edge_counts))
    if out.any():
        at = int(out.any(axis=0).argmax())
        graph = _graph_of(at, edge_counts)
        a, b = edge_index[:, at]
        raise DataError(
            f"graph {graph}: `edge_index` must number its {node_counts[graph]} nodes from 0, found "
            f"the edge {a} - {b}; mend it with node numbers local to each graph."
        )
    texts: list[Any] = [getattr(graph, "smiles", None) for graph in graphs]
    return _Packed(
        raw=RawGraphs(
            node_counts=node_counts,
            edge_counts=edge_counts,
            edge_index=edge_index,
            node=tuple(_joined(nodes, "x").T),
            edge=tuple(_joined(attributes, "edge_attr").T),
        ),
        labels=_labels(graphs),
        texts=texts if all(isinstance(text, str) for text in texts) else None,
    )


def _edges(graph: Data, number: int) -> Array:
    if graph.edge_index is None:
        return np.zeros((2, 0), dtype=np.int64)
    edges = graph.edge_index.detach().cpu().numpy()
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(
            f"graph {number}: `edge_index` must be integers of shape (2, E), found {edges.dtype} "
            f"of shape {edges.shape}."
        )
    return edges.astype(np.int64)


def _matrix(values: torch.Tensor | None, name: str, rows: int, number: int) -> Array:
    if values is None:
        return np.zeros((rows, 0), dtype=np.int64)
    matrix = values.detach().cpu().numpy()
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or len(matrix) != rows:
        raise DataError(
            f"graph {number}: `{name}` must have {rows} rows, one each, found shape {matrix.shape}."
        )
    return matrix.astype(np.int64) if matrix.dtype.kind in "iub" else matrix.astype(np.float32)


def _joined(matrices: list[Array], name: str) -> Array:
    filled = [m for m in matrices if len(m)] or matrices
    ((width, _),) = Counter(m.shape[1] for m in filled).most_common(1)
    for number, matrix in enumerate(matrices):
        if matrix.shape[1] != width and len(matrix):
            raise DataError(
                f"graph {number}: `{name}` must have {width} columns as in most other graphs, "
                f"found {matrix.shape[1]}."
            )
    joined = np.concatenate([m.reshape(len(m), width) for m in matrices])
    if joined.dtype.kind == "f" and not np.isfinite(joined).all():
        at = int((~np.isfinite(joined)).any(axis=1).argmax())
        graph = _graph_of(at, np.array([len(m) for m in matrices]))
        raise DataError(
            f"graph {graph}: `{name}` must be finite, found NaN or infinity; replace or drop such "
            "values."
        )
    return joined


def _labels(graphs: list[Data]) -> Array | None:
    found = [None if g.y is None else torch.as_tensor(g.y, dtype=torch.float32) for g in graphs]
    found = [None if y is None else y.detach().cpu().numpy().reshape(-1) for y in found]
    widths = {len(y) for y in found if y is not None}
    if not widths:
        return None
    if len(widths) > 1:
        raise DataError(
            f"`y` must hold the same number of labels in every graph, found {sorted(widths)[:4]}; "
            "per-node labels are not read."
        )
    missing = np.full(widths.pop(), np.nan, dtype=np.float32)
    return np.stack([missing if y is None else y for y in found])


def _graph_of(position: int, counts: Array) -> int:
    return int(np.searchsorted(np.cumsum(counts), position, side="right"))


def _check_width(
    name: str, values: tuple[Array, ...], columns: tuple[Attribute, ...], items: int
) -> None:
    width = len(values)
    if width != len(columns) and items and not any(c.origin != "given" for c in columns):
        expected = ", ".join(c.name for c in columns) or "none"
        raise DataError(
            f"`{name}` must have {len(columns)} columns ({expected}), found {width}; schema=None "
            "infers what is there."
        )


def _is_paired(raw: RawGraphs, edge_attr: Array) -> bool:
    """Return whether edges come as ``(a, b), (b, a)`` with equal attributes, graph by graph."""
    if (raw.edge_counts % 2).any():
        return False
    there, back = raw.edge_index[:, 0::2], raw.edge_index[:, 1::2]
    return bool((there == back[::-1]).all() and (edge_attr[0::2] == edge_attr[1::2]).all())


def _build(packed: _Packed, schema: FeatureSchema) -> GraphStore:
    raw, labels, texts = packed.raw, packed.labels, packed.texts
    x, unfit_nodes = attribute_codes(raw, "node", schema.node)
    edge_attr, unfit_edges = attribute_codes(raw, "edge", schema.edge)
    for unfit, counts in ((unfit_nodes, raw.node_counts), (unfit_edges, raw.edge_counts)):
        if unfit:
            raise DataError(f"graph {_graph_of(unfit[0].item, counts)}: {unfit[0].reason}.")
    x = x.astype(np.float32 if is_continuous(schema.node) else np.int64)
    edge_attr = edge_attr.astype(np.float32 if is_continuous(schema.edge) else np.int64)
    undirected = _is_paired(raw, edge_attr)
    step = 2 if undirected else 1
    tasks = tuple(f"y{t}" for t in range(0 if labels is None else labels.shape[1]))
    builder = StoreBuilder(schema, None, tasks=tasks, source={"kind": "torch_geometric"})
    node_ptr = np.concatenate([[0], np.cumsum(raw.node_counts)])
    edge_ptr = np.concatenate([[0], np.cumsum(raw.edge_counts)])
    for start in range(0, len(raw.node_counts), _CHUNK):
        stop = min(start + _CHUNK, len(raw.node_counts))
        graphs, nodes = slice(start, stop), slice(node_ptr[start], node_ptr[stop])
        edges = slice(edge_ptr[start], edge_ptr[stop], step)
        chunk = GraphChunk(
            node_counts=raw.node_counts[graphs],
            edge_counts=raw.edge_counts[graphs] // step,
            x=x[nodes],
            edge_index=raw.edge_index[:, edges],
            edge_attr=edge_attr[edges],
            rows=np.arange(start, stop, dtype=np.int64),
            texts=None if texts is None else texts[graphs],
            labels=None if labels is None else labels[graphs],
            undirected=undirected,
        )
        builder.add(chunk)
    return builder.finish()
