"""Whatever users hold - a file, a name, a store, a list or column of SMILES - as graphs of the model's schema."""

import math
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from graphlog.data.chunk import Reject
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore, is_store, open_store
from graphlog.datasets import DATASETS
from graphlog.datasets.base import named_spec
from graphlog.datasets.catalogue_networks import PROTEIN_SETS
from graphlog.datasets.featurize import read_molecules
from graphlog.domains import SCHEMAS
from graphlog.domains.graph.reading import is_graphs, read_graphs
from graphlog.domains.protein.domain import open_proteins
from graphlog.errors import ConfigError, DataError

Source = Any
"""A path, ``"-"``, the name of a data set, a store or its folder, or a list, array or column of SMILES."""

_PARALLEL_FROM = 20_000


def is_named(source: Source) -> bool:
    """Return whether ``source`` is a path or the name of a data set, not the molecules themselves."""
    return isinstance(source, str | Path)


def domain_of(source: Source) -> str | None:
    """Return the domain of a named data set; None where ``source`` is anything else."""
    spec = named_spec(source, DATASETS)
    return None if spec is None else spec.domain


def name_of(source: Source) -> str:
    """Return what to call ``source`` in reports."""
    if isinstance(source, GraphStore):
        return f"store of {len(source)} graphs"
    return str(source) if is_named(source) else f"{len(source)} molecules"


def open_graphs(source: Source, schema: FeatureSchema | None, **options: Any) -> GraphStore:
    """Return the graphs of ``source`` in ``schema``; ``options`` go to ``read_molecules`` where there is something to parse.

    Raises:
        ConfigError: If a store was made in another schema than the model's, or the schema has no reader.
        DataError: If the source cannot be read.
    """
    if is_store(source):
        source = open_store(source)
        source.verify()
    if isinstance(source, GraphStore):
        limit = options.get("limit")
        store = source if limit is None else source.subset(np.arange(min(limit, len(source))))
        return store if schema is None else _checked(store, schema)
    if is_graphs(source):
        return _any_graphs(source, schema, **options)
    if schema is None:
        raise ConfigError(f"{name_of(source)}: say with which schema it is to be read.")
    if is_named(source) and schema == SCHEMAS["protein"]:
        return open_proteins(source, **options)
    if domain_of(source) == "protein":
        raise ConfigError(
            f"'{source}' holds proteins, but the model reads schema '{schema.name}'; give it a model of proteins."
        )
    if schema.domain != "molecule" or schema not in SCHEMAS.values():
        raise ConfigError(
            f"the model reads graphs of schema '{schema.name}', not molecules; give it such graphs, or a store of them."
        )
    if is_named(source):
        return read_molecules(source, schema=schema, **options)
    return graphs_of_texts(texts_of(source), schema, **options)


@contextmanager
def streamed_graphs(source: Source, schema: FeatureSchema, **options: Any) -> Generator[GraphStore]:
    """Give the graphs of ``source``, those of a file through a temporary store on disk, so that memory stays bounded."""
    kept = named_spec(source, PROTEIN_SETS) is not None  # its store is on disk already
    if kept or not is_named(source):
        yield open_graphs(source, schema, **options)
        return
    with temporary_folder() as folder:
        try:
            store = open_graphs(source, schema, store_path=folder / "store", **options)
        except DataError as e:
            if isinstance(
                e.__cause__, OSError
            ):  # the user did not choose this folder and may not know of it
                raise no_room_for_temporary_files(e.__cause__) from None
            raise
        yield store


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Give a folder that is removed afterwards.

    Raises:
        DataError: If there is no place for one.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="graphlog-", ignore_cleanup_errors=True)
    except OSError as e:
        raise no_room_for_temporary_files(e) from None
    with folder as path:
        yield Path(path)


def no_room_for_temporary_files(error: OSError) -> DataError:
    """Return the error for temporary files that could not be written."""
    where = tempfile.tempdir or "the folder for temporary files"
    why = error.strerror or str(error)
    return DataError(
        f"cannot write temporary files in {where}: {why}; free space there, or name another folder in the variable TMPDIR."
    )


def texts_of(source: Source) -> list[str]:
    """Return a list, array or column (also of shape (n, 1)) of SMILES as a list; missing entries become empty texts.

    Raises:
        DataError: If it has more than one column or holds something that is not text.

    Example:
        >>> texts_of(np.array([["CCO"], [None]], dtype=object))
        ['CCO', '']
    """
    values = np.asarray(source, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(
            f"molecules must be one column of SMILES, found an array of shape {values.shape}."
        )
    return [_text(value, row) for row, value in enumerate(values.tolist())]


def graphs_of_texts(texts: Sequence[str], schema: FeatureSchema, **options: Any) -> GraphStore:
    """Return a store in memory of ``texts``; row ``i`` of the store's input is ``texts[i]``."""
    workers = (
        None if len(texts) >= _PARALLEL_FROM else 1
    )  # a pool of processes takes longer to start than that
    options.setdefault("workers", workers)
    return read_molecules(texts, schema=schema, **options)


def output_rows(store: GraphStore) -> tuple[Int[np.ndarray, "M"], int]:
    """Return the output row of each graph and their number: those of the input; a view has one row a graph."""
    if store.indices is not None:
        return np.arange(len(store)), len(store)
    return store.rows, store.num_rows


def rejects_of(store: GraphStore) -> list[Reject]:
    """Return the rejected rows of the output; a view has one row a graph, so none."""
    return store.rejects if store.indices is None else []


def status_of(store: GraphStore) -> list[str]:
    """Return ``ok`` or the reason of its rejection for every output row."""
    rows, total = output_rows(store)
    status = ["no graph in the store"] * total
    for row in rows.tolist():
        status[row] = "ok"
    for reject in rejects_of(store):
        status[reject.row] = reject.reason
    return status


def _checked(store: GraphStore, schema: FeatureSchema) -> GraphStore:
    if store.schema != schema:
        found, wanted = store.schema.name, schema.name
        if found == wanted:
            raise ConfigError(
                f"the store's schema '{found}' has other columns or codes than the model's; make it again (any graphs: --like MODEL)."
            )
        raise ConfigError(
            f"the store has schema '{found}' but the model reads '{wanted}'; make it again with --schema {wanted}."
        )
    return store


def _any_graphs(
    source: str | Path,
    schema: FeatureSchema | None,
    smiles_column: str | None = None,
    workers: int | None = None,
    **options: Any,
) -> GraphStore:
    """Read a collection of any graphs in ``schema``, so that categories it does not know are named."""
    if smiles_column is not None:
        raise ConfigError(f"{source} holds graphs, not SMILES; drop --smiles-column.")
    if schema is not None and schema.domain != "graph":
        raise ConfigError(
            f"{source} holds any graphs, but the model reads schema '{schema.name}'; give it a model trained on such graphs."
        )
    return read_graphs(source, schema=schema, **options)


def _text(value: Any, row: int) -> str:
    if isinstance(value, str):
        return value
    if (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ == "NAType"
    ):
        return ""
    raise DataError(f"row {row}: a SMILES must be text, found {value!r} ({type(value).__name__}).")
