import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from graphlog.downstream.metrics import better, check_metric, evaluate
from graphlog.errors import ConfigError

NAN = float("nan")


@given(st.integers(0, 2**31), st.integers(2, 60), st.booleans())
def test_auc_and_precision_agree_with_scikit_learn(seed: int, n: int, ties: bool):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (n, 1)).astype(np.float64)
    y[:2, 0] = 0, 1
    scores = rng.normal(size=(n, 1)).round(1 if ties else 8)
    found = evaluate(y, scores, "classification").scores
    known = y[:, 0], scores[:, 0]
    assert found["roc_auc"] == pytest.approx(roc_auc_score(*known), abs=1e-12)
    assert found["average_precision"] == pytest.approx(average_precision_score(*known), abs=1e-12)


def test_missing_labels_do_not_count():
    y = np.array([[0.0, 0.0], [1.0, NAN], [NAN, 1.0], [1.0, 1.0]])
    scores = np.array([[0.1, 0.9], [0.9, 0.2], [0.0, 0.1], [0.8, 0.3]])
    full = evaluate(y, scores, "classification")
    assert full.per_task["roc_auc"] == [1.0, 0.0]
    assert full.scores["roc_auc"] == 0.5


def test_one_class_tasks_are_skipped():
    y = np.array([[0.0, 1.0, NAN], [1.0, 1.0, NAN]])
    result = evaluate(y, np.array([[0.1, 0.2, 0.3], [0.9, 0.8, 0.7]]), "classification")
    assert np.isnan(result.per_task["roc_auc"]).tolist() == [False, True, True]
    assert result.scores["roc_auc"] == 1.0


def test_nothing_defined_gives_nan():
    result = evaluate(np.full((3, 2), NAN), np.zeros((3, 2)), "regression")
    assert np.isnan([*result.scores.values()]).all()


def test_rows_that_could_not_be_predicted_are_left_out():
    y = np.array([[0.0], [1.0], [1.0]])
    assert evaluate(y, np.array([[0.1], [0.9], [NAN]]), "classification").scores["roc_auc"] == 1.0


def test_a_class_without_probabilities_leaves_the_accuracy_undefined():
    found = evaluate(np.eye(2), np.array([[0.9, NAN], [0.1, NAN]]), "multiclass")
    assert np.isnan([found.scores["accuracy"], *found.per_task["accuracy"]]).all()
    assert found.scores["roc_auc"] == 1.0


def test_regression_scores():
    y, p = np.array([[0.0], [2.0], [NAN]]), np.array([[1.0], [4.0], [9.0]])
    found = evaluate(y, p, "regression").scores
    assert [found[name] for name in ("rmse", "mae", "r2")] == pytest.approx([2.5**0.5, 1.5, -1.5])
    assert np.isnan(evaluate(np.ones((3, 1)), np.ones((3, 1)), "regression").scores["r2"])


def test_better_knows_which_way_is_up():
    assert better("roc_auc", 0.8, 0.7)
    assert better("rmse", 0.7, 0.8)
    assert better("rmse", 5.0, NAN)
    assert not better("rmse", NAN, 5.0)
    assert not better("roc_auc", 0.7, 0.7)


def test_metric_must_fit_the_task():
    assert check_metric(None, "regression") == "rmse"
    with pytest.raises(ConfigError, match="is for regression, but the task is classification"):
        check_metric("rmse", "classification")
    with pytest.raises(ConfigError, match="did you mean 'roc_auc'"):
        check_metric("rocauc", "classification")
