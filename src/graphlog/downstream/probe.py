"""Linear probes of frozen embeddings, beside fingerprints and the untrained encoder."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from graphlog.data.split import Split, group_numbers
from graphlog.domains import domain_of
from graphlog.domains.base import BaselineFeatures
from graphlog.downstream.encoder import Encoder, ReadoutChoice
from graphlog.downstream.joined import LinearModel
from graphlog.downstream.linear import (
    FIXED_C,
    GRID,
    MANY_TASKS,
    TREES,
    TREES_MANY_TASKS,
    LinearFit,
    Scaling,
    forest_predictions,
    fuse,
    linear_fits,
    linear_path,
    linear_predictions,
    sparse_bits,
    standardize,
)
from graphlog.downstream.metrics import better, evaluate, mean_over_tasks
from graphlog.downstream.models import statistics_note, untrained_like
from graphlog.downstream.probe_run import Held, opened, probe_predictor, save_probe
from graphlog.downstream.report import Report, ScoreRow, make_report, score_row
from graphlog.downstream.splits import in_other_folds, pooled, report_of_splits
from graphlog.downstream.tasks import LabeledGraphs, check_learnable, open_labeled
from graphlog.errors import DataError, check_name
from graphlog.inputs import InputLike
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

ByC = dict[float, np.ndarray]
"""Predictions of a linear model for every graph, at each C."""
Baseline = Literal["random", "ecfp-rf", "ecfp-lr"]
BASELINES: tuple[Baseline, ...] = ("random", "ecfp-rf", "ecfp-lr")


def probe(
    encoder: Encoder,
    source: InputLike | LabeledGraphs,
    *,
    layer: str | None = None,
    readout: ReadoutChoice = "auto",
    with_features: Sequence[str] = (),
    baselines: Sequence[str] = BASELINES,
    seeds: Sequence[int] = (0, 1, 2),
    c: float = FIXED_C,
    grid: Sequence[float] = GRID,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    jobs: int | None = -1,
    resplit: bool = False,
    run_dir: Path | None = None,
    overwrite: bool = False,
    **labeling: Any,
) -> Report:
    """Fit linear models to the frozen embeddings of a labeled set and score them on its folds.

    Logistic regression for classification, ridge for regression, on features standardized over the
    training fold. Each representation has two rows: at the fixed ``c``, and at the value of
    ``grid`` with the best mean validation score.

    Args:
        encoder: What is scored.
        source: Labeled input, or what :func:`~graphlog.downstream.tasks.open_labeled` returned.
        layer: ``jk`` or ``last``; None takes the model's own.
        readout: See :meth:`Encoder.with_readout`.
        with_features: Features that need no learning, as for :meth:`Encoder.embed`. The linear
            models of the embeddings and of each of them are averaged, logits for classification
            and values for regression: the first row, with its parts below.
        baselines: Rows to set beside it: ``random``, ``ecfp-rf``, ``ecfp-lr``; of proteins,
            statistics of the ego-networks take the fingerprints' place.
        seeds: Of what is random: untrained encoders and forests, and folds if drawn again.
        c: The fixed inverse penalty.
        grid: The inverse penalties to choose from.
        precision: Of the encoder's matrix products.
        progress: Follows the batches.
        jobs: Targets fitted at once; -1 is one per core.
        resplit: Draw the folds once a seed, and score everything on each: rows then have a value a
            split, and differences from the first row are paired. Molecules are split by
            ``random-scaffold`` if no split is named.
        run_dir: Folder to keep the models of "C by validation" in, as a predictor, whose row then
            comes first; None keeps none. With ``resplit`` they are fitted again, to all labeled
            graphs, with the C of the best mean validation score; intervals and calibration come
            from the validation folds of all splits.
        overwrite: Replace the run in ``run_dir``.
        labeling: Passed to ``open_labeled`` (``targets``, ``task``, ``split``, ...).

    Raises:
        ConfigError: If a name is unknown, ``run_dir`` is not free, or folds cannot be drawn again.
        DataError: If nothing can be learned that is to be kept.
    """
    check_baselines(baselines)
    encoder, seeds = encoder.with_readout(readout), list(seeds)
    if resplit and not isinstance(source, LabeledGraphs) and labeling.get("split") is None:
        labeling["split"] = domain_of(encoder.schema).shuffled_split
    data = open_labeled(source, encoder.schema, **labeling)
    domain = domain_of(data.store.schema)
    domain.check_feature_sets(with_features)
    splits = in_other_folds(data, seeds) if resplit else [data]
    if run_dir is not None and not resplit:
        check_learnable(data)
    with opened(run_dir, overwrite) as folder:
        embeddings = encoder.embed_store(data.store, layer, precision=precision, progress=progress)
        features = {name: domain.feature_set(name, data.store) for name in with_features}
        work = _Probe(encoder, layer, precision, embeddings, features, baselines, c, grid, jobs)
        if resplit:
            each = [work.on_split(d, seed) for d, seed in zip(splits, seeds, strict=True)]
            report = report_of_splits([found.report for found in each], seeds)
            if folder is None:
                return report
            held = pooled(splits, [found.held for found in each])
            data, models = work.refitted(replace(data, split_name=report.split), each)
            notes = (*report.notes, f"kept: models of all {len(data.split.train):,} labeled graphs")
            report = replace(report, notes=notes)
        else:
            rows, notes, linear, parts = work.scored(data, seeds)
            report = make_report(data, rows, notes)
            if folder is None:
                return report
            models, values = linear.chosen(parts)
            held = Held(data, values)
        first = (report.rows[1], report.rows[0])  # what is kept comes first
        report = replace(report, rows=(*first, *report.rows[2:]))
        predictor = probe_predictor(encoder, layer, data, models, held, report)
        save_probe(folder, predictor, data, encoder)
        return predictor.report


class _Scored(NamedTuple):
    """What one split gave."""

    rows: list[ScoreRow]
    notes: list[str]
    models: "_LinearModels"
    parts: list["_Part"]
    """What the first rows are of."""


class _OfSplit(NamedTuple):
    """What one of several splits gave, without its models."""

    report: Report
    validation: list[dict[float, float]]
    """The validation score of each part at each C."""
    held: np.ndarray
    """Predictions of the validation and the test fold, averaged over parts, C by validation."""


@dataclass(frozen=True, slots=True, eq=False)
class _Probe:
    """What is scored beside what, on any folds of the same graphs."""

    encoder: Encoder
    layer: str | None
    precision: Precision
    embeddings: Float[np.ndarray, "M W"]
    features: Mapping[str, BaselineFeatures]
    """What is joined, by its name in the domain."""
    baselines: Sequence[str]
    c: float
    grid: Sequence[float]
    jobs: int | None

    def scored(self, data: LabeledGraphs, seeds: Sequence[int]) -> _Scored:
        """Return the scores on the folds of ``data``."""
        models = _LinearModels(data, self.c, sorted({self.c, *self.grid}), self.jobs)
        parts = [_Part("frozen encoder", "", models.fit(self.embeddings))]
        for name, known in self.features.items():
            parts.append(_Part(known.name, name, models.fit(known.values, known.binary)))
        rows = models.fused_rows(parts)
        if "random" in self.baselines:
            untrained = [
                _untrained(self.encoder, data, self.layer, seed, self.precision) for seed in seeds
            ]
            rows += models.rows("untrained encoder", [models.fit(x).path for x in untrained])
        extra, notes = ecfp_rows(data, self.baselines, seeds, self.c, models.grid, self.jobs)
        notes += [statistics_note(self.encoder)] if "random" in self.baselines else []
        there = {(row.model, row.rule) for row in rows}
        rows += [row for row in extra if (row.model, row.rule) not in there]
        return _Scored(rows, [*notes, *data.repeat_notes], models, parts)

    def on_split(self, data: LabeledGraphs, seed: int) -> _OfSplit:
        """Return the scores on one of several splits."""
        rows, notes, models, parts = self.scored(data, [seed])
        held = np.concatenate([data.split.valid, data.split.test])
        scores = [models.validation(part.fitted.path) for part in parts]
        return _OfSplit(make_report(data, rows, notes), scores, models.chosen(parts)[1][held])

    def refitted(
        self, data: LabeledGraphs, found: Sequence[_OfSplit]
    ) -> tuple[LabeledGraphs, list[LinearModel]]:
        """Return all labeled graphs as a training fold, and models that are fitted to them.

        The C of each part is the one with the best mean validation score over splits.
        """
        known = np.flatnonzero(np.isfinite(data.labels).any(axis=1))
        whole = replace(data, split=Split(known, known[:0], known[:0]))
        inputs = [("", self.embeddings, False)]
        inputs += [(name, known.values, known.binary) for name, known in self.features.items()]
        models: list[LinearModel] = []
        for part, (name, values, binary) in enumerate(inputs):
            scores = [of_split.validation[part] for of_split in found]
            means = {c: mean_over_tasks(np.array([s[c] for s in scores])) for c in scores[0]}
            c = _best_c(data.metric, self.c, means)
            fitted = _LinearModels(whole, c, [c], self.jobs).fit(values, binary)
            models.append(LinearModel(name, fitted.fits[c], fitted.scaling, c))
        return whole, models


class _Fitted(NamedTuple):
    """The linear models of one representation, at each inverse penalty."""

    path: ByC
    fits: dict[float, LinearFit]
    scaling: Scaling | None
    """None for features of 0 and 1, which stay as they are."""


class _Part(NamedTuple):
    """What is averaged: the embedding, or features that need no learning."""

    title: str
    features: str
    """Name of the features in the domain; empty for the embedding."""
    fitted: _Fitted


@dataclass(frozen=True, slots=True, eq=False)
class _LinearModels:
    """Linear models on the features of one labeled set."""

    data: LabeledGraphs
    c: float
    """The fixed inverse penalty."""
    grid: Sequence[float]
    """All inverse penalties, the fixed one among them."""
    jobs: int | None
    """Targets fitted at once."""

    def fit(self, values: Num[np.ndarray, "M F"], binary: bool = False) -> _Fitted:
        """Fit the training fold and predict every graph, at each inverse penalty."""
        data = self.data
        scaling = None if binary else Scaling.of(values[data.split.train])
        x = sparse_bits(values) if scaling is None else scaling(values)
        fits = linear_fits(x, data.labels, data.split.train, data.task, self.grid, self.jobs)
        path = {c: linear_predictions(x, fit, data.task) for c, fit in fits.items()}
        return _Fitted(path, fits, scaling)

    def rows(self, model: str, paths: Sequence[ByC]) -> list[ScoreRow]:
        """Return the rows of models whose predictions are known, one path a seed."""
        chosen = [self.best_c(path) for path in paths]
        picked = [path[c] for path, c in zip(paths, chosen, strict=True)]
        return [
            _row(model, f"C = {self.c:g}", [p[self.c] for p in paths], self.data, {"c": self.c}),
            _row(model, "C by validation", picked, self.data, {"c": chosen}),
        ]

    def fused_rows(self, parts: Sequence[_Part]) -> list[ScoreRow]:
        """Return the rows of the averaged models, those of the encoder, and those of features."""
        data, paths = self.data, [part.fitted.path for part in parts]
        rows: list[ScoreRow] = []
        for part in parts:
            name = linear_name(part.title, data) if part.features else part.title
            rows += self.rows(name, [part.fitted.path])
        if len(parts) == 1:
            return rows
        name = " + ".join(part.title for part in parts)
        fixed = fuse([path[self.c] for path in paths], data.task)
        kept, picked = self.chosen(parts)
        best = [model.c for model in kept]
        return [
            _row(name, f"C = {self.c:g}", [fixed], data, {"c": self.c}),
            _row(name, "C by validation", [picked], data, {"c": best}),
            *rows,
        ]

    def chosen(self, parts: Sequence[_Part]) -> tuple[list[LinearModel], Float[np.ndarray, "M T"]]:
        """Return each part's model at the C chosen by validation, and their predictions.

        The predictions, of every graph, are averaged over the parts.
        """
        pairs = [(part, self.best_c(part.fitted.path)) for part in parts]
        models = [LinearModel(p.features, p.fitted.fits[c], p.fitted.scaling, c) for p, c in pairs]
        values = [part.fitted.path[c] for part, c in pairs]
        return models, fuse(values, self.data.task) if len(values) > 1 else values[0]

    def best_c(self, path: ByC) -> float:
        """Return the C with the best validation score; the fixed one where there is none."""
        return _best_c(self.data.metric, self.c, self.validation(path))

    def validation(self, path: ByC) -> dict[float, float]:
        """Return the validation score at each C."""
        data, valid = self.data, self.data.split.valid
        found = {c: data.evaluate(p[valid], valid) for c, p in path.items()}
        return {c: scored.scores[data.metric] for c, scored in found.items()}


def _best_c(metric: str, fixed: float, scores: Mapping[float, float]) -> float:
    best, highest = fixed, math.nan
    for c in sorted(scores):
        if better(metric, scores[c], highest):
            best, highest = c, scores[c]
    return best


def cv_probe(
    encoder: Encoder,
    source: InputLike | LabeledGraphs,
    *,
    folds: int = 5,
    layer: str | None = None,
    grid: Sequence[float] = GRID,
    precision: Precision = "fp32",
    jobs: int | None = -1,
    **labeling: Any,
) -> dict[float, float]:
    """Return, for each C, the mean score over scaffold-grouped folds of train and validation.

    For choosing between recipes: test labels are not used.

    Raises:
        DataError: If there are fewer groups of graphs than folds.
    """
    from sklearn.model_selection import GroupKFold  # slow to import

    data = open_labeled(source, encoder.schema, **labeling)
    known = np.concatenate([data.split.train, data.split.valid])
    graphs, labels = data.store.subset(known), data.labels[known]
    features = encoder.embed_store(graphs, layer, precision=precision)
    shared = domain_of(graphs.schema).groups(graphs)
    groups = (
        np.random.default_rng(0).permutation(len(known))
        if shared is None
        else group_numbers(shared)
    )
    if len(np.unique(groups)) < folds:
        raise DataError(
            f"{data.name}: {len(np.unique(groups))} scaffolds are too few for {folds} folds; lower "
            "the number of folds."
        )
    scores: dict[float, list[float]] = {c: [] for c in grid}
    for train, held in GroupKFold(folds).split(features, groups=groups):
        paths = linear_path(standardize(features, train), labels, train, data.task, grid, jobs)
        for c, predictions in paths.items():
            found = evaluate(labels[held], predictions[held], data.task).scores
            scores[c].append(found[data.metric])
    return {c: mean_over_tasks(np.array(values)) for c, values in scores.items()}


def check_baselines(names: Sequence[str]) -> None:
    """Refuse a baseline of unknown name, before any work.

    Raises:
        ConfigError: If there is one; suggests the nearest.
    """
    for name in names:
        check_name("baseline", name, BASELINES)


def ecfp_rows(
    data: LabeledGraphs,
    baselines: Sequence[str],
    seeds: Sequence[int],
    c: float,
    grid: Sequence[float],
    jobs: int | None,
) -> tuple[list[ScoreRow], list[str]]:
    """Return the rows of fingerprints asked for, and a note where there are none."""
    if not {"ecfp-rf", "ecfp-lr"} & set(baselines):
        return [], []
    domain = domain_of(data.store.schema)
    try:
        known = domain.baseline_features(data.store)
    except DataError:
        return [], ["no ECFP4 rows: the store keeps no SMILES"]
    if known is None:
        return [], [f"no ECFP4 rows: {domain.records} have no fingerprints"]
    notes = [known.note] if known.note else []
    models = _LinearModels(data, c, grid, jobs)
    if not known.binary:
        path = models.fit(known.values).path
        return models.rows(linear_name(known.name, data), [path]), notes
    rows: list[ScoreRow] = []
    if "ecfp-rf" in baselines:
        # a forest a target: hundreds of them take minutes a seed
        is_large = len(data.targets) > MANY_TASKS
        trees, grown = (TREES_MANY_TASKS, seeds[:1]) if is_large else (TREES, seeds)
        forests = [
            forest_predictions(known.values, data.labels, data.split.train, data.task, seed, jobs)
            for seed in grown
        ]
        detail = {"seeds": list(grown)}
        rows.append(_row(f"{known.name} + random forest", f"{trees} trees", forests, data, detail))
    if "ecfp-lr" in baselines:
        path = models.fit(known.values, binary=True).path
        rows += models.rows(linear_name(known.name, data), [path])
    return rows, notes


def linear_name(features: str, data: LabeledGraphs) -> str:
    """Return what rows of linear models of features of this name are called."""
    kind = "ridge" if data.task == "regression" else "logistic"
    return f"{features} + {kind} regression"


def _untrained(
    encoder: Encoder, data: LabeledGraphs, layer: str | None, seed: int, precision: Precision
) -> np.ndarray:
    """Return features of the untrained network."""
    graphs = data.store.subset(np.sort(data.split.train))
    untrained = untrained_like(encoder, graphs, seed, layer)
    return untrained.embed_store(data.store, precision=precision)


def _row(
    model: str,
    rule: str,
    predictions: Sequence[np.ndarray],
    data: LabeledGraphs,
    detail: dict[str, Any],
) -> ScoreRow:
    test, valid = ([p[fold] for p in predictions] for fold in (data.split.test, data.split.valid))
    return score_row(model, rule, data, test, valid, detail)
