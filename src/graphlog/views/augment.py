"""Corrupted graphs: masked attributes (Eq. 5, appendix B), perturbations of GraphCL.

Functions change all graphs of a batch at the same time. GraphCL (You et al., 2020) draws one
perturbation for each graph.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from pydantic import Field
from torch import Generator, Tensor

from graphlog.config import FrozenConfig
from graphlog.data.graphs import FeatureSchema, MaskedColumns
from graphlog.data.store import GraphBatch
from graphlog.ops.sparse import segment_max
from graphlog.views.sampling import (
    choose_rows,
    choose_unsorted,
    induced_part,
    random_integers,
    random_nodes,
    true_rows,
    undirected_pairs,
    uniform,
)

Augmentation = Literal["none", "drop-nodes", "drop-edges", "mask-attributes", "subgraph"]


class MaskedView(NamedTuple):
    """A batch with some masked attributes, and the edges of the original batch."""

    batch: GraphBatch
    """The graphs with masked attributes."""
    node_idx: Int[Tensor, "A"]
    """Masked nodes, ascending; if edges are masked, the nodes at the ends of masked edges."""
    edge_idx: Int[Tensor, "B"]
    """Masked directed edges, ascending, both directions of each; empty if nodes are masked."""
    clean: GraphBatch
    """The original graphs."""


def mask_attributes(
    batch: GraphBatch,
    schema: FeatureSchema,
    rate: float,
    generator: Generator,
    columns: MaskedColumns = "all",
) -> MaskedView:
    r"""Return the correlated view :math:`\mathcal G'` of every graph: masked nodes or edges.

    Implements the corruption of Eq. 5 and appendix B. In each graph, exactly ``int(rate * n + 1)``
    of its ``n`` nodes (molecules) or ``n`` undirected edges (proteins) are drawn without
    replacement; at least one is always masked, as in the authors' script. Both directions of an
    edge are masked together; a graph without edges keeps its attributes. Parallel edges count
    separately in batches from an undirected store, where the directions of an edge follow each
    other; in any other order they count as one.

    With ``columns="all"``, a masked node or edge gets the mask row of the schema (the paper). With
    ``"first"``, its categorical columns after the first one get 0 instead, as in the authors'
    script (atom type 119, chirality 0).

    Raises:
        ConfigError: If the schema has no mask row.
    """
    row = schema.mask_row(columns)
    if schema.masked == "node":
        counts = num_masked(batch.sizes, rate)
        is_chosen = choose_rows(batch.batch, batch.ptr, counts, generator)
        total = int(num_masked(batch.host_ptr.diff(), rate).sum())
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
    """Return the batch with the edges of ``nodes`` masked, and the indices of these edges.

    Raises:
        ConfigError: If the schema has no mask row for edges.
    """
    inside = torch.zeros(batch.num_nodes, dtype=torch.bool, device=nodes.device)
    inside[nodes] = True
    chosen = inside[batch.edge_index].any(dim=0).nonzero().squeeze(1)
    row = replace(schema, masked="edge").mask_row()
    return batch.with_attributes(edge_attr=overwritten(batch.edge_attr, chosen, row)), chosen


def num_masked(sizes: Int[Tensor, "N"], rate: float) -> Int[Tensor, "N"]:
    """Return the number of nodes or edges to mask: ``int(rate * n + 1)``, or 0 if ``n`` is 0.

    Example:
        >>> num_masked(torch.tensor([0, 1, 10]), 0.3)
        tensor([0, 1, 4])
    """
    return torch.minimum((sizes.double() * rate + 1.0).long(), sizes)


def overwritten(
    attributes: Shaped[Tensor, "R F"], rows: Int[Tensor, "C"], row: tuple[float, ...]
) -> Shaped[Tensor, "R F"]:
    """Return a copy of the attributes with the rows at the indices ``rows`` replaced by ``row``."""
    changed = attributes.clone()
    changed[rows] = torch.tensor(row, dtype=attributes.dtype, device=attributes.device)
    return changed


class AugmentConfig(FrozenConfig):
    """Strength and variant of each perturbation."""

    ratio: float = Field(0.2, ge=0, lt=1)
    """Fraction of nodes or edges dropped, and of nodes (or edges) masked."""
    subgraph_ratio: float = Field(0.2, ge=0, le=1)
    """Fraction of nodes added to the first node of a subgraph."""
    subgraph_growth: Literal["frontier", "first-neighbors"] = "frontier"
    """``frontier`` adds neighbors of any node of the subgraph; ``first-neighbors`` only those of
    its first node (the authors' chemistry script)."""
    restore_edgeless: bool = False
    """Whether a graph that would have no edges left keeps all its nodes (the authors' chemistry
    script)."""


def augment(
    batch: GraphBatch,
    schema: FeatureSchema,
    choice: Sequence[Augmentation],
    config: AugmentConfig,
    generator: Generator,
) -> GraphBatch:
    """Return the batch with one perturbation of each graph, drawn independently from ``choice``."""
    drawn = random_integers(batch.sizes.new_full((batch.num_graphs,), len(choice)), generator)
    nodes = torch.ones(batch.num_nodes, dtype=torch.bool, device=drawn.device)
    changed = batch
    for number, name in enumerate(choice):
        selected = drawn == number
        if name == "drop-nodes":
            counts = torch.where(selected, _share(batch.sizes, config.ratio), 0)
            nodes &= ~choose_rows(batch.batch, batch.ptr, counts, generator)
        elif name == "subgraph":
            nodes &= ~selected[batch.batch] | grow_subgraph(
                batch, _share(batch.sizes, config.subgraph_ratio), generator, config.subgraph_growth
            )
        elif name == "mask-attributes":
            masked = mask_attributes(batch, schema, config.ratio, generator).batch
            of_node = selected[batch.batch][:, None]
            x = torch.where(of_node, masked.x, changed.x)
            of_edge = of_node[batch.edge_index[0]]
            changed = changed.with_attributes(
                x, torch.where(of_edge, masked.edge_attr, changed.edge_attr)
            )
    if config.restore_edgeless:
        graph = batch.batch[batch.edge_index[0, nodes[batch.edge_index].all(dim=0)]]
        nodes |= (torch.bincount(graph, minlength=batch.num_graphs) == 0)[batch.batch]
    for number, name in enumerate(choice):
        if name == "drop-edges":
            changed = drop_edges(changed, drawn == number, config.ratio, generator)
    if bool(nodes.all()):
        return changed
    return induced_part(changed, nodes)[0]


def grow_subgraph(
    batch: GraphBatch,
    steps: Int[Tensor, "N"],
    generator: Generator,
    growth: Literal["frontier", "first-neighbors"] = "frontier",
) -> Bool[Tensor, "V"]:
    """Return a mask of the nodes of one random connected subgraph of each graph.

    A subgraph begins with a random node. ``steps[n]`` times, a random neighbor of its nodes is
    added, or with ``"first-neighbors"`` a random neighbor of its first node. It stays smaller if
    there are no more such neighbors. Each pass over the edges adds one node to every graph, so
    there are ``max(steps)`` passes.
    """
    roots = random_nodes(batch.ptr, generator)[batch.sizes > 0]
    inside = torch.zeros(batch.num_nodes, dtype=torch.bool, device=roots.device).index_fill(
        0, roots, True
    )
    source, target = batch.edge_index[0], batch.edge_index[1]
    if growth == "first-neighbors":
        neighbors = torch.zeros_like(inside)
        neighbors[target[inside[source]]] = True
        return inside | choose_rows(batch.batch, batch.ptr, steps, generator, neighbors & ~inside)
    for step in range(int(steps.max()) if steps.shape[0] else 0):
        frontier = torch.zeros_like(inside)
        frontier[target[inside[source]]] = True
        frontier &= ~inside & (steps > step)[batch.batch]
        keys = torch.where(frontier, uniform(batch.num_nodes, generator, roots.device), -1.0)
        inside |= frontier & (keys == segment_max(keys, batch.ptr)[batch.batch])
    return inside


def drop_edges(
    batch: GraphBatch, graphs: Bool[Tensor, "N"], ratio: float, generator: Generator
) -> GraphBatch:
    """Return the batch without a fraction of the undirected edges of some graphs."""
    pair, pair_graph = undirected_pairs(batch)
    per_graph = torch.bincount(pair_graph, minlength=batch.num_graphs)
    counts = torch.where(graphs, _share(per_graph, ratio), 0)
    kept = ~choose_unsorted(pair_graph, counts, generator)[pair]
    edge_index, edge_attr = batch.edge_index[:, kept], batch.edge_attr[kept]
    return GraphBatch(batch.x, edge_index, edge_attr, batch.batch, batch.ptr, batch.y)


def _share(sizes: Tensor, ratio: float) -> Tensor:
    return (sizes.double() * ratio).long()
