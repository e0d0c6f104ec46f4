"""``graphlog featurize``: molecules, proteins or any graphs read once, into a store that opens at once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, fields_table
from graphlog.cli.prepare import graphs as g
from graphlog.cli.prepare import proteins as p
from graphlog.errors import ConfigError


def featurize(
    source: o.Input,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="STORE", help="Store folder to write.")
    ],
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="NAME",
            help="molecule or molecule-rich (default: that of the default recipe).",
        ),
    ] = None,
    domain: p.Domain = None,
    targets: o.Targets = None,
    like: g.Like = None,
    categorical: g.Categorical = None,
    continuous: g.Continuous = None,
    directed: g.Directed = False,
    texts: Annotated[
        bool, typer.Option("--texts/--no-texts", help="Keep the SMILES in the store.")
    ] = True,
    limit: o.Limit = None,
    overwrite: o.Overwrite = False,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    annotations: p.Annotations = None,
    go: p.Go = None,
    go_terms: p.GoTerms = None,
    aliases: p.Aliases = None,
    labels: p.Labels = None,
    species: p.Species = None,
    score: p.Score = None,
    channel_score: p.ChannelScore = None,
    radius: p.Radius = None,
    neighbours: p.Neighbours = None,
    nodes: p.Nodes = None,
    isolated: p.Isolated = None,
    terms: p.Terms = None,
    min_positives: p.MinPositives = None,
    max_overlap: p.MaxOverlap = None,
    without_evidence: p.Evidence = None,
    labelled_only: p.LabelledOnly = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Parse INPUT in parallel into a memory-mapped store; rows that are no graphs go to rejects.csv beside it.

    Proteins: graphlog featurize 6239.protein.links.detailed.v12.0.txt.gz --domain protein --annotations wb.gaf.gz
    --go go-basic.obo --aliases 6239.protein.aliases.v12.0.txt.gz -o worm.store. INPUT is then one or more network files
    (a,b), a folder of them, or a name such as string-6239.

    Any graphs: INPUT is a folder with edges.csv, a .jsonl file, a folder or zip of TUDataset, or GIN's text format; what its
    attributes are is found out and shown.
    """
    from graphlog.cli.progress import reading_progress
    from graphlog.data.store import write_rejects
    from graphlog.datasets.featurize import read_molecules
    from graphlog.downstream.embed import REJECTS, check_rejects
    from graphlog.report.describe import describe_store
    from graphlog.training import resolve_config

    if output.exists() and not overwrite:
        raise ConfigError(
            f"{output} exists already; replace it with --overwrite, or name another folder."
        )
    check_rejects(output.absolute().parent, source)
    console = Console(quiet, as_json)
    any_graphs = {
        "like": like,
        "categorical": categorical,
        "continuous": continuous,
        "directed": directed,
    }
    unfit = {"schema": schema, "smiles_column": smiles_column, "targets": targets}
    for_graphs = g.reading_of(source, any_graphs, unfit) if domain is None else None
    given: dict[str, Any] = {
        "annotations": annotations,
        "go": go,
        "go_terms": go_terms,
        "aliases": aliases,
        "labels": labels,
    }
    given |= {
        "species": species,
        "score": score,
        "channel_score": channel_score,
        "radius": radius,
        "neighbours": neighbours,
    }
    given |= {
        "nodes": nodes,
        "isolated": isolated,
        "terms": terms,
        "min_positives": min_positives,
        "max_overlap": max_overlap,
    }
    given |= {"evidence": without_evidence, "labelled_only": labelled_only}
    for_proteins = p.reading_of(source, domain, schema, given)
    told: dict[str, Any] = {
        "on_error": on_error,
        "workers": workers,
        "store_path": output,
        "limit": limit,
    }
    with reading_progress(console) as progress:
        if for_graphs is not None:
            store = g.read(source, for_graphs, progress=progress, **told)
        elif for_proteins is not None:
            store = p.read(
                source,
                for_proteins,
                smiles_column=smiles_column,
                targets=targets,
                progress=progress,
                **told,
            )
        else:
            wanted = "auto" if targets == "auto" else o.names(targets) or None
            chosen: dict[str, Any] = {
                "schema": schema or resolve_config().schema,
                "smiles_column": smiles_column,
                "targets": wanted,
            }
            store = read_molecules(source, progress=progress, keep_texts=texts, **chosen, **told)
    rejects = output.absolute().parent / REJECTS
    write_rejects(rejects, store.rejects)
    summary: dict[str, Any] = {**describe_store(output), "rejects": str(rejects)}
    shown = (
        "path",
        "graphs",
        "input rows",
        "rejected rows",
        "nodes a graph",
        "tasks",
        "size",
        "bytes a graph",
        "rejects",
    )
    tables = [
        fields_table({**{key: summary[key] for key in shown}, "tasks": len(store.tasks) or None})
    ]
    if for_graphs is not None:
        tables.append(fields_table(summary["schema"], "\nschema"))
    console.result(summary, *tables)
    console.say(f"next: graphlog pretrain {output} -o run")
