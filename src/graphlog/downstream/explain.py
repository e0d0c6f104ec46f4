"""Which nodes a prediction rests on: how it changes when the attributes of one are hidden."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore
from graphlog.downstream.predictor import Predictor
from graphlog.errors import ConfigError
from graphlog.training.log import Progress, as_progress
from graphlog.training.precision import Precision, inference_precision
from graphlog.views.masking import mask_edges_around, overwritten

_NODES_AT_ONCE = 50_000
"""Nodes of a batch of copies, so that a large graph takes no more memory than many small ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """What every node of some graphs contributes to their predictions."""

    values: Float[np.ndarray, "V T"]
    """Prediction less that with the node hidden, for each target: above 0 where the node raises it,
    in probabilities or in units of the labels."""
    ptr: Int[np.ndarray, "N1"]
    """Graph ``k`` has the nodes ``ptr[k]`` up to ``ptr[k + 1]``."""
    predictions: Float[np.ndarray, "N T"]
    """Of the graphs as they are: means over seeds."""

    def of(self, graph: int) -> Float[np.ndarray, "v T"]:
        """Return the contributions of the nodes of one graph."""
        return self.values[self.ptr[graph] : self.ptr[graph + 1]]


def attribute(
    predictor: Predictor,
    store: GraphStore,
    batch_size: int = 512,
    *,
    precision: Precision = "fp32",
    progress: Progress | bool | None = None,
) -> Attribution:
    """Return how the predictions change when the attributes of one node are hidden.

    Occlusion: for each node a copy of its graph in which the node has the attributes that stand for
    "masked", which the encoder may have met in pre-training; where nodes have no such attributes
    (proteins), the edges at the node are masked. Contributions need not sum to the prediction.
    Nodes are hidden from encoders alone; features that a probe joined stay as they are.

    Args:
        predictor: What predicts.
        store: The graphs; the work grows with the sum of the squares of their sizes.
        batch_size: Graphs or copies per forward pass; fewer where they have many nodes.
        precision: Format of matrix products.
        progress: Follows the nodes.

    Raises:
        ConfigError: If neither nodes nor edges of this schema can be masked.
    """
    schema, sizes = predictor.schema, np.asarray(store.num_nodes, dtype=np.int64)
    if schema.node_mask is None and schema.edge_mask is None:
        raise ConfigError(
            f"schema '{schema.name}' has no attributes that stand for masked, so predictions "
            "cannot be explained; fine-tune a model of a schema that has."
        )
    bar = as_progress(progress)
    device = next(predictor.members[0].parameters()).device
    number_format = inference_precision(precision, device, bar.say)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    graph = np.repeat(np.arange(len(store)), sizes)
    place = np.arange(len(graph)) - ptr[graph]
    whole = np.empty((len(store), len(predictor.targets)))
    hidden = np.empty((len(graph), len(predictor.targets)))
    features = predictor.features_of(store)
    with bar.shown(len(graph), "explaining"):
        for part in _parts(sizes, batch_size):
            batch = store[part].to(device)
            own = [values[part] for values in features]  # pyright: ignore[reportIndexIssue]
            whole[part] = predictor.predict_batch(batch, own, number_format)
        for part in _parts(sizes[graph], batch_size):
            batch = store.take(graph[part]).to(device)
            nodes = batch.ptr[:-1] + torch.from_numpy(place[part]).to(device)
            batch = _hide(batch, schema, nodes)
            own = [values[graph[part]] for values in features]  # pyright: ignore[reportIndexIssue]
            hidden[part] = predictor.predict_batch(batch, own, number_format)
            bar.advance(part.stop - part.start)
    return Attribution(whole[graph] - hidden, ptr, whole)


def _parts(sizes: Int[np.ndarray, "C"], batch_size: int) -> Iterator[slice]:
    """Yield ranges of graphs for one forward pass each."""
    filled, number = np.cumsum(sizes) // _NODES_AT_ONCE, np.arange(len(sizes)) // batch_size
    starts = np.flatnonzero((np.diff(filled, prepend=-1) > 0) | (np.diff(number, prepend=-1) > 0))
    for start, stop in pairwise([*starts.tolist(), len(sizes)]):
        yield slice(start, stop)


def _hide(batch: GraphBatch, schema: FeatureSchema, nodes: Int[torch.Tensor, "C"]) -> GraphBatch:
    if schema.node_mask is None:
        return mask_edges_around(batch, schema, nodes)[0]
    return batch.with_attributes(x=overwritten(batch.x, nodes, schema.node_mask))
