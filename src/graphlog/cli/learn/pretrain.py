"""``graphlog pretrain``: train an encoder without labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, fields_table
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES

_TASKS = f"Pretext task, graphlog by default: {', '.join(OBJECTIVES)}."
_RECIPES = (
    "default, paper, released or plus: bundles of settings; the other objectives have their own."
)


def pretrain(
    source: o.Input,
    output: o.Run,
    objective: Annotated[
        str | None, typer.Option("--objective", metavar="NAME", help=_TASKS)
    ] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", metavar="NAME", help=_RECIPES)] = None,
    backbone: Annotated[
        str | None,
        typer.Option("--backbone", metavar="gin|gcn|graphsage|gat", help="Message-passing layer."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs", metavar="N", min=1, help="Passes over the graphs, all phases together."
        ),
    ] = None,
    batch_size: o.BatchSize = None,
    precision: o.Precision = None,
    device: o.Device = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", min=0, help="Decides weights, order, masks and samples."
        ),
    ] = None,
    init: Annotated[
        str | None, typer.Option("--init", metavar="MODEL", help="Start from this model's weights.")
    ] = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings file; options beside it win."),
    ] = None,
    settings: o.Settings = None,
    limit: o.Limit = None,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Train an encoder on INPUT without labels; RUN holds the model, checkpoints, settings and log.

    Ctrl-C leaves a run that --resume continues, bit for bit.
    """
    from graphlog import api
    from graphlog.cli.learn.settings import pretraining_settings
    from graphlog.cli.progress import interruptible, job_progress
    from graphlog.cli.reading import read_graphs, refuse_existing_run
    from graphlog.downstream.embed import save_rejects
    from graphlog.report.inputs import remember_input
    from graphlog.training import resolve_config

    console = Console(quiet, as_json)
    refuse_existing_run(output, resume, overwrite)
    if resume and init is not None:
        raise ConfigError("--init starts a run and --resume goes on with one; drop one of the two.")
    named = {
        "objective": objective,
        "recipe": recipe,
        "encoder.backbone": backbone,
        "epochs": epochs,
        "batch_size": batch_size,
    }
    named |= {"precision": precision, "device": device, "seed": seed}
    file = (
        output / "config.toml"
        if resume and config is None and (output / "config.toml").is_file()
        else config
    )
    start = None if init is None else api.load(init)
    chosen = pretraining_settings(
        file, named, settings or [], {} if start is None else {"encoder": start.config.model_dump()}
    )
    schema = resolve_config(overrides=chosen).schema if start is None else start.schema.name
    like = None if start is None else start.schema
    reading: dict[str, Any] = {
        "smiles_column": smiles_column,
        "on_error": on_error,
        "workers": workers,
    }
    graphs = read_graphs(source, schema, console, limit=limit, like=like, **reading)
    run: dict[str, Any] = {
        "run_dir": output,
        "resume": resume,
        "overwrite": overwrite,
        "init": start,
    }
    try:
        with interruptible():
            encoder = api.pretrain(graphs, config=chosen, progress=job_progress(console), **run)
    finally:
        if (output / "config.toml").is_file():
            remember_input(output, source, limit=limit, smiles_column=smiles_column)
    rejects = save_rejects(output, graphs.rejects)
    summary = {
        "run": str(output),
        "graphs": len(graphs),
        "rejected": len(graphs.rejects),
        "rejects": rejects,
        **_outcome(encoder.info),
    }
    console.result(summary, fields_table(summary))
    labelled = "bbbp" if graphs.schema.domain == "molecule" else source
    console.say(f"next: graphlog probe {labelled} -m {output}; graphlog plot {output} -o figures")


def _outcome(info: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: info.get(key)
        for key in ("objective", "recipe", "epochs", "seed", "embedding", "schema", "data_digest")
    }
