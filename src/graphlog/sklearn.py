"""Estimators for scikit-learn that embed molecules and predict classes or values from SMILES.

They take lists, arrays and columns of SMILES, also of shape (n, 1), and work in ``Pipeline``,
``cross_val_score``, ``GridSearchCV`` and with joblib. Masked values count as missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from graphlog.data.split import Split, stratified_split
from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.finetune import FinetuneConfig, train_one
from graphlog.downstream.metrics import TaskKind, check_metric
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.pretrained import Encoder, load
from graphlog.downstream.probe import fit_head
from graphlog.downstream.report import make_report
from graphlog.downstream.tasks import LabeledGraphs, check_weights
from graphlog.errors import ConfigError, DataError, check_name, check_seed
from graphlog.inputs import records_of

__all__ = ["GraphClassifier", "GraphEmbedder", "GraphRegressor"]

Array = np.ndarray[Any, np.dtype[Any]]
DEFAULT_MODEL = "graphlog-mol"


@dataclass(eq=False, repr=False)
class GraphEmbedder(TransformerMixin, BaseEstimator):
    """Transformer from SMILES to the embeddings of a frozen encoder.

    Args:
        encoder: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        layer: ``jk``, ``jk+sum`` or ``last``; None takes the default of the model.
        with_features: Features that are not learned, as further columns: ``ecfp4``,
            ``descriptors``.
        invalid: Treatment of a molecule that cannot be read: ``raise`` an error, or ``nan`` for a
            row of NaN, for an imputer or a model that accepts NaN. At most half of the graphs of a
            list of torch_geometric graphs may be invalid.
        batch_size: Number of graphs per forward pass.
        device: ``auto``, ``cpu`` or ``cuda``.
    """

    encoder: str | Path | Encoder = DEFAULT_MODEL
    layer: str | None = None
    invalid: str = "raise"
    batch_size: int = 2048
    device: str = "cpu"
    with_features: Sequence[str] = ()

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Load the encoder; only ``random`` depends on ``X``, as in :func:`graphlog.load`."""
        self.encoder_ = load(self.encoder, device=self.device, source=_texts(X, self))
        self.n_features_in_ = 1
        self.encoder_.feature_names(self.layer, self.with_features)  # rejects unknown names
        return self

    def transform(self, X: Any) -> Array:  # noqa: N803
        """Return one row of float32 per molecule."""
        check_is_fitted(self, "encoder_")
        store = _graphs(X, self.encoder_, self)
        return self.encoder_.embed(
            store, self.layer, self.batch_size, with_features=self.with_features
        )

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns: ``graphlog0``, ``graphlog1``, ..., then features."""
        check_is_fitted(self, "encoder_")
        width = self.encoder_.width(self.layer)
        features = self.encoder_.feature_names(self.layer, self.with_features)[width:]
        return np.array([*(f"graphlog{k}" for k in range(width)), *features], dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Return the tags for inputs of text and outputs of float32."""
        tags = _text_tags(super().__sklearn_tags__())
        tags.transformer_tags.preserves_dtype = []
        return tags


@dataclass(eq=False, repr=False)
class _FineTunedEstimator(BaseEstimator):
    """Base class of the classifier and the regressor: parameters, training, predictions."""

    _task: ClassVar[TaskKind]

    encoder: str | Path | Encoder = DEFAULT_MODEL
    protocol: str = "default"
    epochs: int | None = None
    batch_size: int = 32
    learning_rate: float = 1e-3
    dropout: float | None = None
    freeze: bool = False
    layer: str | None = None
    invalid: str = "raise"
    precision: str = "fp32"
    device: str = "auto"
    random_state: int = 0
    patience: int | None = None
    validation_fraction: float = 0.1
    head: str | None = None

    def _train(
        self,
        X: Any,  # noqa: N803
        labels: Array,
        sample_weight: Any,
        classes: Array | None = None,
    ) -> None:
        """Fit ``model_``; the validation set of early stopping is stratified by ``classes``."""
        graphs = _texts(X, self)
        encoder = load(self.encoder, source=graphs)
        store = _graphs(graphs, encoder, self)
        if store.num_rows != len(labels):
            raise DataError(
                f"`y` must have one row per molecule: {store.num_rows} molecules, {len(labels)} "
                "labels."
            )
        weights = None
        used = np.any(np.isfinite(labels), axis=1)
        if sample_weight is not None:
            weights = _numbers(_cells(sample_weight, "sample_weight"), "sample_weight")
            if weights.shape != (len(labels),):
                raise DataError(
                    f"`sample_weight` must hold one number per molecule: {len(labels)} molecules, "
                    f"an array of shape {weights.shape}."
                )
            check_weights(weights, "`sample_weight`", np.arange(len(labels)))
            if not weights[store.rows].any():
                raise DataError("all weights of the molecules to learn from are zero.")
            used &= weights > 0
        store = store.subset(np.flatnonzero(used[store.rows]))
        weights = None if weights is None else weights[store.rows].astype(np.float32)
        if classes is not None and len(np.unique(classes[store.rows])) == 1:
            raise DataError(
                "the molecules that can be read and have a weight are all of one class: there is "
                "nothing to learn."
            )
        labels = labels[store.rows]
        if not len(labels):
            raise DataError("there is no molecule with a label to learn from.")
        state: Any = self.random_state
        is_number = isinstance(state, int | np.integer)
        drawn = state if is_number else check_random_state(state).randint(2**31)
        seed = check_seed("random_state", int(drawn))
        nothing = np.empty(0, dtype=np.int64)
        split = Split(np.arange(len(labels)), nothing, nothing)
        stops_early = self.patience is not None and self.head is None
        if stops_early:
            share = self.validation_fraction
            if not 0 < share < 1:
                raise ConfigError(f"`validation_fraction` must be between 0 and 1, found {share}.")
            strata = np.zeros(len(labels), np.int64) if classes is None else classes[store.rows]
            try:
                split = stratified_split(strata, (1 - share, share, 0.0), seed)
            except DataError:
                raise DataError(
                    f"`validation_fraction` of {share} holds back all {len(labels)} molecules; "
                    "lower it, or drop `patience`."
                ) from None
        kind = "value" if self._task == "regression" else "class"
        names = tuple(f"{kind}{k}" for k in range(labels.shape[1]))
        task = self._task if classes is None or len(names) == 1 else "multiclass"
        metric = check_metric(None, task)
        data = LabeledGraphs(
            "fit", store, labels, names, task, metric, split, "random", (), weights
        )
        none_usable = [
            len(data.unusable_targets(part)) == len(names) for part in ("train", "valid")
        ]
        need = "values that differ" if task == "regression" else "molecules of two classes"
        if stops_early and any(none_usable):
            raise DataError(
                f"`patience` needs {need} among the {len(split.train)} molecules to learn from and "
                f"the {len(split.valid)} held back; change `validation_fraction`, or drop it."
            )
        if self.head is not None and none_usable[0]:
            raise DataError(f"`head` needs {need} among the molecules to learn from; add some.")
        self.model_: Predictor
        if self.head is None:
            model, self.n_iter_ = train_one(encoder, data, self._config(), seed)
            self.model_ = Predictor([model], data.targets, make_report(data, ()))
        else:
            self.model_, self.n_iter_ = fit_head(encoder, data, self.head, self.layer), 1
        self.n_features_in_ = 1

    def _checked_target(self, y: Any) -> Array:
        """Return ``y`` as an array, and discard the model of an earlier fit."""
        vars(self).pop("model_", None)  # its classes may differ
        if y is None:
            raise DataError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        y = _cells(y, "y")
        if y.ndim not in (1, 2) or not y.size:
            raise DataError(
                "`y` must hold a row for each molecule to learn from, in one or several columns; "
                f"found an array of shape {y.shape}."
            )
        return y

    def _outputs(self, X: Any) -> Array:  # noqa: N803
        check_is_fitted(self, "model_")
        store = _graphs(X, self.model_.encoder, self)
        return self.model_.predict(store).astype(np.float64)

    def _config(self) -> FinetuneConfig:
        names = ("protocol", "epochs", "batch_size", "learning_rate", "dropout", "freeze", "layer")
        values = {name: getattr(self, name) for name in (*names, "precision", "device", "patience")}
        return FinetuneConfig.parse({k: v for k, v in values.items() if v is not None})

    def __sklearn_tags__(self) -> Any:
        """Return the tags for inputs of text and targets of several columns."""
        tags = _text_tags(super().__sklearn_tags__())
        tags.target_tags.multi_output = True
        return tags


class GraphClassifier(ClassifierMixin, _FineTunedEstimator):
    """Classifier of graphs into two or more classes, or by several 0/1 columns (NaN if unknown).

    By default the encoder and a new head are fine-tuned. With ``head``, the encoder stays frozen,
    and only the parameters ``encoder``, ``layer`` and ``invalid`` are used besides.

    Args:
        encoder: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        protocol: Protocol of fine-tuning: ``default``, with a hidden layer, or ``paper``.
        epochs: Passes over the training set; None takes that of the protocol.
        batch_size: Number of molecules per step.
        learning_rate: Initial learning rate of the head (Adam).
        dropout: Dropout rate after each layer during training; None takes that of the protocol.
        freeze: Whether only the head is trained.
        layer: Embedding that is the input of the head; None takes that of the protocol.
        invalid: Treatment of a molecule that cannot be read: ``raise`` an error, or ``nan`` to omit
            it from training and predict NaN, which scores of scikit-learn and ``cross_val_score``
            do not accept.
        precision: ``fp32``, ``bf16``, or ``auto`` (bf16 if the hardware computes in it).
        device: ``auto``, ``cpu`` or ``cuda``.
        random_state: Seed of the head, the order of molecules, dropout, and the validation set.
        patience: Number of epochs without a better score on the validation set after which training
            stops; the best epoch is kept. None trains all epochs on all molecules.
        validation_fraction: Share of the molecules in the validation set, drawn at random and
            stratified by class; used only with ``patience``.
        head: None fine-tunes; otherwise the model that is fitted to frozen embeddings: ``linear``,
            ``kernel`` (for molecules also on ECFP4 counts), or ``auto``, the better one by
            five-fold cross-validation.

    Attributes:
        n_iter_: Number of epochs trained.
    """

    _task: ClassVar[TaskKind] = "classification"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Train on molecules and their classes.

        Args:
            X: SMILES.
            y: A class for each molecule, or columns of 0, 1 and NaN.
            sample_weight: Weight of each molecule in the loss; 0 omits it. None weights all
                molecules equally; to weight all classes equally, use
                ``sklearn.utils.class_weight.compute_sample_weight("balanced", y)``.

        Raises:
            DataError: If molecules, classes or weights cannot be used.
        """
        y = self._checked_target(y)
        self.multilabel_ = y.ndim == 2 and y.shape[1] > 1
        if self.multilabel_:
            columns = int(y.shape[1])
            expected = "0, 1 or NaN where it has several columns"
            labels, classes = _numbers(y, "y", expected), None
            if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
                raise DataError(f"`y` must hold {expected}.")
            self.classes_ = [np.array([0, 1])] * columns
        else:
            y = y.reshape(-1)
            values = y.tolist()
            if missing := sum(value != value for value in values):  # true only for NaN
                raise DataError(
                    f"`y` has no class in {missing} rows (NaN or None); leave these rows out."
                )
            kinds = {isinstance(value, str) for value in values}
            if len(kinds) > 1:
                raise DataError("`y` holds both text and numbers; write all classes in one way.")
            if y.dtype == object and kinds == {False}:  # numbers of a column with missing values
                y = np.array(values)
            if type_of_target(y) not in {"binary", "multiclass"}:
                raise DataError(
                    f"Unknown label type: {type_of_target(y)} values are not classes; use "
                    "GraphRegressor for numbers."
                )
            self.classes_, classes = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise DataError(
                    f"`y` holds one class only ({self.classes_[0]}): there is nothing to learn."
                )
            shown = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
            labels = np.stack([y == c for c in shown], axis=1).astype(np.float64)
        self._train(X, labels, sample_weight, classes)
        return self

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return the probability of each class, or of the value 1 in each 0/1 column."""
        outputs = self._outputs(X)
        if self.multilabel_:
            return outputs
        if len(self.classes_) == 2:
            return np.concatenate([1 - outputs, outputs], axis=1)
        return outputs / outputs.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the most probable class, or None (0/1 columns: NaN) for an invalid molecule.

        A 0/1 column that has only one class in the training set may be predicted as NaN.
        """
        probabilities = self.predict_proba(X)
        if self.multilabel_:
            classes, unknown = (probabilities >= 0.5).astype(np.int64), np.isnan(probabilities)
            return np.where(unknown, np.nan, classes) if unknown.any() else classes
        unknown = np.asarray(np.isnan(probabilities).any(axis=1))
        classes = np.asarray(self.classes_)
        predicted = classes[np.nan_to_num(probabilities).argmax(axis=1)]
        if unknown.any():
            predicted = predicted.astype(object)
            predicted[unknown] = None
        return predicted


class GraphRegressor(RegressorMixin, _FineTunedEstimator):
    """Regressor of graphs for one or several columns of values (NaN if unknown).

    The parameters are those of :class:`GraphClassifier`. With ``invalid="nan"``, the values of a
    molecule that cannot be read are predicted as NaN.
    """

    _task: ClassVar[TaskKind] = "regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Train on molecules and their values, which are standardized internally.

        Args:
            X: SMILES.
            y: Values in one or several columns, NaN if unknown.
            sample_weight: Weight of each molecule in the loss; 0 omits it. None weights all
                molecules equally.

        Raises:
            DataError: If molecules, values or weights cannot be used.
        """
        labels = _numbers(self._checked_target(y), "y", "numbers; for classes use GraphClassifier")
        self.is_flat_ = labels.ndim == 1
        labels = labels.reshape(len(labels), -1)
        infinite = np.flatnonzero(np.isinf(labels).any(axis=1))
        if len(infinite):
            raise DataError(
                f"`y` is infinite in row {infinite[0]} ({len(infinite)} such rows); leave these "
                "rows out, or give NaN where a value is unknown."
            )
        self._train(X, labels, sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:  # noqa: N803
        """Return the predicted values, in the shape of ``y`` of :meth:`fit`.

        Args:
            X: SMILES.
            return_std: Whether to return the standard deviation of each value as well (kernel
                models only).

        Raises:
            ConfigError: If ``return_std`` is true and the model is not a kernel model.
        """
        check_is_fitted(self, "model_")
        columns = 0 if self.is_flat_ else slice(None)
        if not return_std:
            return self._outputs(X)[:, columns]
        if self.model_.kernel is None:
            raise ConfigError(
                "only kernel models predict standard deviations; choose `head='kernel'`."
            )
        prediction = self.model_.predict_uncertain(_graphs(X, self.model_.encoder, self))
        assert prediction.std is not None, "kernel regression has standard deviations"
        return prediction.mean[:, columns], prediction.std[:, columns]


def _texts(X: Any, estimator: Any) -> list[str]:  # noqa: N803
    check_name("policy for invalid molecules", estimator.invalid, ["raise", "nan"])
    if isinstance(X, str | Path | GraphStore):
        raise ConfigError(
            "scikit-learn estimators take a list or column of SMILES or a list of torch_geometric "
            f"Data, found {'a store' if isinstance(X, GraphStore) else 'the name of a file'}; read "
            "its column of SMILES, or give `graphlog.to_pyg(store)`."
        )
    if issparse(X):
        raise DataError("Sparse data was passed, but molecules are text: a column of SMILES.")
    return records_of(X)


def _cells(values: Any, name: str) -> Array:
    """Return an array with NaN for masked values, None, and NA of pandas."""
    import pandas as pd  # slow to import

    cells = np.asarray(values)
    if cells.dtype.kind == "U" and isinstance(values, list | tuple):
        objects = np.asarray(values, dtype=object)
        if not all(isinstance(value, str) for value in objects.flat):
            cells = objects  # NaN would be the text "nan"
    if cells.dtype.kind in "mM":
        raise DataError(
            f"`{name}` holds dates or times ({cells.dtype}), which are no numbers; give numbers, "
            "such as days."
        )
    if isinstance(values, np.ma.MaskedArray):
        cells = np.array(values.tolist(), dtype=object)  # masked cells are None
    return np.where(pd.isna(cells), np.nan, cells) if cells.dtype == object else cells


def _numbers(values: Array, name: str, expected: str = "numbers") -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"`{name}` must hold {expected}.") from None


def _graphs(X: Any, encoder: Encoder, estimator: Any) -> GraphStore:  # noqa: N803
    store = encoder.graphs_of(_texts(X, estimator))
    if store.rejects and estimator.invalid == "raise":
        first = store.rejects[0]
        more = f" ({len(store.rejects)} such rows)" if len(store.rejects) > 1 else ""
        item = domain_of(encoder.schema).records.removesuffix("s")
        text = f"({first.text[:40]!r}) " if first.text else ""
        raise DataError(
            f"{item} {first.row} {text}{first.reason}{more}; remove it, or set invalid='nan'."
        )
    return store


def _text_tags(tags: Any) -> Any:
    tags.input_tags.string = True
    tags.input_tags.one_d_array = True
    tags.input_tags.two_d_array = True
    return tags
