"""The Typer application and the entry point ``graphlog``."""

import signal
import sys
from collections.abc import Sequence
from contextvars import copy_context
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from graphlog import __version__
from graphlog.cli.console import Interrupted, exit_code_of, open_missing_streams, warnings_as_lines
from graphlog.cli.data import app as data_app
from graphlog.cli.data import convert, featurize
from graphlog.cli.look import info, models, plot, prototypes
from graphlog.cli.options import as_flags, with_groups
from graphlog.cli.train import benchmark, finetune, pretrain
from graphlog.cli.use import embed, predict, probe
from graphlog.cli.verb import DATA, LOOK, PANELS, TRAIN, USE, Verb
from graphlog.errors import WORDING
from graphlog.plugins import Registry
from graphlog.processes import WORDS

CORE = (
    Verb(featurize, DATA, "graphlog featurize zinc250k -o zinc.store"),
    Verb(convert, DATA, "graphlog convert gin_contextpred.pth -o contextpred.safetensors"),
    Verb(pretrain, TRAIN, "graphlog pretrain zinc.store -o run --epochs 11 --set encoder.dim=300"),
    Verb(finetune, TRAIN, "graphlog finetune bbbp -m run -o bbbp-run --seeds 0,1,2"),
    Verb(benchmark, TRAIN, "graphlog benchmark molecules -o bench --scale smoke"),
    Verb(embed, USE, "graphlog embed molecules.csv -m run -o embeddings.npz"),
    Verb(predict, USE, "graphlog predict new.csv -m bbbp-run -o predictions.csv"),
    Verb(probe, USE, "graphlog probe bbbp -m run"),
    Verb(models, LOOK, "graphlog models"),
    Verb(info, LOOK, "graphlog info run"),
    Verb(plot, LOOK, "graphlog plot run -o figures"),
    Verb(prototypes, LOOK, "graphlog prototypes run -o tree --input molecules.csv"),
)


def _check(name: str, part: object) -> str | None:
    return None if isinstance(part, Verb) else "a graphlog.cli.verb.Verb"


VERBS: Registry[Verb] = Registry("verb", {verb.run.__name__: verb for verb in CORE}, _check)
"""The verbs, those of the extras and of other packages by entry points."""


class _Verbs(TyperGroup):
    """Has messages name flags; lets Ctrl-C reach :func:`main`, where the parser would print."""

    def invoke(self, ctx: Any) -> Any:
        WORDING.set(as_flags(ctx))
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


app = typer.Typer(
    name="graphlog",
    cls=_Verbs,
    help="Pre-train graph encoders without labels, on molecules and other graphs.",
    epilog="Example: graphlog quickstart -o tour. "
    "Exit codes: 0 success, 1 internal error, 2 invalid input, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"graphlog {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Pre-train graph encoders without labels, on molecules and other graphs."""


def _place(item: tuple[str, Verb]) -> int:
    panel = item[1].panel
    return PANELS.index(panel) if panel in PANELS else len(PANELS)


for _name, _verb in sorted(VERBS.items(), key=_place):
    _command = app.command(_name, rich_help_panel=_verb.panel, epilog=f"Example: {_verb.example}")
    _command(with_groups(_verb.run))
app.add_typer(data_app, name="data", rich_help_panel=DATA)


def _run(words: list[str]) -> Any:
    WORDS.set(words)
    return get_command(app).main(args=words, prog_name="graphlog", standalone_mode=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an internal error keeps its traceback.

    Args:
        arguments: The words after ``graphlog``; None takes those of the process.

    Returns:
        0 for success, 2 for invalid input, 130 if interrupted, 141 if the output pipe was closed.
    """
    open_missing_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:  # a process of its own: what it has begun to write is removed
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with warnings_as_lines():
            # options that set a context variable hold for this command alone
            result: Any = copy_context().run(_run, words)
        sys.stdout.flush()
    except BaseException as e:
        code = exit_code_of(e)
        if code is None:
            raise
        return code
    return result if isinstance(result, int) else 0
