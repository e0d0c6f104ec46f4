"""The protocol of InfoGraph and GraphCL: k-fold accuracy of a classifier on frozen embeddings."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int64

from graphlog.downstream.encoder import Encoder
from graphlog.downstream.linear import standardize, without_convergence_warnings
from graphlog.downstream.models import random_encoder
from graphlog.downstream.report import Report, ScoreRow
from graphlog.downstream.tasks import LabeledGraphs, class_numbers, open_labeled
from graphlog.downstream.wl import ROUNDS, wl_kernel
from graphlog.errors import ConfigError, DataError, unknown_name
from graphlog.inputs import InputLike
from graphlog.training.log import Progress, as_progress
from graphlog.training.precision import Precision

Classifier = Literal["svm", "logistic"]
CLASSIFIERS = ("svm", "logistic")
BASELINES = ("random", "wl")
GRID = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
"""Values of C, as in the published code."""
INNER_FOLDS = 5
Indices = Int64[np.ndarray, "_"]
Fitted = Callable[[Indices], tuple[np.ndarray, np.ndarray, Any]]
"""From the training graphs of a fold to features of these, features of all, and the classifier."""


def fold_probe(
    encoder: Encoder,
    source: InputLike | LabeledGraphs,
    *,
    folds: int = 10,
    classifier: str = "svm",
    baselines: Sequence[str] = BASELINES,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    grid: Sequence[float] = GRID,
    layer: str | None = None,
    precision: Precision = "fp32",
    progress: Progress | bool | None = None,
    **labeling: Any,
) -> Report:
    """Return the stratified k-fold accuracy of a classifier on frozen embeddings.

    One value per seed, the mean over folds. In each fold features are standardized over its
    training part, and C is chosen there by 5-fold cross-validation. Nothing is chosen on test
    graphs; the published code reports the best of several epochs, which does look at them.

    Args:
        encoder: What is scored.
        source: Graphs with one target of two or more classes.
        folds: Number of parts; each is tested on once.
        classifier: ``svm`` with a Gaussian kernel, or ``logistic`` regression.
        baselines: ``random``, the same network untrained; ``wl``, an SVM on Weisfeiler-Lehman
            subtree counts.
        seeds: Of the folds, and of untrained weights.
        grid: Values of C.
        layer: ``jk`` or ``last``; None takes the model's own.
        precision: Of the encoder's matrix products.
        progress: Told of the folds.
        labeling: Passed to ``open_labeled`` (``targets``, ``task``).

    Raises:
        DataError: If there is not one target, or a class has fewer graphs than there are folds.
        ConfigError: If a name is unknown.
    """
    for kind, names, known in (
        ("classifier", [classifier], CLASSIFIERS),
        ("baseline", baselines, BASELINES),
    ):
        for name in names:
            if name not in known:
                raise unknown_name(kind, name, known)
    labeling.setdefault("split", "stratified")
    data = (
        source
        if isinstance(source, LabeledGraphs)
        else open_labeled(source, encoder.schema, **labeling)
    )
    graphs, classes = _classes(data, folds)
    bar = as_progress(progress)
    bar.begin(len(seeds) * folds * (1 + len(baselines)))
    bar.stage(f"{folds}-fold {classifier}")
    scorer = _Folds(classes, folds, tuple(seeds), tuple(grid), bar)
    rule = f"{'SVM' if classifier == 'svm' else 'logistic regression'}, C by inner folds"
    try:
        frozen = _features(encoder.embed_store(graphs, layer, precision=precision), classifier)
        rows = [scorer.row("frozen encoder", rule, [frozen] * len(seeds))]
        if "random" in baselines:
            rows.append(
                scorer.row(
                    "untrained encoder",
                    rule,
                    [_untrained(encoder, graphs, layer, s, classifier) for s in seeds],
                )
            )
        if "wl" in baselines:
            subtrees = [_subtrees(wl_kernel(graphs))] * len(seeds)
            rows.append(
                scorer.row(
                    f"WL subtree counts ({ROUNDS} rounds)", "SVM, C by inner folds", subtrees
                )
            )
    finally:
        bar.end()
    sizes = {
        "train": len(classes) - len(classes) // folds,
        "valid": 0,
        "test": len(classes) // folds,
        "rejected": data.sizes["rejected"],
    }
    note = "test: accuracy, mean over folds; SD: over seeds, each of which draws new folds"
    return Report(
        data.name,
        data.task,
        "accuracy",
        f"stratified {folds}-fold",
        sizes,
        data.targets,
        {},
        tuple(rows),
        (note,),
    )


class _Folds:
    """Makes folds by seed and scores features on them."""

    def __init__(
        self,
        classes: Int64[np.ndarray, "M"],
        folds: int,
        seeds: tuple[int, ...],
        grid: tuple[float, ...],
        bar: Progress,
    ) -> None:
        self._classes, self._folds, self._seeds, self._grid, self._bar = (
            classes,
            folds,
            seeds,
            grid,
            bar,
        )

    def row(self, model: str, rule: str, features: Sequence[Fitted]) -> ScoreRow:
        """Return the scores of one representation: its features for every seed."""
        scores, chosen = zip(
            *(self._score(f, seed) for f, seed in zip(features, self._seeds, strict=True)),
            strict=True,
        )
        detail = {
            "folds": [list(s) for s in scores],
            "c": [list(c) for c in chosen],
            "seeds": list(self._seeds),
        }
        return ScoreRow(
            model, rule, {"accuracy": [float(np.mean(s)) for s in scores]}, {}, detail=detail
        )

    def _score(self, features: Fitted, seed: int) -> tuple[list[float], list[float]]:
        from sklearn.model_selection import GridSearchCV, StratifiedKFold

        scores: list[float] = []
        chosen: list[float] = []
        split = StratifiedKFold(self._folds, shuffle=True, random_state=seed).split(
            self._classes[:, None], self._classes
        )
        for train, test in split:
            inner = max(2, min(INNER_FOLDS, int(np.bincount(self._classes[train]).min())))
            x_train, x_all, model = features(train)
            search = GridSearchCV(
                model,
                {"C": list(self._grid)},
                cv=StratifiedKFold(inner, shuffle=True, random_state=seed),
            )
            with without_convergence_warnings():
                search.fit(x_train, self._classes[train])
            scores.append(float(np.mean(search.predict(x_all[test]) == self._classes[test])))
            chosen.append(float(search.best_params_["C"]))
            self._bar.advance(1)
        return scores, chosen


def _features(embeddings: Float[np.ndarray, "M W"], classifier: str) -> Fitted:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics.pairwise import rbf_kernel
    from sklearn.svm import SVC

    def fitted(train: Indices) -> tuple[np.ndarray, np.ndarray, Any]:
        x = standardize(embeddings, train).astype(np.float64)
        if classifier == "logistic":
            return x[train], x, LogisticRegression(max_iter=300)
        # scikit-learn's gamma "scale"; the kernel is computed once for all C and inner folds
        kernel = rbf_kernel(x, x[train], gamma=1.0 / max(x.shape[1] * float(x[train].var()), 1e-12))
        return kernel[train], kernel, SVC(kernel="precomputed", cache_size=500)

    return fitted


def _subtrees(kernel: Float[np.ndarray, "M M"]) -> Fitted:
    from sklearn.svm import SVC

    def fitted(train: Indices) -> tuple[np.ndarray, np.ndarray, Any]:
        return kernel[np.ix_(train, train)], kernel[:, train], SVC(kernel="precomputed")

    return fitted


def _untrained(
    encoder: Encoder, graphs: Any, layer: str | None, seed: int, classifier: str
) -> Fitted:
    untrained = random_encoder(
        encoder.config, encoder.schema, layer=layer or encoder.layer, seed=seed, graphs=graphs
    )
    return _features(untrained.to(encoder.device).embed_store(graphs), classifier)


def _classes(data: LabeledGraphs, folds: int) -> tuple[Any, Int64[np.ndarray, "M"]]:
    """Return the graphs with a class, and their classes."""
    if data.task == "regression" or (data.task == "classification" and len(data.targets) > 1):
        found = f"task {data.task} with {len(data.targets)} targets"
        raise DataError(
            f"k-fold accuracy is for one target of two or more classes, found {found}; "
            "choose one with --targets."
        )
    if folds < 2:
        raise ConfigError(f"`folds` must be 2 or more, found {folds}.")
    known = np.flatnonzero(~np.isnan(data.labels).any(axis=1))
    classes = class_numbers(data.labels[known])
    fewest = int(np.bincount(classes).min())
    if fewest < folds:
        raise DataError(
            f"{data.name}: its rarest class has {fewest} graphs, too few for {folds} "
            "folds; merge classes or lower the number."
        )
    return data.store.subset(known), classes
