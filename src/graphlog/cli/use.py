"""Verbs that use an encoder: embed, predict, probe."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import graphlog
from graphlog.cli import command as o
from graphlog.cli.command import USE, Command, verb
from graphlog.errors import ConfigError, setting

_ALL_BASELINES = ("random", "ecfp-rf", "ecfp-lr")
_FOLDS_SEEDS = [0, 1, 2]
_EXCLUDED: Mapping[str, Sequence[str]] = {
    "split": ("folds_seeds", "classifier"),
    "splits": ("baseline_seeds", "classifier"),
    "10-fold": (
        *("split", "with_features", "run_dir", "overwrite", "head"),
        *("baseline_seeds", "labels_range"),
    ),
}
"""Options of ``probe`` that do not apply to a protocol."""


def _baselines(text: str) -> list[str] | None:
    """Return the baselines in a list; None, the default baselines, for an empty text."""
    return o.names(text) if text else None


@verb("embed", USE, "graphlog embed molecules.csv -m run -o embeddings.npz")
class Embed(o.Inference, o.Reading, Command):
    """Write one embedding per row of INPUT.

    Row i of OUT is row i of INPUT, NaN or empty if it cannot be read. Tables keep INPUT's columns.
    """

    source: o.Input
    model: o.Model
    out: o.Result
    format: o.Format = None
    layer: o.Layer = None
    with_features: o.WithFeatures = None
    engine: o.Engine = "local"

    def run(self) -> None:
        options = self.given("model")
        written = graphlog.embed_file(self.model, **options, progress=self.progress())
        self.summary(written.to_dict(), out=self.out)


@verb("predict", USE, "graphlog predict new.csv -m esol-run -o predictions.csv")
class Predict(o.Inference, o.Reading, Command):
    """Predict with a fine-tuned model or a probe for every row of INPUT.

    OUT has the columns of INPUT and, for each target, predicted_TARGET (mean over seeds), _std
    (finetune: standard deviation over the networks of all seeds; kernel models: predicted standard
    deviation), _calibrated (calibrated probability) or _low and _high (interval); then
    graphlog_novelty (percentile among the labeled training graphs) and graphlog_status. With
    --explain, OUT has the contribution of each atom or other node instead.
    """

    source: o.Input
    predictor: str = o.option(..., "Run folder of finetune or probe.", "RUN", "--model", "-m")
    out: o.Result
    format: o.Format = None
    interval: float | None = o.option(
        None, "Regression: add intervals of this level, such as 0.9.", "LEVEL"
    )
    explain: bool = o.option(
        False,
        "Write how much each node contributes to the predictions: .csv, or .html (drawings of "
        "molecules).",
        None,
        "--explain",
    )
    engine: o.Engine = "local"

    def run(self) -> None:
        options: dict[str, Any] = {"batch_size": 2048, **self.given("explain", "engine")}
        options["progress"] = self.progress()
        if not self.explain:
            written = graphlog.predict_file(**options, engine=self.engine)
        elif (self.format, self.interval, self.engine) == (None, None, "local"):
            written = graphlog.explain_file(**options)
        else:
            raise ConfigError(
                "--explain excludes --format, --interval and --engine ray; drop them."
            )
        self.summary(written.to_dict(), out=self.out)


@verb("probe", USE, "graphlog probe esol -m run")
class Probe(o.Labeling, o.Reading, o.Computing, Command):
    """Fit linear or kernel models to frozen embeddings, and compare with baselines.

    With --with, linear models are fitted to the embeddings and to each of the features, and their
    predictions are averaged; a kernel model uses all of them together. RUN holds the models of the
    first row, as a predictor, and all scores.
    """

    source: o.Input
    model: o.Model
    labels_range: o.LabelsRange = None
    head: Literal["auto", "linear", "kernel"] | None = o.option(
        None,
        "Linear models (linear, the default), a kernel model (kernel; for regression it also "
        "predicts a standard deviation for each row), or the better one (auto).",
        "KIND",
    )
    layer: o.LearnedLayer = None
    with_features: o.WithFeatures = None
    baselines: Sequence[str] | None = o.option(
        None,
        "random (the untrained encoder), ecfp-rf, ecfp-lr, all or none (default: "
        "random,ecfp-lr); with 10-fold: random, wl.",
        "A,B",
        parser=_baselines,
    )
    baseline_seeds: Sequence[int] | None = o.option(
        None,
        "Seeds of untrained encoders and forests (default: 0; with splits, those of the splits).",
        "0,1,2",
        parser=o.integers,
    )
    protocol: Literal["split", "splits", "10-fold"] = o.option(
        "split",
        "One split (split), one split for each of --folds-seeds (splits), or the 10-fold accuracy "
        "of InfoGraph (10-fold).",
        "KIND",
    )
    folds_seeds: Sequence[int] | None = o.option(
        None, "Seeds of splits and 10-fold (default: 0,1,2).", "0,1,2", parser=o.integers
    )
    classifier: Literal["svm", "logistic"] | None = o.option(
        None, "Classifier of 10-fold: svm or logistic (default: svm).", "KIND"
    )
    run_dir: Path | None = o.option(
        None, "Folder to keep the models in, for predict.", "RUN", "--output", "-o"
    )
    overwrite: o.Overwrite = False
    engine: o.Engine = "local"
    device: o.Device = "auto"

    def run(self) -> None:
        excluded = _EXCLUDED[self.protocol]
        for option in excluded:
            if getattr(self, option) not in (None, False):
                raise ConfigError(
                    f"{setting(option)} does not apply to --protocol {self.protocol}; drop it, or "
                    "name another protocol.",
                    option=option,
                )
        options = self.given("model", "source", "protocol", *excluded)
        options["progress"] = self.progress()
        if self.protocol == "10-fold":
            options["seeds"] = options.pop("folds_seeds", _FOLDS_SEEDS)
            report = graphlog.fold_probe(self.model, self.source, **options)
        else:
            if self.protocol == "splits":
                options.setdefault("folds_seeds", _FOLDS_SEEDS)
            if self.baselines == ["all"]:
                options["baselines"] = _ALL_BASELINES
            report = graphlog.probe(self.model, self.source, **options)
        kept = {} if self.run_dir is None else {"run": str(self.run_dir)}
        self.result({**kept, **report.to_dict()}, *report.tables())
        if self.run_dir is not None:
            self.say(f"next: graphlog predict INPUT -m {self.run_dir} -o predictions.csv")
