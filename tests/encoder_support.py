"""Batches and schemas for the tests of encoders, and the recorded ones of the published family."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import Attribute, FeatureSchema
from graphlog.encoders.legacy import MOLECULE, PROTEIN

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


def attributes(columns: tuple[Attribute, ...], rows: int, generator: torch.Generator) -> Tensor:
    """Random codes and numbers of these columns."""
    drawn = [
        torch.randint(c.cardinality, (rows,), generator=generator)
        if c.is_categorical
        else torch.randn(rows, generator=generator)
        for c in columns
    ]
    whole = all(c.is_categorical for c in columns)
    return (
        torch.stack([d if whole else d.float() for d in drawn], dim=1)
        if drawn
        else torch.zeros(rows, 0, dtype=torch.int64)
    )


def random_batch(
    schema: FeatureSchema, sizes: list[int], seed: int = 0, bonds_per_node: float = 1.2
) -> GraphBatch:
    """Random graphs of these sizes, every bond in both directions with equal attributes."""
    generator = torch.Generator().manual_seed(seed)
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    ends = []
    for start, size in zip(ptr[:-1].tolist(), sizes, strict=True):
        pair = torch.randint(size, (2, round(size * bonds_per_node)), generator=generator)
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


def golden_batch(golden: Path, family: str) -> GraphBatch:
    """The recorded batch of ``chem`` or ``bio``."""
    with np.load(golden / f"{family}_batch.npz") as arrays:
        batch = torch.from_numpy(arrays["batch"].astype(np.int64))
        edge_attr = torch.from_numpy(
            arrays["edge_attr"].astype(np.int64 if family == "chem" else np.float32)
        )
        return GraphBatch(
            x=torch.from_numpy(arrays["x"].astype(np.int64)),
            edge_index=torch.from_numpy(arrays["edge_index"].astype(np.int64)),
            edge_attr=edge_attr,
            batch=batch,
            ptr=torch.cat([torch.zeros(1, dtype=torch.int64), batch.bincount().cumsum(0)]),
        )
