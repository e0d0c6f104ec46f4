"""Small graphs as plain Python objects: what a store must give back, whatever its packing."""

from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from graphlog.data.graphs import Attribute, FeatureSchema, GraphChunk, Reject
from graphlog.data.store import GraphBatch, GraphStore, StoreBuilder


def _schema(name: str, node: dict[str, int], edge: dict[str, int], *rows: Any) -> FeatureSchema:
    columns = (tuple(starmap(Attribute, kind.items())) for kind in (node, edge))
    return FeatureSchema(name, "graph", *columns, "node", *rows)


ATOM = dict(zip("abcdefghi", (119, 9, 11, 12, 9, 5, 8, 2, 2), strict=True))
CODES = _schema("codes", {"kind": 120, "side": 5}, {"bond": 7}, (119.0, 4.0), (5.0,), (4.0,))
RICH = _schema("rich", ATOM, {"p": 5, "q": 6, "r": 2})
FLOATS = _schema("floats", {"kind": 3, "weight": 0}, {"length": 0})
EDGELESS = _schema("plain", {"kind": 4}, {})
SCHEMAS = {s.name: s for s in (CODES, RICH, FLOATS, EDGELESS)}


@dataclass
class Graph:
    x: np.ndarray
    edges: np.ndarray  # (E, 2), one row a bond
    edge_attr: np.ndarray
    row: int
    text: str
    label: np.ndarray


def _attributes(rng: np.random.Generator, columns: tuple[Attribute, ...], n: int) -> np.ndarray:
    values = [
        rng.integers(0, c.cardinality, n) if c.cardinality else rng.normal(size=n) for c in columns
    ]
    dtype = np.int64 if all(c.cardinality for c in columns) else np.float32
    return np.array(values, dtype).reshape(len(columns), n).T.copy()


def make_graph(
    rng: np.random.Generator,
    schema: FeatureSchema,
    nodes: int,
    edges: int,
    row: int,
    tasks: int = 0,
) -> Graph:
    label = np.where(rng.random(tasks) < 0.3, np.nan, rng.integers(0, 2, tasks)).astype(np.float32)
    ends = rng.integers(0, nodes, (edges, 2))
    x, edge_attr = _attributes(rng, schema.node, nodes), _attributes(rng, schema.edge, edges)
    return Graph(x, ends, edge_attr, row, f"graph {row} é", label)


def make_graphs(
    n: int, schema: FeatureSchema = CODES, *, seed: int = 0, tasks: int = 0, nodes: int = 30
) -> list[Graph]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, nodes + 1, n)
    return [
        make_graph(rng, schema, int(s), int(s) - 1 + int(rng.integers(0, 4)), k, tasks)
        for k, s in enumerate(sizes)
    ]


@st.composite
def graph_lists(draw: st.DrawFn, schema: FeatureSchema, tasks: int = 0) -> list[Graph]:
    """Ragged graphs, bondless and single-node ones among them, some input rows missing."""
    shapes = draw(
        st.lists(
            st.tuples(st.integers(1, 12), st.integers(0, 15), st.integers(1, 3)),
            min_size=1,
            max_size=12,
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    rows = np.cumsum([step for _, _, step in shapes]) - 1
    return [
        make_graph(rng, schema, v, e, int(r), tasks)
        for (v, e, _), r in zip(shapes, rows, strict=True)
    ]


def to_chunk(graphs: list[Graph], *, texts: bool = True, undirected: bool = True) -> GraphChunk:
    return GraphChunk(
        node_counts=np.array([len(g.x) for g in graphs]),
        edge_counts=np.array([len(g.edges) for g in graphs]),
        x=np.concatenate([g.x for g in graphs]),
        edge_index=np.concatenate([g.edges for g in graphs]).T.copy(),
        edge_attr=np.concatenate([g.edge_attr for g in graphs]),
        rows=np.array([g.row for g in graphs]),
        texts=[g.text for g in graphs] if texts else None,
        labels=np.stack([g.label for g in graphs]) if len(graphs[0].label) else None,
        undirected=undirected,
    )


def build(
    graphs: list[Graph],
    schema: FeatureSchema,
    path: Path | None = None,
    *,
    chunk: int = 5,
    **options: Any,
) -> GraphStore:
    tasks = [f"t{k}" for k in range(len(graphs[0].label))]
    with StoreBuilder(schema, path, tasks) as builder:
        for start in range(0, len(graphs), chunk):
            builder.add(to_chunk(graphs[start : start + chunk], **options))
        rows = {g.row for g in graphs}
        for row in sorted(set(range(max(rows) + 1)) - rows):
            builder.reject(Reject(row, "", "missing"))
        return builder.finish()


def assert_same(store: GraphStore, graphs: list[Graph], indices: list[int]) -> None:
    """Compare a batch of the store with the graphs."""
    batch = store.take(np.array(indices, dtype=np.int64))
    assert batch.num_graphs == len(indices)
    if not indices:
        return
    expected = to_chunk([graphs[k] for k in indices])
    ends, edge_attr = expected.edge_index, expected.edge_attr
    ends = ends + np.repeat(batch.ptr[:-1].numpy(), expected.edge_counts)
    if store.undirected:  # each edge is followed by its other direction
        ends = np.stack([ends, ends[::-1]], axis=2).reshape(2, -1)
        edge_attr = np.repeat(edge_attr, 2, axis=0)
    owners = np.repeat(np.arange(len(indices)), expected.node_counts)
    np.testing.assert_array_equal(batch.sizes, expected.node_counts)
    np.testing.assert_array_equal(batch.batch, owners)
    np.testing.assert_array_equal(batch.x, expected.x)
    np.testing.assert_array_equal(batch.edge_index, ends)
    np.testing.assert_array_equal(batch.edge_attr, edge_attr)
    if batch.y is not None:
        np.testing.assert_array_equal(batch.y, expected.labels)


def collate(batches: list[GraphBatch]) -> GraphBatch:
    """Pack several batches into one, in order; labels are kept where every batch has them."""
    nodes = torch.tensor([0, *(b.num_nodes for b in batches)]).cumsum(0)
    graphs = torch.tensor([0, *(b.num_graphs for b in batches)]).cumsum(0)
    labels = [b.y for b in batches if b.y is not None]
    return GraphBatch(
        x=torch.cat([b.x for b in batches]),
        edge_index=torch.cat(
            [b.edge_index + n for b, n in zip(batches, nodes, strict=False)], dim=1
        ),
        edge_attr=torch.cat([b.edge_attr for b in batches]),
        batch=torch.cat([b.batch + g for b, g in zip(batches, graphs, strict=False)]),
        ptr=torch.cat(
            [b.ptr[:-1] + n for b, n in zip(batches, nodes, strict=False)] + [nodes[-1:]]
        ),
        y=torch.cat(labels) if len(labels) == len(batches) and labels else None,
    )
