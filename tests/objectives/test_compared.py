"""What is particular to each compared objective: views, targets, settings it refuses."""

import sys

import pytest
import torch

from encoder_support import BARE, EDGE_MASKED, SIZES, batch_for, encoder_for, make, run_once, seeded
from graphlog.errors import ConfigError, MissingExtraError
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.graph_partition import Partitioner
from graphlog.views.augment import MaskedView
from store_support import collate

WEIGHTS = ["graph_weight", "subgraph_weight", "global_weight", "attribute_weight"]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("contextpred", {"inner": 7}, "must be above `inner`"),
        ("contextpred", {"hops": 3}, "must be above `inner`"),
        ("contextpred", {"outer": 2}, "must be above `inner`"),
        ("contextpred", {"substructure_at": "center"}, r"^`objective`: .*needs `hops=0`"),
        ("graphcl", {"first": ["shuffle"]}, "objective.first"),
        ("graphcl", {"second": []}, "objective.second"),
        ("graphlog", {"subgraph_positive": "masked"}, "subgraph_positive"),
        ("graphlog", {"skip_symmetric": True, "local_form": "margin"}, "needs `local_form"),
        ("graphlog", dict.fromkeys(WEIGHTS, 0), "at least one"),
    ],
)
def test_settings_that_contradict_each_other(name: str, options: dict[str, object], words: str):
    with pytest.raises(ConfigError, match=words):
        OBJECTIVES[name].Config.parse(options, "objective.")


def test_the_sources_mask_leaves_chirality_unspecified_and_bonds_alone():
    batch = batch_for()
    views = make("attrmasking/paper", encoder_for()).views(batch, seeded())
    assert set(map(tuple, views.batch.x[views.node_idx].tolist())) == {(119, 0)}
    assert views.batch.edge_attr is batch.edge_attr


def test_of_equal_channels_the_first_is_the_answer():
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


SMALL = {"hops": 2, "inner": 1, "outer": 4}


def test_the_recipe_of_biology_takes_the_center():
    assert make("contextpred/biology", encoder_for()).config.substructure_at == "center"


def test_the_context_encoder_has_the_same_backbone_and_its_own_depth():
    encoder = encoder_for(backbone="gcn", jk="concat", readout="attention")
    context = make("contextpred", encoder).context
    assert (context.config.backbone, len(context.layers)) == ("gcn", 3)
    assert (context.readout.kind, context.dim) == ("mean", 36)


def test_a_lone_graph_has_no_wrong_context():
    encoder = encoder_for()
    found = run_once(make("contextpred", encoder, **SMALL), encoder, batch_for(sizes=[12]))
    assert float(found.terms["negative"].detach()) == 0
    assert float(found.terms["positive"].detach()) > 0


def test_parts_are_balanced():
    batch = batch_for()
    for size, parts in zip(SIZES, Partitioner(4)(batch).split(SIZES), strict=True):
        counts = torch.bincount(parts)
        assert len(counts) == min(size, 4)
        assert counts.min() > 0
        assert counts.max() - counts.min() <= 1 + size // 8


def test_few_edges_are_cut():
    batch = batch_for(sizes=[40] * 4)
    parts = Partitioner(2)(batch)
    cut = (parts[batch.edge_index[0]] != parts[batch.edge_index[1]]).double().mean()
    assert float(cut) < 0.35


def test_a_topology_is_cut_once_and_remembered_wherever_it_stands(monkeypatch: pytest.MonkeyPatch):
    graphs = [batch_for(sizes=[n], seed=n) for n in SIZES]
    partitioner = Partitioner(3)
    first = partitioner(collate(graphs))
    monkeypatch.setattr(partitioner, "_cut", lambda *_: pytest.fail("cut again"))
    again = partitioner(collate(graphs[::-1]))
    assert torch.cat(list(again.split(SIZES[::-1]))[::-1]).equal(first)
    assert partitioner(graphs[2]).equal(first.split(SIZES)[2])


def test_topologies_are_learned_batch_by_batch():
    partitioner = Partitioner(2)
    graphs = [batch_for(sizes=[12], seed=seed) for seed in range(40)]
    first = [partitioner(g) for g in graphs]
    assert torch.cat(first).equal(partitioner(collate(graphs)))


def test_metis_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingExtraError, match=r"graphlog-torch\[partition\]"):
        Partitioner(4)


def test_any_pair_of_perturbations():
    encoder, batch = encoder_for(), batch_for()
    names = ["none", "drop-nodes", "drop-edges", "mask-attributes", "subgraph"]
    for first in names:
        objective = make("graphcl", encoder, first=[first], second=["subgraph", first])
        assert run_once(objective, encoder, batch).total.isfinite()


def test_masking_needs_a_mask():
    make("graphcl", encoder_for(BARE))
    with pytest.raises(ConfigError, match="node_mask"):
        make("graphcl", encoder_for(BARE), first=["mask-attributes"])


def test_the_two_copies_differ():
    first, second = make("graphcl", encoder_for()).views(batch_for(), seeded())
    assert first.ptr.tolist() != second.ptr.tolist() or not torch.equal(first.x, second.x)


def test_edges_cannot_be_rebuilt():
    with pytest.raises(ConfigError, match="attrmasking"):
        OBJECTIVES["graphmae"].check_schema(EDGE_MASKED)


def test_after_remasking_a_lone_node_knows_nothing_of_itself():
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
