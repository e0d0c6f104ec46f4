"""Color refinement: find the nodes that no message-passing network can distinguish.

After ``k`` layers, the embedding of a node depends only on its environment of radius ``k``: its
attributes, those of its edges, and the environments of radius ``k - 1`` of its neighbors. Nodes of
equal environments have equal colors (Weisfeiler and Leman 1968; Xu et al. 2019), so that an encoder
needs to compute each environment only once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from graphlog.ops.sparse import Adjacency, one_sender_each

_MAX_DISTINCT = 0.95
"""Share of distinct nodes above which computing each environment once saves less than it costs."""
_ROUNDS_PER_COUNT = 4
"""Rounds of refinement between two counts of the colors."""
_ODD = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""Two odd 64-bit constants, those of SplitMix64 (Steele et al. 2014)."""


@dataclass(eq=False)
class ColorClasses:
    """The nodes of a batch grouped by color."""

    inverse: Int[Tensor, "V"]
    """Class of each node."""
    nodes: Int[Tensor, "R"]
    """First node of each class, ascending."""
    counts: Int[Tensor, "R"]
    """Number of nodes of each class."""

    @cached_property
    def members(self) -> Adjacency:
        """Edges from each class to its nodes."""
        return one_sender_each(self.inverse, self.nodes.shape[0])

    def pooled(self, ptr: Int[Tensor, "P"]) -> Adjacency:
        """Return edges from the class of each node to the graph of the node, given node ranges."""
        return Adjacency(ptr, self.inverse, self.nodes.shape[0], self.members.order)


def color_classes(
    x: Shaped[Tensor, "V F"],
    edge_attr: Shaped[Tensor, "E B"],
    edges: Adjacency,
    rounds: int,
    *,
    with_degrees: bool = False,
) -> list[ColorClasses]:
    """Return the classes of equal colors after 0, 1, ... rounds, while they save computation.

    The list ends before the first round after which more than 95 % of the nodes are distinct; it
    may be empty. Two different environments have the same 64-bit color by chance with a probability
    of at most about 2^-58. One batch of 10,000 environments then contains such a pair with a
    probability below 2e-10, and 10^12 environments in batches of this size with one below 2 %. The
    list also ends if the attributes or the degree of a node differ from those of the first node of
    its class, which is checked in every round. With ``with_degrees``, nodes with different numbers
    of edges have different first colors, as needed by layers that divide by the degree of a
    neighbor.
    """
    classes: list[ColorClasses] = []
    color, label = _first_colors(x, edges, with_degrees), _edge_labels(edge_attr, edges)
    checked = x
    for done in range(rounds + 1):
        if done > 0:
            color = _refined(color, label, edges)
        current = _grouped(color)
        if current.nodes.shape[0] > _MAX_DISTINCT * x.shape[0]:
            break
        if done == 1:  # the first classes represent the attributes
            checked = classes[0].inverse + edges.in_degree * x.shape[0]
        expected = checked.index_select(0, current.nodes).index_select(0, current.inverse)
        if not (expected == checked).all():
            break
        classes.append(current)
    return classes


def refine_colors(
    x: Shaped[Tensor, "V F"],
    edge_attr: Shaped[Tensor, "E B"],
    edges: Adjacency,
    rounds: int,
    with_degrees: bool = False,
) -> Int[Tensor, "V"]:
    """Return a color per node, equal for nodes that ``rounds`` rounds cannot distinguish.

    Each round hashes the color of a node with the sum over its incoming edges of hashes of sender
    and edge (1-dimensional Weisfeiler-Leman). One round corresponds to one layer of an encoder, and
    ``with_degrees`` is as for :func:`color_classes`.

    Example:
        A path of three nodes: its ends are symmetric.

        >>> from graphlog.ops.sparse import build_adjacency
        >>> path = build_adjacency(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
        >>> colors = refine_colors(torch.ones(3, 1), torch.zeros(4, 0), path, rounds=2)
        >>> bool(colors[0] == colors[2]), bool(colors[0] == colors[1])
        (True, False)
    """
    color, label = _first_colors(x, edges, with_degrees), _edge_labels(edge_attr, edges)
    for _ in range(rounds):
        color = _refined(color, label, edges)
    return color


def stable_colors(
    x: Shaped[Tensor, "V F"], edge_attr: Shaped[Tensor, "E B"], edges: Adjacency
) -> Int[Tensor, "V"]:
    """Return a color per node, equal for nodes that no number of rounds can distinguish.

    Refinement ends when the number of colors stays the same, which happens after the same number of
    rounds for isomorphic batches, so that their colors are the same.
    """
    previous = -1
    while True:
        color = refine_colors(x, edge_attr, edges, _ROUNDS_PER_COUNT)
        count = np.count_nonzero(np.diff(np.sort(color.numpy())))
        if count == previous:
            return color
        x, previous = color[:, None], count


def _first_colors(x: Tensor, edges: Adjacency, with_degrees: bool) -> Tensor:
    """Return the colors before the first round."""
    color = _row_hash(x)
    return _mixed(color + edges.in_degree * _ODD[1]) if with_degrees else color


def _refined(color: Tensor, label: Tensor, edges: Adjacency) -> Tensor:
    """Return the colors after one more round; sums and products are modulo 2^64."""
    messages = color.index_select(0, edges.senders).mul_(label)
    # differences of cumulative sums are exact modulo 2^64
    total = F.pad(messages.cumsum(0), (1, 0)).index_select(0, edges.offsets).diff()
    return _mixed(total.add_(color, alpha=_ODD[1]))


def _grouped(color: Int[Tensor, "V"]) -> ColorClasses:
    ordered, order = torch.sort(color, stable=True)
    is_start = F.pad(ordered[1:] != ordered[:-1], (1, 0), value=True)[: color.shape[0]]
    starts = is_start.nonzero().squeeze(1)
    first = order.index_select(0, starts)
    is_first = torch.zeros_like(color).scatter_(0, first, 1)
    # classes are numbered by their first nodes, so that the rows of neighbors are near in memory
    number = (is_first.cumsum(0) - 1).index_select(0, first)
    repeated = number.index_select(0, is_start.cumsum(0) - 1)
    sizes = torch.cat([starts[1:], starts.new_full((1,), color.shape[0])]) - starts
    return ColorClasses(
        inverse=torch.empty_like(color).scatter_(0, order, repeated),
        nodes=is_first.nonzero().squeeze(1),
        counts=torch.empty_like(sizes).scatter_(0, number, sizes),
    )


def _edge_labels(edge_attr: Tensor, edges: Adjacency) -> Tensor:
    """Return an odd number per edge, so that its product with a color is 0 only for the color 0."""
    return (_row_hash(edge_attr) | 1).index_select(0, edges.order)


def _row_hash(rows: Shaped[Tensor, "R F"]) -> Int[Tensor, "R"]:
    """Return a hash per row, equal for equal rows, from one column after the other."""
    value = torch.full((rows.shape[0],), _ODD[0], dtype=torch.int64, device=rows.device)
    for column in rows.unbind(1):
        if column.is_floating_point():
            # adding 0.0 turns -0.0 into 0.0
            column = (column.double() + 0.0).view(torch.int64)
        value = _mixed(value.mul_(_ODD[1]).add_(column))
    return value


def _mixed(value: Int[Tensor, "R"]) -> Int[Tensor, "R"]:
    """Apply the finalizer of SplitMix64, a one-to-one map of 64-bit numbers, in place."""
    for shift, multiplier in ((30, _ODD[0]), (27, _ODD[1]), (31, 1)):
        moved = (value >> shift).bitwise_and_((1 << (64 - shift)) - 1)  # an unsigned shift
        value.bitwise_xor_(moved).mul_(multiplier)
    return value
