"""Verbs that train: pretrain, finetune, benchmark."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from graphlog.cli import options as o
from graphlog.cli.console import (
    Console,
    Table,
    interruptible,
    job_progress,
    rejected_rows,
    report_tables,
    row_progress,
)
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES

_OBJECTIVE = f"Pretext task (default: graphlog): {', '.join(OBJECTIVES)}."
_RECIPE = (
    "Named settings: default, graphlog, paper, released or plus; other objectives have their own."
)
_BASELINES = "ecfp-rf,ecfp-lr,random"
_REPORTED = ("objective", "recipe", "epochs", "seed", "embedding", "schema", "data_digest")


def pretrain(
    source: o.Input,
    output: o.Run,
    objective: Annotated[
        str | None, typer.Option("--objective", metavar="NAME", help=_OBJECTIVE)
    ] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", metavar="NAME", help=_RECIPE)] = None,
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
        int | None, typer.Option("--seed", metavar="N", min=0, help="Random seed.")
    ] = None,
    init: Annotated[
        str | None,
        typer.Option("--init", metavar="MODEL", help="Start from the weights of this model."),
    ] = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings file; options override it."),
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
    """Pre-train an encoder on INPUT, without labels.

    RUN holds the model, checkpoints, settings and log. After Ctrl-C or a crash, --resume continues
    the run bit for bit.
    """
    from graphlog import api
    from graphlog.domains import domain_of

    console = Console(quiet, as_json)
    if resume and init is not None:
        raise ConfigError("--init starts a run and --resume continues one; drop one of the two.")
    named = {
        "objective": objective,
        "recipe": recipe,
        "encoder.backbone": backbone,
        "epochs": epochs,
        "batch_size": batch_size,
        "precision": precision,
        "device": device,
        "seed": seed,
    }
    kept = output / "config.toml"
    file = kept if resume and config is None and kept.is_file() else config
    start = None if init is None else api.load(init)
    defaults = {} if start is None else {"encoder": start.config.model_dump()}
    progress = job_progress(console)
    with interruptible():
        encoder = api.pretrain(
            source,
            config=o.pretraining_settings(file, named, settings or [], defaults),
            run_dir=output,
            resume=resume,
            overwrite=overwrite,
            init=start,
            progress=progress,
            reading={
                "smiles_column": smiles_column,
                "on_error": on_error,
                "workers": workers,
                "limit": limit,
                "progress": row_progress(progress),
            },
        )
    rejected, rejects = rejected_rows(output)
    summary = {
        "run": str(output),
        "graphs": encoder.info["graphs"],
        "rejected": rejected,
        "rejects": rejects,
        **{key: encoder.info.get(key) for key in _REPORTED},
    }
    console.summary(summary)
    labelled = domain_of(encoder.schema).example or source
    console.say(f"next: graphlog probe {labelled} -m {output}; graphlog plot {output} -o figures")


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
            "--epochs", metavar="N", min=1, help="Passes over the training fold (default: 40)."
        ),
    ] = None,
    protocol: Annotated[
        Literal["default", "paper"] | None,
        typer.Option(
            "--protocol",
            help="default: probe first, encoder trained gently; paper: 100 epochs at one rate.",
        ),
    ] = None,
    seeds: o.Seeds = "0,1,2",
    select: Annotated[
        Literal["last", "best-valid"] | None,
        typer.Option("--select", help="Epoch whose weights are kept (default: last)."),
    ] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Train the head only.")] = False,
    layer: o.Layer = None,
    batch_size: o.BatchSize = None,
    settings: o.Settings = None,
    baselines: Annotated[
        str, typer.Option("--baselines", metavar="A,B", help="ecfp-rf, ecfp-lr, random or none.")
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
    """Train MODEL and a linear head on the labels of INPUT.

    RUN holds the predictor, its scores and its log. Data sets with known tasks need no --targets.
    With -m random the encoder starts untrained.
    """
    from graphlog import api

    console = Console(quiet, as_json)
    named = {
        "protocol": protocol,
        "epochs": epochs,
        "select": select,
        "freeze": freeze or None,
        "layer": layer,
        "batch_size": batch_size,
        "precision": precision,
        "device": device,
    }
    with interruptible():
        predictor = api.finetune(
            model,
            source,
            split,
            o.integers(seeds),
            targets=o.names(targets) or None,
            task=task,
            baselines=o.names(baselines),
            run_dir=output,
            resume=resume,
            overwrite=overwrite,
            progress=job_progress(console),
            smiles_column=smiles_column,
            on_error=on_error,
            workers=workers,
            **o.chosen_settings(named, settings or []),
        )
    report = {"run": str(output), **predictor.report.to_dict()}
    console.result(report, *report_tables(predictor.report))
    console.say(
        f"next: graphlog predict INPUT -m {output} -o predictions.csv; "
        f"graphlog plot {output} -o figures"
    )


_Suite = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="molecules, biology, backbones, ablation, sensitivity, embedding-map, speed, "
        "or report to render the results in DIR.",
    ),
]
_Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Folder of results, models and report; an unfinished one is continued.",
    ),
]
_Names = "A,B"


def benchmark(
    suite: _Suite,
    output: _Output,
    scale: Annotated[
        str,
        typer.Option(
            "--scale",
            metavar="smoke|small|paper",
            help="Minutes, hours, or the protocol of the paper.",
        ),
    ] = "small",
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", metavar=_Names, help="Objectives, untrained, ecfp-rf or ecfp-lr."
        ),
    ] = None,
    datasets: Annotated[
        str | None,
        typer.Option("--datasets", metavar=_Names, help="Labelled data sets to evaluate on."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="0,1,2", help="Seeds of pre-training and fine-tuning."),
    ] = None,
    backbones: Annotated[
        str | None, typer.Option("--backbones", metavar=_Names, help="gin, gcn, graphsage or gat.")
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain", metavar="molecule|protein", help="Domain, for suites that have several."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME|STORE", help="Graphs to pre-train on instead."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="KIND", help="Split of the labelled data sets instead."),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            "--stages", metavar=_Names, help="Only pretrain, finetune, probe, map or speed."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the cells and which are finished; compute nothing."),
    ] = False,
    precision: o.Precision = None,
    device: o.Device = None,
    data_dir: o.DataDir = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Reproduce a table or figure of the paper.

    Every method of SUITE is pre-trained, fine-tuned and probed under one protocol. Finished cells
    are kept: run the command again to continue. Several processes may share one DIR.
    """
    from graphlog import benchmark as bench

    console = Console(quiet, as_json)
    if suite == "report":
        files = bench.write_report(output)
        summary = {"report": str(output / "report"), "files": [str(path) for path in files]}
        console.result(summary, Table(("",), [(str(path),) for path in files]))
        return
    choices: dict[str, Any] = {
        "scale": scale,
        "domain": domain,
        "source": source,
        "split": split,
        "seeds": None if seeds is None else o.integers(seeds),
    }
    for name, text in {
        "methods": methods,
        "datasets": datasets,
        "backbones": backbones,
        "stages": stages,
    }.items():
        choices[name] = o.names(text) or None
    choices |= {"device": device or "auto", "precision": precision or "auto"}
    if dry_run:
        _show_plan(bench.preview(suite, output, **choices), console)
    else:
        _run(suite, output, choices, console)


def _run(suite: str, output: Path, choices: dict[str, Any], console: Console) -> None:
    import sys

    from graphlog import benchmark as bench
    from graphlog.errors import ConfigError
    from graphlog.training.log import Bar, Lines, Silent

    progress = Silent() if console.quiet else Bar() if sys.stderr.isatty() else Lines(every_s=60.0)
    with interruptible():
        outcome = bench.run(suite, output, progress=progress, **choices)
    numbers = {
        "computed": len(outcome.computed),
        "failed": len(outcome.failed),
        "waiting": len(outcome.waiting),
    }
    summary = {
        "suite": suite,
        "cells": outcome.total,
        **numbers,
        "report": str(output / "report") if (output / "report").is_dir() else None,
    }
    console.result(summary, Table(tuple(summary), [tuple(summary.values())]))
    if outcome.failed:
        key, why = next(iter(outcome.failed.items()))
        listed = f"all in {output / 'failures.jsonl'}; fix the cause and run the same command again"
        raise ConfigError(
            f"{len(outcome.failed)} of {outcome.total} cells failed, such as {key}: {why} "
            f"({listed})."
        )
    if outcome.waiting:
        raise ConfigError(
            f"{len(outcome.waiting)} cells need models that are not pre-trained yet; "
            "put pretrain into --stages."
        )


def _show_plan(plan: Any, console: Console) -> None:
    finished = plan.finished
    cells = [{"key": c.key, "stage": c.stage, "finished": c.key in finished} for c in plan.cells]
    rows = [*plan.stages(), ("total", len(cells), len(finished))]
    listing = Table(("cell", "finished"), [(c["key"], c["finished"]) for c in cells])
    console.result(
        {"cells": cells}, listing, Table(("stage", "cells", "finished"), rows, "\nin all")
    )
