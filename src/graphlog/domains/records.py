"""Domains in which each graph has one text, read from tables, lists and data frames in parallel."""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, starmap
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import Field

from graphlog.config import FrozenConfig
from graphlog.data.graphs import FeatureSchema, GraphChunk, Refused, Reject
from graphlog.data.manifest import Source, read_contents
from graphlog.data.store import GraphStore, RowCollector, StoreBuilder
from graphlog.data.tables import (
    DECIMALS,
    ENDINGS,
    SMILES,
    LabelReader,
    RecordColumn,
    Row,
    Table,
    cell_text,
    choose_tasks,
    find_labels,
    open_columns,
    open_table,
)
from graphlog.data.workers import check_workers, spread_in_order
from graphlog.datasets import DatasetSpec
from graphlog.domains.base import Domain, Input, Reading
from graphlog.errors import ConfigError, DataError, setting

Featurizer = Callable[..., tuple[GraphChunk, Sequence[tuple[int, str] | Refused]]]
"""Function from texts and ``schema`` to a chunk of graphs and the texts that are rejected."""

ROWS_A_PIECE = 1024
"""Largest number of rows that a worker process receives in one piece."""
_MAX_CHARACTERS = 1_000_000
"""Number of characters from which a piece receives no further row."""
_PARALLEL_FROM = 20_000
"""Smallest number of records in memory for which worker processes are started by default."""
_MAX_REJECTED_TEXT = 1000
"""Number of characters that are kept of a rejected text."""


class TableDetails(FrozenConfig):
    """Properties of a table of the catalog that are needed to read it."""

    sha256_smiles: tuple[str, ...] = ()
    """Accepted hashes of the column of records (:func:`hash_smiles`).

    They are the hashes of the mirror's file and of public files with other rows.
    """
    header: tuple[str, ...] | None = None
    """Names of the columns of a file without a header."""
    public_tasks: dict[str, str] = Field(default_factory=dict)
    """Names of label columns in the public file that differ from ours, and our names for them."""
    canonical_split: bool = False
    """Whether the pre-train-GNNs family computes its scaffolds from canonical SMILES."""


def details_of(spec: DatasetSpec) -> TableDetails:
    """Return the properties of a table of the catalog that are needed to read it."""
    return TableDetails.parse(spec.details, f"{spec.name}: details.")


@dataclass(frozen=True, kw_only=True, eq=False)
class TableReading(Reading):
    """Options of reading a table, a list of records or a data frame."""

    smiles_column: str | None = None
    """Name of the column of records; None finds it by usual names."""
    sheet: str | None = None
    """Sheet of an Excel file; must be given if the file has several."""
    decimal: str | None = None
    """Decimal separator of labels, ``.`` or ``,``; None infers it from the labels."""
    keep_texts: bool = True
    """Whether the store keeps the texts."""
    choices = {**Reading.choices, "decimal": DECIMALS}  # noqa: RUF012 - constant


class RecordDomain(Domain):
    """Domain of graphs that are made from texts.

    A subclass implements :meth:`featurizer`; :attr:`column` defines which column holds the texts.
    """

    column: RecordColumn = SMILES
    """Rule that finds the column of records in a table."""
    label_columns = True
    reads_memory = True
    reading = TableReading

    @abstractmethod
    def featurizer(self, reading: Reading) -> Featurizer:
        """Return a function from texts to graphs, which worker processes can unpickle.

        Args:
            reading: Options, an instance of the class :attr:`reading`.
        """

    def text_of(self, record: Any) -> str | None:
        """Return a record in memory as text; empty if it is missing, None if it is not a text."""
        return cell_text(record) if isinstance(record, str) or not cell_text(record) else None

    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return the graphs of a table, data set or records in memory; see :meth:`stream`."""
        ((store, _),) = self.stream(source, schema, reading)
        return store

    def stream(
        self,
        source: Input,
        schema: FeatureSchema | None,
        reading: Reading,
        at_once: int | None = None,
    ) -> Generator[tuple[GraphStore, list[Mapping[str, str]]]]:
        """Yield the graphs of consecutive parts of an input and the columns of their rows.

        At least one part is yielded, even if the input has no rows.

        Args:
            source: A table, a data set, or records in memory.
            schema: One of the schemas of the domain; None uses the first.
            reading: Options, an instance of the class :attr:`reading`.
            at_once: Approximate number of rows of a part; None yields one part without columns.

        Raises:
            DataError: If the input cannot be read, a label is not a number, or more than half of
                the rows of a table cannot be used.
            ConfigError: If the schema belongs to another domain, or ``targets`` are given for a
                list.
        """
        schema = schema or next(iter(self.schemas.values()))
        if schema not in self.schemas.values():
            raise ConfigError(
                f"{self.records} become graphs of schema {' or '.join(map(repr, self.schemas))}, "
                f"not '{schema.name}'."
            )
        assert isinstance(reading, TableReading)
        is_small = source.records is not None and len(source.records) < _PARALLEL_FROM
        processes = 1 if reading.workers is None and is_small else check_workers(reading.workers)
        with self.open(source, reading) as table:
            rows = islice(table.rows, reading.limit)
            collector = RowCollector(None, table.where, reading.on_error, reading.progress)
            labels = LabelReader(table.tasks, table.where, reading.decimal)
            featurize = partial(self.featurizer(reading), schema=schema)
            pieces = _featurized(featurize, processes, reading.keep_texts, _pieces(rows, labels))
            piece, is_last = next(pieces, None), False
            while not is_last:
                columns: list[Mapping[str, str]] = []
                tasks = tuple(table.tasks.values())
                with StoreBuilder(
                    schema, reading.store_path, tasks, overwrite=reading.overwrite
                ) as builder:
                    collector.into(builder)
                    while piece is not None and (at_once is None or len(columns) < at_once):
                        graphs, rejects, taken = piece
                        collector.add(graphs, rejects, len(taken))
                        columns += [] if at_once is None else [row.fields for row in taken]
                        piece = next(pieces, None)
                    is_last = piece is None
                    if is_last and not table.is_list:
                        collector.refuse_if_mostly_bad(
                            f", so this is probably the wrong column or file for {self.records}; "
                            f"choose one with {setting('smiles_column')}, or take the bad rows out"
                        )
                    found = None if table.is_list or source.spec else table.record_column
                    # the usual name, which SDF files have too, is found without being recorded
                    column = reading.smiles_column or (None if found == self.text_name else found)
                    builder.source = Source(
                        name=Path(table.where).name,
                        smiles_column=column,
                        standardize=getattr(reading, "standardize", None),
                        classes=labels.classes,
                        notes=tuple(labels.notes()),
                    )
                    store = builder.finish()
                yield store, columns

    def rows(
        self, source: Input, store: GraphStore, reading: Reading
    ) -> Iterator[Mapping[str, str]]:
        """Yield the columns of each row of a table; the row number and text for a list or store."""
        if source.store is not None:
            yield from super().rows(source, store, reading)
            return
        assert isinstance(reading, TableReading)
        with self.open(source, replace(reading, targets=None)) as table:
            yield from (row.fields for row in islice(table.rows, reading.limit))

    @contextmanager
    def open(self, source: Input, reading: TableReading) -> Generator[Table]:
        """Open an input that is not a store.

        Raises:
            ConfigError: If ``reading`` names a sheet of a file that is not an Excel file, targets
                of a list, or a column of records where there is no choice.
        """
        wanted, targets, path = reading.smiles_column, reading.targets, source.path or Path()
        if reading.sheet is not None and ENDINGS.get(path.suffix.lower()) != "xlsx":
            raise ConfigError(
                f"{source.name} is not an Excel file; drop {setting('sheet')}.", option="sheet"
            )
        if source.records is not None:
            if targets is not None:
                raise ConfigError(
                    f"{setting('targets')} are columns of a table; a list of {self.records} has "
                    "none.",
                    option="targets",
                )
            if wanted is not None:
                raise self.no_choice(source.name)
            header = ("row", self.text_name)
            yield Table(source.name, header, 1, self._listed(source.records), is_list=True)
        elif source.columns is not None:
            table = open_columns(source.columns, source.name, wanted, self.column, self.text_of)
            yield _with_labels(table, targets)
        elif source.spec is not None:
            file, details = self.fetch(source.spec, reading.data_dir), details_of(source.spec)
            # found by usual names, since those of public files and of the mirror may differ
            with open_table(file, None, details.header, rule=self.column) as table:
                if wanted not in (None, table.record_column):
                    raise self.no_choice(source.name)
                yield _with_labels_of_data_set(table, source.spec, targets)
        else:
            if path.is_dir():
                read_contents(path)  # raises the error for a folder that is not a store
            with self.open_path(path, wanted, reading.sheet) as table:
                yield _with_labels(table, targets)

    def no_choice(self, where: str) -> ConfigError:
        """Return the error for a named column of records in an input that offers no choice."""
        return ConfigError(
            f"{where}: the column of {self.records} cannot be chosen; drop "
            f"{setting('smiles_column')}.",
            option="smiles_column",
        )

    def _listed(self, records: Sequence[Any]) -> Iterator[Row]:
        for number, record in enumerate(records):
            text = self.text_of(record)
            if text is None:
                raise DataError(
                    f"row {number}: a {self.column.what} must be text, found {record!r} "
                    f"({type(record).__name__})."
                )
            yield Row(number, text.strip(), {"row": str(number), self.text_name: text})

    def open_path(
        self, path: Path, wanted: str | None, sheet: str | None = None
    ) -> AbstractContextManager[Table]:
        """Open a file or standard input; ``wanted`` is the name of the column of records."""
        return open_table(path, wanted, rule=self.column, sheet=sheet)


def _with_labels(table: Table, targets: str | Sequence[str] | None) -> Table:
    columns, first = find_labels(table) if targets == "auto" else (choose_tasks(table, targets), [])
    return replace(table, rows=chain(first, table.rows), tasks={c: c for c in columns})


def _with_labels_of_data_set(
    table: Table, spec: DatasetSpec, targets: str | Sequence[str] | None
) -> Table:
    """Return the table with its tasks, under our names where the public file has others."""
    our_name = {k: v for k, v in details_of(spec).public_tasks.items() if k in table.columns}
    name_in_file = {ours: public for public, ours in our_name.items()}
    if targets is None or targets == "auto":
        all_tasks = spec.tasks or [c for c in table.columns if c != table.record_column]
        targets = () if spec.task is None else all_tasks
    tasks = [targets] if isinstance(targets, str) else targets
    columns = choose_tasks(table, [name_in_file.get(task, task) for task in tasks])
    return replace(table, where=spec.name, tasks={c: our_name.get(c, c) for c in columns})


_Piece = tuple[list[Row], Float[np.ndarray, "N T"]]
"""Consecutive rows of an input, which one worker turns into graphs, and their labels."""


def _pieces(rows: Iterable[Row], labels: LabelReader) -> Iterator[_Piece]:
    """Yield the rows in pieces of limited numbers of rows and characters."""
    piece: list[Row] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += max(len(row.record), sum(map(len, row.fields.values())))
        if len(piece) >= ROWS_A_PIECE or size >= _MAX_CHARACTERS:
            yield piece, labels.read(piece)
            piece, size = [], 0
    if piece:
        yield piece, labels.read(piece)


def _featurized(
    featurize: Featurizer, processes: int, keep_texts: bool, pieces: Iterator[_Piece]
) -> Iterator[tuple[GraphChunk, list[Reject], list[Row]]]:
    """Yield the graphs, the rejected rows and all rows of each piece."""
    texts = ((piece, [r.record for r in piece[0] if r.problem is None]) for piece in pieces)
    for (rows, labels), (chunk, refused) in spread_in_order(featurize, texts, processes):
        readable = [k for k, row in enumerate(rows) if row.problem is None]
        refused_at = {k: Refused(k, row.problem) for k, row in enumerate(rows) if row.problem}
        refused_at |= {readable[r.position]: r for r in starmap(Refused, refused)}
        rejects = [
            Reject(rows[k].row, rows[k].record[:_MAX_REJECTED_TEXT], refusal.reason, refusal.kind)
            for k, refusal in sorted(refused_at.items())
        ]
        kept = np.array(readable, dtype=np.int64)[chunk.rows]
        graphs = replace(
            chunk,
            rows=np.array([row.row for row in rows], dtype=np.int64)[kept],
            labels=labels[kept] if labels.shape[1] else None,
            texts=chunk.texts if keep_texts else None,
        )
        yield graphs, rejects, rows


def hash_smiles(smiles: Iterable[str]) -> str:
    r"""Return the sha256 of the stripped SMILES, each followed by a line break.

    Example:
        >>> hash_smiles(["CCO"]) == hashlib.sha256(b"CCO\n").hexdigest()
        True
    """
    digest = hashlib.sha256()
    for text in smiles:
        digest.update(f"{text.strip()}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
