"""K-means: clusters found, dropped clusters, repeatability."""

import pytest
import torch

from graphlog.prototypes.kmeans import Clusters, drop_small, kmeans, nearest
from graphlog_support import seeded


def blobs(num: int = 5, each: int = 60, dim: int = 8) -> torch.Tensor:
    generator = seeded(2)
    centers = 4 * torch.randn(num, dim, generator=generator)
    return (centers[:, None] + torch.randn(num, each, dim, generator=generator)).flatten(0, 1)


def test_well_separated_clusters_are_found() -> None:
    points = blobs()
    found = kmeans(points, 5, seeded(3))
    inertia = (points - found.centers[found.assignment]).square().sum()
    assert torch.equal(found.assignment, nearest(points, found.centers))
    best = torch.stack([b.var(dim=0, unbiased=False).sum() * 60 for b in points.split(60)]).sum()
    assert inertia < 3 * best


def test_same_generator_same_clusters() -> None:
    first, second = (kmeans(blobs(), 7, seeded(5)) for _ in range(2))
    assert torch.equal(first.centers, second.centers)
    assert torch.equal(first.assignment, second.assignment)


def test_equal_points_leave_clusters_empty_without_a_warning() -> None:
    found = kmeans(torch.ones(6, 3), 3, seeded())
    assert torch.bincount(found.assignment, minlength=3).sum() == 6
    assert torch.isfinite(found.centers).all()


def test_too_many_centers() -> None:
    with pytest.raises(ValueError, match="num_centers"):
        kmeans(torch.ones(2, 3), 3, seeded())


def test_orphans_go_to_the_nearest_survivor() -> None:
    points = torch.tensor([[0.0], [1.0], [10.0], [11.0], [7.0]])
    clusters = Clusters(torch.tensor([[0.5], [10.5], [7.0]]), torch.tensor([0, 0, 1, 1, 2]))
    kept = drop_small(points, clusters, 2)
    assert kept.centers.flatten().tolist() == [0.5, 10.5]
    assert kept.assignment.tolist() == [0, 0, 1, 1, 1]


def test_nothing_survives() -> None:
    points = torch.tensor([[0.0], [1.0]])
    assert drop_small(points, Clusters(points, torch.tensor([0, 1])), 2).centers.shape == (0, 1)
