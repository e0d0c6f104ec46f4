"""The store on disk: one file per array, and a manifest with a checksum of each file."""

import hashlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from graphlog.config import FrozenConfig, read_json
from graphlog.data.graphs import (
    TEXTS_A_BLOCK,
    Array,
    Attribute,
    FeatureSchema,
    is_continuous,
    map_array,
)
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.files import Identity, hash_file, hash_json, identity_of, storable

FORMAT = "graphlog-store"
VERSION = 1
MANIFEST = "manifest.json"
_PARTS = (
    "node_offsets edge_offsets endpoints rows labels text_blocks text_offsets parents rejects "
    "node_codes node_table node_rows edge_codes edge_table edge_rows"
).split()
"""Names of the arrays that a store may have."""
_LARGE = ("node_offsets", "edge_offsets", "text_offsets", "rows")
"""Arrays that may have 8-byte signed integers, for values that exceed 4-byte unsigned ones."""
_SETTLED_NS = 50_000_000
"""Age in ns of the last change of a file after which a new change is sure to get another time."""
_hashed: dict[Identity, str] = {}
"""Hashes of files that this process has computed, by the identity of the file."""


def is_store(source: object) -> TypeGuard[str | Path]:
    """Return whether ``source`` is the path of a store folder."""
    return isinstance(source, str | Path) and (Path(source) / MANIFEST).is_file()


class FileEntry(FrozenConfig):
    """Type, shape, size and checksum of an array file."""

    dtype: Literal["|u1", "<u2", "<u4", "<i8", "<f4", "<f8"]
    """NumPy type string of the items."""
    shape: tuple[int, ...]
    """Shape of the array."""
    bytes: int
    """Size of the file in bytes."""
    sha256: str
    """Hash of the file."""


def _storable(text: object) -> object:
    return storable(text) if isinstance(text, str) else text


class Source(FrozenConfig):
    """Where the graphs of a store came from, and how they were read."""

    name: Annotated[str, BeforeValidator(_storable)] = ""
    """Name of the input."""
    smiles_column: Annotated[str | None, BeforeValidator(_storable)] = None
    """Column of the records, if the user named it or it has another name than usual."""
    text_name: str = ""
    """Column name for the texts of the graphs; empty if it is that of the domain."""
    standardize: str | None = None
    """Standardization of molecules before they were read; None for no standardization."""
    classes: dict[str, list[str]] = Field(default_factory=dict)
    """Words for the classes 0, 1, ... of each label that has words instead of numbers."""
    notes: tuple[str, ...] = ()
    """Messages about input that was interpreted, such as decimal commas, one line each."""
    cutting: dict[str, Any] = Field(default_factory=dict)
    """Settings with which ego-networks were cut and labeled."""
    networks: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Numbers of lines of the network of each species that were used or left out."""
    annotations: dict[str, int] = Field(default_factory=dict)
    """Numbers of annotations of proteins that were used or left out."""
    unmatched: dict[str, str] = Field(default_factory=dict)
    """Names and terms in label files that no network or ontology has, with their places."""


class Manifest(FrozenConfig):
    """Description of a store: everything except its arrays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["graphlog-store"] = FORMAT
    """Constant that distinguishes a store from other folders."""
    version: Literal[1] = VERSION
    """Version of the format."""
    feature_schema: dict[str, Any] = Field(alias="schema")
    """The schema, as returned by :meth:`FeatureSchema.to_dict`."""
    counts: dict[Literal["graphs", "nodes", "edges", "rows", "rejects"], int]
    """Numbers of graphs, nodes, stored edges, rows of the input, and rejected rows."""
    undirected: bool
    """Whether each stored edge stands for both directions."""
    tasks: tuple[str, ...] = ()
    """Names of the label columns."""
    texts_sha256: str | None = None
    """Hash of the texts before compression, whose result may differ between builds of zlib."""
    source: Source = Source()
    """Origin of the graphs; not part of the digest."""
    files: dict[Annotated[str, Field(pattern=f"^({'|'.join(_PARTS)})$")], FileEntry]
    """Description of each array file, by the name of the array."""
    digest: str = ""
    """Hash of the fields above except ``source``; equal digests mean equal graphs."""
    source_digest: str = ""
    """Hash of ``source``, which says what labels mean and how molecules are read."""

    def signed(self) -> "Manifest":
        """Return the manifest with its digests."""
        excluded = {"source", "source_digest", "digest"}
        fields = self.model_dump(mode="json", by_alias=True, exclude=excluded)
        fields["files"] = {k: v for k, v in fields["files"].items() if not k.startswith("text_")}
        source_digest = hash_json(self.source.model_dump(mode="json"))
        return self.model_copy(update={"digest": hash_json(fields), "source_digest": source_digest})


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """A manifest and its arrays, which are memory-mapped if ``path`` is a folder."""

    manifest: Manifest
    schema: FeatureSchema
    arrays: dict[str, Array]
    path: Path | None = None
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    """Cache of the attribute tables in the data type of batches, by ``node`` and ``edge``."""
    parents: dict[int, str] = field(default_factory=dict[int, str])
    """Cache of the parents that differ from the texts of their graphs, by graph."""


def damaged(where: Path | None, problem: str) -> ModelFileError:
    """Return the error for a store, or a file of one, that cannot be used."""
    return ModelFileError(f"{where or 'the store in memory'}: {problem}; build the store again.")


def inconsistent_arrays(path: Path | None) -> ModelFileError:
    """Return the error for a store whose arrays do not fit each other."""
    return damaged(path, "its arrays contradict each other")


def hash_array(array: Array) -> str:
    """Return the sha256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).data if array.size else b"").hexdigest()


def describe(arrays: dict[str, Array], folder: Path | None) -> dict[str, FileEntry]:
    """Return the entries of a manifest for ``arrays``; those in ``folder`` are hashed as files."""
    entries: dict[str, FileEntry] = {}
    for name, array in sorted(arrays.items()):
        sha256 = hash_array(array) if folder is None else _hash_once(folder / f"{name}.bin")
        dtype: Any = array.dtype.str
        entries[name] = FileEntry(dtype=dtype, shape=array.shape, bytes=array.nbytes, sha256=sha256)
    return entries


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, and flush it and the entries of the folder to the disk."""
    with (folder / MANIFEST).open("w", encoding="utf-8") as f:
        f.write(manifest.model_dump_json(by_alias=True, indent=1))
        f.flush()
        os.fsync(f.fileno())
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_contents(path: Path, verify: bool = True) -> Contents:
    """Memory-map the store in ``path``, which another process may replace at the same time.

    With ``verify``, the hash of every file is checked, once per process as long as the file does
    not change; a gigabyte takes about a second. A ModelFileError is raised if this fails.
    """
    while True:
        before = _identity_of_store(path)
        try:
            return _map(path, verify)
        except ModelFileError:
            if _identity_of_store(path) == before:
                raise


def _identity_of_store(path: Path) -> Identity | None:
    """Return the identity of the manifest, which differs between builds; None without a file."""
    try:
        return identity_of(path / MANIFEST)
    except OSError:
        return None


def _map(path: Path, verify: bool) -> Contents:
    manifest = _read_manifest(path)
    try:
        schema = FeatureSchema.from_dict(manifest.feature_schema)
    except ConfigError as e:
        raise ModelFileError(f"{path}: {e}") from None
    files = {name: path / f"{name}.bin" for name in manifest.files}
    arrays: dict[str, Array] = {}
    for name, entry in manifest.files.items():
        dtype, size = np.dtype(entry.dtype), 0
        expected = dtype.itemsize * int(np.prod(entry.shape, dtype=object))
        try:
            size = files[name].stat().st_size
            if size == entry.bytes == expected:
                arrays[name] = map_array(files[name], dtype, entry.shape)
        except (OSError, ValueError) as e:  # ValueError: the file shrank after `stat`
            raise damaged(files[name], f"cannot be read ({e})") from None
        if name not in arrays:
            raise damaged(
                files[name], f"truncated or changed ({size} bytes, {entry.bytes} expected)"
            )
    contents = Contents(manifest, schema, arrays, path)
    if not _is_complete(contents):
        raise inconsistent_arrays(path)
    if verify:
        for name, entry in manifest.files.items():
            if _hash_once(files[name]) != entry.sha256:
                raise damaged(
                    files[name], "damaged or changed after it was written (sha256 differs)"
                )
        if not _is_sound(contents):
            raise inconsistent_arrays(path)
    return contents


def _is_complete(contents: Contents) -> bool:
    """Return whether the store has the arrays, shapes and types that its schema requires."""
    counts, arrays, tasks = contents.manifest.counts, contents.arrays, contents.manifest.tasks
    if len(counts) < 5 or min(counts.values()) < 0:
        return False
    if counts["rows"] != counts["graphs"] + counts["rejects"]:
        return False
    graphs = counts["graphs"]
    shapes: dict[str, tuple[int | None, ...]] = {
        **dict.fromkeys(("node_offsets", "edge_offsets"), (graphs + 1,)),
        **dict.fromkeys(("text_blocks", "text_offsets", "parents", "rejects"), (None,)),
        **{"rows": (graphs,), "labels": (graphs, len(tasks)), "endpoints": (counts["edges"], 2)},
    }
    needed, floats = {"node_offsets", "edge_offsets", "endpoints"}, {"labels"}
    needed |= {"labels"} if tasks else set()
    for kind, columns, total in (
        ("node", contents.schema.node, counts["nodes"]),
        ("edge", contents.schema.edge, counts["edges"]),
    ):
        codes, table, rows = (f"{kind}_{part}" for part in ("codes", "table", "rows"))
        width = len(columns)
        shapes |= {codes: (total,), table: (None, width), rows: (total, width)}
        floats |= {table, rows} if is_continuous(columns) else set()
        needed |= {codes, table} if columns and rows not in arrays else set()
    return needed <= arrays.keys() and all(
        array.ndim == len(shapes[name])
        and all(size in (None, n) for n, size in zip(array.shape, shapes[name], strict=True))
        and (array.dtype.kind == "f") == (name in floats)
        and (array.dtype.kind != "i" or name in _LARGE)
        for name, array in arrays.items()
    )


_EMPTY = np.empty(0, np.uint8)


def _is_sound(contents: Contents) -> bool:
    """Return whether offsets, attributes, rows, labels and texts are consistent.

    If not, the files have the right hashes, but another program made them. Edges and codes are
    checked when graphs are taken, which is cheaper than to read all of them in advance.
    """
    arrays, counts, schema = contents.arrays, contents.manifest.counts, contents.schema
    return bool(
        _divides(arrays["node_offsets"], counts["nodes"], smallest=1)
        and _divides(arrays["edge_offsets"], counts["edges"], smallest=0)
        and _attributes_fit(arrays, "node", schema.node)
        and _attributes_fit(arrays, "edge", schema.edge)
        and np.count_nonzero(arrays.get("rejects", _EMPTY) == ord("\n")) == counts["rejects"]
        and _are_distinct(arrays.get("rows", _EMPTY), counts["rows"])
        and _texts_fit(arrays, counts["graphs"])
        and not np.isinf(arrays.get("labels", _EMPTY)).any()
    )


def _divides(offsets: Array, total: int, smallest: Literal[0, 1]) -> bool:
    """Return whether offsets divide ``total`` items into parts of at least ``smallest`` items."""
    # compared, not subtracted, since the difference of two 64-bit numbers may overflow
    grows = offsets[1:] > offsets[:-1] if smallest else offsets[1:] >= offsets[:-1]
    return (int(offsets[0]), int(offsets[-1])) == (0, total) and bool(grows.all())


def _attributes_fit(arrays: dict[str, Array], kind: str, columns: tuple[Attribute, ...]) -> bool:
    """Return whether all attributes of nodes or edges are values of their columns."""
    values = arrays.get(f"{kind}_table", arrays.get(f"{kind}_rows", _EMPTY))
    if not values.size:
        return True
    lowest, highest = values.min(axis=0), values.max(axis=0)
    return all(
        low >= 0 and high < column.cardinality if column.is_categorical else np.isfinite(low + high)
        for low, high, column in zip(lowest.tolist(), highest.tolist(), columns, strict=True)
    )


def _are_distinct(rows: Array, total: int) -> bool:
    """Return whether all ``rows`` are different row numbers below ``total``."""
    if not rows.size:
        return True
    if int(rows.min()) < 0 or int(rows.max()) >= total:
        return False
    is_used = np.zeros(total, dtype=np.bool_)  # needs less memory than sorting the rows
    is_used[rows] = True
    return int(np.count_nonzero(is_used)) == len(rows)


def _texts_fit(arrays: dict[str, Array], graphs: int) -> bool:
    if "text_blocks" not in arrays:
        return "text_offsets" not in arrays
    offsets = arrays.get("text_offsets", _EMPTY)
    is_complete = len(offsets) == -(-graphs // TEXTS_A_BLOCK) + 1
    return is_complete and _divides(offsets, len(arrays["text_blocks"]), smallest=1)


def _hash_once(file: Path) -> str:
    """Return the sha256 of a file, computed once per process as long as it does not change."""
    try:
        before = identity_of(file)
        if before in _hashed:
            return _hashed[before]
        # two changes in quick succession may have the same time
        is_settled = time.time_ns() - before[-1] > _SETTLED_NS
        sha256 = hash_file(file)
    except OSError as e:
        raise damaged(file, f"cannot be read ({e.strerror})") from None
    if is_settled:
        _hashed[before] = sha256
    return sha256


def is_ours(folder: Path) -> bool:
    """Return whether a folder holds only the files of a store, so that it may be replaced."""
    names = {f"{name}.bin" for name in _PARTS} | {MANIFEST}
    try:
        files = {entry.name: entry.is_file(follow_symlinks=False) for entry in os.scandir(folder)}
        if not all(files.values()) or not files.keys() <= names or folder.is_symlink():
            return False
        return read_json(folder / MANIFEST).get("format") == FORMAT
    except (OSError, AttributeError, DataError):
        return False


def _read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    if not file.exists():
        raise ModelFileError(
            f"{path}: not a graph store (no {MANIFEST}); build one with `graphlog featurize`, or "
            "name a folder of graphs (edges.csv, one .jsonl file, or NAME_A.txt and "
            "NAME_graph_indicator.txt)."
        )
    try:
        fields = read_json(file)
        version = fields.get("version") if isinstance(fields, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(version, int) and version > VERSION:
            raise ModelFileError(
                f"{path}: written by a newer graphlog (store format {version}, this one reads "
                f"{VERSION}); upgrade graphlog-torch."
            )
        manifest = Manifest.model_validate(fields)
    except DataError as e:
        raise ModelFileError(f"{e}; build the store again.") from None
    except ValidationError as e:
        problem = e.errors()[0]
        where = ".".join(str(p) for p in problem["loc"]) or "all of it"
        raise damaged(file, f"not that of a graph store (`{where}`: {problem['msg']})") from None
    if manifest != manifest.signed():
        raise damaged(file, "changed after it was written (digest differs)")
    return manifest
