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
from graphlog.cli import command as o
from graphlog.cli import data, look, train, use
from graphlog.errors import WORDING
from graphlog.plugins import Registry
from graphlog.processes import WORDS

MODULES = (data, train, use, look)
"""The modules of the panels of the help; importing them adds their verbs to ``OWN``."""
VERBS: Registry[o.Verb] = Registry(
    "verb",
    {name: verb for name, verb in o.OWN.items() if " " not in name},
    lambda _, part: None if isinstance(part, o.Verb) else "a graphlog.cli.command.Verb",
)
"""All verbs by name; entry points add those of the extras and of other packages."""

_LIST = re.compile(r"\w+(,\w+)+")
"""Pattern for the placeholder of an option that takes a list, such as ``A,B``."""
_FILE = re.compile(r"\b(DIR|FILE|INPUT|LIBRARY|MODEL|OLD|OUT|PATH|QUERY|RUN|STORE)\b")
"""Pattern for the placeholder of a file or folder."""
_NOT_STREAMED = ("DIR", "MODEL.safetensors", "RUN", "STORE")
"""Placeholders of folders and binary files, which cannot be a standard stream."""
_PANELS: Mapping[str, frozenset[str]] = {
    "Labels and split": frozenset({*o.Labeling.__annotations__, "labels_range"}),
    "Reading the input": frozenset({*o.Reading.__annotations__, *o.Data.__annotations__}),
    "Computing": frozenset({"threads", "precision", "device", "engine", "processes"}),
    "Output": frozenset({"format", "overwrite", "resume", "callbacks", "quiet", "as_json", "help"}),
}
"""Shared options by the panel of the help that shows them; other options come first."""


def _panel(param: Any) -> str | None:
    return getattr(param, "rich_help_panel", None)  # --help lacks the attribute in typer 0.19


class _WithoutTypes:
    """Mix-in that hides the types of flags and arguments in the help."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = getattr(super(), "get_params")(ctx)  # noqa: B009 - of the parser
        for param in params:
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None
            elif param.is_flag:
                param.metavar = ""
        return params


class _Group(_WithoutTypes, TyperGroup):
    pass


class _Verb(_WithoutTypes, TyperCommand):
    """A command whose help lists its own options first, then the shared options in panels."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        command: type[o.Command] = inspect.unwrap(settings["callback"])
        order = [name for kind in command.__mro__ for name in vars(kind).get("__annotations__", ())]
        self.params.sort(key=lambda p: (not p.required, order.index(str(p.name))))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters in the order of their panels."""
        params, panels = super().get_params(ctx), [None, *_PANELS]
        for param in params:
            for panel, names in _PANELS.items():
                if param.name in names and not param.required and not _panel(param):
                    param.rich_help_panel = panel
        # a panel of one verb alone comes after the options without a panel
        return sorted(params, key=lambda p: panels.index(_panel(p)) if _panel(p) in panels else 0.5)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; refuse an empty path, - for a folder, and a list given twice.

        An empty path, for example from a shell variable that is not set, would mean the current
        folder. Of a list given twice, the parser would ignore the first one.
        """
        parsed: Any = self.make_parser(ctx).parse_args(args=list(args))
        values, _, given = parsed
        for param in given:
            value = values.get(param.name)
            is_empty = value == "" or (isinstance(value, list) and "" in value)
            if is_empty and _FILE.search(param.metavar or ""):
                raise typer.BadParameter("is empty; name a path", ctx=ctx, param=param)
            if value == "-" and param.metavar in _NOT_STREAMED:
                raise typer.BadParameter(
                    "cannot be a standard stream (-); name a path", ctx=ctx, param=param
                )
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
    """Return the parser of all verbs; it is cached, because it is slow to build."""
    return get_command(app)


def add_verb(name: str, verb: o.Verb, to: typer.Typer = app) -> None:
    """Add a verb to ``graphlog``, or to a group of its verbs such as ``graphlog data``."""
    whole_parser.cache_clear()
    text = inspect.getdoc(verb.command) or ""
    if text.startswith(f"{verb.command.__name__}("):
        text = ""  # without docstrings (python -OO), a dataclass has its signature as docstring
    # typer would keep the line breaks of the code in all paragraphs but the first
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    epilog = f"Example: {verb.example}"
    to.command(name, cls=_Verb, help=text, epilog=epilog, rich_help_panel=verb.panel)(verb.command)


for _name, _verb in sorted(
    VERBS.items(), key=lambda item: [*o.PANELS, item[1].panel].index(item[1].panel)
):
    add_verb(_name, _verb)
for _name, _verb in o.OWN.items():
    if _name.startswith("data "):
        add_verb(_name.removeprefix("data "), _verb, data_app)
app.add_typer(data_app, name="data", rich_help_panel=o.DATA)


def _run(words: list[str]) -> int:
    """Parse a command line and run the command; return its exit code."""
    WORDS.set(words)
    parser = whole_parser()
    command = parser.main(args=words, prog_name="graphlog", standalone_mode=False)
    if not isinstance(command, o.Command):  # the parser has printed a page of help
        return int(command or 0)
    WORDING.set(o.as_flags(parser, words))
    with o.in_effect(command):
        return command.run() or 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an internal error keeps its traceback.

    Args:
        arguments: The words after ``graphlog``; None uses the command line of the process.

    Returns:
        0 for success, 2 for invalid input, 130 if interrupted, 141 if the output pipe was closed.
    """
    o.open_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:  # exit by an exception, so that unfinished files are removed
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with o.warnings_as_lines():
            # a copy of the context, so that its variables are set for this command only
            code = copy_context().run(_run, words)
        sys.stdout.flush()
    except BaseException as e:
        code = o.report_error(e, words)
        if code is None:
            raise
    return code
