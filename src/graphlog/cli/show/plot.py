"""``graphlog plot``: the pictures of a run."""

from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli.console import Console, Table
from graphlog.cli.options import DataDir, Json, Quiet
from graphlog.errors import ConfigError


def plot(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Run folder of pretrain or finetune, or folder of a benchmark."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the figures.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="INPUT",
            help="Graphs to map (default: those the run was trained on).",
        ),
    ] = None,
    graphs: Annotated[
        int,
        typer.Option(
            "--graphs", min=5, max=20_000, metavar="N", help="Graphs on the map, drawn at random."
        ),
    ] = 2000,
    colour: Annotated[
        str | None,
        typer.Option(
            "--colour",
            metavar="prototype|scaffold|label",
            help="What colours the map (default: prototype; label after finetune).",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, help="Decides the sample and the layout of the map."
        ),
    ] = 0,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw training curves, the collapse watch, the embedding map, the tree of prototypes and scores of RUN, as PNG and SVG.

    Of a benchmark: scores, the curves of depth and batch size, maps and speeds.
    """
    console = Console(quiet, as_json)
    if (run / "cells").is_dir():
        from graphlog.benchmark import draw_figures

        if source or colour:
            raise ConfigError(
                f"{run} is the folder of a benchmark, whose maps are drawn already; drop --input and --colour."
            )
        paths = draw_figures(run, output)
    else:
        from graphlog.report.run import draw_run

        paths = draw_run(
            run, output, source, graphs=graphs, colour=colour, seed=seed, say=console.say
        )
    console.result({"figures": [str(p) for p in paths]}, Table(("",), [(p,) for p in paths]))
