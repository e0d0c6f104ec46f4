"""Graphs in the codes of a schema, each edge listed once, ready for a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import FeatureSchema, is_continuous
from graphlog.domains.generic.codes import edge_codes, node_codes
from graphlog.domains.generic.raw import MOST_NODES, RawGraph, RawGraphs, join


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """What became of some graphs."""

    chunk: GraphChunk
    """Those that could be used; ``rows`` are positions among the graphs given."""
    problems: Mapping[int, str]
    """Position of each other one, and why."""


def chunk_of(graphs: Sequence[RawGraph], schema: FeatureSchema, directed: bool = False) -> Coded:
    """Return the graphs under ``schema``.

    Unless ``directed``, an edge stands for both directions however often and whichever way it is listed, and an edge from a
    node to itself is left out, since every encoder gives each node one.

    Raises:
        DataError: If the attributes are not as many as the schema's.
    """
    problems = {
        k: found for k, g in enumerate(graphs) if (found := g.problem or misplaced(g)) is not None
    }
    kept = [k for k in range(len(graphs)) if k not in problems]
    raw = join([graphs[k] for k in kept])
    x, unfit_nodes = node_codes(raw, schema.node)
    edge_attr, unfit_edges = edge_codes(raw, schema.edge)
    node_ends, edge_ends = np.cumsum(raw.node_counts), np.cumsum(raw.edge_counts)
    for unfit, ends, name in ((unfit_nodes, node_ends, "node"), (unfit_edges, edge_ends, "edge")):
        for item, reason in unfit:
            at = int(np.searchsorted(ends, item, side="right"))
            local = item - int(ends[at - 1] if at else 0)
            graph = graphs[kept[at]]
            place = (graph.node_place if name == "node" else graph.edge_place).of(local)
            problems.setdefault(kept[at], f"{place}{name} {local}: {reason}")
    listed = (
        np.arange(raw.edge_index.shape[1]) if directed else _once(raw, edge_attr, kept, problems)
    )
    good = np.array([k not in problems for k in kept], dtype=np.bool_)
    of_node, of_edge = np.repeat(np.arange(len(kept)), raw.node_counts), raw.edge_graph[listed]
    listed = listed[good[of_edge]]
    chunk = GraphChunk(
        node_counts=raw.node_counts[good],
        edge_counts=np.bincount(raw.edge_graph[listed], minlength=len(kept))[good].astype(np.int64),
        x=x[good[of_node]].astype(np.float32 if is_continuous(schema.node) else np.int64),
        edge_index=raw.edge_index[:, listed],
        edge_attr=edge_attr[listed].astype(np.float32 if is_continuous(schema.edge) else np.int64),
        rows=np.array(kept, dtype=np.int64)[good],
        undirected=not directed,
    )
    return Coded(chunk, problems)


def misplaced(graph: RawGraph) -> str | None:
    """Return what is wrong with the number of nodes or those that edges join; None if nothing."""
    if graph.num_nodes < 1:
        return "has no node"
    if graph.num_nodes > MOST_NODES:
        return f"{graph.node_place.of(0)}has {graph.num_nodes:,} nodes, more than the {MOST_NODES:,} that a graph may have"
    outside = ((graph.edge_index < 0) | (graph.edge_index >= graph.num_nodes)).any(axis=0)
    if not outside.any():
        return None
    e = int(outside.argmax())
    a, b = graph.edge_index[:, e].tolist()
    return f"{graph.edge_place.of(e)}edge {a} - {b} must join nodes in [0, {graph.num_nodes})"


def _once(
    raw: RawGraphs, edge_attr: np.ndarray, kept: Sequence[int], problems: dict[int, str]
) -> np.ndarray:
    """Return the first listing of every undirected edge; graphs where two listings differ in attributes become problems."""
    graph, ends = raw.edge_graph, raw.edge_index
    low, high = ends.min(axis=0, initial=2**62), ends.max(axis=0, initial=-1)
    order = np.lexsort((np.arange(len(low)), high, low, graph))
    keys = np.stack([graph, low, high])[:, order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    firsts = order[is_first][np.cumsum(is_first) - 1] if len(order) else order
    differs = (edge_attr[order] != edge_attr[firsts]).any(axis=1)
    for e in np.flatnonzero(differs).tolist():
        a, b = ends[:, order[e]].tolist()
        what = f"edge {a} - {b} is listed twice with different attributes; mend it, or read the graphs as directed"
        problems.setdefault(kept[int(graph[order[e]])], what)
    chosen = np.sort(order[is_first])
    return chosen[ends[0, chosen] != ends[1, chosen]]
