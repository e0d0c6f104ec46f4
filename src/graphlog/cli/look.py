"""Verbs that show what exists: models, info, plot, prototypes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import graphlog
from graphlog.cli import command as o
from graphlog.cli.command import LOOK, Command, verb
from graphlog.data.html import Table, fields_table


@verb("models", LOOK, "graphlog models")
class Models(Command):
    """List the shipped models."""

    def run(self) -> None:
        columns = ("name", "objective", "recipe", "graphs", "encoder", "embedding", "size")
        untrained = ("none", None, 0, "untrained, default recipe", "jk", None)
        models = graphlog.describe_models()
        models["random"] = dict(zip(columns[1:], untrained, strict=True))
        rows = [(name, *(about[key] for key in columns[1:])) for name, about in models.items()]
        self.result({"models": models}, Table(columns, rows))
        self.say(
            "use one: graphlog embed molecules.csv -m NAME -o embeddings.npz; "
            "details: graphlog info NAME"
        )


@verb("info", LOOK, "graphlog info run")
class Info(Command):
    """Describe a model, store or run."""

    path: str = o.argument("Model file, store, run folder, or name of a shipped model.", "PATH")

    def run(self) -> None:
        from graphlog.training.settings import flat_settings

        description = graphlog.describe(self.path)
        nested = {k: v for k, v in description.items() if isinstance(v, Mapping)}
        plain = {k: v for k, v in description.items() if k not in nested}
        tables = [fields_table(flat_settings(v), k) for k, v in nested.items() if v]
        self.result(description, fields_table(plain), *tables)


@verb("plot", LOOK, "graphlog plot run -o figures")
class Plot(o.Reading, Command):
    """Draw the figures of a run or benchmark, as PNG and SVG.

    For a run: training curves, the collapse monitor, the embedding map and the tree of prototypes.
    For a benchmark: scores, curves over depth and batch size, and maps. Files of the same names in
    the folder are replaced.
    """

    run_dir: Path = o.argument(
        "Run folder of pretrain, finetune or probe, or folder of a benchmark.", "RUN"
    )
    out: o.Folder
    source: o.MapInput = None
    graphs: o.Sample = 2000
    seed: o.Seed = 0

    def run(self) -> None:
        paths = graphlog.draw_figures(self.run_dir, **self.given("run_dir"), say=self.say)
        self.result({"figures": [str(p) for p in paths]}, Table(("",), [(p,) for p in paths]))


@verb("prototypes", LOOK, "graphlog prototypes run -o tree --input molecules.csv")
class Prototypes(o.Reading, o.Computing, Command):
    """Assign every graph to the tree of prototypes in a model.

    DIR receives tree.json (for each prototype: size, typical graphs, enriched properties),
    members.csv (path, similarity and novelty of every row) and atlas.html (a page to explore them).
    """

    model: str = o.argument(
        "Run folder of pretrain, model file, or name of a shipped model.", "RUN"
    )
    out: o.Folder
    source: o.MapInput = None
    fit: bool = o.option(
        False, "Fit a new tree to INPUT, with leaves of similar size.", None, "--fit"
    )
    graphs: o.Sample = 2000
    targets: Sequence[str] | None = o.option(
        None, "Label columns; not needed for known data sets.", "A,B", parser=o.names
    )
    seed: o.Seed = 0
    precision: o.Precision = None
    device: o.Device = "auto"

    def run(self) -> None:
        options = self.given("targets")
        if self.targets:
            options["targets"] = self.targets
        written = graphlog.write_prototypes(**options, progress=self.progress())
        self.summary(written.to_dict())
