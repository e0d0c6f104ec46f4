"""The verbs of the extras; they are found by entry points, as those of other packages are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import graphlog
from graphlog.cli import command as o
from graphlog.cli.command import START, TRAIN, USE, Command, Verb
from graphlog.data.html import Table
from graphlog.errors import ConfigError


@dataclass(kw_only=True)
class Quickstart(o.Computing, Command):
    """Pre-train, compare, fine-tune and draw, in a few minutes.

    Works offline, on real molecules that come with graphlog and RDKit.
    """

    out: o.Folder = Path("graphlog-quickstart")
    molecules: int = o.option(4000, "Molecules to pre-train on.", "N", min=200, max=10_000)
    epochs: int = o.option(3, "Epochs of pre-training.", "N", min=2)
    seed: o.Seed = 0
    threads: int | None = o.option(1, "Threads for computation.", "N", min=1, max=4096)

    def run(self) -> None:
        tour = graphlog.run_quickstart(**self.given(), progress=self.progress(), say=self.say)
        kept = {score.dataset for score in tour.scores if score.kept}
        scores = [
            Table(
                ("model", "how", "test RMSE", "R2"),
                [
                    (s.model + " *" * s.kept, s.how, f"{s.rmse:.2f}", f"{s.r2:.2f}")
                    for s in tour.scores
                    if s.dataset == name
                ],
                f"{name}: {question}; scaffold split, sorted by test RMSE"
                + "; * = model kept (best on the validation set)" * (name in kept),
            )
            for name, question in tour.questions.items()
        ]
        from graphlog.downstream.report import calibration_table

        certainty = calibration_table([tour.certainty])
        title = f"{certainty.title} of {', '.join(kept)}, for the kept model"
        written = Table(("written", "content"), list(tour.written.items()))
        next_steps = Table(("try next",), [(line,) for line in tour.next_steps])
        tables = (*scores, certainty._replace(title=title), written, next_steps)
        self.result(tour.to_dict(), *tables)


@dataclass(kw_only=True)
class Tune(o.Labeling, o.Reading, o.Computing, Command):
    """Search for settings of finetune with Optuna, then fine-tune with the best.

    Trials are compared on the validation set, with one seed; the test set is used once, at the
    end. DIR holds study.db, trials.json, best.toml (for finetune --config) and the run best.
    """

    source: o.Input
    model: o.Model
    out: o.Folder
    trials: int = o.option(30, "Number of settings to try.", "N", min=1)
    seeds: Sequence[int] = o.option(
        "0,1,2", "One run per seed; scores are mean and SD.", "0,1,2", parser=o.integers
    )
    freeze: o.Freeze = None
    settings: o.Settings = None
    baselines: Sequence[str] = o.option(
        "ecfp-rf,ecfp-lr", "ecfp-rf, ecfp-lr, random or none.", "A,B", parser=o.names
    )
    device: o.Device = None
    resume: bool = o.option(False, "Continue the search in DIR.", None, "--resume")
    overwrite: o.Overwrite = False

    def run(self) -> None:
        named = {"freeze": self.freeze, "device": self.device}
        tuned = graphlog.tune(
            self.model,
            self.source,
            **self.given("model", "source", "settings", *named),
            progress=self.progress(),
            **o.chosen_settings(graphlog.tune, self, named, self.settings),
        )
        names, report = list(tuned.trials[0].settings), tuned.predictor.report
        shown = replace(report, metric=tuned.metric)
        rows = [
            (t.number, t.state, shown.shown(t.score), t.epochs, *map(t.settings.get, names))
            for t in tuned.trials
        ]
        heads = ("trial", "state", f"valid {shown.metric_name}", "trained", *names)
        self.result(tuned.to_dict(), Table(heads, rows, "trials"), *report.tables())
        self.say(
            f"next: graphlog finetune INPUT -m MODEL -o RUN --config {self.out / 'best.toml'}; "
            f"graphlog predict INPUT -m {self.out / 'best'} -o predictions.csv"
        )


@dataclass(kw_only=True)
class Neighbors(o.Inference, o.Reading, Command):
    """Find the rows of a library that are nearest to each row of QUERY.

    Nearness is the cosine of two embeddings. OUT has a line for each pair, or drawings (.html).
    """

    query: str = o.argument(
        "File or folder of graphs, store, data set name, one SMILES, or - for standard input.",
        "QUERY",
    )
    library: str = o.option(
        ..., "Input to search, or the folder of a saved index.", "LIBRARY", "--in"
    )
    model: o.Model
    out: Path = o.option(
        ..., "File to write: .csv, .jsonl or .html; - for standard output.", "OUT", "--output", "-o"
    )
    k: int = o.option(10, "Neighbors of each query.", "K", "-k", min=1)
    format: Literal["csv", "jsonl", "html"] | None = o.option(
        None, "csv, jsonl or html (default: by the end of OUT; csv for -).", "KIND"
    )
    save: Path | None = o.option(
        None, "Folder to write the index of LIBRARY to, for other queries.", "DIR"
    )
    exact: bool | None = o.option(
        None, "Compare every row, however large LIBRARY is.", None, "--exact"
    )
    layer: o.Layer = None

    def run(self) -> None:
        if self.query == self.library == "-":
            raise ConfigError(
                "QUERY and LIBRARY cannot both be standard input; write one of them to a file.",
                option="library",
            )
        written = graphlog.neighbors_file(**self.given(), progress=self.progress())
        self.summary(written.to_dict(), out=self.out)


@dataclass(kw_only=True)
class Export(Command):
    """Write an encoder as ONNX, for programs without graphlog.

    The file gives embeddings, also that of a predictor, whose heads are left out.
    """

    model: str = o.argument(
        "Model file (.safetensors), run folder, or name of a shipped model.", "MODEL"
    )
    out: Path = o.option(..., "File to write.", "OUT.onnx", "--output", "-o")
    layer: o.Layer = None

    def run(self) -> None:
        self.summary(graphlog.export_onnx(**self.given()))


QUICKSTART = Verb(Quickstart, START, "graphlog quickstart -o tour")
TUNE = Verb(Tune, TRAIN, "graphlog tune bbbp -m run -o bbbp-tuned --trials 30")
NEIGHBORS = Verb(
    Neighbors, USE, "graphlog neighbors CCO --in molecules.csv -m graphlog-mol -o near.html"
)
EXPORT = Verb(Export, USE, "graphlog export graphlog-mol -o model.onnx")
