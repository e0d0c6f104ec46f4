"""Softmax shares at any temperature."""

import torch

from graphlog.ops.contrastive import log_softmax_share


def test_softmax_shares_are_stable_at_any_temperature() -> None:
    logits = torch.tensor([[1000.0, 999.0], [0.0, 1000.0]])
    assert torch.allclose(log_softmax_share(logits), torch.tensor([-0.3133, 0.0]), atol=1e-4)
    assert not log_softmax_share(torch.eye(3) / 1e-4).any()
