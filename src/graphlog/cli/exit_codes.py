"""Exit codes of the command line, and the one-line messages that go with them."""

import contextlib
import errno
import os
import re
import sys
import warnings
from collections.abc import Generator
from difflib import get_close_matches
from typing import TextIO

from graphlog import processes
from graphlog.errors import GraphLoGError, ProcessLostError

INVALID_INPUT, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
PEER_LOST = 75
"""Of one of several processes, to the one that started them: another one knows what happened."""

_NO_MEMORY = "not enough memory; use a smaller --batch-size or --limit, or fewer --workers."


class Interrupted(BaseException):
    """Ctrl-C, as a class that the option parser does not catch."""


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


def fail(message: str) -> int:
    """Print an error message on one line and return the exit code for invalid input."""
    say(f"graphlog: error: {' '.join(message.split())}")
    return INVALID_INPUT


def exit_code_of(error: BaseException) -> int | None:
    """Print what ``error`` means and return its exit code; None for an internal error.

    Args:
        error: Whatever ended the command.
    """
    match error:
        # the parser turns a closed pipe into SystemExit
        case BrokenPipeError() | SystemExit(__context__=BrokenPipeError()):
            _silence_standard_output()
            return PIPE_CLOSED
        case KeyboardInterrupt() | Interrupted():
            say("graphlog: interrupted.")
            return INTERRUPTED
        case ProcessLostError() if processes.is_supervised():
            return PEER_LOST
        case ProcessLostError() if not processes.is_first():
            return INVALID_INPUT
        case GraphLoGError():
            return fail(str(error))
        case MemoryError():
            return fail(_NO_MEMORY)
        case OSError():
            return _exit_code_of_os_error(error)
        case RuntimeError() if _is_out_of_device_memory(error):
            return fail("the device is out of memory; use a smaller --batch-size or --device cpu.")
        # usage errors of the parser, whichever library they come from
        case _ if hasattr(error, "format_message"):
            message = _usage_message(error)
            return fail(message) if message else 0
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


def _silence_standard_output() -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_code_of_os_error(error: OSError) -> int | None:
    name = error.filename
    where = f"'{os.fsdecode(name)}'" if isinstance(name, str | bytes) else "an output file"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return fail(f"{where}: the disk is full; free some space, or write elsewhere with -o.")
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return fail(
                f"{where}: permission denied; choose another path or change its permissions."
            )
        case errno.EFBIG:
            return fail(
                f"{where}: the file is too large; write to another disk with -o, "
                "or raise the limit (ulimit -f)."
            )
        case errno.EIO:
            return fail(f"{where}: input/output error; check the disk, or write elsewhere with -o.")
        case errno.ENOMEM:
            return fail(_NO_MEMORY)
        case errno.ENOENT:
            return fail(f"no such file or folder: {where}; check the path.")
        case _ if name:
            return fail(f"{where}: {(error.strerror or str(error)).lower()}.")
        case _:
            return None


def _is_out_of_device_memory(error: RuntimeError) -> bool:
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text


def _usage_message(error: BaseException) -> str:
    """Return one line for a usage error; empty where the parser has shown a help page instead."""
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    message = str(getattr(error, "format_message")())  # noqa: B009 - a private class of the parser
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
