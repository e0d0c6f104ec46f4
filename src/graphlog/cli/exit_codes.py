"""What the command line says, and with which exit code, when a run ends before its time."""

import contextlib
import errno
import os
import re
import sys
import warnings
from collections.abc import Generator
from difflib import get_close_matches
from typing import TextIO

from graphlog.errors import GraphLoGError

MENDABLE, INTERRUPTED, PIPE_CLOSED = 2, 130, 141


class Interrupted(BaseException):
    """Ctrl-C, under a name that the parser does not know and so cannot swallow."""


def say(line: str) -> None:
    """Print one line to standard error; never fail, for this is how failures are told."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def fail(message: str) -> int:
    """Tell the user what to mend and return the exit code that goes with it."""
    say(f"graphlog: error: {' '.join(message.split())}")
    return MENDABLE


def ending_of(error: BaseException) -> int | None:
    """Return the exit code for ``error`` after saying what it means, or None for a bug of ours."""
    match error:
        case (
            BrokenPipeError() | SystemExit(__context__=BrokenPipeError())
        ):  # the parser turns one into the other
            _silence_standard_output()
            return PIPE_CLOSED
        case KeyboardInterrupt() | Interrupted():
            say("graphlog: interrupted.")
            return INTERRUPTED
        case GraphLoGError():
            return fail(str(error))
        case MemoryError():
            return fail(
                "not enough memory; mend it with a smaller --batch-size, --limit or fewer --workers."
            )
        case OSError():
            return _end_on_system_error(error)
        case RuntimeError() if _is_out_of_device_memory(error):
            return fail(
                "the device is out of memory; mend it with a smaller --batch-size or --device cpu."
            )
        case _ if hasattr(
            error, "format_message"
        ):  # the parser's own errors, whichever library they come from
            message = _usage_message(error)
            return fail(message) if message else 0
        case _:
            return None


@contextlib.contextmanager
def warnings_as_lines() -> Generator[None]:
    """Show warnings as one line each on standard error instead of with a line of source."""

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


def _silence_standard_output() -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_on_system_error(error: OSError) -> int | None:
    where = f"'{error.filename}'" if error.filename else "standard output or a file of this run"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return fail(f"{where}: the disk is full; free some space, or write elsewhere with -o.")
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return fail(
                f"{where}: no permission to read or write there; choose another place or change its rights."
            )
        case errno.EFBIG:
            return fail(
                f"{where}: larger than a file may be there; write to another disk with -o, or raise the limit (ulimit -f)."
            )
        case errno.EIO:
            return fail(
                f"{where}: the disk does not answer (input/output error); write elsewhere with -o, or ask who runs it."
            )
        case errno.ENOMEM:
            return fail(
                "not enough memory; mend it with a smaller --batch-size, --limit or fewer --workers."
            )
        case errno.ENOENT:
            return fail(f"no such file or folder: {where}; check the path.")
        case _ if error.filename:
            return fail(f"{where}: {(error.strerror or str(error)).lower()}.")
        case _:
            return None


def _is_out_of_device_memory(error: RuntimeError) -> bool:
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text


def _usage_message(error: BaseException) -> str:
    """Return one line for an error of the parser; nothing where it has shown a help page instead."""
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    message = str(getattr(error, "format_message")())  # noqa: B009 - the class is private to the parser
    if not message or type(error).__name__ == "NoArgsIsHelpError":
        return ""
    if option is not None and message.startswith("No such option"):
        known = [o for p in context.command.params for o in p.opts] if context is not None else []
        near = get_close_matches(str(option), known, n=1, cutoff=0.5)
        message = f"unknown option '{option}'" + (f"; did you mean '{near[0]}'?" if near else ".")
    message = message.replace("Value error, ", "")
    choice = re.search(r"'([^']*)' is not one of (.*?)\.?$", message)
    if choice is not None:
        near = get_close_matches(choice[1], re.findall(r"'([^']*)'", choice[2]), n=1, cutoff=0.5)
        message = message.rstrip(".") + (f"; did you mean '{near[0]}'?" if near else ".")
    path = context.command_path if context is not None else "graphlog"
    return f"{message.rstrip('.?')}{'?' if message.endswith('?') else '.'} See: {path} --help"
