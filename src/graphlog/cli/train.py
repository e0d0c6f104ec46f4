"""Verbs that train: pretrain, finetune, benchmark."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import graphlog
from graphlog.cli import command as o
from graphlog.cli.command import INVALID_INPUT, TRAIN, Command, say, verb
from graphlog.data.html import Table
from graphlog.encoders import LAYERS
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.processes import WORDS, is_first, is_supervised, run_processes

if TYPE_CHECKING:  # slow to import
    from graphlog.benchmark.cells import Cell

_OBJECTIVE = f"Pretext task (default: graphlog): {', '.join(OBJECTIVES)}."
_BACKBONE = f"Message-passing layer (default: gin): {', '.join(LAYERS)}."
_RECIPE = "Named settings: default, graphlog, paper or released; other objectives have their own."
_PRETRAINING = (
    *("objective", "recipe", "epochs", "targets_from", "batch_size", "seed"),
    *("precision", "device"),
)
"""Options of ``pretrain`` that are settings of a run."""
_list_option = partial(o.option, None, metavar="A,B", parser=o.names_if_any)
_REPORTED = ("objective", "recipe", "epochs", "seed", "embedding", "schema", "data_digest")


@verb("pretrain", TRAIN, "graphlog pretrain zinc.store -o run --epochs 11 --set encoder.dim=300")
class Pretrain(o.Reading, o.Computing, Command):
    """Pre-train an encoder on INPUT, without labels.

    For molecules the default recipe predicts computed descriptors; --recipe graphlog trains the
    GraphLoG losses. RUN holds the model, checkpoints, settings and log. After Ctrl-C or a crash,
    --resume continues the run bit for bit.
    """

    source: o.Input
    run_dir: o.Run
    objective: str | None = o.option(None, _OBJECTIVE, "NAME")
    recipe: str | None = o.option(None, _RECIPE, "NAME")
    backbone: str | None = o.option(None, _BACKBONE, "NAME")
    epochs: int | None = o.option(
        None, "Passes over the graphs in all phases (default: the recipe's).", "N", min=1
    )
    targets_from: str | None = o.option(
        None, "Vectors to predict instead of descriptors (.npz, as embed writes them).", "FILE"
    )
    batch_size: int | None = o.option(None, "Graphs per batch (default: the recipe's).", "N", min=2)
    precision: o.TrainingPrecision = None
    device: o.Device = None
    seed: int | None = o.option(None, "Random seed.", "N", min=0)
    init: str | None = o.option(None, "Start from the weights of this model.", "MODEL")
    resume: o.Resume = False
    overwrite: o.Overwrite = False
    callbacks: o.Log = None
    config: Path | None = o.option(
        None,
        "Settings file; options override it, but --objective and --recipe must agree with it.",
        "FILE",
    )
    settings: o.Settings = None
    processes: int = o.option(
        1,
        "Processes on this machine that share every batch. One step differs only by rounding, but "
        "long runs may drift apart.",
        "K",
        min=1,
    )

    def run(self) -> int:
        if self.processes > 1 and not is_supervised():
            if self.source == "-":
                raise ConfigError(
                    "several processes cannot read standard input; write it to a file."
                )
            return run_processes(WORDS.get(), self.processes)
        from graphlog.data.graphs import rejects_of_output  # slow to import
        from graphlog.domains import domain_of

        self.quiet = self.quiet or not is_first()
        named = {name: getattr(self, name) for name in _PRETRAINING}
        named["encoder.backbone"] = self.backbone
        reading = self.reading()
        encoder = graphlog.pretrain(
            **self.given("backbone", "settings", "processes", *named, *reading),
            progress=self.progress(),
            reading=reading,
            **o.chosen_settings(graphlog.pretrain, self, named, self.settings),
        )
        if not is_first():
            return 0
        rejects = rejects_of_output(self.run_dir, self.run_dir.absolute().name)
        rejected = 0
        if rejects.is_file():
            import pandas as pd  # slow to import

            rejected = len(pd.read_csv(rejects))
        weights = [
            f"{name.removesuffix('_weight')} {value:g}"
            for name, value in encoder.info["settings"]["objective"].items()
            if name.endswith("_weight") and isinstance(value, int | float) and value > 0
        ]
        summary = {
            "run": str(self.run_dir),
            "graphs": encoder.info["graphs"],
            "rejected": rejected,
            "rejects": rejects if rejected else None,
            **{key: encoder.info.get(key) for key in _REPORTED},
            "loss_weights": ", ".join(weights) or None,
        }
        self.summary(summary)
        labeled = domain_of(encoder.schema).example or self.source
        self.say(
            f"next: graphlog probe {labeled} -m {self.run_dir}; "
            f"graphlog plot {self.run_dir} -o figures"
        )
        return 0


@verb("finetune", TRAIN, "graphlog finetune esol -m run -o esol-run --seeds 0,1,2")
class Finetune(o.Labeling, o.Reading, o.Computing, Command):
    """Train MODEL and a new head on the labels of INPUT.

    RUN holds the predictor, its scores and its log. Data sets with known tasks need no --targets.
    With -m random the encoder starts untrained.
    """

    source: o.Input
    model: o.Model
    run_dir: o.Run
    labels_range: o.LabelsRange = None
    epochs: int | None = o.option(None, "Passes over the training set (default: 30).", "N", min=1)
    protocol: Literal["default", "paper"] | None = o.option(
        None,
        "default: a head with a hidden layer, and a lower learning rate for the encoder; paper: a "
        "linear head, and one learning rate.",
        "KIND",
    )
    seeds: Sequence[int] | None = o.option(
        None,
        "One run per seed; scores are mean and SD (default: 0,1,2, or those of --config).",
        "0,1,2",
        parser=o.integers,
    )
    select: Literal["last", "best-valid"] | None = o.option(
        None,
        "Epoch whose weights are used: last or best-valid (default: last; with --patience: "
        "best-valid).",
        "KIND",
    )
    patience: int | None = o.option(
        None, "Stop a seed after N epochs without a better validation score.", "N", min=1
    )
    class_weight: Literal["balanced"] | None = o.option(
        None, "balanced: rare classes count as much as frequent ones.", "KIND"
    )
    weights: str | None = o.option(
        None, "Column with the weight of each row in training.", "COLUMN"
    )
    freeze: o.Freeze = None
    layer: o.LearnedLayer = None
    kernel: bool | None = o.option(
        None,
        "Average the predictions with those of a kernel model on the frozen embeddings of MODEL; "
        "often better than either.",
        None,
        "--kernel",
    )
    with_features: o.WithFeatures = None
    resample_validation: bool | None = o.option(
        None,
        "Each seed draws its own validation set, a tenth of training and validation set; the "
        "kernel model learns from both.",
        None,
        "--resample-validation",
    )
    batch_size: o.BatchSize = None
    config: Path | None = o.option(
        None,
        "File with the settings and seeds of a run (config.toml), or the settings of tune "
        "(best.toml). Options override it; targets, task and split are not read from it.",
        "FILE",
    )
    settings: o.Settings = None
    baselines: Sequence[str] = o.option(
        "ecfp-rf,ecfp-lr,random", "ecfp-rf, ecfp-lr, random or none.", "A,B", parser=o.names
    )
    precision: o.Precision = None
    device: o.Device = None
    resume: o.Resume = False
    overwrite: o.Overwrite = False
    callbacks: o.Log = None

    def run(self) -> None:
        from graphlog.downstream.finetune import FinetuneConfig  # slow to import

        settings = FinetuneConfig.model_fields
        named = {name: getattr(self, name) for name in settings if hasattr(self, name)}
        chosen = o.chosen_settings(graphlog.finetune, self, named, self.settings)
        stored = o.finetuning_settings(self.config, chosen)
        if self.config is not None:
            used = "settings and seeds" if "seeds" in stored else "settings"
            self.say(
                f"note: {used} are read from {self.config}; targets, task and split are those of "
                "this command"
            )
        predictor = graphlog.finetune(
            self.model,
            self.source,
            **stored | self.given("model", "source", "config", "settings", *named),
            progress=self.progress(),
        )
        report = {"run": str(self.run_dir), **predictor.report.to_dict()}
        self.result(report, *predictor.report.tables())
        self.say(
            f"next: graphlog predict INPUT -m {self.run_dir} -o predictions.csv; "
            f"graphlog plot {self.run_dir} -o figures"
        )


@verb("benchmark", TRAIN, "graphlog benchmark molecules -o bench --scale smoke")
class Benchmark(o.Data, o.Computing, Command):
    """Reproduce a table or figure of the paper.

    Every method of SUITE is pre-trained, fine-tuned and probed under one protocol. Finished cells
    are kept: run the command again to continue. Several processes may share one DIR.
    """

    suite: str = o.argument(
        "molecules, biology, backbones, ablation, sensitivity, embedding-map, adme, moleculenet, "
        "speed, or report to render the results in DIR.",
        "SUITE",
    )
    output: Path = o.option(
        ...,
        "Folder of results, models and report; an unfinished one is continued.",
        "DIR",
        "--output",
        "-o",
    )
    scale: str = o.option(
        "small", "smoke (minutes), small (hours), or paper (its protocol).", "SIZE"
    )
    methods: Sequence[str] | None = _list_option(
        "Objectives, untrained, ecfp-rf or ecfp-lr; in adme and moleculenet also model files."
    )
    datasets: Sequence[str] | None = _list_option("Labeled data sets to evaluate on.")
    seeds: Sequence[int] | None = o.option(
        None, "Seeds of pre-training and fine-tuning.", "0,1,2", parser=o.integers
    )
    backbones: Sequence[str] | None = _list_option(f"Any of {', '.join(LAYERS)}.")
    domain: str | None = o.option(None, "molecule or protein, for suites that have both.", "NAME")
    source: str | None = o.option(None, "Other graphs to pre-train on.", "NAME|STORE")
    split: str | None = o.option(None, "Another split of the labeled data sets.", "KIND")
    stages: Sequence[str] | None = _list_option("Stages: pretrain, finetune, probe, map, speed.")
    dry_run: bool = o.option(
        False, "List the cells and which are finished; compute nothing.", None, "--dry-run"
    )
    precision: o.Precision = None
    device: o.Device = "auto"

    def __post_init__(self) -> None:
        if self.suite == "speed" and self.threads is None:
            self.threads = 1  # times of one thread depend less on other jobs of the machine

    def run(self) -> int:
        from graphlog import benchmark as bench

        if self.suite == "report":
            files = [str(path) for path in bench.write_report(self.output)]
            summary = {"report": str(self.output / "report"), "files": files}
            self.result(summary, Table(("",), [(path,) for path in files]))
            return 0
        request = bench.Request(**self.given("output", "dry_run"))
        if self.dry_run:
            self._show_plan(bench.preview(request, self.output))
            return 0
        progress, report = self.progress(every_s=60.0), self.output / "report"
        outcome = graphlog.run_benchmark(request, self.output, progress=progress)
        summary = {
            "suite": self.suite,
            "cells": outcome.total,
            "computed": len(outcome.computed),
            "failed": len(outcome.failed),
            "skipped": len(outcome.skipped),
            "report": str(report) if report.is_dir() else None,
        }
        self.result(summary, Table(tuple(summary), [tuple(summary.values())]))
        if outcome.failed:
            cell, why = next(iter(outcome.failed.items()))
            say(
                f"graphlog: error: {len(outcome.failed)} of {outcome.total} cells failed, such as "
                f"{cell}: {why} (all in {self.output / 'failures.jsonl'}; fix the cause and run "
                "the same command again)."
            )
            return INVALID_INPUT  # no exception: the summary is the only JSON document printed
        return 0

    def _show_plan(self, plan: "Sequence[tuple[Cell, bool]]") -> None:
        cells = [{"cell": c.title, "stage": c.stage, "finished": done} for c, done in plan]
        planned = Counter(cell.stage for cell, _ in plan)
        finished = Counter(cell.stage for cell, done in plan if done)
        rows = [(stage, count, finished[stage]) for stage, count in planned.items()]
        rows.append(("total", planned.total(), finished.total()))
        listing = Table(("cell", "finished"), [(c["cell"], c["finished"]) for c in cells])
        self.result(
            {"cells": cells}, listing, Table(("stage", "cells", "finished"), rows, "in all")
        )
