"""Short paths of a molecule, and the connectivity indices of Kier and Hall made of them."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

Array = np.ndarray[Any, np.dtype[Any]]


class Trails(NamedTuple):
    """Sequences of bonds, each a row of atoms, each set of bonds once; how often each is listed.

    RDKit counts a ring as a trail that ends where it began, and so does this.
    """

    two: Int[Array, "A 3"]
    """Two bonds; every path is listed in both directions."""
    three: Int[Array, "B 4"]
    """Three bonds without a repeated atom, in both directions."""
    triangles: Int[Array, "C 3"]
    """Rings of three, six times each."""
    four: Int[Array, "D 5"]
    """Four bonds without a repeated atom, in both directions."""
    squares: Int[Array, "E 4"]
    """Rings of four, eight times each."""
    tailed: Int[Array, "F 4"]
    """Rings of three with one more bond: its far end, its ring atom, the two others; twice each."""


def find_trails(ends: Int[Array, "B 2"], num_atoms: int) -> Trails:
    """Return all trails of two to four bonds.

    Args:
        ends: The two atoms of each bond.
        num_atoms: Atoms of the molecule.
    """
    source = np.concatenate([ends[:, 0], ends[:, 1]])
    target = np.concatenate([ends[:, 1], ends[:, 0]])
    order = np.argsort(source, kind="stable")
    bonds = np.stack([source, target], axis=1)[order]
    degree = np.bincount(source, minlength=num_atoms)
    first = np.cumsum(degree) - degree

    def longer(trails: Array) -> Array:
        last = trails[:, -1]
        count = degree[last]
        start = np.cumsum(count) - count
        row = np.repeat(np.arange(len(trails)), count)
        step = np.arange(len(row)) - start[row]
        grown = np.concatenate([trails[row], bonds[first[last][row] + step, 1:]], axis=1)
        return grown[grown[:, -1] != trails[row, -2]]

    two = longer(bonds)
    three = longer(two)
    is_ring = three[:, 3] == three[:, 0]
    three, triangles = three[~is_ring], three[is_ring, :3]
    four = longer(three)
    closes, returns = four[:, 4] == four[:, 0], four[:, 4] == four[:, 1]
    return Trails(
        two, three, triangles, four[~(closes | returns)], four[closes, :4], four[returns, :4]
    )


def connectivity(
    trails: Trails, ends: Int[Array, "B 2"], delta: Float[Array, "V"]
) -> tuple[float, float, float, float, float]:
    r"""Return the indices of order 0 to 4: sums over trails of :math:`\prod_v \delta_v^{-1/2}`.

    An atom with a delta of 0 counts as 0. In a ring of three with a tail the atom that both share
    is counted twice, as RDKit has it.

    Args:
        trails: Those of the molecule.
        ends: The two atoms of each bond.
        delta: Hall and Kier's delta of each atom.
    """
    weight = np.zeros(len(delta))
    np.power(delta, -0.5, out=weight, where=delta > 0)
    three = weight[trails.three].prod(axis=1).sum() / 2 + weight[trails.triangles].prod(1).sum() / 6
    tailed = weight[trails.tailed].prod(axis=1) * weight[trails.tailed[:, 1]]
    four = weight[trails.four].prod(axis=1).sum() / 2 + weight[trails.squares].prod(1).sum() / 8
    return (
        float(weight.sum()),
        float(weight[ends].prod(axis=1).sum()),
        float(weight[trails.two].prod(axis=1).sum() / 2),
        float(three),
        float(four + tailed.sum() / 2),
    )
