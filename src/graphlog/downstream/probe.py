"""Models of frozen embeddings, linear and by kernels, beside fingerprints and untrained encoders.

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
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from graphlog.data.graphs import save_rejects
from graphlog.data.split import Split
from graphlog.data.tables import ColumnNames
from graphlog.data.workers import device_for, using
from graphlog.domains import Input, domain_of
from graphlog.domains.base import BaselineFeatures
from graphlog.domains.repeats import repeat_kinds
from graphlog.downstream.kernel import KernelFit, KernelModel, Predicted, fit_kernel
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
    check_penalties,
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
from graphlog.downstream.tasks import LabeledGraphs, SplitChoice, check_learnable, labeled
from graphlog.downstream.uncertainty import Calibration, calibration_notes
from graphlog.encoders.encoder import EmbeddingLayer
from graphlog.encoders.novelty import fit_novelty
from graphlog.errors import ConfigError, DataError, check_list, check_name, check_seeds, setting
from graphlog.files import write_json, write_text, writing
from graphlog.inputs import InputLike, remember_input, resolve
from graphlog.training.log import Progress, as_progress
from graphlog.training.runfolder import RunFolder, check_usable, versions
from graphlog.training.settings import Precision

BASELINES = ("random", "ecfp-rf", "ecfp-lr")
USUAL_BASELINES = ("random", "ecfp-lr")
"""Those that take seconds: one untrained network, and a linear model of fingerprints."""
EMBEDDING, UNTRAINED = "frozen encoder", "untrained encoder"
COUNTS_TITLE = "ECFP4 counts"
HEADS = ("auto", "linear", "kernel")
"""What is fitted to embeddings; ``auto`` is the better of the two on the validation set."""
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
    c: float | None = None,
    grid: Sequence[float] = GRID,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    device: str = "cpu",
    engine: str = "local",
    **labeling: Any,
) -> Report:
    """Fit models to the frozen embeddings of a labeled data set and score them on its test set.

    Linear: logistic regression for classification, ridge for regression, on features standardized
    over the training set. Each representation has two rows: with the fixed ``c``, and with the
    value of ``grid`` that has the best mean validation score. Kernel: one row per representation,
    see :func:`~graphlog.downstream.kernel.fit_kernel`; the kernel compares molecules by their
    embeddings, with the additional features, and by their ECFP4 counts.

    Args:
        encoder: As for :func:`graphlog.finetune`.
        dataset: As for :func:`graphlog.finetune`.
        split: As for :func:`graphlog.finetune`.
        targets: As for :func:`graphlog.finetune`.
        head: ``linear``, ``kernel``, or ``auto``: both, of which the better on the validation set
            comes first (by cross-validation of the training set where there is none).
        layer: See :meth:`Encoder.head_layer`.
        with_features: Features that need no learning, as for :meth:`Encoder.embed`. The linear
            models of the embeddings and of each of them are averaged, logits for classification
            and values for regression: the first row, with its parts below. A kernel model uses
            them together.
        baselines: Rows to compare with: ``random``, ``ecfp-rf``, ``ecfp-lr``; of proteins,
            statistics of the ego-networks take the fingerprints' place.
        baseline_seeds: Of untrained encoders and forests (default: 0, or those of ``folds_seeds``).
        folds_seeds: Draw a split for each of these seeds, and score everything on each: rows
            then have one value per split, and differences from the first row are paired.
            Molecules are split by ``random-scaffold`` if no split is named. None: one split.
        c: The fixed inverse penalty of linear models (default: 0.1); ridge has ``alpha = 1 / c``.
        grid: The inverse penalties to choose from.
        precision: Of the encoder's matrix products.
        progress: Follows the batches.
        run_dir: Folder to keep the chosen models in, as a predictor, whose row then comes first;
            None keeps none. Of several splits they are fitted again, to all labeled graphs, linear
            ones with the C of the best mean validation score; intervals and calibration come from
            the validation sets of all splits.
        overwrite: Replace the run in ``run_dir``.
        device: Where to load an encoder that is named: ``auto``, ``cpu`` or ``cuda``.
        engine: What reads and embeds, ``local`` or ``ray``: see
            :func:`graphlog.data.workers.using`. Models are fitted here.
        labeling: Passed to ``open_labeled`` (``task``, ``smiles_column``, ...).

    Raises:
        ConfigError: If a name is unknown, ``run_dir`` is not free, splits cannot be drawn again, or
            a linear model is asked to weigh graphs, or an inverse penalty is not above 0.
        DataError: If nothing can be learned that is to be kept.
    """
    check_baselines(baselines)
    if baseline_seeds is not None and (folds_seeds is not None or not baselines):
        why = "there are no baselines" if not baselines else "each split has its own"
        raise ConfigError(
            f"{setting('baseline_seeds')} changes nothing, since {why}; drop it.",
            option="baseline_seeds",
        )
    baseline_seeds = check_seeds(
        "baseline_seeds", [0] if baseline_seeds is None else baseline_seeds
    )
    if folds_seeds is not None:
        folds_seeds = check_seeds("folds_seeds", folds_seeds, 2)
    check_name("head", head, HEADS)
    if c is not None and head == "kernel":
        raise ConfigError(
            f"{setting('c')} is for linear models; drop it, or choose another {setting('head')}.",
            option="c",
        )
    c = FIXED_C if c is None else c
    check_penalties("c", c)
    check_penalties("grid", grid, is_list=True)
    path, bar = None if run_dir is None else Path(run_dir), as_progress(progress)
    if path is not None:  # before the input is read, which may take long
        check_usable(path, "probe", None, overwrite, encoder)
    elif overwrite:
        raise ConfigError(
            f"{setting('overwrite')} replaces a run; name its folder with {setting('run_dir')}.",
            option="overwrite",
        )
    encoder, source = opened(encoder, dataset, device_for(engine, device))
    encoder = encoder.with_readout()
    layer = encoder.head_layer(layer)
    if folds_seeds is not None and split is None and isinstance(source, Input):
        split = domain_of(encoder.schema).shuffled_split
    labeling |= {"split": split, "targets": targets}
    with using(engine, encoder.device.type), ExitStack() as stack:
        data = labeled(source, encoder.schema, **labeling)
        _check_weights(data, head)
        domain_of(data.store.schema).check_feature_sets(with_features)
        splits = [data] if folds_seeds is None else in_other_folds(data, folds_seeds)
        if folds_seeds is None and (path is not None or head != "linear"):
            check_learnable(data)
        folder = None
        if path is not None:
            run = RunFolder.open(path, "probe", resume=None, overwrite=overwrite)
            folder = stack.enter_context(closing(run))
        embeddings = encoder.embed_store(data.store, layer, precision=precision, progress=bar)
        with bar.shown(0, "computing fingerprints and other features"):
            domain = domain_of(data.store.schema)
            parts = {"": BaselineFeatures(EMBEDDING, embeddings)}
            parts |= {name: domain.feature_set(name, data.store) for name in with_features}
            # the baseline is the first of the features that can be joined
            usual = parts.get(next(iter(domain.feature_sets), "none"))
            known, notes = _fingerprints(data, baselines, usual)
            counts, lacking = (None, []) if head == "linear" else _substructures(data, parts)
            notes += lacking
            notes += _fitting_notes(data, head, c)
        heads = [model for model in (Model.LINEAR, Model.KERNEL) if head in (model.value, "auto")]
        seeds = [baseline_seeds] if folds_seeds is None else [[seed] for seed in folds_seeds]
        reports, each = list[Report](), list[dict[RowKey, _Candidate]]()
        with bar.shown(0, "fitting models"):
            for own, drawn in zip(splits, seeds, strict=True):
                fits = _Fits(own, c, grid, counts)
                networks = (
                    untrained_like(encoder, own.train_graphs, seed, layer)
                    for seed in (drawn if "random" in baselines else ())
                )
                untrained = [
                    {"": BaselineFeatures(UNTRAINED, n.embed_store(own.store, precision=precision))}
                    for n in networks
                ]
                rows, candidates = fits.table(heads, parts, untrained, known, drawn)
                said = [*notes, *(fits.kernel(parts)[0].notes if Model.KERNEL in heads else ())]
                said += [statistics_note(encoder)] if untrained else []
                reports.append(make_report(own, rows, [*said, *own.repeat_notes]))
                each.append(candidates)
        merits = {k: mean_over_tasks(np.array([found[k].merit for found in each])) for k in each[0]}
        first = _best(data.criterion, next(iter(merits)), merits)
        report, found = reports[0], [candidates[first] for candidates in each]
        held, predicted = pooled(splits, [of_split.predicted for of_split in found])
        kept = found[0].kept
        if folds_seeds is not None:
            report = report_of_splits(reports, folds_seeds)
            if folder is not None:
                data = replace(data, split_name=report.split)
                data, kept = _refitted(data, parts, first.model, counts, c, found)
                note = f"kept: models fitted to all {len(data.split.train):,} labeled graphs"
                report = replace(report, notes=(*report.notes, note))
        if folder is not None or head != "linear":
            report = report.led_by(first)
        if folder is None:
            return report
        predictor = _predictor(encoder, layer, data, kept, report)
        predictor.info = {"probed_on": data.name, **origin(data, encoder)}
        predictor.novelty = fit_novelty(predictor.members[0].network, data.train_graphs)
        # one graph, and those that repeat it, in the folds of several splits have one number
        kinds = np.concatenate([own.valid_kinds for own in splits])
        _judge(predictor, kept, held, kinds, predicted, head == "auto")
        keep_run(folder, predictor, data, source, labeling)
        # after the model: settings without one would look like a run to be resumed
        describe_run(folder, data, run_tables("probe", data, encoder, predictor.info["probe"]))
        return predictor.report


def opened(
    encoder: str | Path | Encoder, dataset: InputLike | LabeledGraphs, device: str
) -> tuple[Encoder, Input | LabeledGraphs]:
    """Return the encoder, and what it is to learn from: an input, or graphs with their labels."""
    if isinstance(dataset, LabeledGraphs):
        return load(encoder, device=device, source=dataset.store), dataset
    encoder = load(encoder, device=device, source=dataset)
    return encoder, resolve(dataset, encoder.schema)


Kept = KernelModel | Mapping[str, LinearModel]
"""What a predictor is made of: linear models of the embedding, whose name is empty, and of what is
joined to it are averaged."""
Parts = Mapping[str, BaselineFeatures]
"""The embeddings, whose name is empty, and what is joined to them, by its name."""
Scores = Mapping[float, float]
"""The validation score at each inverse penalty."""


def _fingerprints(
    data: LabeledGraphs, baselines: Sequence[str], known: BaselineFeatures | None = None
) -> tuple[dict[Model, BaselineFeatures], list[str]]:
    """Return the features to compare with by what is fitted to them, and what to say of them."""
    domain = domain_of(data.store.schema)
    if not {"ecfp-rf", "ecfp-lr"} & set(baselines):
        return {}, []
    if not domain.feature_sets:
        return {}, [f"no ECFP4 rows: {domain.records} have no fingerprints"]
    try:
        known = known or domain.feature_set(next(iter(domain.feature_sets)), data.store)
    except DataError:
        return {}, ["no ECFP4 rows: the store keeps no SMILES"]
    # no forest grows on quantities
    heads = [Model.FOREST] if "ecfp-rf" in baselines and known.binary else []
    heads += [Model.LINEAR] if "ecfp-lr" in baselines or not known.binary else []
    return dict.fromkeys(heads, known), [known.note] if known.note else []


def _substructures(data: LabeledGraphs, parts: Parts) -> tuple[csr_matrix | None, list[str]]:
    """Return what kernel models compare graphs by beside embeddings, with a note where needed."""
    try:
        counts = domain_of(data.store.schema).feature_counts(data.store)
    except DataError:
        return None, [f"no {COUNTS_TITLE}: the store keeps no SMILES"]
    names = [name for name, known in parts.items() if known.binary]
    if counts is None or not names:
        return counts, []
    return counts, [f"the kernel model uses {COUNTS_TITLE} in place of {names[0]}"]


def _fitting_notes(data: LabeledGraphs, head: str, c: float) -> list[str]:
    alpha = "; ridge regression has alpha = 1 / C" if data.task == "regression" else ""
    known = f"C: inverse penalty of linear models, fixed ({c:g}) or the best on the validation set"
    weighed = "only kernel models use weights; scores and other rows do not"
    notes = [weighed] if data.weights is not None else []
    return notes if head == "kernel" else [*notes, f"{known} (C by validation){alpha}"]


class _Candidate(NamedTuple):
    """Models that may be kept."""

    merit: float
    """What heads are compared by."""
    predicted: Predicted
    """Of every graph but those of the training set."""
    kept: Kept
    validation: Mapping[str, Scores] = {}
    """Of linear models."""


def _refitted(
    data: LabeledGraphs,
    parts: Parts,
    model: Model,
    counts: csr_matrix | None,
    fixed: float,
    found: Sequence[_Candidate],
) -> tuple[LabeledGraphs, Kept]:
    """Return all labeled graphs as a training set, and models that are fitted to them.

    The C of each linear model is the one with the best mean validation score over splits.
    """
    known = np.arange(len(data.labels))
    whole = replace(data, split=Split(known, known[:0], known[:0]))
    if model is Model.KERNEL:
        return whole, _Fits(whole, counts=counts).kernel(parts)[0].model
    models: dict[str, LinearModel] = {}
    for name, features in parts.items():
        scores = [of_split.validation[name] for of_split in found]
        means = {c: mean_over_tasks(np.array([s[c] for s in scores])) for c in scores[0]}
        c = _best(data.criterion, fixed, means)
        models[name] = _Fits(whole, c, [c]).linear(features).models[c]
    return whole, models


class _LinearFits(NamedTuple):
    """The linear models of one representation at each inverse penalty."""

    path: dict[float, Float[np.ndarray, "M T"]]
    """Predictions for every graph."""
    models: dict[float, LinearModel]
    validation: Scores
    best: float
    """The penalty with the best validation score; the fixed one where there is none."""


class _Fits:
    """Models on one labeled set, each representation fitted once, and the rows of their scores."""

    def __init__(
        self,
        data: LabeledGraphs,
        c: float = FIXED_C,
        grid: Sequence[float] = GRID,
        counts: csr_matrix | None = None,
    ) -> None:
        """Fit linear models at ``c`` and all of ``grid``; kernels see counts, not fingerprints."""
        self.data, self.c, self.grid, self.counts = data, c, grid, counts
        self._linear = dict[BaselineFeatures, _LinearFits]()
        self._kernel = dict[tuple[BaselineFeatures, ...], tuple[KernelFit, Predicted]]()

    def linear(self, known: BaselineFeatures) -> _LinearFits:
        """Fit the training set and predict every graph, at each inverse penalty."""
        if known not in self._linear:
            data = self.data
            scaling, x = _scaled(known, data.split.train)
            grid = sorted({self.c, *self.grid})
            fits = linear_fits(x, data.labels, data.split.train, data.task, grid)
            path = {c: linear_predictions(x, fit, data.task) for c, fit in fits.items()}
            scores = {c: data.score(p, "valid") for c, p in path.items()}
            models = {c: fit._replace(scaling=scaling, c=c) for c, fit in fits.items()}
            best = _best(data.criterion, self.c, scores)
            self._linear[known] = _LinearFits(path, models, scores, best)
        return self._linear[known]

    def kernel(self, parts: Parts) -> tuple[KernelFit, Predicted]:
        """Fit the training set and predict the other two; training rows are NaN."""
        seen = tuple(parts.values())
        if seen not in self._kernel:
            data, counts = self.data, self.counts
            blocks = {
                name: csr_matrix(known.values) if known.binary else known.values
                for name, known in parts.items()
                if counts is None or not known.binary
            }
            blocks |= {} if counts is None else {COUNTS: counts}
            known = data.labels, data.split.train, data.task, data.weights
            fit = fit_kernel(blocks, *known, repeat_kinds(data.store))
            rows = np.concatenate([data.split.valid, data.split.test])
            found = fit.model.predict([values[rows] for values in blocks.values()])
            mean, std = np.full((2, *data.labels.shape), np.nan)
            mean[rows] = found.mean
            if found.std is not None:
                std[rows] = found.std
            self._kernel[seen] = fit, Predicted(mean, None if found.std is None else std)
        return self._kernel[seen]

    def table(
        self,
        heads: Sequence[Model],
        parts: Parts,
        untrained: Sequence[Parts],
        fingerprints: Mapping[Model, BaselineFeatures],
        seeds: Sequence[int],
    ) -> tuple[list[ScoreRow], dict[RowKey, _Candidate]]:
        """Return the rows of a report, and by its row what may be kept.

        ``fingerprints`` are compared with, by what is fitted to them.
        """
        rows, candidates = list[ScoreRow](), dict[RowKey, _Candidate]()
        compared = fingerprints.get(Model.LINEAR)
        _, *names = parts
        for model in heads:
            rows += self.rows(model, Source.EMBEDDING, [parts], tuple(names))
            key = rows[-1].key
            assert key is not None, "rows of a probe have keys"
            candidates[key] = self._candidate(model, parts, len(heads) > 1)
            if model is Model.LINEAR and names:  # the parts, each alone
                rows += self.rows(model, Source.EMBEDDING, [{"": parts[""]}])
                for name in names:
                    rows += self.rows(model, Source.FEATURES, [{"": parts[name]}], (name,))
            if untrained:
                rows += self.rows(model, Source.UNTRAINED, untrained)
            is_joined = any(known is compared for known in parts.values())
            if compared and (model is Model.KERNEL or not is_joined):
                rows += self.rows(model, Source.FEATURES, [{"": compared}])
        if known := fingerprints.get(Model.FOREST):
            rows += self.rows(Model.FOREST, Source.FEATURES, [{"": known}], seeds=seeds)
        return rows, candidates

    def _candidate(self, model: Model, parts: Parts, is_compared: bool) -> _Candidate:
        """Return the models of the embedding and what is joined to it.

        Heads are compared by validation scores; by cross-validation where these are undefined.
        """
        data, validation, held_out = self.data, dict[str, Scores](), None
        if model is Model.KERNEL:
            fit, predicted = self.kernel(parts)
            kept, held_out = fit.model, fit.held_out
        else:
            found = {name: self.linear(known) for name, known in parts.items()}
            means = [fit.path[fit.best] for fit in found.values()]
            predicted = Predicted(fuse(means, data.task), None)
            kept = {name: fit.models[fit.best] for name, fit in found.items()}
            validation = {name: fit.validation for name, fit in found.items()}
        merit = data.score(predicted.mean, "valid")
        if math.isnan(merit) and is_compared:
            if held_out is None:
                held_out = _held_out(data, parts, [self.c])[self.c]
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
        """Return the rows of one kind of model; of a linear one at the fixed and the chosen C.

        ``each`` is what the models see, once or for every untrained network; ``seeds`` are those of
        trees.
        """
        data, names = self.data, [known.name for known in each[0].values()]
        key = RowKey(source, features, model)
        match model:
            case Model.LINEAR:
                fits = [[self.linear(known) for known in parts.values()] for parts in each]
                fixed = [fuse([fit.path[self.c] for fit in own], data.task) for own in fits]
                chosen = [fuse([fit.path[fit.best] for fit in own], data.task) for own in fits]
                best = [fit.best for own in fits for fit in own]
                kind = "ridge" if data.task == "regression" else "logistic"
                names += [f"{kind} regression"] if source is Source.FEATURES else []
                found = [
                    (Rule.FIXED, f"C = {self.c:g}", fixed, {"c": self.c}),
                    (Rule.VALIDATION, "C by validation", chosen, {"c": best}),
                ]
            case Model.KERNEL:
                predictions = [self.kernel(parts)[1].mean for parts in each]
                if self.counts is not None:
                    seen = [known.name for known in each[0].values() if not known.binary]
                    names = [*seen, COUNTS_TITLE]
                own = self.kernel(each[0])[0].model.settings_by_name()
                detail = own if source is Source.EMBEDDING else {}
                found = [(Rule.FOLDS, KERNEL_RULE, predictions, detail)]
            case _:
                is_forest = model is Model.FOREST
                names.append("random forest" if is_forest else "boosted trees")
                drawn, how, detail = seeds, "100 rounds", {}
                if is_forest:
                    # a forest a target: hundreds of them take minutes a seed
                    is_large = len(data.targets) > MANY_TASKS
                    trees, drawn = (TREES_MANY_TASKS, seeds[:1]) if is_large else (TREES, seeds)
                    how, detail = f"{trees} trees", {"seeds": list(drawn)}
                values = next(iter(each[0].values())).values
                known = values, data.labels, data.split.train, data.task
                predictions = [
                    tree_predictions(*known, seed, boosted=not is_forest) for seed in drawn
                ]
                found = [(Rule.FIXED, how, predictions, detail)]
        title = " + ".join(names)
        return [
            score_row(title, how, data, predictions, detail, replace(key, rule=rule))
            for rule, how, predictions, detail in found
        ]


def _scaled(known: BaselineFeatures, train: np.ndarray) -> tuple[Scaling | None, Features]:
    """Return what linear models see of features, and how these are standardized, if they are."""
    if known.binary:
        return None, sparse_bits(known.values)
    scaling = Scaling.of(known.values[train])
    return scaling, scaling(known.values)


def _held_out(
    data: LabeledGraphs, parts: Parts, grid: Sequence[float]
) -> dict[float, Float[np.ndarray, "M T"]]:
    """Return what linear models, averaged over parts, predict of fifths that they have not seen."""
    train = data.split.train
    known = data.labels, train, data.task, grid, repeat_kinds(data.store)
    paths = [held_out_path(_scaled(part, train)[1], *known) for part in parts.values()]
    return {c: fuse([path[c] for path in paths], data.task) for c in grid}


def _best(metric: str, usual: K, scores: Mapping[K, float]) -> K:
    """Return the first key of the best score; the usual one where no score is defined."""
    best, highest = usual, math.nan
    for key, score in scores.items():
        if better(metric, score, highest):
            best, highest = key, score
    return best


class FittedKernel(NamedTuple):
    """A kernel model of frozen embeddings."""

    predictor: Predictor
    predicted: Float[np.ndarray, "M T"]
    """Of every graph but those of the training set."""
    notes: list[str]


def kernel_predictor(
    encoder: Encoder, data: LabeledGraphs, with_features: Sequence[str] = ()
) -> FittedKernel:
    """Fit a kernel model to the training set."""
    layer, domain = encoder.head_layer(), domain_of(data.store.schema)
    parts = {"": BaselineFeatures(EMBEDDING, encoder.embed_store(data.store, layer))}
    parts |= {name: domain.feature_set(name, data.store) for name in with_features}
    counts, notes = _substructures(data, parts)
    fit, predicted = _Fits(data, counts=counts).kernel(parts)
    predictor = _predictor(encoder, layer, data, fit.model, make_report(data, ()))
    return FittedKernel(predictor, predicted.mean, [*notes, *fit.notes])


def check_baselines(names: Sequence[str], known: Sequence[str] = BASELINES) -> None:
    """Refuse a baseline of unknown name, before any work."""
    check_list("baselines", names)
    for name in names:
        check_name("baseline", name, known)


def ecfp_rows(
    data: LabeledGraphs, baselines: Sequence[str], seeds: Sequence[int]
) -> tuple[list[ScoreRow], list[str]]:
    """Return the rows of fingerprints asked for, and a note where there are none."""
    found, notes = _fingerprints(data, baselines)
    rows = [r for head, known in found.items() for r in feature_rows(data, known, [head], seeds)]
    return rows, notes


def feature_rows(
    data: LabeledGraphs,
    known: BaselineFeatures,
    heads: Sequence[Model],
    seeds: Sequence[int] = (0,),
    counts: csr_matrix | None = None,
) -> list[ScoreRow]:
    """Return the rows of models of features that need no learning here.

    ``seeds`` are those of trees; a kernel compares graphs by ``counts`` in place of 0 and 1.
    """
    fits, parts = _Fits(data, counts=counts), {"": known}
    return [row for head in heads for row in fits.rows(head, Source.FEATURES, [parts], seeds=seeds)]


def in_other_folds(data: LabeledGraphs, seeds: Sequence[int]) -> list[LabeledGraphs]:
    """Return the same graphs in the folds of each seed.

    Raises:
        ConfigError: If the test set does not depend on them.
    """
    draw = data.draw
    drawn = [] if draw is None else [draw(data.store, data.labels, s) for s in seeds]
    if not drawn or all(np.array_equal(drawn[0][0].test, sets.test) for sets, _ in drawn[1:]):
        raise ConfigError(
            f"the {data.split_name} split has the same test set with every seed; choose one that "
            f"shuffles with {setting('split')}, such as random-scaffold (molecules) or random.",
            option="split",
        )
    return [replace(data, split=folds, split_name=name) for folds, name in drawn]


def pooled(
    splits: Sequence[LabeledGraphs], each: Sequence[Predicted]
) -> tuple[LabeledGraphs, Predicted]:
    """Return the validation and the test sets of all splits as two folds of as many graphs.

    A target that the training set of a split could not teach has no label there.
    """
    folds = [
        (data, found, data.split[fold])
        for fold in (1, 2)
        for data, found in zip(splits, each, strict=True)
    ]
    mean = np.concatenate([found.mean[graphs] for _, found, graphs in folds])
    stds = [found.std[graphs] for _, found, graphs in folds if found.std is not None]
    labels = np.concatenate([data.judgeable[graphs] for data, _, graphs in folds])
    rows, known = np.arange(len(mean)), sum(len(data.split.valid) for data in splits)
    split = Split(rows[:0], rows[:known], rows[known:])
    held = replace(splits[0], labels=labels, split=split)
    return held, Predicted(mean, np.concatenate(stds) if stds else None)


def _predictor(
    encoder: Encoder, layer: EmbeddingLayer, data: LabeledGraphs, kept: Kept, report: Report
) -> Predictor:
    """Return what predicts by a kernel model, or by the average of linear models."""
    network = encoder.copy().network.eval()
    if isinstance(kept, KernelModel):
        targets = len(kept.shift)
        # a head that predicts 0: the kernel model stands in its place
        none = LinearModel(np.zeros((encoder.width(layer), targets)), np.zeros(targets))
        head = Head.of_probe(none, data.task)
        head.target_shift.copy_(torch.from_numpy(kept.shift))
        head.target_scale.copy_(torch.from_numpy(kept.scale))
        return Predictor([FineTuned(network, head, layer)], data.targets, report, kernel=kept)
    joined = {name: Head.of_probe(model, data.task) for name, model in kept.items()}
    member = FineTuned(network, joined.pop(""), layer)
    return Predictor([member], data.targets, report, joined=joined)


def _judge(
    predictor: Predictor,
    kept: Kept,
    data: LabeledGraphs,
    kinds: Int[np.ndarray, "V"],
    predicted: Predicted,
    is_best: bool,
) -> None:
    """Calibrate a predictor by folds it has not seen; complete its report and its file.

    ``is_best`` says that it is the best of several kinds of models.
    """
    layer, report = predictor.members[0].layer, predictor.report
    if isinstance(kept, KernelModel):
        settings = {"layer": layer, "head": "kernel", **kept.settings_by_name()}
    else:
        penalties = {name or "embedding": model.c for name, model in kept.items()}
        settings = {"layer": layer, "head": "linear", "with": predictor.features, "c": penalties}
    valid = data.split.valid
    own = data.labels[valid], predicted.mean[valid], kinds
    predictor.calibration = Calibration.fit(data.task, *own)
    judged = predictor.calibration.rows(data, *predicted)
    is_chosen = math.isfinite(report.rows[0].mean(data.metric, "valid"))
    parts = ["the kind of model"] * is_best + ["C"] * (predictor.kernel is None)
    chosen = " and ".join(parts) if is_chosen and parts else None
    notes = calibration_notes(judged, report.split, chosen, report.splits > 1, data.records)
    predictor.report = replace(report, notes=(*report.notes, *notes), calibration=judged)
    predictor.info["probe"] = settings


def _check_weights(data: LabeledGraphs, head: str) -> None:
    if data.weights is not None and head != "kernel":
        raise ConfigError(
            f"weights need {setting('head', 'kernel')}, or fine-tuning.", option="head"
        )


def fit_head(
    encoder: Encoder, data: LabeledGraphs, head: str, layer: str | None = None
) -> Predictor:
    """Return a predictor of the training set alone, nothing scored: for scikit-learn.

    Penalties, and the head if it is ``auto``, are chosen by cross-validation.

    Raises:
        ConfigError: If the head is unknown, or a linear model is asked to weigh molecules.
    """
    check_name("head", head, HEADS)
    _check_weights(data, head)
    layer = encoder.head_layer(layer)
    parts = {"": BaselineFeatures(EMBEDDING, encoder.embed_store(data.store, layer))}
    found: dict[Model | float, float] = {}
    counts, notes = (None, []) if head == "linear" else _substructures(data, parts)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    fits = _Fits(data, counts=counts)
    if head != "linear":
        found[Model.KERNEL] = data.score(fits.kernel(parts)[0].held_out, "train")
    if head != "kernel":
        found |= {c: data.score(p, "train") for c, p in _held_out(data, parts, GRID).items()}
    best = _best(data.criterion, Model.KERNEL if Model.KERNEL in found else FIXED_C, found)
    if isinstance(best, Model):
        kept: Kept = fits.kernel(parts)[0].model
    else:
        kept = {"": _Fits(data, best, [best]).linear(parts[""]).models[best]}
    return _predictor(encoder, layer, data, kept, make_report(data, ()))


def run_tables(
    kind: str, data: LabeledGraphs, encoder: Encoder, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what ``config.toml`` holds of a run, whose ``kind`` is ``finetune`` or ``probe``."""
    known = ("objective", "recipe", "name")
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
            **{k: encoder.info[k] for k in known if k in encoder.info},
        },
        kind: dict(settings),
    }


def describe_run(folder: RunFolder, data: LabeledGraphs, tables: Mapping[str, Any]) -> None:
    """Write settings, versions and split of a run."""
    with writing(folder.path):
        write_json(folder.versions, versions(data.digest))
        input_rows = data.store.output_rows if data.rows is None else data.rows
        rows = Split(*(input_rows[part] for part in data.split))
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
    """Write scores, model and rejected rows; ``advice`` is what to do if there is no room."""
    with writing(folder.path, advice):
        write_json(folder.path / "scores.json", predictor.report.to_dict())
        predictor.save(folder.model)
        save_rejects(folder.path, data.rejects, folder.path.absolute().name)
    if isinstance(source, Input):
        remember_input(folder.path, source, **labeling)


def origin(data: LabeledGraphs, encoder: Encoder) -> dict[str, Any]:
    """Return what a predictor's file says about its labels and its encoder."""
    source, domain, repeats = data.store.source, domain_of(data.store.schema), data.valid_repeats
    known: dict[str, Any] = {
        "smiles_column": source.smiles_column,
        "standardize": source.standardize,
        "cutting": domain.cutting_of(data.store) or encoder.info.get("cutting"),
        "valid_repeats": repeats if repeats and repeats[0] else None,
        # of more than two classes each is a target, which has its word in its name
        "classes": {
            target: dict(zip("01", words, strict=True))
            for target, words in source.classes.items()
            if data.task == "classification" and target in data.targets and len(words) == 2
        },
    }
    return {
        "data_digest": data.digest,
        "pretrained": {k: v for k, v in encoder.info.items() if k != "embedding"},
        **{name: value for name, value in known.items() if value},
    }
