import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from graphlog.downstream.metrics import better, calibration_error, check_metric, evaluate
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


CLASSES, NUMBERS = "classification", "regression"
PER_TASK: list[tuple[str, str, list[list[float]], list[list[float]], list[float]]] = [
    # labels, predictions and the score, by target
    (CLASSES, "roc_auc", [[0, 1, NAN, 1], [0, NAN, 1, 1]], [[1, 9, 0, 8], [9, 2, 1, 3]], [1, 0]),
    (CLASSES, "roc_auc", [[0, 1], [1, 1], [NAN, NAN]], [[1, 9], [2, 8], [3, 7]], [1, NAN, NAN]),
    (CLASSES, "roc_auc", [[0, 1, 1]], [[0.1, 0.9, NAN]], [1]),
    (NUMBERS, "rmse", [[NAN] * 3, [NAN] * 3], [[0] * 3, [0] * 3], [NAN, NAN]),
    (NUMBERS, "rmse", [[0, 2, NAN]], [[1, 4, 9]], [2.5**0.5]),
    (NUMBERS, "mae", [[0, 2, NAN]], [[1, 4, 9]], [1.5]),
    (NUMBERS, "r2", [[0, 2, NAN]], [[1, 4, 9]], [-1.5]),
    (NUMBERS, "r2", [[1, 1, 1]], [[1, 1, 1]], [NAN]),
    ("multiclass", "roc_auc", [[1, 0], [0, 1]], [[0.9, 0.1], [NAN, NAN]], [1, NAN]),
    ("multiclass", "accuracy", [[1, 0], [0, 1]], [[0.9, 0.1], [NAN, NAN]], [NAN, NAN]),
]


@pytest.mark.parametrize(("task", "metric", "labels", "predictions", "expected"), PER_TASK)
def test_what_is_not_there_is_left_out_or_leaves_a_score_undefined(
    task: str,
    metric: str,
    labels: list[list[float]],
    predictions: list[list[float]],
    expected: list[float],
):
    known = (np.array(values, dtype=np.float64).T for values in (labels, predictions))
    found = evaluate(*known, task)
    assert found.per_task[metric] == pytest.approx(expected, nan_ok=True)
    mean = np.nanmean(expected) if np.isfinite(expected).any() else NAN
    assert found.scores[metric] == pytest.approx(mean, nan_ok=True)


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


def test_a_certain_prediction_is_in_the_last_bin():
    assert calibration_error(np.array([0.0, 1.0]), np.array([1.0, 0.92])) == pytest.approx(0.46)
    assert calibration_error(np.array([1.0, 0.0]), np.array([0.85, 0.95])) == pytest.approx(0.55)
