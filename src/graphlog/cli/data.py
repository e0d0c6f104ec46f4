"""Verbs about data: convert, and data list, get, info, split."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, fields_table
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


app = typer.Typer(
    help="The data sets known by name, and splits of any input.",
    epilog="Example: graphlog data split bbbp --kind scaffold -o split.json",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a data set; see: graphlog data list.")
]


_KINDS = (
    "scaffold (default), scaffold-balanced, random-scaffold or random; of proteins species (default of several species), network "
    "(communities) or random, unless the named set has a default of its own; of any graphs random (default) or stratified by labels."
)


@app.command("list", epilog="Example: graphlog data list")
def list_datasets(
    data_dir: o.DataDir = None, quiet: o.Quiet = False, as_json: o.Json = False
) -> None:
    """List the data sets: rows, tasks, kind, licence, and whether they are on this machine."""
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
    """Fetch a data set, check that it is the one this version knows, and print where it is."""
    from graphlog.datasets import resolve

    path = resolve(name)
    Console(quiet, as_json).result({"name": name, "path": str(path)}, Table(("",), [(path,)]))


@app.command("info", epilog="Example: graphlog data info tox21")
def info(
    name: Name, data_dir: o.DataDir = None, quiet: o.Quiet = False, as_json: o.Json = False
) -> None:
    """Say all there is to know about a data set: tasks, metric, licence, source, hashes."""
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
        str, typer.Option("--fractions", metavar="A,B,C", help="Shares of train, valid and test.")
    ] = "0.8,0.1,0.1",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of the kinds that shuffle.")
    ] = 0,
    test_species: Annotated[
        str | None,
        typer.Option(
            "--test-species",
            metavar="TAXON",
            help="species: whom to test on (default: human, else the last).",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--network", metavar="A,B", help="network: the files that a store INPUT was cut from."
        ),
    ] = None,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Split INPUT so that scaffolds, species or communities stay together; rows are counted from 0, rejected ones are in no fold.

    Proteins, for example: graphlog data split worm-go40 --kind network -o split.json. Of a labelled set, proteins without a
    label are in no fold.
    """
    from graphlog.cli.console import read_graphs
    from graphlog.data.split import check_fractions
    from graphlog.downstream.embed import check_output, save_rejects
    from graphlog.downstream.protocol.splitting import split_file

    console = Console(quiet, as_json)
    check_output(output, (".json",), source)
    shares = check_fractions(o.shares(fractions))
    graphs = read_graphs(
        source, "molecule", console, smiles_column=smiles_column, on_error=on_error, workers=workers
    )
    chosen: dict[str, Any] = {"test_species": test_species, "networks": o.names(network)}
    rows = split_file(
        source, output, kind, fractions=shares, seed=seed, graphs=graphs, workers=workers, **chosen
    )
    save_rejects(output.parent, graphs.rejects)
    made = json.loads(output.read_text(encoding="utf-8"))["kind"]
    summary = {
        "output": str(output),
        "kind": made,
        **{name: len(part) for name, part in zip(rows._fields, rows, strict=True)},
    }
    console.result(summary, fields_table(summary))
