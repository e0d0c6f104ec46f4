"""Probes: their rows, and that one that is kept predicts what it was scored with."""

import json
import shutil
from dataclasses import replace
from itertools import product
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
    probed,
    tiny_encoder,
    without_each_node,
    write_csv,
)
from graphlog.data.split import Split
from graphlog.domains.base import BaselineFeatures
from graphlog.domains.molecule import MOLECULE
from graphlog.downstream.kernel import KernelModel
from graphlog.downstream.linear import fuse, linear_path, standardize
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.predictor import Head, Predictor
from graphlog.downstream.pretrained import untrained_like
from graphlog.downstream.probe import BASELINES, _held_out, fit_head
from graphlog.downstream.report import Model, Report, ScoreRow, Source
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.encoders.modelfile import digest_of, read_model, save_model
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.extras.explain import attribute
from graphlog.inputs import read, recall_input

NAN = float("nan")


def test_probe_reports_every_row_both_ways():
    report = probed(labeled(IS_ALCOHOL), baselines=BASELINES, baseline_seeds=(0, 1))
    linear = ("frozen encoder", "untrained encoder", "ECFP4 + logistic regression")
    assert [(row.model, row.rule) for row in report.rows] == [
        *product(linear, ("C = 0.1", "C by validation")),
        ("ECFP4 + random forest", "300 trees"),
    ]
    assert report.mean > 0.9  # alcohols are easy
    assert len(report.rows[2].test["roc_auc"]) == 2
    assert report.rows[2].sd("roc_auc") >= 0
    assert np.isnan(report.rows[0].sd("roc_auc"))
    assert str(reread(report)) == str(report)


def reread(report: Report) -> Report:
    return Report.from_dict(json.loads(json.dumps(report.to_dict(), allow_nan=False)))


def test_an_untrained_row_is_a_linear_model_of_standardized_features():
    encoder, data = tiny_encoder("jk"), lengths()
    train, test = data.split.train, data.split.test
    report = probed(data, encoder, baselines=("random",), baseline_seeds=(3,))
    graphs = data.store.subset(np.sort(train))
    x = standardize(untrained_like(encoder, graphs, 3).embed_store(data.store, "jk+sum"), train)
    values = linear_path(x, data.labels, train, "regression", (0.1,))[0.1]
    scores = evaluate(data.labels[test], values[test], "regression").scores
    assert report.rows[2].test["rmse"] == [pytest.approx(scores["rmse"], rel=1e-6)]


def test_a_fused_row_stands_above_those_of_its_parts():
    report = graphlog.probe(tiny_encoder("jk"), labeled(IS_ALCOHOL), with_features=("ecfp4",))
    models = ["frozen encoder + ECFP4", "frozen encoder", "ECFP4 + logistic regression"]
    models = np.repeat([*models, "untrained encoder"], 2).tolist()
    assert [row.model for row in report.rows] == models
    plain = probed(labeled(IS_ALCOHOL), baselines=("ecfp-lr",))
    assert [row.test for row in report.rows[2:6]] == [row.test for row in plain.rows]


def test_several_splits_are_probed_as_each_alone_would_be(tmp_path: Path):
    table = write_csv(tmp_path / "chains.csv", CHAINS, alcohol=IS_ALCOHOL, even=LENGTH % 2)
    options: dict[str, Any] = {"targets": ["alcohol", "even"], "split": "random"}
    options |= {"baselines": ("random", "ecfp-rf"), "with_features": ["ecfp4"]}
    encoder, seeds = tiny_encoder("jk"), (3, 1, 4)
    together = probed(table, encoder, folds_seeds=seeds, **options)
    alone = [probed(table, encoder, baseline_seeds=[s], split_seed=s, **options) for s in seeds]
    assert together.splits == 3
    assert together.split == "random (seeds 3, 1, 4)"
    assert sum(together.sizes[fold] for fold in ("train", "valid", "test")) == len(CHAINS)
    for k, row in enumerate(together.rows):
        own = [report.rows[k] for report in alone]
        assert (row.model, row.rule) == (own[0].model, own[0].rule)
        np.testing.assert_array_equal(row.test["roc_auc"], [r.test["roc_auc"][0] for r in own])
        np.testing.assert_array_equal(row.valid["roc_auc"], [r.valid["roc_auc"][0] for r in own])
        pairs = [r.rows[k].mean("roc_auc") - r.rows[0].mean("roc_auc") for r in alone]
        score, sizes = together.scores[k], together.sizes
        assert score["difference"] == pytest.approx(np.mean(pairs), abs=1e-12)
        variance = np.var(pairs, ddof=1) * (1 / 3 + sizes["test"] / sizes["train"])
        half = 4.302653 * np.sqrt(variance)  # Student's t of two degrees of freedom
        assert score["difference_half_width"] == pytest.approx(half, rel=1e-6, abs=1e-12)
    assert len({tuple(r.test["roc_auc"]) for r in together.rows}) > 1
    notes = [note for report in alone for note in report.notes]
    assert all(any(note in shown for shown in together.notes) for note in notes)
    assert reread(together).scores == together.scores


def test_a_split_without_a_seed_is_not_probed_several_times():
    table = {"smiles": [f"{'C' * n}C1{'C' * k}C1" for k in range(1, 6) for n in range(4)]}
    table["y"] = np.arange(20) % 2
    shares = {"targets": ["y"], "fractions": (0.6, 0.2, 0.2)}
    by_scaffold = open_labeled(table, MOLECULE, split="scaffold", **shares)
    two = Split(np.arange(40), np.arange(0), np.arange(40, 48))  # a seed draws the third
    of_two = open_labeled({"smiles": CHAINS, "y": IS_ALCOHOL}, MOLECULE, targets=["y"], split=two)
    for data in (labeled(IS_ALCOHOL), by_scaffold, of_two):
        with pytest.raises(ConfigError, match="same test set with every seed"):
            probed(data, folds_seeds=(0, 1))
    report = probed(table, folds_seeds=range(3), **shares)
    assert (report.splits, report.split) == (3, "random-scaffold (seeds 0, 1, 2)")
    shares |= {"split": "random", "fractions": (0.8, 0.0, 0.2)}
    assert probed(table, folds_seeds=(0, 1), **shares).split == (
        "random (validation set: 1 graphs, random, of its training set) (seeds 0, 1)"
    )


def test_a_split_without_a_score_is_left_out():
    rows = (
        ScoreRow("a", "r", {"roc_auc": [0.5, NAN, 0.7, 0.6]}, {"roc_auc": [NAN] * 4}),
        ScoreRow("b", "r", {"roc_auc": [0.6, NAN, 0.9, NAN]}, {"roc_auc": [0.5, NAN, 0.7, NAN]}),
        ScoreRow("c", "r", {"roc_auc": [NAN, 0.6, NAN, NAN]}, {"roc_auc": [NAN] * 4}),
    )
    kind, sizes = ("classification", "roc_auc", "s"), {"train": 8, "valid": 1, "test": 1}
    report = Report("d", *kind, sizes, ("y",), rows, splits=4)  # type: ignore[arg-type]
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
        ("mae", (123456.789, 3000.2), ("123,457", "3,000")),
        ("roc_auc", (0.73951, NAN), ("73.95", "-")),
        ("rmse", (NAN, NAN), ("-", "-")),
        ("rmse", (0.0, 0.0), ("0.00", "0.00")),
        ("rmse", (3.21e-9, 4e-10), ("3.21e-09", "4.00e-10")),
    ],
)
def test_scores_are_shown_with_three_digits(
    metric: str, values: tuple[float, float], shown: tuple[str, str]
):
    rows = tuple(ScoreRow("m", "r", {metric: [value]}, {}) for value in values)
    report = Report("d", "regression", metric, "random", {}, ("y",), rows)
    assert tuple(map(report.shown, values)) == shown


ENDS = np.arange(len(CHAINS)) % 4


def _several() -> LabeledGraphs:
    """Alcohols, long chains with labels missing, and a target of one class."""
    long = np.where(np.arange(len(CHAINS)) % 3 == 0, NAN, LENGTH > 6)
    labels = np.stack([IS_ALCOHOL, long, np.ones(len(CHAINS))], axis=1)
    return labeled(labels, "classification", ("alcohol", "long", "one"))


def _classes() -> LabeledGraphs:
    """Four classes, one of which the training set lacks."""
    data = labeled(np.eye(5)[ENDS], "classification", tuple("abcde"))
    return replace(data, task="multiclass", metric="accuracy")


def _one_class(fold: str) -> LabeledGraphs:
    """Alcohols, but in one fold one class alone."""
    data = labeled(IS_ALCOHOL)
    data.labels[getattr(data.split, fold)] = 1
    return data


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
def test_what_is_kept_predicts_what_was_scored(task: str, joined: tuple[str, ...], tmp_path: Path):
    data, encoder = TASKS[task](), tiny_encoder("jk")
    report = probed(data, encoder, with_features=joined, run_dir=tmp_path)
    kept = Predictor.load(tmp_path)
    expected, test = averaged_models(encoder, data, joined), data.split.test
    np.testing.assert_allclose(kept.predict(data.store), expected, rtol=2e-4, atol=2e-4)
    scores = evaluate(data.labels[test], expected[test], data.task).scores
    assert report.rows[0].rule == "C by validation"
    for metric, found in report.rows[0].test.items():
        np.testing.assert_allclose(scores[metric], found[0], rtol=1e-6)
    assert kept.report.to_dict() == report.to_dict()


def test_where_validation_cannot_choose_the_fixed_penalty_is_taken(tmp_path: Path, kept: Path):
    report = probed(_one_class("valid"), run_dir=tmp_path)
    assert Predictor.load(tmp_path).info["probe"]["c"] == {"embedding": 0.1}
    assert not any("also chose" in note for note in report.notes)
    assert any("also chose C" in note for note in Predictor.load(kept).report.notes)


def test_nothing_is_kept_where_nothing_is_learned(tmp_path: Path):
    with pytest.raises(DataError, match="one class only in the training set"):
        probed(_one_class("train"), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a probe of the lengths of the chains, joined with fingerprints."""
    run = tmp_path_factory.mktemp("kept") / "run"
    probed(lengths(), with_features=("ecfp4",), run_dir=run)
    return run


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
def test_a_head_that_does_not_fit_is_refused(change: dict[str, Any], tmp_path: Path, kept: Path):
    found = read_model(kept / "model.safetensors")
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


def test_only_kernel_models_weigh_graphs():
    data = replace(lengths(), weights=np.arange(48.0) % 3)
    for head in ("linear", "auto"):
        with pytest.raises(ConfigError, match="weights need `head='kernel'`"):
            probed(data, head=head)
    report, plain = (probed(each, head="kernel") for each in (data, lengths()))
    assert report.mean != plain.mean
    assert "only kernel models use weights; scores and other rows do not" in report.notes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(
            ({name: "ecfp"}, rf"`{name}` is a list of names, .* write \['ecfp'\]")
            for name in ("baselines", "with_features")
        ),
        ({"baselines": "none"}, r"write \(\)"),
        *(
            ({"folds_seeds": seeds}, "`folds_seeds` must be 2 or more different")
            for seeds in ((), (1,), (0, 1, 0))
        ),
        ({"overwrite": True}, "name its folder"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        graphlog.probe(tiny_encoder(), {"smiles": CHAINS, "y": LENGTH}, targets=["y"], **options)


def test_one_target_may_be_named_alone():
    data = {"smiles": CHAINS, "length": LENGTH}
    one, listed = (probed(data, split="random", targets=t) for t in ("length", ["length"]))
    assert one.mean == listed.mean


def test_nothing_else_goes_on_in_its_folder(kept: Path):
    before = (kept / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="a run of probe, which finetune cannot continue"):
        graphlog.finetune(tiny_encoder(), lengths(), run_dir=kept, resume=True)
    with pytest.raises(ConfigError, match="a run of probe, which pretrain cannot continue"):
        graphlog.pretrain(CHAINS, run_dir=kept, resume=True)
    assert (kept / "model.safetensors").read_bytes() == before


def test_a_loaded_model_stays_as_it_is_when_its_file_is_overwritten(tmp_path: Path):
    for k, name in enumerate(("one", "other")):
        probed(labeled(LENGTH * (1 - 4 * k), "regression"), head="kernel", run_dir=tmp_path / name)
    loaded = Predictor.load(tmp_path / "one")
    expected = Predictor.load(tmp_path / "one").predict(CHAINS)
    shutil.copyfile(*(tmp_path / name / "model.safetensors" for name in ("other", "one")))
    np.testing.assert_array_equal(loaded.predict(CHAINS), expected)


def test_the_note_of_a_replaced_input_goes_with_it(tmp_path: Path):
    table, run = write_csv(tmp_path / "m.csv", CHAINS, length=LENGTH), tmp_path / "run"
    options = {"targets": ["length"], "split": "random", "run_dir": run, "overwrite": True}
    probed(table, **options)
    assert recall_input(run) == (str(table), {"targets": ["length"]})
    probed(pd.read_csv(table), **options)
    assert recall_input(run) is None


@pytest.mark.parametrize("library", [pd, pl])
def test_a_frame_is_predicted_as_a_frame(library: Any, kept: Path):
    expected = Predictor.load(kept).predict(CHAINS)[:, 0]
    found = graphlog.predict(kept, library.DataFrame({"smiles": [*CHAINS, "?"]}))
    assert isinstance(found, library.DataFrame)
    assert list(found.columns) == ["predicted_y"]
    values = found["predicted_y"].to_numpy()
    np.testing.assert_allclose(values, [*expected, NAN], rtol=1e-5)
    empty = library.DataFrame({"smiles": []})
    nothing = graphlog.predict(kept, empty)
    assert (type(nothing), nothing.shape) == (type(empty), (0, 1))


def test_the_index_of_a_frame_is_kept(kept: Path):
    frame = pd.DataFrame({"smiles": CHAINS[:3]}, index=range(100, 103))
    assert graphlog.predict(kept, frame).index.equals(frame.index)


def test_large_inputs_are_predicted_in_parts(kept: Path, monkeypatch: pytest.MonkeyPatch):
    predictor = Predictor.load(kept)
    whole = predictor.predict(chain_store())
    monkeypatch.setattr("graphlog.downstream.pretrained._ROWS_WITH_FEATURES", 7)
    np.testing.assert_allclose(predictor.predict(chain_store(), batch_size=5), whole, rtol=1e-5)


def test_the_encoder_is_kept_and_left_as_it_is(tmp_path: Path):
    encoder = tiny_encoder("jk").train()
    before = digest_of(encoder.state_dict(), {})
    probed(lengths(), encoder, run_dir=tmp_path)
    assert encoder.training
    assert encoder.network.training
    for found in (encoder, Predictor.load(tmp_path).encoder):
        assert digest_of(found.state_dict(), {}) == before


@pytest.mark.parametrize(("task", "joined"), KEPT)
def test_a_kept_kernel_model_predicts_what_it_was_scored_with(
    tmp_path: Path, task: str, joined: tuple[str, ...]
):
    data, encoder, run = TASKS[task](), tiny_encoder("jk"), tmp_path / "run"
    report = probed(data, encoder, head="kernel", with_features=joined, run_dir=run)
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
    predictor = fit_head(tiny_encoder(), lengths(), "kernel")
    expected = predictor.predict_uncertain(CHAINS[:5]).mean
    monkeypatch.setattr(KernelModel, "variance", None)
    np.testing.assert_array_equal(predictor.predict(CHAINS[:5]), expected)


def test_kernel_models_of_several_splits_are_fitted_to_all_labels(tmp_path: Path):
    table = {"smiles": CHAINS, "length": LENGTH}
    options = {"targets": ["length"], "baselines": ("random",), "split": "random"}
    report = probed(table, head="auto", folds_seeds=(0, 1), run_dir=tmp_path, **options)
    assert {row.key.model for row in report.rows} == {Model.LINEAR, Model.KERNEL}
    own = [r for r in report.rows if r.key.source == Source.EMBEDDING and r.key.rule != "fixed"]
    best = min(own, key=lambda row: row.mean("rmse", "valid"))
    assert report.rows[0].key == best.key
    kept = Predictor.load(tmp_path)
    assert (kept.kernel is None) == (best.key.model is Model.LINEAR)
    chosen = "the kind of model and C" if kept.kernel is None else "the kind of model"
    assert any(f"also chose {chosen}:" in note for note in kept.report.notes)
    assert Report.load(tmp_path) == Report.load(tmp_path / "scores.json")


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_atoms_are_hidden_from_the_embedding_alone(tmp_path: Path, task: str):
    data = lengths() if task == "regression" else labeled(IS_ALCOHOL)
    probed(data, with_features=("ecfp4", "descriptors"), run_dir=tmp_path / "run")
    predictor, store = Predictor.load(tmp_path / "run"), chain_store().subset(np.array([5, 40, 2]))
    found = attribute(predictor, store, batch_size=2)
    np.testing.assert_allclose(
        found.predictions, predictor.predict([CHAINS[k] for k in (5, 40, 2)]), atol=1e-5
    )
    others = list(map(Head.predict, predictor.joined.values(), predictor.features_of(store)))
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
def test_a_probe_of_several_splits_is_fitted_to_all_labels(tmp_path: Path, task: str):
    noisy = LENGTH + np.random.default_rng(0).normal(size=48)
    labels = noisy if task == "regression" else (LENGTH % 3 == 0) * 1.0
    labels[7] = NAN
    table, encoder, seeds = {"smiles": CHAINS, "y": labels}, tiny_encoder("jk"), (0, 1, 2)
    options: dict[str, Any] = {"targets": ["y"], "split": "random", "fractions": (0.6, 0.2, 0.2)}
    how = options | {"with_features": ["ecfp4"], "folds_seeds": seeds, "run_dir": tmp_path}
    report = probed(table, encoder, **how)
    assert report.rows[0].rule == "C by validation"
    assert "kept: models fitted to all 47 labeled graphs" in report.notes
    assert any("from validation sets that the kept models" in note for note in report.notes)

    alone = [open_labeled(table, encoder.schema, **options, split_seed=s) for s in seeds]
    data, *others = alone
    expected = averaged_models(encoder, data, ("ecfp4",), others)
    predictor = Predictor.load(tmp_path)
    # a penalty is fitted alone or after smaller ones, to the same tolerance
    np.testing.assert_allclose(predictor.predict(data.store), expected, atol=5e-4)

    (judged,) = report.calibration
    graphs = np.concatenate([one.split.valid for one in alone])
    first = np.unique(graphs, return_index=True)[1]  # a molecule of several folds counts once
    assert judged["valid"] == (len(first) if task == "regression" else len(graphs))
    if task == "regression":
        errors = [
            np.abs(one.labels - averaged_models(encoder, one, ("ecfp4",)))[one.split.valid]
            for one in alone
        ]
        pooled = np.sort(np.concatenate(errors)[first, 0])
        np.testing.assert_allclose(
            predictor.calibration.errors[:, 0], pooled[~np.isnan(pooled)], rtol=1e-3, atol=1e-4
        )
    assert json.loads((tmp_path / "split.json").read_text())["train"] == data.rows.tolist()


def test_a_report_says_what_a_kernel_sees(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphlog.downstream.kernel.MAX_EXACT_ROWS", 5)
    report = probed(labeled(LENGTH, "regression"), head="kernel", with_features=("ecfp4",))
    assert report.rows[0].model == "frozen encoder + ECFP4 counts"
    for said in ("points because an exact fit is", "counts in place of ecfp4"):
        assert any(said in note for note in report.notes)
