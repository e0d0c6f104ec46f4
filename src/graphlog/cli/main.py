"""The Typer application and the entry point ``graphlog``."""

import inspect
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from graphlog import __version__
from graphlog.cli import data, look, train, use
from graphlog.cli.command import (
    DATA,
    OWN,
    PANELS,
    Command,
    Data,
    Labeling,
    Reading,
    Verb,
    as_flags,
    in_effect,
    open_streams,
    report_error,
    warnings_as_lines,
)
from graphlog.errors import WORDING
from graphlog.plugins import Registry
from graphlog.processes import WORDS

MODULES = (data, train, use, look)
"""One a panel of the help; their verbs add themselves to ``OWN``."""
VERBS: Registry[Verb] = Registry(
    "verb",
    {name: verb for name, verb in OWN.items() if " " not in name},
    lambda _, part: None if isinstance(part, Verb) else "a graphlog.cli.command.Verb",
)
"""The verbs, those of the extras and of other packages by entry points."""


_LIST = re.compile(r"\w+(,\w+)+")
"""How the help writes a list."""
_FILE = re.compile(r"\b(DIR|FILE|INPUT|LIBRARY|MODEL|OLD|OUT|PATH|QUERY|RUN|STORE)\b")
"""How it writes what names a file or folder."""


_GROUPS: Mapping[str, frozenset[str]] = {
    "Labels and split": frozenset({*Labeling.__annotations__, "labels_range"}),
    "Reading the input": frozenset({*Reading.__annotations__, *Data.__annotations__}),
    "Computing": frozenset({"threads", "precision", "device", "engine", "processes"}),
    "Output": frozenset({"format", "overwrite", "resume", "callbacks", "quiet", "as_json", "help"}),
}
"""Fields of commands by the panel of the help; others are at the top."""


def _panel(param: Any) -> str | None:
    return getattr(param, "rich_help_panel", None)  # in typer 0.19, --help has none


class _Plain:
    """Shows no type beside a flag, which has no value, nor beside an argument, which has a name."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = getattr(super(), "get_params")(ctx)  # noqa: B009 - of the parser
        for param in params:
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None
            elif param.is_flag:
                param.metavar = ""
        return params


class _Group(_Plain, TyperGroup):
    """A group of commands."""


class _OwnFirst(_Plain, TyperCommand):
    """Lists a command's own options before those that it shares, in panels."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        command: type[Command] = inspect.unwrap(settings["callback"])
        order = [name for kind in command.__mro__ for name in vars(kind).get("__annotations__", ())]
        self.params.sort(key=lambda p: (not p.required, order.index(str(p.name))))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters in the order of their panels."""
        params, panels = super().get_params(ctx), [None, *_GROUPS]
        for param in params:
            for panel, names in _GROUPS.items():
                if param.name in names and not param.required and not _panel(param):
                    param.rich_help_panel = panel
        # panels of one verb come after its own options
        return sorted(params, key=lambda p: panels.index(_panel(p)) if _panel(p) in panels else 0.5)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an empty path, and a list given twice, of which the parser would drop the first.

        An empty path, such as a variable that is not set, would be the current folder.
        """
        parsed: Any = self.make_parser(ctx).parse_args(args=list(args))
        values, _, given = parsed
        for param in given:
            value = values.get(param.name)
            is_empty = value == "" or (isinstance(value, list) and "" in value)
            if is_empty and _FILE.search(param.metavar or ""):
                raise typer.BadParameter("is empty; name a path", ctx=ctx, param=param)
        for option in {p for p in given if given.count(p) > 1}:
            if _LIST.fullmatch(option.metavar or ""):
                name = max(option.opts, key=len)
                raise typer.BadParameter(
                    f"given more than once; write one list, {name} {option.metavar}",
                    ctx=ctx,
                    param=option,
                )
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="graphlog",
    cls=_Group,
    help="Pre-train graph encoders without labels, on molecules and other graphs.",
    epilog="Example: graphlog quickstart -o tour. "
    "Exit codes: 0 success, 1 internal error, 2 invalid input, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphlog {__version__}")
        raise typer.Exit


_VERSION = typer.Option(
    "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
)


@app.callback()
def global_options(version: Annotated[bool, _VERSION] = False) -> None:
    """Pre-train graph encoders without labels, on molecules and other graphs."""


data_app = typer.Typer(
    cls=_Group,
    help="List, fetch and split data sets.",
    epilog="Example: graphlog data split bbbp --kind scaffold -o split.json",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@cache
def whole_parser() -> Any:
    """Return the parser of all verbs, which takes long to make."""
    return get_command(app)


def _described(command: type) -> str:
    text = inspect.getdoc(command) or ""
    # where Python leaves docstrings out (-OO), a dataclass has its signature in their place
    return "" if text.startswith(f"{command.__name__}(") else text


def add_verb(name: str, verb: Verb, to: typer.Typer = app) -> None:
    """Add a verb to ``graphlog``, or to a group of its verbs."""
    whole_parser.cache_clear()
    # typer keeps the lines of all paragraphs but the first, as wide as they are in the code
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", _described(verb.command))
    to.command(
        name,
        cls=_OwnFirst,
        help=text,
        epilog=f"Example: {verb.example}",
        rich_help_panel=verb.panel,
    )(verb.command)


for _name, _verb in sorted(
    VERBS.items(), key=lambda item: [*PANELS, item[1].panel].index(item[1].panel)
):
    add_verb(_name, _verb)
for _name, _verb in OWN.items():
    if _name.startswith("data "):
        add_verb(_name.removeprefix("data "), _verb, data_app)
app.add_typer(data_app, name="data", rich_help_panel=DATA)


def _run(words: list[str]) -> int:
    """Make a command of its words, without any effect, then run it."""
    WORDS.set(words)
    parser = whole_parser()
    command = parser.main(args=words, prog_name="graphlog", standalone_mode=False)
    if not isinstance(command, Command):  # a page of help was shown
        return int(command or 0)
    WORDING.set(as_flags(parser, words))
    with in_effect(command):
        return command.run() or 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an internal error keeps its traceback.

    Args:
        arguments: The words after ``graphlog``; None takes those of the process.

    Returns:
        0 for success, 2 for invalid input, 130 if interrupted, 141 if the output pipe was closed.
    """
    open_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:  # a process of its own: what it has begun to write is removed
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with warnings_as_lines():
            # what holds for this command alone is set in a context of its own
            code = copy_context().run(_run, words)
        sys.stdout.flush()
    except BaseException as e:
        code = report_error(e, words)
        if code is None:
            raise
    return code
