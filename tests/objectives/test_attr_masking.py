"""AttrMasking: which attributes are hidden, which are asked for."""

import torch

from encoder_support import EDGE_MASKED, NODE_MASKED, batch_for, encoder_for, make, run_once
from graphlog.objectives.base import evidence_channels
from graphlog.views.augment import MaskedView


def test_channels_of_evidence_are_predicted_and_no_mark_with_them() -> None:
    encoder = encoder_for(EDGE_MASKED)
    objective = make("attrmasking", encoder)
    assert objective.head.positions == evidence_channels(EDGE_MASKED) == (0, 1)
    assert evidence_channels(NODE_MASKED) == ()
    assert run_once(objective, encoder, batch_for(EDGE_MASKED)).total.isfinite()


def test_of_equal_channels_the_first_is_the_answer() -> None:
    encoder = encoder_for(EDGE_MASKED)
    head = make("attrmasking", encoder).head
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.copy_(torch.tensor([9.0, -9.0]))
    batch = batch_for(EDGE_MASKED, [5])
    both = batch.with_attributes(edge_attr=torch.ones_like(batch.edge_attr))
    view = MaskedView(both, torch.arange(5), torch.arange(both.num_edges), both)
    loss = head.loss(torch.zeros(5, encoder.dim), view)
    assert float(loss.detach()) < 1e-6
