"""The text format of the GIN family: the number of graphs; a line ``nodes label`` a graph; a line ``tag degree neighbours…`` a node."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.datasets.graphs.collection import TEXT_KEPT, Collection, cell
from graphlog.datasets.tables.streams import open_text
from graphlog.domains.generic import Place, RawGraph, column
from graphlog.errors import DataError

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
