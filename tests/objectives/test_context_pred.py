"""ContextPred: reach, rings, and the encoder that is thrown away."""

import pytest
import torch

from encoder_support import EDGE_MASKED, batch_for, encoder_for, make, run_once, seeded
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES

SMALL = {"hops": 2, "inner": 1, "outer": 4}


@pytest.mark.parametrize("values", [{"inner": 7}, {"hops": 3}, {"outer": 2}])
def test_rings_that_cannot_overlap_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be above `inner`"):
        OBJECTIVES["contextpred"].Config.parse(values)


def test_both_encoders_learn() -> None:
    encoder = encoder_for()
    objective = make("contextpred", encoder, **SMALL)
    run_once(objective, encoder, batch_for()).total.backward()
    assert all(
        float(p.grad.abs().sum()) > 0 for p in (encoder.node.weight, objective.context.node.weight)
    )


def test_the_context_encoder_has_the_same_backbone_and_its_own_depth() -> None:
    context = make(
        "contextpred", encoder_for(backbone="gcn", jk="concat", readout="attention")
    ).context
    assert (context.config.backbone, len(context.layers), context.readout.kind, context.dim) == (
        "gcn",
        3,
        "mean",
        36,
    )


def test_whole_graphs_as_substructures() -> None:
    encoder, batch = encoder_for(EDGE_MASKED), batch_for(EDGE_MASKED)
    views = make("contextpred", encoder, hops=0, inner=1, outer=0).views(batch, seeded())
    assert all(n in batch.sizes.tolist() for n in views.substructure.sizes.tolist())


def test_a_lone_graph_has_no_wrong_context() -> None:
    encoder = encoder_for()
    found = run_once(make("contextpred", encoder, **SMALL), encoder, batch_for(sizes=[12]))
    assert float(found.terms["negative"].detach()) == 0
    assert float(found.terms["positive"].detach()) > 0


def test_wrong_contexts_are_never_the_right_one() -> None:
    encoder = encoder_for().eval()
    many = make("contextpred", encoder, **SMALL, negatives=9).eval()
    with torch.no_grad():
        found = run_once(many, encoder, batch_for(sizes=[12, 14]))
    assert found.total.isfinite()


def test_an_ego_network_is_embedded_at_its_center_wherever_the_root_is() -> None:
    encoder, batch = encoder_for(EDGE_MASKED).eval(), batch_for(EDGE_MASKED)
    objective = make(
        "contextpred", encoder, hops=0, inner=1, outer=0, substructure_at="center"
    ).eval()
    views = objective.views(batch, seeded())
    moved = views._replace(root=(views.substructure.ptr[1:] - 1))
    assert not moved.root.equal(views.root)
    with torch.no_grad():
        found, elsewhere = (objective.loss(v, encoder, seeded()).total for v in (views, moved))
        at_root = make("contextpred", encoder, hops=0, inner=1, outer=0).eval()
        at_root.load_state_dict(objective.state_dict())
        other = at_root.loss(
            views._replace(root=views.substructure.ptr[:-1]), encoder, seeded()
        ).total
    assert float(found) == float(elsewhere) == float(other)


def test_the_center_stands_for_whole_graphs_alone() -> None:
    with pytest.raises(ConfigError, match=r"^`objective`: .*needs `hops=0`"):
        OBJECTIVES["contextpred"].Config.parse({"substructure_at": "center"}, "objective.")


def test_biology_takes_the_center() -> None:
    assert OBJECTIVES["contextpred"].RECIPES["biology"]["objective"]["substructure_at"] == "center"
