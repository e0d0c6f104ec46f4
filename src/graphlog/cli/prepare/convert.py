"""``graphlog convert``: bring a checkpoint of the pre-train-GNNs family into this package's format."""

from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli.console import Console, fields_table
from graphlog.cli.options import Json, Quiet


def convert(
    old: Annotated[
        Path,
        typer.Argument(
            metavar="OLD.pth", help="Checkpoint of GraphLoG, GraphCL, GraphMAE, Mole-BERT, ..."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="MODEL.safetensors", help="Model file to write."),
    ],
    half: Annotated[bool, typer.Option("--half", help="Store weights in 16 bits.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Convert an old checkpoint, chemistry or biology, to a model file; no code in it is ever run."""
    from graphlog.api import convert as run_conversion

    found = run_conversion(old, output, half=half)
    console = Console(quiet, as_json)
    config = found.config
    summary = {
        "model": str(output),
        "schema": found.schema.name,
        "backbone": config.backbone,
        "layers": config.layers,
        "dim": config.dim,
        "bytes": output.stat().st_size,
    }
    console.result(summary, fields_table(summary))
    console.say(f"next: graphlog embed molecules.csv -m {output} -o embeddings.npz")
