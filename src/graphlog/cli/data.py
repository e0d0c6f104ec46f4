"""Verbs about data: featurize, convert, and data list, get, info, split."""

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

import graphlog
from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, fields_table, row_progress
from graphlog.errors import out_of_range


class _Option(NamedTuple):
    """One option of a domain; None where it is not given."""

    name: str
    type: Any
    metavar: str | None
    help: str


_FLAGS = {"evidence": "--without-evidence", "kinds": "--categorical"}
"""Of the options whose name in Python is another."""
_ANY_GRAPHS = (
    _Option("like", str, "MODEL|STORE", "Use the schema of this instead of inferring one."),
    _Option("kinds", str, "A,B", "Attributes that are categories."),
    _Option("continuous", str, "A,B", "Attributes that are quantities."),
    _Option("directed", bool, None, "Each edge has one direction only."),
)
_PROTEINS = (
    _Option("annotations", str, "A,B", "GO annotation files (GAF) to take labels from."),
    _Option("go", Path, "FILE", "The Gene Ontology: go-basic.obo, or a table of edges."),
    _Option("go_terms", Path, "FILE", "Table of terms that goes with a table of edges."),
    _Option("aliases", str, "A,B", "STRING's protein.aliases files."),
    _Option("labels", Path, "FILE", "A table of labels, instead of annotations."),
    _Option("species", str, "TAXON", "Species of a network that does not name it."),
    _Option("score", int, "N", "Lowest combined score of an interaction (default: 700)."),
    _Option("channel_score", str, "N|NAME=N,..", "Lowest score of a channel: textmining=500."),
    _Option("radius", int, "N", "Steps from the center of an ego-network (default: 1)."),
    _Option("neighbors", int, "N", "Strongest partners followed per protein (default: 100)."),
    _Option("nodes", int, "N", "Largest number of proteins in an ego-network (default: 500)."),
    _Option("isolated", Literal["reject", "keep"], None, "What to do without any partner."),
    _Option("terms", int, "N", "Largest number of GO terms to predict (default: 40)."),
    _Option("min_positives", int, "N", "Fewest positives of a GO term (default: 100)."),
    _Option("max_overlap", float, "J", "Largest Jaccard overlap of two terms (default: 0.8)."),
    _Option("evidence", str, "A,B", "Evidence codes to ignore (default: IEA,ND,NAS)."),
    _Option("labeled_only", bool, None, "Reject proteins without a usable annotation."),
)


def _with_domain_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the options of domains to a verb, one help panel each; it gets them as keywords."""
    signature = inspect.signature(verb)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own]
    for panel, options in (("Proteins", _PROTEINS), ("Any graphs", _ANY_GRAPHS)):
        for name, kind, metavar, help in options:
            flag = _FLAGS.get(name) or f"--{name.replace('_', '-')}"
            option = o.option(help, metavar, flag, rich_help_panel=panel, show_default=False)
            annotation = Annotated[kind | None, option]
            parameters.append(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                )
            )
    verb.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    verb.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return verb


@_with_domain_options
def featurize(
    source: o.Input,
    output: Annotated[Path, o.option("Store folder to write.", "STORE", "--output", "-o")],
    domain: Annotated[
        str | None,
        o.option("Content of INPUT: molecule, protein or graph (default: what it shows).", "NAME"),
    ] = None,
    schema: Annotated[
        str | None,
        o.option(
            "molecule, molecule-rich, molecule-cip or molecule-isotopes (default: that of the "
            "default recipe).",
            "NAME",
        ),
    ] = None,
    targets: o.Targets = None,
    keep_texts: Annotated[
        bool, o.option("Keep the SMILES in the store.", None, "--texts/--no-texts")
    ] = True,
    exclude: Annotated[
        list[str] | None,
        o.option(
            "Leave out the molecules of this file or data set, stereo aside; repeatable.", "FILE"
        ),
    ] = None,
    engine: o.Engine = "local",
    overwrite: o.Overwrite = False,
    *,
    reading: o.Reading,
    console: Console,
    **domain_options: Any,
) -> None:
    """Read INPUT once, in parallel, into a memory-mapped store.

    Rows that cannot be used are listed in rejects.csv beside the store.

    Proteins: graphlog featurize 6239.protein.links.detailed.v12.0.txt.gz --domain protein
    --annotations wb.gaf.gz --go go-basic.obo --aliases 6239.protein.aliases.v12.0.txt.gz
    -o worm.store. INPUT is one or more network files (a,b), a folder of them, or a name such as
    string-6239.

    Any graphs: INPUT is a folder with edges.csv, a .jsonl file, a folder or zip of TUDataset, or
    GIN's text format; the schema is inferred and shown.
    """
    from graphlog.data.chunk import EXCLUDED
    from graphlog.domains import domain_of
    from graphlog.downstream.embed import rejects_of_output
    from graphlog.report.describe import describe_store

    progress = console.progress()
    store = graphlog.featurize(
        source,
        output,
        domain=domain,
        schema=schema,
        engine=engine,
        overwrite=overwrite,
        progress=row_progress(progress),
        targets="auto" if targets == "auto" else o.names(targets) or None,
        keep_texts=None if keep_texts else False,
        exclude=exclude or None,
        data_dir=reading.data_dir,
        **reading.options(),
        **_reading_options(domain_options),
    )
    progress.end()
    rejects = rejects_of_output(output.absolute().parent, output.name)
    summary: dict[str, Any] = {**describe_store(output), "rejects": str(rejects)}
    if exclude:
        excluded = sum(r.reason == EXCLUDED for r in store.iter_rejects())
        summary["rejected rows"] -= excluded
        summary["excluded rows"] = excluded
    _show(console, summary, with_schema=store.schema.name not in domain_of(store.schema).schemas)
    console.say(f"next: graphlog pretrain {output} -o run")


def _show(console: Console, summary: Mapping[str, Any], with_schema: bool) -> None:
    if console.quiet and not console.as_json:
        return
    shown = (
        "path",
        "graphs",
        "input rows",
        "rejected rows",
        "excluded rows",
        "nodes a graph",
        "size",
        "rejects",
    )
    fields = {key: summary[key] for key in shown if key in summary}
    tables = [fields_table({**fields, "tasks": len(summary["tasks"]) or None})]
    if with_schema:
        tables.append(fields_table(summary["schema"], "\nschema"))
    console.result(summary, *tables)


def _reading_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of domains that were given, as their readers take them."""
    options = {name: value for name, value in given.items() if value is not None}
    for name in ("annotations", "aliases"):
        if name in options:
            options[name] = o.names(options[name])
    if "evidence" in options:
        options["evidence"] = tuple(o.names(options["evidence"]))
    if "channel_score" in options:
        options["channel_score"] = _channel_scores(options["channel_score"])
    kinds = {
        name: kind
        for key, kind in (("kinds", "categorical"), ("continuous", "continuous"))
        for name in o.names(options.pop(key, None))
    }
    return {**options, "kinds": kinds} if kinds else options


def _channel_scores(text: str) -> int | dict[str, int]:
    try:
        if "=" not in text:
            return int(text)
        pairs = [part.partition("=") for part in o.names(text)]
        return {name.strip(): int(least) for name, _, least in pairs}
    except ValueError:
        allowed = "a number from 1 to 1000, or such as textmining=500,database=300"
        raise out_of_range("channel_score", allowed, repr(text)) from None


def convert(
    old: Annotated[
        Path, o.argument("Checkpoint of GraphLoG, GraphCL, GraphMAE, Mole-BERT, ...", "OLD.pth")
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
Name = Annotated[str, o.argument("Name of a data set; see: graphlog data list.", "NAME")]


_KINDS = (
    "Molecules: scaffold (default), scaffold-balanced, random-scaffold, random. Proteins: species, "
    "network, random. Any graphs: stratified (default for classes), random."
)


@app.command("list", epilog="Example: graphlog data list")
@o.with_groups
def list_datasets(data_dir: o.DataDir = None, *, console: Console) -> None:
    """List the data sets known by name."""
    datasets = graphlog.describe_datasets()
    columns = ("name", "rows", "tasks", "kind", "license", "here", "description")
    # `info` says where; narrow columns leave room for the description
    here = {"with RDKit": "yes", "with graphlog": "yes"}
    rows = [tuple(here.get(d[key], d[key]) or "" for key in columns) for d in datasets]
    console.result(datasets, Table(columns, rows))
    console.say("\nfetch one with: graphlog data get NAME; more of it: graphlog data info NAME")


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
    networks: Annotated[
        str | None,
        o.option("With network: files of the network, where INPUT is a store.", "A,B", "--network"),
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
        networks=o.names(networks),
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
