"""``graphlog quickstart``: a tour of the package, offline, on bundled molecules."""

from pathlib import Path
from typing import Annotated

import graphlog
from graphlog.cli import options as o
from graphlog.cli.console import Console, Table


def quickstart(
    output: o.Folder = Path("graphlog-quickstart"),
    molecules: Annotated[
        int, o.option("Molecules to pre-train on.", "N", min=200, max=10_000)
    ] = 4000,
    epochs: Annotated[int, o.option("Epochs of pre-training.", "N", min=2)] = 3,
    seed: o.Seed = 0,
    threads: o.Threads = 1,
    *,
    console: Console,
) -> None:
    """Pre-train, compare, fine-tune and draw, in three minutes.

    Works offline, on real molecules that come with graphlog and RDKit.
    """
    tour = graphlog.run_quickstart(
        output,
        molecules=molecules,
        epochs=epochs,
        seed=seed,
        progress=console.progress(),
        say=console.say,
    )
    scores = [
        Table(
            ("model", "how", "test RMSE", "R2"),
            [
                (s.model, s.how, f"{s.rmse:.2f}", f"{s.r2:.2f}")
                for s in tour.scores
                if s.dataset == name
            ],
            f"{name}: {question}; molecules of other scaffolds, the best row last",
        )
        for name, question in tour.questions.items()
    ]
    written = Table(("written", "content"), list(tour.written.items()))
    following = Table(("try next",), [(line,) for line in tour.next_steps])
    console.result(tour.to_dict(), *scores, written, following)
