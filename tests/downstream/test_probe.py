"""Probes: their rows, and that one that is kept predicts what it was scored with."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import graphlog
from cli_support import read_table
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    LENGTH,
    averaged_models,
    chain_store,
    labeled,
    lengths,
    tiny_encoder,
    without_each_node,
    write_csv,
)
from graphlog.data.split import Split
from graphlog.domains import domain_of
from graphlog.domains.base import BaselineFeatures
from graphlog.domains.molecule import MOLECULE
from graphlog.downstream.kernel import KernelModel
from graphlog.downstream.linear import fuse, linear_path, standardize
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.pretrained import untrained_like
from graphlog.downstream.probe import BASELINES, _held_out, fit_head, probe
from graphlog.downstream.report import Model, Report, ScoreRow, Source
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.extras.explain import attribute
from graphlog.inputs import read, recall_input

NAN = float("nan")


def test_probe_reports_every_row_both_ways():
    report = probe(
        tiny_encoder("jk"), labeled(IS_ALCOHOL), baselines=BASELINES, baseline_seeds=(0, 1)
    )
    assert [(row.model, row.rule) for row in report.rows] == [
        ("frozen encoder", "C = 0.1"),
        ("frozen encoder", "C by validation"),
        ("untrained encoder", "C = 0.1"),
        ("untrained encoder", "C by validation"),
        ("ECFP4 + logistic regression", "C = 0.1"),
        ("ECFP4 + logistic regression", "C by validation"),
        ("ECFP4 + random forest", "300 trees"),
    ]
    assert report.mean > 0.9  # alcohols are easy
    assert len(report.rows[2].test["roc_auc"]) == 2
    assert report.rows[2].sd("roc_auc") >= 0
    assert np.isnan(report.rows[0].sd("roc_auc"))
    again = Report.from_dict(json.loads(json.dumps(report.to_dict(), allow_nan=False)))
    assert str(again) == str(report)


def test_an_untrained_row_is_a_linear_model_of_standardized_features():
    encoder, data = tiny_encoder("jk"), labeled(LENGTH, "regression")
    train, test = data.split.train, data.split.test
    report = probe(encoder, data, baselines=("random",), baseline_seeds=(3,))
    graphs = data.store.subset(np.sort(train))
    x = standardize(untrained_like(encoder, graphs, 3).embed_store(data.store, "jk+sum"), train)
    values = linear_path(x, data.labels, train, "regression", (0.1,))[0.1]
    scores = evaluate(data.labels[test], values[test], "regression").scores
    assert report.rows[2].test["rmse"] == [pytest.approx(scores["rmse"], rel=1e-6)]


def test_a_fused_row_is_the_mean_of_its_parts():
    encoder = tiny_encoder("jk")
    report = probe(encoder, labeled(IS_ALCOHOL), with_features=("ecfp4",))
    assert [row.model for row in report.rows] == [
        *["frozen encoder + ECFP4"] * 2,
        *["frozen encoder"] * 2,
        *["ECFP4 + logistic regression"] * 2,
        *["untrained encoder"] * 2,
    ]
    plain = probe(encoder, labeled(IS_ALCOHOL), baselines=("ecfp-lr",))
    assert [row.test for row in report.rows[2:6]] == [row.test for row in plain.rows]
    data = labeled(LENGTH, "regression")
    fused = probe(encoder, data, with_features=("descriptors",), baselines=())
    train = data.split.train
    descriptors = domain_of(data.store.schema).feature_set("descriptors", data.store).values
    own, known = (
        linear_path(standardize(x, train), data.labels, train, "regression", (0.1,))[0.1]
        for x in (encoder.embed_store(data.store, "jk+sum"), descriptors)
    )
    error = ((own + known)[data.split.test] / 2 - data.labels[data.split.test]).ravel()
    assert fused.rows[0].mean("rmse") == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)


def test_several_splits_are_probed_as_each_alone_would_be(tmp_path: Path):
    table = write_csv(tmp_path / "chains.csv", CHAINS, alcohol=IS_ALCOHOL, even=LENGTH % 2)
    options: dict[str, Any] = {"targets": ["alcohol", "even"], "split": "random"}
    options |= {"baselines": ("random", "ecfp-rf"), "with_features": ["ecfp4"]}
    encoder, seeds = tiny_encoder("jk"), (3, 1, 4)
    together = probe(encoder, table, folds_seeds=seeds, **options)
    alone = [probe(encoder, table, baseline_seeds=[s], split_seed=s, **options) for s in seeds]
    assert together.splits == 3
    assert together.split == "random (seeds 3, 1, 4)"
    assert sum(together.sizes[fold] for fold in ("train", "valid", "test")) == len(CHAINS)
    for k, row in enumerate(together.rows):
        own = [report.rows[k] for report in alone]
        assert (row.model, row.rule) == (own[0].model, own[0].rule)
        np.testing.assert_array_equal(row.test["roc_auc"], [r.test["roc_auc"][0] for r in own])
        np.testing.assert_array_equal(row.valid["roc_auc"], [r.valid["roc_auc"][0] for r in own])
        pairs = [r.rows[k].mean("roc_auc") - r.rows[0].mean("roc_auc") for r in alone]
        score = together.scores[k]
        assert score["difference"] == pytest.approx(np.mean(pairs), abs=1e-12)
        variance = np.var(pairs, ddof=1) * (
            1 / 3 + together.sizes["test"] / together.sizes["train"]
        )
        half = 4.302653 * np.sqrt(variance)  # Student's t of two degrees of freedom
        assert score["difference_half_width"] == pytest.approx(half, rel=1e-6, abs=1e-12)
    assert len({tuple(r.test["roc_auc"]) for r in together.rows}) > 1
    notes = [note for report in alone for note in report.notes]
    assert all(any(note in shown for shown in together.notes) for note in notes)
    again = Report.from_dict(json.loads(json.dumps(together.to_dict(), allow_nan=False)))
    assert again.scores == together.scores


def test_a_split_without_a_seed_is_not_probed_several_times(tmp_path: Path):
    rings = [f"{'C' * n}C1{'C' * k}C1" for k in range(1, 6) for n in range(4)]
    table = write_csv(tmp_path / "rings.csv", rings, y=np.arange(len(rings)) % 2)
    by_scaffold = open_labeled(
        table, MOLECULE, targets=["y"], split="scaffold", fractions=(0.6, 0.2, 0.2)
    )
    two = Split(np.arange(40), np.arange(0), np.arange(40, 48))  # a seed draws the third
    of_two = open_labeled({"smiles": CHAINS, "y": IS_ALCOHOL}, MOLECULE, targets=["y"], split=two)
    for data in (labeled(IS_ALCOHOL), by_scaffold, of_two):
        with pytest.raises(ConfigError, match="same test fold with every seed"):
            probe(tiny_encoder(), data, baselines=(), folds_seeds=(0, 1))
    shares = {"targets": ["y"], "fractions": (0.6, 0.2, 0.2), "baselines": ()}
    assert (
        probe(tiny_encoder(), table, folds_seeds=(0, 1, 2), **shares).split
        == "random-scaffold (seeds 0, 1, 2)"
    )
    for seeds in ((), (1,), (0, 1, 0)):
        with pytest.raises(ConfigError, match=r"`folds_seeds` must be 2 or more different"):
            probe(tiny_encoder(), table, folds_seeds=seeds, **shares)
    assert probe(tiny_encoder(), table, folds_seeds=range(2), **shares).splits == 2


def test_a_split_without_a_score_is_left_out():
    rows = (
        ScoreRow("a", "r", {"roc_auc": [0.5, NAN, 0.7, 0.6]}, {"roc_auc": [NAN] * 4}),
        ScoreRow("b", "r", {"roc_auc": [0.6, NAN, 0.9, NAN]}, {"roc_auc": [0.5, NAN, 0.7, NAN]}),
        ScoreRow("c", "r", {"roc_auc": [NAN, 0.6, NAN, NAN]}, {"roc_auc": [NAN] * 4}),
    )
    sizes = {"train": 8, "valid": 1, "test": 1}
    report = Report("d", "classification", "roc_auc", "s", sizes, ("y",), rows, splits=4)
    assert report.mean == pytest.approx(0.6)
    assert report.sd == pytest.approx(0.1)
    assert rows[1].mean("roc_auc", "valid") == pytest.approx(0.6)
    mean, half = report.difference(rows[1])
    assert mean == pytest.approx(0.15)
    # Student's t of one degree of freedom; deviation of 0.1 and 0.2; two splits
    assert half == pytest.approx(12.7062 * np.sqrt(0.005) * np.sqrt(1 / 2 + 1 / 8), rel=1e-5)
    assert np.isnan(report.difference(rows[2])).all()
    for shown in (str(report), report.to_html()):
        assert "minus the first row" in shown
        assert "15.00" in shown


@pytest.mark.parametrize(
    ("metric", "values", "shown"),
    [
        ("rmse", (0.02551, 0.004), ("0.0255", "0.0040")),
        ("rmse", (1.6942, -0.0004), ("1.69", "0.00")),
        ("mae", (105.23, 69.2), ("105.2", "69.2")),
        ("roc_auc", (0.73951, NAN), ("73.95", "-")),
        ("rmse", (NAN, NAN), ("-", "-")),
        ("rmse", (0.0, 0.0), ("0.00", "0.00")),
    ],
)
def test_scores_are_shown_with_three_digits(
    metric: str, values: tuple[float, float], shown: tuple[str, str]
):
    rows = tuple(ScoreRow("m", "r", {metric: [value]}, {}) for value in values)
    report = Report("d", "regression", metric, "random", {}, ("y",), rows)
    assert tuple(map(report.shown, values)) == shown


OPENING = ("targets", "split", "fractions", "task")
ENDS = np.arange(len(CHAINS)) % 4


def _several() -> LabeledGraphs:
    """Alcohols, long chains with labels missing, and a target of one class."""
    long = np.where(np.arange(len(CHAINS)) % 3 == 0, NAN, LENGTH > 6)
    labels = np.stack([IS_ALCOHOL, long, np.ones(len(CHAINS))], axis=1)
    return labeled(labels, "classification", ("alcohol", "long", "one"))


def _classes() -> LabeledGraphs:
    """Four classes, one of which the training fold lacks."""
    data = labeled(np.eye(5)[ENDS], "classification", tuple("abcde"))
    return replace(data, task="multiclass", metric="accuracy")


TASKS = {
    "classification": _several,
    "multiclass": _classes,
    "regression": lambda: labeled(np.stack([LENGTH, LENGTH**2], axis=1), "regression", ("n", "m")),
    "gaps": lambda: labeled(np.where(ENDS == 0, NAN, LENGTH), "regression", ("n",)),
}


JOINED = ("ecfp4", "descriptors")
KEPT = [("regression", ()), ("regression", JOINED), ("classification", JOINED)]
KEPT += [("multiclass", ()), ("gaps", JOINED)]


@pytest.mark.parametrize(("task", "joined"), KEPT)
def test_what_is_kept_predicts_what_was_scored(
    task: str, joined: tuple[str, ...], tmp_path: Path
) -> None:
    data, encoder = TASKS[task](), tiny_encoder("jk")
    report = probe(encoder, data, with_features=joined, baselines=(), run_dir=tmp_path / "run")
    kept = Predictor.load(tmp_path / "run")
    expected, test = averaged_models(encoder, data, joined), data.split.test
    np.testing.assert_allclose(kept.predict(data.store), expected, rtol=2e-4, atol=2e-4)
    scores = evaluate(data.labels[test], expected[test], data.task).scores
    assert report.rows[0].rule == "C by validation"
    for metric, found in report.rows[0].test.items():
        np.testing.assert_allclose(scores[metric], found[0], rtol=1e-6)
    assert kept.report.to_dict() == report.to_dict()


def test_where_validation_cannot_choose_the_fixed_penalty_is_taken(tmp_path: Path) -> None:
    data = labeled(np.where(np.isin(np.arange(len(CHAINS)), _several().split.valid), 1, IS_ALCOHOL))
    report = probe(tiny_encoder(), data, c=0.3, baselines=(), run_dir=tmp_path / "run")
    assert Predictor.load(tmp_path / "run").info["probe"]["c"] == {"embedding": 0.3}
    assert not any("also chose" in note for note in report.notes)
    assert any("also chose C" in note for note in _kept(tmp_path / "other").report.notes)


def _kept(run: Path, *features: str) -> Predictor:
    """Return a kept probe of the lengths of the chains."""
    data = labeled(LENGTH, "regression")
    probe(tiny_encoder("jk"), data, with_features=features, baselines=(), run_dir=run)
    return Predictor.load(run)


@pytest.mark.parametrize(
    "change",
    [
        {"joined.ecfp4.linear.weight": torch.zeros(1, 5)},
        {"joined.ecfp4.linear.bias": torch.zeros(2)},
        {"joined.ecfp4.linear.bias": None},
        {"joined": ["ecfp5"]},
        {"members": 0},
        {"task": "regresion"},
        {"head.0.clip": None},
        {"head.0.input_shift": torch.zeros(7)},
    ],
    ids=["width", "targets", "no bias", "name", "no member", "task", "no clip", "other embedding"],
)
def test_a_head_that_does_not_fit_is_refused(change: dict[str, Any], tmp_path: Path):
    _kept(tmp_path / "run", "ecfp4")
    found = read_model(tmp_path / "run" / "model.safetensors")
    extra = {k: v for k, v in {**found.extra, **change}.items() if torch.is_tensor(v)}
    described = {k: v for k, v in change.items() if "." not in k}
    info = {**found.info, "predictor": {**found.info["predictor"], **described}}
    save_model(tmp_path / "odd.safetensors", found.encoder, info, extra)
    with pytest.raises(ModelFileError, match="heads are incomplete"):
        Predictor.load(tmp_path / "odd.safetensors")
    del info["embedding"]
    save_model(tmp_path / "odd.safetensors", found.encoder, info, found.extra)
    with pytest.raises(ModelFileError, match=r"incomplete or of another version \('embedding'\)"):
        Predictor.load(tmp_path / "odd.safetensors")


def test_only_kernel_models_weigh_graphs() -> None:
    data = replace(labeled(LENGTH, "regression"), weights=np.arange(48.0) % 3)
    for head in ("linear", "auto"):
        with pytest.raises(ConfigError, match="weights need `head='kernel'`"):
            graphlog.probe(tiny_encoder(), data, head=head)
    report = graphlog.probe(tiny_encoder(), data, head="kernel", baselines=())
    plain = graphlog.probe(tiny_encoder(), lengths(), head="kernel", baselines=())
    assert report.mean != plain.mean
    assert "weights are used by kernel models only, not in scores or other rows" in report.notes


@pytest.mark.parametrize("options", [{"c": 0}, {"c": math.nan}, {"grid": [-1]}, {"grid": []}])
def test_inverse_penalties_are_above_0(options: dict[str, Any]) -> None:
    calls = [graphlog.probe] if "c" in options else [graphlog.probe, graphlog.fold_probe]
    for call in calls:
        with pytest.raises(ConfigError, match=rf"`{next(iter(options))}` must be a .* above 0"):
            call(tiny_encoder(), lengths(), **options)


@pytest.mark.parametrize("options", [{"baselines": "ecfp-lr"}, {"with_features": "ecfp4"}])
def test_one_name_is_no_list_of_names(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(ConfigError, match=rf"`{name}` is a list of names, .* write \['{value}'\]"):
        graphlog.probe(tiny_encoder(), {"smiles": CHAINS, "length": LENGTH}, **options)


def test_one_target_may_be_named_alone() -> None:
    data = {"smiles": CHAINS, "length": LENGTH}
    found, expected = (
        graphlog.probe(tiny_encoder(), data, "random", targets=targets, baselines=()).mean
        for targets in ("length", ["length"])
    )
    assert found == expected
    with pytest.raises(ConfigError, match=r"write \(\)"):
        graphlog.probe(tiny_encoder(), data, targets="length", baselines="none")


def test_nothing_else_goes_on_in_its_folder(tmp_path: Path) -> None:
    _kept(tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="a run of probe, which finetune cannot continue"):
        graphlog.finetune(tiny_encoder(), labeled(LENGTH), run_dir=tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match="a run of probe, which pretrain cannot continue"):
        graphlog.pretrain(CHAINS, run_dir=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    with pytest.raises(ConfigError, match="name its folder"):
        graphlog.probe(tiny_encoder(), labeled(LENGTH), overwrite=True)


def test_the_note_of_a_replaced_input_goes_with_it(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "m.csv", CHAINS, length=LENGTH)
    options = {"targets": ["length"], "baselines": (), "split": "random"}
    run = {"run_dir": tmp_path / "run", "overwrite": True}
    graphlog.probe(tiny_encoder(), table, **options, **run)
    assert recall_input(tmp_path / "run") == (str(table), {"targets": ["length"]})
    graphlog.probe(tiny_encoder(), pd.read_csv(table), **options, **run)
    assert recall_input(tmp_path / "run") is None


def test_a_frame_is_predicted_as_a_frame(tmp_path: Path) -> None:
    kept = _kept(tmp_path / "run")
    expected = kept.predict(CHAINS)
    frame = pd.DataFrame({"smiles": [*CHAINS, "?"]}, index=range(100, 149))
    found = graphlog.predict(kept, frame)
    assert list(found.columns) == ["predicted_y"]
    assert found.index.equals(frame.index)
    np.testing.assert_allclose(found["predicted_y"][:-1], expected[:, 0], rtol=1e-5)
    assert np.isnan(found["predicted_y"].iloc[-1])
    of_polars = graphlog.predict(kept, pl.DataFrame({"smiles": CHAINS}))
    assert isinstance(of_polars, pl.DataFrame)
    np.testing.assert_allclose(of_polars["predicted_y"].to_numpy(), expected[:, 0], rtol=1e-5)
    for empty in (pd.DataFrame({"smiles": []}), pl.DataFrame({"smiles": []})):
        nothing = graphlog.predict(kept, empty)
        assert (type(nothing), nothing.shape) == (type(empty), (0, 1))


def test_large_inputs_are_predicted_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept = _kept(tmp_path / "run", "descriptors")
    whole = kept.predict(chain_store())
    monkeypatch.setattr("graphlog.downstream.pretrained._ROWS_WITH_FEATURES", 7)
    np.testing.assert_allclose(kept.predict(chain_store(), batch_size=5), whole, rtol=1e-5)


def test_the_encoder_is_kept_and_left_as_it_is(tmp_path: Path) -> None:
    encoder = tiny_encoder("jk").train()
    before = {name: t.clone() for name, t in encoder.state_dict().items()}
    probe(encoder, labeled(LENGTH, "regression"), baselines=(), run_dir=tmp_path / "run")
    assert encoder.training
    assert encoder.network.training
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[name])
    for name, tensor in Predictor.load(tmp_path / "run").encoder.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize(("task", "joined"), KEPT)
def test_a_kept_kernel_model_predicts_what_it_was_scored_with(
    tmp_path: Path, task: str, joined: tuple[str, ...]
) -> None:
    data, encoder, run = TASKS[task](), tiny_encoder("jk"), tmp_path / "run"
    report = probe(encoder, data, head="kernel", baselines=(), with_features=joined, run_dir=run)
    kept = Predictor.load(run)
    assert kept.features == (["descriptors", "counts"] if joined else ["counts"])
    predicted = kept.predict(data.store)
    expected = data.evaluate(predicted, data.split.test).scores[data.metric]
    assert report.rows[0].mean(data.metric) == pytest.approx(expected, rel=1e-5)
    found = kept.predict_uncertain(CHAINS[:5])
    np.testing.assert_allclose(found.mean, predicted[:5], atol=1e-5)
    assert (found.std is not None) == (data.task == "regression")
    if found.std is not None:
        assert (found.std > 0).all()
        assert report.calibration[0]["spread_coverage"] is not None
        graphlog.predict_file(kept, CHAINS[:5], tmp_path / "out.csv")
        assert all(row["predicted_n_std"] for row in read_table(tmp_path / "out.csv"))
    explained = attribute(kept, chain_store().subset(np.arange(2)))
    np.testing.assert_allclose(explained.predictions, predicted[:2], atol=1e-5)


def test_repeats_are_held_out_together():
    """What no feature tells is not predicted, however often it was measured."""
    store = read(CHAINS * 4, MOLECULE)
    rows, labels = np.arange(len(store)), np.random.default_rng(0).normal(size=(len(CHAINS), 1))
    split = Split(rows, rows[:0], rows[:0])
    data = replace(lengths(), store=store, labels=np.tile(labels, (4, 1)), split=split)
    found = fit_head(tiny_encoder(), data, "kernel").predict_uncertain(CHAINS)
    assert found.std is not None
    assert found.std.mean() > 0.5 * labels.std()
    parts = {"": BaselineFeatures("noise", np.tile(np.eye(len(CHAINS), dtype=np.float32), (4, 1)))}
    held = _held_out(data, parts, [1e3])[1e3]
    assert evaluate(data.labels, held, "regression").scores["r2"] < 0


def test_values_alone_need_no_deviations(monkeypatch: pytest.MonkeyPatch):
    """They would take most of the time."""
    predictor = fit_head(tiny_encoder(), labeled(LENGTH, "regression"), "kernel")
    expected = predictor.predict_uncertain(CHAINS[:5]).mean
    monkeypatch.setattr(KernelModel, "variance", None)
    np.testing.assert_array_equal(predictor.predict(CHAINS[:5]), expected)


def test_kernel_models_of_several_splits_are_fitted_to_all_labels(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "m.csv", CHAINS, length=LENGTH)
    options = {"targets": ["length"], "baselines": ("random",), "split": "random"}
    run, seeds = tmp_path / "run", (0, 1)
    report = probe(
        tiny_encoder("jk"), table, head="auto", folds_seeds=seeds, run_dir=run, **options
    )
    assert {row.key.model for row in report.rows} == {Model.LINEAR, Model.KERNEL}
    best = min(
        (
            row
            for row in report.rows
            if row.key.source == Source.EMBEDDING and row.key.rule != "fixed"
        ),
        key=lambda row: row.mean("rmse", "valid"),
    )
    assert report.rows[0].key == best.key
    kept = Predictor.load(run)
    assert (kept.kernel is None) == (best.key.model is Model.LINEAR)
    assert Report.load(run) == Report.load(run / "scores.json")


def test_a_target_that_was_not_learned_is_not_explained(tmp_path: Path) -> None:
    probe(tiny_encoder(), _several(), baselines=(), run_dir=tmp_path / "run")
    for name in ("why.csv", "why.html"):
        graphlog.explain_file(tmp_path / "run", CHAINS[:3], tmp_path / name)
    rows = read_table(tmp_path / "why.csv")
    assert all(row["contribution_one"] == "" and row["contribution_long"] for row in rows)
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "no prediction" in page
    assert ">nan" not in page


def test_nothing_is_kept_where_nothing_is_learned(tmp_path: Path) -> None:
    data = labeled(np.where(np.isin(np.arange(len(CHAINS)), _several().split.train), 1, IS_ALCOHOL))
    with pytest.raises(DataError, match="one class only in the training fold"):
        probe(tiny_encoder(), data, baselines=(), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_atoms_are_hidden_from_the_embedding_alone(tmp_path: Path, task: str) -> None:
    data = labeled(LENGTH if task == "regression" else IS_ALCOHOL, task)
    features = ("ecfp4", "descriptors")
    probe(tiny_encoder("jk"), data, baselines=(), with_features=features, run_dir=tmp_path / "run")
    predictor, store = Predictor.load(tmp_path / "run"), chain_store().subset(np.array([5, 40, 2]))
    found = attribute(predictor, store, batch_size=2)
    np.testing.assert_allclose(
        found.predictions, predictor.predict([CHAINS[k] for k in (5, 40, 2)]), atol=1e-5
    )
    pairs = zip(predictor.joined.values(), predictor.features_of(store), strict=True)
    others = [head.predict(values) for head, values in pairs]
    (member,) = predictor.members
    for graph in range(3):
        hidden = without_each_node(store[[graph]], predictor.schema.node_mask)
        for node, batch in enumerate(hidden):
            with torch.no_grad():
                own = member.head.predictions(member(batch)).numpy()
            parts = [own, *(values[[graph]] for values in others)]
            expected = found.predictions[graph] - fuse(parts, predictor.task)[0]
            np.testing.assert_allclose(found.of(graph)[node], expected, atol=1e-5)
    assert np.abs(found.values).max() > 1e-3
    graphlog.explain_file(predictor, CHAINS[:3], tmp_path / "why.html")
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "average of 3 linear models" in page
    assert "ecfp4 and descriptors stay those of the whole molecule" in page


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_probe_of_several_splits_is_fitted_to_all_labels(tmp_path: Path, task: str) -> None:
    draw = np.random.default_rng(0)
    noisy = LENGTH + draw.normal(size=len(CHAINS)) if task == "regression" else LENGTH % 3 == 0
    labels = np.where(np.arange(len(CHAINS)) == 7, NAN, noisy)
    table = write_csv(tmp_path / "t.csv", CHAINS, y=["" if np.isnan(v) else v * 1 for v in labels])
    encoder, seeds, run = tiny_encoder("jk"), (0, 1, 2), tmp_path / "run"
    options: dict[str, Any] = {"targets": ["y"], "split": "random", "fractions": (0.6, 0.2, 0.2)}
    options |= {"baselines": (), "with_features": ["ecfp4"], "task": task}
    report = probe(encoder, table, folds_seeds=seeds, run_dir=run, **options)
    assert report.rows[0].rule == "C by validation"
    assert "kept: models of all 47 labeled graphs" in report.notes
    assert any("from the folds of all splits" in note for note in report.notes)

    alone = [
        open_labeled(table, encoder.schema, **{k: options[k] for k in OPENING}, split_seed=s)
        for s in seeds
    ]
    data, *others = alone
    expected = averaged_models(encoder, data, ("ecfp4",), others)
    predictor = Predictor.load(run)
    # a penalty is fitted alone or after smaller ones, to the same tolerance
    np.testing.assert_allclose(predictor.predict(data.store), expected, atol=5e-4)

    (judged,) = report.calibration
    count = sum(int(np.isfinite(one.labels[one.split.valid]).sum()) for one in alone)
    assert judged["valid"] == count
    if task == "regression":
        errors = [
            np.abs(one.labels - averaged_models(encoder, one, ("ecfp4",)))[one.split.valid]
            for one in alone
        ]
        pooled = np.sort(np.concatenate(errors)[:, 0])
        np.testing.assert_allclose(
            predictor.calibration.errors[:, 0], pooled[~np.isnan(pooled)], rtol=1e-3, atol=1e-4
        )
    assert json.loads((run / "split.json").read_text())["train"] == data.rows.tolist()
