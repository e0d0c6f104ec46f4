"""Neighbourhoods as sorted rows (CSR), built once a batch: every sum over neighbours is one kernel."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor


class Adjacency(NamedTuple):
    """Directed edges sorted by target (for the forward sums) and by source (for their gradients)."""

    offsets: Int[Tensor, "Vp1"]
    """Edges into node ``v`` are ``offsets[v]:offsets[v + 1]`` of ``senders`` and ``order``."""
    senders: Int[Tensor, "E"]
    """Source node of each edge, edges sorted by target."""
    order: Int[Tensor, "E"]
    """Position in ``edge_index`` of each sorted edge."""
    back_offsets: Int[Tensor, "Vp1"]
    """The same three for the reversed graph: edges out of each node."""
    receivers: Int[Tensor, "E"]
    """Target node of each edge, edges sorted by source."""
    back_order: Int[Tensor, "E"]
    """Position in ``edge_index`` of each edge sorted by source."""
    in_degree: Int[Tensor, "V"]
    """Number of edges into each node, self-loops of message passing not counted."""


def build_adjacency(edge_index: Int[Tensor, "2 E"], num_nodes: int) -> Adjacency:
    """Return the neighbourhoods of ``num_nodes`` nodes; the sort is stable, so sums are reproducible."""
    source, target = edge_index[0], edge_index[1]
    order = torch.argsort(target, stable=True)
    back_order = torch.argsort(source, stable=True)
    in_degree = torch.bincount(target, minlength=num_nodes)
    out_degree = torch.bincount(source, minlength=num_nodes)
    zero = in_degree.new_zeros(1)
    return Adjacency(
        offsets=torch.cat([zero, in_degree.cumsum(0)]),
        senders=source[order],
        order=order,
        back_offsets=torch.cat([zero, out_degree.cumsum(0)]),
        receivers=target[back_order],
        back_order=back_order,
        in_degree=in_degree,
    )
