"""Embeddings of whatever a user names, row for row, in an array or in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from graphlog.data.workers import device_for, using
from graphlog.domains import domain_of
from graphlog.downstream.models import load
from graphlog.downstream.pretrained import Encoder, rows_at_once
from graphlog.downstream.writers import Results, Written, choose_format, write_aligned
from graphlog.inputs import InputLike, rereadable, resolve, rows_of, stream
from graphlog.training.log import Progress
from graphlog.training.setting import Precision


def embed(
    encoder: str | Path | Encoder,
    source: InputLike,
    layer: str | None = None,
    engine: str = "local",
    **options: Any,
) -> Float[np.ndarray, "M W"]:
    """Return a float32 embedding of each row, NaN where unreadable. See :meth:`Encoder.embed`.

    The ``engine`` is ``local``, or ``ray``: see :func:`graphlog.data.workers.using`.
    """
    model = load(encoder, source=source)
    with using(engine, model.device.type):
        return model.embed(source, layer, **options)


def embed_file(
    encoder: str | Path | Encoder,
    source: InputLike,
    out: str | Path,
    *,
    layer: str | None = None,
    with_features: Sequence[str] = (),
    batch_size: int = 2048,
    precision: Precision = "fp32",
    device: str = "cpu",
    engine: str = "local",
    progress: Progress | None = None,
    format: str | None = None,
    **reading: Any,
) -> Written:
    """Write the embeddings of ``source`` to ``out``, whole or not at all, in bounded memory.

    Tables (``.csv``, ``.jsonl``, ``.parquet``, ``.sdf``) hold the columns of the input, the
    embedding and ``graphlog_status``; the embedding is a column ``e0``, ``e1``, ... per dimension
    in CSV, and one cell ``embedding`` in the others unless features are joined. ``.npz`` holds
    ``embeddings`` (float32, one row per input row), ``names``, ``status``, ``row`` and the columns
    of the input; ``.npy`` the array alone.

    Args:
        encoder: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        source: A path, the name of a data set, a store, or a list of SMILES.
        out: The file; its ending decides the format. ``-`` is standard output.
        layer: ``jk`` or ``last``; None takes the model's own.
        with_features: Features to join, as for :meth:`Encoder.embed`, each a column of its name.
        batch_size: Graphs per forward pass.
        precision: Format of matrix products.
        device: Where to load an encoder that is named: ``auto``, ``cpu`` or ``cuda``.
        engine: ``local``, or ``ray``: see :func:`graphlog.data.workers.using`.
        progress: Follows the graphs.
        format: ``csv``, ``jsonl``, ``parquet``, ``npz``, ``npy`` or ``sdf``, whatever the ending.
        reading: Options of the reader (``smiles_column``, ``on_error``, ...); the column of SMILES
            is by default that of fine-tuning or probing.

    Raises:
        ConfigError: If the ending of ``out`` is unknown.
        DataError: If the source cannot be read.
    """
    model, out = load(encoder, device=device_for(engine, device), source=source), Path(out)
    domain_of(model.schema).check_feature_sets(with_features)
    given = resolve(source, model.schema)
    chosen = choose_format(out, format, given)  # before standard input is copied
    with using(engine, model.device.type), rereadable(given) as found:
        how, at_once = model.reading_of(found, reading), rows_at_once(batch_size, with_features)
        with stream(found, model.schema, at_once, **how) as parts:
            embedded = model.embed_batches(
                ((part, part.store) for part in parts),
                layer,
                batch_size,
                with_features=with_features,
                precision=precision,
                progress=progress,
                total=rows_of(found, reading.get("limit")),
            )
            names = model.feature_names(layer, with_features)
            results = Results(
                ((part, part.aligned(values)) for part, values in embedded),
                names,
                "embeddings",
                None if with_features else "embedding",
            )
            about = {"width": len(names), "layer": layer or model.layer}
            return write_aligned(results, found, model.schema, out, chosen, **about)
