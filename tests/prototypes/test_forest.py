"""The invariants of the trees."""

import pytest
import torch

from graphlog.prototypes.chains import PrototypeForest
from graphlog_support import random_forest


def test_sizes_and_parents() -> None:
    forest = random_forest((2, 4, 7), dim=3)
    assert forest.depth == 3
    assert forest.sizes == (2, 4, 7)
    assert forest.parent(2) is forest.parents[1]


@pytest.mark.parametrize(
    ("layers", "parents", "message"),
    [
        ([torch.eye(2), torch.eye(2)], [], "one entry per layer"),
        ([torch.eye(2), torch.eye(2)], [torch.tensor([0, 0])], "must have a child"),
        ([torch.eye(2), torch.eye(2)], [torch.tensor([0, 2])], "must have a child"),
        ([torch.eye(2), torch.eye(2)], [torch.tensor([0, 1, 1])], "one parent per prototype"),
        ([torch.zeros(1, 2)], [], "non-zero"),
        ([torch.tensor([[float("nan"), 1.0]])], [], "finite"),
        ([torch.empty(0, 2)], [], "non-empty"),
    ],
)
def test_what_is_no_forest(
    layers: list[torch.Tensor], parents: list[torch.Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PrototypeForest(layers, parents)


def test_moved_vectors_keep_the_trees() -> None:
    forest = random_forest((2, 4), dim=3)
    moved = forest.with_vectors([layer.requires_grad_() for layer in forest.layers])
    assert moved.parents is forest.parents
    assert not any(layer.requires_grad for layer in moved.detach().layers)
