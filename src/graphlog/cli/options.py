"""Options shared by several verbs, and how options become settings of a run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from graphlog.config import merge, parse_override, read_toml
from graphlog.errors import ConfigError


def _set_data_root(folder: Path | None) -> Path | None:
    if folder is not None:
        os.environ["GRAPHLOG_DATA"] = str(folder)
    return folder


def _set_threads(count: int | None) -> int | None:
    if count is not None:
        os.environ["OMP_NUM_THREADS"] = str(count)
        import torch

        torch.set_num_threads(count)
    return count


def names(text: str | None) -> list[str]:
    """Return the names of a list such as ``a,b``; nothing or ``none`` is no name."""
    return (
        []
        if text is None or text == "none"
        else [part.strip() for part in text.split(",") if part.strip()]
    )


def numbers(text: str) -> list[int]:
    """Return the whole numbers of a list such as ``0,1,2``.

    Raises:
        BadParameter: If a part is none.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected whole numbers such as 0,1,2, found {text!r}.") from None


def shares(text: str) -> list[float]:
    """Return the numbers of a list such as ``0.8,0.1,0.1``.

    Raises:
        BadParameter: If a part is none.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as 0.8,0.1,0.1, found {text!r}.") from None


Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT", help="Molecule file, store folder, data set name, or - for standard input."
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A .safetensors file, a run folder, or a shipped model's name.",
    ),
]
Run = Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="Run folder to write.")]
SmilesColumn = Annotated[
    str | None,
    typer.Option("--smiles-column", metavar="NAME", help="Column that holds the SMILES."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        callback=_set_data_root,
        help="Where data sets are kept (default: $GRAPHLOG_DATA or the cache).",
    ),
]
OnError = Annotated[
    Literal["skip", "fail"],
    typer.Option(
        "--on-error", help="skip: list a bad row in rejects.csv and go on; fail: stop at the first."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, metavar="N", help="Processes that read molecules (default: all cores)."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        callback=_set_threads,
        help="Threads of each matrix product (default: all cores).",
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="auto|cpu|cuda", help="Where to compute (default: auto)."),
]
Precision = Annotated[
    Literal["auto", "fp32", "bf16"] | None,
    typer.Option(
        "--precision", help="Number format of matrix products (default: fp32; pretrain: auto)."
    ),
]
Layer = Annotated[
    Literal["jk", "last"] | None,
    typer.Option(
        "--layer",
        help="Which embedding: all layers (jk) or the last (default: as stored with the model).",
    ),
]
Targets = Annotated[
    str | None,
    typer.Option("--targets", metavar="A,B", help="Columns to predict; known data sets need none."),
]
Task = Annotated[
    Literal["auto", "classification", "regression", "multiclass"],
    typer.Option("--task", help="Kind of target."),
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", min=1, metavar="N", help="Graphs a step.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting of a run's config.toml, such as batch_size=64; repeatable.",
    ),
]
Seeds = Annotated[
    str,
    typer.Option(
        "--seeds", metavar="0,1,2", help="One run each; scores are mean and SD over them."
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N rows of INPUT.")
]
SplitKind = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="KIND|FILE",
        help="scaffold, scaffold-balanced, random-scaffold, random, or a split.json (default: the data set's, else scaffold).",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there already.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress and no messages; errors and results only."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")]


_OF_TRAINING = ("epochs", "batch_size", "precision", "device", "seed", "learning_rate")
_NOT_BESIDE_A_FILE = {"objective.name": "--objective", "recipe": "--recipe"}


def options_given(named: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Return the settings chosen on the command line, by dotted name.

    Args:
        named: Value of each option by the name of what it sets; None where it was not given.
        pairs: ``key=value`` texts of ``--set``.

    Raises:
        ConfigError: If one key is given two values.
    """
    given = {key: value for key, value in named.items() if value is not None}
    for pair in pairs:
        path, value = parse_override(pair)
        key = ".".join(path)
        if key in given and given[key] != value:
            raise ConfigError(
                f"`{key}` is set twice, to {given[key]!r} and by --set to {value!r}; give it once."
            )
        given[key] = value
    return given


def pretraining_settings(
    file: Path | None,
    named: Mapping[str, Any],
    pairs: Sequence[str],
    beneath: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the tables of a pre-training run: those of ``file`` laid over ``beneath``, overlaid by the options.

    Raises:
        ConfigError: If options contradict each other, or name another objective or recipe than the file.
    """
    pairs = [_in_full(pair) for pair in pairs]
    given = options_given({_in_full(key): value for key, value in named.items()}, pairs)
    tables = merge(beneath or {}, {} if file is None else read_toml(file))
    for key, option in _NOT_BESIDE_A_FILE.items():
        there = _look_up(tables, key)
        if key in given and there not in (None, given[key]):
            raise ConfigError(
                f"{option} {given[key]} contradicts {file}, which says {there!r}; drop one of the two."
            )
    for key, value in given.items():
        tables = merge(tables, _nested(key, value))
    return tables


def _in_full(key: str) -> str:
    """Return the key under which the settings keep what users may call by a shorter name."""
    name, equals, value = key.partition("=")
    name = name.strip()
    full = (
        f"training.{name}"
        if name in _OF_TRAINING
        else "objective.name"
        if name == "objective"
        else name
    )
    return f"{full}{equals}{value}"


def _nested(key: str, value: Any) -> dict[str, Any]:
    head, _, rest = key.partition(".")
    return {head: _nested(rest, value) if rest else value}


def _look_up(tables: Mapping[str, Any], key: str) -> Any:
    head, _, rest = key.partition(".")
    value = tables.get(head)
    return _look_up(value, rest) if rest and isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType]
