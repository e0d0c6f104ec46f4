"""Graphs as plain arrays, the schema of their attributes, and writers of compact arrays.

Nothing in this module is specific to chemistry.
"""

import csv
import hashlib
import math
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Integer, Num, Shaped

from graphlog.errors import ConfigError, ModelFileError
from graphlog.files import UNFINISHED, open_csv, replacing, writing

Origin = Literal["given", "degree", "one-hot"]
MaskedColumns = Literal["all", "first"]
Array = np.ndarray[Any, np.dtype[Any]]

LARGEST_TABLE = 1 << 16
"""Largest number of distinct attribute rows to store as codes of at most two bytes."""
TEXTS_A_BLOCK = 512
"""Number of texts compressed together; enough to compress SMILES well, and fast to read one."""
_BLOCK_ROWS = 1 << 18
"""Number of rows that are converted at a time when codes are replaced by full rows."""
REJECTS = "rejects.csv"
_REJECT_COLUMNS = ["row", "input", "reason", "output"]
_ABANDONED_S = 600.0
"""Age in seconds of an unfinished list from which no command can still be writing it."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column of a node or edge attribute matrix."""

    name: str
    """Name of the column, as printed by ``graphlog info``."""
    cardinality: int
    """Number of codes, including mask, self-loop and fallback; 0 for a continuous column."""
    values: tuple[str, ...] = ()
    """Text in the input for each code, in the order of the codes.

    It is "" for a code that did not occur. The tuple is empty if the input holds the codes.
    """
    shift: float = 0.0
    """Mean of a continuous column; encoders read ``(value - shift) / scale``, stores the value."""
    scale: float = 1.0
    """Standard deviation of a continuous column; see ``shift``."""
    origin: Origin = "given"
    """Source of the codes.

    ``given``: a column of the input. ``degree``: the degree of the node; the largest code stands
    for this degree and all higher ones. ``one-hot``: the position of the 1 in several columns.
    """

    @property
    def is_categorical(self) -> bool:
        """Whether the column holds integer codes in ``range(cardinality)``."""
        return self.cardinality > 0


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """The columns of ``x`` and ``edge_attr``, and the rows for "masked" and "self-loop".

    A matrix is int64 if all its columns are categorical, and float32 if any is continuous (codes
    are then stored as exact floats).
    """

    name: str
    """``molecule``, ``molecule-rich``, ``molecule-cip``, ``protein`` or an inferred name."""
    domain: str
    """Name of the domain that reads graphs of this schema: ``molecule``, ``protein``, ``graph``."""
    node: tuple[Attribute, ...]
    """Columns of ``x``."""
    edge: tuple[Attribute, ...]
    """Columns of ``edge_attr``; may be empty."""
    masked: Literal["node", "edge"]
    """Target of attribute masking (appendix B: atoms in chemistry, edges in biology)."""
    node_mask: tuple[float, ...] | None = None
    """Attributes of a masked node; None if nodes cannot be masked."""
    edge_mask: tuple[float, ...] | None = None
    """Attributes of a masked edge; None if edges cannot be masked."""
    self_loop: tuple[float, ...] | None = None
    """Attributes of the self-loop that message passing adds to each node; None without ``edge``."""
    directed: bool | None = field(default=None, compare=False)
    """Whether edges of domain ``graph`` have one direction; None allows both kinds of graphs.

    It is not compared, since None is compatible with both: see :meth:`contradicts`.
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
        """Return the row of a masked node or edge.

        With ``first``, categorical columns after the first one have code 0.
        """
        row = self.node_mask if self.masked == "node" else self.edge_mask
        if row is None:
            raise ConfigError(
                f"schema '{self.name}' has no `{self.masked}_mask` row,"
                f" which masking its {self.masked}s needs."
            )
        if columns == "all":
            return row
        attributes = self.node if self.masked == "node" else self.edge
        later = [k for k, attribute in enumerate(attributes) if attribute.is_categorical][1:]
        return tuple(0.0 if k in later else value for k, value in enumerate(row))

    def contradicts(self, other: "FeatureSchema") -> bool:
        """Return whether one schema is for directed graphs and the other for undirected ones."""
        return {self.directed, other.directed} == {True, False}

    def difference(self, other: "FeatureSchema") -> str:
        """Return a description of the first difference: the value here, "not" that of ``other``.

        Example:
            >>> of_mean = lambda mean: (Attribute("mass", 0, shift=mean),)
            >>> one, two = (FeatureSchema("s", "graph", of_mean(m), (), "node") for m in (1.5, 2.5))
            >>> one.difference(two)
            "mean and standard deviation of node column 'mass': 1.5 and 1.0, not 2.5 and 1.0"
        """
        if self.contradicts(other):
            return "one of the two is of directed graphs"
        pairs = (("node", self.node, other.node), ("edge", self.edge, other.edge))
        for kind, columns, other_columns in pairs:
            names, other_names = ([a.name for a in part] for part in (columns, other_columns))
            if names != other_names:
                x, y = (", ".join(part) or "none" for part in (names, other_names))
                return f"{kind} columns: {x:.80}, not {y:.80}"
            for a, b in zip(columns, other_columns, strict=True):
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
        """Return the schema as values for JSON, without defaults; see :meth:`from_dict`."""
        described = asdict(self)
        defaults = {option.name: option.default for option in fields(Attribute)}
        for kind in ("node", "edge"):
            described[kind] = [
                {key: value for key, value in column.items() if value != defaults[key]}
                for column in described[kind]
            ]
        if self.directed is None:
            del described["directed"]
        return described

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "FeatureSchema":
        """Return the schema that :meth:`to_dict` described; raise a ConfigError for any other."""
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
    """Return whether any column is continuous, so that their matrix is float32, not int64."""
    return any(not c.is_categorical for c in columns)


class RejectKind(StrEnum):
    """Kind of reason for which an input row has no graph."""

    UNUSABLE = "unusable"
    """The row cannot be read, or is not a graph of its schema."""
    EXCLUDED = "excluded"
    """The row is left out on purpose."""


@dataclass(frozen=True, slots=True)
class Reject:
    """An input row that has no graph."""

    row: int
    """Data row of the input, counted from 0."""
    text: str
    """Content of the row."""
    reason: str
    """Reason in words."""
    kind: RejectKind = RejectKind.UNUSABLE
    """Kind of reason."""


class Refused(NamedTuple):
    """A text without a graph, as returned by a featurizer; ``(position, reason)`` works too."""

    position: int
    """Position among the texts."""
    reason: str
    """Reason in words."""
    kind: RejectKind = RejectKind.UNUSABLE
    """Kind of reason."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphChunk:
    """Concatenated arrays of ``n`` graphs, with node numbers that start at 0 in each graph."""

    node_counts: Integer[np.ndarray, "n"]
    """Number of nodes of each graph, at least 1."""
    edge_counts: Integer[np.ndarray, "n"]
    """Number of listed edges of each graph; if ``undirected``, a bond counts once."""
    x: Num[np.ndarray, "V Fx"]
    """Node attributes of all graphs."""
    edge_index: Integer[np.ndarray, "2 E"]
    """Node numbers within the graph; if ``undirected``, a bond is one column (begin, end)."""
    edge_attr: Num[np.ndarray, "E Fe"]
    """Attributes of each listed edge; both directions of a bond share them."""
    rows: Integer[np.ndarray, "n"]
    """Data row of the input of each graph, counted from 0."""
    texts: list[str] | None = None
    """Text that each graph was parsed from, such as its SMILES."""
    labels: Float[np.ndarray, "n T"] | None = None
    """Labels, NaN where missing."""
    undirected: bool = True
    """Whether each listed edge stands for both directions."""
    parents: Mapping[int, str] = field(default_factory=dict[int, str])
    """Text that represents a graph when data are split and repeats are found.

    An example is the SMILES of a salt's parent molecule. The keys are positions in this chunk; the
    other graphs are represented by their own text.
    """

    def __len__(self) -> int:
        """Return the number of graphs."""
        return len(self.node_counts)

    def check(self, schema: FeatureSchema) -> None:
        """Assert that the arrays fit each other and ``schema``; readers check the input itself."""
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
        is_inside = (self.edge_index >= 0) & (self.edge_index < sizes)
        assert is_inside.all(), "an edge leaves its graph"
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
    return line.replace('"', "").split(",") == _REJECT_COLUMNS  # quoted if EXCEL_SAFE was set


def rejects_of_output(folder: Path, output: str) -> Path:
    """Return the path of the list of the rejected rows of ``output``.

    It is ``OUTPUT.rejects.csv`` if this exists or ``rejects.csv`` lists the rows of another output,
    else ``rejects.csv``.
    """
    shared, separate = folder / REJECTS, folder / f"{output}.{REJECTS}"
    if separate.exists():
        return separate
    if is_reject_list(shared):
        with shared.open(encoding="utf-8", newline="", errors="replace") as file:
            rows = filter(None, csv.reader(file))
            next(rows, None)  # the header
            first = next(rows, [])
        if first and first[3:] != [output]:
            return separate
    return shared


def write_rejects(folder: Path, rejects: Iterable[Reject], output: str) -> Path:
    """Write rejected rows and the name of their output as CSV, atomically; return the path.

    It is that of :func:`rejects_of_output`. Old unfinished files of killed commands are removed.
    """
    separate = folder / f"{output}.{REJECTS}"
    with suppress(OSError):
        if separate.samefile(folder / REJECTS):  # killed after `os.link` below
            separate.unlink()
    path = rejects_of_output(folder, output)
    is_new = not path.exists()
    with suppress(OSError):
        for file in folder.iterdir():
            name = UNFINISHED.fullmatch(file.name)
            is_ours = name is not None and name[1] in (REJECTS, separate.name)
            if is_ours and time.time() - file.stat().st_mtime > _ABANDONED_S:
                file.unlink()
    with replacing(separate if is_new else path) as unfinished, open_csv(unfinished) as table:
        table.writerow(_REJECT_COLUMNS)
        for r in rejects:
            table.writerow((r.row, r.text, r.reason, output))
    if not is_new or path == separate:
        return path
    with writing(path):
        try:
            os.link(separate, path)  # unlike a rename, fails if another command made the list
        except FileExistsError:
            return separate
        except OSError:  # no links on this disk
            os.replace(separate, path)
        else:
            separate.unlink(missing_ok=True)
    return path


def save_rejects(folder: Path, rejects: Sequence[Reject], output: str) -> Path | None:
    """Write the rejected rows of ``output``, if any, and return the path; clear an older list."""
    path = rejects_of_output(folder, output)
    if rejects or path.exists():
        path = write_rejects(folder, rejects, output)
    return path if rejects else None


def ragged_ranges(
    starts: Integer[np.ndarray, "N"], counts: Integer[np.ndarray, "N"]
) -> Integer[np.ndarray, "R"]:
    """Return the concatenated ranges ``starts[k] .. starts[k] + counts[k] - 1``.

    Example:
        >>> ragged_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
        starts - (ends - counts), counts
    )


class ArrayWriter:
    """Writer of an array that grows by rows, in the file ``path`` or, for None, in memory.

    Each block is stored in the smallest type that holds its values. At the end, all are converted
    to the widest of these types.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._blocks: list[Array] = []

    def append(self, rows: Shaped[np.ndarray, "R ..."]) -> None:
        """Append rows."""
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
            block = np.broadcast_to(dtype.type(0), block.shape)  # only its type and shape
        self._blocks.append(block)

    def finish(self) -> Array:
        """Return the whole array, read-only; a file is flushed to the disk and memory-mapped."""
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
    """Return the array in ``path``, memory-mapped read-only; an empty one cannot be mapped."""
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", shape=shape).view(np.ndarray)


class AttributeWriter:
    """Writer of attribute rows as codes and a table of the distinct rows.

    With more than ``LARGEST_TABLE`` distinct rows, it writes the rows themselves instead.
    """

    def __init__(
        self, name: str, columns: tuple[Attribute, ...], new_array: Callable[[str], ArrayWriter]
    ) -> None:
        self._name, self._new_array, self._width = name, new_array, len(columns)
        self._writer, self._is_dense = new_array(f"{name}_codes"), False
        self._codes: dict[Any, int] = {}
        self._table: list[Array] = []
        is_float = is_continuous(columns)
        self._type: Any = np.float32 if is_float else np.int64
        sizes = [column.cardinality for column in columns]
        self._strides: Array | None = None
        if not is_float and math.prod(sizes) < 1 << 62:
            self._strides = np.array([math.prod(sizes[k + 1 :]) for k in range(len(sizes))])

    def append(self, rows: Num[np.ndarray, "R F"]) -> None:
        """Append one row per node or edge."""
        rows = np.ascontiguousarray(rows, self._type)
        if not len(rows):
            return
        self._writer.append(rows if self._is_dense else self._encode(rows))
        if len(self._table) > LARGEST_TABLE:
            codes, table, path = self._writer.finish(), np.stack(self._table), self._writer.path
            self._writer = self._new_array(f"{self._name}_rows")
            for start in range(0, len(codes), _BLOCK_ROWS):
                self._writer.append(table[codes[start : start + _BLOCK_ROWS]])
            del codes  # releases the memory map of the file before its removal
            if path is not None:
                path.unlink()
            self._is_dense, self._codes, self._table = True, {}, []

    def _encode(self, rows: Array) -> Array:
        # codes are numbered by first occurrence, so that they do not depend on the chunks
        if self._strides is not None:
            keys = rows @ self._strides
        else:
            keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        codes = np.empty(len(distinct), dtype=np.int64)
        distinct_keys: list[Any] = distinct.tolist()
        for k in np.argsort(first, kind="stable").tolist():
            code = self._codes.setdefault(distinct_keys[k], len(self._codes))
            if code == len(self._table):
                self._table.append(rows[first[k]])
            codes[k] = code
        return codes[inverse]

    def finish(self) -> dict[str, Array]:
        """Return the finished arrays by name."""
        if self._is_dense:
            return {f"{self._name}_rows": self._writer.finish()}
        table = self._new_array(f"{self._name}_table")
        table.append(np.array(self._table, self._type).reshape(-1, self._width))
        return {f"{self._name}_codes": self._writer.finish(), f"{self._name}_table": table.finish()}


class TextWriter:
    """Writer of texts in compressed blocks, and of the offsets of these blocks."""

    def __init__(self, new_array: Callable[[str], ArrayWriter]) -> None:
        self._blocks, self._offset_writer = new_array("text_blocks"), new_array("text_offsets")
        self._offsets = [0]
        self._waiting: list[bytes] = []
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Hash of the texts before compression."""
        return self._hash.hexdigest()

    def append(self, texts: Sequence[str]) -> None:
        """Append one text per graph."""
        self._waiting.extend(t.encode("utf-8", "surrogatepass") for t in texts)
        while len(self._waiting) >= TEXTS_A_BLOCK:
            self._write(self._waiting[:TEXTS_A_BLOCK])
            del self._waiting[:TEXTS_A_BLOCK]

    def _write(self, texts: list[bytes]) -> None:
        raw = np.array([len(t) for t in texts], dtype="<u4").tobytes() + b"".join(texts)
        self._hash.update(raw)
        block = np.frombuffer(zlib.compress(raw, 6), np.uint8)
        self._blocks.append(block)
        self._offsets.append(self._offsets[-1] + len(block))

    def finish(self) -> dict[str, Array]:
        """Return the finished arrays by name."""
        if self._waiting:
            self._write(self._waiting)
        self._offset_writer.append(np.array(self._offsets))
        return {"text_blocks": self._blocks.finish(), "text_offsets": self._offset_writer.finish()}


def unpack_texts(block: bytes, count: int) -> list[str]:
    """Return the ``count`` texts of one compressed block; raise a ModelFileError for damage."""
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
