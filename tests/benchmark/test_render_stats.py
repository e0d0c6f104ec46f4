"""Aggregation against slow computations by hand."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from graphlog.benchmark import paper
from graphlog.benchmark.tables.stats import mean_over, mean_ranks, paired, spread


def test_spread_is_mean_and_sample_sd():
    values = [0.71, 0.68, 0.735, 0.70]
    found = spread(dict(enumerate(values)))
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.sd == pytest.approx(statistics.stdev(values))
    assert found.count == 4


def test_one_value_has_no_spread_and_none_no_mean():
    one = spread({3: 0.5})
    assert (one.mean, one.count) == (0.5, 1)
    assert math.isnan(one.sd)
    assert all(map(math.isnan, one.interval()))
    assert math.isnan(spread({}).mean)


def test_interval_is_scipys():
    values = np.array([1.2, -0.4, 0.7, 2.1, 0.3])
    found = spread(dict(enumerate(values.tolist())))
    for level in (0.5, 0.95, 0.99):
        expected = stats.t.interval(
            level, len(values) - 1, loc=values.mean(), scale=stats.sem(values)
        )
        assert found.interval(level) == pytest.approx(expected, rel=1e-12)


def test_paired_interval_is_that_of_the_paired_t_test():
    ours, other = {0: 3.0, 1: 4.5, 2: 3.8, 7: 9.0}, {0: 2.5, 1: 3.1, 2: 3.9, 8: 1.0}
    found = spread(paired(ours, other))
    expected = stats.ttest_rel([3.0, 4.5, 3.8], [2.5, 3.1, 3.9]).confidence_interval(0.95)
    assert found.count == 3
    assert found.interval() == pytest.approx((expected.low, expected.high))


def test_what_has_no_seed_meets_every_seed():
    assert paired({None: 5.0}, {0: 1.0, 1: 2.0}) == {0: 4.0, 1: 3.0}
    assert paired({None: 5.0}, {None: 1.0}) == {None: 4.0}
    assert mean_over([{0: 1.0, 1: 3.0}, {None: 5.0}]) == {0: 3.0, 1: 4.0}


def test_a_missing_part_leaves_no_average():
    assert mean_over([{0: 1.0}, {}]) == {}
    assert mean_over([{0: 1.0}, {1: 1.0}]) == {}
    assert paired({}, {0: 1.0}) == {}


def test_ranks_by_hand():
    means = np.array([[3.0, 1.0], [2.0, 1.0], [1.0, 5.0]])
    assert mean_ranks(means, lower_is_better=False).tolist() == [
        (1 + 2.5) / 2,
        (2 + 2.5) / 2,
        (3 + 1) / 2,
    ]
    assert mean_ranks(means, lower_is_better=True).tolist() == [
        (3 + 1.5) / 2,
        (2 + 1.5) / 2,
        (1 + 3) / 2,
    ]


def test_the_papers_averages_follow_from_its_rows():
    for method, row in paper.TABLE_1.items():
        assert len(row) == len(paper.TABLE_1_DATASETS)
        assert statistics.fmean(mean for mean, _ in row) == pytest.approx(
            paper.TABLE_1_AVERAGE[method], abs=0.0626
        ), method


def test_the_papers_tables_agree_where_they_repeat_each_other():
    gin = paper.TABLE_3_BACKBONES.index("gin")
    assert {method: row[gin] for method, row in paper.TABLE_3.items()} == {
        m: paper.TABLE_2[m] for m in paper.TABLE_3
    }
    assert (
        paper.TABLE_4["subgraph+graph+global"]
        == paper.TABLE_2["graphlog"]
        == paper.FIGURE_3_KNOWN["depth"][3]
    )
