"""Eqs. 12 and 17 to 19 against loops written from the paper in float64."""

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from encoder_support import all_chains, cosine, random_forest, seeded, slow_energy
from graphlog.objectives.losses import nce_loss, prototype_cross_entropy, prototype_statistics
from graphlog.prototypes import PrototypeForest, corrupt_chains, negative_energy, sample_chains

FOREST = random_forest((3, 5, 9), dim=4)


def slow_walk_probability(
    h: Tensor, chain: list[int], forest: PrototypeForest, temperature: float
) -> float:
    """Eq. 12, one step at a time."""
    probability = 1.0
    for level, chosen in enumerate(chain):
        layer = forest.layers[level]
        below = children(forest, level, chain[level - 1]) if level else range(len(layer))
        weights = {c: float(torch.exp(cosine(h, layer[c]) / temperature)) for c in below}
        probability *= weights[chosen] / sum(weights.values())
    return probability


def children(forest: PrototypeForest, level: int, parent: int) -> list[int]:
    return (forest.parents[level - 1] == parent).nonzero()[:, 0].tolist()


def graphs(num: int, seed: int = 5) -> Tensor:
    return torch.randn(num, 4, generator=seeded(seed), dtype=torch.float64)


def test_energy_of_every_chain():
    chains = all_chains(FOREST)
    h = graphs(1).expand(len(chains), 4)
    wanted = torch.stack([slow_energy(h[0], c, FOREST) for c in chains.tolist()])
    assert torch.allclose(negative_energy(h, chains, FOREST), wanted, rtol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_chains_are_drawn_as_often_as_eq_12_says(temperature: float):
    """Chi-square over all chains at a false-alarm rate of 1e-6."""
    h, draws = graphs(1), 20_000
    drawn = sample_chains(h.expand(draws, 4), FOREST, temperature=temperature, generator=seeded(7))
    chains = all_chains(FOREST)
    counts = (drawn[:, None, :] == chains[None]).all(dim=2).sum(dim=0).double()
    assert counts.sum() == draws, "a drawn chain does not follow the trees"
    shares = [slow_walk_probability(h[0], c, FOREST, temperature) for c in chains.tolist()]
    expected = draws * torch.tensor(shares, dtype=torch.float64)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < chi2.isf(1e-6, len(chains) - 1)


def test_noise_chains_differ_in_one_prototype_each():
    chains = sample_chains(graphs(500), FOREST, generator=seeded())
    noise = corrupt_chains(chains, FOREST, seeded(1))
    differs = noise != chains[:, None, :]
    assert torch.equal(differs, torch.eye(3, dtype=torch.bool).expand(500, 3, 3))
    assert noise.min() >= 0
    assert (noise.amax(dim=(0, 1)) < torch.tensor(FOREST.sizes)).all()


def test_noise_prototypes_are_equally_likely():
    """Chi-square per layer at a false-alarm rate of 1e-6 each."""
    chains = torch.tensor([[1, 2, 4]]).expand(9000, 3)
    noise = corrupt_chains(chains, FOREST, seeded(2))
    for level, size in enumerate(FOREST.sizes):
        counts = torch.bincount(noise[:, level, level], minlength=size).double()
        expected = 9000 / (size - 1)
        others = counts[torch.arange(size) != chains[0, level]]
        assert counts[chains[0, level]] == 0
        assert float(((others - expected) ** 2 / expected).sum()) < chi2.isf(1e-6, size - 2)


def test_a_layer_of_one_prototype_has_no_noise_of_its_own():
    forest = random_forest((1, 3), dim=4)
    chains = sample_chains(graphs(20), forest, generator=seeded())
    noise = corrupt_chains(chains, forest, seeded())
    assert torch.equal(noise[:, 0], chains)
    assert (noise[:, 1, 1] != chains[:, 1]).all()


def test_nce_loss_is_eq_19():
    h = graphs(6)
    chains = sample_chains(h, FOREST, generator=seeded())
    noise = corrupt_chains(chains, FOREST, seeded(1))
    gaps = []
    for n in range(6):
        false = sum(slow_energy(h[n], z.tolist(), FOREST) for z in noise[n]) / 3
        gaps.append(slow_energy(h[n], chains[n].tolist(), FOREST) - false)
    assert torch.allclose(nce_loss(h, chains, noise, FOREST), -sum(gaps) / 6, rtol=1e-12)


@pytest.mark.parametrize("candidates", ["layer", "siblings"])
def test_prototype_cross_entropy(candidates: str):
    h, tau = graphs(6), 0.3
    chains = sample_chains(h, FOREST, generator=seeded())

    def loss(x: Tensor, layer: Tensor, among: list[int], right: int) -> Tensor:
        logits = torch.stack([cosine(x, layer[c]) / tau for c in among])
        return -logits.log_softmax(0)[among.index(right)]

    wanted = torch.zeros((), dtype=torch.float64)
    for level, layer in enumerate(FOREST.layers):
        losses = []
        for n, chain in enumerate(chains.tolist()):
            among = list(range(len(layer)))
            if level > 0 and candidates == "siblings":
                among = children(FOREST, level, chain[level - 1])
            losses.append(loss(h[n], layer, among, chain[level]))
        wanted = wanted + torch.stack(losses).mean()
        if level > 0:
            above, parents = FOREST.layers[level - 1], FOREST.parents[level - 1].tolist()
            everyone = list(range(len(above)))
            links = [loss(c, above, everyone, parents[j]) for j, c in enumerate(layer)]
            wanted = wanted + torch.stack(links).mean()
    found = prototype_cross_entropy(h, chains, FOREST, temperature=tau, candidates=candidates)
    assert torch.allclose(found, wanted, rtol=1e-10)


def test_statistics_count_prototypes_in_use():
    forest = PrototypeForest(
        [torch.eye(2), torch.eye(2).repeat(2, 1) + torch.tensor([[0.1], [0.2], [0.0], [0.0]])],
        [torch.tensor([0, 1, 0, 1])],
    )
    h = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(8, 1)
    chains = torch.tensor([[0, 2], [1, 3]]).repeat(8, 1)
    found = prototype_statistics(h, chains, forest, temperature=1e-3)
    values = {k: round(float(v), 3) for k, v in found.items()}
    assert values["prototypes_total_1"] == 4
    for name in ("estep_0", "nearest_0", "estep_1"):
        assert values[f"prototypes_used_{name}"] == 2
    assert values["posterior_perplexity_0"] == 1
    even = prototype_statistics(h, chains, forest, temperature=1e3)
    assert round(float(even["posterior_perplexity_1"]), 2) == 4
