"""``graphlog pretrain``: train an encoder without labels."""

from pathlib import Path
from typing import Annotated, Any

import typer

from graphlog.cli.console import Console, fields_table
from graphlog.cli.options import DataDir, Input, Json, OnError, Overwrite, Quiet, Run, SmilesColumn, Threads, Workers


def pretrain(
    source: Input,
    output: Run,
    objective: Annotated[str | None, typer.Option("--objective", metavar="NAME", help="Pretext task [default: graphlog].")] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", metavar="NAME", help="default, paper, released: named bundles of settings.")] = None,
    backbone: Annotated[str | None, typer.Option("--backbone", metavar="gin|gcn|graphsage|gat", help="Message-passing layer.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Passes over the graphs in all; GraphLoG's first is local.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", min=2, help="Graphs a step.")] = None,
    precision: Annotated[str | None, typer.Option("--precision", metavar="auto|fp32|bf16", help="Precision of matrix products.")] = None,
    device: Annotated[str | None, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to train.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Decides weights, order, masks and samples.")] = None,
    init: Annotated[str | None, typer.Option("--init", metavar="MODEL", help="Continue from this model's weights.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN.")] = False,
    overwrite: Overwrite = False,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings file; options given beside it win.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as encoder.dim=64; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N rows of INPUT.")] = None,
    smiles_column: SmilesColumn = None,
    data_dir: DataDir = None,
    on_error: OnError = "skip",
    workers: Workers = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on INPUT without labels; RUN holds the model, its checkpoints, settings and log.

    Ctrl-C leaves a run that --resume continues, bit for bit where it stopped.
    """
    named = {"objective": objective, "recipe": recipe, "encoder.backbone": backbone, "epochs": epochs, "batch_size": batch_size}
    named |= {"precision": precision, "device": device, "seed": seed}
    console = Console(quiet, as_json)
    run = _run(source, output, named, settings or [], config, init, resume, overwrite, limit, console, smiles_column, on_error, workers)
    console.result(run, fields_table({k: v for k, v in run.items() if k != "settings"}, f"Pre-trained model in {output}"))
