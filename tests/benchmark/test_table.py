"""Aggregation against slow computations by hand."""

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from graphlog.benchmark.folder import NO_SEED
from graphlog.benchmark.methods import PAPER
from graphlog.benchmark.table import Row, Table, mean_over, paired, spread


def by_seed(values: dict[int | None, float]) -> pd.Series:
    """Return scores by seed; None is the seed of what is not random."""
    named = {NO_SEED if seed is None else seed: value for seed, value in values.items()}
    return pd.Series(named, dtype="float64")


def seeds(scores: pd.Series) -> dict[int | None, float]:
    return {None if seed == NO_SEED else seed: value for seed, value in scores.items()}


def test_spread_is_mean_and_sample_sd():
    values = [0.71, 0.68, 0.735, 0.70]
    found = spread(by_seed(dict(enumerate(values))))
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.sd == pytest.approx(statistics.stdev(values))
    assert found.count == 4


def test_one_value_has_no_spread_and_none_no_mean():
    one = spread(by_seed({3: 0.5}))
    assert (one.mean, one.count) == (0.5, 1)
    assert math.isnan(one.sd)
    assert all(map(math.isnan, one.interval()))
    assert math.isnan(spread(by_seed({})).mean)


def test_interval_is_scipys():
    values = np.array([1.2, -0.4, 0.7, 2.1, 0.3])
    found = spread(by_seed(dict(enumerate(values.tolist()))))
    expected = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
    assert found.interval() == pytest.approx(expected, rel=1e-12)


def test_paired_interval_is_that_of_the_paired_t_test():
    ours, other = {0: 3.0, 1: 4.5, 2: 3.8, 7: 9.0}, {0: 2.5, 1: 3.1, 2: 3.9, 8: 1.0}
    found = spread(paired(by_seed(ours), by_seed(other)))
    expected = stats.ttest_rel([3.0, 4.5, 3.8], [2.5, 3.1, 3.9]).confidence_interval(0.95)
    assert found.count == 3
    assert found.interval() == pytest.approx((expected.low, expected.high))


def test_what_has_no_seed_meets_every_seed():
    fixed, drawn = by_seed({None: 5.0}), by_seed({0: 1.0, 1: 2.0})
    assert seeds(paired(fixed, drawn)) == {0: 4.0, 1: 3.0}
    assert seeds(paired(fixed, by_seed({None: 1.0}))) == {None: 4.0}
    assert seeds(mean_over([by_seed({0: 1.0, 1: 3.0}), fixed])) == {0: 3.0, 1: 4.0}


def test_a_missing_part_leaves_no_average():
    one = by_seed({0: 1.0})
    assert mean_over([one, by_seed({})]).empty
    assert mean_over([one, by_seed({1: 1.0})]).empty
    assert paired(by_seed({}), one).empty


def test_ranks_by_hand():
    def ranks(metric: str) -> dict[str, float]:
        means = {"a": (3.0, 1.0), "b": (2.0, 1.0), "c": (1.0, 5.0), "d": (9.0, math.nan)}
        records = [
            {"row": row, "column": column, "seed": 0, "value": value, "cell": "", "protocol": 2}
            for row, values in means.items()
            for column, value in zip("xy", values, strict=True)
            if not math.isnan(value)
        ]
        rows = tuple(Row(key, (key,)) for key in means)
        table = Table(
            topic="",
            name="",
            kind="methods",
            title="",
            heads=("Method",),
            rows=rows,
            columns={"x": "X", "y": "Y"},
            metric=metric,
            rule="last",
            scores=pd.DataFrame(records),
        )
        return dict(table.ranks())

    assert ranks("roc_auc") == {"a": (1 + 2.5) / 2, "b": (2 + 2.5) / 2, "c": (3 + 1) / 2}
    assert ranks("rmse") == {"a": (3 + 1.5) / 2, "b": (2 + 1.5) / 2, "c": (1 + 3) / 2}


def test_an_undefined_score_leaves_no_mean():
    found = spread(by_seed({0: 0.5, 1: math.nan}))
    assert math.isnan(found.mean)
    assert found.count == 2
    assert math.isnan(
        spread(mean_over([by_seed({0: 1.0, 1: math.nan}), by_seed({0: 1.0, 1: 1.0})])).mean
    )


def test_the_papers_averages_follow_from_its_rows():
    table = PAPER["table_1"]
    for method, row in table["rows"].items():
        assert len(row) == len(table["columns"])
        average = statistics.fmean(mean for mean, _ in row)
        assert average == pytest.approx(table["average"][method], abs=0.0626), method


def test_the_papers_tables_agree_where_they_repeat_each_other():
    gin = PAPER["table_3"]["columns"].index("gin")
    rows = PAPER["table_2"]["rows"]
    assert {m: row[gin] for m, row in PAPER["table_3"]["rows"].items()} == {
        m: rows[m][0] for m in PAPER["table_3"]["rows"]
    }
    assert (
        PAPER["table_4"]["rows"]["subgraph+graph+global"]
        == rows["graphlog"]
        == PAPER["figure_3_depth"]["rows"]["3"]
    )
