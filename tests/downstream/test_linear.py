from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import expit
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from graphlog.downstream import linear
from graphlog.downstream.linear import (
    CLIP_AT,
    LinearModel,
    fit_logistic,
    fuse,
    linear_path,
    linear_predictions,
    sparse_bits,
    standardize,
    tree_predictions,
)
from graphlog.downstream.metrics import TaskKind

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


def in_both(y: np.ndarray, task: str) -> list[np.ndarray]:
    """Return what a linear model and a forest predict of six rows."""
    x, rows = np.eye(6, dtype=np.float32), np.arange(6)
    return [linear_path(x, y, rows, task, (1.0,))[1.0], tree_predictions(x, y, rows, task)]


def test_tasks_that_cannot_be_learned_are_nan():
    y = np.array([[0, 1, NAN]] * 3 + [[1, 1, NAN]] * 3, dtype=np.float32)
    for predictions in in_both(y, "classification"):
        assert np.isnan(predictions).all(axis=0).tolist() == [False, True, True]
    for predictions in in_both(np.eye(3)[np.arange(6) % 2], "multiclass"):
        assert predictions.any(axis=0).tolist() == [True, True, False]


def test_probabilities_near_1_still_differ():
    x, model = np.array([[20.0], [20.1]], dtype=np.float32), LinearModel(np.eye(1), np.zeros(1))
    for features in (x, csr_matrix(x)):
        (low,), (high,) = linear_predictions(features, model, "classification")
        assert low < high < 1


def test_sparse_bits_give_the_same_model():
    bits = (np.random.default_rng(0).random((40, 64)) < 0.1).astype(np.uint8)
    y = bits[:, :1].astype(np.float32)
    dense, sparse = (
        linear_path(x, y, np.arange(40), "classification", (1.0,))[1.0]
        for x in (bits.astype(np.float32), sparse_bits(bits))
    )
    np.testing.assert_allclose(sparse, dense, atol=1e-3)


def test_fusing_averages_logits():
    p, q = np.array([[0.9, NAN]]), np.array([[0.6, NAN]])
    odds = np.sqrt(9 * 1.5)  # the geometric mean of 9 : 1 and 3 : 2
    np.testing.assert_allclose(fuse([p, q], "classification"), [[odds / (1 + odds), NAN]])
    p, q = np.array([[0.5, 0.25, 0.25]]), np.array([[0.25, 0.5, 0.25]])
    several = fuse([p, q], "multiclass")
    np.testing.assert_allclose(several.sum(), 1)
    np.testing.assert_allclose(several[0, 0] / several[0, 2], np.sqrt(2))
    assert np.isfinite(fuse([np.array([[0.0, 1.0]])] * 2, "classification")).all()


def test_rounding_is_not_scaled_up():
    draw = np.random.default_rng(0)
    x = np.stack([draw.normal(size=50), np.full(50, 3.7)], axis=1).astype(np.float32)
    x[:, 1] *= 1 + 2.0**-22 * draw.integers(-1, 2, 50)  # the last bits
    assert np.abs(standardize(x, np.arange(50))[:, 1]).max() < 1e-5
    x[:, 1] *= 1 + 1e-3 * x[:, 0]
    assert standardize(x, np.arange(50))[:, 1].std() == pytest.approx(1, rel=1e-3)


def test_a_nearly_constant_column_does_not_rule_the_rows_in_which_it_varies():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3)).astype(np.float32)
    x[:, 2] = 1e-3 * draw.normal(size=60)
    x[59, 2] = 1.0  # a thousand deviations out, and not in the training rows
    train = np.arange(50)
    y = (x[:, :1] + 100 * x[:, 2:3]).clip(-3, 3).astype(np.float64)
    predicted = linear_path(standardize(x, train), y, train, "regression", (1.0,))[1.0]
    assert np.abs(predicted).max() < 5
    assert standardize(x, train).max() == CLIP_AT


@pytest.mark.parametrize("c", [0.001, 0.1, 1.0])
def test_logistic_regressions_of_many_targets_are_those_of_scikit_learn(c: float):
    draw = np.random.default_rng(1)
    x = (draw.normal(size=(300, 8)) @ draw.normal(size=(8, 50))).astype(np.float32)
    x = standardize(x + 0.3 * draw.normal(size=x.shape).astype(np.float32), np.arange(300))
    y = (draw.random((300, 9)) < expit(x[:, :9])).astype(np.float64)
    # some are done early and leave the others to themselves
    y[draw.random(y.shape) < np.linspace(0.1, 0.8, 9)] = np.nan
    weights = fit_logistic(x, y, c)
    for t in range(9):
        known = ~np.isnan(y[:, t])
        model = LogisticRegression(C=c, max_iter=2000, tol=1e-8)
        model.fit(x[known].astype(np.float64), y[known, t].astype(int))
        # both gradients of the mean loss are below 1e-4, and the loss is 1 / (c n)-convex
        far = np.sqrt(51) * 1e-4 * c * known.sum()
        assert np.linalg.norm(weights[:-1, t] - model.coef_[0]) < max(far, 1e-4)
    found = linear_predictions(x, LinearModel(weights[:-1], weights[-1]), "classification")
    expected = expit(x @ weights[:-1] + weights[-1])
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-4)


def test_a_weight_of_logistic_regression_is_scikit_learns():
    draw = np.random.default_rng(3)
    x = draw.normal(size=(200, 5)).astype(np.float32)
    y = (x[:, :1] + draw.normal(size=(200, 1)) > 0).astype(np.float64)
    weights = draw.uniform(0, 4, 200)
    found = fit_logistic(x, y, 0.1, weights=weights)
    model = LogisticRegression(C=0.1, max_iter=2000, tol=1e-8).fit(x, y[:, 0], weights)
    far = np.sqrt(6) * 1e-4 * 0.1 * weights.sum()  # as above
    assert np.linalg.norm(found[:-1, 0] - model.coef_[0]) < far


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("task", ["regression", "classification", "multiclass"])
def test_a_row_of_weight_2_is_one_that_occurs_twice(task: TaskKind, missing: bool, kind: Any):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 6)).astype(np.float32)
    values = x[:, :2] + draw.normal(size=(80, 2)) + 3
    y = values if task == "regression" else (values > 3).astype(np.float64)
    if task == "multiclass":
        y = np.eye(2)[y[:, 0].astype(int)]
    if missing:
        y[:5] = NAN
    weights = draw.integers(1, 4, 80)
    found = linear_path(kind(x), y, np.arange(60), task, (1.0,), weights.astype(np.float32))[1.0]
    repeated = np.repeat(np.arange(60), weights[:60])
    expected = linear_path(kind(x), y, repeated, task, (1.0,))[1.0]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert not np.allclose(found, linear_path(kind(x), y, np.arange(60), task, (1.0,))[1.0], 1e-3)


def test_a_start_changes_the_way_and_not_the_end():
    draw = np.random.default_rng(2)
    x = draw.normal(size=(200, 20)).astype(np.float32)
    y = (x[:, :2] + draw.normal(size=(200, 2)) > 0).astype(np.float64)
    first = fit_logistic(x, y, 0.1)
    again = fit_logistic(x, y, 0.1, fit_logistic(x, y, 1.0))
    np.testing.assert_allclose(again, first, atol=np.sqrt(21) * 1e-4 * 0.1 * 200)


@pytest.mark.parametrize("every", [2, 4])
def test_without_columns_only_the_intercepts_are_learned(every: int):
    # of two equal classes the start is the end
    y = (np.arange(40) % every == 0).astype(np.float64)[:, None]
    weights = fit_logistic(np.zeros((40, 0), dtype=np.float32), y, 0.1)
    np.testing.assert_allclose(weights, [[-np.log(every - 1)]], atol=1e-3)


def test_two_of_three_classes_are_those_of_scikit_learn():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 3)).astype(np.float32)
    seen = (x[:, 0] + draw.normal(size=80) > 0).astype(int)
    found = linear_path(x, np.eye(3)[2 * seen], np.arange(80), "multiclass", (0.1,))[0.1]
    expected = LogisticRegression(C=0.1).fit(x, seen).predict_proba(x)
    np.testing.assert_allclose(found[:, [0, 2]], expected, atol=1e-3)
    assert (found[:, 1] == 0).all()


def test_a_forest_of_quantities_sees_a_third_of_the_columns():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60, 30)), draw.normal(size=(60, 1))
    forest = RandomForestRegressor(linear.TREES, max_features=1 / 3, random_state=0)
    found = tree_predictions(x, y, np.arange(40), "regression")
    np.testing.assert_allclose(found[:, 0], forest.fit(x[:40], y[:40, 0]).predict(x))
