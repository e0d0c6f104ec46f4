"""Graphs as data: schema, batch, store, splits and readers of tables, for every domain."""
