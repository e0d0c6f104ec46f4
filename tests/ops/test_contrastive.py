"""Cosine similarities, softmax shares and means."""

import torch

from encoder_support import seeded
from graphlog.ops.contrastive import (
    cosine_similarity,
    full_precision,
    info_nce,
    log_softmax_share,
    margin,
    mean_or_zero,
    paired_cosine_similarity,
)


def test_softmax_shares_are_stable_at_any_temperature() -> None:
    logits = torch.tensor([[1000.0, 999.0], [0.0, 1000.0]])
    assert torch.allclose(log_softmax_share(logits), torch.tensor([-0.3133, 0.0]), atol=1e-4)
    assert info_nce(torch.eye(3), 1e-4) == 0


def test_means_of_nothing() -> None:
    assert mean_or_zero(torch.empty(0)) == 0
    assert margin(torch.tensor([0.5, 0.7]), torch.empty(0)) == -0.6


def test_full_precision_touches_halves_only() -> None:
    assert full_precision(torch.ones(2, dtype=torch.bfloat16)).dtype == torch.float32
    assert full_precision(torch.ones(2, dtype=torch.float64)).dtype == torch.float64


def test_paired_cosines_are_the_diagonal() -> None:
    x, y = (torch.randn(5, 3, generator=seeded(k)) for k in (1, 2))
    assert torch.allclose(paired_cosine_similarity(x, y), cosine_similarity(x, y).diagonal())
