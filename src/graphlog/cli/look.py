"""Verbs that show what exists: models, info, plot, prototypes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, fields_table, job_progress
from graphlog.cli.options import DataDir, Json, Quiet
from graphlog.errors import ConfigError


def models(quiet: Quiet = False, as_json: Json = False) -> None:
    """List the shipped models."""
    from graphlog.downstream.models import list_models
    from graphlog.report.describe import describe_model

    shipped = {name: describe_model(path) for name, path in list_models().items()}
    columns = ("name", "objective", "recipe", "trained on", "encoder", "embedding", "size")
    rows = [
        (
            name,
            m["objective"],
            m["recipe"],
            f"{m['graphs']:,} graphs" if m["graphs"] else "",
            m["encoder"],
            m["embedding"],
            m["size"],
        )
        for name, m in shipped.items()
    ]
    rows.append(("random", "none", "", "nothing", "untrained, of the default recipe", "jk", ""))
    console = Console(quiet, as_json)
    console.result({"models": shipped}, Table(columns, rows))
    console.say(
        "use one: graphlog embed molecules.csv -m NAME -o embeddings.npz; "
        "details: graphlog info NAME"
    )


def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Model file, store, run folder, or name of a shipped model."
        ),
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every file of a store against its sha256.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Describe a model, store or run."""
    from graphlog.report.describe import describe

    description = describe(path, verify=verify)
    Console(quiet, as_json).result(description, *_tables(description))


def _tables(description: Mapping[str, Any]) -> list[Table]:
    """Return a table of the plain fields, then one for each nested mapping."""
    nested = {k: v for k, v in description.items() if isinstance(v, Mapping)}
    plain = {k: v for k, v in description.items() if k not in nested}
    return [
        fields_table(plain),
        *(fields_table(_flat(v), f"\n{k}") for k, v in nested.items() if v),
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
        )
    return flat


def plot(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Run folder of pretrain or finetune, or folder of a benchmark."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the figures.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="INPUT",
            help="Graphs to map (default: those the run was trained on).",
        ),
    ] = None,
    graphs: Annotated[
        int,
        typer.Option(
            "--graphs", min=5, max=20_000, metavar="N", help="Size of the random sample on the map."
        ),
    ] = 2000,
    colour: Annotated[
        str | None,
        typer.Option(
            "--colour",
            metavar="prototype|scaffold|label",
            help="Color of the map (default: prototype; label after finetune).",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Random seed of sample and layout.")
    ] = 0,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw the figures of a run or benchmark, as PNG and SVG.

    Of a run: training curves, the collapse watch, the embedding map, the tree of prototypes and the
    scores. Of a benchmark: scores, curves of depth and batch size, maps and speeds.
    """
    console = Console(quiet, as_json)
    if (run / "cells").is_dir() or (run / "rows").is_dir() or any(run.glob("*.csv.gz")):
        from graphlog.benchmark import draw_figures
        from graphlog.report.style import figures_of

        if source or colour:
            raise ConfigError(
                f"{run} is the folder of a benchmark, which has its own maps; "
                "drop --input and --colour."
            )
        with figures_of(run, output):
            paths = draw_figures(run, output)
    else:
        from graphlog.report.run import draw_run

        paths = draw_run(
            run, output, source, graphs=graphs, colour=colour, seed=seed, say=console.say
        )
    console.result({"figures": [str(p) for p in paths]}, Table(("",), [(p,) for p in paths]))


def prototypes(
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Run folder of pretrain, model file, or name of a shipped model."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder for tree.json, members.csv and atlas.html.",
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="INPUT",
            help="Graphs to assign (default: those the run was trained on).",
        ),
    ] = None,
    fit: Annotated[
        bool,
        typer.Option("--fit", help="Fit a new tree to INPUT, with equal shares for its leaves."),
    ] = False,
    graphs: Annotated[
        int,
        typer.Option(
            "--graphs",
            min=5,
            max=20_000,
            metavar="N",
            help="Size of the random sample on the map; traits are computed from it.",
        ),
    ] = 2000,
    targets: o.Targets = None,
    limit: o.Limit = None,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", min=0, help="Random seed of sample, layout and fit."),
    ] = 0,
    precision: o.Precision = None,
    device: o.Device = None,
    smiles_column: o.SmilesColumn = None,
    data_dir: o.DataDir = None,
    on_error: o.OnError = "skip",
    workers: o.Workers = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Assign every graph to the learned hierarchy of prototypes.

    DIR gets tree.json (sizes, typical graphs, traits), members.csv (path, similarity and novelty of
    every row) and atlas.html (a page to explore them).
    """
    from graphlog.errors import ConfigError
    from graphlog.report.prototypes import write_prototypes

    if source is None and (limit is not None or smiles_column is not None or targets is not None):
        raise ConfigError(
            "--limit, --smiles-column and --targets describe INPUT; name one with --input."
        )
    console = Console(quiet, as_json)
    given = {"limit": limit, "smiles_column": smiles_column, "targets": o.names(targets) or None}
    reading = {"workers": workers, "on_error": on_error} | {
        key: value for key, value in given.items() if value is not None
    }
    written = write_prototypes(
        model,
        output,
        source,
        fit=fit,
        graphs=graphs,
        seed=seed,
        precision=precision or "fp32",
        device=device or "auto",
        progress=job_progress(console),
        **reading,
    )
    summary = {
        "graphs": written.graphs,
        "rejected": written.rejected,
        "prototypes": " / ".join(map(str, written.layers)),
        "in use": " / ".join(map(str, written.used)),
        **{path.stem: str(path) for path in written.paths},
    }
    console.summary(summary)
