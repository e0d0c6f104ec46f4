"""Small collections of any graphs, as files and as rings."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.api import read_graphs
from graphlog.data.store import GraphStore

EDGES = "graph,source,target,weight\na,0,1,1.5\na,1,2,2.5\nb,0,1,1.0\n"
NODES = "graph,node,color,size\na,0,red,1.0\na,1,blue,2.0\na,2,red,3.5\nb,0,red,1.0\nb,1,red,2.5\n"
GRAPHS = "graph,y\na,yes\nb,no\n"


def tables(
    folder: Path, edges: str = EDGES, nodes: str | None = NODES, graphs: str | None = GRAPHS
) -> Path:
    """Write the tables of a folder; None is one that is not there."""
    folder.mkdir(exist_ok=True)
    for name, text in (("edges", edges), ("nodes", nodes), ("graphs", graphs)):
        (folder / f"{name}.csv").unlink(missing_ok=True)
        if text is not None:
            (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def read_tables(
    folder: Path, edges: str, nodes: str | None = None, graphs: str | None = None, **options: Any
) -> GraphStore:
    """Write a folder ``tables`` and read it."""
    return read_graphs(tables(folder / "tables", edges, nodes, graphs), **options)


def lines(path: Path, records: list[Any]) -> Path:
    """Write JSON lines; text goes as it is."""
    path.write_text(
        "".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in records),
        encoding="utf-8",
    )
    return path


def read_lines(folder: Path, records: list[Any], **options: Any) -> GraphStore:
    """Write ``g.jsonl`` and read it."""
    return read_graphs(lines(folder / "g.jsonl", records), **options)


def rings(path: Path, count: int = 30, classes: int = 3, kind: str = "both") -> Path:
    """Write rings with chords whose size tells their class, with attributes of a ``kind``."""
    draw = np.random.default_rng(0)
    records: list[dict[str, Any]] = []
    for k in range(count):
        n = 4 + 3 * (k % classes) + int(draw.integers(2))
        edges = [[i, (i + 1) % n] for i in range(n)] + [[0, 2]]
        columns = {"categorical": [0], "continuous": [1], "both": [0, 1], "none": []}[kind]
        rows = [[int(draw.integers(3)), float(draw.normal(5.0, 2.0))] for _ in range(n)]
        record: dict[str, Any] = {"edges": edges, "y": f"class{k % classes}"}
        if columns:
            record |= {"x": [[row[c] for c in columns] for row in rows]}
            record |= {
                "edge_attr": [
                    [int(draw.integers(2)), float(draw.normal())][: len(columns)] for _ in edges
                ]
            }
        records.append(record)
    return lines(path, records)


def ring_store(tmp_path: Path, **options: Any) -> GraphStore:
    return read_graphs(rings(tmp_path / "rings.jsonl", **options))
