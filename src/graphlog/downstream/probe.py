"""Fit linear and kernel models to frozen embeddings, and compare them with baselines.

Each representation is computed once and fitted once; the rows of a report are selections and means
of these fits.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tomli_w
import torch
from jaxtyping import Float
from scipy.sparse import csr_matrix

from graphlog.data.graphs import save_rejects
from graphlog.data.split import Split
from graphlog.data.store import GraphStore
from graphlog.data.tables import ColumnNames
from graphlog.data.workers import device_for, using
from graphlog.domains import Input, domain_of
from graphlog.domains.base import BaselineFeatures
from graphlog.domains.repeats import repeat_kinds
from graphlog.downstream.kernel import KernelFit, KernelModel, Predicted, fit_kernel
from graphlog.downstream.label_checks import repeats_between
from graphlog.downstream.linear import (
    COUNTS,
    FIXED_C,
    GRID,
    MANY_TASKS,
    TREES,
    TREES_MANY_TASKS,
    Features,
    LinearModel,
    Scaling,
    fuse,
    held_out_path,
    linear_fits,
    linear_predictions,
    sparse_bits,
    tree_predictions,
)
from graphlog.downstream.metrics import better, mean_over_tasks
from graphlog.downstream.predictor import FineTuned, Head, Predictor
from graphlog.downstream.pretrained import Encoder, load, statistics_note, untrained_like
from graphlog.downstream.report import (
    Model,
    Report,
    RowKey,
    Rule,
    ScoreRow,
    Source,
    make_report,
    report_of_splits,
    score_row,
)
from graphlog.downstream.tasks import (
    LabeledGraphs,
    SplitChoice,
    check_learnable,
    labeled,
    mean_held_out,
    without_validation_set,
)
from graphlog.downstream.uncertainty import Calibration, calibration_notes
from graphlog.encoders.encoder import EmbeddingLayer
from graphlog.encoders.novelty import fit_novelty
from graphlog.errors import ConfigError, DataError, check_list, check_name, check_seeds, setting
from graphlog.files import write_json, write_text, writing
from graphlog.inputs import InputLike, reiterable, remember_input, resolve
from graphlog.training.log import Progress, as_progress
from graphlog.training.runfolder import RunFolder, check_usable, versions
from graphlog.training.settings import Precision

BASELINES = ("random", "ecfp-rf", "ecfp-lr")
USUAL_BASELINES = ("random", "ecfp-lr")
"""Default baselines, which take seconds: an untrained encoder and linear models of fingerprints."""
EMBEDDING, UNTRAINED = "frozen encoder", "untrained encoder"
COUNTS_TITLE = "ECFP4 counts"
HEADS = ("auto", "linear", "kernel")
"""Kinds of models of embeddings; ``auto`` takes the better of the two on the validation set."""
KERNEL_RULE = "kernel by cross-validation"
K = TypeVar("K")


def probe(
    encoder: str | Path | Encoder,
    dataset: InputLike | LabeledGraphs,
    split: SplitChoice = None,
    *,
    targets: ColumnNames | None = None,
    head: str = "linear",
    layer: str | None = None,
    with_features: Sequence[str] = (),
    baselines: Sequence[str] = USUAL_BASELINES,
    baseline_seeds: Sequence[int] | None = None,
    folds_seeds: Sequence[int] | None = None,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    device: str = "cpu",
    engine: str = "local",
    **labeling: Any,
) -> Report:
    """Fit models to the frozen embeddings of a labeled data set and score them on its test set.

    Linear models are logistic regression for classification and ridge regression for regression, on
    features standardized over the training set. Each representation has two rows: one with the
    inverse penalty C = 0.1, one with the C among 0.001, 0.01, 0.1 and 1 that has the best mean
    validation score; ridge has ``alpha = 1 / C``. Kernel models (see
    :func:`~graphlog.downstream.kernel.fit_kernel`) have one row per representation; they compare
    molecules by their embeddings, with the additional features, and by ECFP4 counts.

    Args:
        encoder: As for :func:`graphlog.finetune`.
        dataset: As for :func:`graphlog.finetune`.
        split: As for :func:`graphlog.finetune`.
        targets: As for :func:`graphlog.finetune`.
        head: ``linear``, ``kernel``, or ``auto``: both, the better one first, judged by the
            validation set, or by cross-validation of the training set if the former has no score.
        layer: See :meth:`~graphlog.downstream.pretrained.Encoder.head_layer`.
        with_features: Additional features that need no training, as for
            :meth:`~graphlog.downstream.pretrained.Encoder.embed`.
            Linear models of the embeddings and of each of the features are averaged (logits for
            classification, values for regression) in the first row; the rows below score each
            alone. A kernel model uses all of them together.
        baselines: Rows to compare with: ``random``, ``ecfp-rf``, ``ecfp-lr``; for proteins,
            statistics of the ego-networks replace the fingerprints.
        baseline_seeds: Seeds of untrained encoders and forests (default: 0, or ``folds_seeds``).
        folds_seeds: Draw a split for each of these seeds, and score everything on each: rows
            then have one value per split, and differences from the first row are paired.
            Molecules are split by ``random-scaffold`` if no split is named. None: one split.
        precision: Format of the encoder's matrix products.
        progress: Shows the progress.
        run_dir: Folder for the chosen models, saved as a predictor, whose row then comes first;
            None saves nothing. For several splits the models are fitted again to all labeled
            graphs, linear ones with the C of the best mean validation score; intervals and
            calibration come from the validation sets of all splits.
        overwrite: Replace the run in ``run_dir``.
        device: Device of an encoder that is given by name: ``auto``, ``cpu`` or ``cuda``.
        engine: Where graphs are read and embedded, ``local`` or ``ray``: see
            :func:`graphlog.data.workers.using`. Models are always fitted in this process.
        labeling: Options of ``open_labeled`` (``task``, ``smiles_column``, ...).

    Raises:
        ConfigError: If a name is unknown, ``run_dir`` is not free, the split does not depend on a
            seed, or weights are given for linear models.
        DataError: If nothing can be learned, and models are to be saved or ``head`` is not
            ``linear``.
    """
    _check_options(head, baselines, baseline_seeds, folds_seeds)
    seeds = check_seeds("baseline_seeds", [0] if baseline_seeds is None else baseline_seeds)
    if folds_seeds is not None:
        folds_seeds = check_seeds("folds_seeds", folds_seeds, 2)
    path, bar = None if run_dir is None else Path(run_dir), as_progress(progress)
    if path is not None:  # before the input is read, which may take long
        check_usable(path, "probe", None, overwrite, encoder)
    elif overwrite:
        raise ConfigError(
            f"{setting('overwrite')} replaces a run; name its folder with {setting('run_dir')}.",
            option="overwrite",
        )

    # open the encoder, the labeled graphs with their splits, and the run folder
    encoder, source = opened(encoder, dataset, device_for(engine, device))
    encoder = encoder.with_readout()
    layer = encoder.head_layer(layer)
    if folds_seeds is not None and split is None and isinstance(source, Input):
        split = domain_of(encoder.schema).shuffled_split
    labeling |= {"split": split, "targets": targets}
    with using(engine, encoder.device.type), ExitStack() as stack:
        data = labeled(source, encoder.schema, **labeling)
        if data.weights is not None and head != "kernel":  # others fit baselines without them
            raise ConfigError(
                f"weights need {setting('head', 'kernel')}, or fine-tuning.", option="head"
            )
        domain = domain_of(data.store.schema)
        check_features(data.store, with_features)
        splits = [data] if folds_seeds is None else with_other_splits(data, folds_seeds)
        if folds_seeds is None and (path is not None or head != "linear"):
            check_learnable(data)
        folder = None
        if path is not None:
            run = RunFolder.open(path, "probe", resume=None, overwrite=overwrite)
            folder = stack.enter_context(closing(run))

        # compute the features of all graphs
        embeddings = encoder.embed_store(data.store, layer, precision=precision, progress=bar)
        with bar.shown(0, "computing fingerprints and other features"):
            parts = {"": BaselineFeatures(EMBEDDING, embeddings)}
            parts |= {name: domain.feature_set(name, data.store) for name in with_features}
            fingerprints, notes = _fingerprints(data, baselines, parts)
            counts, count_notes = (None, []) if head == "linear" else _substructures(data, parts)
        notes += [*count_notes, *_fitting_notes(data, head)]

        # fit the models of each split and score them: a report per split
        models = [model for model in (Model.LINEAR, Model.KERNEL) if head in (model.value, "auto")]
        seeds_by_split = [seeds] if folds_seeds is None else [[seed] for seed in folds_seeds]
        reports, candidates = list[Report](), list[dict[RowKey, _Candidate]]()
        with bar.shown(0, "fitting models"):
            for one, split_seeds in zip(splits, seeds_by_split, strict=True):
                fits = _Fits(one, counts)
                networks = (
                    untrained_like(encoder, one.train_graphs, seed, layer)
                    for seed in (split_seeds if "random" in baselines else ())
                )
                untrained = [
                    {"": BaselineFeatures(UNTRAINED, n.embed_store(one.store, precision=precision))}
                    for n in networks
                ]
                rows, of_split = fits.table(models, parts, untrained, fingerprints, split_seeds)
                kernel_notes = fits.kernel(parts)[0].notes if Model.KERNEL in models else ()
                network_notes = [statistics_note(encoder)] if untrained else []
                all_notes = [*notes, *kernel_notes, *network_notes, *one.repeat_notes]
                reports.append(make_report(one, rows, all_notes))
                candidates.append(of_split)

        # choose the models, join the reports of several splits, and save
        keys = list(candidates[0])
        merits = {k: mean_over_tasks(np.array([c[k].merit for c in candidates])) for k in keys}
        best = _best(data.criterion, keys[0], merits)
        chosen = [of_split[best] for of_split in candidates]
        report, kept = reports[0], chosen[0].kept
        if folds_seeds is not None:
            report = report_of_splits(reports, folds_seeds)
            if folder is not None:
                data = replace(data, split_name=report.split)
                data, kept = _refit(data, parts, best.model, counts, chosen)
                note = f"kept: models fitted to all {len(data.split.train):,} labeled graphs"
                report = replace(report, notes=(*report.notes, note))
        if folder is not None or head != "linear":
            report = report.led_by(best)
        if folder is None:
            return report
        predictor = _predictor(encoder, layer, data, kept, report)
        predictor.info = {"probed_on": data.name, **origin(data, encoder)}
        predictor.novelty = fit_novelty(predictor.members[0].network, data.train_graphs)
        _calibrate(predictor, kept, splits, [each.predicted for each in chosen], head == "auto")
        keep_run(folder, predictor, data, source, labeling)
        # after the model: settings without a model would look like a run to be resumed
        describe_run(folder, data, run_tables("probe", data, encoder, predictor.info["probe"]))
        return predictor.report


def _check_options(
    head: str,
    baselines: Sequence[str],
    baseline_seeds: Sequence[int] | None,
    folds_seeds: Sequence[int] | None,
) -> None:
    """Refuse options of :func:`probe` that are unknown or without effect."""
    check_baselines(baselines)
    if baseline_seeds is not None and (folds_seeds is not None or not baselines):
        why = "there are no baselines" if not baselines else "each split has its own"
        raise ConfigError(
            f"{setting('baseline_seeds')} changes nothing, since {why}; drop it.",
            option="baseline_seeds",
        )
    check_name("head", head, HEADS)


def opened(
    encoder: str | Path | Encoder, dataset: InputLike | LabeledGraphs, device: str
) -> tuple[Encoder, Input | LabeledGraphs]:
    """Return the encoder, and the input to read, or the graphs if they have labels already."""
    if isinstance(dataset, LabeledGraphs):
        return load(encoder, device=device, source=dataset.store), dataset
    dataset = reiterable(dataset)
    encoder = load(encoder, device=device, source=dataset)
    return encoder, resolve(dataset, encoder.schema)


Kept = KernelModel | Mapping[str, LinearModel]
"""Models of a predictor: a kernel model, or linear models whose predictions are averaged, by the
names of their features; the name of the embedding is empty."""
Parts = Mapping[str, BaselineFeatures]
"""Features that a model uses, by name; the name of the embedding is empty."""
Scores = Mapping[float, float]
"""Validation score at each inverse penalty."""


def _fingerprints(
    data: LabeledGraphs, baselines: Sequence[str], parts: Parts
) -> tuple[dict[Model, BaselineFeatures], list[str]]:
    """Return the features to compare with, by the kind of model fitted to them, and notes.

    The first features of the domain are used; if they are among ``parts``, they are not computed
    again.
    """
    domain = domain_of(data.store.schema)
    if not {"ecfp-rf", "ecfp-lr"} & set(baselines):
        return {}, []
    if not domain.feature_sets:
        return {}, [f"no ECFP4 rows: {domain.records} have no fingerprints"]
    name = next(iter(domain.feature_sets))
    try:
        features = parts.get(name) or domain.feature_set(name, data.store)
    except DataError:
        return {}, ["no ECFP4 rows: the store keeps no SMILES"]
    # quantities are fitted by linear models only
    models = [Model.FOREST] if "ecfp-rf" in baselines and features.binary else []
    models += [Model.LINEAR] if "ecfp-lr" in baselines or not features.binary else []
    return dict.fromkeys(models, features), [features.note] if features.note else []


def _substructures(data: LabeledGraphs, parts: Parts) -> tuple[csr_matrix | None, list[str]]:
    """Return the counts of substructures that kernel models use, if any, and notes."""
    try:
        counts = domain_of(data.store.schema).feature_counts(data.store)
    except DataError:
        return None, [f"no {COUNTS_TITLE}: the store keeps no SMILES"]
    replaced = [name for name, features in parts.items() if features.binary]
    if counts is None or not replaced:
        return counts, []
    return counts, [f"the kernel model uses {COUNTS_TITLE} in place of {replaced[0]}"]


def _fitting_notes(data: LabeledGraphs, head: str) -> list[str]:
    weighted = "only kernel models use weights; scores and other rows do not"
    notes = [weighted] if data.weights is not None else []
    if head == "kernel":
        return notes
    penalty = (
        f"C: inverse penalty of linear models, fixed ({FIXED_C}) or the best on the validation set"
    )
    alpha = "; ridge regression has alpha = 1 / C" if data.task == "regression" else ""
    return [*notes, f"{penalty} (C by validation){alpha}"]


class _Candidate(NamedTuple):
    """Fitted models that may be saved."""

    merit: float
    """Score by which kinds of models are compared."""
    predicted: Predicted
    """Predictions for the validation and test set."""
    kept: Kept
    validation: Mapping[str, Scores] = {}
    """Validation scores of linear models, by the names of their features."""


def _refit(
    data: LabeledGraphs,
    parts: Parts,
    model: Model,
    counts: csr_matrix | None,
    chosen: Sequence[_Candidate],
) -> tuple[LabeledGraphs, Kept]:
    """Return the data with all graphs as training set, and the models fitted to it.

    The C of each linear model has the best mean validation score over splits (``chosen``).
    """
    graphs = np.arange(len(data.labels))
    whole = replace(data, split=Split(graphs, graphs[:0], graphs[:0]))
    if model is Model.KERNEL:
        return whole, _Fits(whole, counts).kernel(parts)[0].model
    models: dict[str, LinearModel] = {}
    for name, features in parts.items():
        scores = [of_split.validation[name] for of_split in chosen]
        means = {c: mean_over_tasks(np.array([s[c] for s in scores])) for c in scores[0]}
        models[name] = _linear_model(whole, features, _best(data.criterion, FIXED_C, means))
    return whole, models


def _linear_model(data: LabeledGraphs, features: BaselineFeatures, c: float) -> LinearModel:
    """Return the linear model of some features at one inverse penalty."""
    scaling, x = _scaled(features, data.split.train)
    fits = linear_fits(x, data.labels, data.split.train, data.task, [c], data.weights)
    return fits[c]._replace(scaling=scaling, c=c)


class _LinearFits(NamedTuple):
    """The linear models of one representation at each inverse penalty."""

    path: dict[float, Float[np.ndarray, "M T"]]
    """Predictions for every graph."""
    models: dict[float, LinearModel]
    validation: Scores
    best: float
    """Penalty with the best validation score; the fixed one if no score is defined."""


class _Fits:
    """Models fitted to the training set of one split, each once, and the rows of their scores."""

    def __init__(self, data: LabeledGraphs, counts: csr_matrix | None = None) -> None:
        """Set the data, and the counts that replace bits in kernel models."""
        self.data, self.counts = data, counts
        self._linear = dict[BaselineFeatures, _LinearFits]()
        self._kernel = dict[tuple[BaselineFeatures, ...], tuple[KernelFit, Predicted]]()

    def linear(self, features: BaselineFeatures) -> _LinearFits:
        """Return the linear models of some features at each inverse penalty."""
        if features not in self._linear:
            data = self.data
            scaling, x = _scaled(features, data.split.train)
            fits = linear_fits(x, data.labels, data.split.train, data.task)
            path = {c: linear_predictions(x, fit, data.task) for c, fit in fits.items()}
            scores = {c: data.score(p, "valid") for c, p in path.items()}
            models = {c: fit._replace(scaling=scaling, c=c) for c, fit in fits.items()}
            best = _best(data.criterion, FIXED_C, scores)
            self._linear[features] = _LinearFits(path, models, scores, best)
        return self._linear[features]

    def kernel(self, parts: Parts) -> tuple[KernelFit, Predicted]:
        """Return the kernel model and its predictions for the validation and test set."""
        inputs = tuple(parts.values())
        if inputs not in self._kernel:
            data, counts = self.data, self.counts
            blocks = {
                name: csr_matrix(features.values) if features.binary else features.values
                for name, features in parts.items()
                if counts is None or not features.binary
            }
            blocks |= {} if counts is None else {COUNTS: counts}
            kinds = repeat_kinds(data.store)
            fit = fit_kernel(blocks, data.labels, data.split.train, data.task, data.weights, kinds)
            rows = np.concatenate([data.split.valid, data.split.test])
            predicted = fit.model.predict([values[rows] for values in blocks.values()])
            mean, std = np.full((2, *data.labels.shape), np.nan)
            mean[rows] = predicted.mean
            if predicted.std is not None:
                std[rows] = predicted.std
            self._kernel[inputs] = fit, Predicted(mean, None if predicted.std is None else std)
        return self._kernel[inputs]

    def table(
        self,
        models: Sequence[Model],
        parts: Parts,
        untrained: Sequence[Parts],
        fingerprints: Mapping[Model, BaselineFeatures],
        seeds: Sequence[int],
    ) -> tuple[list[ScoreRow], dict[RowKey, _Candidate]]:
        """Return the rows of a report, and the models that may be saved, by the key of their row.

        ``untrained`` are embeddings of untrained encoders, ``fingerprints`` the features to compare
        with, by the kind of model fitted to them, and ``seeds`` those of forests.
        """
        rows, candidates = list[ScoreRow](), dict[RowKey, _Candidate]()
        compared = fingerprints.get(Model.LINEAR)
        _, *joined = parts
        for model in models:
            rows += self.rows(model, Source.EMBEDDING, [parts], tuple(joined))
            key = rows[-1].key
            assert key is not None, "rows of a probe have keys"
            candidates[key] = self._candidate(model, parts, len(models) > 1)
            if model is Model.LINEAR and joined:  # each of the parts alone
                rows += self.rows(model, Source.EMBEDDING, [{"": parts[""]}])
                for name in joined:
                    rows += self.rows(model, Source.FEATURES, [{"": parts[name]}], (name,))
            if untrained:
                rows += self.rows(model, Source.UNTRAINED, untrained)
            is_joined = any(features is compared for features in parts.values())
            if compared and (model is Model.KERNEL or not is_joined):
                rows += self.rows(model, Source.FEATURES, [{"": compared}])
        if features := fingerprints.get(Model.FOREST):
            rows += self.rows(Model.FOREST, Source.FEATURES, [{"": features}], seeds=seeds)
        return rows, candidates

    def _candidate(self, model: Model, parts: Parts, is_compared: bool) -> _Candidate:
        """Return the models of the embedding and the features joined to it.

        Their merit is the validation score. If that is undefined and kinds of models are to be
        compared, it is the score of cross-validation in the training set.
        """
        data, validation, held_out = self.data, dict[str, Scores](), None
        if model is Model.KERNEL:
            fit, predicted = self.kernel(parts)
            kept, held_out = fit.model, fit.held_out
        else:
            fits = {name: self.linear(features) for name, features in parts.items()}
            best = [fit.path[fit.best] for fit in fits.values()]
            predicted = Predicted(fuse(best, data.task), None)
            kept = {name: fit.models[fit.best] for name, fit in fits.items()}
            validation = {name: fit.validation for name, fit in fits.items()}
        merit = data.score(predicted.mean, "valid")
        if math.isnan(merit) and is_compared:
            if held_out is None:
                held_out = _held_out(data, parts, [FIXED_C])[FIXED_C]
            merit = data.score(held_out, "train")
        return _Candidate(merit, predicted, kept, validation)

    def rows(
        self,
        model: Model,
        source: Source,
        each: Sequence[Parts],
        features: tuple[str, ...] = (),
        seeds: Sequence[int] = (0,),
    ) -> list[ScoreRow]:
        """Return the rows of one kind of model; linear ones have one at the fixed C and one chosen.

        ``each`` has the features of one model, or of one per untrained encoder; ``features`` are
        names for the key of the row; ``seeds`` those of forests and boosted trees.
        """
        data, names = self.data, [part.name for part in each[0].values()]
        key = RowKey(source, features, model)
        match model:
            case Model.LINEAR:
                fits = [[self.linear(part) for part in parts.values()] for parts in each]
                fixed = [fuse([fit.path[FIXED_C] for fit in joined], data.task) for joined in fits]
                best = [fuse([fit.path[fit.best] for fit in joined], data.task) for joined in fits]
                penalties = [fit.best for joined in fits for fit in joined]
                kind = "ridge" if data.task == "regression" else "logistic"
                names += [f"{kind} regression"] if source is Source.FEATURES else []
                results = [
                    (Rule.FIXED, f"C = {FIXED_C}", fixed, {"c": FIXED_C}),
                    (Rule.VALIDATION, "C by validation", best, {"c": penalties}),
                ]
            case Model.KERNEL:
                predictions = [self.kernel(parts)[1].mean for parts in each]
                if self.counts is not None:
                    names = [part.name for part in each[0].values() if not part.binary]
                    names.append(COUNTS_TITLE)
                settings = self.kernel(each[0])[0].model.settings_by_name()
                detail = settings if source is Source.EMBEDDING else {}
                results = [(Rule.FOLDS, KERNEL_RULE, predictions, detail)]
            case _:
                is_forest = model is Model.FOREST
                names.append("random forest" if is_forest else "boosted trees")
                how, detail = "100 rounds", {}
                if is_forest:
                    # a forest for each of hundreds of targets takes minutes per seed
                    is_large = len(data.targets) > MANY_TASKS
                    trees, seeds = (TREES_MANY_TASKS, seeds[:1]) if is_large else (TREES, seeds)
                    how, detail = f"{trees} trees", {"seeds": list(seeds)}
                (part,) = each[0].values()
                training = part.values, data.labels, data.split.train, data.task
                predictions = [
                    tree_predictions(*training, seed, boosted=not is_forest) for seed in seeds
                ]
                results = [(Rule.FIXED, how, predictions, detail)]
        title = " + ".join(names)
        return [
            score_row(title, how, data, predictions, detail, replace(key, rule=rule))
            for rule, how, predictions, detail in results
        ]


def _scaled(features: BaselineFeatures, train: np.ndarray) -> tuple[Scaling | None, Features]:
    """Return features as linear models use them, with their scaling; bits are not scaled."""
    if features.binary:
        return None, sparse_bits(features.values)
    scaling = Scaling.of(features.values[train])
    return scaling, scaling(features.values)


def _held_out(
    data: LabeledGraphs, parts: Parts, grid: Sequence[float]
) -> dict[float, Float[np.ndarray, "M T"]]:
    """Return predictions for the training set by five-fold cross-validation, at each penalty.

    Predictions of linear models of the parts are averaged.
    """
    train, kinds = data.split.train, repeat_kinds(data.store)
    paths = [
        held_out_path(
            _scaled(part, train)[1], data.labels, train, data.task, grid, kinds, data.weights
        )
        for part in parts.values()
    ]
    return {c: fuse([path[c] for path in paths], data.task) for c in grid}


def _best(metric: str, default: K, scores: Mapping[K, float]) -> K:
    """Return the first key with the best score; ``default`` if no score is defined."""
    best, highest = default, math.nan
    for key, score in scores.items():
        if better(metric, score, highest):
            best, highest = key, score
    return best


FittedKernel = tuple[Predictor, Float[np.ndarray, "M T"], list[str]]
"""A predictor by a kernel model, its predictions (training rows are NaN), and notes."""


def kernel_predictor(
    encoder: Encoder,
    data: LabeledGraphs,
    with_features: Sequence[str] = (),
    resampled: Sequence[LabeledGraphs] = (),
) -> FittedKernel:
    """Fit a kernel model of frozen embeddings to the training set.

    ``resampled`` are the same graphs with validation sets drawn from the training and validation
    set: the kernel model is then fitted to both, and graphs of these sets are predicted by models
    that are fitted to the rest.
    """
    data = without_validation_set(data) if resampled else data
    layer, domain = encoder.head_layer(), domain_of(data.store.schema)
    parts = {"": BaselineFeatures(EMBEDDING, encoder.embed_store(data.store, layer))}
    parts |= {name: domain.feature_set(name, data.store) for name in with_features}
    counts, notes = _substructures(data, parts)
    fit, predicted = _Fits(data, counts).kernel(parts)
    predictor = _predictor(encoder, layer, data, fit.model, make_report(data, ()))
    if resampled:
        others = [_Fits(other, counts).kernel(parts)[1].mean for other in resampled]
        held_out = mean_held_out([other.split for other in resampled], others)
        predicted.mean[:] = np.where(np.isnan(predicted.mean), held_out, predicted.mean)
    return predictor, predicted.mean, [*notes, *fit.notes]


def check_baselines(names: Sequence[str], known: Sequence[str] = BASELINES) -> None:
    """Refuse unknown names of baselines, before any work."""
    check_list("baselines", names)
    for name in names:
        check_name("baseline", name, known)


def check_features(store: GraphStore, names: Sequence[str]) -> None:
    """Refuse features that are unknown or that the graphs have no texts for, before any work."""
    domain = domain_of(store.schema)
    domain.check_feature_sets(names)
    for name in names:
        domain.feature_set(name, store.subset([0]))


def ecfp_rows(
    data: LabeledGraphs, baselines: Sequence[str], seeds: Sequence[int]
) -> tuple[list[ScoreRow], list[str]]:
    """Return the rows of the fingerprints among the baselines, and notes."""
    fingerprints, notes = _fingerprints(data, baselines, {})
    rows = [r for m, part in fingerprints.items() for r in feature_rows(data, part, [m], seeds)]
    return rows, notes


def feature_rows(
    data: LabeledGraphs,
    features: BaselineFeatures,
    models: Sequence[Model],
    seeds: Sequence[int] = (0,),
    counts: csr_matrix | None = None,
) -> list[ScoreRow]:
    """Return the rows of models of features that need no training.

    ``seeds`` are those of forests and boosted trees; ``counts`` replace bits in kernel models.
    """
    fits, parts = _Fits(data, counts), {"": features}
    return [row for m in models for row in fits.rows(m, Source.FEATURES, [parts], seeds=seeds)]


def with_other_splits(data: LabeledGraphs, seeds: Sequence[int]) -> list[LabeledGraphs]:
    """Return the same graphs with a new split for each seed.

    Raises:
        ConfigError: If the test set is the same with every seed.
    """
    draw = data.draw
    drawn = [] if draw is None else [draw(data.store, data.labels, s) for s in seeds]
    if not drawn or all(np.array_equal(drawn[0][0].test, sets.test) for sets, _ in drawn[1:]):
        raise ConfigError(
            f"the {data.split_name} split has the same test set with every seed; choose one that "
            f"shuffles with {setting('split')}, such as random-scaffold (molecules) or random.",
            option="split",
        )
    return [replace(data, split=sets, split_name=name) for sets, name in drawn]


def _predictor(
    encoder: Encoder, layer: EmbeddingLayer, data: LabeledGraphs, kept: Kept, report: Report
) -> Predictor:
    """Return a predictor by a kernel model, or by the average of linear models."""
    network = encoder.copy().network.eval()
    if isinstance(kept, KernelModel):
        targets = len(kept.shift)
        # a head that predicts 0 and is not used, because the kernel model predicts
        zeros = LinearModel(np.zeros((encoder.width(layer), targets)), np.zeros(targets))
        head = Head.of_probe(zeros, data.task)
        head.target_shift.copy_(torch.from_numpy(kept.shift))
        head.target_scale.copy_(torch.from_numpy(kept.scale))
        return Predictor([FineTuned(network, head, layer)], data.targets, report, kernel=kept)
    heads = {name: Head.of_probe(model, data.task) for name, model in kept.items()}
    member = FineTuned(network, heads.pop(""), layer)
    return Predictor([member], data.targets, report, joined=heads)


def _calibrate(
    predictor: Predictor,
    kept: Kept,
    splits: Sequence[LabeledGraphs],
    predictions: Sequence[Predicted],
    is_best: bool,
) -> None:
    """Fit and test the calibration of a predictor, and complete its report and description.

    The calibration is fitted to the validation sets of all splits and tested on their test sets; a
    graph in several of these is repeated. ``is_best`` says that the kind of model was chosen by the
    validation set.
    """
    pairs = list(zip(splits, predictions, strict=True))
    held_out = [(one, made, one.split[part]) for part in (1, 2) for one, made in pairs]
    labels = np.concatenate([one.reliable_labels[graphs] for one, _, graphs in held_out])
    mean = np.concatenate([made.mean[graphs] for _, made, graphs in held_out])
    stds = [made.std[graphs] for _, made, graphs in held_out if made.std is not None]
    rows, num_valid = np.arange(len(mean)), sum(len(one.split.valid) for one in splits)
    split = Split(rows[:0], rows[:num_valid], rows[num_valid:])
    data = replace(splits[0], labels=labels, split=split)
    # a graph, and its repeats, have one number in the validation sets of all splits
    kinds = np.concatenate([one.valid_kinds for one in splits])
    calibration = Calibration.fit(data.task, labels[:num_valid], mean[:num_valid], kinds)
    tested = calibration.rows(data, mean, np.concatenate(stds) if stds else None)
    layer, report = predictor.members[0].layer, predictor.report
    if isinstance(kept, KernelModel):
        settings = {"layer": layer, "head": "kernel", **kept.settings_by_name()}
    else:
        penalties = {name or "embedding": model.c for name, model in kept.items()}
        settings = {"layer": layer, "head": "linear", "with": predictor.features, "c": penalties}
    is_chosen = math.isfinite(report.rows[0].mean(data.metric, "valid"))
    choices = ["the kind of model"] * is_best + ["C"] * (predictor.kernel is None)
    chosen = " and ".join(choices) if is_chosen and choices else None
    notes = calibration_notes(tested, report.split, chosen, report.splits > 1, data.records)
    predictor.calibration = calibration
    predictor.report = replace(report, notes=(*report.notes, *notes), calibration=tested)
    predictor.info["probe"] = settings


def fit_head(
    encoder: Encoder, data: LabeledGraphs, head: str, layer: str | None = None
) -> Predictor:
    """Fit a predictor to the training set without scoring it, for scikit-learn.

    Penalties, and the kind of model if ``head`` is ``auto``, are chosen by cross-validation.

    Raises:
        ConfigError: If ``head`` is unknown.
    """
    check_name("head", head, HEADS)
    layer = encoder.head_layer(layer)
    parts = {"": BaselineFeatures(EMBEDDING, encoder.embed_store(data.store, layer))}
    scores: dict[Model | float, float] = {}
    counts, notes = (None, []) if head == "linear" else _substructures(data, parts)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    fits = _Fits(data, counts)
    if head != "linear":
        scores[Model.KERNEL] = data.score(fits.kernel(parts)[0].held_out, "train")
    if head != "kernel":
        scores |= {c: data.score(p, "train") for c, p in _held_out(data, parts, GRID).items()}
    best = _best(data.criterion, FIXED_C if head == "linear" else Model.KERNEL, scores)
    if isinstance(best, Model):
        kept: Kept = fits.kernel(parts)[0].model
    else:
        kept = {"": _linear_model(data, parts[""], best)}
    return _predictor(encoder, layer, data, kept, make_report(data, ()))


def run_tables(
    kind: str, data: LabeledGraphs, encoder: Encoder, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of ``config.toml`` for a run of ``kind`` ``finetune`` or ``probe``."""
    described = ("objective", "recipe", "name")
    return {
        "kind": kind,
        "input": {
            "name": data.name,
            "targets": list(data.targets),
            "task": data.task,
            "metric": data.metric,
            "split": data.split_name,
            "sha256": data.digest,
        },
        "model": {
            "schema": encoder.schema.name,
            **{k: encoder.info[k] for k in described if k in encoder.info},
        },
        kind: dict(settings),
    }


def describe_run(folder: RunFolder, data: LabeledGraphs, tables: Mapping[str, Any]) -> None:
    """Write the settings, versions and split of a run."""
    with writing(folder.path):
        write_json(folder.versions, versions(data.digest))
        input_rows = data.store.output_rows if data.rows is None else data.rows
        rows = Split(*(input_rows[graphs] for graphs in data.split))
        rows.save(folder.path / "split.json", data.split_name, (), data.digest)
        write_text(folder.config, tomli_w.dumps(tables))


def keep_run(
    folder: RunFolder,
    predictor: Predictor,
    data: LabeledGraphs,
    source: Input | LabeledGraphs,
    labeling: Mapping[str, Any],
    advice: str = "",
) -> None:
    """Write the scores, model and rejected rows; an error for a full disk ends with ``advice``."""
    with writing(folder.path, advice):
        write_json(folder.path / "scores.json", predictor.report.to_dict())
        predictor.save(folder.model)
        save_rejects(folder.path, data.rejects, folder.path.name)
    if isinstance(source, Input):
        remember_input(folder.path, source, **labeling)


def origin(data: LabeledGraphs, encoder: Encoder, splits: Sequence[Split] = ()) -> dict[str, Any]:
    """Return what the file of a predictor records about its labels and its encoder.

    ``splits`` are those of its models; none stands for the split of the data.
    """
    source, domain, kinds = (
        data.store.source,
        domain_of(data.store.schema),
        repeat_kinds(data.store),
    )
    repeats = {} if kinds is None else repeats_between(kinds, splits or [data.split])
    repeated, num_valid = repeats.get(("valid", "train"), (0, 0))
    recorded: dict[str, Any] = {
        "smiles_column": source.smiles_column,
        "standardize": source.standardize,
        "cutting": domain.cutting_options(data.store) or encoder.info.get("cutting"),
        "valid_repeats": (repeated, num_valid) if repeated else None,
        # targets of more than two classes have the class in their name
        "classes": {
            target: dict(zip("01", words, strict=True))
            for target, words in source.classes.items()
            if data.task == "classification" and target in data.targets and len(words) == 2
        },
    }
    return {
        "data_digest": data.digest,
        "pretrained": {k: v for k, v in encoder.info.items() if k != "embedding"},
        **{name: value for name, value in recorded.items() if value},
    }
