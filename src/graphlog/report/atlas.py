"""The atlas: one self-contained HTML page to explore the tree of prototypes in a browser."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.report import json_ready
from graphlog.report.hierarchy import Places
from graphlog.report.tree import Node, names_of, path_name

WIDTH, HEIGHT = 200, 140
_MARGIN = 12
_LARGEST, _LARGEST_MOLECULE = 60, 120
"""Nodes up to which a drawing shows more than a ball of wool."""


def draw_graphs(store: GraphStore, graphs: Sequence[int]) -> list[str]:
    """Return an ``<svg>`` element of each of ``graphs``; empty where a graph cannot be drawn."""
    drawn = domain_of(store.schema).draw(store, graphs, WIDTH, HEIGHT)
    return [_network(store, graph) for graph in graphs] if drawn is None else drawn


def _network(store: GraphStore, graph: int) -> str:
    batch = store[[graph]]
    count, (source, target) = batch.num_nodes, batch.edge_index.numpy()
    if not 0 < count <= _LARGEST:
        return ""
    x, y = _layout(count, source, target).T
    pairs = np.unique(np.sort(np.stack([source, target]), axis=0), axis=1).T
    lines = "".join(
        f"<line x1='{x[a]:.0f}' y1='{y[a]:.0f}' x2='{x[b]:.0f}' y2='{y[b]:.0f}'/>"
        for a, b in pairs
        if a != b
    )
    dots = "".join(f"<circle cx='{a:.0f}' cy='{b:.0f}' r='4'/>" for a, b in zip(x, y, strict=True))
    size = f"width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size}><g stroke='#888'>{lines}</g><g fill='#0072B2'>{dots}</g></svg>"


def _layout(count: int, source: np.ndarray, target: np.ndarray) -> Float[np.ndarray, "V 2"]:
    """Return places such that distances on paper resemble steps in the graph: classical scaling of its shortest paths."""
    steps = shortest_path(
        csr_array((np.ones(len(source)), (source, target)), shape=(count, count)),
        directed=False,
        unweighted=True,
    )
    farthest = steps[np.isfinite(steps)].max(initial=0.0)
    squared = np.where(np.isfinite(steps), steps, farthest + 2) ** 2
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ squared @ centre)
    plane = np.zeros((count, 2))
    width = min(2, count)
    plane[:, :width] = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :width]
    low, extent = plane.min(axis=0), np.maximum(np.ptp(plane, axis=0), 1e-9)
    room = np.array([WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN])
    scale = float((room / extent).min()) if extent.max() > 1e-9 else 1.0
    return (plane - low - extent / 2) * scale + np.array([WIDTH, HEIGHT]) / 2


_STRANGERS = 12
"""Graphs shown as the most novel of the collection."""
_FORMAT = 1


def atlas_page(
    roots: Sequence[Node],
    places: Places,
    store: GraphStore,
    sample: Int[np.ndarray, "K"],
    plane: Float[np.ndarray, "K 2"],
    about: Mapping[str, Any],
) -> str:
    """Return the page as HTML.

    Args:
        roots: The tree.
        places: Where every graph of the collection stands.
        store: The collection.
        sample: Graphs on the map.
        plane: Where they are on it.
        about: What the page says of model and collection: ``model``, ``collection``, ``origin``, ``layers``, ``rejected``.
    """
    nodes = [node for root in roots for node in root.walk()]
    strangers = np.argsort(-places.novelty, kind="stable")[:_STRANGERS].tolist()
    shown = sorted({graph for node in nodes for graph, _ in node.typical} | set(strangers))
    rows, names = store.output_rows, names_of(store, sample.tolist())
    drawn = zip(
        shown, rows[shown].tolist(), names_of(store, shown), draw_graphs(store, shown), strict=True
    )
    content = {
        "format": _FORMAT,
        "about": {**about, "graphs": len(store), "domain": store.schema.domain},
        "nodes": [_node(node, len(store)) for node in nodes],
        "graphs": {
            graph: {"row": row, "text": name, "svg": svg, **_place(places, graph)}
            for graph, row, name, svg in drawn
        },
        "strangers": strangers,
        "map": [
            {
                "x": round(x, 2),
                "y": round(y, 2),
                "row": int(rows[graph]),
                "text": name,
                **_place(places, graph),
            }
            for graph, name, (x, y) in zip(sample.tolist(), names, plane.tolist(), strict=True)
        ],
    }
    # a text of the collection must not be able to end the script element it stands in
    data = json.dumps(json_ready(content), separators=(",", ":"), ensure_ascii=True).replace(
        "<", "\\u003c"
    )
    return (
        files("graphlog.report")
        .joinpath("atlas.html")
        .read_text(encoding="utf-8")
        .replace("__ATLAS_DATA__", data)
    )


def _node(node: Node, total: int) -> dict[str, Any]:
    return {
        "path": node.name,
        "level": len(node.path) - 1,
        "parent": path_name(node.path[:-1]) or None,
        "members": node.members,
        "share": node.members / total,
        "similarity": node.similarity,
        "novelty": node.novelty,
        "typical": [[graph, round(cosine, 3)] for graph, cosine in node.typical],
        "traits": [[t.name, t.kind, t.here, t.overall, round(t.effect, 2)] for t in node.traits],
    }


def _place(places: Places, graph: int) -> dict[str, Any]:
    return {
        "path": path_name(places.paths[graph].tolist()),
        "novelty": round(float(places.novelty[graph]), 3),
    }
