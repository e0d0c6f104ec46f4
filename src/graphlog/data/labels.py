"""Label columns of a table as numbers, NaN where a cell is empty."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

import numpy as np
from jaxtyping import Float32

from graphlog.data.columns import no_such_column, repeated
from graphlog.data.tables import Row, Table
from graphlog.errors import DataError

ABSENT = frozenset({"", "nan", "na", "n/a", "null", "none", "-", "?", "<na>"})
"""What stands in a cell without a label, in any case."""
_WORDS = {"true": 1.0, "false": 0.0}
_NUMBERS_NOT_LABELS = frozenset({"id", "index", "row", "cid", "num", "number", "no"})


@lru_cache(maxsize=1 << 14)
def label(text: str) -> float | None:
    """Return the number in a cell, NaN for an absent one, None for text that is no finite number.

    Example:
        >>> label(" 1.5 "), label("N/A"), label("true"), label("active"), label("inf")
        (1.5, nan, 1.0, None, None)
    """
    plain = text.strip().lower()
    if plain in ABSENT:
        return math.nan
    if plain in _WORDS:
        return _WORDS[plain]
    try:
        value = float(plain)
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) < 3e38 and "_" not in plain else None


def read_labels(
    rows: Sequence[Row], tasks: Sequence[str], where: str
) -> Float32[np.ndarray, "N T"]:
    """Return the labels of ``rows``.

    Raises:
        DataError: Naming the first row and column whose text is not a number.
    """
    cells_of = itemgetter(*tasks) if len(tasks) > 1 else lambda fields: (fields[tasks[0]],)
    table: list[list[float | None]] = []
    for row in rows:
        values: list[float | None] = list(map(label, cells_of(row.fields)))
        if None in values:
            if row.problem is None:
                raise _not_a_number(where, row, tasks[values.index(None)])
            values = [math.nan] * len(tasks)  # cells of a ragged row may stand under the wrong name
        table.append(values)
    return np.array(table, dtype=np.float32)


def _not_a_number(where: str, row: Row, task: str) -> DataError:
    text = row.fields[task].strip()
    found = f"label '{task}' must be a number or empty, found {text[:40]!a}"
    return DataError(f"{where}, data row {row.row}: {found}; mend it, or choose other --targets.")


def choose_tasks(
    table: Table, targets: str | Sequence[str] | None, first: Sequence[Row]
) -> tuple[str, ...]:
    """Return the label columns of a table.

    Args:
        table: The open table.
        targets: Their names; ``auto`` takes every column of numbers that does not look like a running number; None takes none.
        first: The first rows, to look at for ``auto``.

    Raises:
        DataError: If a name is no column, is the SMILES column, or stands in the header twice; or if ``auto`` finds none.
    """
    if targets is None:
        return ()
    if targets == "auto":
        found = tuple(
            c
            for c in table.columns
            if c != table.smiles_column and _looks_like_labels(c, [r.fields for r in first])
        )
        if not found:
            raise DataError(
                f"{table.where}: no column of numbers to take as labels; name the columns with --targets."
            )
        return found
    names = [targets] if isinstance(targets, str) else list(targets)
    for name in names:
        if name not in table.columns:
            raise no_such_column(table.columns, name, table.where)
        if name == table.smiles_column:
            raise DataError(
                f"{table.where}: '{name}' is the SMILES column and cannot be a label too; choose another target."
            )
    twice = (table.repeated & set(names)) | repeated(names)
    if twice:
        raise DataError(
            f"{table.where}: label column '{min(twice)}' is given more than once; give each once, under a name of its own."
        )
    return tuple(names)


def _looks_like_labels(column: str, rows: Sequence[Mapping[str, str]]) -> bool:
    plain = column.strip().lower()
    if (
        not plain
        or plain in _NUMBERS_NOT_LABELS
        or plain.endswith(("_id", " id"))
        or plain.startswith("unnamed")
    ):
        return False
    values = [label(fields[column]) for fields in rows]
    return None not in values and not all(value is None or math.isnan(value) for value in values)
