"""What the attributes of a collection of graphs mean: columns, codes, masks. Knows no chemistry."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from graphlog.errors import ConfigError

Origin = Literal["given", "degree", "one-hot"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column of a node or edge attribute matrix."""

    name: str
    """Name of the column, as printed by ``graphlog info``."""
    cardinality: int
    """Number of codes, with special ones (mask, self-loop, fallback); 0 for a continuous column."""
    values: tuple[str, ...] = ()
    """What each code stands for in the input, in the order of the codes.

    It is "" for a code that was never seen. Empty where codes are taken as they are.
    """
    shift: float = 0.0
    """Continuous columns: an encoder reads ``(value - shift) / scale``; stores hold the value."""
    scale: float = 1.0
    """See ``shift``."""
    origin: Origin = "given"
    """Where the codes come from.

    It is the input's own column; the node's degree, the largest code standing for it and all above;
    or the position of the 1 in a row of several columns.
    """

    @property
    def is_categorical(self) -> bool:
        """Whether the column holds integer codes in ``range(cardinality)``."""
        return self.cardinality > 0


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """The columns of ``x`` and ``edge_attr`` and the rows that stand for "masked" and "self-loop".

    A matrix whose columns are all categorical is int64; any continuous column makes it float32
    (codes are then stored as exact floats).
    """

    name: str
    """``molecule``, ``molecule-rich``, ``molecule-cip``, ``protein`` or an inferred one's name."""
    domain: str
    """``molecule``, ``protein`` or ``graph``: who makes a graph of this schema of a raw record."""
    node: tuple[Attribute, ...]
    """Columns of ``x``."""
    edge: tuple[Attribute, ...]
    """Columns of ``edge_attr``; may be empty."""
    masked: Literal["node", "edge"]
    """What attribute masking acts on (appendix B: atoms in chemistry, edges in biology)."""
    node_mask: tuple[float, ...] | None = None
    """The row that replaces a masked node's attributes; None where nodes cannot be masked."""
    edge_mask: tuple[float, ...] | None = None
    """The row that replaces a masked edge's attributes; None where edges cannot be masked."""
    self_loop: tuple[float, ...] | None = None
    """Attributes of the self-loop that message passing adds to each node; None without ``edge``."""
    directed: bool | None = field(default=None, compare=False)
    """Any graphs: whether an edge is one direction only; None where it may be either.

    Not compared, since None goes with both: see :meth:`contradicts`.
    """

    def __post_init__(self) -> None:
        """Check that every special row fits its columns."""
        if not self.node:
            raise ConfigError(
                f"schema '{self.name}': `node` must hold at least one attribute, found none."
            )
        for label, row, columns in (
            ("node_mask", self.node_mask, self.node),
            ("edge_mask", self.edge_mask, self.edge),
            ("self_loop", self.self_loop, self.edge),
        ):
            if row is None:
                continue
            if len(row) != len(columns):
                raise ConfigError(
                    f"schema '{self.name}': `{label}` must have {len(columns)} values, found "
                    f"{len(row)}."
                )
            for value, column in zip(row, columns, strict=True):
                if column.is_categorical and not 0 <= value < column.cardinality:
                    raise ConfigError(
                        f"schema '{self.name}': `{label}` of '{column.name}' must be in [0, "
                        f"{column.cardinality}), found {value}."
                    )

    def contradicts(self, other: "FeatureSchema") -> bool:
        """Return whether one is of directed graphs and the other of undirected ones."""
        return {self.directed, other.directed} == {True, False}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; :meth:`from_dict` reads it back."""
        described = asdict(self)
        # what is as it usually is goes unsaid
        for kind in ("node", "edge"):
            described[kind] = [_said(a) for a in getattr(self, kind)]
        if self.directed is None:
            del described["directed"]
        return described

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "FeatureSchema":
        """Build a schema from what :meth:`to_dict` wrote.

        Raises:
            ConfigError: If a field is missing or does not fit.
        """
        try:
            rows: dict[str, Any] = {
                k: None if fields[k] is None else tuple(fields[k])
                for k in ("node_mask", "edge_mask", "self_loop")
            }
            columns: dict[str, Any] = {
                k: tuple(map(_attribute, fields[k])) for k in ("node", "edge")
            }
            return cls(**{**fields, **rows, **columns})
        except (KeyError, TypeError) as e:
            raise ConfigError(f"the feature schema is incomplete or malformed ({e}).") from e


def is_continuous(columns: tuple[Attribute, ...]) -> bool:
    """Return whether a matrix with these columns is float32 (any is continuous), not int64."""
    return any(not c.is_categorical for c in columns)


def _said(attribute: Attribute) -> dict[str, Any]:
    usual = {f.name: f.default for f in fields(Attribute)}
    return {key: value for key, value in asdict(attribute).items() if value != usual[key]}


def _attribute(described: Mapping[str, Any]) -> Attribute:
    given: dict[str, Any] = {**described, "values": tuple(described.get("values", ()))}
    return Attribute(**given)
