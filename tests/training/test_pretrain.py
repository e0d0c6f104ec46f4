"""Stores of awkward sizes, losses that blow up, starting from a model, precision, memory-only."""

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import graphlog
from downstream_support import CHAINS, classifier, tiny_encoder
from graphlog.downstream.pretrained import random_encoder
from graphlog.encoders.encoder import build_encoder, calibrate
from graphlog.encoders.modelfile import read_model
from graphlog.errors import ConfigError, DataError, NonFiniteLossError, TrainingInterrupted
from graphlog.objectives.base import EmbedStore, Phase
from graphlog.objectives.graphlog import GraphLoG
from graphlog.prototypes import PrototypeForest
from graphlog.training import settings
from graphlog.training.log import read_metrics
from graphlog.training.pretrain import Pretraining, run_pretraining
from graphlog.training.settings import (
    choose_device,
    choose_precision,
    generator_for,
    global_seed,
    has_fast_bf16,
    read_config,
    resolve_config,
)
from graphlog.training.trainer import NamedAdam
from training_support import (
    SMALL,
    After,
    Heard,
    blow_up,
    families,
    outcome,
    small_config,
    undisturbed,
)


def weights(result: Any) -> dict[str, torch.Tensor]:
    return dict(result.encoder.state_dict())


def test_a_run_in_memory_equals_one_in_a_folder(tmp_path: Path):
    store, config = families(64), small_config(epochs=2, checkpoint_every_s=0.0)
    in_memory, on_disk = (run_pretraining(store, config, run) for run in (None, tmp_path / "run"))
    for name, value in weights(in_memory).items():
        assert torch.equal(value, weights(on_disk)[name]), name
    assert not in_memory.encoder.training


def test_the_callers_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    run_pretraining(families(40), small_config(epochs=2, **{"encoder.dropout": 0.3}), None)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("num_graphs", [2, 5, 33, 65])
def test_stores_smaller_than_a_batch_or_with_one_graph_left_over(num_graphs: int):
    result = run_pretraining(families(num_graphs), small_config(), None)
    assert all(bool(torch.isfinite(v).all()) for v in weights(result).values())


@pytest.mark.parametrize("num_graphs", [0, 1])
def test_too_few_graphs_are_refused_before_anything_is_written(num_graphs: int, tmp_path: Path):
    store = families(4).subset(np.arange(num_graphs))
    with pytest.raises(DataError, match=f"at least 2, found {num_graphs}"):
        run_pretraining(store, small_config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_loss_stops_at_once(
    value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store, config, run = families(), small_config(checkpoint_every_s=0.0), tmp_path / "run"
    told = r"loss term 'subgraph' became \w+ at step 7; its graphs include those of rows \d"
    with monkeypatch.context() as patch:
        blow_up(patch, 7, value)
        with pytest.raises(NonFiniteLossError, match=told):
            run_pretraining(store, config, run)
    run_pretraining(store, config, run, resume=True)
    assert outcome(run) == undisturbed(checkpoint_every_s=0.0)


def test_a_non_finite_weight_never_reaches_a_checkpoint(tmp_path: Path):
    config = small_config(checkpoint_every_s=0.0)
    encoder = build_encoder(config.encoder, families(4).schema, 0)
    poison = After(1, lambda: next(encoder.parameters()).data.fill_(float("nan")))
    with pytest.raises(NonFiniteLossError, match="weight became NaN or infinite by step 1"):
        run_pretraining(families(), config, tmp_path / "run", init=encoder, progress=poison)
    assert [p.name for p in (tmp_path / "run" / "checkpoint").iterdir()] == [
        "step-000000000.safetensors"
    ]


@pytest.mark.parametrize("rate", [1e38, 1e3])
def test_a_model_that_is_not_finite_is_never_returned(rate: float):
    """Weights overflow, or embeddings by weights that are finite."""
    changes = {"learning_rate": rate, "encoder.batch_norm": False, "encoder.layers": 5}
    config = small_config(objective="attrmasking", epochs=1, batch_size=400, **changes)
    with pytest.raises(NonFiniteLossError, match=r"became NaN or infinite.* lower learning rate"):
        run_pretraining(families(), config, None)


def test_the_speed_of_a_row_counts_training_alone(monkeypatch: pytest.MonkeyPatch):
    rows, began = list[dict[str, Any]](), [0]
    begin, clock = Pretraining.begin_phase, time.monotonic

    def slow(self: Pretraining, phase: int) -> None:
        began[0] += 1
        begin(self, phase)

    monkeypatch.setattr(Pretraining, "begin_phase", slow)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 1e6 * began[0])
    config = small_config(**{"training.log_every": 1})
    run_pretraining(families(), config, None, callbacks=[Mock(on_row=rows.append)])
    assert min(row["graphs_per_s"] for row in rows if "graphs_per_s" in row) > 0.01


def test_training_starts_from_the_untrained_encoder_of_its_seed(tmp_path: Path):
    store, config = families(), small_config(learning_rate=1e-30, seed=3)
    untrained = random_encoder(config.encoder, store.schema, seed=config.seed, graphs=store)
    start = dict(untrained.network.named_parameters())
    for name, weight in run_pretraining(store, config, None).encoder.named_parameters():
        torch.testing.assert_close(weight, start[name], rtol=0, atol=1e-20, msg=name)


def test_a_start_from_a_model_outlives_a_stop_while_targets_are_computed(tmp_path: Path):
    def stop() -> None:
        raise KeyboardInterrupt

    store = graphlog.read_molecules(["CCO", "c1ccccc1", "CC(=O)O", "CCN"])
    config = resolve_config("descriptorpred", None, {**SMALL, "epochs": 1})

    def run(folder: str, seed: int | None, **how: Any) -> dict[str, torch.Tensor]:
        init = None if seed is None else build_encoder(config.encoder, store.schema, seed)
        return weights(run_pretraining(store, config, tmp_path / folder, init=init, **how))

    with pytest.raises(TrainingInterrupted, match="after step 0"):
        run("stopped", 5, progress=After(1, stop))
    whole, resumed = run("whole", 5), run("stopped", None, resume=True)
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name


def test_a_model_that_does_not_fit_is_named(tiny_store: Any):
    config = small_config()
    narrow = build_encoder(config.encoder.updated({"dim": 8}), families(4).schema, 0)
    with pytest.raises(ConfigError, match=r"`encoder.dim` is 16 but 8 .* set encoder.dim = 8"):
        run_pretraining(families(), config, None, init=narrow)
    fits = build_encoder(config.encoder, families(4).schema, 0)
    with pytest.raises(ConfigError, match="reads schema 'families', the graphs have 'molecule'"):
        run_pretraining(tiny_store, config, None, init=fits)


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_the_literal_recipes_run_and_warn(recipe: str, tiny_store: Any, tmp_path: Path):
    said = Heard()
    config = small_config(recipe, batch_size=8)
    result = run_pretraining(tiny_store, config, tmp_path / "run", progress=said)
    assert any(line.startswith("note: ") for line in said.lines[:2])
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert "loss_global" in rows[-1]
    assert {"rank", "alignment", "uniformity", "mean_cosine"} <= rows[-1].keys() | rows[-2].keys()
    read = read_model(tmp_path / "run" / "model.safetensors").encoder
    for encoder in (result.encoder, read):  # calibrated once, on one batch of all 32 graphs
        assert all(norm.num_batches_tracked == 1 for norm in encoder.norms)


@pytest.mark.parametrize(("epochs", "weight"), [(2, 0.1), (3, 0.1), (2, 0.0)])
def test_a_run_too_short_for_prototypes_says_so(epochs: int, weight: float):
    said = Heard()
    options = {"objective.local_epochs": 2, "objective.global_weight": weight}
    config = small_config(epochs=epochs, **options)
    result = run_pretraining(families(64), config, None, progress=said)
    is_short = epochs == 2 and weight > 0
    assert (PrototypeForest.from_state(result.extra) is None) == (epochs == 2)
    assert [line for line in said.lines if "prototypes" in line] == is_short * [
        "note: no prototypes will be learned: epochs = 2 leaves none after the local ones "
        "(objective.local_epochs = 2); train for 3 or more."
    ]


def test_precision_and_device_choose_themselves():
    cpu, said = torch.device("cpu"), []
    assert choose_precision("auto", cpu, said.append) == ("bf16" if has_fast_bf16(cpu) else "fp32")
    assert said == []
    assert choose_precision("bf16", cpu, said.append) == "bf16"
    assert len(said) == (0 if has_fast_bf16(cpu) else 1)
    for name in ("gpu", "mps", "cuda:99"):
        with pytest.raises(ConfigError, match="`device`"):
            choose_device(name)
    with pytest.raises(ConfigError, match=r"unknown `precision` 'BF16'; did you mean 'bf16'"):
        choose_precision("BF16", cpu, said.append)  # type: ignore[arg-type]


def test_draws_depend_on_their_place_alone():
    def draw(*words: str | int) -> float:
        return float(torch.rand((), generator=generator_for(3, *words)))

    assert draw("views", 1) == draw("views", 1)
    places = [("views", 1), ("views", 2), ("loss", 1), ("views1", ""), ("view", "s1")]
    assert len({draw(*place) for place in places}) == 5
    with global_seed(0, "a"):
        inside = torch.rand(3)
    with global_seed(0, "a"):
        assert torch.equal(torch.rand(3), inside)


@pytest.mark.parametrize("recipe", ["graphlog", "paper", "released"])
def test_prototypes_are_fitted_to_embeddings_as_training_has_them(
    recipe: str, monkeypatch: pytest.MonkeyPatch
):
    """After two steps, running statistics are far from those of a batch; the script has those."""
    cosines, store = list[float](), families(64)
    begin = GraphLoG.begin_phase

    def compare(objective: GraphLoG, phase: Phase, embed: EmbedStore, generator: Any) -> None:
        def seen(limit: int | None, calibrated: bool) -> torch.Tensor:
            network = copy.deepcopy(embed.__self__.encoder)  # pyright: ignore[reportFunctionMemberAccess]
            calibrate(network, store)
            found, true = embed(limit, calibrated), network(store[:]).graph_emb.detach()
            cosines.append(float(torch.cosine_similarity(found, true).mean()))
            return found

        begin(objective, phase, seen, generator)

    monkeypatch.setattr(GraphLoG, "begin_phase", compare)
    run_pretraining(store, small_config(recipe, epochs=2), None)
    assert len(cosines) == 1
    assert (cosines[0] > 0.999) == (recipe != "released")


def test_moments_kept_over_the_phases_spare_the_jolt():
    """A fresh Adam moves every weight by a whole step; one that is kept starts elsewhere."""
    fresh, kept = (
        weights(run_pretraining(families(80), small_config(epochs=2, fresh_moments=value), None))
        for value in (True, False)
    )
    assert not all(torch.equal(value, fresh[name]) for name, value in kept.items())


@pytest.mark.parametrize("num_graphs", [80, 97])  # of 97, the last joins the batch before
def test_the_rate_falls_to_zero(num_graphs: int, monkeypatch: pytest.MonkeyPatch):
    rates: list[float] = []
    true_step = NamedAdam.step

    def step(self: NamedAdam, learning_rate: float, *rest: Any) -> None:
        rates.append(learning_rate)
        true_step(self, learning_rate, *rest)

    monkeypatch.setattr(NamedAdam, "step", step)
    config = small_config(epochs=2, schedule="cosine")
    run_pretraining(families(num_graphs), config, None)
    assert rates[0] == config.learning_rate
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.1 * config.learning_rate


@pytest.mark.parametrize("fast", [False, True])
def test_a_run_keeps_the_precision_it_started_with(
    fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """``auto`` is settled when the run starts: another processor or wish does not change it."""
    hardware = [fast]
    monkeypatch.setattr(settings, "has_fast_bf16", lambda _: hardware[0])
    chosen, run = ("bf16" if fast else "fp32"), tmp_path / "run"
    store, config = families(40), small_config(epochs=2, precision="auto")
    with monkeypatch.context() as patch:
        patch.setattr("graphlog.training.pretrain.save_model", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_pretraining(store, config, run)
    assert read_config(run / "config.toml").precision == chosen
    hardware[0] = not fast
    other = "fp32" if fast else "bf16"
    with pytest.raises(ConfigError, match=r"training\.precision"):
        run_pretraining(store, config.updated({"precision": other}), run, resume=True)
    result = run_pretraining(store, config, run, resume=True)
    assert result.info["settings"]["training"]["precision"] == chosen


@pytest.fixture
def _torch_as_before() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device("cpu")


@pytest.mark.usefixtures("_torch_as_before")
def test_what_the_caller_made_of_torch_changes_no_number():
    store, config = families(40), small_config(epochs=2)
    expected = run_pretraining(store, config, None).encoder.state_dict()
    torch.set_default_dtype(torch.float64)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = run_pretraining(store, config, None).encoder.state_dict()
    for name, weight in expected.items():
        assert weight.dtype == found[name].dtype
        assert torch.equal(weight, found[name]), name
    encoder, predictor = tiny_encoder(), classifier()
    torch.set_default_device("meta")
    for refused in (
        lambda: run_pretraining(store, config, None),
        lambda: encoder.embed(CHAINS),
        lambda: predictor.predict(CHAINS),
        random_encoder,
    ):
        with pytest.raises(ConfigError, match="default device is 'meta', and graphlog moves"):
            refused()
