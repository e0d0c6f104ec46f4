"""Turn anything that a user gives as input into a typed description, and that into a store."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Int

from graphlog.config import read_json
from graphlog.data.graphs import FeatureSchema, Reject
from graphlog.data.manifest import is_store
from graphlog.data.store import GraphStore, bad_row, open_store
from graphlog.data.tables import listed_rows
from graphlog.datasets import DATASETS, find_spec
from graphlog.domains import DOMAINS, Domain, Input, Reading, domain_of, schema_named
from graphlog.domains.records import RecordDomain, TableReading
from graphlog.errors import ConfigError, DataError, check_name, setting, unknown_name
from graphlog.files import beside, open_text, storable, writing


@runtime_checkable
class ColumnTable(Protocol):
    """A table of named columns that is not iterable, such as that of pyarrow."""

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
"""All types of input.

A path, ``"-"``, the name of a data set, a store or its folder; a list, array or column of SMILES or
of RDKit molecules; a data frame (pandas, polars, pyarrow) or a dictionary of columns; graphs of
torch_geometric.
"""

Given = TypeVar("Given")

_FOR_STORES = ("on_error", "workers", "progress", "data_dir", "limit", "store_path", "overwrite")
"""Options of reading that are allowed for a store, although some have no effect on it."""
_DEFAULT_DOMAIN = "molecule"
_ADVICE = "free space there, or name another folder in the variable TMPDIR"
"""Advice for temporary files that cannot be written."""
_NOTE = "input.json"
"""Name of the file in a run folder that names the input of the run."""
_NOTED: dict[str, type] = {
    **{"limit": int, "targets": list},
    **dict.fromkeys(("smiles_column", "standardize", "sheet", "decimal"), str),
}
"""Options that this file stores, and the types of their values."""


def resolve(source: InputLike, schema: FeatureSchema | None = None) -> Input:
    """Return a typed description of an input, of which only names and first lines are read.

    Args:
        source: See :data:`InputLike`.
        schema: Schema for graphs of torch_geometric; None infers one.

    Raises:
        ConfigError: If a name is neither a file nor a data set.
        DataError: If the type of the input is unknown.
    """
    if isinstance(source, Input):
        return source
    if isinstance(source, GraphStore):
        return Input(
            name=f"store of {len(source)} graphs",
            domain=source.schema.domain,
            store=source,
            location=None if source.path is None else source.path.resolve(),
        )
    if isinstance(source, str | os.PathLike):
        return _named(source)
    source = reiterable(source)
    if (graphs := _torch_graphs(source)) is not None:
        from graphlog.pyg import from_pyg

        converted = resolve(from_pyg(graphs, schema, on_error="skip"))
        return replace(converted, name="torch_geometric graphs", is_converted=True)
    if (columns := _columns(source)) is not None:
        rows = len(next(iter(columns.values()), ()))
        return Input(name=f"data frame of {rows} rows", columns=columns)
    records = records_of(source)
    name = f"list of {len(records):,} record{'s'[: len(records) != 1]}"
    return Input(name=name, records=records)


def reiterable(source: Given) -> Given | list[Any]:
    """Return an input that can be resolved more than once: a list in place of an iterator."""
    return list(source) if isinstance(source, Iterator) else source


def read(
    source: InputLike,
    schema: FeatureSchema | None = None,
    *,
    domain: str | None = None,
    domain_is_open: bool = False,
    **options: Any,
) -> GraphStore:
    """Return the graphs of an input of any type.

    Args:
        source: See :data:`InputLike`.
        schema: Schema of the graphs, such as that of a model; None uses that of the store or the
            domain.
        domain: Name of the domain, if the input may be of several.
        domain_is_open: Whether the user has not chosen a domain, so that errors may advise it.
        options: Options of the ``read`` method of the domain; None means not given.

    Raises:
        ConfigError: If a store has another schema, the input is of another domain than the schema,
            or an option does not apply to it.
        DataError: If the input cannot be read.
    """
    resolved = resolve(source, schema)
    chosen = {key: value for key, value in options.items() if value is not None}
    if resolved.store is not None:
        if resolved.is_converted:
            chosen.pop("like", None)  # already used for the conversion
        return _read_store(resolved.store, resolved.name, schema, chosen)
    reader = reader_of(resolved, schema, domain)
    return reader.read(resolved, schema, _reading_of(reader, resolved, chosen, domain_is_open))


def _reading_of(
    reader: Domain, source: Input, options: Mapping[str, Any], domain_is_open: bool = False
) -> Reading:
    """Return the options with which a domain reads an input, after a check of their names."""
    for option, value in options.items():
        if value is None or option in reader.reading.names():
            continue
        owner = next((d for d in DOMAINS.values() if option in d.reading.names()), None)
        if owner is None:
            known = set[str]().union(*(d.reading.names() for d in DOMAINS.values()))
            raise unknown_name("option", option, known)
        remedy = f", or add {setting('domain', owner.name)}" if domain_is_open else ""
        raise ConfigError(
            f"{setting(option)} is for {owner.records}, and {source.name} holds {reader.records}; "
            f"drop it{remedy}.",
            option=option,
        )
    return reader.reading.of(options)


def domain_name(source: Input, schema: str | None = None) -> str:
    """Return the name of the domain of an input; if unknown, that of the schema or the default."""
    if source.store is not None:
        return source.store.schema.domain
    if source.domain is None and schema is not None:
        return schema_named(schema).domain
    return source.domain or _DEFAULT_DOMAIN


def schema_for(source: Input, name: str) -> FeatureSchema | None:
    """Return the schema ``name`` if the input can be read with it; None if it has its own."""
    # the name of an input's own schema need not be that of a predefined one
    if source.store is not None or not DOMAINS[source.domain or _DEFAULT_DOMAIN].schemas:
        return None
    schema = schema_named(name)
    return schema if source.domain in (None, schema.domain) else None


def reader_of(source: Input, schema: FeatureSchema | None, domain: str | None = None) -> Domain:
    """Return the domain of an input; raise a ConfigError if that of ``schema`` is another one."""
    name = domain or source.domain or (schema.domain if schema else _DEFAULT_DOMAIN)
    check_name("domain", name, DOMAINS)
    reader = DOMAINS[name]
    if schema is not None and DOMAINS[schema.domain] is not reader:
        raise ConfigError(
            f"{source.name} holds {reader.records}, but the model reads "
            f"{DOMAINS[schema.domain].records} (schema '{schema.name}'); give it a model of "
            f"{reader.records}."
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
    """Consecutive rows of an input, with their graphs."""

    store: GraphStore
    """The graphs."""
    rows: Int[np.ndarray, "M"]
    """Row of each graph; the first row of the part is 0."""
    status: Sequence[str]
    """``ok``, or the reason for which there is no graph, for every row."""
    rejects: Sequence[Reject]
    """The rows without a graph, numbered as in the input."""
    fields: Sequence[Mapping[str, str]]
    """The cells of every row by column."""

    def aligned(self, values: np.ndarray) -> np.ndarray:
        """Return values of the graphs aligned with the rows, NaN for rows without a graph."""
        rows = np.full((len(self.status), *values.shape[1:]), np.nan, dtype=values.dtype)
        rows[self.rows] = values
        return rows

    def texts(self) -> list[str]:
        """Return the text of every row, "" for rows without a graph."""
        texts = [""] * len(self.status)
        for row, text in zip(self.rows.tolist(), self.store.texts(), strict=True):
            texts[row] = text
        return texts


def salt_notes(rows: Int[np.ndarray, "S"], number: int) -> list[str]:
    """Return a note on rows of molecules with several fragments, of ``number`` that were read."""
    note = (
        f"{len(rows):,} of {number:,} molecules have several fragments, such as salts (rows "
        f"{listed_rows(rows)}): they are read as written; to read the parent (largest organic "
        f"fragment, neutral) choose {setting('standardize', 'parent')}"
    )
    return [note] if len(rows) else []


def note_salts(
    parts: Iterable[Part], say: Callable[[str], None]
) -> Iterator[tuple[Part, GraphStore]]:
    """Yield the parts of an input with their graphs; at the end, say the :func:`salt_notes`."""
    salts, rows, graphs = list[int](), 0, 0
    for part in parts:
        yield part, part.store
        salts += (rows + part.rows[domain_of(part.store.schema).salts(part.store)]).tolist()
        rows, graphs = rows + len(part.status), graphs + len(part.store)
    for note in salt_notes(np.array(salts, dtype=np.int64), graphs):
        say(note)


@contextmanager
def stream(
    source: Input, schema: FeatureSchema, at_once: int, **options: Any
) -> Generator[Iterator[Part]]:
    """Yield an iterator over parts of about ``at_once`` rows, so that memory use is bounded."""
    reader = reader_of(source, schema)
    if source.store is None and isinstance(reader, RecordDomain):
        reading = _reading_of(reader, source, options)
        with closing(reader.stream(source, schema, reading, at_once)) as parts:
            yield _parts_read(parts)
        return
    with read_streamed(source, schema, **options) as store:
        yield _parts_of(store, at_once, reader.rows(source, store, reader.reading.of(options)))


def rows_of(source: Input, limit: int | None = None) -> int:
    """Return the number of rows of an input; 0 if it is unknown before the input is read."""
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
        cells = list(islice(fields, stop - start))
        yield Part(store.subset(graphs), rows[graphs] - start, status[start:stop], bad, cells)


@contextmanager
def read_streamed(
    source: InputLike, schema: FeatureSchema | None, **options: Any
) -> Generator[GraphStore]:
    """Yield the graphs of an input; those of files and data sets are in a temporary store."""
    resolved = resolve(source, schema)
    is_dataset = resolved.spec is not None
    is_stored = is_dataset and DOMAINS[domain_name(resolved)].keeps_stores
    if is_stored or (resolved.path is None and not is_dataset):
        yield read(resolved, schema, **options)
        return
    with temporary_folder() as folder:
        yield read(resolved, schema, store_path=folder / "store", **options)


@contextmanager
def rereadable(source: Input) -> Generator[Input]:
    """Yield an input that can be read twice; standard input or a pipe is copied to a file."""
    if not source.is_stream:
        yield source
        return
    with temporary_folder() as folder:
        path = folder / "input.txt"  # with this extension, the first line decides the delimiter
        with (
            writing(path, _ADVICE),
            path.open("w", encoding="utf-8", newline="") as copy,
            open_text(source.path or "-") as lines,
        ):
            copy.writelines(lines)
        try:
            yield Input(name=source.name, domain=source.domain, path=path)
        except DataError as e:  # the user knows the input, not the temporary copy
            raise DataError(str(e).replace(str(path), source.name)) from e.__cause__


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Yield a folder that is removed after the block."""
    with writing(Path(tempfile.tempdir or "temporary files"), _ADVICE):
        folder = tempfile.TemporaryDirectory(prefix="graphlog-", ignore_cleanup_errors=True)
    with folder as path:
        yield Path(path)


def applicable_options(
    source: Input, schema: FeatureSchema, reading: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options without ``sheet`` and ``smiles_column`` if the input has none of that name."""
    domain, named = DOMAINS[schema.domain], ("sheet", "smiles_column")
    if not isinstance(domain, RecordDomain) or (source.columns is None and source.file is None):
        return {key: value for key, value in reading.items() if key not in named}
    options = dict(reading)
    while any(options.get(key) is not None for key in named):
        try:
            with domain.open(source, TableReading.of({key: options.get(key) for key in named})):
                return options
        except (ConfigError, DataError) as e:
            if options.pop(e.option or "", None) is None:
                break
    return options


def remember_input(run: Path, source: Input, **options: Any) -> None:
    """Write the input of a run to its folder, so that figures can be drawn without naming it.

    The file holds the path or name, and the options that decide which rows were read. Inputs in
    memory and streams are not written. Errors of the disk are ignored, since a run must not fail
    because of this file.
    """
    name = source.location if source.spec is None else source.spec.name
    if name is None:
        return
    note = {option: options.get(option) for option in _NOTED}
    if source.store is not None or isinstance(note["targets"], str):
        note["targets"] = None  # a store has its own labels; "auto" is not a list of names
    elif note["targets"] and (weights := options.get("weights")):
        note["targets"] = [*note["targets"], weights]  # read with them, so part of the digest

    def plain(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else list(value)

    with suppress(OSError), beside(run / _NOTE) as unfinished:
        text = json.dumps({"source": str(name), **note}, indent=1, default=plain)
        unfinished.write_text(text, encoding="utf-8")


def recall_input(run: Path) -> tuple[str, dict[str, Any]] | None:
    """Return the input of a run and the options of reading; None if unknown or no longer there."""
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
    exists = os.path.exists(path)  # unlike Path.exists, allows names that are too long (a SMILES)
    if isinstance(source, str) and source in DATASETS and not exists:
        spec = DATASETS[source]
        return Input(name=source, domain=spec.domain, spec=spec)
    if not exists:
        if path.suffix or len(path.parts) > 1:
            raise DataError(f"no such file: {path}; check the path.", file=path)
        raise ConfigError(
            f"'{name}' is neither a file nor a data set. Give molecules themselves as a list: "
            f"['{name}']. {unknown_name('file or data set', name, DATASETS)}"
        )
    if is_store(path):
        return replace(resolve(open_store(path)), name=name)
    if path.is_fifo():  # recognizing its content would consume it
        return Input(name=name, path=path)
    domain = next((d.name for d in DOMAINS.values() if d.recognizes(path)), None)
    return Input(name=name, domain=domain, path=path, location=path.resolve())


def _read_store(
    store: GraphStore, name: str, schema: FeatureSchema | None, options: dict[str, Any]
) -> GraphStore:
    """Return a store, or its first rows, after a check of schema and options; save it on demand."""
    for option, value in options.items():
        is_same = option == "standardize" and value == store.source.standardize
        if option not in _FOR_STORES and not is_same:
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
    """Raise a ConfigError if a store of the schema ``own`` does not fit a model for ``schema``."""
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
    """Return a source of graphs of torch_geometric, or None for any other source."""
    if sys.modules.get("torch_geometric") is None:  # then there are no such graphs
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
    kind = f"{type(source).__module__.partition('.')[0]}.{type(source).__name__}"
    match kind:
        case _ if isinstance(source, Mapping):
            named = ((str(name), records_of(values)) for name, values in source.items())
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
        DataError: If it has more than one column, or is not a collection with an order.

    Example:
        >>> records_of(np.array([["CCO"], [None]], dtype=object))
        ['CCO', None]
    """
    if hasattr(source, "to_pylist"):  # pyarrow
        return source.to_pylist()
    if isinstance(source, set | frozenset):
        raise DataError("cannot read a set, since it has no order; give a list.")
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
    """Return the path of a data set, a verified file or a store; download it if necessary.

    Raises:
        ConfigError: If the name is unknown.
        DataError: If it cannot be downloaded.
    """
    spec = find_spec(name)
    return DOMAINS[spec.domain].fetch(spec, data_dir)
