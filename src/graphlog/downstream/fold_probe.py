"""k-fold accuracy of a classifier on frozen embeddings, the protocol of InfoGraph and GraphCL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_matrix, hstack

from graphlog.data.store import GraphStore
from graphlog.data.workers import device_for, using
from graphlog.domains import Input
from graphlog.domains.repeats import ROUNDS, subtree_labels
from graphlog.downstream.label_checks import repeat_notes
from graphlog.downstream.linear import standardize, without_convergence_warnings
from graphlog.downstream.pretrained import Encoder, untrained_like
from graphlog.downstream.probe import check_baselines, opened
from graphlog.downstream.report import Report, ScoreRow
from graphlog.downstream.tasks import LabeledGraphs, class_numbers, labeled
from graphlog.errors import ConfigError, DataError, check_name, check_seeds, out_of_range, setting
from graphlog.inputs import InputLike
from graphlog.training.log import Progress, as_progress
from graphlog.training.settings import Precision

CLASSIFIERS = ("svm", "logistic")
BASELINES = ("random", "wl")
GRID = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
"""Values of C, as in the published code."""
INNER_FOLDS = 5
_KINDS = {"svm": "SVM", "kernel": "SVM", "logistic": "logistic regression"}


def fold_probe(
    encoder: str | Path | Encoder,
    dataset: InputLike | LabeledGraphs,
    *,
    folds: int = 10,
    classifier: str = "svm",
    baselines: Sequence[str] = BASELINES,
    seeds: Sequence[int] = (0, 1, 2),
    layer: str | None = None,
    precision: Precision = "fp32",
    progress: Progress | bool | None = None,
    device: str = "cpu",
    engine: str = "local",
    **labeling: Any,
) -> Report:
    """Return the stratified k-fold accuracy of a classifier on frozen embeddings.

    There is one value per seed, the mean over folds. In each fold features are standardized on its
    training graphs, and C is chosen on them by 5-fold cross-validation. Nothing is chosen on test
    graphs, whereas the published code reports the epoch with the best test accuracy.

    Args:
        encoder: As for :func:`graphlog.finetune`.
        dataset: As for :func:`graphlog.finetune`, graphs with one target of two or more classes.
        folds: Number of folds; each is the test set once.
        classifier: ``svm`` with a Gaussian kernel, or ``logistic`` regression.
        baselines: ``random``, the untrained network; ``wl``, an SVM on Weisfeiler-Lehman subtree
            counts.
        seeds: Seeds of the folds, and of untrained weights.
        layer: ``jk``, ``jk+sum`` or ``last``; for None see :meth:`Encoder.head_layer`.
        precision: Precision of the encoder's matrix products.
        progress: Shows the number of finished folds.
        device: As for :func:`graphlog.probe`.
        engine: As for :func:`graphlog.probe`.
        labeling: Passed to ``open_labeled`` (``targets``, ``task``, ``on_repeats``).

    Raises:
        DataError: If there is not exactly one target, or a class has fewer graphs than folds.
        ConfigError: If a name is unknown, there are no seeds, or a split or weights are given.
    """
    from sklearn.model_selection import GridSearchCV, StratifiedKFold  # slow to import

    seeds = check_seeds("seeds", seeds)
    check_name("classifier", classifier, CLASSIFIERS)
    check_baselines(baselines, BASELINES)
    bar = as_progress(progress)
    for option in ("split", "fractions", "split_seed", "weights", "metric", "labels_range"):
        if labeling.get(option) is not None:
            message = f"{setting(option)} does not apply to k-fold accuracy; drop it."
            raise ConfigError(message, option=option)
    encoder, source = opened(encoder, dataset, device_for(engine, device))
    encoder = encoder.with_readout()
    layer = encoder.head_layer(layer)
    if isinstance(source, Input):
        labeling["split"] = "random"  # exists in every domain; the split is not used

    def row(model: str, kind: str, features: Sequence[np.ndarray]) -> ScoreRow:
        """Return the scores of one representation, with its features, or kernel, for each seed."""
        results = list[tuple[float, float]]()
        for values, seed in zip(features, seeds, strict=True):
            split = StratifiedKFold(folds, shuffle=True, random_state=seed)
            for train, test in split.split(classes[:, None], classes):
                inner = max(2, min(INNER_FOLDS, int(np.bincount(classes[train]).min())))
                x, estimator = _inputs(values, train, kind)
                cv = StratifiedKFold(inner, shuffle=True, random_state=seed)
                search = GridSearchCV(estimator, {"C": GRID}, cv=cv)
                with without_convergence_warnings():
                    search.fit(x[train], classes[train])
                bar.advance(1)
                score = float(np.mean(search.predict(x[test]) == classes[test]))
                results.append((score, search.best_params_["C"]))
        scores, chosen = np.reshape(results, (len(seeds), folds, 2)).transpose(2, 0, 1).tolist()
        detail = {"folds": scores, "c": chosen, "seeds": list(seeds)}
        means = [float(np.mean(s)) for s in scores]
        rule = f"{_KINDS[kind]}, C by inner folds"
        return ScoreRow(model, rule, {"accuracy": means}, {}, detail=detail)

    total = len(seeds) * folds * (1 + len(baselines))
    with using(engine, encoder.device.type), bar.shown(total, f"{folds}-fold {classifier}"):
        data = labeled(source, encoder.schema, **labeling)
        if data.weights is not None:
            raise ConfigError("weights do not apply to k-fold accuracy; open the graphs without.")
        graphs, classes = _classes(data, folds)
        frozen = encoder.embed_store(graphs, layer, precision=precision)
        rows = [row("frozen encoder", classifier, [frozen] * len(seeds))]
        if "random" in baselines:
            untrained = (untrained_like(encoder, graphs, seed, layer) for seed in seeds)
            features = [n.embed_store(graphs, layer, precision=precision) for n in untrained]
            rows.append(row("untrained encoder", classifier, features))
        if "wl" in baselines:
            counts = wl_counts(graphs).astype(np.float64)
            products = np.asarray((counts @ counts.T).todense())
            norms = np.sqrt(np.diag(products))
            subtrees = [products / np.outer(norms, norms)] * len(seeds)
            rows.append(row(f"WL subtree counts ({ROUNDS} rounds)", "kernel", subtrees))
    train, test = len(classes) - len(classes) // folds, len(classes) // folds
    sizes = {"train": train, "valid": 0, "test": test, "rejected": data.sizes["rejected"]}
    note = "test: accuracy, mean over folds; SD: over seeds, each of which draws new folds"
    split = f"stratified {folds}-fold"
    notes = (*data.notes, *repeat_notes(data.store, data.labels, ()), note)
    return Report(data.name, data.task, "accuracy", split, sizes, data.targets, tuple(rows), notes)


def _inputs(
    values: Float[np.ndarray, "M W"], train: Int64[np.ndarray, "_"], kind: str
) -> tuple[Float[np.ndarray, "M F"], Any]:
    """Return the inputs of a classifier for all graphs, and the classifier.

    ``values`` are embeddings, or the kernel of all graphs if ``kind`` is ``kernel``.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics.pairwise import rbf_kernel
    from sklearn.svm import SVC

    if kind == "kernel":
        return values[:, train], SVC(kernel="precomputed", cache_size=500)
    x = standardize(values, train).astype(np.float64)
    if kind == "logistic":
        return x, LogisticRegression(max_iter=300)
    # scikit-learn's gamma "scale"; the kernel is computed once for all C and inner folds
    gamma = 1.0 / max(x.shape[1] * float(x[train].var()), 1e-12)
    return rbf_kernel(x, x[train], gamma=gamma), SVC(kernel="precomputed", cache_size=500)


def _classes(data: LabeledGraphs, folds: int) -> tuple[Any, Int64[np.ndarray, "M"]]:
    """Return the labeled graphs and their classes."""
    if data.task == "regression" or (data.task == "classification" and len(data.targets) > 1):
        found = f"task {data.task} with {len(data.targets)} targets"
        raise DataError(
            f"k-fold accuracy is for one target of two or more classes, found {found}; "
            f"choose one with {setting('targets')}.",
            option="targets",
        )
    if folds < 2:
        raise out_of_range("folds", "2 or more", folds)
    classes = class_numbers(data.labels)
    fewest = int(np.bincount(classes).min())
    if fewest < folds:
        raise DataError(
            f"{data.name}: its rarest class has {fewest} graphs, too few for {folds} "
            "folds; merge classes or use fewer folds."
        )
    return data.store, classes


def wl_counts(store: GraphStore) -> csr_matrix:
    """Return Weisfeiler-Lehman subtree counts (Shervashidze et al., 2011).

    They are the numbers of nodes of each graph with each label, for the labels of all rounds. The
    initial labels are the categorical node attributes, or the degrees if there are none; each round
    also includes edge attributes. Continuous attributes are ignored.
    """
    batch = store[:]
    labels = [subtree_labels(batch, store.schema, rounds) for rounds in range(ROUNDS + 1)]
    histograms: list[csr_matrix] = []
    for node_labels in labels:
        columns = np.unique(node_labels, return_inverse=True)[1].reshape(-1)
        cells = (np.ones(len(columns)), (batch.batch.numpy(), columns))
        shape = (batch.num_graphs, int(columns.max(initial=-1)) + 1)
        histograms.append(csr_matrix(cells, shape=shape))
    return csr_matrix(hstack(histograms))
