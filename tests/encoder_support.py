"""Small graphs, forests, encoders and objectives: what tests of networks and losses share."""

import runpy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphlog.data.graphs import Attribute, FeatureSchema
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import EncoderConfig, GraphEncoder, build_encoder
from graphlog.encoders.legacy import MOLECULE, PROTEIN, encoder_from_weights
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import COMPONENTS, LossTerms, Objective, target_count
from graphlog.prototypes import PrototypeForest
from house_support import ROOT

NODE_MASKED = MOLECULE
EDGE_MASKED = FeatureSchema(
    name="channels",
    domain="protein",
    node=(Attribute("protein", 2),),
    edge=(Attribute("a", 0), Attribute("b", 0), Attribute("loop", 0), Attribute("mask", 0)),
    masked="edge",
    edge_mask=(0.0, 0.0, 0.0, 1.0),
    self_loop=(0.0, 0.0, 1.0, 0.0),
)
MIXED = FeatureSchema(
    name="mixed",
    domain="graph",
    node=(Attribute("mass", 0), Attribute("kind", 3)),
    edge=(Attribute("kind", 4), Attribute("length", 0)),
    masked="node",
    self_loop=(3.0, 0.0),
)
BARE = FeatureSchema(
    name="bare", domain="graph", node=(Attribute("kind", 3),), edge=(), masked="node"
)
SCHEMAS = {"molecule": MOLECULE, "protein": PROTEIN, "mixed": MIXED, "bare": BARE}
SIZES = [9, 1, 14, 2, 11, 20, 3, 16]
"""A graph without edges, one with a single edge, a few large enough for a ring."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def offsets(sizes: Sequence[int]) -> Tensor:
    """Return the node ranges of graphs of these sizes."""
    return torch.tensor([0, *sizes]).cumsum(0)


def random_batch(
    sizes: Sequence[int], seed: int = 0, schema: FeatureSchema = NODE_MASKED
) -> GraphBatch:
    """Return a random graph of each size: a path and a few more edges, both directions adjacent."""
    generator, ptr = seeded(seed), offsets(sizes)
    pairs: list[tuple[int, int]] = []
    for start, end in pairwise(ptr.tolist()):
        pairs += list(pairwise(range(start, end)))
        for _ in range((end - start) // 3):
            a, b = (start + int(v) for v in torch.randint(end - start, (2,), generator=generator))
            if a != b and (a, b) not in pairs and (b, a) not in pairs:
                pairs.append((a, b))
    edges = [e for a, b in pairs for e in ((a, b), (b, a))]
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T.contiguous()
    if schema.masked == "node":
        kinds = torch.randint(6, (int(ptr[-1]),), generator=generator)
        x = torch.stack([kinds, torch.zeros_like(kinds)], dim=1)
        kinds = torch.randint(4, (len(pairs), 1), generator=generator).repeat_interleave(2, dim=0)
        edge_attr = torch.cat([kinds, torch.zeros_like(kinds)], dim=1)
    else:
        x = torch.ones(int(ptr[-1]), 1, dtype=torch.long)
        channels = torch.randint(2, (len(pairs), 2), generator=generator).float()
        rows = torch.cat([channels, torch.zeros_like(channels)], dim=1)
        edge_attr = rows.repeat_interleave(2, dim=0)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return GraphBatch(x, edge_index, edge_attr, batch, ptr)


def random_forest(
    sizes: Sequence[int], dim: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> PrototypeForest:
    """Return a forest of random vectors with layers of these sizes; every parent has a child."""
    generator = seeded(seed)
    layers = [torch.randn(n, dim, generator=generator, dtype=dtype) for n in sizes]
    parents = [
        torch.cat([torch.arange(a), torch.randint(a, (b - a,), generator=generator)])
        for a, b in pairwise(sizes)
    ]
    return PrototypeForest(layers, parents)


def all_chains(forest: PrototypeForest) -> Tensor:
    chains = torch.arange(forest.sizes[-1])[:, None]
    for level in range(forest.depth - 1, 0, -1):
        chains = torch.cat([forest.parents[level - 1][chains[:, :1]], chains], dim=1)
    return chains


def attributes(columns: tuple[Attribute, ...], rows: int, generator: torch.Generator) -> Tensor:
    drawn = [
        torch.randint(c.cardinality, (rows,), generator=generator)
        if c.is_categorical
        else torch.randn(rows, generator=generator)
        for c in columns
    ]
    if not drawn:
        return torch.zeros(rows, 0, dtype=torch.int64)
    whole = all(c.is_categorical for c in columns)
    return torch.stack([d if whole else d.float() for d in drawn], dim=1)


def random_multigraphs(schema: FeatureSchema, sizes: list[int], seed: int = 0) -> GraphBatch:
    """Random graphs of these sizes, every bond in both directions with equal attributes."""
    generator, ptr, ends = seeded(seed), offsets(sizes), []
    for start, size in zip(ptr[:-1].tolist(), sizes, strict=True):
        pair = torch.randint(size, (2, round(1.2 * size)), generator=generator)
        ends.append(start + pair[:, pair[0] != pair[1]])
    bonds = torch.cat(ends, dim=1)
    both = torch.stack([bonds, bonds.flip(0)], dim=2).flatten(1)
    return GraphBatch(
        x=attributes(schema.node, int(ptr[-1]), generator),
        edge_index=both,
        edge_attr=attributes(schema.edge, bonds.shape[1], generator).repeat_interleave(2, dim=0),
        batch=torch.repeat_interleave(torch.arange(len(sizes)), ptr.diff()),
        ptr=ptr,
    )


def golden_encoder(arrays: Mapping[str, np.ndarray], backbone: str = "gin") -> GraphEncoder:
    """The encoder whose weights a recording holds."""
    names = [name for name in arrays if name.startswith("weight/")]
    weights = {name.removeprefix("weight/"): torch.from_numpy(arrays[name]) for name in names}
    return encoder_from_weights(weights, backbone)


def golden_batch(golden: Path, family: str) -> GraphBatch:
    """The recorded batch of ``chem`` or ``bio``."""
    with np.load(golden / f"{family}_batch.npz") as arrays:
        whole = ("x", "edge_index", "batch", *(["edge_attr"] if family == "chem" else []))
        names = ("x", "edge_index", "edge_attr", "batch")
        x, edge_index, edge_attr, batch = (
            torch.from_numpy(arrays[n].astype(np.int64 if n in whole else np.float32))
            for n in names
        )
    ptr = torch.cat([batch.new_zeros(1), batch.bincount().cumsum(0)])
    return GraphBatch(x, edge_index, edge_attr, batch, ptr)


def encoder_for(
    schema: FeatureSchema = NODE_MASKED, backbone: str = "gin", dim: int = 12, **settings: Any
) -> GraphEncoder:
    return build_encoder(
        EncoderConfig.parse({"backbone": backbone, "layers": 2, "dim": dim, **settings}), schema, 0
    )


def small_encoder(schema: FeatureSchema = NODE_MASKED) -> GraphEncoder:
    return encoder_for(schema, dim=16)


def make(name: str, encoder: GraphEncoder, **options: Any) -> Objective[Any]:
    """Return the objective of this name, or ``name/recipe``, with reproducible weights."""
    name, _, recipe = name.partition("/")
    kind = OBJECTIVES[name]
    bundle = kind.RECIPES[recipe]["objective"] if recipe else {}
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(1)
        return kind(kind.Config.parse({**bundle, **options}), encoder)


def batch_for(
    schema: FeatureSchema = NODE_MASKED,
    sizes: list[int] = SIZES,
    seed: int = 0,
    substructures: bool = False,
) -> GraphBatch:
    """Return random connected graphs; of molecules and proteins, with random targets."""
    if schema.domain == "graph":
        return random_multigraphs(schema, sizes, seed)
    width = target_count(schema) + substructures * COMPONENTS
    targets = torch.randn(len(sizes), width, generator=seeded(seed))
    return replace(random_batch(sizes, seed, schema), y=targets)


def with_edges(batch: GraphBatch, rows: Sequence[int] | Tensor) -> GraphBatch:
    """Return a batch with the edges of these rows alone, in their order."""
    edge_index, edge_attr = batch.edge_index[:, rows], batch.edge_attr[rows]
    return GraphBatch(batch.x, edge_index, edge_attr, batch.batch, batch.ptr, batch.y)


def one_way(batch: GraphBatch) -> GraphBatch:
    """Return a batch with one direction of every edge."""
    return with_edges(batch, range(0, batch.num_edges, 2))


def begin_last_phase(objective: Objective[Any], encoder: GraphEncoder) -> None:
    """Go through ``begin_phase`` of every phase, as a run does; parameters may be created there."""
    graphs = torch.randn(40, encoder.dim, generator=seeded(6))
    for phase in objective.phases(5):
        objective.begin_phase(phase, lambda limit, calibrated: graphs[:limit], seeded(7))


def run_once(
    objective: Objective[Any], encoder: GraphEncoder, batch: GraphBatch, seed: int = 0
) -> LossTerms:
    return objective.loss(objective.views(batch, seeded(seed)), encoder, seeded(seed + 1))


def usable(name: str, schema: FeatureSchema) -> bool:
    """Whether the objective can serve graphs of this schema."""
    try:
        make(name, encoder_for(schema))
    except ConfigError:
        return False
    return True


def edges_of(batch: GraphBatch) -> set[tuple[int, int]]:
    return set(map(tuple, batch.edge_index.T.tolist()))


def close(found: Tensor, wanted: float | Tensor, tolerance: float = 1e-10) -> bool:
    return abs(float(found) - float(wanted)) <= tolerance


DegreePred: type[Objective[Any]] = runpy.run_path(
    str(ROOT / "examples/plugin/src/graphlog_example/degreepred.py")
)["DegreePred"]
"""A pretext task that the package does not know."""


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """Eq. 5, of two vectors."""
    return x @ y / (x.norm() * y.norm())


def slow_energy(h: Tensor, chain: list[int], forest: PrototypeForest) -> Tensor:
    """Eq. 18, one pair at a time."""
    z = [layer[c] for layer, c in zip(forest.layers, chain, strict=True)]
    return sum(cosine(h, c) for c in z) + sum(cosine(a, b) for a, b in pairwise(z))
