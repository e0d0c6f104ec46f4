"""Lines of JSON: ``{"edges": [[0, 1]], "x": [[6], [8]], "edge_attr": [[1]], "y": 0}``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphlog.domains.graph.raw import MAX_TEXT, Collection, Place, RawGraph, column
from graphlog.files import open_text

KEYS = ("edges", "x", "edge_attr", "y", "num_nodes", "id")
"""The keys of a line; only ``edges`` is required."""
SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")


class _Layout(NamedTuple):
    """Widths of the matrices and names of the labels, from the first line that has them."""

    node: int | None = None
    edge: int | None = None
    labels: tuple[str, ...] | None = None


class _BadLineError(Exception):
    """Why a line is not a graph."""


def open_jsonlines(path: Path) -> Collection:
    """Return the graphs of a file.

    Nodes are numbered from 0. Their number is that of the rows of ``x``, else ``num_nodes``, else
    one more than the largest number in an edge. Attributes are rows of numbers or words, or plain
    values if there is only one. ``y`` is a number, a word, a list of them, an object with names, or
    null.
    """
    layout = _find_layout(path)
    return Collection(
        name=str(path),
        node=tuple(f"node_{k}" for k in range(layout.node or 0)),
        edge=tuple(f"edge_{k}" for k in range(layout.edge or 0)),
        labels=layout.labels or (),
        read=lambda: _read(path, layout),
        matrices=True,
    )


def _find_layout(path: Path) -> _Layout:
    layout = _Layout()
    for _, line in _lines(path):
        try:
            record = _parse(line)
        except _BadLineError:
            continue
        node, edge, labels = layout
        layout = _Layout(
            _width(record.get("x")) if node is None else node,
            _width(record.get("edge_attr")) if edge is None else edge,
            _label_names(record.get("y")) if labels is None else labels,
        )
        if None not in layout:
            break
    return layout


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line.strip()


def _read(path: Path, layout: _Layout) -> Iterator[RawGraph]:
    for row, (number, line) in enumerate(_lines(path)):
        try:
            yield _graph(row, Place(lines=(number,)), line, layout)
        except _BadLineError as e:
            yield RawGraph(row, line[:MAX_TEXT], problem=f"line {number}: {e}")


def _graph(row: int, place: Place, line: str, layout: _Layout) -> RawGraph:
    record = _parse(line)
    edges = _edges(record["edges"])
    node = _matrix(record.get("x"), "x", layout.node or 0)
    edge = _matrix(record.get("edge_attr"), "edge_attr", layout.edge or 0)
    if any(len(c) != edges.shape[1] for c in edge):
        expected = f"`edge_attr` must have {edges.shape[1]} rows, one for each edge"
        raise _BadLineError(f"{expected}, found {len(edge[0])}")
    stated = record.get("num_nodes")
    if stated is not None and (type(stated) is not int or stated < 1):
        raise _BadLineError(f"`num_nodes` must be a whole number from 1, found {stated!r:.40}")
    num_nodes = len(node[0]) if node else stated or int(edges.max(initial=-1)) + 1
    if stated not in (None, num_nodes):
        raise _BadLineError(f"`x` has {num_nodes} rows and `num_nodes` is {stated}")
    labels = _labels(record.get("y"), layout.labels or ())
    text = str(record.get("id", line))[:MAX_TEXT]
    return RawGraph(row, text, num_nodes, edges, node, edge, labels, place, place)


def _parse(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if "\\u" in line:  # half of a surrogate pair is valid JSON, but cannot be stored as text
            json.dumps(record, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:  # also whole numbers of thousands of digits
        raise _BadLineError(f"is no JSON ({e})") from None
    if not isinstance(record, dict) or "edges" not in record:
        raise _BadLineError('must be an object with "edges": [[0, 1], ...]')
    for key in record:
        if key not in KEYS:
            raise _BadLineError(f"unknown key {key!r}; known: {', '.join(KEYS)}")
    return record


def _edges(pairs: Any) -> np.ndarray:
    if not isinstance(pairs, list) or any(not isinstance(p, list) or len(p) != 2 for p in pairs):
        raise _BadLineError("`edges` must be a list of pairs of node numbers")
    if any(type(end) is not int or abs(end) >= 2**31 for pair in pairs for end in pair):
        raise _BadLineError("`edges` must hold whole numbers")
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _width(rows: Any) -> int | None:
    if not isinstance(rows, list) or not rows:
        return None
    return len(rows[0]) if isinstance(rows[0], list) else 1


def _matrix(rows: Any, name: str, width: int) -> tuple[Any, ...]:
    """Return a matrix column by column."""
    if rows is None:
        if width and name == "x":
            raise _BadLineError(f"has no `x`, where others have {width} attributes a node")
        return tuple(column([]) for _ in range(width))
    if not isinstance(rows, list):
        raise _BadLineError(f"`{name}` must be a list, one entry each")
    listed = [row if isinstance(row, list) else [row] for row in rows]
    for k, row in enumerate(listed):
        if len(row) != width:
            expected = f"`{name}` must have {width} attributes a row, as the first graph has"
            raise _BadLineError(f"{expected}, found {len(row)} in row {k}")
        for value in row:
            if not _is_plain(value):
                raise _BadLineError(f"`{name}` must hold numbers and words, found {value!r:.40}")
    return tuple(column([None if row[k] == "" else row[k] for row in listed]) for k in range(width))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str)


def _label_names(y: Any) -> tuple[str, ...] | None:
    if y is None:
        return None
    if isinstance(y, dict):
        return tuple(map(str, y))
    return tuple(f"y{k}" for k in range(len(y))) if isinstance(y, list) and len(y) != 1 else ("y",)


def _labels(y: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if y is None:
        return (None,) * len(names)
    if isinstance(y, dict) and set(y) == set(names):
        values = [y[name] for name in names]
    elif _label_names(y) == names:
        values = y if isinstance(y, list) else [y]
    else:
        found = len(y) if isinstance(y, dict | list) else 1
        raise _BadLineError(f"`y` must be {len(names)} labels ({', '.join(names)}), found {found}")
    if not all(map(_is_plain, values)):
        raise _BadLineError("`y` must hold numbers, words or null")
    return tuple(None if value == "" else value for value in values)
