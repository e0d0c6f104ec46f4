"""Theorem 1 and Proposition 1 on a toy whose graphs and chains can all be listed.

The toy knows five graphs; the collection holds some of them several times. The encoder is a table of embeddings, so theta is that table.
All likelihoods are exact: the partition function of Eq. 17 is a sum over every graph and every chain.
"""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from graphlog.prototypes import PrototypeForest, negative_energy, sample_chains
from graphlog_support import all_chains, random_forest, seeded

KINDS = 5
COLLECTION = torch.tensor([0, 0, 1, 2, 2, 3])


class Toy:
    """An energy model (Eqs. 17-18) over all pairs of a graph and a chain."""

    def __init__(self, seed: int) -> None:
        self.emb = torch.randn(
            KINDS, 3, generator=seeded(seed), dtype=torch.float64
        ).requires_grad_()
        self.forest = random_forest((2, 4), dim=3, seed=seed)
        self.layers = [layer.clone().requires_grad_() for layer in self.forest.layers]
        self.chains = all_chains(self.forest)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.emb, *self.layers]

    def log_joint(self) -> Tensor:
        """log p(G, z) of every graph (rows) and chain (columns)."""
        forest = PrototypeForest(self.layers, self.forest.parents)
        emb = self.emb.repeat_interleave(len(self.chains), dim=0)
        energy = negative_energy(emb, self.chains.repeat(KINDS, 1), forest).view(KINDS, -1)
        return energy - energy.logsumexp(dim=(0, 1))

    def log_marginal(self, graphs: Tensor) -> Tensor:
        return self.log_joint().logsumexp(dim=1)[graphs].sum()

    def posterior(self) -> Tensor:
        return self.log_joint().detach().softmax(dim=1)

    def expected(self, graphs: Tensor, posterior: Tensor) -> Tensor:
        """Q of Eqs. 13-14: the complete-data log-likelihood, averaged over the old posterior."""
        return (posterior * self.log_joint()).sum(dim=1)[graphs].sum()

    def m_step(self, graphs: Tensor, posterior: Tensor) -> float:
        """Follow the gradient of Q, halving the step until Q rises; return the rise, 0 at a stationary point."""
        before = self.expected(graphs, posterior)
        grads = torch.autograd.grad(before, self.parameters)
        if sum(float(g.square().sum()) for g in grads) < 1e-16:
            return 0.0
        start, step = [p.detach().clone() for p in self.parameters], 0.5
        while step > 1e-12:
            with torch.no_grad():
                for p, p0, g in zip(self.parameters, start, grads, strict=True):
                    p.copy_(p0 + step * g)
                rise = (self.expected(graphs, posterior) - before).item()
            if rise > 0:
                return rise
            step /= 2
        return 0.0


def test_the_toy_is_a_distribution() -> None:
    assert torch.allclose(Toy(0).log_joint().exp().sum(), torch.tensor(1.0, dtype=torch.float64))


def test_marginal_likelihood_is_elbo_plus_kl() -> None:
    """The decomposition that the proof of Proposition 1 starts from, for any q."""
    toy = Toy(1)
    q = torch.randn(KINDS, len(toy.chains), generator=seeded(3), dtype=torch.float64).softmax(dim=1)
    elbo = (q * (toy.log_joint() - q.log())).sum(dim=1)
    kl = (q * (q.log() - toy.posterior().log())).sum(dim=1)
    assert torch.allclose(elbo + kl, toy.log_joint().logsumexp(dim=1), rtol=1e-12)
    assert (kl > 0).all()


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_theorem_1_the_mini_batch_bound_is_n_over_m_of_the_whole(size: int) -> None:
    """Averaged over every mini-batch of N of the M graphs, Q~ is exactly N / M times Q (Eq. 15)."""
    toy = Toy(2)
    posterior = toy.posterior()
    values = [
        toy.expected(COLLECTION[list(chosen)], posterior)
        for chosen in combinations(range(len(COLLECTION)), size)
    ]
    whole = toy.expected(COLLECTION, posterior)
    assert torch.allclose(torch.stack(values).mean(), size / len(COLLECTION) * whole, rtol=1e-12)


def test_theorem_1_one_sampled_chain_estimates_the_bound_without_bias() -> None:
    """Mean of 20,000 single draws from the posterior within 6 standard errors of Q~ (false alarm 2e-9)."""
    toy = Toy(3)
    posterior, log_joint = toy.posterior(), toy.log_joint().detach()
    drawn = torch.multinomial(posterior[COLLECTION], 20_000, replacement=True, generator=seeded(4))
    estimates = log_joint[COLLECTION].gather(1, drawn).sum(dim=0)
    error = estimates.std() / len(estimates) ** 0.5
    assert abs(estimates.mean() - toy.expected(COLLECTION, posterior).detach()) < 6 * error


@pytest.mark.parametrize("seed", range(8))
def test_proposition_1_every_cycle_raises_the_marginal_likelihood(seed: int) -> None:
    """By at least as much as the M-step raises Q, the difference being the KL divergence that has opened."""
    toy = Toy(seed)
    for _ in range(15):
        before, posterior = toy.log_marginal(COLLECTION).detach(), toy.posterior()
        rise = toy.m_step(COLLECTION, posterior)
        gain = float(toy.log_marginal(COLLECTION).detach() - before)
        kl = (posterior * (posterior.log() - toy.posterior().log())).sum(dim=1)[COLLECTION].sum()
        assert gain == pytest.approx(rise + float(kl), abs=1e-9)
        if rise > 0:
            assert gain >= rise > 0


def test_proposition_1_holds_on_mini_batches() -> None:
    """A cycle on a mini-batch raises the likelihood of that mini-batch, scaled by M / N that of the whole in expectation."""
    toy = Toy(9)
    for chosen in combinations(range(len(COLLECTION)), 3):
        batch = COLLECTION[list(chosen)]
        before, posterior = toy.log_marginal(batch).item(), toy.posterior()
        if toy.m_step(batch, posterior) > 0:
            assert toy.log_marginal(batch).item() > before


def test_the_walk_of_the_e_step_is_not_the_posterior_of_the_energy() -> None:
    """Sampled top-down, a chain ignores the links of Eq. 18 (and its children's number): documented in `sample_chains`."""
    toy = Toy(4)
    drawn = sample_chains(toy.emb.detach()[:1].expand(20_000, 3), toy.forest, generator=seeded(5))
    frequency = (drawn[:, None] == toy.chains[None]).all(dim=2).double().mean(dim=0)
    assert (frequency - toy.posterior()[0]).abs().max() > 0.02
