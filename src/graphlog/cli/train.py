"""Verbs that train: pretrain, finetune, benchmark."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import graphlog
from graphlog.cli import options as o
from graphlog.cli.console import (
    Console,
    Table,
    interruptible,
    rejected_rows,
    report_tables,
    row_progress,
)
from graphlog.encoders import LAYERS
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.processes import WORDS, is_first, is_supervised, run_processes

if TYPE_CHECKING:  # heavy
    from graphlog.benchmark.cells import Cell, Request

_OBJECTIVE = f"Pretext task (default: graphlog): {', '.join(OBJECTIVES)}."
_BACKBONE = f"Message-passing layer (default: gin): {', '.join(LAYERS)}."
_RECIPE = "Named settings: default, graphlog, paper or released; other objectives have their own."
_BASELINES = "ecfp-rf,ecfp-lr,random"
_REPORTED = ("objective", "recipe", "epochs", "seed", "embedding", "schema", "data_digest")


def pretrain(
    source: o.Input,
    run_dir: o.Run,
    objective: Annotated[str | None, o.option(_OBJECTIVE, "NAME")] = None,
    recipe: Annotated[str | None, o.option(_RECIPE, "NAME")] = None,
    backbone: Annotated[str | None, o.option(_BACKBONE, "NAME")] = None,
    epochs: Annotated[
        int | None, o.option("Passes over the graphs, all phases together.", "N", min=1)
    ] = None,
    batch_size: o.BatchSize = None,
    precision: o.Precision = None,
    device: o.Device = None,
    seed: Annotated[int | None, o.option("Random seed.", "N", min=0)] = None,
    init: Annotated[str | None, o.option("Start from the weights of this model.", "MODEL")] = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    log: o.Log = None,
    config: Annotated[Path | None, o.option("Settings file; options override it.", "FILE")] = None,
    settings: o.Settings = None,
    threads: o.Threads = None,
    processes: Annotated[
        int,
        o.option(
            "Processes on this machine that share every batch (default: 1); the result is that "
            "of one but for rounding.",
            "K",
            min=1,
        ),
    ] = 1,
    *,
    reading: o.Reading,
    console: Console,
) -> None:
    """Pre-train an encoder on INPUT, without labels.

    RUN holds the model, checkpoints, settings and log. After Ctrl-C or a crash, --resume continues
    the run bit for bit.
    """
    if processes > 1 and not is_supervised():
        if source == "-":
            raise ConfigError("several processes cannot read standard input; write it to a file.")
        raise typer.Exit(run_processes(WORDS.get(), processes))
    from graphlog.domains import domain_of

    console = console if is_first() else Console(quiet=True)
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
    of_run = run_dir / "config.toml"
    file = of_run if resume and config is None and of_run.is_file() else config
    start = None if init is None else graphlog.load(init)
    defaults = {} if start is None else {"encoder": start.config.model_dump()}
    progress = console.progress()
    with interruptible():
        encoder = graphlog.pretrain(
            source,
            config=o.pretraining_settings(file, named, settings or [], defaults),
            run_dir=run_dir,
            resume=resume,
            overwrite=overwrite,
            init=start,
            progress=progress,
            callbacks=log or [],
            reading={**reading.options(), "progress": row_progress(progress)},
        )
    if not is_first():
        return
    rejected, rejects = rejected_rows(run_dir)
    summary = {
        "run": str(run_dir),
        "graphs": encoder.info["graphs"],
        "rejected": rejected,
        "rejects": rejects,
        **{key: encoder.info.get(key) for key in _REPORTED},
    }
    console.summary(summary)
    labeled = domain_of(encoder.schema).example or source
    console.say(f"next: graphlog probe {labeled} -m {run_dir}; graphlog plot {run_dir} -o figures")


def finetune(
    source: o.Input,
    model: o.Model,
    run_dir: o.Run,
    targets: o.Targets = None,
    task: o.Task = "auto",
    split: o.SplitKind = None,
    on_repeats: o.OnRepeats = "keep",
    labels_range: o.LabelsRange = None,
    epochs: Annotated[
        int | None, o.option("Passes over the training fold (default: 40).", "N", min=1)
    ] = None,
    protocol: Annotated[
        Literal["default", "paper"] | None,
        o.option("default: probe first, encoder trained gently; paper: 100 epochs at one rate."),
    ] = None,
    seeds: o.Seeds = "0,1,2",
    select: Annotated[
        Literal["last", "best-valid"] | None,
        o.option("Epoch whose weights are used (default: last; with --patience: best-valid)."),
    ] = None,
    patience: Annotated[
        int | None,
        o.option("Stop a seed after N epochs without a better validation score.", "N", min=1),
    ] = None,
    class_weight: Annotated[
        Literal["balanced"] | None, o.option("Let rare classes count as much as frequent ones.")
    ] = None,
    weights: Annotated[
        str | None, o.option("Column with the weight of each row in training.", "COLUMN")
    ] = None,
    freeze: o.Freeze = False,
    layer: o.Layer = None,
    batch_size: o.BatchSize = None,
    config: Annotated[
        Path | None, o.option("Settings of a run or of tune; options override them.", "FILE")
    ] = None,
    settings: o.Settings = None,
    baselines: Annotated[str, o.option("ecfp-rf, ecfp-lr, random or none.", "A,B")] = _BASELINES,
    precision: o.Precision = None,
    device: o.Device = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    log: o.Log = None,
    threads: o.Threads = None,
    *,
    reading: o.Reading,
    console: Console,
) -> None:
    """Train MODEL and a linear head on the labels of INPUT.

    RUN holds the predictor, its scores and its log. Data sets with known tasks need no --targets.
    With -m random the encoder starts untrained.
    """
    named = {
        "protocol": protocol,
        "epochs": epochs,
        "select": select,
        "patience": patience,
        "class_weight": class_weight,
        "freeze": freeze or None,
        "layer": layer,
        "batch_size": batch_size,
        "precision": precision,
        "device": device,
    }
    with interruptible():
        predictor = graphlog.finetune(
            model,
            source,
            split,
            o.integers(seeds),
            targets=o.names(targets) or None,
            task=task,
            on_repeats=on_repeats,
            labels_range=o.bounds(labels_range),
            weights=weights,
            baselines=o.names(baselines),
            run_dir=run_dir,
            resume=resume,
            overwrite=overwrite,
            progress=console.progress(),
            callbacks=log or [],
            **reading.options(),
            **o.finetuning_settings(config, o.chosen_settings(named, settings or [])),
        )
    report = {"run": str(run_dir), **predictor.report.to_dict()}
    console.result(report, *report_tables(predictor.report))
    console.say(
        f"next: graphlog predict INPUT -m {run_dir} -o predictions.csv; "
        f"graphlog plot {run_dir} -o figures"
    )


_Suite = Annotated[
    str,
    o.argument(
        "molecules, biology, backbones, ablation, sensitivity, embedding-map, adme, speed, "
        "or report to render the results in DIR.",
        "SUITE",
    ),
]


def benchmark(
    suite: _Suite,
    output: Annotated[
        Path,
        o.option(
            "Folder of results, models and report; an unfinished one is continued.",
            "DIR",
            "--output",
            "-o",
        ),
    ],
    scale: Annotated[
        str, o.option("Minutes, hours, or the protocol of the paper.", "smoke|small|paper")
    ] = "small",
    methods: Annotated[
        str | None, o.option("Objectives, untrained, ecfp-rf or ecfp-lr.", "A,B")
    ] = None,
    datasets: Annotated[str | None, o.option("Labeled data sets to evaluate on.", "A,B")] = None,
    seeds: Annotated[
        str | None, o.option("Seeds of pre-training and fine-tuning.", "0,1,2")
    ] = None,
    backbones: Annotated[str | None, o.option(f"Any of {', '.join(LAYERS)}.", "A,B")] = None,
    domain: Annotated[
        str | None, o.option("Domain, for suites that have several.", "molecule|protein")
    ] = None,
    source: Annotated[str | None, o.option("Graphs to pre-train on instead.", "NAME|STORE")] = None,
    split: Annotated[
        str | None, o.option("Split of the labeled data sets instead.", "KIND")
    ] = None,
    stages: Annotated[
        str | None, o.option("Only pretrain, finetune, probe, map, speed or stage-speed.", "A,B")
    ] = None,
    dry_run: Annotated[
        bool, o.option("List the cells and which are finished; compute nothing.", None, "--dry-run")
    ] = False,
    precision: o.Precision = None,
    device: o.Device = None,
    data_dir: o.DataDir = None,
    threads: o.Threads = None,
    *,
    console: Console,
) -> None:
    """Reproduce a table or figure of the paper.

    Every method of SUITE is pre-trained, fine-tuned and probed under one protocol. Finished cells
    are kept: run the command again to continue. Several processes may share one DIR.
    """
    from graphlog import benchmark as bench

    if suite == "report":
        files = bench.write_report(output)
        summary = {"report": str(output / "report"), "files": [str(path) for path in files]}
        console.result(summary, Table(("",), [(str(path),) for path in files]))
        return
    if suite == "speed" and threads is None:
        o.set_threads(1)  # the seconds of one thread can be told from those of other jobs
    request = bench.Request(
        suite,
        scale,
        methods=o.names(methods) or None,
        datasets=o.names(datasets) or None,
        seeds=None if seeds is None else o.integers(seeds),
        backbones=o.names(backbones) or None,
        domain=domain,
        stages=o.names(stages) or None,
        source=source,
        split=split,
        device=device or "auto",
        precision=precision or "auto",
    )
    if dry_run:
        _show_plan(bench.preview(request, output), console)
    else:
        _run(request, output, console)


def _run(request: "Request", output: Path, console: Console) -> None:
    import sys

    from graphlog.training.log import Bar, Lines, Silent

    progress = Silent() if console.quiet else Bar() if sys.stderr.isatty() else Lines(every_s=60.0)
    with interruptible():
        outcome = graphlog.run_benchmark(request, output, progress=progress)
    summary = {
        "suite": request.suite,
        "cells": outcome.total,
        "computed": len(outcome.computed),
        "failed": len(outcome.failed),
        "skipped": len(outcome.skipped),
        "report": str(output / "report") if (output / "report").is_dir() else None,
    }
    console.result(summary, Table(tuple(summary), [tuple(summary.values())]))
    if outcome.failed:
        cell, why = next(iter(outcome.failed.items()))
        listed = f"all in {output / 'failures.jsonl'}; fix the cause and run the same command again"
        raise ConfigError(
            f"{len(outcome.failed)} of {outcome.total} cells failed, such as {cell}: {why} "
            f"({listed})."
        )


def _show_plan(plan: "Sequence[tuple[Cell, bool]]", console: Console) -> None:
    cells = [{"cell": c.title, "stage": c.stage, "finished": done} for c, done in plan]
    stages = list(dict.fromkeys(cell.stage for cell, _ in plan))
    of = {stage: [done for cell, done in plan if cell.stage == stage] for stage in stages}
    rows = [(stage, len(done), sum(done)) for stage, done in of.items()]
    rows.append(("total", len(cells), sum(done for _, done in plan)))
    listing = Table(("cell", "finished"), [(c["cell"], c["finished"]) for c in cells])
    console.result(
        {"cells": cells}, listing, Table(("stage", "cells", "finished"), rows, "\nin all")
    )
