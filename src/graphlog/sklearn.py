"""Estimators for scikit-learn: molecules as SMILES in, features, classes or values out.

They take lists, arrays and columns of SMILES, also of shape (n, 1), and work in ``Pipeline``,
``cross_val_score``, ``GridSearchCV`` and with joblib.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from graphlog.data.split import Split
from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.finetune import FinetuneConfig, train_on_all
from graphlog.downstream.head import FineTuned
from graphlog.downstream.metrics import TaskKind
from graphlog.downstream.models import load
from graphlog.downstream.predictor import predict_graphs
from graphlog.downstream.tasks import LabelledGraphs
from graphlog.errors import ConfigError, DataError, unknown_name
from graphlog.inputs import read, records_of

__all__ = ["GraphClassifier", "GraphEmbedder", "GraphRegressor"]

Array = np.ndarray[Any, np.dtype[Any]]
DEFAULT_MODEL = "graphlog-zinc"


class GraphEmbedder(TransformerMixin, BaseEstimator):
    """SMILES to frozen embeddings.

    Args:
        encoder: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        layer: ``jk`` or ``last``; None takes the model's own.
        with_features: Features that need no learning, as further columns: ``ecfp4``,
            ``descriptors``.
        invalid: What to do with a molecule that cannot be read: ``raise``, or ``nan`` for a row of
            NaN, which an imputer or a model that takes NaN may follow.
        batch_size: Graphs per forward pass.
        device: ``auto``, ``cpu`` or ``cuda``.
    """

    def __init__(
        self,
        encoder: str | Path | Encoder = DEFAULT_MODEL,
        layer: str | None = None,
        invalid: str = "raise",
        batch_size: int = 512,
        device: str = "cpu",
        with_features: Sequence[str] = (),
    ) -> None:
        self.encoder = encoder
        self.layer = layer
        self.with_features = with_features
        self.invalid = invalid
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Load the encoder; nothing is learned from ``X``."""
        _texts(X, self)
        self.encoder_ = load(self.encoder, device=self.device)
        self.n_features_in_ = 1
        domain_of(self.encoder_.schema).check_feature_sets(self.with_features)
        self.width_ = self.encoder_.width(self.layer)
        return self

    def transform(self, X: Any) -> Array:  # noqa: N803
        """Return one float32 row a molecule."""
        check_is_fitted(self, "encoder_")
        store = _graphs(X, self.encoder_, self)
        return self.encoder_.embed(
            store, self.layer, self.batch_size, with_features=self.with_features
        )

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return ``graphlog0``, ``graphlog1``, ..., and the names of joined features."""
        check_is_fitted(self, "width_")
        names = self.encoder_.feature_names(self.layer, self.with_features)[self.width_ :]
        return np.array([*(f"graphlog{k}" for k in range(self.width_)), *names], dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Say that inputs are text."""
        return _text_tags(super().__sklearn_tags__())


class _FineTunedEstimator(BaseEstimator):
    """What the classifier and the regressor share: parameters, training, outputs."""

    _task: TaskKind

    def __init__(
        self,
        encoder: str | Path | Encoder = DEFAULT_MODEL,
        protocol: str = "default",
        epochs: int | None = None,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        dropout: float | None = None,
        freeze: bool = False,
        layer: str | None = None,
        invalid: str = "raise",
        precision: str = "fp32",
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.encoder = encoder
        self.protocol = protocol
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.freeze = freeze
        self.layer = layer
        self.invalid = invalid
        self.precision = precision
        self.device = device
        self.random_state = random_state

    def _train(self, X: Any, labels: Array, names: Sequence[str]) -> None:  # noqa: N803
        encoder = load(self.encoder)
        store = _graphs(X, encoder, self)
        if store.num_rows != len(labels):
            raise DataError(
                f"`y` must have one row per molecule: {store.num_rows} molecules, {len(labels)} "
                "labels."
            )
        labels = labels[store.rows].astype(np.float32)
        if not len(labels) or np.isnan(labels).all():
            raise DataError("there is no molecule with a label to learn from.")
        nobody = np.empty(0, dtype=np.int64)
        split = Split(np.arange(len(store)), nobody, nobody)
        metric = "roc_auc" if self._task == "classification" else "rmse"
        data = LabelledGraphs("fit", store, labels, tuple(names), self._task, metric, split, "none")
        self.model_: FineTuned = train_on_all(
            encoder, data, self._config(), _seed(self.random_state)
        )
        self.n_features_in_ = 1

    def _outputs(self, X: Any) -> Array:  # noqa: N803
        check_is_fitted(self, "model_")
        store = _graphs(X, self.model_, self)
        predicted = predict_graphs([self.model_], store)
        outputs = np.full((store.num_rows, predicted.shape[1]), np.nan)
        outputs[store.rows] = predicted
        return outputs

    def _config(self) -> FinetuneConfig:
        names = ("protocol", "epochs", "batch_size", "learning_rate", "dropout", "freeze", "layer")
        given = {name: getattr(self, name) for name in (*names, "precision", "device")}
        return FinetuneConfig.parse({k: v for k, v in given.items() if v is not None})

    def __sklearn_tags__(self) -> Any:
        """Say that inputs are text."""
        return _text_tags(super().__sklearn_tags__())


class GraphClassifier(ClassifierMixin, _FineTunedEstimator):
    """An encoder fine-tuned on two or more classes, or on several 0/1 columns, NaN where unknown.

    Args:
        encoder: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        protocol: ``default`` starts from a linear probe; ``paper`` is the paper's.
        epochs: Passes over the training molecules; None takes the protocol's.
        batch_size: Molecules a step.
        learning_rate: First step size of Adam for the head.
        dropout: Share of each layer's outputs dropped while training; None takes the protocol's.
        freeze: Train the linear head alone.
        layer: Embedding the head sees; None takes the protocol's.
        invalid: ``raise`` for a molecule that cannot be read, or ``nan``: left out of training, NaN
            probabilities.
        precision: ``fp32``, ``bf16``, or ``auto`` (bf16 where the hardware computes in it).
        device: ``auto``, ``cpu`` or ``cuda``.
        random_state: Seed of head, order and dropout.
    """

    _task: TaskKind = "classification"

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on molecules and their classes."""
        y = np.asarray(y)
        self.multilabel_ = y.ndim == 2 and y.shape[1] > 1
        if self.multilabel_:
            labels = y.astype(np.float64)
            if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
                raise DataError("several columns of classes must hold 0, 1 or NaN.")
            self.classes_ = [np.array([0, 1])] * y.shape[1]
        else:
            y = y.reshape(-1)
            if type_of_target(y) not in {"binary", "multiclass"}:
                raise DataError(
                    f"classes must be labels, found {type_of_target(y)} values; use GraphRegressor "
                    "for quantities."
                )
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise DataError(
                    f"`y` holds one class only ({self.classes_[0]!r}): there is nothing to learn."
                )
            shown = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
            labels = np.stack([y == c for c in shown], axis=1).astype(np.float64)
        self._train(X, labels, [f"class{k}" for k in range(labels.shape[1])])
        return self

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return one column per class, rows summing to 1; of 0/1 columns the probability of 1."""
        outputs = self._outputs(X)
        if self.multilabel_:
            return outputs
        if len(self.classes_) == 2:
            return np.concatenate([1 - outputs, outputs], axis=1)
        return outputs / outputs.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the most probable class; None (0/1 columns: NaN) where a molecule is invalid."""
        probabilities = self.predict_proba(X)
        unknown = np.asarray(np.isnan(probabilities).any(axis=1))
        if self.multilabel_:
            return (
                np.where(unknown[:, None], np.nan, probabilities >= 0.5)
                if unknown.any()
                else (probabilities >= 0.5).astype(np.int64)
            )
        classes = np.asarray(self.classes_)
        predicted = classes[np.nan_to_num(probabilities).argmax(axis=1)]
        if unknown.any():
            predicted = predicted.astype(object)
            predicted[unknown] = None
        return predicted


class GraphRegressor(RegressorMixin, _FineTunedEstimator):
    """An encoder fine-tuned on quantities, one or several columns, NaN where unknown.

    Arguments are those of :class:`GraphClassifier`; where ``invalid`` is ``nan``, a molecule that
    cannot be read is predicted NaN.
    """

    _task: TaskKind = "regression"

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on molecules and their values; they are scaled inside."""
        labels = np.asarray(y, dtype=np.float64)
        self.is_flat_ = labels.ndim == 1
        labels = labels.reshape(len(labels), -1)
        self._train(X, labels, [f"value{k}" for k in range(labels.shape[1])])
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the predicted values, shaped like the ``y`` of :meth:`fit`."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self.is_flat_ else outputs


def _texts(X: Any, estimator: Any) -> list[str]:  # noqa: N803
    if estimator.invalid not in ("raise", "nan"):
        raise unknown_name("policy for invalid molecules", str(estimator.invalid), ["raise", "nan"])
    if isinstance(X, str | Path):
        raise ConfigError(
            "scikit-learn estimators take molecules, not a file; read its column of SMILES first."
        )
    return records_of(X)


def _graphs(X: Any, encoder: Encoder | FineTuned, estimator: Any) -> GraphStore:  # noqa: N803
    schema = encoder.schema if isinstance(encoder, Encoder) else encoder.network.schema
    store = read(_texts(X, estimator), schema)
    if store.rejects and estimator.invalid == "raise":
        first = store.rejects[0]
        more = f" ({len(store.rejects)} such rows)" if len(store.rejects) > 1 else ""
        raise DataError(
            f"molecule {first.row} ({first.text[:40]!r}) {first.reason}{more}; remove it, or set "
            "invalid='nan'."
        )
    return store


def _seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    return int(random_state)


def _text_tags(tags: Any) -> Any:
    tags.input_tags.string = True
    tags.input_tags.one_d_array = True
    tags.input_tags.two_d_array = True
    return tags
