"""Altered graphs: masked attributes (Eq. 5, appendix B) and the perturbations of GraphCL.

All graphs of a batch at once; GraphCL (You et al., 2020) draws one perturbation per graph.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from pydantic import Field
from torch import Generator, Tensor

from graphlog.config import FrozenConfig
from graphlog.data.graphs import FeatureSchema, MaskedColumns
from graphlog.data.store import GraphBatch
from graphlog.ops.sparse import segment_max
from graphlog.views.sampling import (
    below,
    choose_rows,
    choose_unsorted,
    first_of_each,
    induced_part,
    non_edges,
    random_nodes,
    true_rows,
    undirected_pairs,
    uniform,
)

Augmentation = Literal["none", "drop-nodes", "perturb-edges", "mask-attributes", "subgraph"]


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
    generator: Generator,
    columns: MaskedColumns = "all",
) -> MaskedView:
    r"""Return the correlated view :math:`\mathcal G'` of every graph: masked nodes or edges.

    Implements the corruption of Eq. 5 and appendix B: in each graph exactly ``int(rate * n + 1)``
    of its ``n`` nodes (molecules), or of its ``n`` undirected edges (proteins; both directions
    together), drawn without replacement; a graph without edges keeps its attributes. Parallel edges
    count one by one where directions stand side by side, as in batches from an undirected store,
    else as one. The counts are those of the authors' script: at least one node is always masked.

    All ``columns`` get the mask row (the paper); or the ``"first"`` gets its code and the others 0,
    as in the authors' script (atom type 119, chirality 0).

    Raises:
        ConfigError: If the schema has no row for "masked".
    """
    row = schema.mask_row(columns)
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

    Raises:
        ConfigError: If the schema has no row that stands for a masked edge.
    """
    inside = torch.zeros(batch.num_nodes, dtype=torch.bool, device=nodes.device)
    inside[nodes] = True
    chosen = inside[batch.edge_index].any(dim=0).nonzero().squeeze(1)
    row = replace(schema, masked="edge").mask_row()
    return batch.with_attributes(edge_attr=overwritten(batch.edge_attr, chosen, row)), chosen


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


class AugmentConfig(FrozenConfig):
    """How strong the perturbations are and which variant of each is meant."""

    ratio: float = Field(0.2, ge=0, lt=1)
    """Share of nodes dropped, of edges perturbed, of nodes (or edges) masked."""
    subgraph_ratio: float = Field(0.2, ge=0, le=1)
    """Share of nodes that a subgraph grows by, beyond the one it starts from."""
    edge_perturbation: Literal["rewire", "drop"] = "rewire"
    """Put as many edges elsewhere as are taken away (the paper), or only take away."""
    subgraph_growth: Literal["frontier", "first-neighbors"] = "frontier"
    """Grow from all nodes reached so far, or only among the neighbors of the first one (the
    authors' chemistry script)."""
    restore_edgeless: bool = False
    """Return a graph as it was where no edge would be left of it (the authors' chemistry
    script)."""


def augment(
    batch: GraphBatch,
    schema: FeatureSchema,
    choice: Sequence[Augmentation],
    config: AugmentConfig,
    generator: Generator,
) -> GraphBatch:
    """Return every graph under a perturbation drawn from ``choice``, independently per graph."""
    drawn = below(batch.sizes.new_full((batch.num_graphs,), len(choice)), generator)
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
        if name == "perturb-edges":
            changed = perturb_edges(changed, drawn == number, config, generator)
    if bool(nodes.all()):
        return changed
    return induced_part(changed, nodes)[0]


def drop_subgraphs(batch: GraphBatch, rate: float, generator: Generator) -> Bool[Tensor, "V"]:
    """Return the nodes of a random connected subgraph of ``int(rate * n)`` nodes per graph."""
    sizes = _share(batch.sizes, rate)
    grown = grow_subgraph(batch, (sizes - 1).clamp_min(0), generator)
    return grown & (sizes > 0)[batch.batch]


def grow_subgraph(
    batch: GraphBatch,
    steps: Int[Tensor, "N"],
    generator: Generator,
    growth: Literal["frontier", "first-neighbors"] = "frontier",
) -> Bool[Tensor, "V"]:
    """Return the nodes of one random connected subgraph a graph.

    A random node, then ``steps[n]`` times a random neighbor of it all, or with
    ``"first-neighbors"`` of the first node only. One sweep over the edges adds a node to every
    graph, so there are as many sweeps as the largest subgraph has nodes. A subgraph that has filled
    its component stays smaller.
    """
    roots = random_nodes(batch.ptr, generator)[batch.sizes > 0]
    inside = torch.zeros(batch.num_nodes, dtype=torch.bool, device=roots.device).index_fill(
        0, roots, True
    )
    source, target = batch.edge_index[0], batch.edge_index[1]
    if growth == "first-neighbors":
        near = torch.zeros_like(inside)
        near[target[inside[source]]] = True
        return inside | choose_rows(batch.batch, batch.ptr, steps, generator, near & ~inside)
    for step in range(int(steps.max()) if steps.shape[0] else 0):
        frontier = torch.zeros_like(inside)
        frontier[target[inside[source]]] = True
        frontier &= ~inside & (steps > step)[batch.batch]
        keys = torch.where(frontier, uniform(batch.num_nodes, generator, roots.device), -1.0)
        inside |= frontier & (keys == segment_max(keys, batch.ptr)[batch.batch])
    return inside


def perturb_edges(
    batch: GraphBatch, graphs: Bool[Tensor, "N"], config: AugmentConfig, generator: Generator
) -> GraphBatch:
    """Return the batch with a share of the undirected edges of some graphs removed.

    Where edges are rewired, each lost edge comes back, with its attributes, between two nodes that
    no edge joined (while there are any); what ran in one direction alone does so again.
    """
    pair, pair_graph = undirected_pairs(batch)
    per_graph = torch.bincount(pair_graph, minlength=batch.num_graphs)
    counts = torch.where(graphs, _share(per_graph, config.ratio), 0)
    lost = choose_unsorted(pair_graph, counts, generator)
    kept = ~lost[pair]
    edge_index, edge_attr = batch.edge_index[:, kept], batch.edge_attr[kept]
    if config.edge_perturbation == "rewire":
        new, new_graph = _unordered_non_edges(batch, counts, generator)
        by_graph = torch.argsort(new_graph, stable=True)
        new, new_graph = new[:, by_graph], new_graph[by_graph]
        num_new = torch.bincount(new_graph, minlength=batch.num_graphs)
        # the k-th new edge of a graph takes the attributes of its k-th lost one
        lost_pair = lost.nonzero().squeeze(1)
        lost_pair = lost_pair[torch.argsort(pair_graph[lost_pair], stable=True)]
        fewer = (counts - num_new).cumsum(0) - (counts - num_new)  # in the graphs before
        place = torch.arange(new_graph.shape[0], device=pair.device) + fewer[new_graph]
        model = lost_pair[place]
        edge = first_of_each(pair, pair_graph.shape[0])[model]
        attr = batch.edge_attr[edge].repeat_interleave(2, dim=0)
        both = _runs_both_ways(batch, pair, pair_graph.shape[0])[model]
        taken = torch.stack([torch.ones_like(both), both], dim=1).flatten()
        new = torch.stack([new, new.flip(0)], dim=2).flatten(1)
        edge_index = torch.cat([edge_index, new[:, taken]], dim=1)
        edge_attr = torch.cat([edge_attr, attr[taken]])
    return GraphBatch(batch.x, edge_index, edge_attr, batch.batch, batch.ptr, batch.y)


def _runs_both_ways(batch: GraphBatch, pair: Tensor, count: int) -> Tensor:
    """Return whether each of ``count`` pairs has edges in both directions; a loop always has."""
    source, target = batch.edge_index[0], batch.edge_index[1]
    up, down = (torch.zeros(count, dtype=torch.bool, device=pair.device) for _ in range(2))
    up[pair[source <= target]] = True
    down[pair[source >= target]] = True
    return up & down


def _unordered_non_edges(
    batch: GraphBatch, counts: Tensor, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return pairs as :func:`non_edges` does, but never both a pair and its reverse."""
    # of twice as many ordered pairs at least half are not the reverse of another
    pairs, graph = non_edges(batch, 2 * counts, generator)
    low, high = pairs.aminmax(dim=0)
    unique, number = torch.unique(low * batch.num_nodes + high, return_inverse=True)
    first = first_of_each(number, unique.shape[0])
    first = first[choose_unsorted(graph[first], counts, generator)]
    return pairs[:, first], graph[first]


def _share(sizes: Tensor, ratio: float) -> Tensor:
    return (sizes.double() * ratio).long()
