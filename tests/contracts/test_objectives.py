"""What every objective in the table must do, with every backbone, whatever it computes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from encoder_support import (
    BARE,
    EDGE_MASKED,
    NODE_MASKED,
    SIZES,
    batch_for,
    begin_last_phase,
    encoder_for,
    make,
    run_once,
    seeded,
    usable,
)
from graphlog.api import read_graphs, read_molecules
from graphlog.data.store import GraphStore, StoreBuilder
from graphlog.domains import DOMAINS
from graphlog.domains.protein.network import ego_networks
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import Objective, Phase
from graphlog.prototypes import PrototypeForest
from graphlog.training.pretrain import run_pretraining
from graphlog.training.settings import resolve_config
from graphs_support import rings
from protein_support import random_network
from store_support import collate

NAMES = sorted(OBJECTIVES)
VARIANTS = [*NAMES, "graphlog/graphlog", "graphlog/paper", "graphlog/released"]
BACKBONES = ["gin", "gcn", "graphsage", "gat"]
SCHEMAS = {"atoms": NODE_MASKED, "channels": EDGE_MASKED, "bare": BARE}
SERVED = [
    (name, schema, backbone)
    for name in VARIANTS
    for schema in SCHEMAS
    if usable(name, SCHEMAS[schema])
    for backbone in BACKBONES
]
"""What each objective can learn from; that it refuses the others clearly is tested further down."""


def ready(name: str, **settings: Any) -> tuple[Objective[Any], GraphEncoder]:
    """Return the objective in its last phase and the encoder it trains."""
    encoder = encoder_for(**settings)
    objective = make(name, encoder)
    begin_last_phase(objective, encoder)
    return objective, encoder


every_objective = pytest.mark.parametrize("name", NAMES)
every_variant = pytest.mark.parametrize("name", VARIANTS)


@pytest.mark.parametrize(("name", "schema", "backbone"), SERVED)
def test_finite_loss_and_a_gradient_for_every_parameter(
    name: str, schema: str, backbone: str
) -> None:
    objective, encoder = ready(name, schema=SCHEMAS[schema], backbone=backbone)
    found = run_once(objective, encoder, batch_for(SCHEMAS[schema]))
    assert found.total.isfinite()
    assert found.total.dtype == torch.float32
    assert all(value.isfinite() for value in (*found.terms.values(), *found.watch.values()))
    assert not any(value.requires_grad for value in found.watch.values())
    found.total.backward()
    parameters = [*encoder.named_parameters(), *objective.named_parameters()]
    assert [n for n, p in parameters if p.grad is None or not p.grad.isfinite().all()] == []
    assert [n for n, p in parameters if p.numel() and not p.grad.any()] == []


@every_variant
@pytest.mark.parametrize(
    ("readout", "jk"), [("sum", "last"), ("max", "concat"), ("attention", "max"), ("mean", "sum")]
)
def test_any_readout_and_jumping_knowledge(name: str, readout: str, jk: str) -> None:
    encoder = encoder_for(readout=readout, jk=jk)
    found = run_once(make(name, encoder), encoder, batch_for())
    found.total.backward()
    assert found.total.isfinite()


@every_objective
def test_the_watch_hears_embeddings_of_whole_graphs(name: str) -> None:
    encoder, heard = encoder_for(), list[int]()
    objective = make(name, encoder)
    encoder.whole.register_forward_hook(lambda *call: heard.append(len(call[-1])))
    run_once(objective, encoder, batch_for())
    assert heard


@every_variant
def test_bf16(name: str) -> None:
    objective, encoder = ready(name)
    views = objective.views(batch_for(), seeded())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = objective.loss(views, encoder, seeded(1))
    found.total.backward()
    full = objective.loss(views, encoder, seeded(1)).total.detach()
    assert all(value.dtype == torch.float32 for value in (found.total, *found.terms.values()))
    assert abs(float(found.total.detach() - full)) < 0.1 * max(1.0, abs(float(full)))
    assert all(p.grad is not None and p.grad.isfinite().all() for p in objective.parameters())


@every_variant
@pytest.mark.parametrize(
    ("sizes", "backbone"),
    [
        *(pytest.param([1, 1, 1], backbone, id=f"no edges, {backbone}") for backbone in BACKBONES),
        pytest.param([7], "gin", id="one graph"),
        pytest.param([1], "gin", id="one node"),
        pytest.param([2, 1, 12], "gat", id="small"),
        pytest.param([2, 2], "gin", id="pairs"),
        pytest.param([30, 1], "gin", id="uneven"),
    ],
)
def test_batches_that_lack_something(name: str, sizes: list[int], backbone: str) -> None:
    objective, encoder = ready(name, backbone=backbone)
    found = run_once(objective, encoder, batch_for(sizes=sizes))
    assert found.total.isfinite()
    found.total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


DRAWS_NOTHING = {"descriptorpred", "graphpartition", "infograph", "infomax"}


@every_variant
def test_generators_decide_everything(name: str) -> None:
    objective, encoder = (part.eval() for part in ready(name))
    first, again, other = (
        float(run_once(objective, encoder, batch_for(), seed).total.detach()) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other or name in DRAWS_NOTHING


@every_objective
def test_views_leave_batch_and_parameters_alone(name: str) -> None:
    encoder, batch = encoder_for(), batch_for()
    objective = make(name, encoder)

    def touched() -> list[torch.Tensor]:
        parts = (batch.x, batch.edge_index, batch.edge_attr)
        return [t.clone() for t in (*parts, *encoder.state_dict().values())]

    before = touched()
    objective.views(batch, seeded())
    assert all(a.equal(b) for a, b in zip(before, touched(), strict=True))


@every_variant
def test_state_goes_round(name: str) -> None:
    objective, encoder = (part.eval() for part in ready(name))
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.add_(0.1)
    other = make(name, encoder).eval()
    other.prepare_state(objective.state_dict())
    other.load_state_dict(objective.state_dict())
    ours, theirs = (run_once(part, encoder, batch_for()).total for part in (objective, other))
    assert torch.equal(ours, theirs)


# elsewhere what is drawn goes by position in the batch, or the wrong pair is the next graph's
@pytest.mark.parametrize("name", ["descriptorpred", "graphpartition", "infograph"])
def test_order_of_graphs_does_not_matter(name: str) -> None:
    encoder = encoder_for().double().eval()
    objective = make(name, encoder).double().eval()
    graphs = [batch_for(sizes=[n], seed=n) for n in SIZES]
    there, back = (
        float(run_once(objective, encoder, collate(part)).total.detach())
        for part in (graphs, graphs[::-1])
    )
    assert there == pytest.approx(back, abs=1e-10)


LEARNED = {
    "attrmasking": 0.2,
    "contextpred": 0.4,  # two coins thrown: 1.39
    "descriptorpred": 0.2,
    "edgepred": 0.9,
    "graphcl": -3.0,  # the right one is no part of its own denominator: there is no floor at 0
    "graphlog": 1.2,
    "graphmae": 0.1,
    "graphpartition": 0.25,  # the share of pairs in one part, by itself: 0.5
    "infograph": -0.7,  # nothing learned: 0; least possible: -1.39
    "infomax": 0.1,
}
"""Losses that 100 steps on the same views have to get below: far under what guessing reaches."""


@every_objective
def test_overfits_32_molecules(name: str, tiny_store: GraphStore, tiny_smiles: list[str]) -> None:
    encoder = encoder_for(tiny_store.schema, dim=32, layers=3)
    options = {"hops": 2, "inner": 1, "outer": 3} if name == "contextpred" else {}
    objective = make(name, encoder, **options)
    batch = tiny_store[:]
    if objective.needs_targets:
        batch = replace(batch, y=torch.from_numpy(_targets(tiny_smiles)))
    optimizer = torch.optim.Adam([*encoder.parameters(), *objective.parameters()], lr=5e-3)
    assert name in LEARNED, "a new objective needs a bound in LEARNED"
    losses: list[float] = []
    while len(losses) < 100 and not (losses and losses[-1] < LEARNED[name]):
        found = run_once(objective, encoder, batch, seed=5)
        optimizer.zero_grad()
        found.total.backward()
        optimizer.step()
        losses.append(float(found.total.detach()))
    assert losses[-1] < LEARNED[name] < losses[0]


def _targets(smiles: list[str]) -> np.ndarray:
    values = DOMAINS["molecule"].target_values(smiles)
    return (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-3)


@every_variant
def test_phases_use_up_the_epochs(name: str) -> None:
    phases = make(name, encoder_for()).phases(7)
    assert sum(p.epochs for p in phases) == 7
    assert all(isinstance(p, Phase) for p in phases)


@every_objective
def test_schemas_that_cannot_serve_are_refused_in_one_line(name: str) -> None:
    for schema in SCHEMAS.values():
        if not usable(name, schema):
            with pytest.raises(ConfigError, match=schema.name):
                make(name, encoder_for(schema))


PREDICTED = ("attrmasking", "graphlog", "graphmae")
"""Objectives that predict attributes, each kind of which has a loss of its own."""
RUNS = [(name, kind) for name in NAMES for kind in ("molecules", "proteins", "both", "none")]
RUNS += [(name, kind) for name in PREDICTED for kind in ("categorical", "continuous")]
UNFIT = {("descriptorpred", kind): "no descriptors to predict" for kind in ("both", "none")}
UNFIT |= {("graphmae", "proteins"): "protein"}


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, tiny_smiles: list[str]
) -> dict[str, GraphStore]:
    """Graphs of every domain, and rings with attributes of every kind."""
    egos, folder = StoreBuilder(PROTEIN), tmp_path_factory.mktemp("rings")
    network, _ = random_network(24, 90, seed=3)
    egos.add(ego_networks(network, np.arange(24), ProteinOptions(isolated="keep")))
    kinds = ("both", "none", "categorical", "continuous")
    found = {kind: read_graphs(rings(folder / f"{kind}.jsonl", kind=kind)) for kind in kinds}
    return {"molecules": read_molecules(tiny_smiles), "proteins": egos.finish(), **found}


@pytest.mark.parametrize(("name", "kind"), RUNS)
def test_a_run_on_every_kind_of_graphs(name: str, kind: str, stores: dict[str, GraphStore]) -> None:
    store, small = stores[kind], {"epochs": 2, "batch_size": 12, "encoder": {"layers": 2, "dim": 8}}
    config = resolve_config(name, None, small, store.schema.domain)
    if (name, kind) in UNFIT:
        with pytest.raises(ConfigError, match=UNFIT[name, kind]):
            run_pretraining(store, config, None)
        return
    result = run_pretraining(store, config, None)
    assert result.info["objective"] == name
    assert all(p.isfinite().all() for p in result.encoder.parameters())
    if name == "graphlog":
        assert PrototypeForest.from_state(result.extra) is not None
