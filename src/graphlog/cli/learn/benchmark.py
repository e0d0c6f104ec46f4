"""``graphlog benchmark``: every table and figure of the paper."""

from pathlib import Path
from typing import Annotated, Any

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, Table

_Suite = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="molecules, biology, backbones, ablation, sensitivity, embedding-map, speed; or report: render what is there.",
    ),
]
_Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Folder of cells, models and report; it is gone on with.",
    ),
]
_Names = "a,b"


def benchmark(
    suite: _Suite,
    output: _Output,
    scale: Annotated[
        str,
        typer.Option(
            "--scale", metavar="smoke|small|paper", help="Minutes, hours, or the paper's protocol."
        ),
    ] = "small",
    methods: Annotated[
        str | None,
        typer.Option("--methods", metavar=_Names, help="Objectives, untrained, ecfp-rf, ecfp-lr."),
    ] = None,
    datasets: Annotated[
        str | None,
        typer.Option("--datasets", metavar=_Names, help="Labelled data sets to judge on."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="0,1,2", help="Of pre-training and fine-tuning alike."),
    ] = None,
    backbones: Annotated[
        str | None, typer.Option("--backbones", metavar=_Names, help="gin, gcn, graphsage, gat.")
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain", metavar="molecule|protein", help="Graphs of suites that do not say."
        ),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            "--stages", metavar=_Names, help="Only pretrain, finetune, probe, map or speed."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the cells and estimate the time; compute nothing."),
    ] = False,
    precision: o.Precision = None,
    device: o.Device = None,
    data_dir: o.DataDir = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Pre-train, fine-tune and probe every method of SUITE under one protocol and render the paper's table or figure.

    Finished cells are kept, so a run that was stopped goes on, and several processes may work on one DIR at a time.
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
        "seeds": None if seeds is None else o.numbers(seeds),
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
    from graphlog.cli.progress import interruptible
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
        listed = f"all in {output / 'failures.jsonl'}; mend it and run the same command again"
        raise ConfigError(
            f"{len(outcome.failed)} of {outcome.total} cells failed, such as {key}: {why} ({listed})."
        )
    if outcome.waiting:
        raise ConfigError(
            f"{len(outcome.waiting)} cells need models that are not pre-trained yet; put pretrain into --stages."
        )


def _show_plan(plan: Any, console: Console) -> None:
    from graphlog.benchmark.estimate import in_words

    cells = [
        {
            "key": c.key,
            "stage": c.stage,
            "finished": c.key in plan.finished,
            "seconds": plan.estimate.seconds(c),
        }
        for c in plan.cells
    ]
    stages = plan.stages()
    known = [seconds for *_, seconds in stages]
    total = None if None in known else sum(known)
    rows = [
        (stage, n, done, "unknown" if s is None else in_words(s)) for stage, n, done, s in stages
    ]
    rows.append(
        ("total", len(cells), len(plan.finished), "unknown" if total is None else in_words(total))
    )
    listing = Table(("cell", "finished"), [(c["key"], c["finished"]) for c in cells])
    console.result(
        {"cells": cells, "seconds": total},
        listing,
        Table(("stage", "cells", "finished", "time left"), rows, "\nin all"),
    )
