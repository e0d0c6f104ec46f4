"""Graphs of any kind: what their attributes are is found out, stored as a schema, and held against every later graph."""

from graphlog.domains.generic.chunks import chunk_of
from graphlog.domains.generic.infer import Survey
from graphlog.domains.generic.raw import Place, RawGraph, RawGraphs, column, join

__all__ = ["Place", "RawGraph", "RawGraphs", "Survey", "chunk_of", "column", "join"]
