import numpy as np

from graphlog.downstream.linear import FARTHEST, linear_path, standardize


def test_a_nearly_constant_column_does_not_rule_the_rows_in_which_it_varies() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3)).astype(np.float32)
    x[:, 2] = 1e-3 * draw.normal(size=60)
    x[59, 2] = 1.0  # a thousand deviations out, and not in the training rows
    train = np.arange(50)
    y = (x[:, :1] + 100 * x[:, 2:3]).clip(-3, 3).astype(np.float64)
    predicted = linear_path(standardize(x, train), y, train, "regression", (1.0,))[1.0]
    assert np.abs(predicted).max() < 5
    assert standardize(x, train).max() == FARTHEST
