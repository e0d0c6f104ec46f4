"""Molecules in, graph store out: read as a stream, parsed in parallel, packed as they come."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt64

from graphlog.data.chunk import GraphChunk, Reject
from graphlog.data.labels import choose_tasks, read_labels
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore, StoreBuilder, open_store
from graphlog.data.tables import Row, open_table
from graphlog.data.workers import check_workers, map_in_order
from graphlog.datasets.base import named_spec
from graphlog.datasets.catalogue import MOLECULES
from graphlog.datasets.named import open_named
from graphlog.domains import SCHEMAS
from graphlog.domains.molecule import constitution_keys, featurize_smiles
from graphlog.errors import ConfigError, DataError, unknown_name

MoleculeSource = str | Path | Iterable[object]
Progress = Callable[[int, int], None]
"""Called as ``progress(rows done, rows rejected)`` after each piece of work."""

ROWS_A_PIECE = 1000
"""Rows that travel to a worker together."""
_CHARACTERS_A_PIECE = 1_000_000
_LOOKED_AT = 1000
_TEXT_KEPT = 1000
_WORST_SHARE = 0.5
EXCLUDED = "excluded: the molecule occurs in a list of those to leave out"
"""Reason given for a row that was left out on request."""


@dataclass(frozen=True, slots=True)
class _Input:
    """A stream of rows and what is known about it."""

    where: str
    rows: Iterator[Row]
    tasks: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    is_table: bool = True


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows that are featurised together, and their labels."""

    rows: list[Row]
    labels: Float32[np.ndarray, "N T"] | None


def read_molecules(
    source: MoleculeSource,
    *,
    schema: str | FeatureSchema = "molecule",
    smiles_column: str | None = None,
    targets: str | Sequence[str] | None = None,
    on_error: str = "skip",
    workers: int | None = None,
    store_path: Path | str | None = None,
    progress: Progress | None = None,
    keep_texts: bool = True,
    limit: int | None = None,
    data_dir: Path | str | None = None,
    exclude: Sequence[str | Path] = (),
) -> GraphStore:
    """Return the molecules of ``source`` as a graph store, with the rows that are none in its ``rejects``.

    Args:
        source: A molecule file, ``-`` for standard input, the name of a data set, a store folder, or SMILES.
        schema: ``molecule``, ``molecule-rich`` or ``molecule-cip``.
        smiles_column: Name of the column of SMILES; None finds it.
        targets: Columns of labels; ``auto`` takes every column of numbers; None takes those of a data set, else none.
        on_error: ``skip`` lists bad rows and goes on; ``fail`` stops at the first.
        workers: Processes; None takes every core, and none for inputs too small to gain by it.
        store_path: Folder to write the store to, for inputs larger than memory; None keeps it in memory.
        progress: Called after each piece of work.
        keep_texts: Whether the store keeps the SMILES.
        limit: Rows to read at most.
        data_dir: Where downloaded data sets are kept.
        exclude: Files, or names of data sets, whose molecules are left out, whatever their stereo and isotopes; such rows are among the
            ``rejects``, with the reason :data:`EXCLUDED`.

    Raises:
        DataError: If the source cannot be read, a label is not a number, or more than half of a file's rows are bad.
        ConfigError: If a name or an option is not valid.
    """
    features = _schema(schema)
    if on_error not in ("skip", "fail"):
        raise unknown_name("--on-error", on_error, ["skip", "fail"])
    if limit is not None and limit < 1:
        raise ConfigError(f"`limit` must be 1 or more, found {limit}.")
    processes = check_workers(workers)
    store = _as_store(source)
    if store is not None:
        if exclude:
            raise ConfigError(
                f"{source} is a store already; leave molecules out when it is made from its SMILES."
            )
        return store if store_path is None else store.save(store_path)
    unwanted = _keys_of(exclude, data_dir, processes)
    work = (
        partial(featurize_smiles, schema=features)
        if unwanted is None
        else partial(_featurize_wanted, features, unwanted)
    )
    with _open(source, smiles_column, targets, data_dir) as found:
        rows = found.rows if limit is None else islice(found.rows, limit)
        with StoreBuilder(
            features, store_path, found.tasks, {"name": Path(found.where).name}
        ) as builder:
            tally = _Tally(found, builder, on_error, keep_texts)
            for piece, result in map_in_order(work, _pieces(found, rows), processes):
                tally.add(piece, *result)
                if progress is not None:
                    progress(tally.done, tally.rejected)
            tally.refuse_if_mostly_bad()
            return builder.finish(tally.done)


def _keys_of(
    files: Sequence[str | Path], data_dir: Path | str | None, processes: int
) -> UInt64[np.ndarray, "K"] | None:
    """Return the keys of every molecule of ``files``, sorted; None where there are no files."""
    if not files:
        return None
    keys: list[np.ndarray] = []
    for file in files:
        with _open(file, None, None, data_dir) as found:
            pieces = ((None, smiles) for _, smiles in _pieces(found, found.rows))
            keys += [part for _, part in map_in_order(constitution_keys, pieces, processes)]
    known = np.unique(np.concatenate(keys))
    return known[known > 0]


def _featurize_wanted(
    schema: FeatureSchema, unwanted: UInt64[np.ndarray, "K"], texts: Sequence[str]
) -> tuple[GraphChunk, list[tuple[int, str]]]:
    """Do what :func:`featurize_smiles` does with the molecules whose keys are not ``unwanted``."""
    is_unwanted = np.isin(constitution_keys(texts), unwanted)
    wanted = np.flatnonzero(~is_unwanted)
    chunk, refused = featurize_smiles([texts[k] for k in wanted], schema)
    rejects = [(int(wanted[k]), reason) for k, reason in refused] + [
        (int(k), EXCLUDED) for k in np.flatnonzero(is_unwanted)
    ]
    return replace(chunk, rows=wanted[chunk.rows]), rejects


def _pieces(found: _Input, rows: Iterable[Row]) -> Iterator[tuple[_Piece, list[str]]]:
    """Cut the rows so that neither many nor long ones make one piece large; beside each, the SMILES that travel."""
    waiting: list[Row] = []
    size = 0
    for row in chain(rows, [None]):
        if row is not None:
            waiting.append(row)
            size += len(row.smiles)
        if waiting and (row is None or len(waiting) >= ROWS_A_PIECE or size >= _CHARACTERS_A_PIECE):
            labels = read_labels(waiting, found.columns, found.where) if found.tasks else None
            yield _Piece(waiting, labels), [r.smiles for r in waiting if r.problem is None]
            waiting, size = [], 0


class _Tally:
    """Takes in pieces in order: graphs and rejects to the builder, and counts."""

    def __init__(
        self, found: _Input, builder: StoreBuilder, on_error: str, keep_texts: bool
    ) -> None:
        self.done = self.rejected = 0
        self._found, self._builder, self._on_error, self._keep_texts = (
            found,
            builder,
            on_error,
            keep_texts,
        )
        self._first: list[Reject] = []

    def add(self, piece: _Piece, chunk: GraphChunk, refused: list[tuple[int, str]]) -> None:
        """Add what became of a piece."""
        usable = [k for k, row in enumerate(piece.rows) if row.problem is None]
        reasons = {usable[position]: reason for position, reason in refused}
        for k, row in enumerate(piece.rows):
            reason = row.problem or reasons.get(k)
            if reason == EXCLUDED:
                self._builder.reject(Reject(row.row, row.smiles[:_TEXT_KEPT], reason))
            elif reason is not None:
                self._reject(Reject(row.row, row.smiles[:_TEXT_KEPT], reason))
        kept = np.array(usable, dtype=np.int64)[chunk.rows]
        numbers = np.array([row.row for row in piece.rows], dtype=np.int64)
        labels = None if piece.labels is None else piece.labels[kept]
        self._builder.add(
            replace(
                chunk,
                rows=numbers[kept],
                labels=labels,
                texts=chunk.texts if self._keep_texts else None,
            )
        )
        self.done += len(piece.rows)

    def _reject(self, reject: Reject) -> None:
        if self._on_error == "fail":
            advice = "mend the row, or pass over such rows with --on-error skip"
            raise DataError(
                f"{self._found.where}, data row {reject.row}: {reject.text[:80]!a} {reject.reason}; {advice}."
            )
        self._builder.reject(reject)
        self.rejected += 1
        if len(self._first) < 3:
            self._first.append(reject)

    def refuse_if_mostly_bad(self) -> None:
        """Stop where a table's rows are mostly bad; a list of SMILES is taken at its word."""
        if self._found.is_table and self.rejected > _WORST_SHARE * self.done:
            examples = "; ".join(f"row {r.row}: {r.text[:40]!a} {r.reason}" for r in self._first)
            raise DataError(
                f"{self._found.where}: {self.rejected:,} of {self.done:,} rows are no molecules, so this is probably the wrong column "
                f"or file; choose one with --smiles-column. {examples}."
            )


def _schema(schema: str | FeatureSchema) -> FeatureSchema:
    known = {name: s for name, s in SCHEMAS.items() if s.domain == "molecule"}
    if isinstance(schema, str) and schema not in known:
        raise unknown_name("schema of molecules", schema, known)
    return known[schema] if isinstance(schema, str) else schema


def _as_store(source: Any) -> GraphStore | None:
    return (
        open_store(source)
        if isinstance(source, str | Path) and str(source) != "-" and Path(source).is_dir()
        else None
    )


@contextmanager
def _open(
    source: Any,
    smiles_column: str | None,
    targets: str | Sequence[str] | None,
    data_dir: Path | str | None,
) -> Generator[_Input]:
    if not isinstance(source, str | Path):
        if targets is not None:
            raise ConfigError("`targets` are columns of a file; a list of SMILES has none.")
        yield _Input("the list of SMILES", _rows_of(source), is_table=False)
        return
    if spec := named_spec(source, MOLECULES):
        with open_named(spec.name, targets, data_dir) as (table, columns, tasks):
            yield _Input(spec.name, iter(table), tasks, columns)
        return
    if str(source) != "-" and not Path(source).exists() and not Path(source).suffix:
        raise unknown_name("file or data set", str(source), MOLECULES)
    with open_table(source, smiles_column) as table:
        rows = iter(table)
        first = list(islice(rows, _LOOKED_AT)) if targets == "auto" else []
        columns = choose_tasks(table, targets, first)
        yield _Input(table.where, chain(first, rows), columns, columns)


def _rows_of(texts: Iterable[Any]) -> Iterator[Row]:
    for number, text in enumerate(texts):
        is_text = isinstance(text, str)
        yield Row(
            number,
            text if is_text else "",
            {},
            None if is_text else f"not text but {type(text).__name__}",
        )
