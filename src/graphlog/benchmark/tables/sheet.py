"""A table ready to be printed: texts in rows and columns, whatever the format, and its numbers for machines."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """One field of a sheet."""

    text: str
    strong: bool = False
    """Best of its column."""
    quoted: bool = False
    """Not ours: printed by others."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table in words."""

    name: str
    """Stem of its files."""
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Item, ...], ...]
    named: int = 1
    """How many columns name a row; they are set flush left, the others right."""
    rules: frozenset[int] = frozenset()
    """Rows that stand under a rule."""
    notes: tuple[str, ...] = ()
    """Lines under the table."""
    records: tuple[dict[str, Any], ...] = ()
    """Its numbers in full, one a record, for CSV."""
