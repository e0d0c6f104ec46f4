"""Sums over neighbors against a scatter, reductions of segments against loops, padding."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import Tensor

from encoder_support import offsets
from graphlog.ops.contrastive import log_softmax_share
from graphlog.ops.sparse import (
    Adjacency,
    build_adjacency,
    end_sum,
    neighbor_sum,
    plan_padding,
    segment_ids,
    segment_max,
    segment_mean,
    segment_softmax,
    segment_sum,
    weighted_rows,
)


def directed(nodes: int = 6, edges: int = 11) -> tuple[Tensor, Adjacency]:
    """Random edges by target, with parallel ones and self-loops; the last node has none."""
    edge_index = torch.randint(nodes - 1, (2, edges))
    edge_index = edge_index[:, edge_index[1].argsort()]
    return edge_index, build_adjacency(edge_index, nodes)


def scattered(h: Tensor, edge_index: Tensor, weight: Tensor | None, heads: int = 1) -> Tensor:
    """The same sum through a tensor of the size of the edges."""
    messages = h.unflatten(1, (heads, -1))[edge_index[0]]
    if weight is not None:
        messages = messages * weight.reshape(-1, heads, 1)
    return h.new_zeros(h.shape[0], messages.shape[2]).index_add(0, edge_index[1], messages.sum(1))


@pytest.mark.parametrize("heads", [None, 0, 1, 3])
def test_value_and_gradient(heads: int | None):
    edge_index, adjacency = directed()
    h = torch.randn(6, 4 * (heads or 1), dtype=torch.float64, requires_grad=True)
    shape = () if heads is None else (11,) if heads == 0 else (11, heads)
    weight = None if heads is None else torch.randn(shape, dtype=torch.float64, requires_grad=True)
    expected = scattered(h, edge_index, weight, heads or 1)
    torch.testing.assert_close(neighbor_sum(h, adjacency, weight), expected)
    inputs = (h,) if weight is None else (h, weight)
    assert torch.autograd.gradcheck(lambda h, *w: neighbor_sum(h, adjacency, *w), inputs)


@pytest.mark.parametrize("heads", [1, 3])
def test_sums_of_both_ends(heads: int):
    edge_index, adjacency = directed()
    ends = [torch.randn(6, heads, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    torch.testing.assert_close(
        end_sum(*ends, adjacency), ends[0][edge_index[1]] + ends[1][edge_index[0]]
    )
    assert torch.autograd.gradcheck(lambda *e: end_sum(*e, adjacency), ends)


@pytest.mark.parametrize("heads", [1, 3])
def test_weighted_rows(heads: int):
    edge_index, adjacency = directed()
    rows = torch.randn(11, 4, dtype=torch.float64)
    weight = torch.randn(11, heads, dtype=torch.float64, requires_grad=True)
    products = weight[:, :, None] * rows[:, None]
    expected = products.new_zeros(6, heads, 4).index_add(0, edge_index[1], products)
    torch.testing.assert_close(weighted_rows(weight, rows, adjacency.offsets), expected)
    inputs = (weight, rows.requires_grad_())
    assert torch.autograd.gradcheck(lambda w, r: weighted_rows(w, r, adjacency.offsets), inputs)
    nothing = weighted_rows(weight[:0], rows[:0], torch.zeros(4, dtype=torch.int64))
    assert nothing.shape == (3, heads, 4)
    nothing.sum().backward()


def test_self_loops_equal_a_fresh_sort():
    edge_index = torch.randint(5, (2, 11))
    looped = build_adjacency(edge_index, 6).with_self_loops
    node = torch.arange(6)
    fresh = build_adjacency(torch.cat([edge_index, torch.stack([node, node])], dim=1), 6)
    assert torch.equal(looped.offsets, fresh.offsets)
    assert torch.equal(looped.reverse.offsets, fresh.reverse.offsets)
    assert torch.equal(looped.in_degree, fresh.in_degree)
    # The same edges, each with its own row of attributes, and every reversed edge knows its number.
    named = torch.stack([*edge_index, torch.arange(11)])
    with_loops = torch.cat([named, torch.stack([node, node, torch.full_like(node, 11)])], dim=1)
    ours = torch.stack([looped.senders, looped.receivers, looped.order])
    assert sorted(ours.T.tolist()) == sorted(with_loops.T.tolist())
    back = looped.reverse
    assert torch.equal(
        looped.senders[back.order], torch.repeat_interleave(node, back.offsets.diff())
    )
    assert torch.equal(looped.receivers[back.order], back.senders)
    assert back.order.sort().values.tolist() == list(range(17))


REDUCTIONS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "sum": (segment_sum, lambda rows: rows.sum(0)),
    "mean": (segment_mean, lambda rows: rows.mean(0) if len(rows) else rows.sum(0)),
    "max": (segment_max, lambda rows: rows.amax(0) if len(rows) else rows.sum(0) - torch.inf),
}
SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=6)


def packed(sizes: list[int], shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Random rows and the segments they belong to."""
    return torch.randn(sum(sizes), *shape, dtype=torch.float64), offsets(sizes)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("name", REDUCTIONS)
@given(sizes=SIZES)
def test_reductions_match_a_loop(name: str, shape: tuple[int, ...], sizes: list[int]):
    values, ptr = packed(sizes, shape)
    ours, loop = REDUCTIONS[name]
    expected = torch.stack([loop(rows) for rows in values.split(sizes)])
    torch.testing.assert_close(ours(values, ptr), expected)


@given(sizes=SIZES)
def test_softmax_matches_a_loop(sizes: list[int]):
    values, ptr = packed(sizes, (2,))
    for scaled in (values, values * 1e3):
        expected = torch.cat([rows.softmax(0) for rows in scaled.split(sizes)])
        torch.testing.assert_close(segment_softmax(scaled, ptr), expected)


def test_ids():
    assert segment_ids(torch.tensor([0, 2, 2, 3]), 3).tolist() == [0, 0, 2]


@pytest.mark.parametrize("function", [segment_sum, segment_mean, segment_max, segment_softmax])
def test_gradients(function: Callable[[Tensor, Tensor], Tensor]):
    values, ptr = packed([2, 1, 3], (2,))
    assert torch.autograd.gradcheck(lambda v: function(v, ptr), values.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_precisions_are_kept(dtype: torch.dtype):
    values, ptr = packed([2, 3], (4,))
    for function in (segment_sum, segment_mean, segment_max):
        result = function(values.to(dtype), ptr)
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), function(values, ptr), rtol=0.02, atol=0.05)


group_sizes = st.lists(st.integers(1, 30), min_size=1, max_size=40)


@given(group_sizes)
def test_few_sizes_waste_nothing(sizes: list[int]):
    padding = plan_padding(offsets(sizes))
    assert len(padding.buckets) <= 6
    if len(set(sizes)) <= 6:
        assert padding.num_slots == sum(sizes)


def test_one_giant_does_not_inflate_the_others():
    padding = plan_padding(offsets([20] * 100 + [21] * 100 + [500]))
    assert padding.buckets[-1] == (1, 500)
    assert padding.num_slots < 5000


def test_a_gpu_gets_one_bucket_unless_padding_costs_more():
    def buckets(sizes: list[int]) -> tuple[tuple[int, int], ...]:
        ptr = offsets(sizes)
        return plan_padding(ptr.to("meta"), ptr).buckets

    assert buckets([9, 20, 27] * 170) == ((510, 27),)
    assert buckets([20] * 100 + [2000]) == ((100, 20), (1, 2000))


def test_annotations_are_checked_while_tests_run():
    """The checker hooks into jaxtyping; an update of it must not switch the checks off unseen."""
    with pytest.raises(TypeCheckError, match="segment_sum"):
        segment_sum(torch.zeros(3, 2), [0, 3])


def test_softmax_shares_are_stable_at_any_temperature():
    logits = torch.tensor([[1000.0, 999.0], [0.0, 1000.0]])
    assert torch.allclose(log_softmax_share(logits), torch.tensor([-0.3133, 0.0]), atol=1e-4)
    assert not log_softmax_share(torch.eye(3) / 1e-4).any()
