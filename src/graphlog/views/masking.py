"""Attribute masking: the correlated counterpart of each graph (Eq. 5, appendix B)."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.errors import ConfigError

MaskedColumns = Literal["all", "first"]


class MaskedView(NamedTuple):
    """A batch with some attributes hidden; topology and adjacency are those of the original."""

    batch: GraphBatch
    """The graphs with masked attributes."""
    node_idx: Int[Tensor, "A"]
    """Nodes concerned, ascending: the masked nodes, or where edges are masked the nodes that touch a masked edge."""
    edge_idx: Int[Tensor, "B"]
    """Masked directed edges, ascending (both directions of each); empty where nodes are masked."""


def mask_attributes(
    batch: GraphBatch,
    schema: FeatureSchema,
    rate: float,
    generator: torch.Generator,
    columns: MaskedColumns = "all",
) -> MaskedView:
    r"""Return the correlated view :math:`\mathcal G'` of every graph, by masking nodes or edges as the schema says.

    Implements the corruption of Eq. 5 and appendix B: in each graph exactly ``int(rate * n + 1)`` of its ``n`` nodes (molecules), or of its
    ``n`` undirected edges (proteins; both directions together, parallel edges count as one), drawn without replacement; a graph without
    edges keeps its attributes. The counts are those of the authors' script: at least one node is always masked.

    Args:
        batch: Clean graphs :math:`\mathcal G`.
        schema: Says what is masked and which row stands for "masked".
        rate: Share to mask, in [0, 1).
        generator: Source of randomness.
        columns: ``"all"`` writes the whole mask row (the paper); ``"first"`` writes the mask code in its first column and 0 in the others,
            as the authors' script does (atom type 119, chirality 0).

    Raises:
        ConfigError: If the schema has no row for "masked", or ``rate`` is out of range.
    """
    if not 0.0 <= rate < 1.0:
        raise ConfigError(f"`mask_rate` must be in [0, 1), found {rate}.")
    row = mask_row(schema, columns)
    if schema.masked == "node":
        chosen = _draw_per_group(batch.ptr, rate, generator, batch.x.device)
        masked = batch.with_attributes(x=_overwrite(batch.x, chosen, row))
        return MaskedView(masked, chosen, chosen.new_empty(0))
    pair, pair_graph = undirected_pairs(batch)
    per_graph = torch.bincount(pair_graph, minlength=batch.num_graphs)
    ptr = torch.cat([per_graph.new_zeros(1), per_graph.cumsum(0)])
    # pairs are numbered as they come; the draw needs them sorted by graph
    by_graph = torch.argsort(pair_graph, stable=True)
    is_masked = torch.zeros_like(pair_graph, dtype=torch.bool)
    is_masked[by_graph[_draw_per_group(ptr, rate, generator, pair.device)]] = True
    edge_idx = is_masked[pair].nonzero().squeeze(1)
    touched = torch.zeros(batch.num_nodes, dtype=torch.bool, device=pair.device)
    touched[batch.edge_index[:, edge_idx].reshape(-1)] = True
    masked = batch.with_attributes(edge_attr=_overwrite(batch.edge_attr, edge_idx, row))
    return MaskedView(masked, touched.nonzero().squeeze(1), edge_idx)


def mask_row(schema: FeatureSchema, columns: MaskedColumns = "all") -> tuple[float, ...]:
    """Return the attribute row that stands for "masked" under this schema.

    Raises:
        ConfigError: If the schema has none.
    """
    row = schema.node_mask if schema.masked == "node" else schema.edge_mask
    if row is None:
        raise ConfigError(
            f"schema '{schema.name}' has no `{schema.masked}_mask` row, which masking its {schema.masked}s needs."
        )
    if columns == "all":
        return row
    mark = next(
        k for k, value in enumerate(row) if value
    )  # atoms: their first column; edges of proteins: the mask channel, the last
    return tuple(value if k == mark else 0.0 for k, value in enumerate(row))


def num_masked(sizes: Int[Tensor, "N"], rate: float) -> Int[Tensor, "N"]:
    """Return ``int(rate * n + 1)`` for every size ``n``, and 0 for an empty one.

    Example:
        >>> num_masked(torch.tensor([0, 1, 10]), 0.3)
        tensor([0, 1, 4])
    """
    return torch.minimum((sizes.double() * rate + 1.0).long(), sizes)


def undirected_pairs(batch: GraphBatch) -> tuple[Int[Tensor, "E"], Int[Tensor, "U"]]:
    """Return the undirected edge each directed edge belongs to, and the graph of each undirected edge.

    Batches from a store hold the two directions side by side; any other order costs one sort.
    """
    source, target = batch.edge_index[0], batch.edge_index[1]
    num_edges = batch.num_edges
    if num_edges % 2 == 0 and bool(
        (source[0::2] == target[1::2]).all() and (target[0::2] == source[1::2]).all()
    ):
        return torch.arange(num_edges, device=source.device) // 2, batch.batch[source[0::2]]
    key = torch.minimum(source, target) * batch.num_nodes + torch.maximum(source, target)
    unique, pair = torch.unique(key, return_inverse=True)
    return pair, batch.batch[unique // batch.num_nodes]


def _draw_per_group(
    ptr: Tensor, rate: float, generator: torch.Generator, device: torch.device
) -> Tensor:
    """Return positions drawn without replacement in every range of ``ptr``, ascending: random keys, ranked within groups."""
    sizes = ptr[1:] - ptr[:-1]
    group = torch.repeat_interleave(torch.arange(sizes.shape[0], device=device), sizes)
    keys = torch.rand(
        group.shape[0], generator=generator, device=generator.device, dtype=torch.float64
    ).to(device)
    order = torch.argsort(
        group + 0.5 * keys
    )  # halved: rounding never lifts a key into the next group
    rank = torch.arange(group.shape[0], device=device) - ptr[:-1][group]
    return order[rank < num_masked(sizes, rate)[group]].sort().values


def _overwrite(attributes: Tensor, rows: Tensor, row: tuple[float, ...]) -> Tensor:
    changed = attributes.clone()
    changed[rows] = torch.tensor(row, dtype=attributes.dtype, device=attributes.device)
    return changed
