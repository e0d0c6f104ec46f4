"""``graphlog probe``: how much a frozen embedding knows."""

from typing import Annotated

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console

_BASELINES = "random,ecfp-rf,ecfp-lr"


def probe(
    source: o.Input,
    model: o.Model,
    targets: o.Targets = None,
    task: o.Task = "auto",
    split: o.SplitKind = None,
    seeds: o.Seeds = "0,1,2",
    layer: o.Layer = None,
    c: Annotated[float, typer.Option("--c", metavar="C", min=1e-9, help="Fixed inverse penalty; validation chooses another.")] = 0.1,
    baselines: Annotated[str, typer.Option("--baselines", metavar="A,B", help="random, ecfp-rf, ecfp-lr, or none.")] = _BASELINES,
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
    from graphlog.downstream.models import load
    from graphlog.downstream.probe import probe as run_probe

    console = Console(quiet, as_json)
    report = run_probe(
        load(model, device=device or "auto"),
        source,
        layer=layer,
        baselines=o.names(baselines),
        seeds=o.numbers(seeds),
        c=c,
        progress=job_progress(console),
        targets=o.names(targets) or None,
        task=task,
        split=split,
        smiles_column=smiles_column,
        on_error=on_error,
        workers=workers,
    )
    console.result(report.to_dict(), *report_tables(report))
