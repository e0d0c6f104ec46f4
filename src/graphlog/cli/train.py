"""Verbs that train: pretrain, finetune, benchmark."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import graphlog
from graphlog.cli import command as o
from graphlog.cli.command import INVALID_INPUT, TRAIN, Command, rejected_rows, say, verb
from graphlog.data.html import Table
from graphlog.encoders import LAYERS
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.processes import WORDS, is_first, is_supervised, run_processes

if TYPE_CHECKING:  # heavy
    from graphlog.benchmark.cells import Cell, Request

_OBJECTIVE = f"Pretext task (default: graphlog): {', '.join(OBJECTIVES)}."
_BACKBONE = f"Message-passing layer (default: gin): {', '.join(LAYERS)}."
_RECIPE = "Named settings: default, graphlog, paper or released; other objectives have their own."
_BASELINES = "ecfp-rf,ecfp-lr,random"
_REPORTED = ("objective", "recipe", "epochs", "seed", "embedding", "schema", "data_digest")


@verb("pretrain", TRAIN, "graphlog pretrain zinc.store -o run --epochs 11 --set encoder.dim=300")
@dataclass(kw_only=True)
class Pretrain(o.Reading, o.Computing, Command):
    """Pre-train an encoder on INPUT, without labels.

    RUN holds the model, checkpoints, settings and log. After Ctrl-C or a crash, --resume continues
    the run bit for bit.
    """

    source: o.Input
    run_dir: o.Run
    objective: str | None = o.option(None, _OBJECTIVE, "NAME")
    recipe: str | None = o.option(None, _RECIPE, "NAME")
    backbone: str | None = o.option(None, _BACKBONE, "NAME")
    epochs: int | None = o.option(None, "Passes over the graphs, all phases together.", "N", min=1)
    targets_from: str | None = o.option(
        None, "Vectors (.npz, as embed writes) to predict in place of descriptors.", "FILE"
    )
    batch_size: o.BatchSize = None
    precision: o.Precision = None
    device: o.Device = None
    seed: int | None = o.option(None, "Random seed.", "N", min=0)
    init: str | None = o.option(None, "Start from the weights of this model.", "MODEL")
    resume: o.Resume = False
    overwrite: o.Overwrite = False
    log: o.Log = None
    config: Path | None = o.option(None, "Settings file; options override it.", "FILE")
    settings: o.Settings = None
    processes: int = o.option(
        1,
        "Processes on this machine that share every batch (default: 1); results differ by rounding "
        "only.",
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
        from graphlog.domains import domain_of

        self.quiet = self.quiet or not is_first()
        if self.resume and self.init is not None:
            raise ConfigError(
                "--init starts a run and --resume continues one; drop one of the two."
            )
        named = self.chosen("objective", "recipe", "epochs", "targets_from", "batch_size", "seed")
        named |= {"encoder.backbone": self.backbone, **self.chosen("precision", "device")}
        encoder = graphlog.pretrain(
            self.source,
            config=self.config,
            run_dir=self.run_dir,
            resume=self.resume,
            overwrite=self.overwrite,
            init=self.init,
            progress=self.progress(),
            callbacks=self.log or [],
            reading=self.reading(),
            **o.chosen_settings(graphlog.pretrain, named, self.settings),
        )
        if not is_first():
            return 0
        rejected, rejects = rejected_rows(self.run_dir)
        summary = {
            "run": str(self.run_dir),
            "graphs": encoder.info["graphs"],
            "rejected": rejected,
            "rejects": rejects,
            **{key: encoder.info.get(key) for key in _REPORTED},
        }
        self.summary(summary)
        labeled = domain_of(encoder.schema).example or self.source
        self.say(
            f"next: graphlog probe {labeled} -m {self.run_dir}; "
            f"graphlog plot {self.run_dir} -o figures"
        )
        return 0


@verb("finetune", TRAIN, "graphlog finetune bbbp -m run -o bbbp-run --seeds 0,1,2")
@dataclass(kw_only=True)
class Finetune(o.Labeling, o.Reading, o.Computing, Command):
    """Train MODEL and a new head on the labels of INPUT.

    RUN holds the predictor, its scores and its log. Data sets with known tasks need no --targets.
    With -m random the encoder starts untrained.
    """

    source: o.Input
    model: o.Model
    run_dir: o.Run
    labels_range: o.LabelsRange = None
    epochs: int | None = o.option(None, "Passes over the training fold (default: 30).", "N", min=1)
    protocol: Literal["default", "paper"] | None = o.option(
        None, "default: a head with a hidden layer, a slow encoder; paper: a linear head, one rate."
    )
    seeds: o.Seeds = "0,1,2"
    select: Literal["last", "best-valid"] | None = o.option(
        None, "Epoch whose weights are used (default: last; with --patience: best-valid)."
    )
    patience: int | None = o.option(
        None, "Stop a seed after N epochs without a better validation score.", "N", min=1
    )
    class_weight: Literal["balanced"] | None = o.option(
        None, "Let rare classes count as much as frequent ones."
    )
    weights: str | None = o.option(
        None, "Column with the weight of each row in training.", "COLUMN"
    )
    freeze: o.Freeze = False
    layer: o.Layer = None
    batch_size: o.BatchSize = None
    config: Path | None = o.option(
        None, "Settings of a run or of tune; options override them.", "FILE"
    )
    settings: o.Settings = None
    baselines: str = o.option(_BASELINES, "ecfp-rf, ecfp-lr, random or none.", "A,B")
    precision: o.Precision = None
    device: o.Device = None
    resume: o.Resume = False
    overwrite: o.Overwrite = False
    log: o.Log = None

    def run(self) -> None:
        named = self.chosen("protocol", "epochs", "select", "patience", "class_weight", "layer")
        named |= {"freeze": self.freeze or None, **self.chosen("batch_size", "precision", "device")}
        predictor = graphlog.finetune(
            self.model,
            self.source,
            seeds=o.integers(self.seeds),
            labels_range=o.bounds(self.labels_range),
            weights=self.weights,
            baselines=o.names(self.baselines),
            run_dir=self.run_dir,
            resume=self.resume,
            overwrite=self.overwrite,
            progress=self.progress(),
            callbacks=self.log or [],
            **self.labeling(),
            **self.reading(),
            **o.finetuning_settings(
                self.config, o.chosen_settings(graphlog.finetune, named, self.settings)
            ),
        )
        report = {"run": str(self.run_dir), **predictor.report.to_dict()}
        self.result(report, *predictor.report.tables())
        self.say(
            f"next: graphlog predict INPUT -m {self.run_dir} -o predictions.csv; "
            f"graphlog plot {self.run_dir} -o figures"
        )


@verb("benchmark", TRAIN, "graphlog benchmark molecules -o bench --scale smoke")
@dataclass(kw_only=True)
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
        "small", "Minutes, hours, or the protocol of the paper.", "smoke|small|paper"
    )
    methods: str | None = o.option(None, "Objectives, untrained, ecfp-rf or ecfp-lr.", "A,B")
    datasets: str | None = o.option(None, "Labeled data sets to evaluate on.", "A,B")
    seeds: str | None = o.option(None, "Seeds of pre-training and fine-tuning.", "0,1,2")
    backbones: str | None = o.option(None, f"Any of {', '.join(LAYERS)}.", "A,B")
    domain: str | None = o.option(None, "Domain, for suites that have several.", "molecule|protein")
    source: str | None = o.option(None, "Other graphs to pre-train on.", "NAME|STORE")
    split: str | None = o.option(None, "Another split of the labeled data sets.", "KIND")
    stages: str | None = o.option(
        None, "Stages: pretrain, finetune, probe, map, speed, stage-speed.", "A,B"
    )
    dry_run: bool = o.option(
        False, "List the cells and which are finished; compute nothing.", None, "--dry-run"
    )
    precision: o.Precision = None
    device: o.Device = None

    def __post_init__(self) -> None:
        if self.suite == "speed" and self.threads is None:
            self.threads = 1  # the seconds of one thread can be told from those of other jobs

    def run(self) -> int:
        from graphlog import benchmark as bench

        if self.suite == "report":
            files = [str(path) for path in bench.write_report(self.output)]
            summary = {"report": str(self.output / "report"), "files": files}
            self.result(summary, Table(("",), [(path,) for path in files]))
            return 0
        request = bench.Request(
            self.suite,
            self.scale,
            methods=o.names(self.methods) or None,
            datasets=o.names(self.datasets) or None,
            seeds=None if self.seeds is None else o.integers(self.seeds),
            backbones=o.names(self.backbones) or None,
            domain=self.domain,
            stages=o.names(self.stages) or None,
            source=self.source,
            split=self.split,
            device=self.device or "auto",
            precision=self.precision or "auto",
        )
        if self.dry_run:
            self._show_plan(bench.preview(request, self.output))
            return 0
        return self._compute(request)

    def _compute(self, request: "Request") -> int:
        output = self.output
        outcome = graphlog.run_benchmark(request, output, progress=self.progress(every_s=60.0))
        summary = {
            "suite": request.suite,
            "cells": outcome.total,
            "computed": len(outcome.computed),
            "failed": len(outcome.failed),
            "skipped": len(outcome.skipped),
            "report": str(output / "report") if (output / "report").is_dir() else None,
        }
        self.result(summary, Table(tuple(summary), [tuple(summary.values())]))
        if outcome.failed:
            cell, why = next(iter(outcome.failed.items()))
            say(
                f"graphlog: error: {len(outcome.failed)} of {outcome.total} cells failed, such as "
                f"{cell}: {why} (all in {output / 'failures.jsonl'}; fix the cause and run the "
                "same command again)."
            )
            return INVALID_INPUT  # beside the summary, which is the one JSON document
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
