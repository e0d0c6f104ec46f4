"""Attribute masking: the correlated counterpart of each graph (Eq. 5, appendix B)."""

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.errors import ConfigError
from graphlog.views.sampling import choose_rows, choose_unsorted, true_rows, undirected_pairs

MaskedColumns = Literal["all", "first"]


class MaskedView(NamedTuple):
    """A batch with some attributes hidden; topology and adjacency are those of the original."""

    batch: GraphBatch
    """The graphs with masked attributes."""
    node_idx: Int[Tensor, "A"]
    """Nodes concerned, ascending: the masked nodes, or where edges are masked the nodes that
    touch a masked edge."""
    edge_idx: Int[Tensor, "B"]
    """Masked directed edges, ascending (both directions of each); empty where nodes are masked."""
    clean: GraphBatch
    """The graphs before."""


def mask_attributes(
    batch: GraphBatch,
    schema: FeatureSchema,
    rate: float | Float[Tensor, "N"],
    generator: torch.Generator,
    columns: MaskedColumns = "all",
) -> MaskedView:
    r"""Return the correlated view :math:`\mathcal G'` of every graph: masked nodes or edges.

    Implements the corruption of Eq. 5 and appendix B: in each graph exactly ``int(rate * n + 1)``
    of its ``n`` nodes (molecules), or of its ``n`` undirected edges (proteins; both directions
    together), drawn without replacement; a graph without edges keeps its attributes. Parallel edges
    count one by one where directions stand side by side, as in batches from an undirected store,
    else as one. The counts are those of the authors' script: at least one node is always masked.

    Args:
        batch: Clean graphs :math:`\mathcal G`.
        schema: Says what is masked and which row stands for "masked".
        rate: Share to mask, in [0, 1); one for all graphs, or one each.
        generator: Source of randomness.
        columns: ``"all"`` writes the whole mask row (the paper); ``"first"`` writes the mask code
            in its first column and 0 in the others, as the authors' script does (atom type 119,
            chirality 0).

    Raises:
        ConfigError: If the schema has no row for "masked".
    """
    row = mask_row(schema, columns)
    if schema.masked == "node":
        counts = num_masked(batch.sizes, rate)
        is_chosen = choose_rows(batch.batch, batch.ptr, counts, generator)
        known = isinstance(rate, float)
        total = int(num_masked(batch.host_ptr.diff(), rate).sum()) if known else None
        chosen = true_rows(is_chosen, total)
        masked = batch.with_attributes(x=overwritten(batch.x, chosen, row))
        return MaskedView(masked, chosen, chosen.new_empty(0), batch)
    pair, pair_graph = undirected_pairs(batch)
    counts = num_masked(torch.bincount(pair_graph, minlength=batch.num_graphs), rate)
    is_masked = choose_unsorted(pair_graph, counts, generator)
    edge_idx = is_masked[pair].nonzero().squeeze(1)
    touched = torch.zeros(batch.num_nodes, dtype=torch.bool, device=pair.device)
    touched[batch.edge_index[:, edge_idx].reshape(-1)] = True
    masked = batch.with_attributes(edge_attr=overwritten(batch.edge_attr, edge_idx, row))
    return MaskedView(masked, touched.nonzero().squeeze(1), edge_idx, batch)


def mask_edges_around(
    batch: GraphBatch, schema: FeatureSchema, nodes: Int[Tensor, "A"]
) -> tuple[GraphBatch, Int[Tensor, "B"]]:
    """Return the batch with every edge at one of ``nodes`` masked, and the indices of those edges.

    Args:
        batch: Graphs, their nodes masked already or not.
        schema: Says which row stands for a masked edge.
        nodes: The masked nodes.

    Raises:
        ConfigError: If the schema has no such row.
    """
    inside = torch.zeros(batch.num_nodes, dtype=torch.bool, device=nodes.device)
    inside[nodes] = True
    chosen = inside[batch.edge_index].any(dim=0).nonzero().squeeze(1)
    row = mask_row(replace(schema, masked="edge"))
    return batch.with_attributes(edge_attr=overwritten(batch.edge_attr, chosen, row)), chosen


def mask_row(schema: FeatureSchema, columns: MaskedColumns = "all") -> tuple[float, ...]:
    """Return the attribute row that stands for "masked" under this schema.

    Raises:
        ConfigError: If the schema has none.
    """
    row = schema.node_mask if schema.masked == "node" else schema.edge_mask
    if row is None:
        raise ConfigError(
            f"schema '{schema.name}' has no `{schema.masked}_mask` row,"
            f" which masking its {schema.masked}s needs."
        )
    if columns == "all":
        return row
    # atoms: their first column; edges of proteins: the mask channel, the last
    mark = next(k for k, value in enumerate(row) if value)
    return tuple(value if k == mark else 0.0 for k, value in enumerate(row))


def num_masked(sizes: Int[Tensor, "N"], rate: float | Float[Tensor, "N"]) -> Int[Tensor, "N"]:
    """Return ``int(rate * n + 1)`` for every size ``n``, and 0 for an empty one.

    Example:
        >>> num_masked(torch.tensor([0, 1, 10]), 0.3)
        tensor([0, 1, 4])
    """
    return torch.minimum((sizes.double() * rate + 1.0).long(), sizes)


def overwritten(
    attributes: Shaped[Tensor, "R F"], rows: Int[Tensor, "C"], row: tuple[float, ...]
) -> Shaped[Tensor, "R F"]:
    """Return a copy of the attributes in which some rows are ``row``."""
    changed = attributes.clone()
    changed[rows] = torch.tensor(row, dtype=attributes.dtype, device=attributes.device)
    return changed
