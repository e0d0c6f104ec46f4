"""Graphs in, store out: a stream written beside the target and put in its place when complete."""

import json
import os
import re
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from graphlog.data.chunk import Array, ArrayWriter, AttributeWriter, GraphChunk, Reject, TextWriter
from graphlog.data.manifest import Contents, Manifest, describe, is_ours, write_manifest
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore, open_store
from graphlog.errors import ConfigError, DataError
from graphlog.files import LOCK, exchange, free_lock, locked_folder, remove_folder, remove_unused


class StoreBuilder:
    """Pack graphs chunk by chunk into a :class:`GraphStore`, in memory or in a folder.

    Memory holds one chunk and the table of distinct attribute rows. Until :meth:`finish`, nothing
    stands at ``path``: the files grow in a ``<path>.partial-…`` folder, which the next build
    removes should this one be killed. Use it as a context manager, so that an error removes what
    was written.

    Args:
        schema: What the attributes mean.
        path: Folder of the store; None builds it in memory.
        tasks: Names of the label columns.
        source: Where the graphs come from, kept in the manifest.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        path: Path | str | None = None,
        tasks: Sequence[str] = (),
        source: Mapping[str, Any] | None = None,
    ) -> None:
        self.schema, self.tasks, self.source = schema, tuple(tasks), dict(source or {})
        self.path = None if path is None else Path(path)
        self._partial: Path | None = None
        self._arrays: dict[str, ArrayWriter] = {}
        self._attributes: dict[str, AttributeWriter] = {}
        self._texts: TextWriter | None = None
        self._undirected: bool | None = None
        self._graphs = self._nodes = self._edges = self._rejects = 0
        self._top_row = -1
        self._rows_are_identity = True
        self._open = ExitStack()
        with _mendable(self.path):
            if self.path is not None:
                self._open_partial(self.path)
            try:
                self._open_arrays(self._partial)
            except OSError:
                self.abort()
                raise

    def add(self, chunk: GraphChunk) -> None:
        """Append graphs.

        Raises:
            DataError: If a graph is not valid for the schema, or the disk refuses.
        """
        chunk.check(self.schema)
        self._check_kind(chunk)
        if not len(chunk):
            return
        with _mendable(self.path):
            self._arrays["node_offsets"].append(
                self._nodes + np.cumsum(chunk.node_counts, dtype=np.int64)
            )
            self._arrays["edge_offsets"].append(
                self._edges + np.cumsum(chunk.edge_counts, dtype=np.int64)
            )
            self._arrays["endpoints"].append(chunk.edge_index.T)
            self._arrays["rows"].append(chunk.rows)
            self._attributes["node"].append(chunk.x)
            if "edge" in self._attributes:
                self._attributes["edge"].append(chunk.edge_attr)
            if chunk.labels is not None:
                self._arrays["labels"].append(chunk.labels)
            if self._texts is not None and chunk.texts is not None:
                self._texts.append(chunk.texts)
                for k, parent in chunk.parents.items():
                    self._append_line("parents", [self._graphs + k, parent])
        expected = np.arange(self._graphs, self._graphs + len(chunk))
        self._rows_are_identity &= bool((chunk.rows == expected).all())
        self._top_row = max(self._top_row, int(chunk.rows.max()))
        self._graphs += len(chunk)
        self._nodes += len(chunk.x)
        self._edges += len(chunk.edge_attr)

    def _check_kind(self, chunk: GraphChunk) -> None:
        tasks = 0 if chunk.labels is None else chunk.labels.shape[1]
        if tasks != len(self.tasks):
            raise ValueError(
                f"`labels` must have {len(self.tasks)} columns, as many as `tasks`, found {tasks}."
            )
        if self._undirected is None:
            self._undirected = chunk.undirected
            if chunk.texts is not None:
                with _mendable(self.path):
                    self._texts = TextWriter(self._partial)
                self._open.callback(self._texts.close)
        if chunk.undirected != self._undirected or (chunk.texts is None) != (self._texts is None):
            raise ValueError(
                "every chunk of a store must agree on `undirected` and on whether it has `texts`."
            )

    def reject(self, reject: Reject) -> None:
        """Record a row that could not become a graph."""
        with _mendable(self.path):
            self._append_line("rejects", [reject.row, reject.text, reject.reason])
        self._top_row = max(self._top_row, reject.row)
        self._rejects += 1

    def _append_line(self, name: str, values: Sequence[Any]) -> None:
        line = json.dumps(values) + "\n"
        self._arrays[name].append(np.frombuffer(line.encode(), np.uint8))

    def finish(self) -> GraphStore:
        """Put the store in its place and return it.

        Raises:
            ValueError: If a row of the input is neither a graph nor rejected.
            DataError: If the disk refuses.
        """
        rows = self._graphs + self._rejects
        if self._top_row != rows - 1:
            raise ValueError(
                f"{rows} rows were added or rejected, but the last one is row {self._top_row}: "
                "every row of the input must be one or the other."
            )
        with _mendable(self.path):
            arrays = self._finished_arrays()
            counts = {
                "graphs": self._graphs,
                "nodes": self._nodes,
                "edges": self._edges,
                "rows": rows,
                "rejects": self._rejects,
            }
            manifest = Manifest.model_validate(
                {
                    "schema": self.schema.to_dict(),
                    "counts": counts,
                    "undirected": self._undirected is not False,
                    "tasks": self.tasks,
                    "texts_sha256": None if self._texts is None else self._texts.sha256.hexdigest(),
                    "source": _encodable(self.source),
                    "files": describe(arrays, self._partial),
                }
            )
            manifest = manifest.model_copy(update={"digest": manifest.content_digest()})
            if self.path is None or self._partial is None:
                return GraphStore(Contents(manifest, self.schema, arrays))
            write_manifest(self._partial, manifest)
            self._put_in_place(self._partial, self.path)
        return open_store(self.path)

    def _finished_arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for name, writer in self._arrays.items():
            arrays[name] = writer.finish()
            is_empty = name in ("rejects", "parents") and not len(arrays[name])
            if is_empty or (name == "rows" and self._rows_are_identity):
                del arrays[name]
                if writer.path is not None:
                    writer.path.unlink()
        for writer in self._attributes.values():
            arrays |= writer.finish()
        return arrays | ({} if self._texts is None else self._texts.finish())

    def _open_arrays(self, folder: Path | None) -> None:
        one_a_row = ("node_offsets", "edge_offsets", "rows", "rejects", "parents")
        widths: dict[str, int | None] = {"endpoints": 2, **dict.fromkeys(one_a_row)}
        if self.tasks:
            widths["labels"] = len(self.tasks)
        for name, width in widths.items():
            dtype = np.float32 if name == "labels" else np.uint8
            path = None if folder is None else folder / f"{name}.bin"
            self._arrays[name] = ArrayWriter(path, width, dtype)
            self._open.callback(self._arrays[name].close)
        for name in ("node_offsets", "edge_offsets"):
            self._arrays[name].append(np.zeros(1, np.int64))
        for name, columns in (("node", self.schema.node), ("edge", self.schema.edge)):
            if columns:
                self._attributes[name] = AttributeWriter(folder, name, columns)
                self._open.callback(self._attributes[name].close)

    def _open_partial(self, path: Path) -> None:
        is_empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
        if path.exists() and not is_empty and not is_ours(path):
            raise ConfigError(
                f"{path} exists and is not a graph store, or holds other files too, so it is not "
                "replaced; choose another name."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = re.compile(rf"{re.escape(path.name)}\.partial-\d+-[0-9a-f]{{8}}")
        remove_unused(
            old
            for old in path.parent.iterdir()
            if unfinished.fullmatch(old.name) and is_ours(old, unfinished=True)
        )
        self._partial, lock = locked_folder(path)
        self._open.callback(free_lock, lock)
        self._finalizer = weakref.finalize(self, _discard, self._partial, os.getpid(), self._open)

    def _put_in_place(self, partial: Path, path: Path) -> None:
        if path.exists():
            exchange(partial, path)
            remove_folder(partial)
        else:
            partial.replace(path)
        (path / LOCK).unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        self._open.close()
        if self._partial is not None:
            self._finalizer.detach()
            self._partial = None

    def abort(self) -> None:
        """Give up: close and remove what was written."""
        if self._partial is not None:
            _discard(self._partial, os.getpid(), self._open)
        self._release()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what was not finished."""
        if self._partial is not None:
            self.abort()


def _encodable(value: Any) -> Any:
    """Return a value in which every text is valid UTF-8; names of files may not be."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(entry) for key, entry in value.items()}
    return [_encodable(entry) for entry in value] if isinstance(value, list | tuple) else value


@contextmanager
def _mendable(path: Path | None) -> Generator[None]:
    try:
        yield
    except OSError as e:
        raise DataError(
            f"cannot write the store {path}: {e.strerror or e}; free the disk or choose another "
            "folder."
        ) from e


def _discard(partial: Path, owner: int, opened: ExitStack) -> None:
    opened.close()
    if os.getpid() == owner:  # a forked worker that ends must not remove its parent's work
        remove_folder(partial)
