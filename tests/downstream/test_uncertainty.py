"""Intervals, calibrated probabilities and spread over seeds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import brier_score_loss

import graphlog
from cli_support import read_table
from downstream_support import (
    CHAINS,
    LENGTH,
    chain_store,
    classifier,
    labeled,
    lengths,
    probed,
    tiny_encoder,
    tuned,
)
from graphlog.downstream.metrics import brier_score, calibration_error
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.probe import HEADS
from graphlog.downstream.report import Report
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.downstream.uncertainty import HALF_WIDTH_90, Calibration, calibration_notes
from graphlog.encoders.novelty import fit_novelty, refit_novelty
from graphlog.errors import ConfigError

NAN = float("nan")


def two_lengths() -> LabeledGraphs:
    return labeled(np.stack([LENGTH, -10 * LENGTH], 1), "regression", ("a", "b"))


@pytest.fixture(scope="module")
def regressor() -> Predictor:
    return tuned(two_lengths())


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("n", [9, 19, 50])
def test_intervals_cover_exchangeable_graphs_as_often_as_they_say(level: float, n: int):
    """At least the level, at most 1 / (n + 1) more, as proven for split conformal prediction."""
    draw, trials = np.random.default_rng(n), 4000
    errors = draw.standard_t(3, size=(n + 1, trials))
    calibration = Calibration.fit("regression", errors[:n], np.zeros((n, trials)))
    share = np.mean(np.abs(errors[n]) <= calibration.half_widths(level))
    deviation = np.sqrt(level * (1 - level) / trials)
    assert level - 4 * deviation <= share <= level + 1 / (n + 1) + 4 * deviation


def test_the_rank_of_the_error_is_exact():
    errors = np.arange(1.0, 10.0)[:, None]
    calibration = Calibration.fit("regression", errors, np.zeros_like(errors))
    assert [calibration.half_widths(p)[0] for p in (0.1, 0.5, 0.7, 0.9)] == [1, 5, 7, 9]
    assert calibration.half_widths(1e-11)[0] == 1
    assert calibration.half_widths(0.91)[0] == np.inf  # nine errors cannot tell


@pytest.mark.parametrize("times", [3, 10])
def test_intervals_of_repeated_graphs_cover_those_that_occur_once(times: int):
    """Nine graphs with several labels each, whose errors are mostly the graph's own."""
    draw, trials = np.random.default_rng(times), 4000
    own = np.repeat(draw.normal(size=(9, trials)), times, axis=0)
    errors = own + 0.3 * draw.normal(size=own.shape)
    new = draw.normal(size=trials) + 0.3 * draw.normal(size=trials)
    kinds = np.repeat(np.arange(9), times)
    calibration = Calibration.fit("regression", errors, np.zeros_like(errors), kinds)
    share = np.mean(np.abs(new) <= calibration.half_widths(0.9))
    assert 0.9 - 4 * np.sqrt(0.09 / trials) <= share
    assert np.isinf(calibration.half_widths(0.91)).all()  # nine graphs cannot tell


def test_of_repeats_each_target_takes_the_first_that_has_a_label():
    labels = np.array([[NAN, 1.0], [2.0, 3.0], [4.0, NAN], [5.0, 6.0]])
    kinds = np.array([0, 0, 0, 1])
    found = Calibration.fit("regression", labels, np.zeros_like(labels), kinds).errors
    np.testing.assert_array_equal(found, [[2.0, 1.0], [5.0, 6.0]])


def test_missing_labels_belong_to_no_target():
    labels = np.array([[1.0, NAN], [NAN, NAN], [3.0, 2.0]])
    calibration = Calibration.fit("regression", labels, np.zeros_like(labels))
    np.testing.assert_array_equal(calibration.half_widths(0.5), [3.0, 2.0])
    nothing = Calibration.fit("regression", np.full((2, 1), NAN), np.zeros((2, 1)))
    assert nothing.half_widths(0.5)[0] == np.inf


@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_a_temperature_undoes_wrong_confidence(sharpness: float):
    draw = np.random.default_rng(0)
    logits = draw.normal(scale=2, size=4000)
    known, y = np.split((draw.random((4000, 1)) < expit(logits)[:, None]).astype(float), 2)
    seen, p = np.split(expit(sharpness * logits)[:, None], 2)
    calibration = Calibration.fit("classification", known, seen)
    assert calibration.temperatures[0] == pytest.approx(sharpness, rel=0.15)
    y, p, calibrated = y[:, 0], p[:, 0], calibration.probabilities(p)[:, 0]
    assert brier_score(y, calibrated) < brier_score(y, p)
    assert calibration_error(y, calibrated) < calibration_error(y, p) / 2
    assert (np.argsort(calibrated) == np.argsort(p)).all()  # the order is kept


def test_classes_share_a_temperature_and_sum_to_one():
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(3000, 3))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = np.eye(3)[[draw.choice(3, p=row) for row in p]]
    sharp = p**2 / (p**2).sum(1, keepdims=True)
    calibration = Calibration.fit("multiclass", y, sharp)
    np.testing.assert_allclose(calibration.temperatures, 2.0, rtol=0.15)
    np.testing.assert_allclose(calibration.probabilities(sharp).sum(axis=1), 1.0)


@pytest.mark.parametrize("classes", [2, 3, 10, 20])
def test_right_probabilities_stay_about_as_they_are_in_a_small_fold(classes: int):
    """Log-loss of new rows, were the given probabilities true: calibration costs little."""
    draw, costs = np.random.default_rng(0), []
    for _ in range(20):
        logits = draw.normal(scale=1.5, size=(1100, classes))
        logits[np.arange(1100), draw.integers(classes, size=1100)] += 4
        p = softmax(logits, axis=1)
        y = np.eye(classes)[(p.cumsum(axis=1) > draw.random((1100, 1))).argmax(axis=1)]
        given, labels = (p, y) if classes > 2 else (p[:, 1:], y[:, 1:])
        task = "multiclass" if classes > 2 else "classification"
        calibration = Calibration.fit(task, labels[:100], given[:100])
        new = calibration.probabilities(given[100:])
        new = new if classes > 2 else np.concatenate([1 - new, new], axis=1)
        costs.append(-np.log(new[y[100:] == 1]).mean() + np.log(p[100:][y[100:] == 1]).mean())
    assert np.mean(costs) < 0.03  # 0.3 nats with three classes, 1.4 with twenty: a row a class


def test_a_fold_of_one_class_calibrates_nothing():
    labels = np.array([[1.0, 1.0], [1.0, 0.0]])
    p = np.array([[0.9, 0.8], [0.7, 0.3]])
    calibration = Calibration.fit("classification", labels, p)
    assert np.isnan(calibration.probabilities(p)[:, 0]).all()
    calibrated = calibration.probabilities(p)[:, 1]
    assert ((calibrated > 0.2) & (calibrated < 0.8)).all()  # two labels give no certainty


def test_scores_of_probabilities():
    draw = np.random.default_rng(1)
    y, p = draw.integers(0, 2, 50).astype(float), draw.random(50)
    assert brier_score(y, p) == pytest.approx(brier_score_loss(y, p))
    assert calibration_error(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 0
    assert calibration_error(np.array([0.0, 1.0]), np.array([0.5, 0.5])) == 0
    assert np.isnan(calibration_error(np.empty(0), np.empty(0)))


def test_spread_and_interval_of_a_regressor(regressor: Predictor):
    smiles, read = ["CCO", "bad", "CCCCN"], [0, 2]
    found = regressor.predict_uncertain(smiles, interval=0.8)
    np.testing.assert_array_equal(found.mean, regressor.predict(smiles))
    assert found.calibrated is None
    one_each = [Predictor([m], ("a", "b"), regressor.report) for m in regressor.members]
    values = np.stack([p.predict(smiles)[read] for p in one_each])
    np.testing.assert_allclose(found.std[read], values.std(axis=0, ddof=1), rtol=1e-3, atol=1e-5)
    widths = regressor.calibration.half_widths(0.8)
    np.testing.assert_allclose((found.high - found.low)[read], [2 * widths] * 2, rtol=1e-5)
    for values in (found.mean, found.std, found.low, found.high):
        assert np.isnan(values).any(axis=1).tolist() == [False, True, False]
    assert one_each[0].predict_uncertain(["C"]).std is None


def test_the_report_counts_what_the_test_fold_shows(regressor: Predictor):
    data, report = two_lengths(), regressor.report
    test, labels = data.store.subset(data.split.test), data.labels[data.split.test]
    found = regressor.predict_uncertain(test, interval=0.9)
    inside = (found.low <= labels) & (labels <= found.high)
    assert [row["target"] for row in report.calibration] == ["a", "b"]
    covered = [row["coverage"] for row in report.calibration]
    assert covered == pytest.approx(inside.mean(axis=0).tolist())
    assert any("coverage on new molecules is not guaranteed" in note for note in report.notes)
    assert "coverage" in str(report)
    (table,) = (t for t in report.tables() if t.title == "90% intervals on the test set")
    assert table.columns == ["target", "valid", "test", "half width", "coverage"]
    row = report.calibration[1]
    assert table.rows[1][3:] == [report.shown(row["half_width"]), f"{100 * covered[1]:.0f} %"]
    assert Report.from_dict(report.to_dict()).calibration == report.calibration


def test_calibrated_probabilities_of_a_classifier():
    found = classifier().predict_uncertain(CHAINS)
    order = np.argsort(found.mean[:, 0], kind="stable")
    assert (np.diff(found.calibrated[order, 0]) >= -1e-9).all()
    (row,) = classifier().report.calibration
    assert 0 <= row["brier_calibrated"] <= 1
    assert "calibration on new molecules" in " ".join(classifier().report.notes)
    with pytest.raises(ConfigError, match="intervals are for regression"):
        classifier().predict_uncertain(["C"], interval=0.9)


def test_files_keep_the_calibration(tmp_path: Path, regressor: Predictor):
    for predictor, interval in ((regressor, 0.7), (classifier(), None)):
        predictor.save(tmp_path / "p.safetensors")
        again = graphlog.load_predictor(tmp_path / "p.safetensors")
        for name in ("errors", "temperatures"):
            found, expected = (getattr(p.calibration, name) for p in (again, predictor))
            np.testing.assert_array_equal(found, expected)
        expected = predictor.predict_uncertain(CHAINS, interval=interval).columns()
        found = again.predict_uncertain(CHAINS, interval=interval).columns()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)


def test_novelty_is_judged_by_the_training_fold(regressor: Predictor):
    for predictor in (regressor, classifier()):
        first, judge = predictor.encoder, predictor.novelty
        found = predictor.predict_uncertain([*CHAINS, "no molecule", "[Fe]"]).novelty
        expected = judge.percentiles(judge.distances(first.embed(CHAINS, "jk")))
        np.testing.assert_allclose(found[:48], expected, atol=0.1)
        assert np.isnan(found[48])
        count = len(judge.quantiles) - 2
        assert found[49] == pytest.approx(100 * count / (count + 1))  # beyond all
    split = lengths().split.train
    own = fit_novelty(regressor.members[0].network, chain_store().subset(np.sort(split)))
    np.testing.assert_array_equal(regressor.novelty.quantiles, own.quantiles)


def test_repeats_of_training_graphs_make_no_graph_novel():
    once, network = chain_store(), tiny_encoder("jk").network.eval()
    often = once.subset(np.repeat(np.arange(len(once)), 5))
    expected, found = (fit_novelty(network, store) for store in (once, often))
    np.testing.assert_allclose(found.quantiles, expected.quantiles, rtol=1e-4)
    rows = refit_novelty(network, often)[1]
    first = refit_novelty(network, once)[1]
    assert sorted(set(rows // 5)) == sorted(first)
    assert len(rows) == 5 * len(first)


def test_empty_intervals_are_explained(tmp_path: Path, regressor: Predictor):
    """Cells without a number look like rows that could not be read."""
    told = r"intervals of a, b are infinite, and left empty in text files"
    with pytest.warns(UserWarning, match=told):
        regressor.predict_file(["CCO"], tmp_path / "out.csv", interval=0.99)
    (row,) = read_table(tmp_path / "out.csv")
    kinds = [f"predicted_{target}{end}" for target in "ab" for end in ("", "_std", "_low", "_high")]
    assert list(row) == ["row", "smiles", *kinds, "graphlog_novelty", "graphlog_status"]
    assert [name for name in row if not row[name]] == [*kinds[2:4], *kinds[6:]]


@pytest.fixture(params=["linear", "kernel", "networks", "average"])
def head(request: pytest.FixtureRequest) -> str:
    return request.param


def learned(head: str, data: LabeledGraphs, run: Path) -> Predictor:
    """Probe or fine-tune, and read what was kept."""
    if head in HEADS:
        probed(data, head=head, run_dir=run)
    else:
        tuned(data, run_dir=run, kernel=head == "average")
    return graphlog.load_predictor(run)


def test_a_skipped_target_has_neither_prediction_nor_deviation_nor_interval(
    head: str, tmp_path: Path
):
    data = two_lengths()
    data.labels[data.split.train, 1] = 1
    found = learned(head, data, tmp_path)
    judged = [(row["valid"], row["test"]) for row in found.report.calibration]
    assert judged == [(9, 9), (0, 0)]
    uncertain = found.predict_uncertain(CHAINS, interval=0.5)
    for values in (uncertain.mean, uncertain.low, uncertain.high, uncertain.std):
        if values is not None:
            assert np.isnan(values).all(axis=0).tolist() == [False, True]


def test_graphs_of_a_class_that_was_not_learned_are_not_judged(head: str, tmp_path: Path):
    ends = np.arange(len(CHAINS)) % 4
    data = labeled(np.eye(4)[ends], "classification", tuple("abcd"))
    data.labels[np.intersect1d(data.split.train, np.flatnonzero(ends == 3))] = NAN
    found = learned(head, replace(data, task="multiclass", metric="accuracy"), tmp_path)
    (row,) = found.report.calibration
    assert (row["valid"], row["test"]) == (9, 9)
    assert head == "networks" or row["temperature"] < 10
    calibrated = found.predict_uncertain(CHAINS).calibrated
    assert np.isfinite(calibrated).all()
    assert not calibrated[:, 3].any()


def test_without_a_calibration_there_is_no_interval(regressor: Predictor):
    targets = list(regressor.targets)
    plain = Predictor(list(regressor.members), targets, regressor.report, None, joined=None)
    assert (plain.members, plain.targets) == (regressor.members, regressor.targets)
    assert (plain.info, plain.joined) == ({}, {})
    found = plain.predict_uncertain(["CCO"])
    assert (found.calibrated, found.novelty) == (None, None)
    assert "graphlog_novelty" not in found.columns()
    with pytest.raises(ConfigError, match="without a calibration"):
        plain.predict_uncertain(["CCO"], interval=0.9)
    for level in (0.0, 1.0, -1.0, NAN):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            plain.predict_uncertain(["CCO"], interval=level)


@pytest.mark.parametrize(
    ("half_width", "told"), [(None, "labels of 9 different"), (0.5, "infinite")]
)
def test_an_infinite_interval_is_explained(half_width: float | None, told: str):
    notes = calibration_notes(({"coverage": 1.0, "half_width": half_width},), "scaffold", None)
    assert any(told in note for note in notes) == (half_width is None)


def test_no_column_hides_that_of_another_target():
    data = labeled(np.stack([LENGTH, LENGTH + 100], 1), "regression", ("y", "y_std"))
    found = tuned(data).predict_uncertain(CHAINS)
    columns, name = found.columns(), "predicted_y"
    assert list(columns)[:4] == [name, f"{name}_std.2", f"{name}_std", f"{name}_std_std"]
    assert np.array_equal(columns[f"{name}_std"], found.mean[:, 1])
    assert np.array_equal(columns[f"{name}_std.2"], found.std[:, 0])


def test_a_report_judges_predicted_deviations():
    data, off = labeled(LENGTH, "regression"), np.arange(1.0, 10.0)
    predictions, std = data.labels.astype(np.float64), np.full((48, 1), 2.0)
    fitted = Calibration.fit("regression", data.labels, predictions)
    (row,) = fitted.rows(data, predictions, std)
    assert row["surest_third"] is None  # of no error
    predictions[data.split.test, 0] += off
    std[data.split.test[:3]] = 0.5
    (row,) = fitted.rows(data, predictions, std)
    assert row["spread_coverage"] == 0  # 1, 2 and 3 are above 0.8, the others above 3.3
    assert row["spread_half_width"] == pytest.approx(HALF_WIDTH_90 * (3 * 0.5 + 6 * 2) / 9)
    assert row["surest_third"] == pytest.approx(np.sqrt(np.mean(off[:3] ** 2) / np.mean(off**2)))
    std[data.split.test] = off[:, None] / 1.6
    assert fitted.rows(data, predictions, std)[0]["spread_coverage"] == 1
