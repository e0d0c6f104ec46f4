"""TUDataset's own format: ``NAME_A.txt``, ``NAME_graph_indicator.txt`` and so on, in a folder or a zip."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Int64

from graphlog.datasets.graphs.collection import Collection, cell
from graphlog.datasets.tables.streams import open_text
from graphlog.domains.generic import Place, RawGraph, column
from graphlog.errors import DataError

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
