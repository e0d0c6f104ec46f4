"""GraphMAE: re-masking, and graphs it cannot serve."""

import pytest
import torch

from encoder_support import EDGE_MASKED, batch_for, encoder_for, make, seeded
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.graphmae import scaled_cosine_error


def test_edges_cannot_be_rebuilt() -> None:
    with pytest.raises(ConfigError, match="attrmasking"):
        OBJECTIVES["graphmae"].check_schema(EDGE_MASKED)


def test_after_remasking_a_lone_node_knows_nothing_of_itself() -> None:
    encoder = encoder_for().eval()
    batch = batch_for(sizes=[1, 1])  # no neighbors, both masked
    objective = make("graphmae", encoder).eval()
    views = objective.views(batch, seeded())
    encoder.node.weight.data.mul_(3.0)
    with torch.no_grad():
        first = objective.loss(views, encoder, seeded())
        encoder.node.weight.data.mul_(-2.0)
        second = objective.loss(views, encoder, seeded())
    assert torch.allclose(first.total, second.total)


def test_error_of_the_right_and_the_opposite_direction() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    assert float(scaled_cosine_error(5 * x, x, 2.0)) == pytest.approx(0.0, abs=1e-6)
    assert float(scaled_cosine_error(-x, x, 3.0)) == pytest.approx(8.0)
    assert float(scaled_cosine_error(x[:0], x[:0], 2.0)) == 0.0
