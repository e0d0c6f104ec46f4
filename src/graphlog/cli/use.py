"""Verbs that use an encoder: embed, predict, probe."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, job_progress, report_tables
from graphlog.errors import ConfigError

_BASELINES, _FOLD_BASELINES = "random,ecfp-rf,ecfp-lr", "random,wl"


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
    """Write one embedding per row of INPUT.

    Row i of OUT is row i of INPUT; it is NaN where the row cannot be read.
    """
    from graphlog import api

    console = Console(quiet, as_json)
    encoder = api.load_for(model, source, device=device or "auto")
    written = api.embed_file(
        encoder,
        source,
        output,
        layer=layer,
        batch_size=batch_size or 512,
        precision=precision or "fp32",
        progress=job_progress(console),
        smiles_column=smiles_column,
        limit=limit,
        on_error=on_error,
        workers=workers,
    )
    console.summary(
        {
            "output": str(written.path),
            "rows": written.rows,
            "rejected": written.rejected,
            "width": encoder.width(layer),
            "layer": layer or encoder.layer,
            "rejects": None if written.rejects is None else str(written.rejects),
        }
    )


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
    """Predict with a fine-tuned model for every row of INPUT.

    OUT.csv has the columns of INPUT, predicted_TARGET for each target, and graphlog_status.
    """
    from graphlog import api

    console = Console(quiet, as_json)
    predictor = api.load_predictor(run, device=device or "auto")
    written = api.predict_file(
        predictor,
        source,
        output,
        batch_size=batch_size or 512,
        precision=precision or "fp32",
        progress=job_progress(console),
        smiles_column=smiles_column,
        on_error=on_error,
        workers=workers,
    )
    console.summary(
        {
            "output": str(written.path),
            "rows": written.rows,
            "rejected": written.rejected,
            "targets": list(predictor.targets),
            "task": predictor.task,
            "rejects": None if written.rejects is None else str(written.rejects),
        }
    )


def probe(
    source: o.Input,
    model: o.Model,
    targets: o.Targets = None,
    task: o.Task = "auto",
    split: o.SplitKind = None,
    seeds: o.Seeds = "0,1,2",
    layer: o.Layer = None,
    c: Annotated[
        float,
        typer.Option(
            "--c",
            metavar="C",
            min=1e-9,
            help="Inverse penalty of one model; that of the other is chosen on validation.",
        ),
    ] = 0.1,
    baselines: Annotated[
        str | None,
        typer.Option(
            "--baselines",
            metavar="A,B",
            help="random, ecfp-rf, ecfp-lr or none; with 10-fold: random, wl.",
        ),
    ] = None,
    protocol: Annotated[
        Literal["split", "10-fold"],
        typer.Option("--protocol", help="One split, or InfoGraph's 10-fold accuracy."),
    ] = "split",
    classifier: Annotated[
        Literal["svm", "logistic"], typer.Option("--classifier", help="Classifier of 10-fold.")
    ] = "svm",
    device: o.Device = None,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Fit linear models to frozen embeddings, beside baselines."""
    from graphlog import api

    console = Console(quiet, as_json)
    shared: dict[str, Any] = {
        "layer": layer,
        "seeds": o.integers(seeds),
        "progress": job_progress(console),
        "targets": o.names(targets) or None,
        "task": task,
        "smiles_column": smiles_column,
        "on_error": on_error,
        "workers": workers,
    }
    encoder = api.load_for(model, source, device=device or "auto")
    if protocol == "10-fold":
        if split is not None:
            raise ConfigError("--protocol 10-fold makes its own folds; drop --split.")
        rows = o.names(baselines or _FOLD_BASELINES)
        report = api.fold_probe(encoder, source, classifier=classifier, baselines=rows, **shared)
    else:
        rows = o.names(baselines or _BASELINES)
        report = api.probe(encoder, source, split, baselines=rows, c=c, **shared)
    console.result(report.to_dict(), *report_tables(report))
