"""Verbs that show what exists: models, info, plot, prototypes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import graphlog
from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, fields_table
from graphlog.errors import ConfigError


def models(*, console: Console) -> None:
    """List the shipped models."""
    shipped = graphlog.describe_models()
    columns = ("name", "objective", "recipe", "trained on", "encoder", "embedding", "size")
    keys = ("objective", "recipe", "graphs", "encoder", "embedding", "size")
    rows = [
        (name, *(f"{m[k]:,} graphs" if k == "graphs" and m[k] else m[k] or "" for k in keys))
        for name, m in shipped.items()
    ]
    rows.append(("random", "none", "", "nothing", "untrained, of the default recipe", "jk", ""))
    console.result({"models": shipped}, Table(columns, rows))
    console.say(
        "use one: graphlog embed molecules.csv -m NAME -o embeddings.npz; "
        "details: graphlog info NAME"
    )


def info(
    path: Annotated[
        str, o.argument("Model file, store, run folder, or name of a shipped model.", "PATH")
    ],
    verify: Annotated[
        bool, o.option("Check every file of a store against its sha256.", None, "--verify")
    ] = False,
    *,
    console: Console,
) -> None:
    """Describe a model, store or run."""
    description = graphlog.describe(path, verify=verify)
    console.result(description, *_tables(description))


def _tables(description: Mapping[str, Any]) -> list[Table]:
    """Return a table of the plain fields, then one for each nested mapping."""
    from graphlog.training.config import flat_settings

    nested = {k: v for k, v in description.items() if isinstance(v, Mapping)}
    plain = {k: v for k, v in description.items() if k not in nested}
    parts = [fields_table(flat_settings(v), f"\n{k}") for k, v in nested.items() if v]
    return [fields_table(plain), *parts]


def plot(
    run: Annotated[
        Path,
        o.argument("Run folder of pretrain, finetune or probe, or folder of a benchmark.", "RUN"),
    ],
    output: o.Folder,
    source: o.MapInput = None,
    graphs: o.Sample = 2000,
    color: Annotated[
        str | None,
        o.option(
            "Color of the map (default: prototype; label after finetune).",
            "prototype|scaffold|label",
        ),
    ] = None,
    seed: o.Seed = 0,
    *,
    reading: o.Reading,
    console: Console,
) -> None:
    """Draw the figures of a run or benchmark, as PNG and SVG.

    Of a run: training curves, the collapse watch, the embedding map, the tree of prototypes and the
    scores. Of a benchmark: scores, curves of depth and batch size, maps and speeds.
    """
    paths = graphlog.draw_figures(
        run,
        output,
        source,
        graphs=graphs,
        color=color,
        seed=seed,
        say=console.say,
        **_reading_of(source, reading),
    )
    console.result({"figures": [str(p) for p in paths]}, Table(("",), [(p,) for p in paths]))


def prototypes(
    model: Annotated[
        str, o.argument("Run folder of pretrain, model file, or name of a shipped model.", "RUN")
    ],
    output: o.Folder,
    source: o.MapInput = None,
    fit: Annotated[
        bool, o.option("Fit a new tree to INPUT, with equal shares for its leaves.", None, "--fit")
    ] = False,
    graphs: o.Sample = 2000,
    targets: o.Targets = None,
    seed: o.Seed = 0,
    precision: o.Precision = None,
    device: o.Device = None,
    threads: o.Threads = None,
    *,
    reading: o.Reading,
    console: Console,
) -> None:
    """Assign every graph to the learned hierarchy of prototypes.

    DIR gets tree.json (sizes, typical graphs, traits), members.csv (path, similarity and novelty of
    every row) and atlas.html (a page to explore them).
    """
    written = graphlog.write_prototypes(
        model,
        output,
        source,
        fit=fit,
        graphs=graphs,
        seed=seed,
        precision=precision or "fp32",
        device=device or "auto",
        progress=console.progress(),
        **_reading_of(source, reading, targets),
    )
    console.summary(
        {
            "graphs": written.graphs,
            "rejected": written.rejected,
            "prototypes": " / ".join(map(str, written.layers)),
            "in use": " / ".join(map(str, written.used)),
            **{path.stem: str(path) for path in written.paths},
        }
    )


def _reading_of(
    source: str | None, reading: o.Reading, targets: str | None = None
) -> dict[str, Any]:
    """Return how INPUT is read; the graphs of a run are read as the run has read them.

    Raises:
        ConfigError: If options describe an INPUT that is not named.
    """
    described = (reading.limit, reading.smiles_column, reading.standardize, targets)
    if source is None and any(option is not None for option in described):
        raise ConfigError(
            "--limit, --smiles-column, --standardize and --targets describe INPUT; name one with "
            "--input."
        )
    options = {**reading.options(), "targets": o.names(targets) or None}
    return {key: value for key, value in options.items() if value is not None}
