"""The hierarchical prototypes C: a set of trees, one layer of vectors per level, roots first."""

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PrototypeForest:
    r"""Prototypes :math:`\mathbf C = \{c^l_i\}` and who is whose child.

    Example:
        >>> layers = [torch.eye(2), torch.ones(3, 2)]
        >>> forest = PrototypeForest(layers, parents=[torch.tensor([0, 0, 1])])
        >>> forest.sizes, forest.depth
        ((2, 3), 2)
    """

    layers: Sequence[Tensor]
    """Prototype vectors of each layer, (M_l, D), roots first: index 0 is the paper's l = 1."""
    parents: Sequence[Tensor]
    """For each layer but the first, the index in the layer above of every prototype's parent,
    (M_l,)."""
    validate: InitVar[bool] = True
    """Whether to check the invariants; off where vectors of a checked forest have merely moved."""

    def __post_init__(self, validate: bool) -> None:
        """Check that the layers form trees.

        Raises:
            ValueError: If a prototype has no parent, a non-leaf no child, or a vector is zero or
                not finite.
        """
        if not validate:
            return
        if not self.layers or len(self.parents) != len(self.layers) - 1:
            raise ValueError(
                f"`parents` must hold one entry per layer but the first,"
                f" found {len(self.parents)} for {len(self.layers)}."
            )
        for level, layer in enumerate(self.layers):
            if layer.ndim != 2 or layer.shape[0] == 0:
                raise ValueError(
                    f"layer {level} must be a non-empty matrix, found shape {tuple(layer.shape)}."
                )
            if not bool(torch.isfinite(layer).all() & (layer.norm(dim=1) > 0).all()):
                raise ValueError(f"layer {level} must hold finite, non-zero prototypes.")
        for level in range(1, len(self.layers)):
            above, parent = self.layers[level - 1].shape[0], self.parent(level)
            if parent.shape != (self.layers[level].shape[0],):
                raise ValueError(
                    f"layer {level} needs one parent per prototype, found {tuple(parent.shape)}."
                )
            if not torch.equal(parent.unique().cpu(), torch.arange(above)):
                raise ValueError(
                    f"every prototype of layer {level - 1} must have a child,"
                    f" and every parent must lie in [0, {above})."
                )

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], validate: bool = True
    ) -> "PrototypeForest | None":
        """Return the forest stored as ``prototypes.0``, ``parents_1``, ...; None if there is none.

        Raises:
            ValueError: If a layer has no parents, or the layers do not form trees.
        """
        layers: list[Tensor] = []
        while (name := f"prototypes.{len(layers)}") in state:
            layers.append(state[name])
        if not layers:
            return None
        names = [f"parents_{level}" for level in range(1, len(layers))]
        if missing := [name for name in names if name not in state]:
            raise ValueError(f"`{missing[0]}` is missing.")
        return cls(layers, [state[name] for name in names], validate)

    @property
    def depth(self) -> int:
        """Number of layers ``Lp``."""
        return len(self.layers)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of prototypes of each layer, roots first."""
        return tuple(layer.shape[0] for layer in self.layers)

    def parent(self, level: int) -> Tensor:
        """Return the parents of layer ``level`` (1 or more) as indices into layer ``level - 1``."""
        return self.parents[level - 1]

    def with_vectors(self, layers: Sequence[Tensor]) -> "PrototypeForest":
        """Return the same trees over other vectors, unchecked."""
        return PrototypeForest(layers, self.parents, validate=False)

    def detach(self) -> "PrototypeForest":
        """Return the forest with vectors that carry no gradient."""
        return self.with_vectors([layer.detach() for layer in self.layers])
