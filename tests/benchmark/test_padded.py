"""The step on padded graphs, by which a GPU trains, beside the library's own."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from graphlog.api import read_molecules
from graphlog.objectives import graphlog as objectives
from graphlog.training.pretrain import Pretraining, objective_loss
from graphlog.training.settings import resolve_config

MOLECULES = ["CC(=O)Oc1ccccc1C(=O)O", "CCO", "C[C@H](N)C(=O)O", "c1ccncc1", "CC(C)(C)C", "C#N"]
MOLECULES += ["F/C=C/F", "C1CC1", "CCN(CC)CC", "O=S(=O)(c1ccccc1)N", "C", "OCC(O)CO"]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch):
    folder = Path(__file__).parents[2] / "benchmarks" / "gpu"
    monkeypatch.syspath_prepend(str(folder))
    for name in ("padded", "pretrain"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import padded
    import pretrain

    yield padded, pretrain
    for name in ("padded", "pretrain"):
        sys.modules.pop(name, None)


def job_of(recipe: str) -> Pretraining:
    store = read_molecules(MOLECULES, schema="molecule")
    settings = {"device": "cpu", "precision": "fp32", "embedding": "last", "epochs": 2}
    small = {"encoder.dim": 12, "encoder.layers": 3, "objective.centers": 4}
    return Pretraining(store, resolve_config("graphlog", recipe, settings | small))


@pytest.mark.parametrize("phase", ["local", "joint"])
@pytest.mark.parametrize("recipe", ["released", "graphlog"])
def test_step_on_padded_graphs(scripts, monkeypatch, recipe: str, phase: str):
    padded, pretrain = scripts
    job = job_of(recipe)
    if phase == "joint":
        job.begin_phase(1)
    # in double precision, where a sharp temperature leaves digits to compare
    for module in (job.encoder, job.objective):
        module.double()
    seen = []
    original = objectives.mask_attributes
    monkeypatch.setattr(
        objectives, "mask_attributes", lambda *given: seen.append(original(*given)) or seen[-1]
    )
    chosen = np.array([3, 0, 7, 2, 9, 4])
    before = {k: v.clone() for k, v in job.encoder.state_dict().items()}
    graphs = job.store.take(chosen)
    wanted = objective_loss(job.encoder, job.objective, graphs, 1, job.setting)
    wanted.total.backward()
    gradients = {k: p.grad.clone() for k, p in job.parameters() if p.grad is not None}
    statistics = {k: v.clone() for k, v in job.encoder.state_dict().items() if "running" in k}
    job.encoder.load_state_dict(before)
    for _, parameter in job.parameters():
        parameter.grad = None

    o = job.objective.config
    rounds = len(job.encoder.layers) if o.skip_symmetric else 0
    mask = job.store.schema.mask_row(o.masked_columns)
    c = padded.collection(job.store, mask, rounds, torch.device("cpu"))
    c = c._replace(node_rows=c.node_rows.double(), edge_rows=c.edge_rows.double())
    batch = padded.cut(c, torch.from_numpy(chosen), torch.float64)
    assert batch.sizes.tolist() == graphs.sizes.tolist()
    masked = torch.zeros_like(batch.real)
    graph = graphs.batch[seen[0].node_idx]
    masked[graph, seen[0].node_idx - graphs.ptr[graph]] = True
    drawn = pretrain.masked_places(batch, o.mask_rate)
    assert torch.equal(drawn.sum(1), masked.sum(1))
    assert not (drawn & ~batch.real).any()

    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    wide = padded._wide
    monkeypatch.setattr(padded, "_wide", lambda weight, _: wide(weight, torch.float64))
    found, _ = pretrain.losses(job, c, batch, masked, torch.float64)
    found["loss"].backward()
    for name, value in {**wanted.terms, **wanted.watch}.items():
        own = found.get(f"loss_{name}", found.get(name))
        if own is not None:
            torch.testing.assert_close(own, value.double(), rtol=1e-9, atol=1e-9)
    assert {f"loss_{name}" for name in wanted.terms} <= found.keys()
    for name, parameter in job.parameters():
        assert (parameter.grad is None) == (name not in gradients), name
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-6, atol=1e-9)
    for name, value in job.encoder.state_dict().items():
        if name in statistics:
            torch.testing.assert_close(value, statistics[name], rtol=1e-9, atol=1e-12)
