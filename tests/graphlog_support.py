"""Small graphs, forests and encoders for the tests of GraphLoG's parts."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import Attribute, FeatureSchema
from graphlog.encoders.base import EncoderConfig
from graphlog.encoders.encoder import GraphEncoder, build_encoder
from graphlog.prototypes.chains import PrototypeForest

NODE_MASKED = FeatureSchema(
    name="atoms",
    domain="molecule",
    node=(Attribute("kind", 120), Attribute("hand", 5)),
    edge=(Attribute("bond", 7), Attribute("direction", 4)),
    masked="node",
    node_mask=(119, 4),
    edge_mask=(5, 0),
    self_loop=(4, 0),
)
EDGE_MASKED = FeatureSchema(
    name="channels",
    domain="protein",
    node=(Attribute("protein", 2),),
    edge=(Attribute("a", 0), Attribute("b", 0), Attribute("loop", 0), Attribute("mask", 0)),
    masked="edge",
    edge_mask=(0.0, 0.0, 0.0, 1.0),
    self_loop=(0.0, 0.0, 1.0, 0.0),
)


def seeded(seed: int = 0) -> torch.Generator:
    """Return a generator with this seed."""
    return torch.Generator().manual_seed(seed)


def offsets(sizes: Sequence[int]) -> Tensor:
    """Return the node ranges of graphs of these sizes."""
    return torch.tensor([0, *sizes]).cumsum(0)


def random_batch(
    sizes: Sequence[int], seed: int = 0, schema: FeatureSchema = NODE_MASKED
) -> GraphBatch:
    """Return one connected random graph of each size.

    A path with a few extra edges, both directions side by side.
    """
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
        x = torch.stack(
            [
                torch.randint(6, (int(ptr[-1]),), generator=generator),
                torch.zeros(int(ptr[-1]), dtype=torch.long),
            ],
            dim=1,
        )
        kinds = torch.randint(4, (len(pairs), 1), generator=generator).repeat_interleave(2, dim=0)
        edge_attr = torch.cat([kinds, torch.zeros_like(kinds)], dim=1)
    else:
        x = torch.ones(int(ptr[-1]), 1, dtype=torch.long)
        channels = torch.randint(2, (len(pairs), 2), generator=generator).float()
        edge_attr = torch.cat([channels, torch.zeros(len(pairs), 2)], dim=1).repeat_interleave(
            2, dim=0
        )
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
    """Return every root-to-leaf chain."""
    chains = torch.arange(forest.sizes[-1])[:, None]
    for level in range(forest.depth - 1, 0, -1):
        chains = torch.cat([forest.parent(level)[chains[:, :1]], chains], dim=1)
    return chains


def small_encoder(
    schema: FeatureSchema = NODE_MASKED, dim: int = 16, seed: int = 0
) -> GraphEncoder:
    """Return a two-layer encoder."""
    return build_encoder(EncoderConfig(backbone="gin", layers=2, dim=dim), schema, seed)
