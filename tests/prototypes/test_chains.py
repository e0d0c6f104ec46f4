"""The invariants of the trees; balanced assignments and chains."""

import pytest
import torch

from encoder_support import all_chains, random_forest, seeded
from graphlog.ops.contrastive import cosine_similarity
from graphlog.prototypes import PrototypeForest, balanced_assignment, balanced_chains


def test_shares_are_equal_and_rows_are_distributions() -> None:
    similarity = torch.rand(200, 8, generator=seeded(), dtype=torch.float64)
    share = balanced_assignment(similarity, temperature=0.1, iterations=200)
    assert torch.allclose(share.sum(dim=1), torch.ones(200, dtype=torch.float64))
    assert torch.allclose(share.sum(dim=0), torch.full((8,), 25.0, dtype=torch.float64))


def test_sinkhorn_finds_the_best_plan_of_its_kind() -> None:
    """Its logarithm is the similarity over the temperature plus a row and a column term."""
    similarity = torch.rand(6, 4, generator=seeded(1), dtype=torch.float64)
    share = balanced_assignment(similarity, temperature=0.2, iterations=50)
    rest = share.log() - similarity / 0.2
    rest = rest - rest.mean(dim=0) - rest.mean(dim=1, keepdim=True) + rest.mean()
    assert rest.abs().max() < 1e-10


def test_a_crowd_on_one_prototype_is_shared_out() -> None:
    crowd = torch.nn.functional.normalize(
        torch.tensor([1.0, 0, 0]) + 0.05 * torch.randn(300, 3, generator=seeded(2)), dim=1
    )
    similarity = cosine_similarity(crowd, torch.eye(3))
    assert similarity.argmax(dim=1).unique().tolist() == [0]
    share = balanced_assignment(similarity, temperature=0.05, iterations=100)
    assert torch.bincount(share.argmax(dim=1), minlength=3).min() > 50


@pytest.mark.parametrize("num", [0, 1, 3, 40])
def test_chains_follow_the_tree(num: int) -> None:
    forest = random_forest((2, 5, 9), dim=4)
    emb = torch.randn(num, 4, generator=seeded(3), dtype=torch.float64)
    chains = balanced_chains(emb, forest, temperature=0.05)
    known = {tuple(chain) for chain in all_chains(forest).tolist()}
    assert chains.shape == (num, 3)
    assert {tuple(chain) for chain in chains.tolist()} <= known


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
        PrototypeForest(layers, parents).check()


def test_detached_vectors_keep_the_trees() -> None:
    forest = random_forest((2, 4), dim=3)
    for layer in forest.layers:
        layer.requires_grad_()
    still = forest.detach()
    assert still.parents is forest.parents
    assert not any(layer.requires_grad for layer in still.layers)
