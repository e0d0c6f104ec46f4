"""The Typer application, and how every run of it ends: exit codes and one-line errors."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from graphlog import __version__
from graphlog.cli.data import app as data_app
from graphlog.cli.data import convert
from graphlog.cli.exit_codes import Interrupted, ending_of, warnings_as_lines
from graphlog.cli.featurize import featurize
from graphlog.cli.look import info, models, plot, prototypes
from graphlog.cli.start import quickstart
from graphlog.cli.train import benchmark, finetune, pretrain
from graphlog.cli.use import embed, predict, probe

START, DATA, LEARN, SHOW = "Start here", "Data", "Train and use an encoder", "Look"

VERBS: tuple[tuple[Callable[..., None], str, str], ...] = (
    (quickstart, START, "graphlog quickstart -o tour"),
    (featurize, DATA, "graphlog featurize zinc250k -o zinc.store"),
    (convert, DATA, "graphlog convert gin_contextpred.pth -o contextpred.safetensors"),
    (pretrain, LEARN, "graphlog pretrain zinc.store -o run --epochs 11 --set encoder.dim=300"),
    (embed, LEARN, "graphlog embed molecules.csv -m run -o embeddings.npz"),
    (probe, LEARN, "graphlog probe bbbp -m run"),
    (finetune, LEARN, "graphlog finetune bbbp -m run -o bbbp-run --seeds 0,1,2"),
    (predict, LEARN, "graphlog predict new.csv -m bbbp-run -o predictions.csv"),
    (benchmark, LEARN, "graphlog benchmark molecules -o bench --scale smoke"),
    (models, SHOW, "graphlog models"),
    (info, SHOW, "graphlog info run"),
    (plot, SHOW, "graphlog plot run -o figures"),
    (prototypes, SHOW, "graphlog prototypes run -o tree --input molecules.csv"),
)
"""Verb, the panel it is listed under, and the example at the foot of its help."""


class _Verbs(TyperGroup):
    """The verbs; an interrupted one says so, which the parser would not let it do."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


app = typer.Typer(
    name="graphlog",
    cls=_Verbs,
    help="Graph encoders pre-trained without labels, on molecules and other graphs.",
    epilog="Example: graphlog quickstart -o tour. Exit codes: 0 done; 2 yours to mend, said in one line; 1 our bug; 130 interrupted.",
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
def options_of_the_whole(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Graph encoders pre-trained without labels, on molecules and other graphs."""


for _verb, _panel, _example in VERBS:
    app.command(rich_help_panel=_panel, epilog=f"Example: {_example}")(_verb)
app.add_typer(data_app, name="data", rich_help_panel=DATA)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a bug keeps its traceback.

    Args:
        arguments: The words after ``graphlog``; those of the process where None.

    Returns:
        0 done, 2 the user can mend it, 130 interrupted, 141 the reader of our output went away.
    """
    words = None if arguments is None else list(arguments)
    try:
        with warnings_as_lines():
            result: Any = get_command(app).main(
                args=words, prog_name="graphlog", standalone_mode=False
            )
        sys.stdout.flush()
    except BaseException as e:
        code = ending_of(e)
        if code is None:
            raise
        return code
    return result if isinstance(result, int) else 0
