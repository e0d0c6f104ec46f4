"""The steps by which a GPU pre-trains and fine-tunes, beside the library's own."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from graphlog.api import read_molecules
from graphlog.downstream.finetune import FinetuneConfig, SeedJob, common_start
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.pretrained import random_encoder
from graphlog.downstream.tasks import open_labeled
from graphlog.encoders.encoder import EncoderConfig
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
    wide = padded.wide
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(padded, "wide", lambda weight, _: wide(weight, torch.float64))
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


def test_fine_tuning_of_stacked_networks(scripts, monkeypatch, tmp_path: Path):
    finetune = scripts[2]
    table = tmp_path / "mine.csv"
    rows = [f"{s},{k % 2},{'' if k % 3 else (k // 2) % 2}\n" for k, s in enumerate(MOLECULES * 3)]
    table.write_text("smiles,a,b\n" + "".join(rows))
    small = {"dim": 12, "layers": 3}
    encoders = [random_encoder(small, "molecule", layer="last", seed=k) for k in (5, 6)]
    data = open_labeled(table, encoders[0].schema, targets=["a", "b"], split="random")
    settings = {"protocol": "paper", "layer": "last", "dropout": 0.0, "epochs": 2, "batch_size": 9}
    config = FinetuneConfig.parse({**settings, "device": "cpu"})
    seeds = (3, 4)
    networks = [
        finetune.Network("own", seed, encoder.network)
        for seed, encoder in zip(seeds, encoders, strict=True)
    ]
    task = finetune.Task.of(data)
    own = finetune.Stack(task, networks, config, torch.device("cpu"), torch.float64)
    theirs = [
        SeedJob(common_start(encoder, data, config), seed, Progress())
        for seed, encoder in zip(seeds, encoders, strict=True)
    ]
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(own.optimizer, "step", lambda rate: None)
    for norm in (norm for job in theirs for norm in job.model.network.norms):
        norm.reset_running_stats()  # after an epoch nothing is left of where they began
    for name in own.weights:
        own.weights[name].data = own.weights[name].data.double()
    own.task = {k: t.double() if k.endswith("_rows") else t for k, t in own.task.items()}
    own.running = [(torch.zeros_like(m).double(), v.double()) for m, v in own.running]
    for step in (0, 1):
        own._train_step(torch.tensor([step]))
        for k, job in enumerate(theirs):
            job.model.train().double().zero_grad()
            wanted = job.batches(0)[step]
            kept = own.batches.rows[k, step]
            assert kept[kept >= 0].tolist() == wanted.tolist()
            loss = job.loss(job.load(wanted), step).total
            loss.backward()
            torch.testing.assert_close(own.losses[k], loss.detach(), rtol=1e-9, atol=0)
            grads = {name: p.grad[k] for name, p in own.weights.items()}
            network = job.model.network
            pairs = [(grads["node"], network.node.weight)]
            pairs += [(grads["head.weight"].T, job.model.head.linear.weight)]
            pairs += [(grads["head.bias"][0], job.model.head.linear.bias)]
            for n, (layer, norm) in enumerate(zip(network.layers, network.norms, strict=True)):
                pairs += [(grads[f"edge{n}"], layer.edge.weight)]
                for name, part in (("lift", layer.lift), ("lower", layer.lower), ("norm", norm)):
                    weight = grads[f"{name}{n}.weight"]
                    pairs += [(weight.T if name != "norm" else weight[0], part.weight)]
                    if name == "lower":  # which normalization takes away
                        assert part.bias.grad.abs().max() < 1e-12
                    else:
                        pairs += [(grads[f"{name}{n}.bias"][0], part.bias)]
            for found, parameter in pairs:
                cut = found[tuple(slice(n) for n in parameter.shape)]
                torch.testing.assert_close(cut, parameter.grad, rtol=1e-6, atol=1e-9)
                assert found.count_nonzero() == cut.count_nonzero(), "padding learns nothing"
            share = 1 - 0.9 ** (step + 1)
            for pair, layer, norm in zip(own.running, network.layers, network.norms, strict=True):
                wanted = norm.running_mean - share * layer.lower.bias, norm.running_var
                for one, other in zip(pair, wanted, strict=True):
                    torch.testing.assert_close(one[k, 0, :12], other, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr("graphlog.ops.dense._ONEDNN", False)  # which has no products in float64
    for norm, layer in (
        (n, x)
        for j in theirs
        for n, x in zip(j.model.network.norms, j.model.network.layers, strict=True)
    ):
        norm.running_mean += (
            1 - share
        ) * layer.lower.bias  # as if it had been there from the start
    own.outputs = own.outputs.double()
    own._predict_step(torch.tensor([0]))
    labels = torch.from_numpy(task.labels[task.held_out])
    found = finetune.areas(own.outputs[:, : len(labels)], labels)
    for k, job in enumerate(theirs):
        wanted = job._predict("fp32")[task.held_out]
        torch.testing.assert_close(
            own.outputs[k, : len(labels)].sigmoid(), torch.from_numpy(wanted), rtol=1e-9, atol=1e-12
        )
        score = evaluate(task.labels[task.held_out], wanted, "classification").scores["roc_auc"]
        assert float(found[k]) == pytest.approx(score, abs=1e-12)
    own.rate.fill_(0)
    own.epoch(1)
    assert float(own.rate) == pytest.approx(3e-4)


def test_areas_of_ties_and_gaps(scripts):
    rng = np.random.default_rng(0)
    outputs = rng.integers(0, 4, (3, 50, 5)) / 4
    labels = np.where(rng.random((50, 5)) < 0.3, np.nan, rng.integers(0, 2, (50, 5)).astype(float))
    labels[:, 2] = np.where(np.isnan(labels[:, 2]), np.nan, 1.0)
    found = scripts[2].areas(torch.from_numpy(outputs), torch.from_numpy(labels))
    wanted = [evaluate(labels, row, "classification").scores["roc_auc"] for row in outputs]
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


@pytest.mark.usefixtures("mirror")
def test_fine_tuned_rows(scripts, monkeypatch, tmp_path: Path):
    finetune, out = scripts[2], tmp_path / "out"
    model = tmp_path / "model.safetensors"
    random_encoder({"dim": 8, "layers": 2}, "molecule", layer="last").save(model)
    monkeypatch.setattr(finetune, "EncoderConfig", lambda: EncoderConfig(dim=8, layers=2))
    for words in (
        f"prepare {tmp_path / 'tasks'} --datasets bbbp",
        f"train {tmp_path / 'tasks'} {out} --datasets bbbp:2 --epochs 1 --device cpu --arms"
        f" own={model} scratch=",
    ):
        monkeypatch.setattr(sys, "argv", ["finetune.py", *words.split()])
        finetune.main()
    rows = pd.read_csv(out / "bbbp.csv")
    assert list(rows) == ["dataset", "model", "seed", "epoch", "valid", "test"]
    assert sorted(zip(rows["model"], rows["seed"], strict=True)) == [
        ("own", 0), ("own", 1), ("scratch", 0), ("scratch", 1)
    ]  # fmt: skip
    assert rows[["valid", "test"]].stack().between(0, 1).all()
