"""Finished parts of a store that is being built, so that a killed build goes on where it was."""

import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from graphlog.data.chunk import GraphChunk, Reject
from graphlog.data.manifest import LOCK, is_ours
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import StoreBuilder, open_store
from graphlog.errors import GraphLoGError
from graphlog.files import acquire_lock, free_lock, remove_folder

PIECES_A_PART = 100
"""Pieces of the input in a part."""
_GRAPHS_A_CHUNK = 4096
_PART = re.compile(r"part-\d{5,}(\.partial-\d+-[0-9a-f]{8})?")


@runtime_checkable
class Rows(Protocol):
    """Some rows of an input, to be turned into graphs together."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def content(self) -> bytes:
        """Return all that decides the graphs and labels of these rows."""
        ...


R = TypeVar("R", bound=Rows)


class Featurized(NamedTuple):
    """What became of some rows."""

    chunk: GraphChunk | None
    rejects: Sequence[Reject]
    rows: int


class Parts:
    """The parts of one build; see :func:`parts_beside`."""

    def __init__(
        self, folder: Path | None, settings: str, schema: FeatureSchema, tasks: Sequence[str]
    ) -> None:
        self._folder, self._settings = folder, settings
        self._schema, self._tasks = schema, tuple(tasks)
        self._number = 0
        self._part: _Part | None = None

    def through(
        self,
        pieces: Iterator[R],
        featurize: Callable[[Iterator[R]], Iterator[tuple[R, Featurized]]],
    ) -> Iterator[Featurized]:
        """Yield what becomes of each piece, in order; parts on disk are taken for their rows.

        Args:
            pieces: The rows of the input.
            featurize: Turns rows into graphs, in order.
        """
        if self._folder is not None:
            pieces = yield from self._known(self._folder, pieces)
        for piece, result in featurize(pieces):
            self._keep(piece, result)
            yield result

    def _keep(self, piece: Rows, result: Featurized) -> None:
        """Add a piece to the part that is being built; without room on the disk, give parts up."""
        if self._folder is None:
            return
        try:
            if self._part is None:
                path = self._folder / _name(self._number)
                self._part = _Part(StoreBuilder(self._schema, path, self._tasks))
            self._part.add(piece, result)
            if self._part.pieces >= PIECES_A_PART:
                self._part.finish(self._settings)
                self._part, self._number = None, self._number + 1
        except GraphLoGError:  # the store itself may still be built
            self.remove()
            self._folder = None

    def _known(self, folder: Path, pieces: Iterator[R]) -> Generator[Featurized, None, Iterator[R]]:
        """Yield the graphs of the parts that hold the first pieces, and return the other pieces."""
        while (path := folder / _name(self._number)).is_dir():
            try:
                store = open_store(path)
            except GraphLoGError:
                break
            source = store.source
            as_now = (self._settings, self._schema, self._tasks)
            if (source.get("settings"), store.schema, store.tasks) != as_now:
                break
            taken = list(islice(pieces, source["pieces"]))
            if _content(taken).hexdigest() != source["content"]:
                pieces = chain(taken, pieces)
                break
            yield Featurized(None, store.rejects, 0)
            for start in range(0, max(len(store), 1), _GRAPHS_A_CHUNK):
                graphs = np.arange(start, min(start + _GRAPHS_A_CHUNK, len(store)))
                yield Featurized(store.chunk(graphs), (), 0)
            yield Featurized(None, (), sum(map(len, taken)))
            self._number += 1
        return pieces

    def close(self) -> None:
        """Give up the part that is not finished."""
        if self._part is not None:
            self._part.builder.abort()
            self._part = None

    def remove(self) -> None:
        """Remove all parts."""
        self.close()
        for entry in () if self._folder is None else self._folder.iterdir():
            if _PART.fullmatch(entry.name) and is_ours(entry, unfinished=True):
                remove_folder(entry)


def _name(number: int) -> str:
    return f"part-{number:05d}"


class _Part:
    """The part that is being built."""

    def __init__(self, builder: StoreBuilder) -> None:
        self.builder, self.pieces = builder, 0
        self._content = hashlib.sha256()

    def add(self, piece: Rows, result: Featurized) -> None:
        for reject in result.rejects:
            self.builder.reject(reject)
        if result.chunk is not None:
            self.builder.add(result.chunk)
        self.pieces += 1
        self._content.update(piece.content())

    def finish(self, settings: str) -> None:
        self.builder.source = {
            "settings": settings,
            "pieces": self.pieces,
            "content": self._content.hexdigest(),
        }
        self.builder.finish()


def _content(pieces: Sequence[Rows]) -> Any:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece.content())
    return total


@contextmanager
def parts_beside(
    path: Path | None, settings: str, schema: FeatureSchema, tasks: Sequence[str]
) -> Generator[Parts]:
    """Give the parts of the store that is built at ``path``: finished stores in ``<path>.parts``.

    They stay when the build does not end well, and are removed when it does. The next build uses
    those that are whole, have the same settings, and come from the same rows with the same labels.
    There are none while another process builds the same store, nor where a folder of that name is
    someone else's or cannot be made.

    Args:
        path: Folder of the store; None for one in memory, which has no parts.
        settings: Names all that decides what becomes of a row, apart from the row.
        schema: Of the store.
        tasks: Its label columns.
    """
    folder = Path() if path is None else path.with_name(f"{path.name}.parts")
    lock = None
    if path is not None and (not folder.exists() or (folder / LOCK).exists()):
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            lock = acquire_lock(folder / LOCK)
    if lock is None:
        yield Parts(None, settings, schema, tasks)
        return
    parts = Parts(folder, settings, schema, tasks)
    try:
        yield parts
        parts.remove()
    finally:
        parts.close()
        if not any(folder.glob("part-*")):
            with suppress(OSError):  # on Windows, releasing it removes it
                (folder / LOCK).unlink()
        free_lock(lock)
        with suppress(OSError):  # parts, or files of others, are in it
            folder.rmdir()
