"""GraphLoG as a whole: recipes, phases, switches, gradients, saved state, odd batches."""

import math

import pytest
import torch
from torch import Tensor

from encoder_support import (
    EDGE_MASKED,
    NODE_MASKED,
    make,
    random_batch,
    run_once,
    seeded,
    small_encoder,
)
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import ConfigError
from graphlog.objectives.base import Phase
from graphlog.objectives.graphlog import GraphLoG, GraphLoGConfig
from graphlog.ops.contrastive import cosine_similarity
from graphlog.prototypes import PrototypeForest, leaf_chains

SIZES = [5, 9, 12, 7, 1, 20, 3, 8, 11, 6, 14, 4]
TERMS = ("graph", "subgraph", "global", "attribute")
RECIPES = ["graphlog", "graphlog/graphlog", "graphlog/paper", "graphlog/released"]
"""Recipes for any graph; the first leaves every setting as it is, with attribute prediction."""


def build(
    name: str = "graphlog", encoder: GraphEncoder | None = None, **switches: object
) -> GraphLoG:
    objective = make(name, encoder or small_encoder(), **switches)
    assert isinstance(objective, GraphLoG)
    return objective


def begin_joint(objective: GraphLoG, embeddings: Tensor | None = None) -> None:
    found = torch.randn(80, 16, generator=seeded(8)) if embeddings is None else embeddings
    objective.begin_phase(Phase("joint", 1), lambda limit, calibrated: found[:limit], seeded(9))


@pytest.mark.parametrize("recipe", RECIPES)
def test_total_is_the_weighted_sum_and_everything_is_reported(recipe: str):
    encoder = small_encoder()
    objective = build(recipe, encoder)
    begin_joint(objective)
    found = run_once(objective, encoder, random_batch(SIZES))
    weights = {name: getattr(objective.config, f"{name}_weight") for name in TERMS}
    assert set(found.terms) == {name for name, weight in weights.items() if weight > 0}
    assert torch.allclose(found.total, sum(weights[n] * t for n, t in found.terms.items()))
    wanted = {"cos_graph_pos", "cos_graph_neg", "cos_node_pos", "cos_node_neg"}
    counts = "total used_estep used_nearest".split()
    for level in range(3):
        wanted |= {f"prototypes_{n}_{level}" for n in counts} | {f"posterior_perplexity_{level}"}
    assert set(found.watch) == wanted
    assert not any(v.requires_grad or v.ndim for v in found.watch.values())


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_small_set_is_learned(recipe: str):
    encoder, batch = small_encoder(), random_batch(SIZES)
    objective = build(recipe, encoder)
    begin_joint(objective, encoder(batch).graph_emb.detach())
    optimizer = torch.optim.Adam([*encoder.parameters(), *objective.parameters()], lr=1e-2)
    losses = []
    for k in range(20):
        found = run_once(objective, encoder, batch, seed=2 * k)
        optimizer.zero_grad()
        found.total.backward()
        optimizer.step()
        losses.append(found.total.item())
    assert sum(losses[-5:]) < sum(losses[:5])


def test_state_without_prototypes():
    fresh, other = build(), build()
    other.prepare_state(fresh.state_dict())
    other.load_state_dict(fresh.state_dict())
    assert other.forest is None


def test_prototypes_can_be_fitted_again():
    objective = build()
    begin_joint(objective)
    first = objective.forest.sizes
    begin_joint(objective, torch.randn(10, 16, generator=seeded(1)))
    assert objective.forest.sizes != first
    assert len([n for n, _ in objective.named_buffers()]) == 2


@pytest.mark.parametrize(
    ("switches", "epochs", "wanted"),
    [
        ({}, 11, [("local", 1), ("joint", 10)]),
        ({}, 1, [("local", 1)]),
        ({"local_epochs": 3}, 5, [("local", 3), ("joint", 2)]),
        ({"global_weight": 0}, 5, [("local", 5)]),
        (
            {"graph_weight": 0, "subgraph_weight": 0, "attribute_weight": 0},
            5,
            [("local", 1), ("joint", 4)],
        ),
    ],
)
def test_phases(switches: dict[str, float], epochs: int, wanted: list[tuple[str, int]]):
    assert [tuple(p) for p in build(**switches).phases(epochs)] == wanted


def test_prototypes_alone_begin_with_the_local_losses():
    """Clusters of an untrained network mean nothing: Algorithm 1 trains it locally first."""
    encoder = small_encoder()
    objective = build(encoder=encoder, graph_weight=0, subgraph_weight=0, attribute_weight=0)
    found = run_once(objective, encoder, random_batch(SIZES))
    assert set(found.terms) == {"graph", "subgraph"}
    assert torch.equal(found.total, found.terms["graph"] + found.terms["subgraph"])
    begin_joint(objective)
    assert set(run_once(objective, encoder, random_batch(SIZES)).terms) == {"global"}
    with pytest.raises(ConfigError, match="local_epochs"):
        GraphLoGConfig.parse({"local_epochs": 0})


def expected_root_gradient(objective: GraphLoG, graph_emb: Tensor) -> Tensor:
    """Gradient of the global loss in the roots, averaged over 4,000 E-steps."""
    total = torch.zeros_like(objective.prototypes[0])
    for seed in range(40):
        repeated = graph_emb.repeat(100, 1) if objective.config.e_step == "sample" else graph_emb
        loss, _ = objective._global_term(repeated, objective.forest, seeded(seed))
        total += torch.autograd.grad(loss, objective.prototypes[0])[0] / 40
    return total


def test_the_global_loss_has_a_gradient_in_expectation():
    """At the top layer, where nothing but the graphs' own term acts on the roots."""
    emb = torch.randn(30, 16, generator=seeded(3))
    size = {}
    for name, switches in (("balanced", {}), ("sample", {"e_step_temperature": 0.1})):
        objective = build(depth=1, centers=6, e_step=name, **switches)
        begin_joint(objective)
        size[name] = float(expected_root_gradient(objective, emb).norm())
        assert (objective.phases_note(2) is None) == (name == "balanced")
    assert size["balanced"] > 10 * size["sample"]


def test_prototypes_are_fitted_on_a_sample():
    asked: list[tuple[int | None, bool]] = []

    def embed(limit: int | None, calibrated: bool) -> Tensor:
        asked.append((limit, calibrated))
        return torch.randn(60, 16)

    for recipe in RECIPES:
        build(recipe).begin_phase(Phase("joint", 1), embed, seeded())
    assert asked == [(20_000, True), (20_000, True), (None, True), (None, False)]
    build().begin_phase(Phase("local", 1), embed, seeded())
    assert len(asked) == 4


def roots_in_use(forest: PrototypeForest, emb: Tensor) -> float:
    """Exponential of the entropy of the roots above the nearest leaves."""
    leaves = cosine_similarity(emb, forest.layers[-1]).argmax(dim=1)
    counts = torch.bincount(leaf_chains(leaves, forest)[:, 0]).double()
    return float(torch.exp(torch.special.entr(counts / counts.sum()).sum()))


def test_upper_layers_stay_in_use_among_outliers():
    groups = torch.randn(40, 16, generator=seeded(3))
    emb = groups.repeat(20, 1) + 0.1 * torch.randn(800, 16, generator=seeded(4))
    emb[:80] *= torch.linspace(2, 20, 80)[:, None]  # far away, where K-means puts its centers
    in_use: dict[str, float] = {}
    for way in ("balanced", "kmeans"):
        objective = build(initialization=way, centers=40)
        begin_joint(objective, emb)
        assert objective.forest is not None
        in_use[way] = roots_in_use(objective.forest, emb)
    assert in_use["balanced"] > 3.5
    assert in_use["kmeans"] < 2.5


@pytest.mark.parametrize("parts", [*((name,) for name in TERMS), ("graph", "global")])
def test_each_loss_can_stand_alone(parts: tuple[str, ...]):
    encoder = small_encoder()
    weights = {f"{name}_weight": float(name in parts) for name in TERMS}
    objective = build(encoder=encoder, **weights)
    begin_joint(objective)
    found = run_once(objective, encoder, random_batch(SIZES))
    assert set(found.terms) == set(parts)
    found.total.backward()


@pytest.mark.parametrize("schema", [NODE_MASKED, EDGE_MASKED], ids=["nodes", "edges"])
@pytest.mark.parametrize("anchors", ["all", "masked"])
def test_symmetric_nodes_left_out_of_odd_batches(schema: object, anchors: str):
    encoder, batch = small_encoder(schema), random_batch([1, 2, *SIZES], schema=schema)
    objective = build(encoder=encoder, subgraph_anchors=anchors, skip_symmetric=True)
    begin_joint(objective)
    found = run_once(objective, encoder, batch)
    found.total.backward()
    assert torch.isfinite(found.total)
    assert found.terms["attribute"] > 0
    for name, p in [*encoder.named_parameters(), *objective.named_parameters()]:
        assert p.grad is not None, name
        assert p.grad.any(), name


def test_symmetric_nodes_are_no_negatives():
    """On a ring of equal atoms all nodes look the same: nothing is left to be told apart."""
    ends = torch.arange(6)
    edges = torch.stack([ends, (ends + 1) % 6])
    batch = GraphBatch(
        x=torch.zeros(6, 2, dtype=torch.long),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        edge_attr=torch.zeros(12, 2, dtype=torch.long),
        batch=torch.zeros(6, dtype=torch.long),
        ptr=torch.tensor([0, 6]),
    )
    encoder = small_encoder().eval()
    losses = {
        skip: float(run_once(build(skip_symmetric=skip), encoder, batch).terms["subgraph"].detach())
        for skip in (False, True)
    }
    assert losses[True] == pytest.approx(0.0, abs=1e-6)
    assert losses[False] == pytest.approx(math.log(6), abs=1e-5)
