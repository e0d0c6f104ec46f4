"""Verbs that use an encoder: embed, predict, probe."""

from pathlib import Path
from typing import Annotated, Any, Literal

import graphlog
from graphlog.cli import options as o
from graphlog.cli.console import Console, report_tables
from graphlog.errors import ConfigError

_BASELINES, _FOLD_BASELINES = "random,ecfp-lr", "random,wl"
_ALL_BASELINES = "random,ecfp-rf,ecfp-lr"


def embed(
    source: o.Input,
    model: o.Model,
    output: o.Result,
    format: o.Format = None,
    layer: o.Layer = None,
    with_features: o.WithFeatures = None,
    engine: o.Engine = "local",
    *,
    inference: o.Inference,
    reading: o.Reading,
    console: Console,
) -> None:
    """Write one embedding per row of INPUT.

    Row i of OUT is row i of INPUT; it is NaN or empty where the row cannot be read. Tables keep
    the columns of INPUT.
    """
    written = graphlog.embed_file(
        model,
        source,
        output,
        format=format,
        layer=layer,
        with_features=o.names(with_features),
        engine=engine,
        progress=console.progress(),
        **inference.options(),
        **reading.options(),
    )
    console.summary(written.to_dict(), output)


def predict(
    source: o.Input,
    run: Annotated[str, o.option("Run folder of finetune or probe.", "RUN", "--model", "-m")],
    output: o.Result,
    format: o.Format = None,
    interval: Annotated[
        float | None,
        o.option("Regression: add intervals of this probability, such as 0.9.", "LEVEL"),
    ] = None,
    explain: Annotated[
        bool,
        o.option(
            "Write instead which atoms the predictions rest on: .html (drawings) or .csv.",
            None,
            "--explain",
        ),
    ] = False,
    engine: o.Engine = "local",
    *,
    inference: o.Inference,
    reading: o.Reading,
    console: Console,
) -> None:
    """Predict with a fine-tuned model or a probe for every row of INPUT.

    OUT has the columns of INPUT, predicted_TARGET for each target (mean over seeds), its spread
    over seeds (_std), calibrated probabilities (_calibrated) or intervals (_low, _high),
    graphlog_novelty (percentile among the training graphs) and graphlog_status. With --explain it
    has what each atom contributes instead.
    """
    if explain:
        if format is not None or interval is not None or engine != "local":
            raise ConfigError("--explain goes without --format, --interval and --engine ray.")
        options = {**inference.options(), **reading.options()}
        written = graphlog.explain_file(run, source, output, progress=console.progress(), **options)
        console.summary(written.to_dict(), output)
        return
    written = graphlog.predict_file(
        run,
        source,
        output,
        interval=interval,
        format=format,
        engine=engine,
        progress=console.progress(),
        **inference.options(),
        **reading.options(),
    )
    console.summary(written.to_dict(), output)


def probe(
    source: o.Input,
    model: o.Model,
    targets: o.Targets = None,
    task: o.Task = "auto",
    split: o.SplitKind = None,
    on_repeats: o.OnRepeats = "keep",
    labels_range: o.LabelsRange = None,
    head: Annotated[
        Literal["auto", "linear", "kernel"],
        o.option("Linear models, a kernel model (with a spread for each value), or the better."),
    ] = "linear",
    layer: o.Layer = None,
    with_features: o.WithFeatures = None,
    c: Annotated[
        float,
        o.option(
            "Inverse penalty of one model; that of the other is chosen on validation.",
            "C",
            "--c",
            min=1e-9,
        ),
    ] = 0.1,
    baselines: Annotated[
        str | None,
        o.option(
            "random, ecfp-rf, ecfp-lr, all or none (default: random,ecfp-lr); with 10-fold: "
            "random, wl.",
            "A,B",
        ),
    ] = None,
    baseline_seeds: Annotated[
        str, o.option("One untrained encoder and one forest for each.", "0,1,2")
    ] = "0",
    protocol: Annotated[
        Literal["split", "splits", "10-fold"],
        o.option("One split, a split for each folds seed, or InfoGraph's 10-fold accuracy."),
    ] = "split",
    folds_seeds: Annotated[
        str, o.option("Of the folds, with splits and 10-fold.", "0,1,2")
    ] = "0,1,2",
    classifier: Annotated[Literal["svm", "logistic"], o.option("Classifier of 10-fold.")] = "svm",
    run_dir: Annotated[
        Path | None, o.option("Folder to keep the models in, for predict.", "RUN", "--output", "-o")
    ] = None,
    overwrite: o.Overwrite = False,
    engine: o.Engine = "local",
    device: o.Device = None,
    threads: o.Threads = None,
    *,
    reading: o.Reading,
    console: Console,
) -> None:
    """Fit linear or kernel models to frozen embeddings, beside baselines.

    --with also averages their predictions with those of linear models of other features; a kernel
    model sees them together. RUN holds the first row's models as a predictor, and its scores.
    """
    shared: dict[str, Any] = {
        "layer": layer,
        "progress": console.progress(),
        "targets": o.names(targets) or None,
        "task": task,
        "on_repeats": on_repeats,
        "labels_range": o.bounds(labels_range),
        "engine": engine,
        "device": device or "auto",
        **reading.options(),
    }
    if protocol == "10-fold":
        if split is not None:
            raise ConfigError("--protocol 10-fold makes its own folds; drop --split.")
        if with_features is not None:
            raise ConfigError("--with goes with one split or several; drop --protocol 10-fold.")
        if run_dir is not None or overwrite:
            raise ConfigError("--output and --overwrite go with one split or several; drop them.")
        if head != "linear":
            raise ConfigError("--head goes with one split or several; drop --protocol 10-fold.")
        rows = o.names(baselines or _FOLD_BASELINES)
        report = graphlog.fold_probe(
            model,
            source,
            classifier=classifier,
            baselines=rows,
            seeds=o.integers(folds_seeds),
            **shared,
        )
    else:
        rows = o.names(_ALL_BASELINES if baselines == "all" else baselines or _BASELINES)
        joined = o.names(with_features)
        report = graphlog.probe(
            model,
            source,
            split,
            head=head,
            baselines=rows,
            baseline_seeds=o.integers(baseline_seeds),
            folds_seeds=o.integers(folds_seeds) if protocol == "splits" else None,
            c=c,
            with_features=joined,
            run_dir=run_dir,
            overwrite=overwrite,
            **shared,
        )
    kept = {} if run_dir is None else {"run": str(run_dir)}
    console.result({**kept, **report.to_dict()}, *report_tables(report))
    if run_dir is not None:
        console.say(f"next: graphlog predict INPUT -m {run_dir} -o predictions.csv")
