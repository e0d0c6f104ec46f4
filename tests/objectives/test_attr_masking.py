"""AttrMasking: which attributes are hidden, which are asked for."""

from dataclasses import replace

import pytest
import torch

from encoder_support import EDGE_MASKED, NODE_MASKED, batch_for, encoder_for, make, run_once, seeded
from graphlog.errors import ConfigError
from graphlog.objectives.base import evidence_channels
from graphlog.views.augment import MaskedView


def test_the_sources_mask_leaves_chirality_unspecified() -> None:
    views = make("attrmasking", encoder_for(), masked_columns="first").views(batch_for(), seeded())
    assert set(map(tuple, views.masked.batch.x[views.masked.node_idx].tolist())) == {(119, 0)}


def test_bonds_are_left_alone_unless_asked_for() -> None:
    batch = batch_for()
    plain = make("attrmasking", encoder_for()).views(batch, seeded())
    assert plain.masked.batch.edge_attr is batch.edge_attr
    assert plain.bond_idx.shape[0] == 0
    bonds = make("attrmasking", encoder_for(), mask_bonds=True).views(batch, seeded())
    assert bonds.masked.node_idx.equal(plain.masked.node_idx)
    assert bool((bonds.masked.batch.edge_attr[bonds.bond_idx, 0] == 5).all())


def test_all_channels_can_be_predicted_and_no_mark_with_them() -> None:
    encoder = encoder_for(EDGE_MASKED)
    objective = make("attrmasking", encoder, predicted_columns="all")
    assert objective.head.positions == evidence_channels(EDGE_MASKED) == (0, 1)
    assert evidence_channels(NODE_MASKED) == ()
    assert run_once(objective, encoder, batch_for(EDGE_MASKED)).total.isfinite()


def test_bond_masking_needs_masked_nodes_and_an_edge_mask() -> None:
    without = replace(NODE_MASKED, edge_mask=None)
    for schema, lacking in ((EDGE_MASKED, "mask_bonds"), (without, "no `edge_mask` row")):
        with pytest.raises(ConfigError, match=lacking):
            make("attrmasking", encoder_for(schema), mask_bonds=True)


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
