"""Verbs about data: convert, and data list, get, info, split."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, fields_table, reading_progress
from graphlog.cli.options import Json, Quiet
from graphlog.errors import ConfigError

if TYPE_CHECKING:
    from graphlog.data.store import GraphStore


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
    from graphlog.inputs import fetch_dataset

    path = fetch_dataset(name)
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
    from graphlog.data.split import check_fractions
    from graphlog.downstream.embed import check_output, save_rejects
    from graphlog.downstream.protocol.splitting import split_file

    console = Console(quiet, as_json)
    check_output(output, (".json",), source)
    shares = check_fractions(o.fractions(fractions))
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
    console.summary(summary)


def read_graphs(
    source: str,
    schema: str,
    console: Console,
    *,
    limit: int | None = None,
    like: Any = None,
    **reading: Any,
) -> "GraphStore":
    """Return the graphs of a store, or those of a file or data set in ``schema``; named proteins are in their own.

    Any graphs are read in the schema ``like``, or in what is found out about them.
    """
    from graphlog.inputs import read, resolve, schema_for

    found = resolve(source)
    if found.store is not None:
        return read(found, limit=limit)
    with reading_progress(console) as progress:
        wanted = like or schema_for(found, schema)
        store = read(found, wanted, progress=progress, limit=limit, **reading)
    console.say(
        f"read {len(store):,} graphs from {source}; {len(store.rejects):,} of {store.num_rows:,} rows rejected"
    )
    return store


def refuse_existing_run(folder: Path, resume: bool, overwrite: bool) -> None:
    """Refuse a run folder before its input is read, which may take long.

    Raises:
        ConfigError: If there is a run and neither ``resume`` nor ``overwrite`` is given, or both are.
    """
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other; choose one.")
    if (folder / "config.toml").is_file() and not (resume or overwrite):
        raise ConfigError(
            f"run folder {folder} exists; continue it with --resume or replace it with --overwrite."
        )
