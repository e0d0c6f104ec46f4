"""Predictions written beside the input's own columns, row for row."""

import csv
import os
import shutil
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.data.store import GraphStore, is_store
from graphlog.data.tables import open_table
from graphlog.datasets import DATASETS
from graphlog.datasets.base import named_spec
from graphlog.datasets.named import open_named
from graphlog.domains.graph.reading import is_graphs
from graphlog.downstream.embed import Written, check_output, save_rejects
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.sources import (
    Source,
    is_named,
    no_room_for_temporary_files,
    output_rows,
    rejects_of,
    status_of,
    streamed_graphs,
    temporary_folder,
)
from graphlog.files import scratch_folder, writing
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

STATUS = "graphlog_status"


def predict_file(
    predictor: Predictor,
    source: Source,
    out: Path,
    *,
    batch_size: int = 512,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    **reading: Any,
) -> Written:
    """Write the input's columns, one column a target, and ``graphlog_status`` as CSV, whole or not at all.

    A row that cannot be used keeps its columns; its predictions are empty and its status says why.

    Args:
        predictor: What predicts.
        source: A path, ``-``, the name of a data set, a store, or a list of SMILES.
        out: The ``.csv`` file.
        batch_size: Graphs a forward pass.
        precision: Format of matrix products.
        progress: Told of every batch.
        reading: Passed to ``read_molecules``.
    """
    check_output(out, (".csv",), source)
    with (
        _rereadable(source) as source,
        streamed_graphs(source, predictor.schema, **reading) as store,
        scratch_folder(out) as folder,
    ):
        rows, total = output_rows(store)
        predictions = np.full((total, len(predictor.targets)), np.nan, dtype=np.float32)
        for graphs, values in predictor.predict_batches(
            store, batch_size, precision=precision, progress=progress
        ):
            predictions[rows[graphs]] = values
        with writing(out):
            unfinished = folder / out.name
            records = _records(source, store, reading.get("smiles_column"), reading.get("data_dir"))
            _write(unfinished, records, predictor.targets, predictions, status_of(store))
            rejects = save_rejects(out.parent, rejects_of(store))
            os.replace(unfinished, out)
        return Written(out, total, total - len(store), rejects)


@contextmanager
def _rereadable(source: Source) -> Generator[Source]:
    """Give ``source`` as something that can be read twice: standard input is kept in a temporary file."""
    if not (isinstance(source, str) and source == "-"):
        yield source
        return
    with temporary_folder() as folder:
        path = (
            folder / "input.txt"
        )  # what kind of table it is shows in its first line, as for standard input
        try:
            with path.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        except OSError as e:
            raise no_room_for_temporary_files(e) from None
        yield path


def _records(
    source: Source, store: GraphStore, smiles_column: str | None, data_dir: Any
) -> Iterator[Mapping[str, str]]:
    """Yield the input's columns, row by row; a store knows row numbers and, perhaps, SMILES."""
    if is_named(source) and not is_store(source) and not is_graphs(source):
        if named_spec(str(source), DATASETS):
            with open_named(str(source), data_dir=data_dir) as named:
                yield from (row.fields for row in named.table)
        else:
            with open_table(source, smiles_column) as table:
                yield from (row.fields for row in table)
        return
    rows, total = output_rows(store)
    if store.schema.domain == "graph":
        yield from ({"row": str(row)} for row in range(total))
        return
    texts = {reject.row: reject.text for reject in rejects_of(store)}
    texts |= dict(zip(rows.tolist(), store.texts(), strict=True))
    yield from ({"row": str(row), "smiles": texts.get(row, "")} for row in range(total))


def _write(
    path: Path,
    records: Iterator[Mapping[str, str]],
    targets: Sequence[str],
    predictions: Float[np.ndarray, "M T"],
    status: Sequence[str],
) -> None:
    with path.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        table = csv.writer(file)
        for row, (fields, values, text) in enumerate(
            zip(records, predictions.tolist(), status, strict=True)
        ):
            if row == 0:
                table.writerow([*fields, *_free_names([*targets, STATUS], fields)])
            table.writerow(
                [*fields.values(), *(f"{v:.6g}" if v == v else "" for v in values), text]
            )


def _free_names(targets: Sequence[str], fields: Mapping[str, str]) -> list[str]:
    """Return the names of the added columns: one that the input has already (its labels) becomes ``predicted_...``."""
    free: list[str] = []
    for name in targets:
        while name in fields or name in free:
            name = f"predicted_{name}"
        free.append(name)
    return free
