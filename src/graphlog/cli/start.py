"""``graphlog quickstart``: a tour of the package, offline, on bundled molecules."""

from pathlib import Path
from typing import Annotated

import typer

from graphlog.cli import options as o
from graphlog.cli.console import Console, Table, job_progress


def quickstart(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the results.")
    ] = Path("graphlog-quickstart"),
    molecules: Annotated[
        int,
        typer.Option(
            "--molecules", metavar="N", min=200, max=10_000, help="Molecules to pre-train on."
        ),
    ] = 4000,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", min=2, help="Epochs of pre-training.")
    ] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed.")] = 0,
    threads: o.Threads = 1,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Pre-train, fine-tune, compare and draw, in three minutes.

    Works offline, on real molecules that come with RDKit.
    """
    from graphlog import run_quickstart

    console = Console(quiet, as_json)
    tour = run_quickstart(
        output,
        molecules=molecules,
        epochs=epochs,
        seed=seed,
        progress=job_progress(console),
        say=console.say,
    )
    scores = Table(
        ("model", "how", "test RMSE", "SD", "seeds"),
        [
            (s.model, s.how, f"{s.mean:.3f}", "" if s.sd is None else f"{s.sd:.3f}", s.seeds)
            for s in tour.scores
        ],
        f"{tour.dataset}: {tour.question}; lower is better",
    )
    written = Table(("written", "content"), list(tour.written.items()))
    following = Table(("try next",), [(line,) for line in tour.next_steps])
    console.result(tour.to_dict(), scores, written, following)
