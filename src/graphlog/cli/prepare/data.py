"""``graphlog data``: the data sets known by name, and splits of any input."""

from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, fields_table

app = typer.Typer(help="The data sets known by name, and splits of any input.", no_args_is_help=True, rich_markup_mode="rich")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a data set; see: graphlog data list.")]


_KINDS = (
    "scaffold (default), scaffold-balanced, random-scaffold or random; of proteins species (default of several species), network "
    "(communities) or random; of any graphs random (default) or stratified by labels."
)


@app.command("list", epilog="Example: graphlog data list")
def list_datasets(data_dir: o.DataDir = None, quiet: o.Quiet = False, as_json: o.Json = False) -> None:
    """List the data sets: rows, tasks, kind, licence, and whether they are on this machine."""
    from graphlog.report.catalogue import describe_datasets

    found = describe_datasets()
    columns = ("name", "rows", "tasks", "kind", "licence", "here", "what it is")
    rows = [(d["name"], d["rows"], d["tasks"] or "", d["kind"], d["licence"], d["here"], d["description"]) for d in found]
    console = Console(quiet, as_json)
    console.result(found, Table(columns, rows))
    console.say("fetch one with: graphlog data get NAME")


@app.command("get", epilog="Example: graphlog data get bbbp")
def get(name: Name, data_dir: o.DataDir = None, quiet: o.Quiet = False, as_json: o.Json = False) -> None:
    """Fetch a data set, check its sha256, and print where it is."""
    from graphlog.datasets import resolve

    path = resolve(name)
    Console(quiet, as_json).result({"name": name, "path": str(path)}, Table(("",), [(path,)]))


@app.command("info", epilog="Example: graphlog data info tox21")
def info(name: Name, data_dir: o.DataDir = None, quiet: o.Quiet = False, as_json: o.Json = False) -> None:
    """Say all there is to know about a data set: tasks, metric, licence, source, hashes."""
    from graphlog.report.catalogue import describe_dataset

    found = describe_dataset(name)
    Console(quiet, as_json).result(
        found, fields_table({**found, **{key: ", ".join(found[key]) or None for key in ("task names", "made from")}})
    )


@app.command("split", epilog="Example: graphlog data split molecules.csv --kind scaffold -o split.json")
def split(
    source: o.Input,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Split file to write (JSON).")],
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help=_KINDS)] = None,
    fractions: Annotated[str, typer.Option("--fractions", metavar="A,B,C", help="Shares of train, valid and test.")] = "0.8,0.1,0.1",
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the kinds that shuffle.")] = 0,
    test_species: Annotated[
        str | None, typer.Option("--test-species", metavar="TAXON", help="species: whom to test on (default: human, else the last).")
    ] = None,
    network: Annotated[
        str | None, typer.Option("--network", metavar="A,B", help="network: the files that a store INPUT was cut from.")
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
    from graphlog.cli.reading import list_rejects, read_graphs, sha256_of
    from graphlog.data.split import Split, check_fractions
    from graphlog.datasets import DATASETS
    from graphlog.datasets.networks.folds import split_store
    from graphlog.datasets.splits import split_dataset
    from graphlog.downstream.embed import check_output
    from graphlog.downstream.tasks import split_graphs

    console = Console(quiet, as_json)
    check_output(output, (".json",))
    shares = check_fractions(o.shares(fractions))
    graphs = read_graphs(source, "molecule", console, smiles_column=smiles_column, on_error=on_error, workers=workers)
    canonical = source in DATASETS and DATASETS[source].canonical_split and not Path(source).exists()
    if graphs.schema.domain == "protein":
        kind, folds = split_store(graphs, source, kind, shares, seed, test_species=test_species, networks=o.names(network))
    elif graphs.schema.domain == "graph":
        kind = kind or "random"
        folds, _ = split_graphs(graphs, kind, shares, seed, labels=graphs.labels)
    else:
        kind = kind or "scaffold"
        folds = split_dataset(graphs.texts(), kind, shares, seed, workers, canonical)
    rows = Split(*(graphs.rows[part] for part in folds))
    rows.save(output, kind, shares, sha256_of(source, graphs))
    list_rejects(graphs, output.absolute().parent)
    summary = {"output": str(output), "kind": kind, **{name: len(part) for name, part in zip(rows._fields, rows, strict=True)}}
    console.result(summary, fields_table(summary))
