"""What became of the rows of an input: counted and judged, and kept in parts of a store.

A killed build goes on from the parts that it finished.
"""

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from graphlog.data.builder import StoreBuilder
from graphlog.data.chunk import EXCLUDED, GraphChunk, Reject
from graphlog.data.columns import Row
from graphlog.data.manifest import is_ours
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import open_store
from graphlog.errors import ConfigError, DataError, GraphLoGError, check_name
from graphlog.files import LOCK, acquire_lock, free_lock, remove_folder

_WORST_SHARE = 0.5
"""Share of bad rows beyond which the column or file is probably the wrong one."""
_EXAMPLES = 3


class RowCollector:
    """Adds graphs and rejected rows of an input to a builder, in order, and counts them.

    Args:
        builder: Takes the graphs.
        where: The input, for messages.
        on_error: ``skip`` lists rejected rows and goes on; ``fail`` stops at the first.
        progress: Called as ``progress(rows done, rows rejected)``.
        item: What a row is, for messages.
    """

    def __init__(
        self,
        builder: StoreBuilder,
        where: str,
        on_error: str = "skip",
        progress: Callable[[int, int], None] | None = None,
        item: str = "data row",
    ) -> None:
        self.done = self.rejected = 0
        self._builder, self._where, self._on_error, self._item = builder, where, on_error, item
        self._progress = progress
        self._first: list[Reject] = []

    def add(self, chunk: GraphChunk | None, rejects: Iterable[Reject], rows: int) -> None:
        """Add what became of the next ``rows`` rows."""
        for reject in rejects:
            self.reject(reject)
        if chunk is not None:
            self._builder.add(chunk)
        self.done += rows
        if self._progress is not None:
            self._progress(self.done, self.rejected)

    def reject(self, reject: Reject) -> None:
        """Record a row that cannot be used.

        Raises:
            DataError: If bad rows are not to be skipped.
        """
        if reject.reason == EXCLUDED:
            self._builder.reject(reject)
            return
        if self._on_error == "fail":
            text = f"{reject.text[:80]!a} " if reject.text else ""
            raise DataError(
                f"{self._where}, {self._item} {reject.row}: {text}{reject.reason}; fix it, or skip "
                "such rows with `on_error='skip'`."
            )
        self._builder.reject(reject)
        self.rejected += 1
        if len(self._first) < _EXAMPLES:
            self._first.append(reject)

    def refuse_if_mostly_bad(self, advice: str) -> None:
        """Refuse an input of which more than half cannot be used.

        Args:
            advice: What to do about it; ends the message's first sentence.

        Raises:
            DataError: If it is so; shows the first bad rows.
        """
        if self.rejected > _WORST_SHARE * self.done:
            item = self._item.removeprefix("data ")
            examples = "; ".join(
                f"{item} {r.row}: " + (f"{r.text[:40]!a} " if r.text else "") + r.reason
                for r in self._first
            )
            raise DataError(
                f"{self._where}: {self.rejected:,} of {self.done:,} {item}s cannot be "
                f"used{advice}. {examples}."
            )


def check_reading(on_error: str, limit: int | None) -> None:
    """Check the options that all readers share.

    Raises:
        ConfigError: If one is not valid.
    """
    check_name("`on_error`", on_error, ["skip", "fail"])
    if limit is not None and limit < 1:
        raise ConfigError(f"`limit` must be 1 or more, found {limit}.")


PIECES_A_PART = 100
"""Pieces of the input in a part."""
_PART = re.compile(r"part-\d{5,}(\.partial-\d+-[0-9a-f]{8})?")


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of an input that are turned into graphs together, and their labels."""

    rows: list[Row]
    labels: Float32[np.ndarray, "N T"] | None

    def content(self) -> bytes:
        """Return all that decides what becomes of these rows."""
        texts = repr([(row.row, row.record, row.problem) for row in self.rows])
        labels = b"" if self.labels is None else self.labels.tobytes()
        return texts.encode("utf-8", "surrogatepass") + labels


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
        self._number = self._pieces = 0
        self._content = hashlib.sha256()
        self._builder: StoreBuilder | None = None

    def through(
        self,
        pieces: Iterator[Piece],
        featurize: Callable[[Iterator[Piece]], Iterator[tuple[Piece, Featurized]]],
    ) -> Iterator[Featurized]:
        """Yield what becomes of each piece, in order; parts on disk are taken for their rows.

        Args:
            pieces: The rows of the input.
            featurize: Turns rows into graphs, in order.
        """
        if self._folder is not None:
            pieces = yield from self._known(self._folder, pieces)
        for piece, result in featurize(pieces):
            try:
                if self._folder is not None:
                    self._keep(self._part(self._folder), piece, result)
            except GraphLoGError:  # no room on the disk: the store itself may still be built
                self.remove()
                self._folder = None
            yield result

    def _part(self, folder: Path) -> StoreBuilder:
        """Return the part that is being built."""
        if self._builder is None:
            self._builder = StoreBuilder(self._schema, folder / self._name(), self._tasks)
            self._pieces, self._content = 0, hashlib.sha256()
        return self._builder

    def _keep(self, part: StoreBuilder, piece: Piece, result: Featurized) -> None:
        for reject in result.rejects:
            part.reject(reject)
        if result.chunk is not None:
            part.add(result.chunk)
        self._pieces += 1
        self._content.update(piece.content())
        if self._pieces >= PIECES_A_PART:
            part.source = {
                "settings": self._settings,
                "pieces": self._pieces,
                "content": self._content.hexdigest(),
            }
            part.finish()
            self._builder, self._number = None, self._number + 1

    def _known(
        self, folder: Path, pieces: Iterator[Piece]
    ) -> Generator[Featurized, None, Iterator[Piece]]:
        """Yield the graphs of the parts that hold the first pieces, and return the other pieces."""
        while (path := folder / self._name()).is_dir():
            try:
                store = open_store(path)
            except GraphLoGError:
                break
            source = store.source
            as_now = (self._settings, self._schema, self._tasks)
            if (source.get("settings"), store.schema, store.tasks) != as_now:
                break
            taken = list(islice(pieces, source["pieces"]))
            content = hashlib.sha256()
            for piece in taken:
                content.update(piece.content())
            if content.hexdigest() != source["content"]:
                pieces = chain(taken, pieces)
                break
            yield Featurized(None, store.rejects, 0)
            yield from (Featurized(chunk, (), 0) for chunk in store.chunks())
            yield Featurized(None, (), sum(len(piece.rows) for piece in taken))
            self._number += 1
        return pieces

    def _name(self) -> str:
        return f"part-{self._number:05d}"

    def close(self) -> None:
        """Give up the part that is not finished."""
        if self._builder is not None:
            self._builder.abort()
            self._builder = None

    def remove(self) -> None:
        """Remove all parts."""
        self.close()
        for entry in () if self._folder is None else self._folder.iterdir():
            if _PART.fullmatch(entry.name) and is_ours(entry, unfinished=True):
                remove_folder(entry)


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
