"""The one door: what a user names or holds becomes a typed input, and an input becomes a store."""

import json
import os
import sys
import tempfile
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from graphlog.config import read_json
from graphlog.data.graphs import FeatureSchema, Reject
from graphlog.data.manifest import is_store
from graphlog.data.store import GraphStore, bad_row, open_store
from graphlog.datasets import DATASETS, find_spec
from graphlog.domains import DOMAINS, Domain, Input, Reading, schema_named
from graphlog.domains.records import RecordDomain, TableReading
from graphlog.errors import ConfigError, DataError, check_name, setting, unknown_name
from graphlog.files import beside, open_text, storable, writing


@runtime_checkable
class ColumnTable(Protocol):
    """A table of named columns that is no iterable, such as pyarrow's."""

    column_names: list[str]

    def column(self, i: int) -> Any:
        """Return a column."""


InputLike = (
    str
    | os.PathLike[str]
    | GraphStore
    | Input
    | Mapping[str, Sequence[Any]]
    | Iterable[Any]
    | ColumnTable
)
"""What can be read, from a path to objects in memory.

A path, ``"-"``, the name of a data set, a store or its folder; a list, array or column of SMILES or
of RDKit molecules; a data frame (pandas, polars, pyarrow) or a dictionary of columns; graphs of
torch_geometric.
"""

_FOR_STORES = ("on_error", "workers", "progress", "data_dir", "limit", "store_path", "overwrite")
"""Options that mean something, or do no harm, where the graphs need no reading."""
_DEFAULT_DOMAIN = "molecule"
_ADVICE = "free space there, or name another folder in the variable TMPDIR"
"""What to do where temporary files cannot be written."""
_NOTE = "input.json"
"""File in a run folder that names its input."""
_NOTED: dict[str, type] = {
    **{"limit": int, "targets": list},
    **dict.fromkeys(("smiles_column", "standardize", "sheet", "decimal"), str),
}
"""Options that it keeps."""


def resolve(source: InputLike, schema: FeatureSchema | None = None) -> Input:
    """Return a typed description of what a user gave; nothing is read but names and first lines.

    Args:
        source: See :data:`InputLike`.
        schema: Schema that graphs of torch_geometric are given; None infers one.

    Raises:
        ConfigError: If it names neither a file nor a data set.
        DataError: If it is of no known kind.
    """
    if isinstance(source, Input):
        return source
    if isinstance(source, GraphStore):
        return Input(
            name=f"store of {len(source)} graphs", domain=source.schema.domain, store=source
        )
    if isinstance(source, str | os.PathLike):
        return _named(source)
    if isinstance(source, Iterator):  # is looked at more than once
        source = list(source)
    if (graphs := _torch_graphs(source)) is not None:
        from graphlog.pyg import from_pyg

        found = resolve(from_pyg(graphs, schema, on_error="skip"))
        return replace(found, name="torch_geometric graphs", is_converted=True)
    if (columns := _columns(source)) is not None:
        rows = len(next(iter(columns.values()), ()))
        return Input(name=f"data frame of {rows} rows", columns=columns)
    records = records_of(source)
    name = f"list of {len(records):,} record{'s'[: len(records) != 1]}"
    return Input(name=name, records=records)


def read(
    source: InputLike,
    schema: FeatureSchema | None = None,
    *,
    domain: str | None = None,
    domain_is_open: bool = False,
    **options: Any,
) -> GraphStore:
    """Return the graphs of whatever a user gave.

    Args:
        source: See :data:`InputLike`.
        schema: Schema of the graphs, such as a model's; None takes a store's own or the domain's.
        domain: Who reads it, where the input does not tell.
        domain_is_open: Whether the user may still choose the domain; errors then advise it.
        options: Of the domain's ``read``; those that are None are left out.

    Raises:
        ConfigError: If a store has another schema, the input is of another domain than the schema,
            or an option does not go with it.
        DataError: If the input cannot be read.
    """
    resolved = resolve(source, schema)
    chosen = {key: value for key, value in options.items() if value is not None}
    if resolved.store is not None:
        if resolved.is_converted:
            chosen.pop("like", None)  # it has decided their schema
        return _fitting(resolved.store, resolved.name, schema, chosen)
    reader = reader_of(resolved, schema, domain)
    return reader.read(resolved, schema, _reading_of(reader, resolved, chosen, domain_is_open))


def _reading_of(
    reader: Domain, source: Input, options: Mapping[str, Any], domain_is_open: bool = False
) -> Reading:
    """Return how a domain is to read an input; refuses options that it does not have."""
    for option, value in options.items():
        if value is None or option in reader.reading.names():
            continue
        owner = next((d for d in DOMAINS.values() if option in d.reading.names()), None)
        if owner is None:
            known = set[str]().union(*(d.reading.names() for d in DOMAINS.values()))
            raise unknown_name("option", option, known)
        raise ConfigError(
            f"{setting(option)} is for {owner.records}, and {source.name} holds {reader.records}; "
            + (
                f"drop it, or add {setting('domain', owner.name)}."
                if domain_is_open
                else "drop it."
            ),
            option=option,
        )
    return reader.reading.of(options)


def domain_name(source: Input, schema: str | None = None) -> str:
    """Return the name of an input's domain; where it could be any, that of schema ``schema``."""
    if source.store is not None:
        return source.store.schema.domain
    if source.domain is None and schema is not None:
        return schema_named(schema).domain
    return source.domain or _DEFAULT_DOMAIN


def schema_for(source: Input, name: str) -> FeatureSchema | None:
    """Return schema ``name`` if the input can be read in it; None for the input's own."""
    # what has a schema of its own may call it by a name that is none of the fixed ones
    if source.store is not None or not DOMAINS[source.domain or _DEFAULT_DOMAIN].schemas:
        return None
    schema = schema_named(name)
    return schema if source.domain in (None, schema.domain) else None


def reader_of(source: Input, schema: FeatureSchema | None, domain: str | None = None) -> Domain:
    """Return the domain that reads an input in ``schema``.

    Raises:
        ConfigError: If input and schema are of different domains.
    """
    own = domain or source.domain
    name = own or (schema.domain if schema is not None else _DEFAULT_DOMAIN)
    check_name("domain", name, DOMAINS)
    reader = DOMAINS[name]
    wanted = reader if schema is None else DOMAINS[schema.domain]
    if wanted is not reader:
        raise ConfigError(
            f"{source.name} holds {reader.records}, but the model reads {wanted.records} (schema "
            f"'{schema.name if schema else ''}'); give it a model of {reader.records}."
        )
    if (source.records is not None or source.columns is not None) and not reader.reads_memory:
        found = "a table in memory"
        if source.records is not None:
            kinds = [type(record).__name__ for record in source.records[:1]]
            found = f"a list of {kinds[0]}" if kinds else "an empty list"
        whose = "" if schema is None else f" for a model of schema '{schema.name}'"
        raise ConfigError(
            f"{reader.records}{whose} are read from a file, a store or a list of torch_geometric "
            f"Data, found {found}; write JSON lines, or make Data of it (networkx: "
            "torch_geometric.utils.from_networkx with group_node_attrs and group_edge_attrs)."
        )
    return reader


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Consecutive rows of an input, and the graphs that they are."""

    store: GraphStore
    """The graphs."""
    rows: Int[np.ndarray, "M"]
    """Row of each graph; the first row of the part is 0."""
    status: Sequence[str]
    """``ok``, or why there is no graph, for every row."""
    rejects: Sequence[Reject]
    """The rows without a graph, by their number in the input."""
    fields: Sequence[Mapping[str, str]]
    """The columns of every row."""

    def aligned(self, values: np.ndarray) -> np.ndarray:
        """Return a row for every row, NaN where there is no graph, of values of the graphs."""
        rows = np.full((len(self.status), *values.shape[1:]), np.nan, dtype=values.dtype)
        rows[self.rows] = values
        return rows

    def texts(self) -> list[str]:
        """Return the text of every row that has a graph; empty for others."""
        texts = [""] * len(self.status)
        known = self.store.texts() if len(self.store) else []
        for row, text in zip(self.rows.tolist(), known, strict=True):
            texts[row] = text
        return texts


@contextmanager
def stream(
    source: Input, schema: FeatureSchema, at_once: int, **options: Any
) -> Generator[Iterator[Part]]:
    """Give an input in parts of about ``at_once`` rows, so that memory does not grow with it."""
    reader = reader_of(source, schema)
    if source.store is None and isinstance(reader, RecordDomain):
        reading = _reading_of(reader, source, options)
        with closing(reader.stream(source, schema, reading, at_once)) as parts:
            yield _parts_read(parts)
        return
    with read_streamed(source, schema, **options) as store:
        yield _parts_of(store, at_once, reader.rows(source, store, reader.reading.of(options)))


def rows_of(source: Input, limit: int | None = None) -> int:
    """Return how many rows an input has; 0 where only reading it tells."""
    rows = 0
    if source.store is not None:
        rows = source.store.num_output_rows
    elif source.records is not None:
        rows = len(source.records)
    elif source.columns is not None:
        rows = len(next(iter(source.columns.values()), ()))
    elif source.spec is not None:
        rows = source.spec.rows
    return rows if limit is None else min(rows, limit)


def _parts_read(parts: Iterable[tuple[GraphStore, Sequence[Mapping[str, str]]]]) -> Iterator[Part]:
    start = 0
    for store, fields in parts:
        rejects = [replace(r, row=r.row + start) for r in store.output_rejects]
        yield Part(store, store.output_rows, store.output_status(), rejects, fields)
        start += len(fields)


def _parts_of(
    store: GraphStore, at_once: int, fields: Iterator[Mapping[str, str]]
) -> Iterator[Part]:
    rows, status = store.output_rows, store.output_status()
    rejects = {reject.row: reject for reject in store.output_rejects}
    order = np.argsort(rows, kind="stable")
    for start in range(0, max(len(status), 1), at_once):
        stop = min(start + at_once, len(status))
        graphs = order[slice(*np.searchsorted(rows, [start, stop], sorter=order))]
        bad = [rejects[row] for row in range(start, stop) if row in rejects]
        own = list(islice(fields, stop - start))
        yield Part(store.subset(graphs), rows[graphs] - start, status[start:stop], bad, own)


@contextmanager
def read_streamed(
    source: InputLike, schema: FeatureSchema | None, **options: Any
) -> Generator[GraphStore]:
    """Give the graphs of an input: those of a file or data set by a temporary store, not memory."""
    resolved = resolve(source, schema)
    is_named = resolved.spec is not None
    is_kept = is_named and DOMAINS[domain_name(resolved)].keeps_stores
    if is_kept or (resolved.path is None and not is_named):
        yield read(resolved, schema, **options)
        return
    with temporary_folder() as folder:
        yield read(resolved, schema, store_path=folder / "store", **options)


@contextmanager
def rereadable(source: Input) -> Generator[Input]:
    """Give an input that can be read twice; standard input or a pipe goes to a temporary file."""
    if not source.is_stream:
        yield source
        return
    with temporary_folder() as folder:
        # what kind of table it is shows in its first line
        path = folder / "input.txt"
        with (
            writing(path, _ADVICE),
            path.open("w", encoding="utf-8", newline="") as copy,
            open_text(source.path or "-") as lines,
        ):
            copy.writelines(lines)
        try:
            yield Input(name=source.name, domain=source.domain, path=path)
        except DataError as e:  # the copy is gone when a user reads this
            raise DataError(str(e).replace(str(path), source.name)) from e.__cause__


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Give a folder that is removed afterwards.

    Raises:
        GraphLoGError: If there is no place for one.
    """
    with writing(Path(tempfile.tempdir or "temporary files"), _ADVICE):
        folder = tempfile.TemporaryDirectory(prefix="graphlog-", ignore_cleanup_errors=True)
    with folder as path:
        yield Path(path)


def has_column(
    source: Input, schema: FeatureSchema, name: Hashable, sheet: str | None = None
) -> bool:
    """Return whether a table (of an Excel file, a sheet) has a column of records called so."""
    domain = DOMAINS[schema.domain]
    if not isinstance(domain, RecordDomain) or (source.columns is None and source.file is None):
        return False
    reading = TableReading.of({"smiles_column": name, "sheet": sheet})
    with suppress(DataError), domain.open(source, reading):
        return True
    return False


def remember_input(run: Path, source: Input, **options: Any) -> None:
    """Note in a run folder what it was trained on, so that its figures need no input.

    Inputs in memory and streams are not noted, and of the options those that decide what was read.
    Errors of the disk are ignored: a run must not fail because of this note.
    """
    path = source.path if source.store is None else source.store.path
    where = None if path is None or source.is_stream else str(path.resolve())
    where = source.spec.name if source.spec is not None else where
    if where is None:
        return
    note = {name: options.get(name) for name in _NOTED}
    if source.store is not None or isinstance(note["targets"], str):
        note["targets"] = None  # a store has its labels, and a reader may be asked for all

    def plain(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else list(value)

    with suppress(OSError), beside(run / _NOTE) as unfinished:
        text = json.dumps({"source": where, **note}, indent=1, default=plain)
        unfinished.write_text(text, encoding="utf-8")


def recall_input(run: Path) -> tuple[str, dict[str, Any]] | None:
    """Return what a run was trained on and how it was read; None if unknown or no longer there."""
    try:
        note = read_json(run / _NOTE)
    except (DataError, OSError):
        return None
    source = note.get("source") if isinstance(note, dict) else None
    if not isinstance(source, str) or not (source in DATASETS or Path(source).exists()):
        return None
    return source, {k: note[k] for k, kind in _NOTED.items() if isinstance(note.get(k), kind)}


def _named(source: str | os.PathLike[str]) -> Input:
    path, name = Path(source), storable(str(source))
    if name == "-":
        return Input(name="standard input", path=path)
    is_there = os.path.exists(path)  # also for a name that is too long, such as a SMILES
    if isinstance(source, str) and source in DATASETS and not is_there:
        spec = DATASETS[source]
        return Input(name=source, domain=spec.domain, spec=spec)
    if not is_there:
        if path.suffix or len(path.parts) > 1:
            raise DataError(f"no such file: {path}; check the path.", file=path)
        raise ConfigError(
            f"'{name}' is neither a file nor a data set. Give molecules themselves as a list: "
            f"['{name}']. {unknown_name('file or data set', name, DATASETS)}"
        )
    if is_store(path):
        store = open_store(path)
        return Input(name=name, domain=store.schema.domain, store=store)
    if path.is_fifo():  # looking into it would consume it
        return Input(name=name, path=path)
    owner = next((d.name for d in DOMAINS.values() if d.recognizes(path)), None)
    return Input(name=name, domain=owner, path=path)


def _fitting(
    store: GraphStore, name: str, schema: FeatureSchema | None, options: dict[str, Any]
) -> GraphStore:
    """Return a store that is used as it is, or its first rows, saved where that is asked for."""
    for option, value in options.items():
        is_its_own = option == "standardize" and value == store.source.standardize
        if option not in _FOR_STORES and not is_its_own:
            raise ConfigError(
                f"{name} is a store already; to use {setting(option)}, build it again from its "
                "input (of graphs of torch_geometric: by `graphlog.from_pyg`).",
                option=option,
            )
    if schema is not None:
        check_schema(store.schema, schema)
    reading = Reading.of({name: v for name, v in options.items() if name in _FOR_STORES})
    if reading.limit is not None:
        store = store.first_rows(reading.limit)
    rejects = store.output_rejects if reading.on_error == "fail" else []
    if rejects:
        raise bad_row(f"{name}, row {rejects[0].row}", rejects[0].reason, rejects[0].row)
    if reading.store_path is None:
        return store
    return store.save(reading.store_path, reading.overwrite)


def check_schema(own: FeatureSchema, schema: FeatureSchema) -> None:
    """Check that graphs of a store, whose schema is ``own``, fit a model, which reads ``schema``.

    Raises:
        ConfigError: If they do not.
    """
    if own == schema and not schema.contradicts(own):
        return
    if own.domain != schema.domain:
        raise ConfigError(
            f"the store holds {DOMAINS[own.domain].records}, but the model reads "
            f"{DOMAINS[schema.domain].records}; choose another model."
        )
    kinds = {True: "directed graphs", False: "undirected graphs", None: "graphs"}
    raise ConfigError(
        f"the store holds {kinds[own.directed]} of schema '{own.name}', but the model reads "
        f"{kinds[schema.directed]} of schema '{schema.name}' ({schema.difference(own)}); build "
        f"it again from its input with {setting('like', 'MODEL')}.",
        option="like",
    )


def _torch_graphs(source: Any) -> Any:
    """Return graphs of torch_geometric, or None; without importing it."""
    if sys.modules.get("torch_geometric") is None:
        return None
    from torch_geometric.data import Data, Dataset
    from torch_geometric.loader import DataLoader

    if isinstance(source, Data | Dataset | DataLoader):
        return source
    is_listed = isinstance(source, list | tuple | np.ndarray) or hasattr(source, "to_list")
    graphs: list[Any] = list(source) if is_listed else []
    first = next((graph for graph in graphs if graph is not None), None)
    return graphs if isinstance(first, Data) else None


def _columns(source: Any) -> dict[str, Sequence[Any]] | None:
    """Return the columns of a data frame or dictionary; None for anything else."""
    if isinstance(source, Mapping):
        return {str(name): records_of(values) for name, values in source.items()}
    kind = f"{type(source).__module__.partition('.')[0]}.{type(source).__name__}"
    match kind:
        case "pandas.DataFrame":
            named = ((str(c), source.iloc[:, k].tolist()) for k, c in enumerate(source.columns))
        case "polars.DataFrame":
            named = ((c, source.get_column(c).to_list()) for c in source.columns)
        case "pyarrow.Table":
            named = ((c, source.column(k).to_pylist()) for k, c in enumerate(source.column_names))
        case _:
            return None
    columns: dict[str, Sequence[Any]] = {}
    for name, values in named:
        if name in columns:
            raise DataError(f"data frame: two columns are named '{name}'; rename one.")
        columns[name] = values
    return columns


def records_of(source: Any) -> list[Any]:
    """Return a list, array or column (also of shape (n, 1)) as a list.

    Raises:
        DataError: If it has more than one column, or is no collection at all.

    Example:
        >>> records_of(np.array([["CCO"], [None]], dtype=object))
        ['CCO', None]
    """
    if hasattr(source, "to_pylist"):  # pyarrow
        return source.to_pylist()
    if isinstance(source, str | bytes):
        raise DataError(f"cannot read one text as a column, {source[:40]!r}; give a list of texts.")
    if isinstance(source, np.ma.MaskedArray):
        source = np.array(source.tolist(), dtype=object)  # masked cells are None
    if isinstance(source, np.ndarray) or hasattr(source, "to_numpy"):
        values = np.asarray(source, dtype=object)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DataError(
                f"molecules must be one column of SMILES, found an array of shape {values.shape}."
            )
        return values.tolist()
    if isinstance(source, Iterable):
        rows = list(source)
        if rows and isinstance(rows[0], list | tuple | np.ndarray):
            return records_of(np.array(rows, dtype=object))
        return rows
    raise DataError(
        f"cannot read a {type(source).__name__}; give a path, the name of a data set, a store, a "
        "list of SMILES or a data frame."
    )


def fetch_dataset(name: str, data_dir: Path | str | None = None) -> Path:
    """Return the verified file of a data set or the store made of its files; download if need be.

    Raises:
        ConfigError: If there is none of that name.
        DataError: If it can be found nowhere.
    """
    spec = find_spec(name)
    return DOMAINS[spec.domain].fetch(spec, data_dir)
