"""``graphlog embed``: one vector a row."""

from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, fields_table


def embed(
    source: o.Input,
    model: o.Model,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="OUT", help="File to write: .npz, .parquet or .csv."
        ),
    ],
    layer: o.Layer = None,
    limit: o.Limit = None,
    batch_size: o.BatchSize = None,
    precision: o.Precision = None,
    device: o.Device = None,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Write one embedding for every row of INPUT; row i of OUT is row i of INPUT, NaN where it is no molecule."""
    from graphlog.cli.progress import job_progress
    from graphlog.downstream.embed import embed_file
    from graphlog.downstream.models import load_for

    console = Console(quiet, as_json)
    encoder = load_for(model, source, device=device or "auto")
    written = embed_file(
        encoder,
        source,
        output,
        layer=layer,
        batch_size=batch_size or 512,
        precision=precision or "auto",
        progress=job_progress(console),
        smiles_column=smiles_column,
        limit=limit,
        on_error=on_error,
        workers=workers,
    )
    summary = {
        "output": str(written.path),
        "rows": written.rows,
        "rejected": written.rejected,
        "width": encoder.width(layer),
        "layer": layer or encoder.layer,
        "rejects": None if written.rejects is None else str(written.rejects),
    }
    console.result(summary, fields_table(summary))
