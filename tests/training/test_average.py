"""Warm-up, the moving average of the weights, and the statistics a trained encoder is left with."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from graphlog.data.store import epoch_batches
from graphlog.encoders.encoder import BATCH_SIZE, BATCHES, build_encoder, calibrate
from graphlog.encoders.modelfile import tensors_below
from graphlog.training.pretrain import run_pretraining
from graphlog.training.runfolder import load_checkpoint
from graphlog.training.trainer import WeightAverage, scheduled_rate
from training_support import families, small_config


def test_the_average_is_that_of_its_equation():
    weight = nn.Parameter(torch.zeros(3))
    average, wanted = WeightAverage(0.9), torch.zeros(3)
    for step in range(1, 60):
        weight.data = torch.randn(3)
        average.update([("w", weight)], step)
        decay = min(0.9, (1 + step) / (10 + step)) if step > 1 else 0.0
        wanted = decay * wanted + (1 - decay) * weight.data
    average.copy_to([("w", weight)])
    assert torch.allclose(weight, wanted, atol=1e-6)


def test_a_parameter_born_later_starts_as_it_is():
    average = WeightAverage(0.9)
    old, young = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.full((2,), 5.0))
    average.update([("old", old)], 1)
    average.update([("old", old), ("young", young)], 2)
    assert torch.equal(average.averages["young"], young.detach())


def test_the_rate_rises_in_a_line_and_then_follows_its_schedule():
    rates = [scheduled_rate(2.0, "cosine", step, 100, 0.1) for step in range(101)]
    assert np.allclose(rates[:10], np.linspace(0.2, 2, 10))
    assert rates[10] == 2.0
    assert rates[100] == pytest.approx(0, abs=1e-12)
    assert all(a > b for a, b in pairwise(rates[10:]))
    rates = [scheduled_rate(2.0, "constant", step, 4, 0.5) for step in range(4)]
    assert rates == [1.0, 2.0, 2.0, 2.0]


def test_a_warm_up_never_stands_still_nor_overshoots():
    for steps in range(1, 60):
        rates = [scheduled_rate(1.0, "cosine", step, steps, 0.13) for step in range(steps)]
        assert all(0 < rate <= 1 for rate in rates)
        whole = math.ceil(0.13 * steps)
        assert rates[:whole] == sorted(rates[:whole])


def test_a_run_ends_with_the_average_and_statistics_of_clean_graphs(tmp_path: Path):
    store, config = families(), small_config(average=0.8, warmup=0.1)
    trained = run_pretraining(store, config, tmp_path / "run").encoder
    checkpoint = load_checkpoint(tmp_path / "run" / "checkpoint", print)
    last = tensors_below(checkpoint.tensors, "model.")
    averaged = tensors_below(checkpoint.tensors, "average.model.")
    found = dict(trained.named_parameters())
    assert all(torch.equal(parameter, averaged[name]) for name, parameter in found.items())
    assert not all(torch.equal(parameter, last[name]) for name, parameter in found.items())
    norm, sizes, means = trained.train().norms[0], [], []
    found = norm.running_mean.clone()
    norm.momentum = 1.0  # keeps the mean of the last batch
    for rows in epoch_batches(len(store), BATCH_SIZE, config.seed)[:BATCHES]:
        trained(store.take(np.sort(rows)))
        sizes.append(len(rows))
        means.append(norm.running_mean.clone())
    assert sizes == [64, 64, 32]
    wanted = torch.stack(means).T @ (torch.tensor(sizes) / sum(sizes))
    assert torch.allclose(found, wanted, atol=1e-5)


def test_statistics_of_equal_batches_are_their_plain_average():
    store = families(3 * BATCH_SIZE)
    found, wanted = (build_encoder(small_config().encoder, store.schema, 0) for _ in range(2))
    calibrate(found, store, seed=1)
    for norm in wanted.norms:
        norm.momentum = None  # what torch calls a cumulative average
    with torch.no_grad():
        for rows in epoch_batches(len(store), BATCH_SIZE, 1):
            wanted(store.take(np.sort(rows)))
    assert not found.training
    assert [norm.momentum for norm in found.norms] == [0.1, 0.1]
    for name, value in wanted.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name
