"""Base class of the commands, the options that they share, and their output and error messages.

A command turns its options into the arguments of one public call. It prints the result as tables or
as JSON; an error becomes one line and an exit code.
"""

import csv
import errno
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from inspect import signature
from io import TextIOWrapper
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TextIO,
    TypeVar,
    dataclass_transform,
)

import typer

from graphlog.data.html import Table, fields_table
from graphlog.errors import (
    SEED_LIMIT,
    ConfigError,
    DataError,
    GraphLoGError,
    ProcessLostError,
    TrainingInterrupted,
    check_name,
    in_python,
)
from graphlog.files import ADVICE, CHECK_PATH, excel_safe
from graphlog.processes import PEER_LOST, is_first, is_supervised

if TYPE_CHECKING:
    from graphlog.training.log import Progress

Value = TypeVar("Value")


def _check_input(text: str) -> str:
    """Return an input; raise an error if it does not exist, before slow imports start."""
    path = Path(text)
    # os.path.exists does not raise on a name that is too long, unlike Path.exists
    if text == "-" or "," in text or os.path.exists(text):
        return text
    if path.suffix or len(path.parts) > 1:
        raise DataError(f"no such file: {path}; check the path.", file=path)
    from graphlog.datasets import DATASETS

    check_name("file or data set", text, DATASETS)
    return text


def names(text: str) -> list[str]:
    """Return the names in a list such as ``a,b``; ``none`` gives an empty list.

    Example:
        >>> names('y, "IC50, nM"')
        ['y', 'IC50, nM']
    """
    cells = next(csv.reader([" ".join(text.splitlines())], skipinitialspace=True), [])
    return [] if text == "none" else [cell.strip() for cell in cells if cell.strip()]


def names_if_any(text: str) -> list[str] | None:
    """Return the names in a list, or None if it is empty."""
    return names(text) or None


def integers(text: str) -> list[int]:
    """Return the whole numbers in a list such as ``0,1,2``."""
    return parsed(text, lambda t: [int(n) for n in t.split(",")], "whole numbers such as 0,1,2")


def fractions(text: str) -> list[float]:
    """Return the numbers in a list such as ``0.8,0.1,0.1``."""
    return parsed(text, lambda t: [float(n) for n in t.split(",")], "numbers such as 0.8,0.1,0.1")


def parsed(text: str, parse: Callable[[str], Value], expected: str) -> Value:
    """Return ``parse(text)``; where that fails, raise an error that describes what is expected."""
    try:
        return parse(text)
    except ValueError:
        raise typer.BadParameter(f"expected {expected}, found {text!r}.") from None


def argument(help: str, metavar: str) -> Any:
    """Return a positional argument of the command line, as the default value of a field."""
    return typer.Argument(..., help=help, metavar=metavar)


def option(default: Any, help: str, metavar: str | None = None, *flags: str, **limits: Any) -> Any:
    """Return an option as the default value of a field; ``flags`` defaults to the field's name.

    The ``default`` of a required option is ``...``. If an option has a fixed set of values,
    ``help`` must name them all. ``limits`` are other arguments of ``typer.Option``.
    """
    return typer.Option(default, *flags, help=help, metavar=metavar, **limits)


_shared = partial(option, ...)
"""Return an option as part of a type that several verbs share; each verb sets its default."""

Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        callback=_check_input,
        help="File or folder of graphs, store, data set name, or - for standard input.",
    ),
]
Model = Annotated[
    str,
    _shared(
        "Model file (.safetensors), run folder, name of a shipped model, or random.",
        "MODEL",
        "--model",
        "-m",
    ),
]
Run = Annotated[Path, _shared("Run folder to write.", "RUN", "--output", "-o")]
Folder = Annotated[Path, _shared("Folder to write.", "DIR", "--output", "-o")]
Result = Annotated[
    Path,
    _shared(
        "File to write: .csv, .jsonl, .parquet, .npz, .npy or .sdf; - for standard output.",
        "OUT",
        "--output",
        "-o",
    ),
]
Format = Annotated[
    Literal["csv", "jsonl", "parquet", "npz", "npy", "sdf"] | None,
    _shared(
        "csv, jsonl, parquet, npz, npy or sdf (default: the ending of OUT; csv for -).", "KIND"
    ),
]
Threads = Annotated[
    int | None, _shared("Threads for computation (default: all cores).", "N", min=1, max=4096)
]
Device = Annotated[
    str | None,
    _shared(
        "Where to compute: auto, cpu or cuda (default: auto).",
        "WHERE",
        show_default=False,
        parser=lambda text: text or "auto",
    ),
]
Engine = Annotated[
    Literal["local", "ray"],
    _shared(
        "Compute on this machine (local) or on the Ray cluster at $RAY_ADDRESS (ray). With ray, "
        "--workers is ignored, and --threads applies only to the process that you start.",
        "WHERE",
    ),
]
_PRECISION_HELP = "Number format of matrix products: auto, fp32 or bf16 (default: {})."
Precision = Annotated[
    Literal["auto", "fp32", "bf16"] | None, _shared(_PRECISION_HELP.format("fp32"), "KIND")
]
TrainingPrecision = Annotated[
    Literal["auto", "fp32", "bf16"] | None, _shared(_PRECISION_HELP.format("auto"), "KIND")
]
_LAYER_HELP = (
    "Layers in the embedding: all (jk), all with sums over nodes (jk+sum) or the last (last); "
    "default: {}."
)
Layer = Annotated[
    Literal["jk", "last", "jk+sum"] | None,
    _shared(_LAYER_HELP.format("as stored in MODEL"), "KIND"),
]
LearnedLayer = Annotated[
    Literal["jk", "last", "jk+sum"] | None,
    _shared(_LAYER_HELP.format("as stored in MODEL; jk+sum instead of jk for molecules"), "KIND"),
]
WithFeatures = Annotated[
    Sequence[str] | None,
    _shared(
        "Features to add: ecfp4, descriptors (molecules), statistics (proteins); for finetune "
        "with --kernel only.",
        "A,B",
        "--with",
        parser=names,
    ),
]
Targets = Annotated[
    Sequence[str] | None,
    _shared("Label columns; not needed for data sets known by name.", "A,B", parser=names_if_any),
]
BatchSize = Annotated[int | None, _shared("Graphs per batch.", "N", min=1)]
Seed = Annotated[int, _shared("Random seed.", "N", min=0, max=SEED_LIMIT - 1)]
Sample = Annotated[int, _shared("Size of the random sample on the map.", "N", min=5, max=20_000)]
MapInput = Annotated[
    str | None,
    _shared("Graphs to show (default: those the run was trained on).", "INPUT", "--input"),
]
Settings = Annotated[
    list[str] | None,
    _shared(
        "Any setting of the run's config.toml, such as batch_size=64; repeatable.",
        "KEY=VALUE",
        "--set",
    ),
]
Freeze = Annotated[
    bool | None, _shared("Train only the head; keep the encoder frozen.", None, "--freeze")
]
LabelsRange = Annotated[
    Sequence[float] | None,
    _shared("Leave out labels below LOW or above HIGH.", "LOW,HIGH", parser=fractions),
]
_Tracker = StrEnum("_Tracker", ["tensorboard", "wandb", "mlflow"])
Log = Annotated[
    list[_Tracker] | None,  # typer does not support a list of literals
    _shared(
        "Also send the rows of metrics.jsonl to tensorboard, wandb or mlflow; repeatable.",
        "NAME",
        "--log",
    ),
]
Resume = Annotated[bool, _shared("Continue from the last checkpoint in RUN.", None, "--resume")]
Overwrite = Annotated[bool, _shared("Replace an existing output.", None, "--overwrite")]

_GLOBAL_OPTIONS = ("data_dir", "excel_safe", "threads")
"""Options that :func:`in_effect` applies to the process; they are no arguments of a call."""


@dataclass(kw_only=True)
class Data:
    """The option for the folder of the data sets."""

    data_dir: Path | None = option(
        None, "Folder of the data sets (default: $GRAPHLOG_DATA or the user's cache).", "DIR"
    )


@dataclass(kw_only=True)
class Reading(Data):
    """The options for how an input is read."""

    smiles_column: str | None = option(None, "Column with the SMILES.", "NAME")
    sheet: str | None = option(None, "Sheet of an Excel file; needed if there are several.", "NAME")
    decimal: Literal[".", ","] | None = option(
        None, "Decimal mark of the labels (default: detected).", ".|,"
    )
    standardize: Literal["parent", "parent-tautomer"] | None = option(
        None,
        "Replace each molecule by its parent (largest organic fragment, neutral) or by the "
        "canonical tautomer of the parent (parent-tautomer).",
        "KIND",
    )
    limit: int | None = option(None, "Read the first N rows only.", "N", min=1)
    on_error: Literal["skip", "fail"] = option(
        "skip",
        "Skip bad rows and list them in rejects.csv (skip), or stop at the first one (fail). A "
        "table with more than half of its rows bad is refused.",
        "KIND",
    )
    workers: int | None = option(
        None, "Processes that read the input (default: all cores).", "N", min=1
    )
    excel_safe: bool = option(
        False, "Stop spreadsheets from reading text in CSV files as formulas.", None, "--excel-safe"
    )

    def reading(self) -> dict[str, Any]:
        """Return the options of this class as keyword arguments of a reader."""
        names = [field.name for field in fields(Reading) if field.name not in _GLOBAL_OPTIONS]
        return {name: getattr(self, name) for name in names}


SPLIT_KINDS = (
    "Molecules: scaffold (default), scaffold-balanced, random-scaffold, random. Proteins: random "
    "(default), species (default of data split with several species), network. Any graphs: "
    "stratified (default for classes), random (default for numbers)."
)


@dataclass(kw_only=True)
class Labeling:
    """The options for the labels to learn and the split of the rows."""

    targets: Targets = None
    task: Literal["auto", "classification", "regression", "multiclass"] = option(
        "auto", "auto, classification, regression or multiclass.", "KIND"
    )
    split: str | None = option(
        None, f"Kind of split, or a split file (.json). {SPLIT_KINDS}", "KIND|FILE"
    )
    on_repeats: Literal["keep", "mean", "drop", "fail"] = option(
        "keep",
        "Rows that repeat a molecule, or a salt of it: keep all (keep), use the mean of their "
        "labels (mean), keep only the first label (drop), or stop with an error (fail).",
        "KIND",
    )


@dataclass(kw_only=True)
class Computing:
    """The option for the number of threads."""

    threads: Threads = None


@dataclass(kw_only=True)
class Inference(Computing):
    """The options for how an encoder is applied to an input."""

    batch_size: BatchSize = None
    precision: Precision = None
    device: Device = "auto"


@contextmanager
def in_effect(command: object) -> Generator[None]:
    """Apply the data folder, the safe CSV format and the number of threads inside the block."""
    variables: dict[str, str] = {}  # inherited by processes that the command starts
    with ExitStack() as stack:
        if isinstance(command, Data) and command.data_dir is not None:
            variables["GRAPHLOG_DATA"] = str(command.data_dir)
        if isinstance(command, Reading) and command.excel_safe:
            stack.enter_context(excel_safe())
        if isinstance(command, Computing) and command.threads is not None:
            import torch

            variables["OMP_NUM_THREADS"] = str(command.threads)
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(command.threads)
        before = {name: os.environ.pop(name) for name in variables if name in os.environ}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name in variables:
                os.environ.pop(name, None)
            os.environ.update(before)


def as_flags(group: Any, words: Sequence[str]) -> Callable[[str, object], str]:
    """Return a function that writes a setting as on the command line, for error messages.

    It looks for an option of that name first in the command that the command line ``words`` starts
    with, then in all other commands of the parser ``group``. A setting that no command has is
    written as in Python.
    """
    verbs = {**group.commands, **group.commands["data"].commands}
    current = [verbs[word] for word in words[:2] if word in verbs]

    def write(name: str, value: object = None) -> str:
        for verb in (*reversed(current), *verbs.values()):
            for param in verb.params:
                if param.name == name:
                    return _typed(param, value)
        return in_python(name, value)

    return write


def _typed(param: Any, value: object) -> str:
    """Return an option and its value as a user types them, or the placeholder of an argument."""
    if param.param_type_name == "argument":
        return str(param.metavar)
    if value is False and param.secondary_opts:
        return param.secondary_opts[0]
    flag = max(param.opts, key=len)
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return flag if value is None or isinstance(value, bool) else f"{flag} {value}"


def chosen_settings(
    call: Callable[..., object],
    command: "Command",
    named: Mapping[str, Any],
    pairs: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the settings given on the command line, by dotted name.

    Args:
        call: The function that receives the settings. ``--set`` cannot change its other arguments.
        command: The command. ``--set`` cannot change its other options either.
        named: The value of each option that is a setting, by the name of the setting; None where
            the option was not given.
        pairs: The ``key=value`` texts of ``--set``.

    Raises:
        ConfigError: If a setting is given twice with different values, or ``--set`` names an
            argument that is not a setting.
    """
    from graphlog.config import parse_override  # imported here: pydantic would slow down --help

    chosen = {key: value for key, value in named.items() if value is not None}
    options = (field.name for field in fields(command))
    arguments = {*signature(call).parameters, *options}
    arguments -= {key.rpartition(".")[2] for key in named}
    for pair in pairs or ():
        path, value = parse_override(pair)
        # a setting may be written by its full name: training.epochs is epochs
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
    """Return the keyword arguments of ``finetune`` from a settings file and the command line.

    The argument ``config`` has the settings of the file, updated by the ``chosen`` ones of the
    command line; they are not separate arguments, because options of the readers have the same
    names. ``seeds`` is returned if the file has seeds.

    Raises:
        ConfigError: If the file has no settings of fine-tuning.
    """
    if file is None:
        return dict(chosen)
    from graphlog.config import read_toml
    from graphlog.downstream.finetune import FinetuneConfig
    from graphlog.training.settings import command_of

    tables = read_toml(file)
    if not isinstance(tables.get("finetune"), Mapping):
        command = command_of(tables)
        origin = f": it is from a run of {command}" if command else ""
        raise ConfigError(
            f"{file} has no table [finetune]{origin}; name the best.toml of tune or the "
            "config.toml of a run of finetune.",
            file=file,
        )
    settings = {key: chosen[key] for key in chosen if key in FinetuneConfig.model_fields}
    others = {key: value for key, value in chosen.items() if key not in settings}
    stored = dict[str, Any](tables["finetune"])
    seeds: Any = stored.pop("seeds", None)
    if seeds is not None:
        if not isinstance(seeds, list) or any(type(seed) is not int for seed in seeds):  # pyright: ignore[reportUnknownVariableType]
            raise ConfigError(
                f"{file}: seeds must be whole numbers such as [0, 1, 2], found {seeds!r}.",
                option="seeds",
                file=file,
            )
        others["seeds"] = seeds
    return {"config": FinetuneConfig.of_file(stored).updated(settings), **others}


START, DATA, TRAIN, USE, LOOK = "Start here", "Data", "Train", "Use an encoder", "Look at results"
PANELS = (START, DATA, TRAIN, USE, LOOK)
"""Headings of ``graphlog --help``, in order. The headings of other packages come last."""
COMMANDS = "Commands"
"""Heading of ``graphlog data --help``."""

_WRITES_STDOUT = re.compile(r"(^|\0)(-\w*o\0?|--output[\0=])-(\0|$)")
"""Pattern for a command line, parsed or not, that writes to ``-``; its words are joined by \\0."""
INVALID_INPUT, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
"""Exit codes of errors."""


@dataclass(kw_only=True)
class Command:
    """Base class of the verbs. The fields are the options; those here belong to every verb."""

    quiet: bool = option(False, "Print no progress, messages or summary.", None, "--quiet", "-q")
    as_json: bool = option(False, "Print the result as JSON.", None, "--json")

    def run(self) -> int | None:
        """Make one call of graphlog and print the result; return the exit code, None for 0."""
        raise NotImplementedError

    def given(self, *left_out: str) -> dict[str, Any]:
        """Return the options that have a value, as keyword arguments of a public call.

        The options ``left_out`` and those that are not arguments of a call, such as ``--quiet``,
        are left out.
        """
        others = {"quiet", "as_json", *_GLOBAL_OPTIONS, *left_out}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in others}
        return {name: value for name, value in values.items() if value is not None}

    def say(self, text: str) -> None:
        """Print a message to standard error unless quiet."""
        if not self.quiet:
            say(text)

    def progress(self, every_s: float = 10.0) -> "Progress":
        """Return the progress display; plain lines are printed about every ``every_s`` seconds."""
        from graphlog.training.log import as_progress

        return as_progress(not self.quiet, every_s)

    def summary(self, fields: Mapping[str, Any], *tables: Table, out: Path | None = None) -> None:
        """Print a summary of the files written, as JSON or as tables; nothing if quiet.

        It goes to standard error if ``out``, the output of the command, is standard output.
        """
        if self.as_json or not self.quiet:
            to = sys.stderr if str(out) == "-" else None
            self.result(fields, *(tables or (fields_table(fields),)), to=to)

    def result(
        self, value: Mapping[str, Any] | Sequence[Any], *tables: Table, to: TextIO | None = None
    ) -> None:
        """Print the result of a command: ``value`` as JSON with ``--json``, else ``tables``."""
        if self.as_json:
            print(json.dumps(value, indent=2, default=_plain), file=to)
            return
        for number, table in enumerate(tables):
            if number and table.title:
                print(file=to)
            _print(table, to)


class Verb(NamedTuple):
    """A command and its place in the help."""

    command: type[Command]
    panel: str
    """Heading under which the verb is listed."""
    example: str
    """Command line shown at the end of its help."""


OWN: dict[str, Verb] = {}
"""Verbs of graphlog itself by name; the verbs of ``graphlog data`` are ``data list`` and so on."""
Kind = TypeVar("Kind", bound=type[Command])


@dataclass_transform(kw_only_default=True)
def verb(name: str, panel: str, example: str) -> Callable[[Kind], Kind]:
    """Return a decorator that makes a class a dataclass and a verb; see :class:`Verb`."""

    def decorate(command: Kind) -> Kind:
        OWN[name] = Verb(dataclass(kw_only=True)(command), panel, example)
        return command

    return decorate


def screen_width(file: TextIO | None = None) -> int | None:
    """Return the width of a terminal, by default standard output; None for any other file."""
    from rich.console import Console

    stream = sys.stdout if file is None else file
    return Console(file=stream).width if stream.isatty() else None


def _print(table: Table, to: TextIO | None) -> None:
    """Print a table, fitted to the width of a terminal, or as aligned plain text in a file.

    The widest column is wrapped at spaces; words are never cut, because users may copy them. If the
    table is still too wide, each line has one name and its value.
    """
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    file, has_names = to or sys.stdout, any(table.columns)
    screen = screen_width(file)
    console = Console(file=file, force_terminal=screen is not None, width=1 << 20)
    if table.title:
        console.print(Text(table.title, "italic"))
    cells = [[_text(cell) for cell in row] for row in table.rows]
    columns = list(zip(table.columns, *cells, strict=True))
    if screen is not None and len(columns) > 1:
        widths = [max(map(cell_len, column)) for column in columns]
        widest = widths.index(max(widths))
        room = screen - sum(widths) + widths[widest] - 2 * len(widths) - 1  # less the margins

        def wrapped(text: str) -> str:
            width = max(room, 1, *map(cell_len, text.split()))
            return "\n".join(line.plain for line in Text(text).wrap(console, width))

        columns[widest] = tuple(map(wrapped, columns[widest]))
        if has_names and max(map(cell_len, "\n".join(columns[widest]).split("\n"))) > room:
            for row in table.rows:
                fields = zip(table.columns, row, strict=True)
                _print(fields_table({name: cell for name, cell in fields if _text(cell)}), to)
                print(file=file)
            return
    style: dict[str, Any] = {"box": None, "pad_edge": False}
    if screen is not None and has_names:
        style = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
    drawn = RichTable(show_header=has_names, **style)
    for name, *texts in columns:
        known = [text for text in texts if text]
        is_numeric = bool(name and known) and all(t[0].isdigit() or t[0] in "-+.±" for t in known)
        drawn.add_column(Text(name), justify="right" if is_numeric else "left")
    for row in list(zip(*columns, strict=True))[1:]:
        drawn.add_row(*map(Text, row))
    with console.capture() as lines:
        console.print(drawn)
    file.writelines(f"{line.rstrip()}\n" for line in lines.get().splitlines())


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case list() | tuple():
            return ", ".join(_text(v) for v in value)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return printable(" ".join(str(value).split()))


def _plain(value: object) -> object:
    for method in ("to_dict", "model_dump", "tolist"):
        convert = getattr(value, method, None)
        if convert is not None:
            return convert()
    return str(value)


def printable(text: str) -> str:
    r"""Return ``text`` with control characters escaped, so that input cannot drive the terminal.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    return re.sub(
        r"[^\n\t]",
        lambda c: c[0] if c[0].isprintable() else c[0].encode("unicode_escape").decode(),
        text,
    )


def say(line: str) -> None:
    """Print one line to standard error; ignore a closed stream, since this reports errors."""
    with suppress(OSError, ValueError):
        print(printable(line), file=sys.stderr, flush=True)


def report_error(error: BaseException, words: Sequence[str] = ()) -> int | None:
    """Print the error that ended a command line, as JSON with ``--json``; return the exit code.

    For an internal error, print nothing and return None.
    """
    # the parser turns the error of a closed pipe into SystemExit
    cause = error.__context__ if isinstance(error, SystemExit) else error
    if isinstance(cause, BrokenPipeError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    stops = KeyboardInterrupt | TrainingInterrupted
    if isinstance(error, stops) or type(error).__name__ == "Abort":
        if is_first():
            say(f"graphlog: {str(error) or 'interrupted.'}")
        return INTERRUPTED
    if isinstance(error, ProcessLostError) and (is_supervised() or not is_first()):
        return PEER_LOST if is_supervised() else INVALID_INPUT
    message = _message_of(error)
    if not message:
        return None if message is None else 0
    message = " ".join(message.split())
    if "--json" in words:
        known = {key: getattr(error, key, None) for key in ("option", "file", "row")}
        known["option"] = known["option"] or getattr(getattr(error, "param", None), "name", None)
        about = {"kind": type(error).__name__, "message": message}
        about |= {key: value for key, value in known.items() if value is not None}
        # as for a summary: not into the output, where that is standard output
        to = sys.stderr if _WRITES_STDOUT.search("\0".join(words)) else sys.stdout
        with suppress(OSError):  # the error may be that this stream is closed or full
            if to is not None:
                print(json.dumps({"error": about}, indent=2), file=to, flush=True)
                return INVALID_INPUT
    say(f"graphlog: error: {message}")
    return INVALID_INPUT


def _message_of(error: BaseException) -> str | None:
    """Return the message for an error that the user can fix, and None for an internal error.

    The message is empty if the parser has printed a page of help instead.
    """
    if isinstance(error, GraphLoGError):
        return str(error)
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return "not enough memory; use a smaller --batch-size or --limit, or fewer --workers."
    if isinstance(error, OSError):
        name, reason = error.filename, (error.strerror or str(error)).lower()
        if not name and number not in ADVICE:
            return None
        where = f"'{os.fsdecode(name)}'" if isinstance(name, str | bytes) else "an output file"
        return f"{where}: {reason}; {ADVICE.get(number, CHECK_PATH)}."
    if isinstance(error, RuntimeError):
        is_full = re.search("(?i)out of memory|can't allocate memory", str(error))
        advice = "use a smaller --batch-size or --device cpu."
        return f"the device is out of memory; {advice}" if is_full else None
    # usage errors of the parser, whichever library they come from
    return _usage_message(error) if hasattr(error, "format_message") else None


@contextmanager
def warnings_as_lines() -> Generator[None]:
    """Print each warning as one line on standard error, without the line of source code."""

    def show(message: Warning | str, *_: object) -> None:
        say(f"graphlog: warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def open_streams() -> None:
    """Replace standard streams that the caller closed (``>&-``) by the null device.

    Characters that standard output cannot encode, such as in a pipe of Windows, are escaped.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # `open` takes the lowest free descriptor: the stream's
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _usage_message(error: BaseException) -> str:
    """Return one line for a usage error; empty if the parser has printed a help page instead."""
    context = getattr(error, "ctx", None)
    message = str(getattr(error, "format_message")())  # noqa: B009 - a private class of the parser
    if not message or type(error).__name__ == "NoArgsIsHelpError":
        return ""
    message = message.replace("Value error, ", "").replace("Input should be", "must be")
    similar: Sequence[str] = ()
    if (option := getattr(error, "option_name", None)) and message.startswith("No such option"):
        message, similar = f"unknown option '{option}'", getattr(error, "possibilities", None) or ()
    elif choice := re.search(r"'([^']*)' is not one of (.*)", message):
        similar = get_close_matches(choice[1], re.findall("'(.*?)'", choice[2]), cutoff=0.5)
    message = message.rstrip(".") + "".join(f"; did you mean '{name}'?" for name in similar[:1])
    end = "" if message.endswith("?") else "."
    path = context.command_path if context is not None else "graphlog"
    return f"{message}{end} See: {path} --help"
