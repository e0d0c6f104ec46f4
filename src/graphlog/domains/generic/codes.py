"""Attributes into the codes and numbers of a schema, and a word on each that does not fit."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from graphlog.data.schema import Attribute
from graphlog.domains.generic.raw import Column, RawGraphs
from graphlog.errors import DataError


class Unfit(NamedTuple):
    """A node or edge with a value that the schema has no place for."""

    item: int
    """Its number among all nodes, or all edges."""
    reason: str
    """What is wrong."""


def node_codes(
    graphs: RawGraphs, columns: tuple[Attribute, ...]
) -> tuple[Float[np.ndarray, "V F"], list[Unfit]]:
    """Return the node attributes of ``graphs`` under the schema's ``columns``, and what does not fit.

    Raises:
        DataError: If the number of columns is another.
    """
    if len(columns) == 1 and columns[0].origin == "degree":
        return np.minimum(graphs.degrees, columns[0].cardinality - 2).astype(np.float64)[
            :, None
        ], []
    return _codes("node", graphs.node, int(graphs.node_counts.sum()), columns)


def edge_codes(
    graphs: RawGraphs, columns: tuple[Attribute, ...]
) -> tuple[Float[np.ndarray, "E F"], list[Unfit]]:
    """Return the same of edge attributes."""
    return _codes("edge", graphs.edge, graphs.edge_index.shape[1], columns)


def _codes(
    kind: str, found: Sequence[Column], items: int, columns: tuple[Attribute, ...]
) -> tuple[Float[np.ndarray, "R F"], list[Unfit]]:
    unfit = list[Unfit]()
    if len(columns) == 1 and columns[0].origin == "one-hot" and items and len(found) != 1:
        if len(found) != len(columns[0].values):
            raise DataError(
                f"{kind} attributes must be {len(columns[0].values)} columns, 0 but for a single 1, found {len(found)}."
            )
        places, wrong = _places(found, columns[0])
        unfit += [Unfit(item, f"{kind} attributes {reason}") for item, reason in wrong]
        found = [places]
    if len(found) != len(columns) and items:
        names = ", ".join(c.name for c in columns) or "none"
        raise DataError(
            f"every {kind} must have {len(columns)} attributes ({names}), found {len(found)}."
        )
    codes = np.zeros((items, len(columns)))
    for k, (values, attribute) in enumerate(zip(found, columns, strict=False)):
        codes[:, k], wrong = (
            _known(values, attribute) if attribute.is_categorical else _numbers(values)
        )
        unfit += [
            Unfit(item, f"{kind} attribute '{attribute.name}' {reason}") for item, reason in wrong
        ]
    return codes, unfit


def _places(
    found: Sequence[Column], attribute: Attribute
) -> tuple[np.ndarray, Iterator[tuple[int, str]]]:
    """Return the position of the 1 in every row, and the rows that are not 0 but for a single 1."""
    matrix = np.stack([_as_numbers(c) for c in found], axis=1)
    bad = ~(np.isin(matrix, (0, 1)).all(axis=1) & (matrix.sum(axis=1) == 1))
    any_known = next(k for k, text in enumerate(attribute.values) if text)
    return np.where(bad, any_known, matrix.argmax(axis=1)), (
        (int(i), "must be 0 but for a single 1") for i in np.flatnonzero(bad)
    )


def _known(values: Column, attribute: Attribute) -> tuple[np.ndarray, Iterator[tuple[int, str]]]:
    if not attribute.values:  # codes as they are: one of the named schemas
        codes, _ = _numbers(values)
        bad = ~((codes >= 0) & (codes < attribute.cardinality) & (codes == np.floor(codes)))
        expected = f"must be a code in [0, {attribute.cardinality})"
        return np.where(bad, 0, codes), (
            (int(i), f"{expected}, found {_text(values[i])}") for i in np.flatnonzero(bad)
        )
    code_of = {text: code for code, text in enumerate(attribute.values) if text}
    if values.dtype == object:
        codes = np.array([code_of.get(_text(v), -1) for v in values.tolist()], dtype=np.int64)
    else:
        different, inverse = np.unique(values, return_inverse=True)
        codes = np.array([code_of.get(_text(v), -1) for v in different.tolist()], dtype=np.int64)[
            inverse.reshape(-1)
        ]
    return np.maximum(codes, 0), ((int(i), _unseen(values[i])) for i in np.flatnonzero(codes < 0))


def _unseen(value: object) -> str:
    if value is None:
        return "is missing"
    if isinstance(value, float) and not np.isfinite(value):
        return f"must be finite, found {value}"
    return f"is {_text(value)!r}, a category that the schema does not know: it was not there when the schema was made"


def _numbers(values: Column) -> tuple[np.ndarray, Iterator[tuple[int, str]]]:
    numbers = _as_numbers(values)
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(numbers.astype(np.float32))
    return np.where(bad, 0.0, numbers), (
        (int(i), _no_number(values[i])) for i in np.flatnonzero(bad)
    )


def _as_numbers(values: Column) -> Float[np.ndarray, "R"]:
    if values.dtype == object:
        return np.array(
            [v if isinstance(v, int | float) else np.nan for v in values.tolist()], dtype=np.float64
        )
    return values.astype(np.float64)


def _no_number(value: object) -> str:
    return "is missing" if value is None else f"must be a finite number, found {_text(value)!r}"


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(int(value)) if isinstance(value, bool) else str(value)
