"""Theorem 1 and Proposition 1 on a toy whose graphs and chains can all be listed.

The toy knows five graphs; the collection holds some of them several times. The encoder is a table
of embeddings, so theta is that table. All likelihoods are exact: the partition function of Eq. 17
is a sum over every graph and every chain. What is checked is the library's energy, against Eq. 18
written as loops: with any other energy the checks must fail, which is tested too.
"""

from collections.abc import Callable
from itertools import combinations, pairwise

import pytest
import torch
from torch import Tensor

from encoder_support import all_chains, random_forest, seeded, slow_energy
from graphlog.prototypes import PrototypeForest, negative_energy, sample_chains

KINDS = 5
COLLECTION = torch.tensor([0, 0, 1, 2, 2, 3])
Energy = Callable[[Tensor, Tensor, PrototypeForest], Tensor]


def energy_of_the_paper(emb: Tensor, chains: Tensor, forest: PrototypeForest) -> Tensor:
    """Eq. 18, one graph and one chain at a time."""
    pairs = zip(emb, chains.tolist(), strict=True)
    return torch.stack([slow_energy(h, chain, forest) for h, chain in pairs])


def without_links(emb: Tensor, chains: Tensor, forest: PrototypeForest) -> Tensor:
    """Only the first sum of Eq. 18."""
    links = sum(
        torch.cosine_similarity(a[chains[:, level]], b[chains[:, level + 1]])
        for level, (a, b) in enumerate(pairwise(forest.layers))
    )
    return negative_energy(emb, chains, forest) - links


WRONG: dict[str, Energy] = {
    "sign": lambda h, z, forest: -negative_energy(h, z, forest),
    "twice": lambda h, z, forest: 2 * negative_energy(h, z, forest),
    "no links": without_links,
    "nonsense": lambda h, z, _: torch.sin(7 * h.sum(dim=1) + z.sum(dim=1)),
}


class Toy:
    """An energy model (Eq. 17) over all pairs of a graph and a chain."""

    def __init__(self, seed: int) -> None:
        self.emb = torch.randn(KINDS, 3, generator=seeded(seed), dtype=torch.float64)
        self.emb.requires_grad_()
        self.forest = random_forest((2, 4), dim=3, seed=seed)
        self.layers = [layer.clone().requires_grad_() for layer in self.forest.layers]
        self.chains = all_chains(self.forest)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.emb, *self.layers]

    def log_joint(self, energy: Energy = negative_energy) -> Tensor:
        """log p(G, z) of every graph (rows) and chain (columns)."""
        forest = PrototypeForest(self.layers, self.forest.parents)
        emb = self.emb.repeat_interleave(len(self.chains), dim=0)
        values = energy(emb, self.chains.repeat(KINDS, 1), forest).view(KINDS, -1)
        return values - values.logsumexp(dim=(0, 1))

    def log_marginal(self, graphs: Tensor, energy: Energy = negative_energy) -> Tensor:
        return self.log_joint(energy).logsumexp(dim=1)[graphs].sum()

    def posterior(self, energy: Energy = negative_energy) -> Tensor:
        return self.log_joint(energy).detach().softmax(dim=1)

    def expected(
        self, graphs: Tensor, posterior: Tensor, energy: Energy = negative_energy
    ) -> Tensor:
        """Q of Eqs. 13-14: the complete-data log-likelihood, averaged over the old posterior."""
        return (posterior * self.log_joint(energy)).sum(dim=1)[graphs].sum()

    def m_step(self, graphs: Tensor, posterior: Tensor, energy: Energy = negative_energy) -> float:
        """Follow the gradient of Q, halving the step until Q rises; return the rise, else 0."""
        before = self.expected(graphs, posterior, energy)
        grads = torch.autograd.grad(before, self.parameters, materialize_grads=True)
        if sum(float(g.square().sum()) for g in grads) < 1e-16:
            return 0.0
        start, step = [p.detach().clone() for p in self.parameters], 0.5
        while step > 1e-12:
            with torch.no_grad():
                for p, p0, g in zip(self.parameters, start, grads, strict=True):
                    p.copy_(p0 + step * g)
                rise = (self.expected(graphs, posterior, energy) - before).item()
            if rise > 0:
                return rise
            step /= 2
        return 0.0


def check_theorem_1(energy: Energy, size: int) -> None:
    """Q~ of ``energy``, averaged over all mini-batches of ``size``, is N / M of the paper's Q."""
    toy = Toy(2)
    posterior = toy.posterior(energy)
    values = [
        toy.expected(COLLECTION[list(chosen)], posterior, energy)
        for chosen in combinations(range(len(COLLECTION)), size)
    ]
    whole = toy.expected(COLLECTION, toy.posterior(energy_of_the_paper), energy_of_the_paper)
    assert torch.allclose(torch.stack(values).mean(), size / len(COLLECTION) * whole, rtol=1e-12)


def check_sampled_bound(energy: Energy) -> None:
    """20,000 single draws average to the paper's Q~ within 6 standard errors (false alarm 2e-9)."""
    toy = Toy(3)
    log_joint = toy.log_joint(energy).detach()
    posterior = toy.posterior(energy)
    drawn = torch.multinomial(posterior[COLLECTION], 20_000, replacement=True, generator=seeded(4))
    estimates = log_joint[COLLECTION].gather(1, drawn).sum(dim=0)
    error = estimates.std() / len(estimates) ** 0.5
    wanted = toy.expected(COLLECTION, toy.posterior(energy_of_the_paper), energy_of_the_paper)
    assert abs(estimates.mean() - wanted.detach()) < 6 * error


def check_proposition_1(energy: Energy, seed: int) -> None:
    """Every cycle on the whole collection raises the paper's likelihood by Q's gain, plus KL."""
    toy = Toy(seed)
    for _ in range(15):
        before = toy.log_marginal(COLLECTION, energy_of_the_paper).detach()
        posterior = toy.posterior(energy)
        rise = toy.m_step(COLLECTION, posterior, energy)
        gain = float(toy.log_marginal(COLLECTION, energy_of_the_paper).detach() - before)
        after = toy.posterior(energy_of_the_paper)
        kl = (posterior * (posterior.log() - after.log())).sum(dim=1)[COLLECTION].sum()
        assert gain == pytest.approx(rise + float(kl), abs=1e-9)
        if rise > 0:
            assert gain >= rise


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_theorem_1_the_mini_batch_bound_is_n_over_m_of_the_whole(size: int):
    check_theorem_1(negative_energy, size)


def test_theorem_1_one_sampled_chain_estimates_the_bound_without_bias():
    check_sampled_bound(negative_energy)


@pytest.mark.parametrize("name", WRONG)
def test_theorem_1_fails_with_a_wrong_energy(name: str):
    with pytest.raises(AssertionError):
        check_theorem_1(WRONG[name], 2)
    with pytest.raises(AssertionError):
        check_sampled_bound(WRONG[name])


@pytest.mark.parametrize("seed", range(8))
def test_proposition_1_every_cycle_raises_the_marginal_likelihood(seed: int):
    check_proposition_1(negative_energy, seed)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", WRONG)
def test_proposition_1_fails_with_a_wrong_energy(name: str, seed: int):
    with pytest.raises(AssertionError):
        check_proposition_1(WRONG[name], seed)


def test_a_cycle_on_a_mini_batch_may_lower_the_likelihood_of_the_collection():
    """Proposition 1 is about the whole collection: a mini-batch cycle raises only its own."""
    cycles = lowered = 0
    for seed in range(9):
        for chosen in combinations(range(len(COLLECTION)), 3):
            toy, batch = Toy(seed), COLLECTION[list(chosen)]
            whole, own = toy.log_marginal(COLLECTION).item(), toy.log_marginal(batch).item()
            if toy.m_step(batch, toy.posterior()) > 0:
                assert toy.log_marginal(batch).item() > own
            cycles += 1
            lowered += toy.log_marginal(COLLECTION).item() < whole
    assert (lowered, cycles) == (51, 180)


def test_the_walk_of_the_e_step_is_not_the_posterior_of_the_energy():
    """Sampled top-down, a chain ignores the links of Eq. 18: documented in `sample_chains`."""
    toy = Toy(4)
    drawn = sample_chains(toy.emb.detach()[:1].expand(20_000, 3), toy.forest, generator=seeded(5))
    frequency = (drawn[:, None] == toy.chains[None]).all(dim=2).double().mean(dim=0)
    assert (frequency - toy.posterior()[0]).abs().max() > 0.02
