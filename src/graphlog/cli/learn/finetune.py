"""``graphlog finetune``: train an encoder and a head on labels."""

from typing import Annotated, Any, Literal

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console

_BASELINES = "ecfp-rf,ecfp-lr,random"


def finetune(
    source: o.Input,
    model: o.Model,
    output: o.Run,
    targets: o.Targets = None,
    task: o.Task = "auto",
    split: o.SplitKind = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs", metavar="N", min=1, help="Passes over the training fold (default: 100)"
        ),
    ] = None,
    seeds: o.Seeds = "0,1,2",
    select: Annotated[
        Literal["last", "best-valid"] | None,
        typer.Option("--select", help="Whose weights predict (default: last)"),
    ] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Train the head alone.")] = False,
    layer: o.Layer = None,
    batch_size: o.BatchSize = None,
    settings: o.Settings = None,
    baselines: Annotated[
        str, typer.Option("--baselines", metavar="A,B", help="ecfp-rf, ecfp-lr, random, none.")
    ] = _BASELINES,
    precision: o.Precision = None,
    device: o.Device = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Train MODEL and a head on the labels of INPUT; RUN holds the predictor, its scores and its log.

    Data sets with known tasks need no --targets. With -m random the encoder starts untrained.
    """
    from graphlog.cli.learn.settings import options_given
    from graphlog.cli.progress import interruptible, job_progress
    from graphlog.cli.reading import refuse_existing_run
    from graphlog.cli.reports import report_tables
    from graphlog.downstream.embed import save_rejects
    from graphlog.downstream.finetune import FinetuneConfig
    from graphlog.downstream.finetune.run import check_seeds
    from graphlog.downstream.finetune.run import finetune as run_finetune
    from graphlog.downstream.models import load_for
    from graphlog.downstream.probe import check_baselines
    from graphlog.downstream.tasks import open_labelled
    from graphlog.report.inputs import remember_input

    console = Console(quiet, as_json)
    refuse_existing_run(output, resume, overwrite)
    chosen_seeds, rows_beside = check_seeds(o.numbers(seeds)), o.names(baselines)
    check_baselines(rows_beside)
    named = {
        "epochs": epochs,
        "select": select,
        "freeze": freeze or None,
        "layer": layer,
        "batch_size": batch_size,
    }
    config = FinetuneConfig.parse(
        options_given({**named, "precision": precision, "device": device}, settings or [])
    )
    encoder = load_for(model, source, device=config.device)
    reading: dict[str, Any] = {
        "smiles_column": smiles_column,
        "on_error": on_error,
        "workers": workers,
    }
    data = open_labelled(
        source, encoder.schema, targets=o.names(targets) or None, task=task, split=split, **reading
    )
    run: dict[str, Any] = {"run_dir": output, "resume": resume, "overwrite": overwrite}
    with interruptible():
        predictor = run_finetune(
            encoder,
            data,
            config,
            seeds=chosen_seeds,
            baselines=rows_beside,
            progress=job_progress(console),
            **run,
        )
    save_rejects(output, data.store.rejects)
    remember_input(output, source, smiles_column=smiles_column, targets=list(predictor.targets))
    console.result(
        {"run": str(output), **predictor.report.to_dict()}, *report_tables(predictor.report)
    )
    console.say(
        f"next: graphlog predict INPUT -m {output} -o predictions.csv; graphlog plot {output} -o figures"
    )
