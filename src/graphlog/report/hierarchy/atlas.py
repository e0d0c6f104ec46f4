"""The atlas: one page, without any outside part, to walk through the tree of prototypes in a browser."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from graphlog.data.store import GraphStore
from graphlog.downstream.report import json_ready
from graphlog.downstream.sources import output_rows
from graphlog.report.hierarchy.drawing import draw_graphs
from graphlog.report.hierarchy.places import Places
from graphlog.report.hierarchy.tree import Node, names_of, path_name

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
    rows, names = output_rows(store)[0], names_of(store, sample.tolist())
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
        files("graphlog.report.hierarchy")
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
