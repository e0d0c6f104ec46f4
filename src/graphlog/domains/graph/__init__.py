"""Graphs of any kind: their attributes are surveyed, stored as a schema, and checked in every later graph."""
