"""Segment reductions against loops, with empty segments; what padding wastes."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import Tensor

from encoder_support import offsets
from graphlog.ops.sparse import (
    plan_padding,
    segment_ids,
    segment_max,
    segment_mean,
    segment_softmax,
    segment_sum,
)

REDUCTIONS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "sum": (segment_sum, lambda rows: rows.sum(0)),
    "mean": (segment_mean, lambda rows: rows.mean(0) if len(rows) else rows.sum(0)),
    "max": (
        segment_max,
        lambda rows: (
            rows.amax(0) if len(rows) else torch.full(rows.shape[1:], -torch.inf, dtype=rows.dtype)
        ),
    ),
}
SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=6)


def packed(sizes: list[int], shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Random rows and the segments they belong to."""
    return torch.randn(sum(sizes), *shape, dtype=torch.float64), torch.tensor([0, *sizes]).cumsum(0)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("name", REDUCTIONS)
@given(sizes=SIZES)
def test_reductions_match_a_loop(name: str, shape: tuple[int, ...], sizes: list[int]) -> None:
    values, ptr = packed(sizes, shape)
    ours, loop = REDUCTIONS[name]
    expected = torch.stack([loop(rows) for rows in values.split(sizes)])
    torch.testing.assert_close(ours(values, ptr), expected)


@given(sizes=SIZES)
def test_softmax_matches_a_loop(sizes: list[int]) -> None:
    values, ptr = packed(sizes, (2,))
    expected = torch.cat([rows.softmax(0) for rows in values.split(sizes)])
    torch.testing.assert_close(
        segment_softmax(values * 1e3, ptr),
        torch.cat([(r * 1e3).softmax(0) for r in values.split(sizes)]),
    )
    torch.testing.assert_close(segment_softmax(values, ptr), expected)


def test_ids() -> None:
    assert segment_ids(torch.tensor([0, 2, 2, 3]), 3).tolist() == [0, 0, 2]


@pytest.mark.parametrize("function", [segment_sum, segment_mean, segment_max, segment_softmax])
def test_gradients(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    values, ptr = packed([2, 1, 3], (2,))
    assert torch.autograd.gradcheck(lambda v: function(v, ptr), values.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_precisions_are_kept(dtype: torch.dtype) -> None:
    values, ptr = packed([2, 3], (4,))
    for function in (segment_sum, segment_mean, segment_max):
        result = function(values.to(dtype), ptr)
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), function(values, ptr), rtol=0.02, atol=0.05)


group_sizes = st.lists(st.integers(1, 30), min_size=1, max_size=40)


@given(group_sizes)
def test_few_sizes_waste_nothing(sizes: list[int]) -> None:
    padding = plan_padding(offsets(sizes))
    assert len(padding.buckets) <= 6
    if len(set(sizes)) <= 6:
        assert padding.num_slots == sum(sizes)


def test_one_giant_does_not_inflate_the_others() -> None:
    padding = plan_padding(offsets([20] * 100 + [21] * 100 + [500]))
    assert padding.buckets[-1] == (1, 500)
    assert padding.num_slots < 5000


def test_annotations_are_checked_while_tests_run():
    """The checker hooks into jaxtyping; an update of it must not switch the checks off unseen."""
    with pytest.raises(TypeCheckError, match="segment_sum"):
        segment_sum(torch.zeros(3, 2), [0, 3])
