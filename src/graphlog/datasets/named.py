"""Open a named data set: its table, which columns are labels, and what to call them."""

import csv
import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from graphlog.data.labels import choose_tasks
from graphlog.data.tables import Row, Table, open_table
from graphlog.datasets.base import DatasetSpec
from graphlog.datasets.catalogue import MOLECULES
from graphlog.datasets.catalogue_networks import GRAPHS, PROTEIN_SETS
from graphlog.datasets.download import fetch
from graphlog.errors import DataError, unknown_name

DATASETS: dict[str, DatasetSpec] = {**MOLECULES, **PROTEIN_SETS, **GRAPHS}
"""Every data set by name."""


class NamedTable(NamedTuple):
    """An open data set."""

    table: Table
    """Its rows."""
    columns: tuple[str, ...]
    """Label columns."""
    tasks: tuple[str, ...]
    """What the labels are called; differs from ``columns`` where the public file's names do."""


def find_spec(name: str) -> DatasetSpec:
    """Return what is known about a data set.

    Raises:
        ConfigError: If there is none of that name; suggests the nearest.
    """
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    return DATASETS[name]


def resolve(name: str, data_dir: Path | str | None = None) -> Path:
    """Return the verified file of a data set, downloading it if need be; of labelled proteins, the store made of several files.

    Raises:
        ConfigError: If there is none of that name.
        DataError: If it can be found nowhere.
    """
    spec = find_spec(name)
    if spec.networks:
        from graphlog.domains.protein.stores import open_named_proteins

        return Path(str(open_named_proteins(name, data_dir).path))
    return fetch(spec, data_dir)


@contextmanager
def open_named(
    name: str, targets: str | Sequence[str] | None = None, data_dir: Path | str | None = None
) -> Generator[NamedTable]:
    """Open a data set with its known label columns, or those in ``targets``.

    Raises:
        ConfigError: If there is none of that name.
        DataError: If it can be found nowhere, or has no such label.
    """
    spec = find_spec(name)
    path = fetch(spec, data_dir)
    # public files name the column their own way; the mirror's is always `smiles`
    with open_table(path, None, spec.header) as table:
        if spec.label_file is not None:
            table = _joined(table, spec, path)
        called = {
            theirs: ours for theirs, ours in spec.public_tasks.items() if theirs in table.columns
        }
        theirs_of = {ours: theirs for theirs, ours in called.items()}
        wanted = _known_columns(spec, table) if targets is None or targets == "auto" else targets
        named = (
            wanted
            if wanted is None or isinstance(wanted, str)
            else [theirs_of.get(t, t) for t in wanted]
        )
        columns = choose_tasks(table, named, ())
        yield NamedTable(table, columns, tuple(called.get(c, c) for c in columns))


def _known_columns(spec: DatasetSpec, table: Table) -> Sequence[str] | None:
    if spec.task is None:
        return None
    return spec.tasks or tuple(c for c in table.columns if c != table.smiles_column)


def _joined(table: Table, spec: DatasetSpec, path: Path) -> Table:
    """Return the table with the labels of the file beside it as one more column, joined by name."""
    file = path.parents[len(Path(spec.path).parts) - 1] / str(spec.label_file)
    content = file.read_bytes() if file.is_file() else b""
    if hashlib.sha256(content).hexdigest() != spec.sha256_label_file:
        raise DataError(
            f"{file}: is not the labels of '{spec.name}' that this version knows; pip install -U rdkit"
        )
    label_of = {line[0]: line[1] for line in csv.reader(content.decode("ascii").splitlines())}
    columns = (*table.columns, spec.tasks[0])
    return Table(
        table.where,
        columns,
        columns.index(table.smiles_column),
        _with_label(table, spec.tasks[0], label_of),
    )


def _with_label(table: Table, task: str, label_of: Mapping[str, str]) -> Iterator[Row]:
    for row in table:
        yield row._replace(fields={**row.fields, task: label_of.get(row.fields["name"], "")})
