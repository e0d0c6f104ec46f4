"""Options shared by several verbs, and how options become the settings of a run."""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from graphlog.errors import ConfigError, DataError, check_name, in_python
from graphlog.files import excel_safe


def _check_input(text: str) -> str:
    """Refuse an input that does not exist before anything heavy is imported."""
    path = Path(text)
    if text == "-" or "," in text or path.exists():
        return text
    if path.suffix or len(path.parts) > 1:
        raise DataError(f"no such file: {path}; check the path.", file=path)
    from graphlog.datasets import DATASETS

    check_name("file or data set", text, DATASETS)
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


def bounds(text: str | None) -> list[float] | None:
    """Return the numbers in a range such as ``-5,5``; None for no text."""
    return None if text is None else fractions(text)


def fractions(text: str) -> list[float]:
    """Return the numbers in a list such as ``0.8,0.1,0.1``.

    Raises:
        BadParameter: If a part is not a number.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as 0.8,0.1,0.1, found {text!r}.") from None


def argument(help: str, metavar: str) -> Any:
    """Return an argument as the default of a field; it has no name on the command line."""
    return typer.Argument(..., help=help, metavar=metavar)


def option(default: Any, help: str, metavar: str | None = None, *flags: str, **limits: Any) -> Any:
    """Return an option as the default of a field; without ``flags`` it has the field's name.

    In a type that several verbs share, and where a value must be given, ``default`` is ``...``.
    """
    return typer.Option(default, *flags, help=help, metavar=metavar, **limits)


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
    option(
        ...,
        "Model file (.safetensors), run folder, name of a shipped model, or random.",
        "MODEL",
        "--model",
        "-m",
    ),
]
Run = Annotated[Path, option(..., "Run folder to write.", "RUN", "--output", "-o")]
Folder = Annotated[Path, option(..., "Folder to write.", "DIR", "--output", "-o")]
Result = Annotated[
    Path,
    option(
        ...,
        "File to write: .csv, .jsonl, .parquet, .npz, .npy or .sdf; - for standard output.",
        "OUT",
        "--output",
        "-o",
    ),
]
Format = Annotated[
    Literal["csv", "jsonl", "parquet", "npz", "npy", "sdf"] | None,
    option(..., "Format of OUT (default: by its ending; csv for -)."),
]
Threads = Annotated[
    int | None, option(..., "Threads for computation (default: all cores).", "N", min=1)
]
Device = Annotated[str | None, option(..., "Where to compute (default: auto).", "auto|cpu|cuda")]
Engine = Annotated[
    Literal["local", "ray"],
    option(
        ...,
        "Compute on this machine, or on the Ray cluster at $RAY_ADDRESS, where --workers is "
        "ignored and --threads is used by the process of the command only.",
    ),
]
Precision = Annotated[
    Literal["auto", "fp32", "bf16"] | None,
    option(..., "Number format of matrix products (default: fp32; pretrain: auto)."),
]
Layer = Annotated[
    Literal["jk", "last", "jk+sum"] | None,
    option(
        ...,
        "Embedding of all layers (jk), of these and their sums (jk+sum), or of the last layer "
        "(default: as stored in the model; probe and finetune of molecules: jk+sum).",
    ),
]
WithFeatures = Annotated[
    str | None,
    option(
        ...,
        "Features to join: ecfp4, descriptors (molecules), statistics (proteins).",
        "A,B",
        "--with",
    ),
]
Targets = Annotated[str | None, option(..., "Label columns; known data sets need none.", "A,B")]
BatchSize = Annotated[int | None, option(..., "Graphs in one batch.", "N", min=1)]
Seed = Annotated[int, option(..., "Random seed.", "N", min=0)]
Sample = Annotated[
    int, option(..., "Size of the random sample on the map.", "N", min=5, max=20_000)
]
MapInput = Annotated[
    str | None,
    option(..., "Graphs to show (default: those the run was trained on).", "INPUT", "--input"),
]
Settings = Annotated[
    list[str] | None,
    option(
        ...,
        "Any setting of the run's config.toml, such as batch_size=64; repeatable.",
        "KEY=VALUE",
        "--set",
    ),
]
Freeze = Annotated[bool, option(..., "Train the head only.", None, "--freeze")]
Seeds = Annotated[str, option(..., "One run per seed; scores are mean and SD.", "0,1,2")]
LabelsRange = Annotated[
    str | None, option(..., "Leave out labels below LOW or above HIGH.", "LOW,HIGH")
]
_Tracker = StrEnum("_Tracker", ["tensorboard", "wandb", "mlflow"])
Log = Annotated[
    list[_Tracker] | None,  # typer knows no list of literals
    option(
        ...,
        "Send the rows of metrics.jsonl to a tracker as well; repeatable.",
        "tensorboard|wandb|mlflow",
    ),
]
Resume = Annotated[bool, option(..., "Continue from the last checkpoint in RUN.", None, "--resume")]
Overwrite = Annotated[bool, option(..., "Replace an existing output.", None, "--overwrite")]


@dataclass(kw_only=True)
class Data:
    """Where data sets are."""

    data_dir: Path | None = option(
        None, "Folder of the data sets (default: $GRAPHLOG_DATA or the user's cache).", "DIR"
    )


@dataclass(kw_only=True)
class Reading(Data):
    """How an input is read."""

    smiles_column: str | None = option(None, "Column with the SMILES.", "NAME")
    sheet: str | None = option(None, "Sheet of an Excel file; needed if there are several.", "NAME")
    decimal: Literal[".", ","] | None = option(
        None, "Decimal mark of the labels (default: detected).", ".|,"
    )
    standardize: Literal["parent", "parent-tautomer"] | None = option(
        None,
        "Read the parent of each molecule (largest organic fragment, neutral), or its canonical "
        "tautomer, instead of the molecule as written.",
    )
    limit: int | None = option(None, "Read the first N rows only.", "N", min=1)
    on_error: Literal["skip", "fail"] = option(
        "skip",
        "List bad rows in rejects.csv, or stop at the first; tables with more than half of the "
        "rows bad are refused.",
    )
    workers: int | None = option(
        None, "Processes that read the input (default: all cores).", "N", min=1
    )
    excel_safe: bool = option(
        False, "Stop spreadsheets from reading text in CSV files as formulas.", None, "--excel-safe"
    )

    def reading(self) -> dict[str, Any]:
        """Return what the readers take."""
        return {
            "smiles_column": self.smiles_column,
            "sheet": self.sheet,
            "decimal": self.decimal,
            "standardize": self.standardize,
            "limit": self.limit,
            "on_error": self.on_error,
            "workers": self.workers,
        }


@dataclass(kw_only=True)
class Labeling:
    """What is learned, and of which rows."""

    targets: Targets = None
    task: Literal["auto", "classification", "regression", "multiclass"] = option(
        "auto", "Kind of the labels."
    )
    split: str | None = option(
        None,
        "scaffold, scaffold-balanced, random-scaffold, random, or a split.json "
        "(default: that of the data set, else scaffold).",
        "KIND|FILE",
    )
    on_repeats: Literal["keep", "mean", "drop", "fail"] = option(
        "keep",
        "Rows that repeat a molecule, or a salt of it: keep all, take the mean of their labels, "
        "drop all but the first, or stop with an error.",
    )

    def labeling(self) -> dict[str, Any]:
        """Return what the calls take."""
        return {
            "targets": names(self.targets) or None,
            "task": self.task,
            "split": self.split,
            "on_repeats": self.on_repeats,
        }


@dataclass(kw_only=True)
class Computing:
    """How much of the machine computes."""

    threads: Threads = None


@dataclass(kw_only=True)
class Inference(Computing):
    """How an encoder is run over an input."""

    batch_size: BatchSize = None
    precision: Precision = None
    device: Device = None

    def inference(self) -> dict[str, Any]:
        """Return what the calls take."""
        return {
            "batch_size": self.batch_size or 2048,
            "precision": self.precision or "fp32",
            "device": self.device or "auto",
        }


@contextmanager
def in_effect(command: object) -> Generator[None]:
    """Find data, write tables and compute as the options of a command say, inside the block."""
    with ExitStack() as ended:
        if isinstance(command, Data) and command.data_dir is not None:
            ended.enter_context(_environment("GRAPHLOG_DATA", str(command.data_dir)))
        if isinstance(command, Reading) and command.excel_safe:
            ended.enter_context(excel_safe())
        if isinstance(command, Computing) and command.threads is not None:
            ended.enter_context(threads(command.threads))
        yield


@contextmanager
def threads(count: int) -> Generator[None]:
    """Compute with ``count`` threads inside the block."""
    import torch

    before = torch.get_num_threads()
    with _environment("OMP_NUM_THREADS", str(count)):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@contextmanager
def _environment(name: str, value: str) -> Generator[None]:
    """Set an environment variable for the block, for processes that it starts too."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


def as_flags(group: Any, words: Sequence[str]) -> Callable[[str, object], str]:
    """Return how a command writes a setting: by its flag, as ``--resume``.

    Where the command has no such flag, another verb may; other settings stay as in Python.

    Args:
        group: The parser of ``graphlog``.
        words: The command, such as ``data split``; what follows does not matter.
    """
    verbs = {**group.commands, **group.commands["data"].commands}
    own = [verbs[word] for word in words[:2] if word in verbs]

    def write(name: str, value: object = None) -> str:
        for verb in (*reversed(own), *verbs.values()):
            for found in verb.params:
                if found.name == name:
                    return _written(found, value)
        return in_python(name, value)

    return write


def _written(found: Any, value: object) -> str:
    """Return an option of the parser as it is typed, an argument as the help names it."""
    if found.param_type_name == "argument":
        return str(found.metavar)
    if value is False and found.secondary_opts:
        return found.secondary_opts[0]
    flag = max(found.opts, key=len)
    return flag if value in (None, True, False) else f"{flag} {value}"


def chosen_settings(
    call: Callable[..., object], named: Mapping[str, Any], pairs: Sequence[str] | None
) -> dict[str, Any]:
    """Return the settings given on the command line, by dotted name.

    Args:
        call: What takes them; its other arguments are no settings.
        named: Value of each option by the setting it stands for; None where it was not given.
        pairs: ``key=value`` texts of ``--set``.

    Raises:
        ConfigError: If one setting has two values, or a name is that of no setting.
    """
    from graphlog.config import parse_override  # late: pydantic would slow down --help

    chosen = {key: value for key, value in named.items() if value is not None}
    arguments = signature(call).parameters.keys() - named.keys()
    for pair in pairs or ():
        path, value = parse_override(pair)
        # the full names of what may be given by a shorter one
        key = ".".join(path).removeprefix("training.").removesuffix(".name")
        if key in arguments:
            raise ConfigError(f"{key} is not a setting; drop --set {key}.", option="settings")
        if key in chosen and chosen[key] != value:
            raise ConfigError(
                f"{key} is set twice, to {chosen[key]!r} and by --set to {value!r}; give it once."
            )
        chosen[key] = value
    return chosen


def finetuning_settings(file: Path | None, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file, such as ``best.toml`` or a run's, with ``chosen`` over them.

    Raises:
        ConfigError: If the file has no settings of fine-tuning.
    """
    if file is None:
        return dict(chosen)
    from graphlog.config import read_toml

    tables = read_toml(file).get("finetune")
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{file} has no table [finetune]; name a best.toml or config.toml.")
    return {key: value for key, value in tables.items() if key != "seeds"} | dict(chosen)  # pyright: ignore[reportUnknownVariableType]
