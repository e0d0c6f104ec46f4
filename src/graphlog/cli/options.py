"""Options shared by several verbs, and how options become the settings of a run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from graphlog.config import merge, parse_override, read_toml
from graphlog.errors import ConfigError, DataError, unknown_name


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


def _check_input(text: str) -> str:
    """Refuse an input that does not exist before anything heavy is imported."""
    path = Path(text)
    if text == "-" or "," in text or path.exists():
        return text
    if path.suffix or len(path.parts) > 1:
        raise DataError(f"no such file: {path}; check the path.")
    from graphlog.datasets import DATASETS

    if text not in DATASETS:
        raise unknown_name("file or data set", text, DATASETS)
    return text


def names(text: str | None) -> list[str]:
    """Return the names in a list such as ``a,b``; ``none`` and no text give an empty list."""
    if text is None or text == "none":
        return []
    return [part.strip() for part in text.split(",") if part.strip()]


def integers(text: str) -> list[int]:
    """Return the numbers in a list such as ``0,1,2``.

    Raises:
        BadParameter: If a part is not an integer.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected whole numbers such as 0,1,2, found {text!r}.") from None


def fractions(text: str) -> list[float]:
    """Return the numbers in a list such as ``0.8,0.1,0.1``.

    Raises:
        BadParameter: If a part is not a number.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as 0.8,0.1,0.1, found {text!r}.") from None


Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        callback=_check_input,
        help="Molecule file, store, data set name, or - for standard input.",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model file (.safetensors), run folder, name of a shipped model, or random.",
    ),
]
Run = Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="Run folder to write.")]
SmilesColumn = Annotated[
    str | None, typer.Option("--smiles-column", metavar="NAME", help="Column with the SMILES.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        callback=_set_data_root,
        help="Folder of the data sets (default: $GRAPHLOG_DATA or the user's cache).",
    ),
]
OnError = Annotated[
    Literal["skip", "fail"],
    typer.Option("--on-error", help="List bad rows in rejects.csv, or stop at the first."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, metavar="N", help="Processes that read the input (default: all cores)."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        callback=_set_threads,
        help="Threads for computation (default: all cores).",
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
        help="Embedding of all layers (jk) or of the last (default: as stored in the model).",
    ),
]
Targets = Annotated[
    str | None,
    typer.Option("--targets", metavar="A,B", help="Label columns; known data sets need none."),
]
Task = Annotated[
    Literal["auto", "classification", "regression", "multiclass"],
    typer.Option("--task", help="Kind of the labels."),
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", min=1, metavar="N", help="Graphs in one batch.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting of the run's config.toml, such as batch_size=64; repeatable.",
    ),
]
Seeds = Annotated[
    str, typer.Option("--seeds", metavar="0,1,2", help="One run per seed; scores are mean and SD.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="Read the first N rows only.")
]
SplitKind = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="KIND|FILE",
        help="scaffold, scaffold-balanced, random-scaffold, random, or a split.json "
        "(default: that of the data set, else scaffold).",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint in RUN.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no progress, messages or summary.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


_TRAINING_SETTINGS = ("epochs", "batch_size", "precision", "device", "seed", "learning_rate")
_MUST_MATCH_FILE = {"objective.name": "--objective", "recipe": "--recipe"}


def chosen_settings(named: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Return the settings given on the command line, by dotted name.

    Args:
        named: Value of each option by the setting it stands for; None where it was not given.
        pairs: ``key=value`` texts of ``--set``.

    Raises:
        ConfigError: If one setting has two values.
    """
    chosen = {key: value for key, value in named.items() if value is not None}
    for pair in pairs:
        path, value = parse_override(pair)
        key = ".".join(path)
        if key in chosen and chosen[key] != value:
            raise ConfigError(
                f"`{key}` is set twice, to {chosen[key]!r} and by --set to {value!r}; give it once."
            )
        chosen[key] = value
    return chosen


def pretraining_settings(
    file: Path | None,
    named: Mapping[str, Any],
    pairs: Sequence[str],
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the settings of a pre-training run as nested tables: defaults, file, then options.

    Args:
        file: Settings file (TOML).
        named: As for :func:`chosen_settings`.
        pairs: As for :func:`chosen_settings`.
        defaults: Tables that the file and the options override.

    Raises:
        ConfigError: If options contradict each other, or name another objective or recipe than the
            file.
    """
    pairs = [_full_name(pair) for pair in pairs]
    chosen = chosen_settings({_full_name(key): value for key, value in named.items()}, pairs)
    tables = merge(defaults or {}, {} if file is None else read_toml(file))
    for key, option in _MUST_MATCH_FILE.items():
        in_file = _look_up(tables, key)
        if key in chosen and in_file not in (None, chosen[key]):
            raise ConfigError(
                f"{option} {chosen[key]} contradicts {file}, which says {in_file!r}; drop one."
            )
    for key, value in chosen.items():
        tables = merge(tables, _nested(key, value))
    return tables


def _full_name(key: str) -> str:
    """Return the dotted name of a setting that may be given by a shorter one."""
    name, equals, value = key.partition("=")
    name = name.strip()
    if name in _TRAINING_SETTINGS:
        name = f"training.{name}"
    elif name == "objective":
        name = "objective.name"
    return f"{name}{equals}{value}"


def _nested(key: str, value: Any) -> dict[str, Any]:
    head, _, rest = key.partition(".")
    return {head: _nested(rest, value) if rest else value}


def _look_up(tables: Mapping[str, Any], key: str) -> Any:
    head, _, rest = key.partition(".")
    value = tables.get(head)
    return _look_up(value, rest) if rest and isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType]
