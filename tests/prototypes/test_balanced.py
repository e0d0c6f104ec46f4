"""Balanced assignments and trees: equal shares, no empty leaf, ancestors from the tree."""

import pytest
import torch

from graphlog.errors import ConfigError, NonFiniteLossError
from graphlog.ops.contrastive import cosine_similarity
from graphlog.prototypes.balanced import fit_balanced_forest
from graphlog.prototypes.e_step import balanced_assignment, balanced_chains, leaf_chains
from graphlog_support import all_chains, random_forest, seeded


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


def test_a_tree_for_finished_embeddings_has_no_empty_leaf() -> None:
    """Clusters of very different sizes, which K-means alone would follow."""
    sizes = [2000, 200, 100, 60, 40]
    blobs = [
        torch.randn(1, 16, generator=seeded(k)) * 2 + torch.randn(n, 16, generator=seeded(9 + k))
        for k, n in enumerate(sizes)
    ]
    emb = torch.cat(blobs)
    emb = emb - emb.mean(dim=0)
    forest = fit_balanced_forest(emb, centers=20, generator=seeded())
    assert forest.depth == 3
    assert forest.sizes[0] == 4
    leaves = cosine_similarity(emb, forest.layers[-1]).argmax(dim=1)
    members = torch.bincount(leaves, minlength=forest.sizes[-1])
    assert members.min() > 0
    usage = members / members.sum()
    assert torch.special.entr(usage).sum().exp() > 0.85 * forest.sizes[-1]
    roots = torch.bincount(leaf_chains(leaves, forest)[:, 0], minlength=4)
    assert roots.max() < 0.8 * len(emb)
    for parents, num in zip(forest.parents, forest.sizes, strict=False):
        children = torch.bincount(parents, minlength=num)
        assert children.max() - children.min() <= 1
    again = fit_balanced_forest(emb, centers=20, generator=seeded())
    assert torch.equal(again.layers[-1], forest.layers[-1])


@pytest.mark.parametrize("num", [2, 3, 7])
def test_a_few_graphs_are_enough(num: int) -> None:
    forest = fit_balanced_forest(torch.randn(num, 5, generator=seeded(num)), generator=seeded())
    assert forest.depth == 3
    assert max(forest.sizes) <= max(1, num // 2)


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 2 graphs"):
        fit_balanced_forest(torch.ones(1, 4), generator=seeded())
    with pytest.raises(ConfigError, match="at least 1"):
        fit_balanced_forest(torch.ones(9, 4), centers=0, generator=seeded())
    with pytest.raises(NonFiniteLossError):
        fit_balanced_forest(torch.full((9, 4), torch.nan), generator=seeded())
    with pytest.raises(ConfigError, match="collapsed"):
        fit_balanced_forest(torch.zeros(9, 4), generator=seeded())
