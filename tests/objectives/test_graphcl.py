"""GraphCL: choice of perturbations, and what counts in the denominator."""

import pytest
import torch

from encoder_support import BARE, batch_for, encoder_for, make, run_once, seeded
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES


def test_any_pair_of_perturbations() -> None:
    encoder, batch = encoder_for(), batch_for()
    names = ["none", "drop-nodes", "perturb-edges", "mask-attributes", "subgraph"]
    for first in names:
        objective = make("graphcl", encoder, first=[first], second=["subgraph", first])
        assert run_once(objective, encoder, batch).total.isfinite()


def test_unknown_perturbations_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"first"):
        OBJECTIVES["graphcl"].Config.parse({"first": ["shuffle"]})
    with pytest.raises(ConfigError, match=r"second"):
        OBJECTIVES["graphcl"].Config.parse({"second": []})


def test_masking_needs_a_mask() -> None:
    make("graphcl", encoder_for(BARE))
    with pytest.raises(ConfigError, match="node_mask"):
        make("graphcl", encoder_for(BARE), first=["mask-attributes"])


def test_the_two_copies_differ() -> None:
    views = make("graphcl", encoder_for()).views(batch_for(), seeded())
    assert views.first.ptr.tolist() != views.second.ptr.tolist() or not torch.equal(
        views.first.x, views.second.x
    )
