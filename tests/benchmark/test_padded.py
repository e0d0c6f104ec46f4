"""The step on padded graphs, by which a GPU trains, beside the library's own."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from graphlog.api import read_molecules
from graphlog.downstream.finetune import FinetuneConfig, SeedJob
from graphlog.downstream.pretrained import random_encoder
from graphlog.downstream.tasks import open_labeled
from graphlog.objectives import graphlog as objectives
from graphlog.training.log import Progress
from graphlog.training.pretrain import Pretraining, objective_loss
from graphlog.training.settings import resolve_config

MOLECULES = ["CC(=O)Oc1ccccc1C(=O)O", "CCO", "C[C@H](N)C(=O)O", "c1ccncc1", "CC(C)(C)C", "C#N"]
MOLECULES += ["F/C=C/F", "C1CC1", "CCN(CC)CC", "O=S(=O)(c1ccccc1)N", "C", "OCC(O)CO"]


NAMES = ("padded", "pretrain", "finetune")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "gpu"))
    yield [import_module(name) for name in NAMES]
    for name in NAMES:
        sys.modules.pop(name)


def in_double(monkeypatch: pytest.MonkeyPatch, padded, c):
    """Compute in double precision, where a sharp temperature leaves digits to compare."""
    wide = padded._wide
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(padded, "_wide", lambda weight, _: wide(weight, torch.float64))
    return c._replace(node_rows=c.node_rows.double(), edge_rows=c.edge_rows.double())


def job_of(recipe: str) -> Pretraining:
    store = read_molecules(MOLECULES, schema="molecule")
    settings = {"device": "cpu", "precision": "fp32", "embedding": "last", "epochs": 2}
    small = {"encoder.dim": 12, "encoder.layers": 3, "objective.centers": 4}
    return Pretraining(store, resolve_config("graphlog", recipe, settings | small))


@pytest.mark.parametrize("phase", ["local", "joint"])
@pytest.mark.parametrize("recipe", ["released", "graphlog"])
def test_step_on_padded_graphs(scripts, monkeypatch, recipe: str, phase: str):
    padded, pretrain, _ = scripts
    job = job_of(recipe)
    if phase == "joint":
        job.begin_phase(1)
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
    batch = padded.cut(c, torch.from_numpy(chosen), torch.float64)
    assert batch.sizes.tolist() == graphs.sizes.tolist()
    masked = torch.zeros_like(batch.real)
    graph = graphs.batch[seen[0].node_idx]
    masked[graph, seen[0].node_idx - graphs.ptr[graph]] = True
    drawn = pretrain.masked_places(batch, o.mask_rate)
    assert torch.equal(drawn.sum(1), masked.sum(1))
    assert not (drawn & ~batch.real).any()

    c = in_double(monkeypatch, padded, c)
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


def test_fine_tuning_on_padded_graphs(scripts, monkeypatch, tmp_path: Path):
    padded, _, finetune = scripts
    table = tmp_path / "mine.csv"
    rows = [f"{s},{k % 2},{'' if k % 3 else (k // 2) % 2}\n" for k, s in enumerate(MOLECULES * 3)]
    table.write_text("smiles,a,b\n" + "".join(rows))
    small = {"dim": 12, "layers": 3}
    encoder = random_encoder(small, "molecule", layer="last")
    data = open_labeled(table, encoder.schema, targets=["a", "b"], split="random")
    settings = {"protocol": "paper", "layer": "last", "dropout": 0.0, "epochs": 2, "batch_size": 9}
    own = finetune.Seed(encoder, data, FinetuneConfig.parse({**settings, "device": "cpu"}), 3)
    theirs = SeedJob(own.job.start, 3, Progress())
    index, wanted = own.batches(0)[0], theirs.batches(0)[0]
    assert data.split.train[index.numpy()].tolist() == wanted.tolist()
    for job in (own.job, theirs):
        job.model.train().double()
    own.c = in_double(monkeypatch, padded, own.c)
    theirs.loss(theirs.load(wanted), 1).total.backward()
    own.dtype = torch.float64
    monkeypatch.setattr(own.optimizer, "step", lambda rate: None)
    own.one(index)
    known = dict(theirs.model.named_parameters())
    for name, parameter in own.job.model.named_parameters():
        torch.testing.assert_close(parameter.grad, known[name].grad, rtol=1e-6, atol=1e-9)
    for name, value in theirs.model.named_buffers():
        found = own.job.model.get_buffer(name)
        if "num_batches" not in name:
            torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-12)
    own.batches(1)
    assert float(own.rate) == pytest.approx(3e-4)


@pytest.mark.usefixtures("mirror")
def test_fine_tuned_rows(scripts, monkeypatch, tmp_path: Path):
    finetune, out = scripts[2], tmp_path / "rows.csv"
    model = tmp_path / "model.safetensors"
    random_encoder({"dim": 8, "layers": 2}, "molecule", layer="last").save(model)
    words = f"{out} --models {model} --datasets bbbp --seeds 0 1 --epochs 1 --device cpu".split()
    monkeypatch.setattr(sys, "argv", ["finetune.py", *words])
    finetune.main()
    rows = pd.read_csv(out)
    assert len(rows) == 2 * 2 * 2
    assert list(rows) == list(finetune.COLUMNS)
    assert rows["score"].between(0, 1).all()
