"""What a command is and says: tables, JSON, messages, progress and, when it fails, exit code."""

import contextlib
import csv
import errno
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

from graphlog.cli import options as o
from graphlog.data.html import Table, fields_table
from graphlog.errors import GraphLoGError, ProcessLostError, TrainingInterrupted
from graphlog.processes import PEER_LOST, is_first, is_supervised

if TYPE_CHECKING:
    from graphlog.training.log import Progress

START, DATA, TRAIN, USE, LOOK = "Start here", "Data", "Train", "Use an encoder", "Look at results"
PANELS = (START, DATA, TRAIN, USE, LOOK)
"""Headings of ``graphlog --help``, in order; a package may have its own, which come last."""
COMMANDS = "Commands"
"""The heading of ``graphlog data --help``."""

INVALID_INPUT, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
_NO_MEMORY = "not enough memory; use a smaller --batch-size or --limit, or fewer --workers."


@dataclass(kw_only=True)
class Command:
    """A verb with its options, which are the fields; what every verb has is here."""

    quiet: bool = o.option(False, "Print no progress, messages or summary.", None, "--quiet", "-q")
    as_json: bool = o.option(False, "Print the result as JSON.", None, "--json")

    def run(self) -> int | None:
        """Make one call of graphlog and print the outcome; return an exit code other than 0."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        """Print a message to standard error unless quiet."""
        if not self.quiet:
            say(text)

    def progress(self, every_s: float = 10.0) -> "Progress":
        """Return the display of progress; plain lines come about every ``every_s`` seconds."""
        from graphlog.training.log import as_progress

        return as_progress(not self.quiet, every_s)

    def summary(self, fields: Mapping[str, Any], out: Path | None = None) -> None:
        """Print what a command has written, as JSON or as a table; nothing if quiet.

        It goes to standard error where ``out``, the output, is standard output.
        """
        if self.as_json or not self.quiet:
            to = sys.stderr if str(out) == "-" else None
            self.result(fields, fields_table(fields), to=to)

    def result(
        self, value: Mapping[str, Any] | Sequence[Any], *tables: Table, to: TextIO | None = None
    ) -> None:
        """Print what was asked for: ``value`` as JSON with ``--json``, ``tables`` otherwise."""
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
    """Heading under which it is listed."""
    example: str
    """Command line shown at the end of its help."""


OWN: dict[str, Verb] = {}
"""The verbs of graphlog by name; those after ``graphlog data`` are called ``data list``, ..."""
Kind = TypeVar("Kind", bound=type[Command])


def verb(name: str, panel: str, example: str) -> Callable[[Kind], Kind]:
    """Return what makes a command a verb of graphlog, for use as its decorator; see :class:`Verb`.

    Args:
        name: What follows ``graphlog``.
        panel: Heading.
        example: Command line.
    """

    def added(command: Kind) -> Kind:
        OWN[name] = Verb(command, panel, example)
        return command

    return added


def _print(table: Table, to: TextIO | None) -> None:
    """Write a table: drawn by rich on a terminal, as aligned plain text elsewhere."""
    cells = [[_text(cell) for cell in row] for row in table.rows]
    columns = [[row[i] for row in cells if row[i]] for i in range(len(table.columns))]
    is_numeric = [
        bool(name and column) and all(c[0].isdigit() or c[0] in "-+." for c in column)
        for name, column in zip(table.columns, columns, strict=True)
    ]
    if (to or sys.stdout).isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console as RichConsole
        from rich.table import Table as RichTable
        from rich.text import Text

        looks: Any = {"title_justify": "left", "box": SIMPLE_HEAD}
        drawn = RichTable(title=table.title or None, show_header=any(table.columns), **looks)
        for name, right in zip(table.columns, is_numeric, strict=True):
            drawn.add_column(name, justify="right" if right else "left", overflow="fold")
        for row in cells:
            drawn.add_row(*map(Text, row))
        RichConsole(file=to).print(drawn)
        return
    if table.title:
        print(table.title, file=to)
    lines = [list(table.columns), *cells] if any(table.columns) else cells
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        aligned = zip(line, widths, is_numeric, strict=True)
        padded = (c.rjust(width) if right else c.ljust(width) for c, width, right in aligned)
        print("  ".join(padded).rstrip(), file=to)


def rejected_rows(folder: Path) -> tuple[int, Path | None]:
    """Return how many rows of a run's input were rejected, and their list if there are any."""
    from graphlog.data.graphs import rejects_of_output

    path = rejects_of_output(folder, folder.absolute().name)
    if not path.is_file():
        return 0, None
    with path.open(encoding="utf-8", newline="") as file:
        count = sum(1 for _ in csv.reader(file)) - 1
    return (count, path) if count > 0 else (0, None)


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
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c in "\n\t"
        else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def say(line: str) -> None:
    """Print one line to standard error; never raises, since it reports failures."""
    with contextlib.suppress(OSError, ValueError):
        print(printable(line), file=sys.stderr, flush=True)


def report_error(error: BaseException, words: Sequence[str] = ()) -> int | None:
    """Print what ended a command, as JSON with ``--json``; return the exit code.

    Args:
        error: What ended it.
        words: The command.

    Returns:
        None for an internal error, of which nothing is printed.
    """
    match error:
        # the parser turns a closed pipe into SystemExit
        case BrokenPipeError() | SystemExit(__context__=BrokenPipeError()):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return PIPE_CLOSED
        case _ if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
            say("graphlog: interrupted.")
            return INTERRUPTED
        case TrainingInterrupted():
            if is_first():
                say(f"graphlog: {error}")
            return INTERRUPTED
        case ProcessLostError() if is_supervised():
            return PEER_LOST
        case ProcessLostError() if not is_first():
            return INVALID_INPUT
        case _:
            message = _message_of(error)
    if message is None:
        return None
    if not message:
        return 0
    message = " ".join(message.split())
    if "--json" in words:
        known = {key: getattr(error, key, None) for key in ("option", "file", "row")}
        known["option"] = known["option"] or getattr(getattr(error, "param", None), "name", None)
        about = {"kind": type(error).__name__, "message": message}
        about |= {key: value for key, value in known.items() if value is not None}
        # as the summary would be: beside the output where that is standard output
        to = sys.stderr if ("-o", "-") in pairwise(words) or "--output=-" in words else sys.stdout
        print(json.dumps({"error": about}, indent=2), file=to, flush=True)
    else:
        say(f"graphlog: error: {message}")
    return INVALID_INPUT


def _message_of(error: BaseException) -> str | None:
    """Return what the user can do about an error; None where only we can, empty where all is said.

    The parser has then shown a page of help.
    """
    match error:
        case GraphLoGError():
            return str(error)
        case MemoryError():
            return _NO_MEMORY
        case OSError():
            return _message_of_os_error(error)
        case RuntimeError() if re.search("(?i)out of memory|can't allocate memory", str(error)):
            return "the device is out of memory; use a smaller --batch-size or --device cpu."
        # usage errors of the parser, whichever library they come from
        case _ if hasattr(error, "format_message"):
            return _usage_message(error)
        case _:
            return None


@contextlib.contextmanager
def warnings_as_lines() -> Generator[None]:
    """Show each warning as one line on standard error, without its line of source."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        say(f"graphlog: warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def open_missing_streams() -> None:
    """Replace standard streams that were closed by the caller (``>&-``) by the null device."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _message_of_os_error(error: OSError) -> str | None:
    name = error.filename
    where = f"'{os.fsdecode(name)}'" if isinstance(name, str | bytes) else "an output file"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"{where}: the disk is full; free some space, or write to another disk."
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return f"{where}: permission denied; choose another path or change its permissions."
        case errno.EFBIG:
            return (
                f"{where}: the file is too large; write to another disk, "
                "or raise the limit (ulimit -f)."
            )
        case errno.EIO:
            return f"{where}: input/output error; check the disk, or write to another one."
        case errno.ENOMEM:
            return _NO_MEMORY
        case errno.ENOENT:
            return f"no such file or folder: {where}; check the path."
        case _ if name:
            return f"{where}: {(error.strerror or str(error)).lower()}."
        case _:
            return None


def _usage_message(error: BaseException) -> str:
    """Return one line for a usage error; empty where the parser has shown a help page instead."""
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    message = str(getattr(error, "format_message")())  # noqa: B009 - a private class of the parser
    if not message or type(error).__name__ == "NoArgsIsHelpError":
        return ""
    if option is not None and message.startswith("No such option"):
        known = [o for p in context.command.params for o in p.opts] if context is not None else []
        near = get_close_matches(str(option), known, n=1, cutoff=0.6)
        message = f"unknown option '{option}'" + (f"; did you mean '{near[0]}'?" if near else ".")
    message = message.replace("Value error, ", "").replace("Input should be", "must be")
    choice = re.search(r"'([^']*)' is not one of (.*?)\.?$", message)
    if choice is not None:
        near = get_close_matches(choice[1], re.findall(r"'([^']*)'", choice[2]), n=1, cutoff=0.5)
        message = message.rstrip(".") + (f"; did you mean '{near[0]}'?" if near else ".")
    path = context.command_path if context is not None else "graphlog"
    return f"{message.rstrip('.?')}{'?' if message.endswith('?') else '.'} See: {path} --help"
