"""What graphs are: the columns and codes of their attributes, and graphs as plain arrays.

Knows no chemistry. On their way into a store the arrays become few bytes.
"""

import csv
import hashlib
import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Integer, Num, Shaped

from graphlog.errors import ConfigError, ModelFileError
from graphlog.files import open_csv, replacing, writing

Origin = Literal["given", "degree", "one-hot"]
MaskedColumns = Literal["all", "first"]
Array = np.ndarray[Any, np.dtype[Any]]

LARGEST_TABLE = 1 << 16
"""Distinct attribute rows beyond which rows are stored as they are: a code is two bytes at most."""
TEXTS_A_BLOCK = 512
"""Texts compressed together: enough for the compressor to learn SMILES, few enough to read one."""
_BLOCK_ROWS = 1 << 18
REJECTS = "rejects.csv"
_REJECT_COLUMNS = ["row", "input", "reason", "output"]


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
            fits = len(row) == len(columns) and all(
                0 <= value < column.cardinality or not column.is_categorical
                for value, column in zip(row, columns, strict=True)
            )
            if not fits:
                names = ", ".join(column.name for column in columns)
                raise ConfigError(
                    f"schema '{self.name}': `{label}` must have a value, below its cardinality, "
                    f"for each of {names}; found {row}."
                )

    def mask_row(self, columns: MaskedColumns = "all") -> tuple[float, ...]:
        """Return the row that stands for "masked"; with ``first`` it is 0 but for the first column.

        Raises:
            ConfigError: If there is none.
        """
        row = self.node_mask if self.masked == "node" else self.edge_mask
        if row is None:
            raise ConfigError(
                f"schema '{self.name}' has no `{self.masked}_mask` row,"
                f" which masking its {self.masked}s needs."
            )
        if columns == "all":
            return row
        # atoms: their first column; edges of proteins: the mask channel, the last
        mark = next(k for k, value in enumerate(row) if value)
        return tuple(value if k == mark else 0.0 for k, value in enumerate(row))

    def contradicts(self, other: "FeatureSchema") -> bool:
        """Return whether one is of directed graphs and the other of undirected ones."""
        return {self.directed, other.directed} == {True, False}

    def difference(self, other: "FeatureSchema") -> str:
        """Return in words the first thing in which ``other``, named last, differs.

        Example:
            >>> of_mean = lambda mean: (Attribute("mass", 0, shift=mean),)
            >>> one, two = (FeatureSchema("s", "graph", of_mean(m), (), "node") for m in (1.5, 2.5))
            >>> one.difference(two)
            "mean and standard deviation of node column 'mass': 1.5 and 1.0, not 2.5 and 1.0"
        """
        if self.contradicts(other):
            return "one of the two is of directed graphs"
        for kind, own, others in (("node", self.node, other.node), ("edge", self.edge, other.edge)):
            names, their_names = ([a.name for a in columns] for columns in (own, others))
            if names != their_names:
                x, y = (", ".join(some) or "none" for some in (names, their_names))
                return f"{kind} columns: {x:.80}, not {y:.80}"
            for a, b in zip(own, others, strict=True):
                where = f"of {kind} column '{a.name}'"
                if a.values != b.values:
                    x = ", ".join(text for text in a.values if text not in b.values) or "none"
                    y = ", ".join(text for text in b.values if text not in a.values) or "none"
                    return f"categories {where}: {x:.40}, not {y:.40}"
                if (a.shift, a.scale) != (b.shift, b.scale):
                    x, y = (f"{c.shift} and {c.scale}" for c in (a, b))
                    return f"mean and standard deviation {where}: {x}, not {y}"
                if a != b:
                    return f"codes {where}"
        return "names"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; :meth:`from_dict` reads it back."""
        described = asdict(self)
        # what is as it usually is goes unsaid
        usual = {option.name: option.default for option in fields(Attribute)}
        for kind in ("node", "edge"):
            described[kind] = [
                {key: value for key, value in column.items() if value != usual[key]}
                for column in described[kind]
            ]
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
                k: tuple(
                    replace(Attribute(**c), values=tuple(c.get("values", ()))) for c in fields[k]
                )
                for k in ("node", "edge")
            }
            return cls(**{**fields, **rows, **columns})
        except (KeyError, TypeError, AttributeError) as e:
            raise ConfigError(f"the feature schema is incomplete or malformed ({e}).") from e


def is_continuous(columns: tuple[Attribute, ...]) -> bool:
    """Return whether a matrix with these columns is float32 (any is continuous), not int64."""
    return any(not c.is_categorical for c in columns)


class RejectKind(StrEnum):
    """Why an input row has no graph."""

    UNUSABLE = "unusable"
    """It cannot be read, or is no graph of its schema."""
    EXCLUDED = "excluded"
    """It was to be left out."""


@dataclass(frozen=True, slots=True)
class Reject:
    """An input row that has no graph."""

    row: int
    """Data row of the input, from 0."""
    text: str
    """What stood there."""
    reason: str
    """Why it has none, in words."""
    kind: RejectKind = RejectKind.UNUSABLE


class Refused(NamedTuple):
    """A text that a featurizer makes no graph of; a plain ``(position, reason)`` will do."""

    position: int
    """Its position among the texts."""
    reason: str
    """Why."""
    kind: RejectKind = RejectKind.UNUSABLE
    """Whether it could not, or was not to, become one."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphChunk:
    """``n`` graphs, one behind the other, with graph-local node numbers."""

    node_counts: Integer[np.ndarray, "n"]
    """Nodes of each graph, at least 1."""
    edge_counts: Integer[np.ndarray, "n"]
    """Edges of each graph as listed here: bonds, not directions, where ``undirected``."""
    x: Num[np.ndarray, "V Fx"]
    """Node attributes, graph after graph."""
    edge_index: Integer[np.ndarray, "2 E"]
    """Node numbers within the graph; one column a bond, (begin, end), where ``undirected``."""
    edge_attr: Num[np.ndarray, "E Fe"]
    """Attributes of each listed edge; both directions of a bond share them."""
    rows: Integer[np.ndarray, "n"]
    """Data row of the input each graph came from, from 0."""
    texts: list[str] | None = None
    """The text each graph was parsed from (its SMILES)."""
    labels: Float[np.ndarray, "n T"] | None = None
    """Labels, NaN where absent."""
    undirected: bool = True
    """Whether each listed edge stands for both directions."""
    parents: Mapping[int, str] = field(default_factory=dict[int, str])
    """What folds and repeats go by in place of the text, such as the SMILES of a salt's parent.

    The keys are positions in this chunk; graphs that are not listed go by their own text.
    """

    def __len__(self) -> int:
        """Return the number of graphs."""
        return len(self.node_counts)

    def check(self, schema: FeatureSchema) -> None:
        """Assert that the graphs fit ``schema`` and do not contradict themselves.

        What a user gives is checked where it is read, and named by its place there.
        """
        n, v, e = len(self), int(self.node_counts.sum()), int(self.edge_counts.sum())
        texts, labels = (n if a is None else len(a) for a in (self.texts, self.labels))
        assert n == len(self.edge_counts) == len(self.rows) == texts == labels
        assert (self.edge_counts >= 0).all()
        assert (self.rows >= 0).all()
        assert self.x.shape == (v, len(schema.node))
        assert self.edge_index.shape == (2, e)
        assert self.edge_attr.shape == (e, len(schema.edge))
        assert (self.node_counts >= 1).all(), "a graph has no nodes"
        sizes = np.repeat(self.node_counts, self.edge_counts)
        stays = (self.edge_index >= 0) & (self.edge_index < sizes)
        assert stays.all(), "an edge leaves its graph"
        for matrix, columns in ((self.x, schema.node), (self.edge_attr, schema.edge)):
            for values, column in zip(matrix.T, columns, strict=True):
                fits = np.isfinite(values)
                if column.is_categorical:
                    fits = (
                        (values >= 0) & (values < column.cardinality) & (values == np.floor(values))
                    )
                assert fits.all(), f"'{column.name}' has a value that is not in the schema"
        assert self.labels is None or not np.isinf(self.labels).any(), "a label is infinite"


def is_reject_list(path: Path) -> bool:
    """Return whether ``path`` is a file that :func:`write_rejects` wrote."""
    try:
        with path.open("rb") as f:
            line = f.readline(64).decode(errors="replace").rstrip()
    except OSError:
        return False
    return line.replace('"', "").split(",") == _REJECT_COLUMNS  # quoted where EXCEL_SAFE was set


def rejects_of_output(folder: Path, output: str) -> Path:
    """Return where the rejected rows of ``output`` are listed.

    That is ``rejects.csv``, unless it lists those of another output in the same folder.
    """
    shared, own = folder / REJECTS, folder / f"{output}.{REJECTS}"
    if own.exists() or not is_reject_list(shared):
        return own if own.exists() else shared
    with shared.open(encoding="utf-8", newline="", errors="replace") as file:
        first = next(csv.DictReader(file), None)
    return shared if first is None or first["output"] == output else own


def write_rejects(folder: Path, rejects: Iterable[Reject], output: str) -> Path:
    """Write ``row,input,reason`` and the name of the output as CSV, whole or not at all.

    Returns:
        The file, as :func:`rejects_of_output`.
    """
    path, own = rejects_of_output(folder, output), folder / f"{output}.{REJECTS}"
    is_new = not path.exists()
    with replacing(own if is_new else path) as unfinished, open_csv(unfinished) as table:
        table.writerow(_REJECT_COLUMNS)
        for r in rejects:
            table.writerow((r.row, r.text, r.reason, output))
    if not is_new or path == own:
        return path
    with writing(path):
        try:
            os.link(own, path)  # a rename would replace what another command has listed meanwhile
        except FileExistsError:
            return own
        except OSError:  # no links on this disk
            os.replace(own, path)
        else:
            own.unlink()
    return path


def save_rejects(folder: Path, rejects: Sequence[Reject], output: str) -> Path | None:
    """List the rejected rows of ``output``, or empty a list that is out of date.

    Returns:
        The list; None if no row was rejected.
    """
    path = rejects_of_output(folder, output)
    if rejects or path.exists():
        path = write_rejects(folder, rejects, output)
    return path if rejects else None


def ragged_ranges(
    starts: Integer[np.ndarray, "N"], counts: Integer[np.ndarray, "N"]
) -> Integer[np.ndarray, "R"]:
    """Return ``starts[0] .. starts[0] + counts[0] - 1``, then the next range, in one array.

    Example:
        >>> ragged_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
        starts - (ends - counts), counts
    )


class ArrayWriter:
    """Rows appended to a file, or to memory where there is none; a file that is not there is empty.

    Each block is kept in the narrowest type that holds it. In the end all have the widest of these.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._blocks: list[Array] = []

    def append(self, rows: Shaped[np.ndarray, "R ..."]) -> None:
        """Append rows to those already there."""
        if rows.dtype.kind == "f":
            with np.errstate(over="ignore"):
                is_single = np.array_equal(rows, rows.astype(np.float32), equal_nan=True)
            dtype = np.dtype(np.float32 if is_single else np.float64)
        else:
            unsigned = np.min_scalar_type(int(rows.max(initial=0)))
            dtype = unsigned if unsigned.itemsize < 8 else np.dtype(np.int64)
        block = rows.astype(dtype, order="C")
        if self.path is not None:
            with self.path.open("ab") as file:
                file.write(block.data)
            block = np.broadcast_to(dtype.type(0), block.shape)  # its type and shape alone
        self._blocks.append(block)

    def finish(self) -> Array:
        """Return what was written, read-only; a file is flushed to the disk first."""
        blocks = self._blocks or [np.empty(0, np.uint8)]
        if self.path is None:
            whole = np.concatenate(blocks)
            whole.setflags(write=False)
            return whole
        dtypes = {block.dtype for block in blocks}
        widest = np.result_type(*dtypes)
        if len(dtypes) > 1:
            self._widen(self.path, widest)
        with self.path.open("ab") as file:
            os.fsync(file.fileno())
        return map_array(self.path, widest, (sum(map(len, blocks)), *blocks[-1].shape[1:]))

    def _widen(self, path: Path, dtype: np.dtype[Any]) -> None:
        wide = path.with_name(f"{path.name}+")
        with path.open("rb") as narrow, wide.open("wb") as file:
            for block in self._blocks:
                file.write(np.fromfile(narrow, block.dtype, block.size).astype(dtype).data)
        wide.replace(path)


def map_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return the array in ``path`` as a read-only memory map (an empty file cannot be mapped)."""
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", shape=shape).view(np.ndarray)


class AttributeWriter:
    """Attribute rows, each distinct one kept once in a table; written out where too many differ."""

    def __init__(
        self, name: str, columns: tuple[Attribute, ...], make: Callable[[str], ArrayWriter]
    ) -> None:
        self._name, self._make, self._width = name, make, len(columns)
        self._writer, self._is_dense = make(f"{name}_codes"), False
        self._codes: dict[Any, int] = {}
        self._table: list[Array] = []
        is_float = is_continuous(columns)
        self._type: Any = np.float32 if is_float else np.int64
        sizes = [column.cardinality for column in columns]
        self._strides: Array | None = None
        if not is_float and math.prod(sizes) < 1 << 62:
            self._strides = np.array([math.prod(sizes[k + 1 :]) for k in range(len(sizes))])

    def append(self, rows: Num[np.ndarray, "R F"]) -> None:
        """Add one row a node or edge."""
        rows = np.ascontiguousarray(rows, self._type)
        if not len(rows):
            return
        self._writer.append(rows if self._is_dense else self._encode(rows))
        if len(self._table) > LARGEST_TABLE:
            codes, table, written = self._writer.finish(), np.stack(self._table), self._writer.path
            self._writer = self._make(f"{self._name}_rows")
            for start in range(0, len(codes), _BLOCK_ROWS):
                self._writer.append(table[codes[start : start + _BLOCK_ROWS]])
            del codes  # before the file that it maps
            if written is not None:
                written.unlink()
            self._is_dense, self._codes, self._table = True, {}, []

    def _encode(self, rows: Array) -> Array:
        # first appearance decides the code, so that the bytes do not depend on how the input was
        # cut into chunks
        if self._strides is not None:
            keys = rows @ self._strides
        else:
            keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        codes = np.empty(len(distinct), dtype=np.int64)
        names: list[Any] = distinct.tolist()
        for k in np.argsort(first, kind="stable").tolist():
            code = self._codes.setdefault(names[k], len(self._codes))
            if code == len(self._table):
                self._table.append(rows[first[k]])
            codes[k] = code
        return codes[inverse]

    def finish(self) -> dict[str, Array]:
        """Return the arrays to keep, by name."""
        if self._is_dense:
            return {f"{self._name}_rows": self._writer.finish()}
        table = self._make(f"{self._name}_table")
        table.append(np.array(self._table, self._type).reshape(-1, self._width))
        return {f"{self._name}_codes": self._writer.finish(), f"{self._name}_table": table.finish()}


class TextWriter:
    """Texts in compressed blocks, with the place of each block; ``make`` as for attributes."""

    def __init__(self, make: Callable[[str], ArrayWriter]) -> None:
        self._blocks, self._places = make("text_blocks"), make("text_offsets")
        self._offsets = [0]
        self._waiting: list[bytes] = []
        self._total = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Hash of the texts before compression."""
        return self._total.hexdigest()

    def append(self, texts: Sequence[str]) -> None:
        """Add one text a graph."""
        self._waiting.extend(t.encode("utf-8", "surrogatepass") for t in texts)
        while len(self._waiting) >= TEXTS_A_BLOCK:
            self._write(self._waiting[:TEXTS_A_BLOCK])
            del self._waiting[:TEXTS_A_BLOCK]

    def _write(self, texts: list[bytes]) -> None:
        raw = np.array([len(t) for t in texts], dtype="<u4").tobytes() + b"".join(texts)
        self._total.update(raw)
        block = np.frombuffer(zlib.compress(raw, 6), np.uint8)
        self._blocks.append(block)
        self._offsets.append(self._offsets[-1] + len(block))

    def finish(self) -> dict[str, Array]:
        """Return the arrays to keep, by name."""
        if self._waiting:
            self._write(self._waiting)
        self._places.append(np.array(self._offsets))
        return {"text_blocks": self._blocks.finish(), "text_offsets": self._places.finish()}


def unpack_texts(block: bytes, count: int) -> list[str]:
    """Return the ``count`` texts of one compressed block.

    Raises:
        ModelFileError: If the block is damaged.
    """
    try:
        raw = zlib.decompress(block)
        ends = (4 * count + np.cumsum(np.frombuffer(raw, "<u4", count), dtype=np.int64)).tolist()
        if ends[-1] != len(raw):
            raise ValueError("a block has another length than its texts")
        return [
            raw[a:b].decode("utf-8", "surrogatepass")
            for a, b in zip([4 * count, *ends], ends, strict=False)
        ]
    except (zlib.error, ValueError) as e:
        raise ModelFileError(
            f"the store's texts are damaged ({e}); build the store again."
        ) from None
