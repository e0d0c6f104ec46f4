"""What the fine-tuned models of several seeds predict, batch by batch."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.store import GraphStore
from graphlog.downstream.encoder import each_batch, evaluating
from graphlog.downstream.head import FineTuned
from graphlog.encoders.encoder import EmbeddingLayer
from graphlog.encoders.novelty import Novelty
from graphlog.training.log import Progress, Silent
from graphlog.training.precision import NumberFormat, Precision, inference_precision


class Found(NamedTuple):
    """What the members say of a batch of graphs."""

    mean: Float[np.ndarray, "B T"]
    std: Float[np.ndarray, "B T"] | None
    """None for a single member."""
    novelty: Float[np.ndarray, "B"] | None


def predict_graphs(members: Sequence[FineTuned], store: GraphStore) -> Float[np.ndarray, "M T"]:
    """Return the members' mean prediction for every graph of ``store``."""
    predictions = np.empty((len(store), members[0].head.linear.out_features))
    for graphs, found in member_batches(members, store, 512, "fp32", Silent()):
        predictions[graphs] = found.mean
    return predictions


def member_batches(
    members: Sequence[FineTuned],
    store: GraphStore,
    batch_size: int,
    precision: Precision,
    bar: Progress,
    novelty: Novelty | None = None,
) -> Iterator[tuple[slice, Found]]:
    """Yield what the members predict of consecutive graphs: the range and its rows."""
    device = next(members[0].parameters()).device
    number_format = inference_precision(precision, device, bar.say)
    work = partial(predict_batch, members, number_format, novelty)
    yield from each_batch(work, store, batch_size, bar, "predicting")


def predict_batch(
    members: Sequence[FineTuned],
    precision: NumberFormat,
    novelty: Novelty | None,
    batch: GraphBatch,
) -> Found:
    """Return what the members predict of a batch, and how unusual the first finds its graphs."""
    first = members[0]
    batch = batch.to(next(first.parameters()).device)
    with torch.inference_mode():
        seen = [_embedded(m, batch, precision) for m in members]
        values = torch.stack(
            [m.head.predictions(m.head(e)) for m, e in zip(members, seen, strict=True)]
        )
        percentiles = None
        if novelty is not None:
            jk = seen[0] if first.layer == "jk" else _embedded(first, batch, precision, "jk")
            percentiles = novelty.percentiles(novelty.distances(jk.cpu().numpy()))
        std = values.std(0).cpu().numpy() if len(members) > 1 else None
        return Found(values.mean(0).cpu().numpy(), std, percentiles)


def _embedded(
    member: FineTuned,
    batch: GraphBatch,
    precision: NumberFormat,
    layer: EmbeddingLayer | None = None,
) -> Tensor:
    with evaluating(member):
        return member.embed(batch, precision, layer)
