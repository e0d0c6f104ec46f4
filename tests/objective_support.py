"""Objectives on small batches: what their tests share."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import encoder_support
from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.encoders.base import EncoderConfig
from graphlog.encoders.encoder import GraphEncoder, build_encoder
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import LossTerms, Objective
from graphlog.objectives.heads import target_count
from graphlog_support import EDGE_MASKED, NODE_MASKED, random_batch, seeded

SIZES = [9, 1, 14, 2, 11, 20, 3, 16]
"""A graph without edges, one with a single edge, a few large enough for a ring."""


def encoder_for(
    schema: FeatureSchema = NODE_MASKED, backbone: str = "gin", dim: int = 12, **settings: Any
) -> GraphEncoder:
    """Return a small encoder."""
    return build_encoder(
        EncoderConfig.parse({"backbone": backbone, "layers": 2, "dim": dim, **settings}), schema, 0
    )


def make(name: str, encoder: GraphEncoder, **options: Any) -> Objective[Any]:
    """Return the objective of this name, or ``name/recipe``, with reproducible weights."""
    name, _, recipe = name.partition("/")
    kind = OBJECTIVES[name]
    bundle = kind.RECIPES[recipe]["objective"] if recipe else {}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return kind(kind.Config.parse({**bundle, **options}), encoder)


def batch_for(
    schema: FeatureSchema = NODE_MASKED, sizes: list[int] = SIZES, seed: int = 0
) -> GraphBatch:
    """Return random connected graphs; of molecules and proteins, with random targets."""
    if schema.domain == "graph":
        return encoder_support.random_batch(schema, sizes, seed)
    batch = random_batch(sizes, seed, schema)
    return replace(
        batch, y=torch.randn(batch.num_graphs, target_count(schema, None), generator=seeded(seed))
    )


def one_way(batch: GraphBatch, both: int = 0) -> GraphBatch:
    """Return a batch with one direction of every edge, both of those in its first rows."""
    rows = [*range(both), *range(both, batch.num_edges, 2)]
    return GraphBatch(
        batch.x, batch.edge_index[:, rows], batch.edge_attr[rows], batch.batch, batch.ptr, batch.y
    )


def run_once(
    objective: Objective[Any], encoder: GraphEncoder, batch: GraphBatch, seed: int = 0
) -> LossTerms:
    """Return the losses on one batch."""
    return objective.loss(objective.views(batch, seeded(seed)), encoder, seeded(seed + 1))


def usable(name: str, schema: FeatureSchema) -> bool:
    """Whether the objective can serve graphs of this schema."""
    from graphlog.errors import ConfigError

    try:
        make(name, encoder_for(schema))
    except ConfigError:
        return False
    return True


def double(objective: Objective[Any], encoder: GraphEncoder) -> None:
    """Compute in float64, without dropout or batch statistics."""
    objective.double().eval()
    encoder.double().eval()


def edges_of(batch: GraphBatch) -> set[tuple[int, int]]:
    """Return the directed edges."""
    return set(map(tuple, batch.edge_index.T.tolist()))


def close(found: Tensor, wanted: float | Tensor, tolerance: float = 1e-10) -> bool:
    """Whether two scalars agree."""
    return abs(float(found) - float(wanted)) <= tolerance


__all__ = [
    "EDGE_MASKED",
    "NODE_MASKED",
    "SIZES",
    "batch_for",
    "close",
    "double",
    "edges_of",
    "encoder_for",
    "make",
    "run_once",
    "seeded",
    "usable",
]
