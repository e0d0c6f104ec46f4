"""Conversion of graphs of PyTorch Geometric to a store, and back."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mode
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.data import Batch, Data

from graphlog.data.graphs import Attribute, FeatureSchema
from graphlog.data.store import GraphBatch, GraphStore
from graphlog.data.tables import listed
from graphlog.domains import schema_named
from graphlog.domains.graph.domain import GraphReading, pack
from graphlog.domains.graph.raw import BadGraphError, Collection, RawGraph
from graphlog.errors import ConfigError, DataError

Array = npt.NDArray[Any]
_READ = {"x", "edge_index", "edge_attr", "y", "smiles", "codes", "num_nodes", "batch", "ptr"}
"""Attributes of a ``Data`` that are read, or follow from those that are."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Value of the attribute ``codes`` of each ``Data`` from :func:`to_pyg`.

    It tells :func:`from_pyg` that ``x`` and ``edge_attr`` hold the codes of a store, not values.
    """

    schema: FeatureSchema | None
    """Schema of the codes; None for those of a batch without a schema."""

    def __str__(self) -> str:
        """Return the name of the schema, which torch_geometric prints."""
        return "?" if self.schema is None else self.schema.name


def from_pyg(
    graphs: Iterable[Any] | Data,
    schema: str | FeatureSchema | GraphStore | None = None,
    *,
    directed: bool | None = None,
    on_error: str = "fail",
) -> GraphStore:
    """Build a store from torch_geometric graphs.

    Edges are read as from files. An edge that is listed once or several times, in one or both
    directions, is the same undirected edge; self-loops are dropped, since every encoder adds one to
    each node; and a graph that lists an edge with different attributes cannot be used. With
    ``directed=True``, edges are kept as they are listed, which is necessary for attributes that
    depend on the direction.

    Graphs from :func:`to_pyg` hold codes, which their attribute ``codes`` tells; they are converted
    back exactly. Delete ``codes`` if you replace the codes by values.

    Args:
        graphs: A list of ``Data``, a data set, a ``DataLoader`` or ``Batch`` (split into its
            graphs), or one ``Data``; ``x``, ``edge_index``, ``edge_attr``, ``y`` and ``smiles`` are
            read, and ``source.notes`` of the store names all other attributes.
        schema: Schema of the graphs. The name of a fixed one, such as ``"molecule"``, reads codes
            of the pre-train-GNNs family. The schema of a store or a model, or a store itself, reads
            values as that one does, so that the graphs can be used with it; unknown categories are
            errors. None takes the schema of the store that the graphs come from, or infers one:
            integer columns are categorical, a one-hot matrix becomes one categorical column, other
            columns are continuous and are standardized by encoders, and the nodes of graphs without
            ``x`` get their degrees.
        directed: Whether edges are directed. None takes the direction of the schema, or of the
            store that the graphs come from, or else reads undirected edges.
        on_error: ``fail`` stops at the first graph that cannot be used; ``skip`` omits such graphs
            and lists them in ``rejects`` of the store.

    Returns:
        A store whose graph ``i`` is ``graphs[i]``, or with ``skip`` ``graphs[store.rows[i]]``.

    Raises:
        DataError: Naming the graph whose attributes, edges or widths do not fit (with ``skip``, if
            more than half do not); or if the graphs hold codes of another schema.
        ConfigError: If the schema or ``on_error`` is unknown, or ``directed`` contradicts the
            schema.
    """
    reading = GraphReading(directed=directed, on_error=on_error)
    given = _given_schema(schema)
    items = [graphs] if isinstance(graphs, Data) else graphs
    data = [graph for k, item in enumerate(items) for graph in _split(item, k)]
    if not data:
        raise DataError("from_pyg: the collection holds no graph; give at least one.")
    codes = _common_codes(data)
    known = read_as = given
    if codes is not None:
        known = _schema_of(codes, given)
        read_as = replace(known, node=_as_codes(known.node), edge=_as_codes(known.edge))
    raw = [_raw_graph(row, graph) for row, graph in enumerate(data)]
    if _may_label_nodes(data, raw):
        problem = (
            "`y` has as many labels as every graph has nodes: give labels of graphs the shape "
            "(1, T), as in y.reshape(1, -1); labels of nodes are not read"
        )
        if on_error == "fail":
            raise DataError(f"{problem}.")
        warnings.warn(f"{problem}, and these are left out", stacklevel=3)
        raw = [graph._replace(labels=()) for graph in raw]
    widths = {len(graph.labels) for graph in raw} - {0}
    if len(widths) > 1:
        raise DataError(
            f"`y` must hold the same number of labels in every graph, found {sorted(widths)[:4]}; "
            "per-node labels are not read."
        )
    missing = (None,) * max(widths, default=0)
    raw = [graph._replace(labels=graph.labels or missing) for graph in raw]
    usable = [graph for graph in raw if graph.problem is None]
    node = mode([len(graph.node) for graph in usable if graph.num_nodes] or [0])
    edge = mode([len(graph.edge) for graph in usable if graph.edge_index.size] or [0])
    unread = set[str]().union(*(g.keys() for g in data if isinstance(g, Data))) - _READ
    advice = (
        "put attributes in `x` and `edge_attr` (from_networkx: group_node_attrs, group_edge_attrs)"
    )
    notes = (f"not read: {listed(sorted(unread))}; {advice}",) if unread else ()
    collection = Collection(
        name="torch_geometric graphs",
        node=tuple(f"node_{k}" for k in range(node)),
        edge=tuple(f"edge_{k}" for k in range(edge)),
        labels=tuple(f"y{k}" for k in range(len(missing))),
        read=lambda: iter(raw),
        matrices=True,
        text_name="smiles" if all(graph.text for graph in usable) else "",
        keep_constant=True,
        notes=notes,
    )
    return pack(collection, collection.name, reading, known, read_as)


def to_pyg(graphs: GraphStore | GraphBatch) -> list[Data]:
    """Return one ``Data`` per graph, with ``y`` if there are labels.

    ``x`` and ``edge_attr`` hold the codes of the store: the index of a category in the schema, or a
    quantity itself. The attribute ``codes`` stores the schema, so that the inverse
    :func:`from_pyg`, ``embed`` and other functions can read the codes. ``y`` is float32, as losses
    need it: labels are rounded to seven digits. Molecules have ``smiles``, as in the input, if the
    store keeps texts.
    """
    texts: list[str] = []
    if isinstance(graphs, GraphBatch):
        batch, schema = graphs, graphs.schema
    else:
        if graphs.schema.domain == "molecule" and graphs.has_texts:
            texts = graphs.texts()
        batch, schema = graphs[:], graphs.schema
        if schema.domain == "graph":
            schema = replace(schema, directed=not graphs.undirected)
    codes = Codes(schema)
    edge_graph = batch.batch[batch.edge_index[0]]
    order = torch.sort(edge_graph, stable=True).indices
    counts = torch.bincount(edge_graph, minlength=batch.num_graphs).tolist()
    edge_index = (batch.edge_index - batch.ptr[edge_graph])[:, order].split(counts, dim=1)
    edge_attr = batch.edge_attr[order].split(counts)
    nodes = batch.x.split(batch.sizes.tolist())
    labels = [None] * batch.num_graphs if batch.y is None else list(batch.y[:, None])
    data = [
        Data(x=x, edge_index=e, edge_attr=a if a.shape[1] else None, y=y, codes=codes)
        for x, e, a, y in zip(nodes, edge_index, edge_attr, labels, strict=True)
    ]
    for graph, text in zip(data, texts, strict=False):
        graph.smiles = text
    return data


def _given_schema(schema: Any) -> FeatureSchema | None:
    if isinstance(schema, str):
        return schema_named(schema)
    schema = schema.schema if isinstance(schema, GraphStore) else schema
    if schema is None or isinstance(schema, FeatureSchema):
        return schema
    raise ConfigError(
        "`schema` must be a schema, the name of one, or a store, found "
        f"{type(schema).__name__}; give the schema of a model as `model.schema`."
    )


def _split(item: Any, number: int) -> list[Any]:
    """Return the graphs of a batch, or a list of ``item`` if it is no batch."""
    if not isinstance(item, Batch):
        return [item]
    try:
        return item.to_data_list()
    except RuntimeError:
        raise DataError(
            f"from_pyg: item {number} is a Batch without the limits of its graphs; make it with "
            "Batch.from_data_list or a DataLoader, or give the graphs themselves."
        ) from None


def _common_codes(graphs: list[Any]) -> Codes | None:
    """Return the ``codes`` that all graphs have, or None if none has any."""
    found = [getattr(graph, "codes", None) for graph in graphs if isinstance(graph, Data)]
    found = [codes if isinstance(codes, Codes) else None for codes in found]
    if any(codes is not found[0] and codes != found[0] for codes in found):
        raise DataError(
            "some graphs hold the codes of a store (to_pyg), others values or the codes of another "
            "store; read them one kind at a time."
        )
    return found[0] if found else None


def _schema_of(codes: Codes, given: FeatureSchema | None) -> FeatureSchema:
    """Return the schema of graphs that hold codes, after a comparison with the given one."""
    known = codes.schema or given
    if known is None:
        raise DataError(
            "the graphs hold the codes of a batch (to_pyg) without a schema; name that of its "
            "store with `schema=store.schema`."
        )
    if given is not None and (given != known or given.contradicts(known)):
        raise DataError(
            f"the graphs hold the codes of a store of schema '{known.name}' (to_pyg), which has "
            f"other columns, codes or directions than schema '{given.name}'; read the store's "
            "input with that schema, or, if they hold values by now, delete their `codes`."
        )
    return known


def _may_label_nodes(graphs: Sequence[Any], raw: Sequence[RawGraph]) -> bool:
    """Return whether all labels are flat arrays with one label for each of several nodes."""
    labeled = [(g.y, r) for g, r in zip(graphs, raw, strict=True) if r.labels]
    return bool(labeled) and all(
        np.ndim(y) == 1 and len(r.labels) == r.num_nodes > 1 for y, r in labeled
    )


def _as_codes(columns: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
    """Return the columns as they are read from codes instead of values."""
    return tuple(replace(column, values=(), origin="given") for column in columns)


def _raw_graph(row: int, graph: Any) -> RawGraph:
    text = getattr(graph, "smiles", None)
    text = text if isinstance(text, str) else ""
    try:
        if not isinstance(graph, Data):
            raise BadGraphError(
                f"must be a torch_geometric Data object, found {type(graph).__name__}"
            )
        labels = np.zeros(0) if graph.y is None else _array(graph.y, "y").astype(np.float64)
        if np.isinf(labels).any():
            raise BadGraphError("`y` must be finite, or NaN where it is unknown")
        adjacency = next((name for name in ("adj_t", "adj") if name in graph), None)
        if graph.edge_index is None and adjacency is not None:
            raise BadGraphError(
                f"has its edges in `{adjacency}`, which is not read: keep `edge_index` "
                "(ToSparseTensor: remove_edge_index=False)"
            )
        node, edges = _columns(graph.x, "x"), _edges(graph.edge_index)
        return RawGraph(
            row=row,
            text=text,
            num_nodes=int(graph.num_nodes or 0),
            edge_index=edges,
            node=node,
            edge=_columns(graph.edge_attr, "edge_attr"),
            labels=tuple(labels.reshape(-1).tolist()),
        )
    except BadGraphError as e:
        return RawGraph(row, text, problem=str(e))


def _array(values: Any, name: str) -> Array:
    try:
        array = torch.as_tensor(values).detach().cpu().numpy()
    except (TypeError, ValueError, RuntimeError):
        array = np.array(None)
    if array.dtype.kind not in "iubf":
        found = getattr(values, "dtype", type(values).__name__)
        raise BadGraphError(f"`{name}` must be a tensor of numbers, found {found}")
    return array


def _edges(edge_index: Any) -> Array:
    if edge_index is None:
        return np.zeros((2, 0), dtype=np.int64)
    edges = _array(edge_index, "edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise BadGraphError(
            f"`edge_index` must be integers of shape (2, E), found {edges.dtype} of shape "
            f"{edges.shape}"
        )
    return edges.astype(np.int64)


def _columns(values: Any, name: str) -> tuple[Array, ...]:
    """Return the columns of a matrix; a vector is a single column."""
    if values is None:
        return ()
    matrix = _array(values, name)
    if matrix.ndim not in (1, 2):
        raise BadGraphError(f"`{name}` must be a matrix, found one of shape {matrix.shape}")
    if matrix.dtype.kind == "f":
        matrix = matrix.astype(np.float64)
        if not (np.abs(matrix) <= np.finfo(np.float32).max).all():  # NaN compares false
            raise BadGraphError(f"`{name}` must be finite, found NaN or infinity")
    else:
        matrix = matrix.astype(np.int64)
    return tuple(matrix.T) if matrix.ndim == 2 else (matrix,)
