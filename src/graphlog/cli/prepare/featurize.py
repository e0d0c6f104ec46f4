"""``graphlog featurize``: molecules parsed once, into a store that opens at once."""

from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, fields_table
from graphlog.errors import ConfigError


def featurize(
    source: o.Input,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="STORE", help="Store folder to write.")],
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME", help="molecule or molecule-rich (default: that of the default recipe).")
    ] = None,
    targets: o.Targets = None,
    texts: Annotated[bool, typer.Option("--texts/--no-texts", help="Keep the SMILES in the store.")] = True,
    limit: o.Limit = None,
    overwrite: o.Overwrite = False,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Parse INPUT in parallel into a memory-mapped store; rows that are no molecules go to rejects.csv beside it."""
    from graphlog.cli.progress import reading_progress
    from graphlog.data.store import write_rejects
    from graphlog.datasets.featurize import read_molecules
    from graphlog.report.describe import describe_store
    from graphlog.training import resolve_config

    if output.exists() and not overwrite:
        raise ConfigError(f"{output} exists already; replace it with --overwrite, or name another folder.")
    console = Console(quiet, as_json)
    with reading_progress(console) as progress:
        store = read_molecules(
            source,
            schema=schema or resolve_config().schema,
            smiles_column=smiles_column,
            targets="auto" if targets == "auto" else o.names(targets) or None,
            on_error=on_error,
            workers=workers,
            store_path=output,
            progress=progress,
            keep_texts=texts,
            limit=limit,
        )
    rejects = output.absolute().parent / "rejects.csv"
    write_rejects(rejects, store.rejects)
    summary = {**describe_store(output), "rejects": str(rejects)}
    shown = ("path", "graphs", "input rows", "rejected rows", "nodes a graph", "size", "bytes a graph", "rejects")
    console.result(summary, fields_table({key: summary[key] for key in shown}))
    console.say(f"next: graphlog pretrain {output} -o run")
