"""Graphs of any kind: their attributes become a schema, which later graphs must fit."""
