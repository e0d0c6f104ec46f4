"""Color refinement: which nodes no message-passing network can tell apart.

After ``k`` layers a node's embedding depends on its environment of radius ``k`` alone: its
attributes, and the attributes and environments that its edges lead to. Equal environments have
equal colors (Weisfeiler and Leman 1968; Xu et al. 2019), so an encoder computes each once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from graphlog.ops.sparse import Adjacency, one_sender_each

_SHARED_AT_MOST = 0.95
"""Share of distinct nodes above which computing each environment once saves less than it costs."""
_ROUNDS_AT_ONCE = 4
"""Rounds of refinement after which colors are counted."""
_ODD = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""Two odd numbers of 64 bits, those of SplitMix64 (Steele et al. 2014)."""


@dataclass(eq=False)
class ColorClasses:
    """The nodes of a batch grouped by color."""

    inverse: Int[Tensor, "V"]
    """Class of each node."""
    nodes: Int[Tensor, "R"]
    """First node of each class, ascending: the one that is computed."""
    counts: Int[Tensor, "R"]
    """Number of nodes of each class."""

    @cached_property
    def members(self) -> Adjacency:
        """An edge from each class to each of its nodes."""
        return one_sender_each(self.inverse, self.nodes.shape[0])

    def pooled(self, ptr: Int[Tensor, "P"]) -> Adjacency:
        """Return an edge from the class of each node to the node's graph, given node ranges."""
        return Adjacency(ptr, self.inverse, self.nodes.shape[0], self.members.order)


def color_classes(
    x: Shaped[Tensor, "V F"],
    edge_attr: Shaped[Tensor, "E B"],
    edges: Adjacency,
    rounds: int,
    *,
    with_degrees: bool = False,
) -> list[ColorClasses]:
    """Return the classes of nodes after 0, 1, ... rounds, as long as classes are shared enough.

    The list ends before the first round after which more than 95 % of the nodes are distinct; it
    may be empty. Two different environments have the same color of 64 bits by chance with a
    probability of at most about 2^-58. So one batch of 10,000 environments holds such a pair with a
    probability below 2e-10, and 10^12 environments in batches of this size with one below 2 %.
    Where the attributes or the degree of a node are not those of the first node of its class,
    which is looked at each time, the list ends too. With ``with_degrees`` nodes with different
    numbers of edges differ from the start, as for layers that divide by the degree of a neighbor.
    """
    classes: list[ColorClasses] = []
    color, label = _first_colors(x, edges, with_degrees), _edge_labels(edge_attr, edges)
    own = color
    for done in range(rounds + 1):
        if done > 0:
            color = _refined(color, label, edges)
        found = _grouped(color)
        if found.nodes.shape[0] > _SHARED_AT_MOST * x.shape[0]:
            break
        if done == 0:
            alike = x.index_select(0, found.nodes).index_select(0, found.inverse) == x
            own = found.inverse
        else:
            if done == 1:
                own = own + edges.in_degree * x.shape[0]
            alike = own.index_select(0, found.nodes).index_select(0, found.inverse) == own
        if not alike.all():
            break
        classes.append(found)
    return classes


def refine_colors(
    x: Shaped[Tensor, "V F"],
    edge_attr: Shaped[Tensor, "E B"],
    edges: Adjacency,
    rounds: int,
    with_degrees: bool = False,
) -> Int[Tensor, "V"]:
    """Return a color per node, equal where ``rounds`` of message passing see the same.

    Each round hashes a node's color with the sum over its incoming edges of hashes of sender and
    edge (1-dimensional Weisfeiler-Leman); an encoder has as many rounds as layers.
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
    """Return a color per node, equal where no number of rounds of message passing sees more.

    The round in which nothing new is seen is the same for isomorphic batches, and so are colors.
    """
    count = -1
    while True:
        color = refine_colors(x, edge_attr, edges, _ROUNDS_AT_ONCE)
        found = np.count_nonzero(np.diff(np.sort(color.numpy())))
        if found == count:
            return color
        x, count = color[:, None], found


def _first_colors(x: Tensor, edges: Adjacency, with_degrees: bool) -> Tensor:
    """Return the colors before any round."""
    color = _row_hash(x)
    return _mixed(color + edges.in_degree * _ODD[1]) if with_degrees else color


def _refined(color: Tensor, label: Tensor, edges: Adjacency) -> Tensor:
    """Return the colors after one more round; sums and products are modulo 2^64."""
    messages = color.index_select(0, edges.senders).mul_(label)
    # differences of running sums: exact, since they wrap around as the sums do
    total = F.pad(messages.cumsum(0), (1, 0)).index_select(0, edges.offsets).diff()
    return _mixed(total.add_(color, alpha=_ODD[1]))


def _grouped(color: Int[Tensor, "V"]) -> ColorClasses:
    ordered, order = torch.sort(color, stable=True)
    begins = F.pad(ordered[1:] != ordered[:-1], (1, 0), value=True)[: color.shape[0]]
    starts = begins.nonzero().squeeze(1)
    first = order.index_select(0, starts)
    is_first = torch.zeros_like(color).scatter_(0, first, 1)
    # classes are numbered by their first nodes, so that neighbors are near each other
    of_color = (is_first.cumsum(0) - 1).index_select(0, first)
    repeated = of_color.index_select(0, begins.cumsum(0) - 1)
    sizes = torch.cat([starts[1:], starts.new_full((1,), color.shape[0])]) - starts
    return ColorClasses(
        inverse=torch.empty_like(color).scatter_(0, order, repeated),
        nodes=is_first.nonzero().squeeze(1),
        counts=torch.empty_like(sizes).scatter_(0, of_color, sizes),
    )


def _edge_labels(edge_attr: Tensor, edges: Adjacency) -> Tensor:
    """Return an odd number per edge: no color other than 0 times it is 0 modulo 2^64."""
    return (_row_hash(edge_attr) | 1).index_select(0, edges.order)


def _row_hash(rows: Shaped[Tensor, "R F"]) -> Int[Tensor, "R"]:
    """Return a number per row, equal for equal rows; column by column, so that rounding is too."""
    value = torch.full((rows.shape[0],), _ODD[0], dtype=torch.int64, device=rows.device)
    for column in rows.unbind(1):
        # adding 0.0 makes the two zeros the same bits
        bits = (
            column if not column.is_floating_point() else (column.double() + 0.0).view(torch.int64)
        )
        value = _mixed(value.mul_(_ODD[1]).add_(bits))
    return value


def _mixed(value: Int[Tensor, "R"]) -> Int[Tensor, "R"]:
    """Apply, in place, the finalizer of SplitMix64, a one-to-one map of 64 bits."""
    for shift, multiplier in ((30, _ODD[0]), (27, _ODD[1]), (31, 1)):
        moved = (value >> shift).bitwise_and_((1 << (64 - shift)) - 1)  # zeros, not the sign
        value.bitwise_xor_(moved).mul_(multiplier)
    return value
