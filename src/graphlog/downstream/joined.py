"""Features that need no learning, beside the embeddings of consecutive graphs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor

from graphlog.data.store import GraphStore
from graphlog.domains import domain_of
from graphlog.downstream.linear import LinearFit, Scaling, linear_predictions, sparse_bits
from graphlog.downstream.metrics import TaskKind

_GRAPHS_AT_ONCE = 20_000
"""Graphs whose features are worked out together, so that starting processes for them pays."""


class FeatureRows:
    """The features of consecutive ranges of a store's graphs, worked out some ranges ahead."""

    def __init__(self, store: GraphStore, names: Sequence[str], batch_size: int) -> None:
        """Prepare; nothing is computed yet.

        Args:
            store: The graphs.
            names: Features of its domain.
            batch_size: Graphs of the largest range.
        """
        self._store, self._names = store, names
        self._at_once = max(_GRAPHS_AT_ONCE, batch_size)
        self._start, self._stop = 0, 0
        self._known: list[Num[np.ndarray, "B F"]] = []

    def of(self, graphs: slice) -> list[Num[np.ndarray, "B F"]]:
        """Return the features of a range, which follows the one before: an array for each name."""
        if self._names and graphs.stop > self._stop:
            self._start = graphs.start
            self._stop = min(graphs.start + self._at_once, len(self._store))
            part = self._store.subset(np.arange(self._start, self._stop))
            domain = domain_of(part.schema)
            self._known = [domain.feature_set(name, part).values for name in self._names]
        return [v[graphs.start - self._start : graphs.stop - self._start] for v in self._known]


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """A linear model of one set of features; a probe averages the predictions of several."""

    features: str
    """Their name in the domain: ``ecfp4``, ``descriptors``, ``statistics``; empty for the embedding
    of an encoder."""
    fit: LinearFit
    scaling: Scaling | None
    """None for features of 0 and 1, which stay as they are."""
    c: float = math.nan
    """The inverse penalty that it was fitted with; NaN if read from a file."""

    def predictions(
        self, values: Num[np.ndarray, "M F"], task: TaskKind
    ) -> Float[np.ndarray, "M T"]:
        """Return probabilities (classification) or values (regression), one row a graph."""
        inputs = sparse_bits(values) if self.scaling is None else self.scaling(values)
        return linear_predictions(inputs, self.fit, task)

    def tensors(self) -> dict[str, Tensor]:
        """Return what :meth:`of` makes it of again."""
        arrays = {"weight": self.fit.weight, "bias": self.fit.bias}
        if self.scaling is not None:
            arrays |= {"mean": self.scaling.mean, "deviation": self.scaling.deviation}
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}

    @classmethod
    def of(
        cls, features: str, tensors: Mapping[str, Tensor], columns: int, targets: int
    ) -> "LinearModel":
        """Return the model that :meth:`tensors` describes.

        Args:
            features: Their name.
            tensors: Of a file.
            columns: How many the features have.
            targets: How many are predicted.

        Raises:
            ValueError: If some are missing or have another shape.
        """
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        wanted: dict[str, tuple[int, ...]] = {"weight": (columns, targets), "bias": (targets,)}
        if shapes.keys() - wanted:
            wanted |= {"mean": (columns,), "deviation": (columns,)}
        if shapes != wanted:
            raise ValueError(f"the model of {features} has {shapes}, not {wanted}")
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        scaling = Scaling(arrays["mean"], arrays["deviation"]) if "mean" in arrays else None
        return cls(features, LinearFit(arrays["weight"], arrays["bias"]), scaling)
