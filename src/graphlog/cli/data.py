"""Verbs about data: convert, and data list, get, info, split."""

import json
from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, fields_table, job_progress, row_progress
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
    """Convert a checkpoint of the pre-train-GNNs family.

    Chemistry and biology; no code in the file is ever run.
    """
    from graphlog.api import convert as run_conversion

    encoder = run_conversion(old, output, half=half)
    console = Console(quiet, as_json)
    config = encoder.config
    summary = {
        "model": str(output),
        "schema": encoder.schema.name,
        "backbone": config.backbone,
        "layers": config.layers,
        "dim": config.dim,
        "bytes": output.stat().st_size,
    }
    console.summary(summary)
    console.say(f"next: graphlog embed molecules.csv -m {output} -o embeddings.npz")


app = typer.Typer(
    help="List, fetch and split data sets.",
    epilog="Example: graphlog data split bbbp --kind scaffold -o split.json",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a data set; see: graphlog data list.")
]


_KINDS = (
    "Molecules: scaffold (default), scaffold-balanced, random-scaffold, random. Proteins: species, "
    "network, random. Any graphs: random (default), stratified."
)


@app.command("list", epilog="Example: graphlog data list")
def list_datasets(
    data_dir: o.DataDir = None, quiet: o.Quiet = False, as_json: o.Json = False
) -> None:
    """List the data sets known by name."""
    from graphlog.report.describe import describe_datasets

    found = describe_datasets()
    columns = ("name", "rows", "tasks", "kind", "licence", "here", "what it is")
    rows = [
        (
            d["name"],
            d["rows"],
            d["tasks"] or "",
            d["kind"],
            d["licence"],
            d["here"],
            d["description"],
        )
        for d in found
    ]
    console = Console(quiet, as_json)
    console.result(found, Table(columns, rows))
    console.say("fetch one with: graphlog data get NAME")


@app.command("get", epilog="Example: graphlog data get bbbp")
def get(
    name: Name, data_dir: o.DataDir = None, quiet: o.Quiet = False, as_json: o.Json = False
) -> None:
    """Fetch a data set, check its sha256, and print its path."""
    from graphlog import api

    path = api.fetch_dataset(name)
    Console(quiet, as_json).result({"name": name, "path": str(path)}, Table(("",), [(path,)]))


@app.command("info", epilog="Example: graphlog data info tox21")
def info(
    name: Name, data_dir: o.DataDir = None, quiet: o.Quiet = False, as_json: o.Json = False
) -> None:
    """Describe a data set: tasks, metric, license, source, hashes."""
    from graphlog.report.describe import describe_dataset

    found = describe_dataset(name)
    Console(quiet, as_json).result(
        found,
        fields_table(
            {**found, **{key: ", ".join(found[key]) or None for key in ("task names", "made from")}}
        ),
    )


@app.command(
    "split", epilog="Example: graphlog data split molecules.csv --kind scaffold -o split.json"
)
def split(
    source: o.Input,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Split file to write (JSON).")
    ],
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help=_KINDS)] = None,
    fractions: Annotated[
        str,
        typer.Option("--fractions", metavar="A,B,C", help="Fractions of train, valid and test."),
    ] = "0.8,0.1,0.1",
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", min=0, help="Random seed of the kinds that shuffle."),
    ] = 0,
    test_species: Annotated[
        str | None,
        typer.Option(
            "--test-species",
            metavar="TAXON",
            help="With species: species of the test fold (default: human, else the last).",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="A,B",
            help="With network: files of the network, where INPUT is a store.",
        ),
    ] = None,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Split INPUT by scaffold, species, community or at random.

    Rows are counted from 0; rejected rows, and proteins without any label in a labeled set, are in
    no fold. Proteins, for example: graphlog data split worm-go40 --kind network -o split.json
    """
    from graphlog import api

    console = Console(quiet, as_json)
    progress = job_progress(console)
    rows = api.split_file(
        source,
        output,
        kind,
        fractions=o.fractions(fractions),
        seed=seed,
        test_species=test_species,
        networks=o.names(network),
        smiles_column=smiles_column,
        on_error=on_error,
        workers=workers,
        progress=row_progress(progress),
    )
    progress.end()
    summary = {
        "output": str(output),
        "kind": json.loads(output.read_text(encoding="utf-8"))["kind"],
        **{name: len(part) for name, part in zip(rows._fields, rows, strict=True)},
    }
    console.summary(summary)
