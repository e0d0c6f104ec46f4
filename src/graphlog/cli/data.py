"""Verbs about data: convert, and data list, get, info, split."""

import json
from pathlib import Path
from typing import Annotated

import typer

import graphlog
from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, fields_table, row_progress


def convert(
    old: Annotated[
        Path,
        typer.Argument(
            metavar="OLD.pth", help="Checkpoint of GraphLoG, GraphCL, GraphMAE, Mole-BERT, ..."
        ),
    ],
    output: Annotated[
        Path, o.option("Model file to write.", "MODEL.safetensors", "--output", "-o")
    ],
    half: Annotated[bool, o.option("Store weights in 16 bits.", None, "--half")] = False,
    *,
    console: Console,
) -> None:
    """Convert a checkpoint of the pre-train-GNNs family.

    Chemistry and biology; no code in the file is ever run.
    """
    encoder = graphlog.convert(old, output, half=half)
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
@o.with_groups
def list_datasets(data_dir: o.DataDir = None, *, console: Console) -> None:
    """List the data sets known by name."""
    datasets = graphlog.describe_datasets()
    columns = ("name", "rows", "tasks", "kind", "licence", "here", "description")
    rows = [tuple(d[name] or "" for name in columns) for d in datasets]
    console.result(datasets, Table(columns, rows))
    console.say("fetch one with: graphlog data get NAME")


@app.command("get", epilog="Example: graphlog data get bbbp")
@o.with_groups
def get(name: Name, data_dir: o.DataDir = None, *, console: Console) -> None:
    """Fetch a data set, check its sha256, and print its path."""
    path = graphlog.fetch_dataset(name)
    console.result({"name": name, "path": str(path)}, Table(("",), [(path,)]))


@app.command("info", epilog="Example: graphlog data info tox21")
@o.with_groups
def info(name: Name, data_dir: o.DataDir = None, *, console: Console) -> None:
    """Describe a data set: tasks, metric, license, source, hashes."""
    description = graphlog.describe_dataset(name)
    lists = {key: ", ".join(description[key]) or None for key in ("task names", "made from")}
    console.result(description, fields_table({**description, **lists}))


@app.command(
    "split", epilog="Example: graphlog data split molecules.csv --kind scaffold -o split.json"
)
@o.with_groups
def split(
    source: o.Input,
    output: Annotated[Path, o.option("Split file to write (JSON).", "FILE", "--output", "-o")],
    kind: Annotated[str | None, o.option(_KINDS, "KIND")] = None,
    fractions: Annotated[
        str, o.option("Fractions of train, valid and test.", "A,B,C")
    ] = "0.8,0.1,0.1",
    seed: Annotated[int, o.option("Random seed of the kinds that shuffle.", "N", min=0)] = 0,
    test_species: Annotated[
        str | None,
        o.option(
            "With species: species of the test fold (default: human, else the last).", "TAXON"
        ),
    ] = None,
    network: Annotated[
        str | None, o.option("With network: files of the network, where INPUT is a store.", "A,B")
    ] = None,
    *,
    reading: o.Reading,
    console: Console,
) -> None:
    """Split INPUT by scaffold, species, community or at random.

    Rows are counted from 0; rejected rows, and proteins without any label in a labeled set, are in
    no fold. Proteins, for example: graphlog data split worm-go40 --kind network -o split.json
    """
    progress = console.progress()
    rows = graphlog.split_file(
        source,
        output,
        kind,
        fractions=o.fractions(fractions),
        seed=seed,
        test_species=test_species,
        networks=o.names(network),
        progress=row_progress(progress),
        **reading.options(),
    )
    progress.end()
    console.summary(
        {
            "output": str(output),
            "kind": json.loads(output.read_text(encoding="utf-8"))["kind"],
            **{name: len(part) for name, part in zip(rows._fields, rows, strict=True)},
        }
    )
