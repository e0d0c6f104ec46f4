import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from downstream_support import CHAINS, IS_ALCOHOL, LENGTH, labeled, tiny_encoder, write_csv
from graphlog.domains import domain_of
from graphlog.domains.molecule import MOLECULE
from graphlog.downstream.linear import fuse, linear_path, sparse_bits, standardize, tree_predictions
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.pretrained import untrained_like
from graphlog.downstream.probe import BASELINES, probe
from graphlog.downstream.report import Report, ScoreRow
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.errors import ConfigError

NAN = float("nan")


def test_standardizing_looks_at_training_rows_only():
    x = np.array([[1.0, 5.0], [3.0, 5.0], [100.0, 9.0]], dtype=np.float32)
    scaled = standardize(x, np.array([0, 1]))
    np.testing.assert_allclose(scaled[:2], [[-1, 0], [1, 0]])
    assert scaled.dtype == np.float32


@pytest.mark.parametrize("columns", [4, 60])
@pytest.mark.parametrize("missing", [False, True])
def test_ridge_with_and_without_missing_labels(missing: bool, columns: int):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, columns)).astype(np.float32)
    y = (x @ rng.normal(size=(columns, 2)) + 3).astype(np.float32)
    if missing:
        y[:5, 0] = NAN
    path = linear_path(x, y, np.arange(40), "regression", (0.1, 1.0))
    rows = np.flatnonzero(~np.isnan(y[:40, 0]))
    for c, found in path.items():
        ridge = Ridge(alpha=1 / c).fit(x[rows].astype(np.float64), y[rows, 0])
        np.testing.assert_allclose(found[:, 0], ridge.predict(x), rtol=1e-4, atol=1e-4)


def test_tasks_that_cannot_be_learned_are_nan():
    x = np.eye(6, dtype=np.float32)
    y = np.array([[0, 1, NAN]] * 3 + [[1, 1, NAN]] * 3, dtype=np.float32)
    rows = np.arange(6)
    for predictions in (
        linear_path(x, y, rows, "classification", (1.0,))[1.0],
        tree_predictions(x, y, rows, "classification"),
    ):
        assert np.isnan(predictions).all(axis=0).tolist() == [False, True, True]


def test_sparse_bits_give_the_same_model():
    bits = (np.random.default_rng(0).random((40, 64)) < 0.1).astype(np.uint8)
    y = bits[:, :1].astype(np.float32)
    dense = linear_path(bits.astype(np.float32), y, np.arange(40), "classification", (1.0,))
    np.testing.assert_allclose(
        linear_path(sparse_bits(bits), y, np.arange(40), "classification", (1.0,))[1.0],
        dense[1.0],
        atol=1e-3,
    )


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


def test_probe_of_a_regression():
    report = probe(tiny_encoder("jk"), labeled(LENGTH, "regression"), baselines=("ecfp-lr",))
    assert report.rows[1].mean("r2") > 0.9
    assert report.rows[1].mean("rmse") < np.std(LENGTH) / 3
    assert report.rows[2].model == "ECFP4 + ridge regression"


def test_the_same_probe_twice_gives_the_same_numbers():
    first, second = (probe(tiny_encoder(), labeled(IS_ALCOHOL)) for _ in range(2))
    assert first.to_dict() == second.to_dict()


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
    own, known = (
        linear_path(standardize(x, train), data.labels, train, "regression", (0.1,))[0.1]
        for x in (encoder.embed_store(data.store, "jk+sum"), _descriptors(data))
    )
    error = ((own + known)[data.split.test] / 2 - data.labels[data.split.test]).ravel()
    assert fused.rows[0].mean("rmse") == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)


def _descriptors(data: LabeledGraphs) -> np.ndarray:
    domain = domain_of(data.store.schema)
    return domain.feature_set("descriptors", data.store).values


def test_fusing_averages_logits():
    p, q = np.array([[0.9, NAN]]), np.array([[0.6, NAN]])
    odds = np.sqrt(9 * 1.5)  # the geometric mean of 9 : 1 and 3 : 2
    np.testing.assert_allclose(fuse([p, q], "classification"), [[odds / (1 + odds), NAN]])
    p, q = np.array([[0.5, 0.25, 0.25]]), np.array([[0.25, 0.5, 0.25]])
    several = fuse([p, q], "multiclass")
    np.testing.assert_allclose(several.sum(), 1)
    np.testing.assert_allclose(several[0, 0] / several[0, 2], np.sqrt(2))
    assert np.isfinite(fuse([np.array([[0.0, 1.0]])] * 2, "classification")).all()


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
    for data in (labeled(IS_ALCOHOL), by_scaffold):
        with pytest.raises(ConfigError, match="the same with every seed"):
            probe(tiny_encoder(), data, baselines=(), folds_seeds=(0, 1))
    shares = {"targets": ["y"], "fractions": (0.6, 0.2, 0.2), "baselines": ()}
    assert (
        probe(tiny_encoder(), table, folds_seeds=(0, 1, 2), **shares).split
        == "random-scaffold (seeds 0, 1, 2)"
    )
    for seeds in ((), (1,), (0, 1, 0)):
        with pytest.raises(ConfigError, match="two or more different `folds_seeds`"):
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
