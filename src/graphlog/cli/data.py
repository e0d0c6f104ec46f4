"""Verbs about data: featurize, convert, and data list, get, info, split."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import graphlog
from graphlog.cli import command as o
from graphlog.cli.command import COMMANDS, DATA, Command, verb
from graphlog.data.html import Table, fields_table
from graphlog.errors import ConfigError

_protein = partial(o.option, None, rich_help_panel="Proteins", show_default=False)
_graph = partial(o.option, None, rich_help_panel="Any graphs", show_default=False)


def _channel_scores(text: str) -> int | dict[str, int]:
    """Return one lowest score for all channels, or the lowest score of each channel named."""

    def parse(text: str) -> int | dict[str, int]:
        if "=" not in text:
            return int(text)
        pairs = [part.partition("=") for part in o.names(text)]
        return {name.strip(): int(lowest) for name, _, lowest in pairs}

    return o.parsed(text, parse, "a number from 1 to 1000, or such as textmining=500,database=300")


_SHOWN = (
    *("path", "graphs", "input rows", "rejected rows", "excluded rows", "names not found"),
    *("nodes a graph", "size", "rejects"),
)
"""Fields of the description of a store that featurize prints."""


@dataclass(kw_only=True)
class Proteins:
    """The options for how protein networks are read."""

    annotations: Sequence[str] | None = _protein(
        "GO annotation files (GAF) to take labels from.", "A,B", parser=o.names
    )
    go: Path | None = _protein("The Gene Ontology, go-basic.obo.", "FILE")
    aliases: Sequence[str] | None = _protein(
        "STRING's protein.aliases files.", "A,B", parser=o.names
    )
    labels: Path | None = _protein("A table of labels, instead of annotations.", "FILE")
    species: str | None = _protein("Taxon id of a network that does not name its species.", "TAXON")
    score: int | None = _protein("Lowest combined score of an interaction (default: 700).", "N")
    channel_score: Mapping[str, int] | None = _protein(
        "Lowest score of the channels, or of one: textmining=500.",
        "N|NAME=N,..",
        parser=_channel_scores,
    )
    radius: int | None = _protein("Steps from the center of an ego-network (default: 1).", "N")
    neighbors: int | None = _protein(
        "Partners followed per protein, strongest first (default: 100).", "N"
    )
    nodes: int | None = _protein(
        "Maximum number of proteins in an ego-network (default: 500).", "N"
    )
    isolated: Literal["reject", "keep"] | None = _protein(
        "Proteins without partners: reject or keep.", "KIND"
    )
    terms: int | None = _protein("Maximum number of GO terms to predict (default: 40).", "N")
    min_positives: int | None = _protein(
        "Minimum number of positives of a GO term (default: 100).", "N"
    )
    max_overlap: float | None = _protein(
        "Maximum Jaccard overlap of two terms (default: 0.8).", "J"
    )
    evidence: Sequence[str] | None = _protein(
        "Evidence codes to ignore (default: IEA,ND,NAS).",
        "A,B",
        "--without-evidence",
        parser=o.names,
    )


@dataclass(kw_only=True)
class AnyGraphs:
    """The options for how graphs of other kinds are read."""

    like: str | None = _graph("Use the schema of this model or store.", "MODEL|STORE")
    kinds: Sequence[str] | None = _graph(
        "Attributes that are categorical.", "A,B", "--categorical", parser=o.names
    )
    continuous: Sequence[str] | None = _graph("Attributes that are numeric.", "A,B", parser=o.names)
    directed: bool | None = _graph("Read the edges as directed.", None, "--directed")


@verb("featurize", DATA, "graphlog featurize zinc250k -o zinc.store")
class Featurize(Proteins, AnyGraphs, o.Reading, Command):
    """Read INPUT once, in parallel, into a memory-mapped store.

    Rows that cannot be used are listed in rejects.csv beside the store.

    Proteins: graphlog featurize 6239.protein.links.detailed.v12.0.txt.gz --domain protein
    --annotations wb.gaf.gz --go go-basic.obo --aliases 6239.protein.aliases.v12.0.txt.gz
    -o worm.store. INPUT is one or more network files (a,b), a folder of them, or a name such as
    string-6239.

    Any graphs: INPUT is a folder with edges.csv, a .jsonl file, a folder or zip of TUDataset, or
    GIN's text format; the schema is inferred and shown.
    """

    source: o.Input
    output: Path = o.option(..., "Store folder to write.", "STORE", "--output", "-o")
    domain: str | None = o.option(
        None, "Graphs in INPUT: molecule, protein or graph (default: detected).", "NAME"
    )
    schema: str | None = o.option(
        None,
        "molecule, molecule-rich, molecule-cip or molecule-isotopes (default: the schema of the "
        "default recipe).",
        "NAME",
    )
    targets: o.Targets = None
    keep_texts: bool = o.option(True, "Keep the SMILES in the store.", None, "--texts/--no-texts")
    exclude: list[str] | None = o.option(
        None,
        "Leave out the molecules in this file, ignoring salts, charges, stereo and isotopes; "
        "repeatable.",
        "FILE",
    )
    engine: o.Engine = "local"
    overwrite: o.Overwrite = False

    def run(self) -> None:
        from graphlog.data.graphs import RejectKind, rejects_of_output
        from graphlog.domains import domain_of
        from graphlog.report.describe import describe_store

        options = self.given("kinds", "continuous", "keep_texts")
        kinds = dict.fromkeys(self.kinds or (), "categorical")
        if both := kinds.keys() & set(self.continuous or ()):
            raise ConfigError(
                f"attribute '{min(both)}' is named with --categorical and --continuous; drop one.",
                option="kinds",
            )
        kinds |= dict.fromkeys(self.continuous or (), "continuous")
        if kinds:
            options["kinds"] = kinds
        if not self.keep_texts:
            options["keep_texts"] = False
        if self.targets == ["auto"]:
            options["targets"] = "auto"
        progress = self.progress()
        store = graphlog.featurize(**options, progress=progress)
        progress.end()
        rejects = rejects_of_output(self.output.parent, self.output.name)
        summary: dict[str, Any] = {**describe_store(self.output), "rejects": str(rejects)}
        if self.exclude:
            excluded = sum(r.kind == RejectKind.EXCLUDED for r in store.iter_rejects())
            summary["rejected rows"] -= excluded
            summary["excluded rows"] = excluded
        shown = {key: summary[key] for key in _SHOWN if key in summary}
        tables = [fields_table({**shown, "tasks": len(summary["tasks"]) or None})]
        if store.schema.name not in domain_of(store.schema).schemas:
            tables.append(fields_table(summary["schema"], "schema"))
        self.summary(summary, *tables)
        for note in store.source.notes:
            self.say(f"note: {note}")
        self.say(f"next: graphlog pretrain {self.output} -o run")


@verb("convert", DATA, "graphlog convert gin_contextpred.pth -o contextpred.safetensors")
class Convert(Command):
    """Convert a checkpoint of the pre-train-GNNs family.

    Reads models of chemistry and biology. Code in the file is never run.
    """

    old: Path = o.argument("Checkpoint of GraphLoG, GraphCL, GraphMAE, Mole-BERT, ...", "OLD.pth")
    out: Path = o.option(..., "Model file to write.", "MODEL.safetensors", "--output", "-o")

    def run(self) -> None:
        encoder = graphlog.convert(self.old, self.out)
        config = encoder.config
        summary = {
            "model": str(self.out),
            "schema": encoder.schema.name,
            "backbone": config.backbone,
            "layers": config.layers,
            "dim": config.dim,
            "bytes": self.out.stat().st_size,
        }
        self.summary(summary)
        self.say(f"next: graphlog embed molecules.csv -m {self.out} -o embeddings.npz")


_WIDE = 100
"""Width of a terminal, in columns, from which ``data list`` prints all columns of its table."""
_NAME = o.argument("Name of a data set; see: graphlog data list.", "NAME")


@verb("data list", COMMANDS, "graphlog data list")
class ListDatasets(o.Data, Command):
    """List the data sets known by name."""

    def run(self) -> None:
        datasets = graphlog.describe_datasets()
        shown, screen = datasets, o.screen_width()
        columns = ("name", "rows", "tasks", "kind", "license", "here", "description")
        if screen is not None:  # a terminal gets one row for all species; files get every row
            shown = [d for d in datasets if " of species " not in d["description"]]
            count = len(datasets) - len(shown)
            about = f"protein networks of {count} more species, STRING 12.0; see --json"
            example = next((d for d in datasets if d not in shown), {})
            shown.append({**example, "name": "string-TAXON", "description": about, "here": ""})
            if screen < _WIDE:
                columns = tuple(c for c in columns if c not in ("license", "here"))
        # a short "yes" leaves room for the description; `data info` prints the details
        here = {"with RDKit": "yes", "with graphlog": "yes"}
        rows = [tuple(here.get(d[key], d[key]) or "" for key in columns) for d in shown]
        self.result(datasets, Table(columns, rows))
        self.say("\nfetch one with: graphlog data get NAME; details: graphlog data info NAME")


@verb("data get", COMMANDS, "graphlog data get bbbp")
class GetDataset(o.Data, Command):
    """Fetch a data set, check its sha256, and print its path."""

    name: str = _NAME

    def run(self) -> None:
        path = graphlog.fetch_dataset(self.name)
        self.result({"name": self.name, "path": str(path)}, Table(("",), [(path,)]))


@verb("data info", COMMANDS, "graphlog data info tox21")
class DatasetInfo(o.Data, Command):
    """Describe a data set: tasks, metric, license, source, hashes."""

    name: str = _NAME

    def run(self) -> None:
        description = graphlog.describe_dataset(self.name)
        lists = {key: ", ".join(description[key]) or None for key in ("task names", "made from")}
        self.result(description, fields_table({**description, **lists}))


@verb("data split", COMMANDS, "graphlog data split molecules.csv --kind scaffold -o split.json")
class SplitInput(o.Reading, Command):
    """Split INPUT by scaffold, species, community or at random.

    Rows are counted from 0. Rejected rows, and rows of a labeled data set without any label, are in
    no part. Proteins, for example: graphlog data split worm-go40 --kind network -o split.json
    """

    source: o.Input
    out: Path = o.option(..., "Split file to write (JSON).", "FILE", "--output", "-o")
    kind: str | None = o.option(None, o.SPLIT_KINDS, "KIND")
    fractions: Sequence[float] = o.option(
        "0.8,0.1,0.1", "Training, validation and test fractions.", "A,B,C", parser=o.fractions
    )
    seed: int = o.option(0, "Random seed of splits that shuffle.", "N", min=0)
    test_species: str | None = o.option(
        None, "--kind species: species of the test set (default: human, else the last).", "TAXON"
    )
    networks: Sequence[str] | None = o.option(
        None,
        "--kind network: files of the network, if INPUT is a store.",
        "A,B",
        "--network",
        parser=o.names,
    )

    def run(self) -> None:
        progress = self.progress()
        options = self.given("source", "out")
        rows = graphlog.split_file(self.source, self.out, **options, progress=progress)
        progress.end()
        self.summary(
            {
                "output": str(self.out),
                "kind": json.loads(self.out.read_text(encoding="utf-8"))["kind"],
                **{name: len(part) for name, part in zip(rows._fields, rows, strict=True)},
            }
        )
