"""Domains whose graphs are one text each, read from tables, lists and data frames in parallel."""

import csv
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
"""From texts and ``schema`` to graphs and the texts that are none."""

ROWS_A_PIECE = 1024
"""Rows that travel to a worker together."""
_CHARACTERS_A_PIECE = 1_000_000
_PARALLEL_FROM = 20_000
"""Records in memory from which starting processes pays."""
_TEXT_KEPT = 1000


class TableDetails(FrozenConfig):
    """How a table of the catalogue is read."""

    sha256_smiles: tuple[str, ...] = ()
    """Hashes of its column of records (:func:`hash_smiles`).

    They are those of the mirror's file and of public files with other rows.
    """
    header: tuple[str, ...] | None = None
    """Names of the columns of a file without a header."""
    public_tasks: dict[str, str] = Field(default_factory=dict)
    """Label columns whose names differ in the public file, and their names here."""
    canonical_split: bool = False
    """Whether the pre-train-GNNs family takes scaffolds of its canonical SMILES."""
    label_file: str | None = None
    """File of ``name,label`` lines beside ``path``, where labels are kept apart."""
    sha256_label_file: str = ""
    """Hash of that file."""


def details_of(spec: DatasetSpec) -> TableDetails:
    """Return how a table of the catalogue is read."""
    return TableDetails.parse(spec.details, f"{spec.name}: details.")


@dataclass(frozen=True, kw_only=True, eq=False)
class TableReading(Reading):
    """How a table, a list of records or a data frame is read."""

    smiles_column: str | None = None
    """Name of the column of records; None finds it."""
    sheet: str | None = None
    """Sheet of an Excel file, which must be named where there are several."""
    decimal: str | None = None
    """Whether labels have a decimal point (``.``) or comma (``,``); None finds out."""
    keep_texts: bool = True
    """Whether the store keeps the texts."""
    choices = {**Reading.choices, "decimal": DECIMALS}  # noqa: RUF012 - constant


class RecordDomain(Domain):
    """Turns texts into graphs; a subclass says how, and which column of a table holds the texts."""

    column: RecordColumn = SMILES
    """How the column of records is found."""
    label_columns = True
    reads_memory = True
    reading = TableReading

    @abstractmethod
    def featurizer(self, reading: Reading) -> Featurizer:
        """Return what turns texts into graphs; it can be pickled for worker processes.

        Args:
            reading: How, as an object of the domain's :attr:`reading`.
        """

    def text_of(self, record: Any) -> str | None:
        """Return a record in memory as text, a missing one as empty text; None for no record."""
        return cell_text(record) if isinstance(record, str) or not cell_text(record) else None

    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return the graphs of a table, a data set, or records in memory; see :meth:`stream`."""
        ((store, _),) = self.stream(source, schema, reading)
        return store

    def stream(
        self,
        source: Input,
        schema: FeatureSchema | None,
        reading: Reading,
        at_once: int | None = None,
    ) -> Generator[tuple[GraphStore, list[Mapping[str, str]]]]:
        """Yield the graphs of consecutive rows of an input and the columns of each row.

        There is at least one such part, if of no row.

        Args:
            source: A table, a data set, or records in memory.
            schema: One of the domain's; None takes the first.
            reading: How.
            at_once: About how many rows a part has; None yields one part, without the columns.

        Raises:
            DataError: If the input cannot be read, a label is not a number, or more than half of
                a table's rows are bad.
            ConfigError: If the schema is another domain's, or targets are named of a list.
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
            piece, is_open = next(pieces, None), True
            while is_open:
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
                    is_open = piece is not None
                    if not is_open and not table.is_list:
                        collector.refuse_if_mostly_bad(
                            f", so this is probably the wrong column or file for {self.records}; "
                            f"choose one with {setting('smiles_column')}, or take the bad rows out"
                        )
                    builder.source = Source(
                        name=Path(table.where).name,
                        smiles_column=reading.smiles_column,
                        standardize=getattr(reading, "standardize", None),
                        classes=labels.classes,
                        notes=tuple(labels.notes()),
                    )
                    store = builder.finish()
                yield store, columns

    def rows(
        self, source: Input, store: GraphStore, reading: Reading
    ) -> Iterator[Mapping[str, str]]:
        """Yield the columns of a table; the row number and text of a list or store."""
        if source.store is not None:
            yield from super().rows(source, store, reading)
            return
        assert isinstance(reading, TableReading)
        with self.open(source, replace(reading, targets=None)) as table:
            yield from (row.fields for row in islice(table.rows, reading.limit))

    @contextmanager
    def open(self, source: Input, how: TableReading) -> Generator[Table]:
        """Open an input that is no store.

        Raises:
            ConfigError: If ``how`` has a sheet or targets of what has none.
        """
        wanted, targets, path = how.smiles_column, how.targets, source.path or Path()
        if how.sheet is not None and path.suffix.lower() != ".xlsx":
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
            header = ("row", self.text_name)
            yield Table(source.name, header, 1, self._listed(source.records), is_list=True)
        elif source.columns is not None:
            table = open_columns(source.columns, source.name, wanted, self.column, self.text_of)
            yield _with_labels(table, targets)
        elif source.spec is not None:
            file, details = self.fetch(source.spec, how.data_dir), details_of(source.spec)
            # public files name the column of records their own way; the mirror's is always `smiles`
            with open_table(file, None, details.header, rule=self.column) as table:
                yield _with_labels_of(source.spec, _joined(table, source.spec, file), targets)
        else:
            if path.is_dir():
                read_contents(path)  # says that it is no store
            with self.open_path(path, wanted, how.sheet) as table:
                yield _with_labels(table, targets)

    def _listed(self, records: Sequence[Any]) -> Iterator[Row]:
        for number, record in enumerate(records):
            text = self.text_of(record)
            if text is None:
                raise DataError(
                    f"row {number}: a {self.column.what} must be text, found {record!r} "
                    f"({type(record).__name__})."
                )
            yield Row(number, text, {"row": str(number), self.text_name: text})

    def open_path(
        self, path: Path, wanted: str | None, sheet: str | None = None
    ) -> AbstractContextManager[Table]:
        """Open a file or standard input; ``wanted`` names the column of records."""
        return open_table(path, wanted, rule=self.column, sheet=sheet)


def _with_labels(table: Table, targets: str | Sequence[str] | None) -> Table:
    columns, first = find_labels(table) if targets == "auto" else (choose_tasks(table, targets), [])
    return replace(table, rows=chain(first, table.rows), tasks={c: c for c in columns})


def _with_labels_of(spec: DatasetSpec, table: Table, targets: str | Sequence[str] | None) -> Table:
    """Return the table of a data set with its labels, which the file may call otherwise."""
    names, record = table.columns, table.record_column
    public = {k: v for k, v in details_of(spec).public_tasks.items() if k in names}
    in_file = {new: old for old, new in public.items()}
    if targets is None or targets == "auto":
        every = spec.tasks or [c for c in names if c != record]
        targets = () if spec.task is None else every
    listed = [targets] if isinstance(targets, str) else targets
    columns = choose_tasks(table, [in_file.get(t, t) for t in listed])
    return replace(table, where=spec.name, tasks={c: public.get(c, c) for c in columns})


def _joined(table: Table, spec: DatasetSpec, path: Path) -> Table:
    """Return the table with the labels of the file beside it, if any, joined by name."""
    details = details_of(spec)
    if details.label_file is None:
        return table
    file = path.parents[len(Path(spec.path).parts) - 1] / details.label_file
    content = file.read_bytes() if file.is_file() else b""
    if hashlib.sha256(content).hexdigest() != details.sha256_label_file:
        raise DataError(
            f"{file}: is not the expected file of labels of '{spec.name}'; pip install -U rdkit"
        )
    label_of = {line[0]: line[1] for line in csv.reader(content.decode("ascii").splitlines())}
    task = spec.tasks[0]
    rows = (
        row._replace(fields={**row.fields, task: label_of.get(row.fields["name"], "")})
        for row in table.rows
    )
    return replace(table, header=(*table.header, task), rows=rows)


_Piece = tuple[list[Row], Float[np.ndarray, "N T"]]
"""Rows of an input that are turned into graphs together, and their labels."""


def _pieces(rows: Iterable[Row], labels: LabelReader) -> Iterator[_Piece]:
    """Cut the rows so that neither many nor long ones make a large piece."""
    waiting: list[Row] = []
    size = 0
    for row in chain(rows, [None]):
        if row is not None:
            waiting.append(row)
            size += max(len(row.record), sum(map(len, row.fields.values())))
        if waiting and (row is None or len(waiting) >= ROWS_A_PIECE or size >= _CHARACTERS_A_PIECE):
            yield waiting, labels.read(waiting)
            waiting, size = [], 0


def _featurized(
    featurize: Featurizer, processes: int, keep_texts: bool, pieces: Iterator[_Piece]
) -> Iterator[tuple[GraphChunk, list[Reject], list[Row]]]:
    """Yield the graphs, the rejected rows and all rows of each piece."""
    texts = ((piece, [r.record for r in piece[0] if r.problem is None]) for piece in pieces)
    for (rows, labels), (chunk, refused) in spread_in_order(featurize, texts, processes):
        usable = [k for k, row in enumerate(rows) if row.problem is None]
        refusals = {k: Refused(k, row.problem) for k, row in enumerate(rows) if row.problem}
        refusals |= {usable[r.position]: r for r in starmap(Refused, refused)}
        rejects = [
            Reject(rows[k].row, rows[k].record[:_TEXT_KEPT], found.reason, found.kind)
            for k, found in sorted(refusals.items())
        ]
        kept = np.array(usable, dtype=np.int64)[chunk.rows]
        graphs = replace(
            chunk,
            rows=np.array([row.row for row in rows], dtype=np.int64)[kept],
            labels=labels[kept] if labels.shape[1] else None,
            texts=chunk.texts if keep_texts else None,
        )
        yield graphs, rejects, rows


def hash_smiles(smiles: Iterable[str]) -> str:
    r"""Return the sha256 of the SMILES, stripped and each followed by a line end.

    Example:
        >>> hash_smiles(["CCO"]) == hashlib.sha256(b"CCO\n").hexdigest()
        True
    """
    total = hashlib.sha256()
    for text in smiles:
        total.update(f"{text.strip()}\n".encode("utf-8", "surrogatepass"))
    return total.hexdigest()
