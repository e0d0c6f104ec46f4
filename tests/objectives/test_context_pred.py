"""ContextPred: reach, rings, and the encoder that is thrown away."""

import pytest
import torch

from encoder_support import batch_for, encoder_for, make, run_once
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES

SMALL = {"hops": 2, "inner": 1, "outer": 4}


@pytest.mark.parametrize("values", [{"inner": 7}, {"hops": 3}, {"outer": 2}])
def test_rings_that_cannot_overlap_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be above `inner`"):
        OBJECTIVES["contextpred"].Config.parse(values)


def test_the_context_encoder_has_the_same_backbone_and_its_own_depth() -> None:
    encoder = encoder_for(backbone="gcn", jk="concat", readout="attention")
    context = make("contextpred", encoder).context
    assert (context.config.backbone, len(context.layers)) == ("gcn", 3)
    assert (context.readout.kind, context.dim) == ("mean", 36)


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


def test_the_center_stands_for_whole_graphs_alone() -> None:
    with pytest.raises(ConfigError, match=r"^`objective`: .*needs `hops=0`"):
        OBJECTIVES["contextpred"].Config.parse({"substructure_at": "center"}, "objective.")
