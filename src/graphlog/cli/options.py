"""Options that several verbs share, declared once so that they read and mean the same everywhere."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer


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
    typer.Option("--precision", help="Number format of matrix products (default: auto)."),
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
