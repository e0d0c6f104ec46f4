"""JSON lines: one graph a line, ``{"edges": [[0, 1]], "x": [[6], [8]], "edge_attr": [[1]], "y": 0}``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphlog.domains.graph.raw import TEXT_KEPT, Collection, Place, RawGraph, column
from graphlog.errors import DataError
from graphlog.files import open_text

KEYS = ("edges", "x", "edge_attr", "y", "num_nodes", "id")
"""What a line may say; ``edges`` alone is a must."""
ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")


class _Layout(NamedTuple):
    """Widths of the matrices and names of the labels, those of the first line that has them."""

    node: int | None = None
    edge: int | None = None
    labels: tuple[str, ...] | None = None


class _BadLineError(Exception):
    """Why a line is no graph."""


def open_jsonlines(path: Path) -> Collection:
    """Return the graphs of a file.

    Nodes are numbered from 0; there are as many as ``x`` has rows, else ``num_nodes``, else up to the largest that an edge names.
    Attributes are rows of numbers or words, or, where there is but one, plain values. ``y`` is a number, a word, a list of
    them, an object by name, or null.
    """
    layout = _layout(path)
    return Collection(
        name=str(path),
        node=tuple(f"node_{k}" for k in range(layout.node or 0)),
        edge=tuple(f"edge_{k}" for k in range(layout.edge or 0)),
        labels=layout.labels or (),
        read=lambda: _read(path, layout),
        matrices=True,
    )


def _layout(path: Path) -> _Layout:
    layout = _Layout()
    for _, _, line in _lines(path):
        try:
            record = _record(line)
            found = _Layout(
                _width(record.get("x")),
                _width(record.get("edge_attr")),
                _label_names(record.get("y")),
            )
        except _BadLineError:
            continue
        layout = layout._replace(
            **{key: value for key, value in found._asdict().items() if getattr(layout, key) is None}
        )
        if None not in layout:
            break
    return layout


def _lines(path: Path) -> Iterator[tuple[int, int, str]]:
    """Yield the number of each line that is not empty among these, its number in the file, and the line."""
    row = 0
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield row, number, line
                row += 1


def _read(path: Path, layout: _Layout) -> Iterator[RawGraph]:
    for row, number, line in _lines(path):
        try:
            yield _graph(row, number, line, layout)
        except _BadLineError as e:
            yield RawGraph(row, line.strip()[:TEXT_KEPT], problem=f"line {number}: {e}")


def _graph(row: int, number: int, line: str, layout: _Layout) -> RawGraph:
    record = _record(line)
    edges = _edges(record["edges"])
    place = Place(line=number)
    node = _matrix(record.get("x"), "x", layout.node or 0)
    edge = _matrix(record.get("edge_attr"), "edge_attr", layout.edge or 0)
    if edges.shape[1] and any(len(c) != edges.shape[1] for c in edge):
        raise _BadLineError(
            f"`edge_attr` must have one row an edge, {edges.shape[1]}, found {len(edge[0])}"
        )
    counted = record.get("num_nodes")
    if counted is not None and (
        not isinstance(counted, int) or isinstance(counted, bool) or counted < 1
    ):
        raise _BadLineError(f"`num_nodes` must be a whole number from 1, found {counted!r:.40}")
    total = (
        len(node[0]) if node else counted if counted is not None else int(edges.max(initial=-1)) + 1
    )
    if counted is not None and counted != total:
        raise _BadLineError(f"`x` has {total} rows and `num_nodes` is {counted}")
    labels = _labels(record.get("y"), layout.labels or ())
    text = str(record["id"]) if "id" in record else line.strip()[:TEXT_KEPT]
    return RawGraph(row, text[:TEXT_KEPT], total, edges, node, edge, labels, place, place)


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if "\\u" in line:  # half of a surrogate pair is valid JSON, but no text that can be stored
            json.dumps(record, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:  # also whole numbers of thousands of digits
        raise _BadLineError(f"is no JSON ({e})") from None
    if not isinstance(record, dict) or "edges" not in record:
        raise _BadLineError('must be an object with "edges": [[0, 1], ...]')
    unknown = [key for key in record if key not in KEYS]  # pyright: ignore[reportUnknownVariableType]
    if unknown:
        raise _BadLineError(f"unknown key {unknown[0]!r}; known: {', '.join(KEYS)}")
    return record  # pyright: ignore[reportUnknownVariableType]


def _edges(pairs: Any) -> np.ndarray:
    if not isinstance(pairs, list) or any(not isinstance(p, list) or len(p) != 2 for p in pairs):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        raise _BadLineError("`edges` must be a list of pairs of node numbers")
    if any(type(end) is not int or abs(end) >= 2**31 for pair in pairs for end in pair):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        raise _BadLineError("`edges` must hold whole numbers")
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _width(rows: Any) -> int | None:
    if not isinstance(rows, list) or not rows:
        return None
    return len(rows[0]) if isinstance(rows[0], list) else 1  # pyright: ignore[reportUnknownArgumentType]


def _matrix(rows: Any, name: str, width: int) -> tuple[Any, ...]:
    if rows is None:
        if width and name == "x":
            raise _BadLineError(f"has no `x`, where others have {width} attributes a node")
        return tuple(column([]) for _ in range(width))
    if not isinstance(rows, list):
        raise _BadLineError(f"`{name}` must be a list, one entry each")
    listed: list[list[Any]] = [r if isinstance(r, list) else [r] for r in rows]  # pyright: ignore[reportUnknownVariableType]
    for k, row in enumerate(listed):
        if len(row) != width:
            raise _BadLineError(
                f"`{name}` must have {width} attributes a row, as the first graph has, found {len(row)} in row {k}"
            )
        if any(v is not None and not isinstance(v, int | float | str) for v in row):
            raise _BadLineError(
                f"`{name}` must hold numbers and words, found {next(v for v in row if isinstance(v, list | dict))!r:.40}"
            )
    return tuple(column([None if row[k] == "" else row[k] for row in listed]) for k in range(width))


def _label_names(y: Any) -> tuple[str, ...] | None:
    if y is None:
        return None
    if isinstance(y, dict):
        return tuple(str(key) for key in y)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return tuple(f"y{k}" for k in range(len(y))) if isinstance(y, list) and len(y) != 1 else ("y",)  # pyright: ignore[reportUnknownArgumentType]


def _labels(y: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if y is None:
        return (None,) * len(names)
    values: list[Any] = (
        list(y.values()) if isinstance(y, dict) else y if isinstance(y, list) else [y]
    )  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(y, dict) and set(names) == set(_label_names(y) or ()):  # pyright: ignore[reportUnknownArgumentType]
        values = [y[name] for name in names]
    elif _label_names(y) != names:
        raise _BadLineError(
            f"`y` must be {len(names)} labels ({', '.join(names)}), found {len(values)}"
        )
    if any(v is not None and not isinstance(v, int | float | str) for v in values):
        raise _BadLineError("`y` must hold numbers, words or null")
    return tuple(None if v == "" else v for v in values)


def looks_like_graphs(path: Path) -> bool:
    """Return whether the first line of a file is a graph in JSON."""
    try:
        return any("edges" in _record(line) for _, _, line in _first(path))
    except (_BadLineError, DataError):
        return False


def _first(path: Path) -> Iterator[tuple[int, int, str]]:
    for found in _lines(path):
        yield found
        return
