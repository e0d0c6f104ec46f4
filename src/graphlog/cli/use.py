"""Verbs that use an encoder: embed, predict, probe."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import graphlog
from graphlog.cli import command as o
from graphlog.cli.command import USE, Command, verb
from graphlog.errors import ConfigError, setting

_BASELINES, _FOLD_BASELINES = "random,ecfp-lr", "random,wl"
_ALL_BASELINES = "random,ecfp-rf,ecfp-lr"
_OF_SPLITS = {
    "split": None,
    "with_features": None,
    "run_dir": None,
    "overwrite": False,
    "head": "linear",
}
"""Options of ``probe`` that 10-fold lacks, and their defaults."""


@verb("embed", USE, "graphlog embed molecules.csv -m run -o embeddings.npz")
@dataclass(kw_only=True)
class Embed(o.Inference, o.Reading, Command):
    """Write one embedding per row of INPUT.

    Row i of OUT is row i of INPUT; it is NaN or empty where the row cannot be read. Tables keep
    the columns of INPUT.
    """

    source: o.Input
    model: o.Model
    out: o.Result
    format: o.Format = None
    layer: o.Layer = None
    with_features: o.WithFeatures = None
    engine: o.Engine = "local"

    def run(self) -> None:
        written = graphlog.embed_file(
            self.model,
            self.source,
            self.out,
            format=self.format,
            layer=self.layer,
            with_features=o.names(self.with_features),
            engine=self.engine,
            progress=self.progress(),
            **self.inference(),
            **self.reading(),
        )
        self.summary(written.to_dict(), out=self.out)


@verb("predict", USE, "graphlog predict new.csv -m bbbp-run -o predictions.csv")
@dataclass(kw_only=True)
class Predict(o.Inference, o.Reading, Command):
    """Predict with a fine-tuned model or a probe for every row of INPUT.

    OUT has the columns of INPUT, predicted_TARGET for each target (mean over seeds), its spread
    over seeds (_std), calibrated probabilities (_calibrated) or intervals (_low, _high),
    graphlog_novelty (percentile among the training graphs) and graphlog_status. With --explain,
    OUT has the contribution of each atom instead.
    """

    source: o.Input
    predictor: str = o.option(..., "Run folder of finetune or probe.", "RUN", "--model", "-m")
    out: o.Result
    format: o.Format = None
    interval: float | None = o.option(
        None, "Regression: add intervals of this probability, such as 0.9.", "LEVEL"
    )
    explain: bool = o.option(
        False,
        "Write how much each atom contributes to them: .html (drawings) or .csv.",
        None,
        "--explain",
    )
    engine: o.Engine = "local"

    def run(self) -> None:
        options: dict[str, Any] = {"progress": self.progress()}
        options |= {**self.inference(), **self.reading()}
        given = self.predictor, self.source, self.out
        if not self.explain:
            written = graphlog.predict_file(
                *given, interval=self.interval, format=self.format, engine=self.engine, **options
            )
        elif (self.format, self.interval, self.engine) == (None, None, "local"):
            written = graphlog.explain_file(*given, **options)
        else:
            raise ConfigError(
                "--explain excludes --format, --interval and --engine ray; drop them."
            )
        self.summary(written.to_dict(), out=self.out)


@verb("probe", USE, "graphlog probe bbbp -m run")
@dataclass(kw_only=True)
class Probe(o.Labeling, o.Reading, o.Computing, Command):
    """Fit linear or kernel models to frozen embeddings, and compare with baselines.

    --with also averages their predictions with those of linear models of other features; a kernel
    model sees them together. RUN holds the first row's models as a predictor, and its scores.
    """

    source: o.Input
    model: o.Model
    labels_range: o.LabelsRange = None
    head: Literal["auto", "linear", "kernel"] = o.option(
        "linear", "Linear models, a kernel model (with a spread for each value), or the better one."
    )
    layer: o.Layer = None
    with_features: o.WithFeatures = None
    c: float = o.option(
        0.1,
        "Inverse penalty of one model; validation chooses that of the other.",
        "C",
        "--c",
        min=1e-9,
    )
    baselines: str | None = o.option(
        None,
        "random, ecfp-rf, ecfp-lr, all or none (default: random,ecfp-lr); with 10-fold: random, "
        "wl.",
        "A,B",
    )
    baseline_seeds: str = o.option("0", "Seeds of untrained encoders and forests.", "0,1,2")
    protocol: Literal["split", "splits", "10-fold"] = o.option(
        "split", "One split, one for each of --folds-seeds, or InfoGraph's 10-fold accuracy."
    )
    folds_seeds: str = o.option("0,1,2", "Seeds of splits and 10-fold.", "0,1,2")
    classifier: Literal["svm", "logistic"] = o.option("svm", "Classifier of 10-fold.")
    run_dir: Path | None = o.option(
        None, "Folder to keep the models in, for predict.", "RUN", "--output", "-o"
    )
    overwrite: o.Overwrite = False
    engine: o.Engine = "local"
    device: o.Device = None

    def run(self) -> None:
        shared: dict[str, Any] = {
            "layer": self.layer,
            "progress": self.progress(),
            **self.labeling(),
            "labels_range": o.bounds(self.labels_range),
            "engine": self.engine,
            "device": self.device or "auto",
            **self.reading(),
        }
        if self.protocol == "10-fold":
            for option, usual in _OF_SPLITS.items():
                if getattr(self, option) != usual:
                    raise ConfigError(
                        f"{setting(option)} does not apply to 10-fold; drop it, or "
                        "--protocol 10-fold.",
                        option=option,
                    )
            del shared["split"]  # the folds are its own
            rows = o.names(self.baselines or _FOLD_BASELINES)
            report = graphlog.fold_probe(
                self.model,
                self.source,
                classifier=self.classifier,
                baselines=rows,
                seeds=o.integers(self.folds_seeds),
                **shared,
            )
        else:
            rows = o.names(
                _ALL_BASELINES if self.baselines == "all" else self.baselines or _BASELINES
            )
            report = graphlog.probe(
                self.model,
                self.source,
                head=self.head,
                baselines=rows,
                baseline_seeds=o.integers(self.baseline_seeds),
                folds_seeds=o.integers(self.folds_seeds) if self.protocol == "splits" else None,
                c=self.c,
                with_features=o.names(self.with_features),
                run_dir=self.run_dir,
                overwrite=self.overwrite,
                **shared,
            )
        kept = {} if self.run_dir is None else {"run": str(self.run_dir)}
        self.result({**kept, **report.to_dict()}, *report.tables())
        if self.run_dir is not None:
            self.say(f"next: graphlog predict INPUT -m {self.run_dir} -o predictions.csv")
