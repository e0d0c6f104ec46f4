"""Graphs of any kind: what their attributes are is found out, stored as a schema, and held against every later graph."""

from graphlog.domains.generic.chunks import chunk_of, misplaced
from graphlog.domains.generic.infer import Survey
from graphlog.domains.generic.raw import (
    MOST_NODES,
    Place,
    RawGraph,
    RawGraphs,
    as_float,
    column,
    join,
)

__all__ = [
    "MOST_NODES",
    "Place",
    "RawGraph",
    "RawGraphs",
    "Survey",
    "as_float",
    "chunk_of",
    "column",
    "join",
    "misplaced",
]
