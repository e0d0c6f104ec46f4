"""``graphlog featurize``: read molecules, proteins or any graphs once into a store."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, fields_table
from graphlog.cli.options import names
from graphlog.errors import ConfigError

if TYPE_CHECKING:
    from graphlog.data.store import GraphStore

_ANY_GRAPHS, _PROTEINS = "Any graphs", "Proteins"
Like = Annotated[
    str | None,
    typer.Option(
        "--like",
        metavar="MODEL|STORE",
        help="Read attributes as this does, not as found out.",
        rich_help_panel=_ANY_GRAPHS,
    ),
]
Categorical = Annotated[
    str | None,
    typer.Option(
        "--categorical",
        metavar="A,B",
        help="Attributes that are categories.",
        rich_help_panel=_ANY_GRAPHS,
    ),
]
Continuous = Annotated[
    str | None,
    typer.Option(
        "--continuous",
        metavar="A,B",
        help="Attributes that are quantities.",
        rich_help_panel=_ANY_GRAPHS,
    ),
]
Directed = Annotated[
    bool,
    typer.Option(
        "--directed", help="Each edge is one direction only.", rich_help_panel=_ANY_GRAPHS
    ),
]


def _graph_options(
    source: str, given: Mapping[str, Any], unfit: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return what ``read_graphs`` is to be told; None where INPUT is no collection of any graphs.

    Args:
        source: INPUT.
        given: The options of this module, by name.
        unfit: Options that mean nothing here, by name.

    Raises:
        ConfigError: If an option does not fit INPUT.
    """
    from graphlog.data.store import is_store, open_store
    from graphlog.domains.graph.reading import is_graphs
    from graphlog.report.describe import schema_of

    is_any = is_graphs(source)
    for key, value in (unfit if is_any else given).items():
        if value:
            raise ConfigError(
                f"--{key.replace('_', '-')} does not go with {source}, which holds {'' if is_any else 'no '}graphs; drop it."
            )
    if not is_any:
        return None
    kinds = {name: kind for kind in ("categorical", "continuous") for name in names(given[kind])}
    like = given["like"]
    schema = None if like is None else open_store(like) if is_store(like) else schema_of(like)
    return {"schema": schema, "kinds": kinds or None, "directed": given["directed"]}


def _read_graphs(
    source: str, reading: Mapping[str, Any], workers: int | None = None, **told: Any
) -> "GraphStore":
    """Return the graphs of INPUT; one process reads them."""
    from graphlog.domains.graph.reading import read_graphs

    return read_graphs(Path(source) if Path(source).exists() else source, **told, **reading)


Domain = Annotated[
    Literal["molecule", "protein"] | None,
    typer.Option(
        "--domain", help="What INPUT holds (default: that of the named data set, else molecule)."
    ),
]
Annotations = Annotated[
    str | None,
    typer.Option(
        "--annotations",
        metavar="A,B",
        help="GO annotation files (GAF), labels are chosen from them.",
        rich_help_panel=_PROTEINS,
    ),
]
Go = Annotated[
    Path | None,
    typer.Option(
        "--go",
        metavar="FILE",
        help="The GO graph: go-basic.obo, or a table of edges.",
        rich_help_panel=_PROTEINS,
    ),
]
GoTerms = Annotated[
    Path | None,
    typer.Option(
        "--go-terms",
        metavar="FILE",
        help="Table of terms beside a table of edges.",
        rich_help_panel=_PROTEINS,
    ),
]
Aliases = Annotated[
    str | None,
    typer.Option(
        "--aliases",
        metavar="A,B",
        help="STRING's protein.aliases files.",
        rich_help_panel=_PROTEINS,
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Instead of annotations, a table of labels.",
        rich_help_panel=_PROTEINS,
    ),
]
Species = Annotated[
    str | None,
    typer.Option(
        "--species",
        metavar="TAXON",
        help="Of a network that does not say.",
        rich_help_panel=_PROTEINS,
    ),
]
Score = Annotated[
    int | None,
    typer.Option(
        "--score",
        metavar="N",
        help="Lowest combined score of an interaction (default: 700).",
        rich_help_panel=_PROTEINS,
    ),
]
ChannelScore = Annotated[
    str | None,
    typer.Option(
        "--channel-score",
        metavar="N|NAME=N,..",
        help="Lowest score that sets a channel, such as textmining=500.",
        rich_help_panel=_PROTEINS,
    ),
]
Radius = Annotated[
    int | None,
    typer.Option(
        "--radius",
        metavar="N",
        help="Steps from the centre (default: 1).",
        rich_help_panel=_PROTEINS,
    ),
]
Neighbours = Annotated[
    int | None,
    typer.Option(
        "--neighbours",
        metavar="N",
        help="Strongest partners followed from a protein (default: 100).",
        rich_help_panel=_PROTEINS,
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        metavar="N",
        help="Proteins of an ego-network at most (default: 500).",
        rich_help_panel=_PROTEINS,
    ),
]
Isolated = Annotated[
    Literal["reject", "keep"] | None,
    typer.Option(
        "--isolated",
        help="Proteins without partners: reject them, or keep graphs of one node.",
        rich_help_panel=_PROTEINS,
    ),
]
Terms = Annotated[
    int | None,
    typer.Option(
        "--terms",
        metavar="N",
        help="Functions to choose at most (default: 40).",
        rich_help_panel=_PROTEINS,
    ),
]
MinPositives = Annotated[
    int | None,
    typer.Option(
        "--min-positives",
        metavar="N",
        help="Fewest positives of a function (default: 100).",
        rich_help_panel=_PROTEINS,
    ),
]
MaxOverlap = Annotated[
    float | None,
    typer.Option(
        "--max-overlap",
        metavar="J",
        help="Functions overlap less than this (Jaccard, default: 0.8).",
        rich_help_panel=_PROTEINS,
    ),
]
Evidence = Annotated[
    str | None,
    typer.Option(
        "--without-evidence",
        metavar="A,B",
        help="Evidence codes that do not count (default: IEA,ND,NAS).",
        rich_help_panel=_PROTEINS,
    ),
]
LabelledOnly = Annotated[
    bool | None,
    typer.Option(
        "--labelled-only",
        help="Reject proteins without a usable annotation.",
        rich_help_panel=_PROTEINS,
    ),
]


def _protein_options(
    source: str, domain: str | None, schema: str | None, given: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return what ``read_proteins`` is to be told, from the options that were given; None where INPUT holds no proteins.

    Raises:
        ConfigError: If an option is for proteins and INPUT holds none, or a score of a channel is no number.
    """
    from graphlog.downstream.sources import domain_of

    reading = {key: value for key, value in given.items() if value is not None}
    if (domain or ("protein" if schema == "protein" else domain_of(source))) != "protein":
        if reading:
            option = next(iter(reading)).replace("_", "-").replace("evidence", "without-evidence")
            raise ConfigError(f"--{option} is for networks of proteins; add --domain protein.")
        return None
    for key in ("annotations", "aliases"):
        if key in reading:
            reading[key] = names(reading[key])
    if "evidence" in reading:
        reading["evidence"] = tuple(names(reading["evidence"]))
    if "channel_score" in reading:
        reading["channel_score"] = _channel_scores(reading["channel_score"])
    return reading


def _read_proteins(source: str, reading: Mapping[str, Any], **told: Any) -> "GraphStore":
    """Return the ego-networks of INPUT, or of each network it lists: ``a.txt.gz,b.txt.gz``."""
    from graphlog.domains.protein.stores import open_proteins

    return open_proteins(
        source if Path(source).exists() or "," not in source else names(source), **told, **reading
    )


def _channel_scores(text: str) -> int | dict[str, int]:
    try:
        if "=" not in text:
            return int(text)
        pairs = [part.partition("=") for part in names(text)]
        return {name.strip(): int(least) for name, _, least in pairs}
    except ValueError:
        raise ConfigError(
            f"--channel-score must be a number from 1 to 1000, or such as textmining=500,database=300, found {text!r}."
        ) from None


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
    domain: Domain = None,
    targets: o.Targets = None,
    like: Like = None,
    categorical: Categorical = None,
    continuous: Continuous = None,
    directed: Directed = False,
    texts: Annotated[
        bool, typer.Option("--texts/--no-texts", help="Keep the SMILES in the store.")
    ] = True,
    limit: o.Limit = None,
    overwrite: o.Overwrite = False,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    annotations: Annotations = None,
    go: Go = None,
    go_terms: GoTerms = None,
    aliases: Aliases = None,
    labels: Labels = None,
    species: Species = None,
    score: Score = None,
    channel_score: ChannelScore = None,
    radius: Radius = None,
    neighbours: Neighbours = None,
    nodes: Nodes = None,
    isolated: Isolated = None,
    terms: Terms = None,
    min_positives: MinPositives = None,
    max_overlap: MaxOverlap = None,
    without_evidence: Evidence = None,
    labelled_only: LabelledOnly = None,
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
    from graphlog.cli.console import reading_progress
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
    for_graphs = _graph_options(source, any_graphs, unfit) if domain is None else None
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
    for_proteins = _protein_options(source, domain, schema, given)
    told: dict[str, Any] = {
        "on_error": on_error,
        "workers": workers,
        "store_path": output,
        "limit": limit,
    }
    with reading_progress(console) as progress:
        if for_graphs is not None:
            store = _read_graphs(source, for_graphs, progress=progress, **told)
        elif for_proteins is not None:
            store = _read_proteins(
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
