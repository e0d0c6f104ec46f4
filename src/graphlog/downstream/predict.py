"""Predictions written beside the input's own columns, row for row."""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.domains import domain_of
from graphlog.downstream.embed import Written, check_output, save_rejects
from graphlog.downstream.predictor import Predictor
from graphlog.files import scratch_folder, writing
from graphlog.inputs import InputLike, read_streamed, rereadable, resolve
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

STATUS = "graphlog_status"


def predict_file(
    predictor: Predictor,
    source: InputLike,
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
    given = resolve(source, predictor.schema)
    check_output(out, (".csv",), given)
    with (
        rereadable(given) as found,
        read_streamed(found, predictor.schema, **reading) as store,
        scratch_folder(out) as folder,
    ):
        rows, total = store.output_rows, store.num_output_rows
        predictions = np.full((total, len(predictor.targets)), np.nan, dtype=np.float32)
        for graphs, values in predictor.predict_batches(
            store, batch_size, precision=precision, progress=progress
        ):
            predictions[rows[graphs]] = values
        with writing(out):
            unfinished = folder / out.name
            records = domain_of(store.schema).rows(found, store, **reading)
            status = store.output_status()
            _write(unfinished, records, predictor.targets, predictions, status)
            rejects = save_rejects(out.parent, store.output_rejects)
            os.replace(unfinished, out)
        return Written(out, total, total - len(store), rejects)


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
