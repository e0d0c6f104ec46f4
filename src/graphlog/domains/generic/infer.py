"""From the attributes of all graphs to a schema: which columns are categories, which are quantities, and on what scale."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from graphlog.data.schema import Attribute, FeatureSchema
from graphlog.domains.generic.raw import Column, RawGraphs
from graphlog.errors import DataError, unknown_name

Kind = Literal["categorical", "continuous"]

MAX_CODES = 4096
"""Whole numbers from 0 below this are taken as codes as they are; a column of words has at most as many different ones."""
FEW_VALUES = 64
"""Other whole numbers (negative, or large) are categories up to this many different ones, and quantities beyond."""
DEGREE_CAP = 255
"""Largest degree with a code of its own."""
_SPECIAL = {"node": 1, "edge": 2}
"""Codes beyond the values: "masked", and for edges "self-loop"."""
_SMALLEST_SPREAD = 1e-6
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class ColumnSurvey:
    """What one column holds: its different values while they are few, and mean and spread of its numbers."""

    def __init__(self) -> None:
        self.values: set[int] | None = set()
        self.words: set[str] | None = set()
        self.num_words = self.count = 0
        self.has_fractions = False
        self.mean = self.squares = 0.0

    def add(self, column: Column) -> None:
        """Take in some more of the column; what is missing or not finite is passed over."""
        if column.dtype == object:
            words = [v for v in column.tolist() if isinstance(v, str)]
            self.num_words += len(words)
            self.words = _added(self.words, set(words))
            numbers = [v for v in column.tolist() if not isinstance(v, str) and v is not None]
            column = np.array(
                numbers,
                dtype=np.float64 if any(isinstance(v, float) for v in numbers) else np.int64,
            )
        if column.dtype.kind == "f":
            usable = column[np.abs(column) <= _FLOAT32_MAX]  # NaN compares false
            whole = usable == np.floor(usable)
            # numbers written with a point are quantities even where all happen to be whole; beside a NaN that cannot be told
            self.has_fractions |= bool(len(usable)) and (
                len(usable) == len(column) or not bool(whole.all())
            )
            self._weigh(usable)
            column = usable[whole & (np.abs(usable) < 2**53)].astype(np.int64)
        else:
            self._weigh(column.astype(np.float64))
        self.values = _added(self.values, set(np.unique(column).tolist()))

    def _weigh(self, numbers: np.ndarray) -> None:
        if not len(numbers):
            return
        count, mean = len(numbers), float(numbers.mean())
        total, apart = self.count + count, mean - self.mean
        self.squares += (
            float(((numbers - mean) ** 2).sum()) + apart * apart * self.count * count / total
        )
        self.mean += apart * count / total
        self.count = total

    @property
    def is_constant(self) -> bool:
        """Whether every value seen is the same category."""
        return not self.has_fractions and len(self.values or ()) + len(self.words or ()) == 1

    def kind(self) -> Kind:
        """Return what the column is taken for."""
        if self.num_words:
            # a few words among fractions are slips of the pen, to be rejected; otherwise all are names
            return (
                "continuous"
                if self.has_fractions and self.num_words <= self.count
                else "categorical"
            )
        if self.has_fractions or self.values is None:
            return "continuous"
        fits = not self.values or (min(self.values) >= 0 and max(self.values) < MAX_CODES)
        return "categorical" if fits or len(self.values) <= FEW_VALUES else "continuous"

    def attribute(self, name: str, kind: Kind, special: int) -> Attribute:
        """Return the column of the schema.

        Raises:
            DataError: If there are too many different categories.
        """
        if kind == "continuous":
            spread = float(np.sqrt(self.squares / self.count)) if self.count else 0.0
            return Attribute(
                name,
                0,
                shift=self.mean,
                scale=spread if spread > _SMALLEST_SPREAD * max(1.0, abs(self.mean)) else 1.0,
            )
        if (
            self.values is None
            or self.words is None
            or len(self.values) + len(self.words) > MAX_CODES
        ):
            raise DataError(
                f"attribute '{name}' has more than {MAX_CODES:,} different values, too many for categories; leave it out."
            )
        numbers = sorted(self.values)
        if not self.words and (not numbers or (numbers[0] >= 0 and numbers[-1] < MAX_CODES)):
            values = (
                tuple(str(k) if k in self.values else "" for k in range(numbers[-1] + 1))
                if numbers
                else ("",)
            )
        else:
            values = (*(str(v) for v in numbers), *sorted(self.words))
        return Attribute(name, len(values) + special, values=values)


class Survey:
    """What all graphs of an input hold; :meth:`schema` says how to read them."""

    def __init__(self, node: Sequence[str], edge: Sequence[str], matrices: bool = False) -> None:
        """Expect these columns.

        Args:
            node: Names of node attributes.
            edge: Names of edge attributes.
            matrices: Whether the columns are those of a nameless matrix, which may be one category in one-hot form.
        """
        self.names = {"node": tuple(node), "edge": tuple(edge)}
        self.columns = {kind: [ColumnSurvey() for _ in names] for kind, names in self.names.items()}
        self._may_be_one_hot = {
            kind: matrices and len(names) > 1 for kind, names in self.names.items()
        }
        self._seen_ones: dict[str, set[int]] = {"node": set(), "edge": set()}
        self.max_degree = 0

    def add(self, graphs: RawGraphs) -> None:
        """Take in some more graphs."""
        for kind, columns in (("node", graphs.node), ("edge", graphs.edge)):
            for survey, column in zip(self.columns[kind], columns, strict=True):
                survey.add(column)
            if self._may_be_one_hot[kind]:
                places = one_hot_places(columns)
                self._may_be_one_hot[kind] = places is not None
                self._seen_ones[kind] |= (
                    set() if places is None else set(np.unique(places).tolist())
                )
        if not self.names["node"] or all(c.is_constant for c in self.columns["node"]):
            self.max_degree = max(self.max_degree, int(graphs.degrees.max(initial=0)))

    def schema(
        self,
        name: str = "inferred",
        kinds: Mapping[str, str] | None = None,
        keep_constant: bool = True,
    ) -> FeatureSchema:
        """Return the schema of what was seen.

        Args:
            name: What to call it.
            kinds: Columns that are to be taken as ``categorical`` or ``continuous`` whatever they hold.
            keep_constant: Whether node attributes that never change are kept; else the degree takes their place.

        Raises:
            ConfigError: If ``kinds`` names a column or kind there is not.
            DataError: If a column has too many categories.
        """
        chosen: dict[str, Any] = dict(kinds or {})
        for key, kind in chosen.items():
            if key not in (known := [*self.names["node"], *self.names["edge"]]):
                raise unknown_name("attribute", key, known)
            if kind not in ("categorical", "continuous"):
                raise unknown_name("kind of attribute", str(kind), ("categorical", "continuous"))
        node, edge = self._attributes("node", chosen), self._attributes("edge", chosen)
        if not node or (not keep_constant and all(c.is_constant for c in self.columns["node"])):
            cap = min(self.max_degree, DEGREE_CAP)
            node = (Attribute("degree", cap + 1 + _SPECIAL["node"], origin="degree"),)
        return FeatureSchema(
            name=name,
            domain="graph",
            node=node,
            edge=edge,
            masked="node",
            node_mask=_special_row(node, 1),
            edge_mask=_special_row(edge, 2) if edge else None,
            self_loop=_special_row(edge, 1) if edge else None,
        )

    def _attributes(self, kind: str, chosen: Mapping[str, Any]) -> tuple[Attribute, ...]:
        names, special = self.names[kind], _SPECIAL[kind]
        if (
            self._may_be_one_hot[kind]
            and self._seen_ones[kind]
            and not any(n in chosen for n in names)
        ):
            values = tuple(str(k) if k in self._seen_ones[kind] else "" for k in range(len(names)))
            return (Attribute(f"{kind}_0", len(values) + special, values=values, origin="one-hot"),)
        return tuple(
            c.attribute(n, chosen.get(n, c.kind()), special)
            for n, c in zip(names, self.columns[kind], strict=True)
        )


def one_hot_places(columns: Sequence[Column]) -> np.ndarray | None:
    """Return the position of the 1 in every row; None where a row is not 0 but for a single 1."""
    if any(c.dtype == object for c in columns):
        return None
    matrix = np.stack(columns, axis=1)
    return (
        matrix.argmax(axis=1)
        if np.isin(matrix, (0, 1)).all() and (matrix.sum(axis=1) == 1).all()
        else None
    )


def _special_row(columns: Sequence[Attribute], from_last: int) -> tuple[float, ...]:
    """Return a code that stands for no value, or in continuous columns the mean."""
    return tuple(float(c.cardinality - from_last) if c.is_categorical else c.shift for c in columns)


def _added(values: Any, more: set[Any]) -> Any:
    """Return the union, or None once there are too many to keep."""
    if values is None or len(values) + len(more) > 2 * MAX_CODES:
        return None
    values |= more
    return values if len(values) <= MAX_CODES else None
