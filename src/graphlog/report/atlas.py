"""The atlas: one self-contained HTML page to explore the tree of prototypes in a browser."""

import base64
import gzip
import hashlib
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
from graphlog.report.hierarchy import Assignments
from graphlog.report.tree import HEIGHT, WIDTH, Feature, Node, names_of, path_name

_MARGIN = 12
_LARGEST = 60
"""Largest number of nodes that is drawn."""


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
    shapes = f"<g stroke='#888'>{lines}</g><g fill='#0072B2'>{dots}</g>"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size}>{shapes}</svg>"


def _layout(count: int, source: np.ndarray, target: np.ndarray) -> Float[np.ndarray, "V 2"]:
    """Return positions by classical scaling of the shortest paths between nodes."""
    steps = shortest_path(
        csr_array((np.ones(len(source)), (source, target)), shape=(count, count)),
        directed=False,
        unweighted=True,
    )
    farthest = steps[np.isfinite(steps)].max(initial=0.0)
    squared = np.where(np.isfinite(steps), steps, farthest + 2) ** 2
    center = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * center @ squared @ center)
    plane = np.zeros((count, 2))
    width = min(2, count)
    plane[:, :width] = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :width]
    low, extent = plane.min(axis=0), np.maximum(np.ptp(plane, axis=0), 1e-9)
    room = np.array([WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN])
    scale = float((room / extent).min()) if extent.max() > 1e-9 else 1.0
    return (plane - low - extent / 2) * scale + np.array([WIDTH, HEIGHT]) / 2


_STRANGERS = 12
"""Graphs shown as the most novel of the collection."""
_FORMAT = 3
_LISTED = 200_000
"""Largest collection whose graphs are all listed in the page; of larger ones, those on the map."""
_COLORS = 24
"""Features by which the map can be colored, at most."""


def atlas_page(
    roots: Sequence[Node],
    assignments: Assignments,
    store: GraphStore,
    sample: Int[np.ndarray, "K"],
    plane: Float[np.ndarray, "K 2"],
    features: Sequence[Feature],
    about: Mapping[str, Any],
    identifiers: Sequence[str] | None = None,
) -> str:
    """Return the page as HTML.

    Args:
        roots: The tree.
        assignments: Path and novelty of every graph of the collection.
        store: The collection.
        sample: Graphs on the map.
        plane: Their positions.
        features: Values of the graphs of ``sample``, to color the map by.
        about: ``model``, ``collection``, ``origin``, ``layers`` and ``rejected``.
        identifiers: What the reader calls each row of the input.
    """
    nodes = [node for root in roots for node in root.walk()]
    strangers = assignments.oddest[:_STRANGERS].tolist()
    shown = sorted({graph for node in nodes for graph, _ in node.typical} | set(strangers))
    rows, names, mapped = store.output_rows, names_of(store, sample.tolist()), sample.tolist()
    drawn = dict(zip(shown, draw_graphs(store, shown), strict=True))
    only_mapped = [graph for graph in mapped if graph not in drawn]
    content = {
        "format": _FORMAT,
        "about": {**about, "graphs": len(store), "domain": store.schema.domain},
        "nodes": [_node(node, len(store)) for node in nodes],
        "graphs": {
            graph: {"row": row, "text": name, "svg": drawn[graph], **_place(assignments, graph)}
            for graph, row, name in zip(
                shown, rows[shown].tolist(), names_of(store, shown), strict=True
            )
        },
        "strangers": strangers,
        "drawings": _packed(dict(zip(only_mapped, draw_graphs(store, only_mapped), strict=True))),
        "members": _packed(_members(assignments, store, identifiers))
        if len(store) <= _LISTED
        else None,
        "features": [
            {
                "name": f.name,
                "values": [None if np.isnan(v) else float(f"{v:.4g}") for v in f.values],
            }
            for f in [f for f in features if f.kind == "mean" or f.name.startswith("label")][
                :_COLORS
            ]
        ],
        "map": [
            {
                "graph": graph,
                "x": round(x, 2),
                "y": round(y, 2),
                "row": int(rows[graph]),
                "text": name,
                **_place(assignments, graph),
            }
            for graph, name, (x, y) in zip(mapped, names, plane.tolist(), strict=True)
        ],
    }
    # a text of the collection must not be able to end the script element it stands in
    data = json.dumps(json_ready(content), separators=(",", ":"), ensure_ascii=True).replace(
        "<", "\\u003c"
    )
    page = files("graphlog.report").joinpath("atlas.html").read_text(encoding="utf-8")
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page.replace("__SCRIPT_SHA256__", digest).replace("__ATLAS_DATA__", data)


def _packed(content: Mapping[Any, Any]) -> str:
    """Return JSON compressed to a sixth of its size; the page unpacks it once it is open."""
    text = json.dumps(content, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _members(
    assignments: Assignments, store: GraphStore, identifiers: Sequence[str] | None
) -> dict[str, Any]:
    """Return one list a column, an entry a graph of the whole collection."""
    leaves, number = np.unique(assignments.paths, axis=0, return_inverse=True)
    rows = store.output_rows.tolist()
    return {
        "row": rows,
        "text": names_of(store, range(len(store))),
        "id": None if identifiers is None else [identifiers[row] for row in rows],
        "paths": [path_name(leaf) for leaf in leaves.tolist()],
        "path": number.ravel().tolist(),
        "similarity": np.round(assignments.similarities[:, -1].astype(np.float64), 4).tolist(),
        "novelty": None if (novelty := assignments.novelty) is None else novelty.round(2).tolist(),
    }


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
        "common": None if node.common is None else node.common._asdict(),
        "traits": [
            [t.name, t.kind, t.here, t.overall, round(t.effect, 2), float(f"{t.q:.1g}")]
            for t in node.traits
        ],
    }


def _place(assignments: Assignments, graph: int) -> dict[str, Any]:
    novelty = assignments.novelty
    return {
        "path": path_name(assignments.paths[graph].tolist()),
        "novelty": None if novelty is None else round(float(novelty[graph]), 2),
    }
