"""``graphlog predict``: a fine-tuned model's answers beside the input's own columns."""

from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, fields_table


def predict(
    source: o.Input,
    run: Annotated[
        str, typer.Option("--model", "-m", metavar="RUN", help="Run folder of finetune.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT.csv", help="File to write.")
    ],
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
    """Predict for every row of INPUT: its columns kept, one a target added, and graphlog_status."""
    from graphlog.cli.progress import job_progress
    from graphlog.downstream.predict import predict_file
    from graphlog.downstream.predictor import Predictor

    console = Console(quiet, as_json)
    predictor = Predictor.load(run, device=device or "auto")
    written = predict_file(
        predictor,
        source,
        output,
        batch_size=batch_size or 512,
        precision=precision or "auto",
        progress=job_progress(console),
        smiles_column=smiles_column,
        on_error=on_error,
        workers=workers,
    )
    summary = {
        "output": str(written.path),
        "rows": written.rows,
        "rejected": written.rejected,
        "targets": list(predictor.targets),
        "task": predictor.task,
        "rejects": None if written.rejects is None else str(written.rejects),
    }
    console.result(summary, fields_table(summary))
