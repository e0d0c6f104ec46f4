"""Linear probes of frozen embeddings, beside fingerprints and the untrained encoder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.special import expit, softmax

from graphlog.data.split import group_numbers
from graphlog.domains import domain_of
from graphlog.domains.base import BaselineFeatures
from graphlog.downstream.encoder import Encoder, ReadoutChoice
from graphlog.downstream.linear import (
    FIXED_C,
    GRID,
    MANY_TASKS,
    TREES,
    TREES_MANY_TASKS,
    forest_predictions,
    linear_path,
    sparse_bits,
    standardize,
)
from graphlog.downstream.metrics import better, evaluate, mean_over_tasks
from graphlog.downstream.models import untrained_like
from graphlog.downstream.report import Report, ScoreRow, make_report, score_row
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.errors import DataError, check_name
from graphlog.inputs import InputLike
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

Path = dict[float, np.ndarray]
"""Predictions of a linear model for every graph, at each C."""
_LEAST = 1e-9
"""Probability below which a logit is not followed."""
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
        seeds: Of what is random: untrained encoders and forests.
        c: The fixed inverse penalty.
        grid: The inverse penalties to choose from.
        precision: Of the encoder's matrix products.
        progress: Follows the batches.
        jobs: Targets fitted at once; -1 is one per core.
        labeling: Passed to ``open_labeled`` (``targets``, ``task``, ``split``, ...).
    """
    check_baselines(baselines)
    encoder = encoder.with_readout(readout)
    data = open_labeled(source, encoder.schema, **labeling)
    domain_of(data.store.schema).check_feature_sets(with_features)
    models = _LinearModels(data, c, sorted({c, *grid}), jobs)
    embeddings = encoder.embed_store(data.store, layer, precision=precision, progress=progress)
    frozen = models.path(standardize(embeddings, data.split.train))
    rows = models.fused_rows(frozen, with_features)
    if "random" in baselines:
        untrained = [_untrained(encoder, data, layer, seed, precision) for seed in seeds]
        rows += models.rows("untrained encoder", [models.path(x) for x in untrained])
    extra, notes = ecfp_rows(data, baselines, seeds, c, models.grid, jobs)
    there = {(row.model, row.rule) for row in rows}
    extra = [row for row in extra if (row.model, row.rule) not in there]
    return make_report(data, [*rows, *extra], notes)


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

    def path(self, x: Any) -> Path:
        """Fit the training fold and predict every graph, at each inverse penalty."""
        data = self.data
        return linear_path(x, data.labels, data.split.train, data.task, self.grid, self.jobs)

    def path_of(self, features: BaselineFeatures) -> Path:
        """Do so with features that need no learning."""
        if features.binary:
            return self.path(sparse_bits(features.values))
        return self.path(standardize(features.values, self.data.split.train))

    def rows(self, model: str, paths: Sequence[Path]) -> list[ScoreRow]:
        """Return the rows of models whose predictions are known, one path a seed."""
        chosen = [self._best_c(path) for path in paths]
        picked = [path[c] for path, c in zip(paths, chosen, strict=True)]
        return [
            _row(model, f"C = {self.c:g}", [p[self.c] for p in paths], self.data, {"c": self.c}),
            _row(model, "C by validation", picked, self.data, {"c": chosen}),
        ]

    def fused_rows(self, frozen: Path, features: Sequence[str]) -> list[ScoreRow]:
        """Return the rows of the averaged models, those of the encoder, and those of features."""
        data, paths, name = self.data, [frozen], "frozen encoder"
        rows = self.rows(name, paths)
        if not features:
            return rows
        for known in (domain_of(data.store.schema).feature_set(f, data.store) for f in features):
            paths.append(self.path_of(known))
            rows += self.rows(linear_name(known, data), paths[-1:])
            name = f"{name} + {known.name}"
        chosen = [self._best_c(path) for path in paths]
        fixed = fuse([path[self.c] for path in paths], data.task)
        picked = fuse([path[c] for path, c in zip(paths, chosen, strict=True)], data.task)
        return [
            _row(name, f"C = {self.c:g}", [fixed], data, {"c": self.c}),
            _row(name, "C by validation", [picked], data, {"c": chosen}),
            *rows,
        ]

    def _best_c(self, path: Path) -> float:
        data, valid = self.data, self.data.split.valid
        best, highest = min(path), math.nan
        for c in sorted(path):
            scores = evaluate(data.labels[valid], path[c][valid], data.task).scores
            if better(data.metric, scores[data.metric], highest):
                best, highest = c, scores[data.metric]
        return best


def fuse(parts: Sequence[Float[np.ndarray, "M T"]], task: str) -> Float[np.ndarray, "M T"]:
    """Return the mean prediction of several models: of logits, for regression of values.

    Args:
        parts: Probabilities, or values.
        task: ``classification``, ``multiclass`` or ``regression``.

    Example:
        >>> fuse([np.array([[0.9]]), np.array([[0.1]])], "classification")
        array([[0.5]])
    """
    if task == "regression":
        return np.mean(parts, axis=0)
    likely = np.clip(np.asarray(parts, dtype=np.float64), _LEAST, 1 - _LEAST)
    if task == "multiclass":
        return softmax(np.log(likely).mean(axis=0), axis=1)
    return expit((np.log(likely) - np.log1p(-likely)).mean(axis=0))


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
        return models.rows(linear_name(known, data), [models.path_of(known)]), notes
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
        rows += models.rows(linear_name(known, data), [models.path_of(known)])
    return rows, notes


def linear_name(features: BaselineFeatures, data: LabeledGraphs) -> str:
    """Return what rows of linear models of ``features`` are called."""
    kind = "ridge" if data.task == "regression" else "logistic"
    return f"{features.name} + {kind} regression"


def _untrained(
    encoder: Encoder, data: LabeledGraphs, layer: str | None, seed: int, precision: Precision
) -> np.ndarray:
    """Return features of the untrained network; its statistics come from the training fold."""
    graphs = data.store.subset(np.sort(data.split.train))
    untrained = untrained_like(encoder, graphs, seed, layer)
    return standardize(untrained.embed_store(data.store, precision=precision), data.split.train)


def _row(
    model: str,
    rule: str,
    predictions: Sequence[np.ndarray],
    data: LabeledGraphs,
    detail: dict[str, Any],
) -> ScoreRow:
    test, valid = ([p[fold] for p in predictions] for fold in (data.split.test, data.split.valid))
    return score_row(model, rule, data, test, valid, detail)
