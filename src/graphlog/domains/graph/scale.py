"""Mean and deviation of quantities, which encoders standardize by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import Attribute, FeatureSchema

_SMALLEST_SPREAD = 1e-6


class Moments:
    """Mean and spread of numbers that come piece by piece."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.squares = 0.0

    def add(self, numbers: np.ndarray) -> None:
        """Include more numbers; all must be finite."""
        if len(numbers):
            mean, total = float(numbers.mean()), self.count + len(numbers)
            shift = mean - self.mean
            self.squares += float(((numbers - mean) ** 2).sum())
            self.squares += shift * shift * self.count * len(numbers) / total
            self.mean += shift * len(numbers) / total
            self.count = total

    @property
    def scale(self) -> float:
        """The deviation, or 1 where the numbers are equal but for rounding."""
        spread = float(np.sqrt(self.squares / self.count)) if self.count else 0.0
        return spread if spread > _SMALLEST_SPREAD * max(1.0, abs(self.mean)) else 1.0


class ScaleSurvey:
    """Mean and deviation of every quantity in graphs that are used.

    What is rejected may hold anything, and dropped edges are in no store: they must not count.

    Args:
        schema: Of the graphs.
    """

    def __init__(self, schema: FeatureSchema) -> None:
        self._schema = schema
        self._items = {"node": 0, "edge": 0}
        self._moments = {
            kind: {k: Moments() for k, a in enumerate(columns) if not a.is_categorical}
            for kind, columns in (("node", schema.node), ("edge", schema.edge))
        }

    def add(self, chunk: GraphChunk) -> None:
        """Include more graphs."""
        for kind, values in (("node", chunk.x), ("edge", chunk.edge_attr)):
            self._items[kind] += len(values)
            for k, moments in self._moments[kind].items():
                moments.add(values[:, k].astype(np.float64))

    def scaled(self, surveyed: Mapping[str, int]) -> FeatureSchema:
        """Return the schema with these means and deviations.

        Args:
            surveyed: Number of nodes and edges that those of the schema are of: where it is the
                number of used ones, they stay as they are, to the last bit.
        """
        node, edge = (
            tuple(
                replace(a, shift=found.mean, scale=found.scale)
                if (found := self._moments[kind].get(k)) and surveyed[kind] != self._items[kind]
                else a
                for k, a in enumerate(columns)
            )
            for kind, columns in (("node", self._schema.node), ("edge", self._schema.edge))
        )
        return with_columns(self._schema, node, edge)


def with_columns(
    schema: FeatureSchema, node: tuple[Attribute, ...], edge: tuple[Attribute, ...]
) -> FeatureSchema:
    """Return the schema with other columns, and the rows that stand for no value in them."""
    return replace(
        schema,
        node=node,
        edge=edge,
        node_mask=_special_row(node, 1),
        edge_mask=_special_row(edge, 2) if edge else None,
        self_loop=_special_row(edge, 1) if edge else None,
    )


def _special_row(columns: Sequence[Attribute], from_last: int) -> tuple[float, ...]:
    """Return a code that stands for no value, or in continuous columns the mean."""
    return tuple(float(c.cardinality - from_last) if c.is_categorical else c.shift for c in columns)
