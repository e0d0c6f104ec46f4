"""Trees of prototypes: K-means layer by layer, balanced assignments and chains."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoder_support import all_chains, random_forest, seeded
from graphlog.errors import ConfigError, NonFiniteLossError
from graphlog.objectives.losses import prototype_statistics
from graphlog.ops.contrastive import cosine_similarity
from graphlog.prototypes import (
    Clusters,
    PrototypeForest,
    balanced_assignment,
    balanced_chains,
    drop_small,
    fit_balanced_forest,
    fit_competitive,
    fit_forest,
    kmeans,
    leaf_chains,
    nearest,
    sample_chains,
)


def blobs(num: int = 5, each: int = 60, dim: int = 8) -> torch.Tensor:
    generator = seeded(2)
    centers = 4 * torch.randn(num, dim, generator=generator)
    return (centers[:, None] + torch.randn(num, each, dim, generator=generator)).flatten(0, 1)


def test_well_separated_clusters_are_found():
    points = blobs()
    found = kmeans(points, 5, seeded(3))
    inertia = (points - found.centers[found.assignment]).square().sum()
    assert torch.equal(found.assignment, nearest(points, found.centers))
    best = torch.stack([b.var(dim=0, unbiased=False).sum() * 60 for b in points.split(60)]).sum()
    assert inertia < 3 * best


def test_equal_points_leave_clusters_empty_without_a_warning():
    found = kmeans(torch.ones(6, 3), 3, seeded())
    assert torch.bincount(found.assignment, minlength=3).sum() == 6
    assert torch.isfinite(found.centers).all()


def test_orphans_go_to_the_nearest_survivor_if_there_is_one():
    points = torch.tensor([[0.0], [1.0], [10.0], [11.0], [7.0]])
    clusters = Clusters(torch.tensor([[0.5], [10.5], [7.0]]), torch.tensor([0, 0, 1, 1, 2]))
    kept = drop_small(points, clusters, 2)
    assert kept.centers.flatten().tolist() == [0.5, 10.5]
    assert kept.assignment.tolist() == [0, 0, 1, 1, 1]
    assert len(drop_small(points[:2], Clusters(points[:2], torch.tensor([0, 1])), 2).centers) == 0


def embeddings(num: int, dim: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randn(num, dim, generator=seeded(seed))


@pytest.mark.parametrize("space", ["raw", "unit"])
def test_layers_shrink_by_half_or_more(space: str):
    forest = fit_forest(embeddings(400), depth=3, centers=50, generator=seeded(), space=space)
    top, middle, bottom = forest.sizes
    assert 40 <= bottom <= 50
    assert middle <= bottom // 2
    assert top <= middle // 2
    for level in (1, 2):
        assert torch.bincount(forest.parents[level - 1]).min() >= 2
    if space == "unit":
        assert (forest.layers[2].norm(dim=1) <= 1 + 1e-6).all()


def test_bottom_prototypes_are_means_of_their_graphs():
    points = embeddings(60)
    forest = fit_forest(points, depth=1, centers=3, generator=seeded())
    owner = torch.cdist(points, forest.layers[0]).argmin(dim=1)
    for k in range(forest.sizes[0]):
        assert torch.allclose(forest.layers[0][k], points[owner == k].mean(dim=0), atol=1e-4)


@given(st.integers(2, 40), st.integers(1, 4), st.integers(1, 12), st.integers(0, 99))
def test_any_collection_of_two_graphs_or_more_gives_a_forest(
    num: int, depth: int, centers: int, seed: int
):
    emb = embeddings(num, seed=seed)
    forest = fit_forest(emb, depth=depth, centers=centers, generator=seeded(seed))
    assert forest.depth == depth
    forest.check()


def test_the_literal_rule_discards_every_upper_layer():
    fit_forest(embeddings(400), depth=1, centers=50, generator=seeded(), centers_rule="literal")
    with pytest.raises(ConfigError, match=r"centers_rule='literal'.*1 layers above.*halve"):
        fit_forest(embeddings(400), depth=2, centers=50, generator=seeded(), centers_rule="literal")


def test_opposite_points_get_a_prototype_with_a_direction():
    points = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    forest = fit_forest(points, depth=2, centers=4, generator=seeded())
    assert forest.sizes == (1, 1)
    assert forest.layers[0].norm() > 0


def test_competitive_initialization():
    first, second = (
        fit_competitive(embeddings(200), depth=3, centers=12, generator=seeded(1), batch_size=64)
        for _ in range(2)
    )
    assert first.depth == 3
    assert all(torch.equal(a, b) for a, b in zip(first.layers, second.layers, strict=True))
    with pytest.raises(ConfigError, match="no prototype won"):
        fit_competitive(embeddings(1), depth=1, centers=2, generator=seeded(), passes=1)


@pytest.mark.parametrize("distinct", [1, 2, 3, 40])
def test_the_top_layer_has_as_many_roots_as_asked_for_where_there_are_as_many(distinct: int):
    points = torch.randn(distinct, 6, generator=seeded()).repeat(5, 1)
    forest = fit_forest(points, depth=3, centers=50, min_roots=4, generator=seeded())
    assert forest.sizes[0] >= min(4, forest.sizes[1])
    one = fit_forest(points, depth=3, centers=50, generator=seeded())
    assert one.sizes[1:] == forest.sizes[1:]


def test_a_tree_for_finished_embeddings_has_no_empty_leaf():
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


def test_what_all_embeddings_share_does_not_empty_a_balanced_tree():
    middles = torch.randn(60, 32, generator=seeded())
    emb = middles.repeat(60, 1) + torch.randn(3600, 32, generator=seeded(1)) / 2
    for common in (0.0, 2.0, 20.0):
        forest = fit_balanced_forest(emb + common, generator=seeded())
        assert forest.sizes == (4, 14, 50)
        leaves = cosine_similarity(emb + common, forest.layers[-1]).argmax(dim=1)
        usage = torch.bincount(leaves, minlength=50) / len(emb)
        assert torch.special.entr(usage).sum().exp() > 42


@pytest.mark.parametrize("num", [2, 3, 7])
def test_a_few_graphs_are_enough(num: int):
    forest = fit_balanced_forest(torch.randn(num, 5, generator=seeded(num)), generator=seeded())
    assert forest.depth == 3
    assert max(forest.sizes) <= max(1, num // 2)


@pytest.mark.parametrize("fit", [partial(fit_forest, depth=2, centers=4), fit_balanced_forest])
def test_what_cannot_be_fitted_is_refused(fit: Callable[..., PrototypeForest]):
    for emb, error, words in (
        (torch.ones(1, 4), ConfigError, "at least 2 graphs"),
        (torch.zeros(9, 4), ConfigError, "collapsed"),
        (torch.full((9, 4), torch.nan), NonFiniteLossError, "not finite"),
    ):
        with pytest.raises(error, match=words):
            fit(emb, generator=seeded())


def test_shares_are_equal_and_rows_are_distributions():
    similarity = torch.rand(200, 8, generator=seeded(), dtype=torch.float64)
    share = balanced_assignment(similarity, temperature=0.1, iterations=200)
    assert torch.allclose(share.sum(dim=1), torch.ones(200, dtype=torch.float64))
    assert torch.allclose(share.sum(dim=0), torch.full((8,), 25.0, dtype=torch.float64))


def test_sinkhorn_finds_the_best_plan_of_its_kind():
    """Its logarithm is the similarity over the temperature plus a row and a column term."""
    similarity = torch.rand(6, 4, generator=seeded(1), dtype=torch.float64)
    share = balanced_assignment(similarity, temperature=0.2, iterations=50)
    rest = share.log() - similarity / 0.2
    rest = rest - rest.mean(dim=0) - rest.mean(dim=1, keepdim=True) + rest.mean()
    assert rest.abs().max() < 1e-10


def test_a_crowd_on_one_prototype_is_shared_out():
    crowd = torch.tensor([1.0, 0, 0]) + 0.05 * torch.randn(300, 3, generator=seeded(2))
    similarity = cosine_similarity(crowd, torch.eye(3))
    assert similarity.argmax(dim=1).unique().tolist() == [0]
    share = balanced_assignment(similarity, temperature=0.05, iterations=100)
    assert torch.bincount(share.argmax(dim=1), minlength=3).min() > 50


@pytest.mark.parametrize("num", [0, 1, 3, 40])
def test_chains_follow_the_tree(num: int):
    forest = random_forest((2, 5, 9), dim=4)
    emb = torch.randn(num, 4, generator=seeded(3), dtype=torch.float64)
    chains = balanced_chains(emb, forest, temperature=0.05)
    known = {tuple(chain) for chain in all_chains(forest).tolist()}
    assert chains.shape == (num, 3)
    assert {tuple(chain) for chain in chains.tolist()} <= known


@pytest.mark.parametrize(
    ("layers", "parents", "message"),
    [
        ([torch.eye(2), torch.eye(2)], [], "2 layers, found 0"),
        ([torch.eye(2), torch.eye(2)], [torch.tensor([0, 0])], "must have a child"),
        ([torch.eye(2), torch.eye(2)], [torch.tensor([0, 2])], "must have a child"),
        ([torch.eye(2), torch.eye(2)], [torch.tensor([0, 1, 1])], "needs one parent"),
        ([torch.zeros(1, 2)], [], "non-zero"),
        ([torch.tensor([[float("nan"), 1.0]])], [], "finite"),
        ([torch.empty(0, 2)], [], "non-empty"),
    ],
)
def test_what_is_no_forest(layers: list[torch.Tensor], parents: list[torch.Tensor], message: str):
    with pytest.raises(ValueError, match=message):
        PrototypeForest(layers, parents).check()


def test_what_follows_from_assignments_has_no_gradient():
    forest = random_forest((2, 4), dim=3)
    emb = torch.randn(5, 3, generator=seeded(), dtype=torch.float64, requires_grad=True)
    for layer in forest.layers:
        layer.requires_grad_()
    chains = balanced_chains(emb, forest, temperature=0.1)
    values = prototype_statistics(emb, chains, forest, temperature=0.1)
    assert not any(value.requires_grad for value in values.values())


def test_leaves_of_one_root_are_near_each_other():
    middles = 10 * torch.eye(4, 16)
    emb = middles[torch.arange(2000) % 4] + torch.randn(2000, 16, generator=seeded())
    forest = fit_balanced_forest(emb, depth=2, centers=20, roots=4, generator=seeded())
    of_leaf = (forest.layers[1] @ middles.T).argmax(dim=1)
    assert len({*zip(forest.parents[0].tolist(), of_leaf.tolist(), strict=True)}) == 4


def test_chains_are_drawn_by_the_generator_alone():
    forest = PrototypeForest([torch.randn(8, 4), torch.randn(16, 4)], [torch.arange(16) % 8])
    emb = torch.randn(50, 4)
    first, again = (sample_chains(emb, forest, generator=seeded()) for _ in range(2))
    assert torch.equal(first, again)
