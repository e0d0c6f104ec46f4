"""``graphlog probe``: how much a frozen embedding knows."""

from typing import Annotated, Any, Literal

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console
from graphlog.errors import ConfigError

_BASELINES, _FOLD_BASELINES = "random,ecfp-rf,ecfp-lr", "random,wl"


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
            "--c", metavar="C", min=1e-9, help="Fixed inverse penalty; validation chooses another."
        ),
    ] = 0.1,
    baselines: Annotated[
        str | None,
        typer.Option(
            "--baselines",
            metavar="A,B",
            help="random, ecfp-rf, ecfp-lr, or none; of 10-fold: random, wl.",
        ),
    ] = None,
    protocol: Annotated[
        Literal["split", "10-fold"],
        typer.Option(
            "--protocol", help="One split, or InfoGraph's 10-fold accuracy of one target."
        ),
    ] = "split",
    classifier: Annotated[
        Literal["svm", "logistic"], typer.Option("--classifier", help="Of 10-fold.")
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
    """Fit linear models to frozen embeddings of INPUT, beside fingerprints and the untrained encoder."""
    from graphlog.cli.progress import job_progress
    from graphlog.cli.reports import report_tables
    from graphlog.downstream.models import load_for
    from graphlog.downstream.probe import probe as run_probe
    from graphlog.downstream.protocol.folds import fold_probe

    console = Console(quiet, as_json)
    shared: dict[str, Any] = {
        "layer": layer,
        "seeds": o.numbers(seeds),
        "progress": job_progress(console),
    }
    shared |= {"targets": o.names(targets) or None, "task": task}
    shared |= {"smiles_column": smiles_column, "on_error": on_error, "workers": workers}
    encoder = load_for(model, source, device=device or "auto")
    if protocol == "10-fold":
        if split is not None:
            raise ConfigError("--protocol 10-fold deals its own folds; drop --split.")
        report = fold_probe(
            encoder,
            source,
            classifier=classifier,
            baselines=o.names(baselines or _FOLD_BASELINES),
            **shared,
        )
    else:
        report = run_probe(
            encoder, source, baselines=o.names(baselines or _BASELINES), c=c, split=split, **shared
        )
    console.result(report.to_dict(), *report_tables(report))
