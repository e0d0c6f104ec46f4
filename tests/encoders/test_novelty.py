"""Novelty: the distance written out, its percentile among exchangeable graphs, and its file."""

from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import graphlog
from graphlog.downstream.pretrained import list_models
from graphlog.encoders.novelty import FEWEST, PREFIX, Novelty, _halves

WIDTH = 40


@cache
def embeddings(count: int, seed: int) -> np.ndarray:
    """Means over nodes of columns that hang together, and the logarithm of the number of nodes."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, 60, count)
    mixing = np.random.default_rng(0).normal(size=(WIDTH - 1, WIDTH - 1))
    means = draw.standard_t(4, size=(count, WIDTH - 1)) @ mixing / np.sqrt(sizes)[:, None] + 3
    return np.column_stack([means, np.log(sizes)]).astype(np.float32)


@cache
def fitted(count: int = 4000) -> Novelty:
    return Novelty.fit(embeddings(count, 1))


def test_the_distance_is_that_of_mahalanobis_under_probabilistic_components():
    novelty, graphs = fitted(), embeddings(50, 2).astype(np.float64)
    axes, variances = novelty.axes, novelty.variances
    others = np.eye(WIDTH) - axes @ axes.T
    covariance = axes @ np.diag(variances[:-1]) @ axes.T + variances[-1] * others
    for graph, found in zip(graphs, novelty.distances(graphs), strict=True):
        z = graph - novelty.mean
        z[:-1] *= np.sqrt(np.exp(graph[-1]))
        z /= novelty.scale
        # the axes are rounded to 11 bits, so that they are orthogonal to a thousandth
        assert found == pytest.approx(z @ np.linalg.solve(covariance, z), rel=2e-2)


def test_percentiles_of_exchangeable_graphs_are_uniform():
    novelty, n, m = fitted(), 2000, 4000
    found = np.sort(novelty.percentiles(novelty.distances(embeddings(m, 3)))) / 100
    farthest = np.abs(found - (np.arange(m) + 0.5) / m).max()
    assert farthest < 1.95 * np.sqrt(1 / n + 1 / m)  # Kolmogorov and Smirnov, at 1 in 1,000


def test_percentiles_rise_with_the_distance_and_end_at_0_and_100():
    novelty = fitted()
    distances = np.sort(novelty.distances(embeddings(500, 4)))
    assert (np.diff(novelty.percentiles(distances)) >= 0).all()
    ends = np.array([novelty.quantiles[0] / 2, novelty.quantiles[-1] * 2, 1e300])
    assert novelty.percentiles(ends).tolist() == [0.0, 100.0, 100.0]


def test_odd_graphs_are_far_in_columns_and_in_size():
    novelty, odd = fitted(), embeddings(3, 5).copy()
    odd[0, :10] += 50
    odd[1, -1] = np.log(5000)
    odd[2, :-1] = 1e18
    found = novelty.distances(odd)
    assert np.isfinite(found).all()
    assert novelty.percentiles(found).tolist() == [100.0] * 3


@pytest.mark.parametrize("width", [1, 2, WIDTH])
def test_columns_and_sizes_that_do_not_vary(width: int):
    alike = np.ones((FEWEST, width + 1), dtype=np.float32)
    novelty = Novelty.fit(alike)
    found = novelty.percentiles(novelty.distances(alike))
    assert found.tolist() == pytest.approx([50.0] * FEWEST)
    other = alike[:2] + np.array([[0.5], [-1.0]], dtype=np.float32)
    assert novelty.percentiles(novelty.distances(other)).tolist() == pytest.approx([1000 / 11] * 2)


@pytest.mark.parametrize("count", [20, 60, 300])
def test_few_graphs_do_not_make_others_novel(count: int):
    graphs, shares = embeddings(60_000, 7), []
    for k in range(60):
        own, others = np.split(graphs[1000 * k : 1000 * (k + 1)], [count])
        novelty = Novelty.fit(own)
        found = novelty.percentiles(novelty.distances(others))
        assert found.max() <= 100 * count / (count + 2) + 1e-9  # m / (m + 1) of a half
        shares.append([np.mean(found > level) for level in (50, 75, 99)])
    half, quarter, hundredth = np.mean(shares, axis=0)
    assert (half, quarter) == pytest.approx((0.5, 0.25), abs=0.04)
    assert hundredth < 0.02


def test_too_few_graphs_say_nothing():
    assert Novelty.fit(embeddings(FEWEST - 1, 1)) is None


def test_a_file_keeps_every_digit():
    novelty, graphs = fitted(100), embeddings(50, 6)
    again = Novelty.of(novelty.tensors(), WIDTH)
    np.testing.assert_array_equal(again.distances(graphs), novelty.distances(graphs))
    assert Novelty.of(novelty.tensors(), WIDTH + 1) is None
    assert Novelty.of({}, WIDTH) is None
    damaged = {**novelty.tensors(), PREFIX + "scale": torch.zeros(WIDTH)}
    with pytest.raises(ValueError, match="damaged"):
        Novelty.of(damaged, WIDTH)


def test_the_shipped_model_tells_strange_molecules_from_usual_ones():
    model = graphlog.load("graphlog-mol")
    novelty = Novelty.of(model.extra, model.width("jk"))
    strange = {
        "iron": "[Fe]",
        "salt": "[Na+].[Cl-]",
        "octaleucine": "CC(C)CC(N)C(=O)" + "NC(CC(C)C)C(=O)" * 7 + "O",
        "18-crown-6": "C1COCCOCCOCCOCCOCCO1",
        "erythromycin": "CCC1OC(=O)C(C)C(OC2CC(C)(OC)C(O)C(C)O2)C(C)C(OC2OC(C)CC(N(C)C)C2O)C(C)(O)"
        "CC(C)C(=O)C(C)C(O)C1(C)O",
        "indocyanine green": "CC1(C)C(=CC=CC=CC=CC2=[N+](CCCCS(=O)(=O)[O-])c3ccc4ccccc4c3C2(C)C)"
        "N(CCCCS(=O)(=O)[O-])c2ccc3ccccc3c12.[Na+]",
    }
    usual = [
        "CC(=O)Oc1ccccc1C(=O)O",
        "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
        "CN1C(=O)CN=C(c2ccccc2)c2ccccc21",
    ]
    found = novelty.percentiles(novelty.distances(model.embed([*strange.values(), *usual], "jk")))
    above = dict(zip(strange, found, strict=False))
    assert above.pop("indocyanine green") > 95  # the collection has dyes
    assert min(above.values()) > 99, above
    assert (found[len(strange) :] < 90).all()


def test_the_shipped_models_are_small_enough():
    for path in list_models().values():
        assert path.stat().st_size <= 4e6
    tensors = load_file(list_models()["graphlog-mol"])
    assert sum(t.nbytes for name, t in tensors.items() if PREFIX in name) < 130_000


def test_columns_are_compared_in_units_of_their_own_spread():
    draw = np.random.default_rng(0)
    known = np.column_stack([draw.normal(size=(400, 6)), draw.normal(2.5, 0.3, 400)])
    units = np.array([1.0, 30.0, 0.2, 5.0, 1.0, 1.0, 1.0])
    new = known[:20] + draw.normal(size=(20, 7))
    new[:, -1] = known[:20, -1]
    one, other = (Novelty.fit(known * u).distances(new * u) for u in (np.ones(7), units))
    # numbers of atoms, in the last column, are as they were
    np.testing.assert_allclose(other, one, rtol=1e-2)


def test_exchanged_halves_judge_each_other():
    emb, (first, second) = np.random.default_rng(0).normal(size=(200, 5)), _halves(200, 0)
    np.testing.assert_allclose(Novelty.fit(emb).mean, emb[first].mean(axis=0))
    np.testing.assert_allclose(Novelty.fit(emb, exchanged=True).mean, emb[second].mean(axis=0))
