"""Molecule files as streams of rows: opening, columns, records, labels."""

from graphlog.datasets.tables.reading import ENDINGS, Row, Table, kind_of, open_table, read_table

__all__ = ["ENDINGS", "Row", "Table", "kind_of", "open_table", "read_table"]
