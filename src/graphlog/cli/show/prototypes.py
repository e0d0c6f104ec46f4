"""``graphlog prototypes``: the learned hierarchy, to read, to compute with and to walk through."""

from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, fields_table


def prototypes(
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Run folder of pretrain, a .safetensors file, or a shipped model's name.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder for tree.json, members.csv and atlas.html.",
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="INPUT",
            help="Graphs to place in the tree (default: those the run was trained on).",
        ),
    ] = None,
    fit: Annotated[
        bool,
        typer.Option(
            "--fit", help="Fit prototypes to INPUT by K-means; for models that learnt none."
        ),
    ] = False,
    graphs: Annotated[
        int,
        typer.Option(
            "--graphs",
            min=5,
            max=20_000,
            metavar="N",
            help="Graphs on the map, drawn at random; traits are judged by them.",
        ),
    ] = 2000,
    targets: o.Targets = None,
    limit: o.Limit = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, help="Decides sample, layout and fitted prototypes."
        ),
    ] = 0,
    precision: o.Precision = None,
    device: o.Device = None,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Place every graph in the tree of prototypes of RUN: sizes, typical graphs, traits, novelty, and a page to explore them."""
    from graphlog.cli.progress import job_progress
    from graphlog.errors import ConfigError
    from graphlog.report.hierarchy.files import write_prototypes

    if source is None and (limit is not None or smiles_column is not None or targets is not None):
        raise ConfigError(
            "--limit, --smiles-column and --targets say how INPUT is read; name one with --input."
        )
    console = Console(quiet, as_json)
    given = {"limit": limit, "smiles_column": smiles_column, "targets": o.names(targets) or None}
    reading = {"workers": workers, "on_error": on_error} | {
        key: value for key, value in given.items() if value is not None
    }
    written = write_prototypes(
        model,
        output,
        source,
        fit=fit,
        graphs=graphs,
        seed=seed,
        precision=precision or "auto",
        device=device or "auto",
        progress=job_progress(console),
        **reading,
    )
    summary = {
        "graphs": written.graphs,
        "rejected": written.rejected,
        "prototypes": " / ".join(map(str, written.layers)),
        "in use": " / ".join(map(str, written.used)),
        **{path.stem: str(path) for path in written.paths},
    }
    console.result(summary, fields_table(summary))
