"""TUDataset's own format (a folder or zip of NAME_*.txt), and the text format of the GIN family."""

import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Int64

from graphlog.domains.graph.raw import TEXT_KEPT, Collection, Place, RawGraph, cell, column
from graphlog.errors import DataError
from graphlog.files import open_text

_EDGES, _GRAPHS = "A", "graph_indicator"
PARTS = (
    _EDGES,
    _GRAPHS,
    "node_labels",
    "node_attributes",
    "edge_labels",
    "edge_attributes",
    "graph_labels",
    "graph_attributes",
)
"""What comes after ``NAME_``; the first two are a must."""


def find_parts(path: Path) -> dict[str, str]:
    """Return the files of the format in a folder or zip, by part: none unless edges and graphs are there.

    Raises:
        DataError: If there are several sets, or the zip is damaged.
    """
    names = _members(path) if path.is_file() else [p.name for p in path.iterdir()]
    sets = {
        PurePosixPath(n).name.removesuffix(f"_{_EDGES}.txt")
        for n in names
        if n.endswith(f"_{_EDGES}.txt")
    }
    if len(sets) > 1:
        raise DataError(
            f"{path}: holds several sets ({', '.join(sorted(sets)[:3])}); keep each in its own folder."
        )
    found = {
        part: n
        for part in PARTS
        for n in names
        for s in sets
        if PurePosixPath(n).name == f"{s}_{part}.txt"
    }
    return found if _EDGES in found and _GRAPHS in found else {}


def open_tudataset(path: Path) -> Collection:
    """Return the graphs of a folder or zip. Labels of nodes, edges and graphs are categories; attributes are quantities.

    The files are held in memory as numbers, since edges refer to nodes of the whole set.

    Raises:
        DataError: Naming file and line, if a file is damaged or the files do not belong together.
    """
    files = _Files(path)
    return Collection(
        name=str(path),
        node=files.names("node"),
        edge=files.names("edge"),
        labels=files.names("graph"),
        read=files.graphs,
        classes=tuple(n for n in files.names("graph") if n.startswith("label")),
    )


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError) as e:
        raise DataError(f"{path}: cannot be read as a zip ({e}); fetch it again.") from None


class _Files:
    """The files of one set, read when needed."""

    def __init__(self, path: Path) -> None:
        self._path, self._parts = path, find_parts(path)
        if not self._parts:
            raise DataError(
                f"{path}: must hold NAME_A.txt and NAME_graph_indicator.txt, found neither or only one."
            )

    def names(self, kind: str) -> tuple[str, ...]:
        """Return names for the columns of labels and attributes of nodes, edges or graphs."""
        widths = {
            part: len(rows[0])
            for part in (f"{kind}_labels", f"{kind}_attributes")
            if (rows := self._tables.get(part))
        }
        stems = {f"{kind}_labels": "label", f"{kind}_attributes": "attribute"}
        return tuple(
            stems[p] if w == 1 else f"{stems[p]}_{k}" for p, w in widths.items() for k in range(w)
        )

    @cached_property
    def _tables(self) -> dict[str, list[list[Any]]]:
        return {part: self._rows(part) for part in self._parts}

    def _rows(self, part: str) -> list[list[Any]]:
        rows: list[list[Any]] = []
        lines = [line.strip() for line in self._lines(part)]
        while lines and not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, 1):
            if not line:
                raise DataError(
                    f"{self._name(part)} line {number}: must not be blank, since lines are counted; remove it."
                )
            rows.append([cell(word) for word in line.split(",")])
            if len(rows[-1]) != len(rows[0]):
                raise DataError(
                    f"{self._name(part)} line {number}: must have {len(rows[0])} columns, found {len(rows[-1])}."
                )
        return rows

    def _name(self, part: str) -> str:
        return PurePosixPath(self._parts[part]).name

    def _lines(self, part: str) -> Iterator[str]:
        if self._path.is_dir():
            with open_text(self._path / self._parts[part]) as lines:
                yield from lines
            return
        try:
            with zipfile.ZipFile(self._path) as archive:
                text = archive.read(self._parts[part]).decode("utf-8", "replace")
        except (
            zipfile.BadZipFile,
            OSError,
            EOFError,
            zlib.error,
            RuntimeError,
        ) as e:  # the last: encrypted, or packed otherwise
            raise DataError(
                f"{self._path}: {self._parts[part]} cannot be unpacked ({e}); fetch it again, or unpack it yourself."
            ) from None
        yield from text.splitlines()

    def _whole(self, part: str, width: int) -> Int64[np.ndarray, "R W"]:
        rows = self._tables[part]
        bad = next(
            (
                k
                for k, row in enumerate(rows)
                if len(row) != width or any(type(v) is not int for v in row)
            ),
            None,
        )
        if bad is not None:
            raise DataError(
                f"{self._name(part)} line {bad + 1}: must be {width} whole numbers, found {rows[bad]}."
            )
        return np.array(rows, dtype=np.int64).reshape(-1, width)

    def _aligned(self, kind: str, rows: int) -> Mapping[str, list[list[Any]]]:
        tables = {
            p: self._tables[p]
            for p in (f"{kind}_labels", f"{kind}_attributes")
            if p in self._tables
        }
        for part, table in tables.items():
            if len(table) != rows:
                raise DataError(
                    f"{self._name(part)}: must have {rows} lines, one {kind} each, found {len(table)}; fetch the set again."
                )
        return tables

    def graphs(self) -> Iterator[RawGraph]:
        """Yield the graphs in their order."""
        graph_of = self._whole(_GRAPHS, 1)[:, 0]
        wrong = np.flatnonzero((np.diff(graph_of, prepend=graph_of[:1]) < 0) | (graph_of < 1))
        if len(wrong):
            raise DataError(
                f"{self._name(_GRAPHS)} line {wrong[0] + 1}: graphs must be numbered from 1 and in order, found {graph_of[wrong[0]]}."
            )
        ends = self._whole(_EDGES, 2) - 1
        total = int(graph_of.max(initial=0))
        out = ((ends < 0) | (ends >= len(graph_of))).any(axis=1)
        if out.any():
            e = int(out.argmax())
            raise DataError(
                f"{self._name(_EDGES)} line {e + 1}: nodes must be in [1, {len(graph_of)}], found {(ends[e] + 1).tolist()}."
            )
        tables = {
            kind: self._aligned(kind, rows)
            for kind, rows in (("node", len(graph_of)), ("edge", len(ends)), ("graph", total))
        }
        starts = np.searchsorted(graph_of, np.arange(1, total + 2))
        order = np.argsort(graph_of[ends[:, 0]], kind="stable")
        edge_starts = np.searchsorted(graph_of[ends[order, 0]], np.arange(1, total + 2))
        columns = {
            kind: [column(c) for table in found.values() for c in zip(*table, strict=True)]
            for kind, found in tables.items()
        }
        labels = [c.tolist() for c in columns["graph"]]
        for g in range(total):
            nodes, edges = (
                slice(starts[g], starts[g + 1]),
                order[edge_starts[g] : edge_starts[g + 1]],
            )
            strays = graph_of[ends[edges, 1]] != g + 1
            yield RawGraph(
                row=g,
                text=f"graph {g + 1}",
                num_nodes=int(starts[g + 1] - starts[g]),
                edge_index=ends[edges].T - starts[g],
                node=tuple(c[nodes] for c in columns["node"]),
                edge=tuple(c[edges] for c in columns["edge"]),
                labels=tuple(values[g] for values in labels),
                node_place=Place(
                    " or ".join(map(self._name, tables["node"] or (_GRAPHS,))),
                    int(starts[g]) + 1,
                    1,
                ),
                problem=self._stray(edges[strays]) if strays.any() else None,
            )

    def _stray(self, edges: Int64[np.ndarray, "S"]) -> str:
        return f"{self._name(_EDGES)} line {edges[0] + 1}: joins nodes of two graphs"


ENDINGS = (".txt", ".txt.gz", ".txt.zst")
TAG, LABEL = "tag", "label"
_HEAD_LINES = 3


class _BadNodeError(Exception):
    """Why a line is no node."""


def looks_like_gin(path: Path) -> bool:
    """Return whether a file begins as the format does: a number, two numbers, and a node's line."""
    try:
        with open_text(path) as lines:
            head = [next(lines, "").split() for _ in range(_HEAD_LINES)]
    except DataError:
        return False
    return (
        [len(head[0]), len(head[1])] == [1, 2]
        and len(head[2]) >= 2
        and all(_is_count(w) for line in head[:2] for w in line[:1])
    )


def open_gin(path: Path) -> Collection:
    """Return the graphs of a file; tags are categories, labels classes, numbers behind the neighbours attributes."""
    with open_text(path) as lines:
        words = [next(lines, "").split() for _ in range(_HEAD_LINES)][-1]
    extra = max(len(words) - 2 - int(words[1]), 0) if len(words) > 1 and _is_count(words[1]) else 0
    names = tuple(f"attribute_{k}" for k in range(extra))
    return Collection(
        str(path), (TAG, *names), (), (LABEL,), lambda: _read(path, extra), classes=(LABEL,)
    )


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _read(path: Path, extra: int) -> Iterator[RawGraph]:
    with open_text(path) as lines:
        numbered = enumerate(lines, 1)
        _, first = next(numbered)
        expected = int(first)
        for row in range(expected):
            number, line = next(numbered, (0, ""))
            words = line.split()
            if len(words) != 2 or not _is_count(words[0]):
                where = (
                    f"{path} line {number}"
                    if number
                    else f"{path}: ends before graph {row} of {expected}"
                )
                raise DataError(
                    f"{where}: must be 'nodes label' of graph {row}, found {line.strip()[:40]!r}."
                )
            nodes = list(islice(numbered, int(words[0]) if len(words[0]) < 19 else sys.maxsize))
            if len(nodes) != int(words[0]):
                raise DataError(
                    f"{path}: ends within graph {row} of {expected}; the file is cut off."
                )
            yield _graph(row, number, words[1], nodes, extra)
        for number, line in numbered:
            if line.strip():
                raise DataError(
                    f"{path} line {number}: more lines than the {expected} graphs of the first line have."
                )


def _graph(row: int, number: int, label: str, nodes: list[tuple[int, str]], extra: int) -> RawGraph:
    text = f"graph {row}"
    tags: list[Any] = []
    attributes: list[list[Any]] = []
    ends: list[tuple[int, int]] = []
    for k, (at, line) in enumerate(nodes):
        try:
            tag, neighbours, numbers = _node(line, len(nodes), extra)
        except _BadNodeError as e:
            return RawGraph(row, text, problem=f"line {at}: {e}")
        tags.append(tag)
        attributes.append(numbers)
        ends.extend((k, neighbour) for neighbour in neighbours)
    return RawGraph(
        row=row,
        text=text[:TEXT_KEPT],
        num_nodes=len(nodes),
        edge_index=np.array(ends, dtype=np.int64).reshape(-1, 2).T,
        node=(column(tags), *(column([values[k] for values in attributes]) for k in range(extra))),
        labels=(cell(label),),
        node_place=Place(line=number + 1, step=1),
    )


def _node(line: str, num_nodes: int, extra: int) -> tuple[Any, list[int], list[Any]]:
    words = line.split()
    if len(words) < 2 or not _is_count(words[1]) or len(words) != 2 + int(words[1]) + extra:
        raise _BadNodeError(
            f"must be 'tag degree neighbours' with as many neighbours as the degree says, found {line.strip()[:40]!r}"
        )
    listed = words[2 : 2 + int(words[1])]
    wrong = next((w for w in listed if not _is_count(w) or int(w) >= num_nodes), None)
    if wrong is not None:
        raise _BadNodeError(f"neighbour {wrong} must be a node in [0, {num_nodes})")
    return (
        cell(words[0]),
        [int(w) for w in listed],
        [cell(word) for word in words[2 + len(listed) :]],
    )
