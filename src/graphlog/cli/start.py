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
    """Pre-train, fine-tune, compare and draw, in three minutes.

    Works offline, on real molecules that come with RDKit.
    """
    tour = graphlog.run_quickstart(
        output,
        molecules=molecules,
        epochs=epochs,
        seed=seed,
        progress=console.progress(),
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
