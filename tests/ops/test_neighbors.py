"""Sums over neighbors against a scatter, on graphs that are not symmetric, and their gradients."""

import pytest
import torch
from torch import Tensor

from graphlog.ops.sparse import Adjacency, build_adjacency, end_sum, neighbor_sum, weighted_rows


def directed(nodes: int = 6, edges: int = 11) -> tuple[Tensor, Adjacency]:
    """Random directed edges in the order of their targets, with parallel edges and self-loops.

    The last node has none.
    """
    edge_index = torch.randint(nodes - 1, (2, edges))
    edge_index = edge_index[:, edge_index[1].argsort()]
    return edge_index, build_adjacency(edge_index, nodes)


def scattered(h: Tensor, edge_index: Tensor, weight: Tensor | None, heads: int = 1) -> Tensor:
    """The same sum through a tensor of the size of the edges."""
    messages = h.unflatten(1, (heads, -1))[edge_index[0]]
    if weight is not None:
        messages = messages * weight.reshape(-1, heads, 1)
    return torch.zeros(h.shape[0], messages.shape[2], dtype=h.dtype).index_add(
        0, edge_index[1], messages.sum(1)
    )


@pytest.mark.parametrize("heads", [None, 0, 1, 3])
def test_value_and_gradient(heads: int | None) -> None:
    edge_index, adjacency = directed()
    h = torch.randn(6, 4 * (heads or 1), dtype=torch.float64, requires_grad=True)
    shape = () if heads is None else (11,) if heads == 0 else (11, heads)
    weight = None if heads is None else torch.randn(shape, dtype=torch.float64, requires_grad=True)
    expected = scattered(h, edge_index, weight, heads or 1)
    torch.testing.assert_close(neighbor_sum(h, adjacency, weight), expected)
    inputs = (h,) if weight is None else (h, weight)
    assert torch.autograd.gradcheck(lambda h, *w: neighbor_sum(h, adjacency, *w), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_precisions(dtype: torch.dtype) -> None:
    edge_index, adjacency = directed()
    h, weight = torch.randn(6, 8), torch.rand(11)
    for w in (None, weight):
        result = neighbor_sum(h.to(dtype).requires_grad_(), adjacency, w)
        assert result.dtype == dtype
        torch.testing.assert_close(
            result.float(),
            scattered(h, edge_index, w),
            rtol=0.02,
            atol=0.05 if dtype == torch.bfloat16 else 1e-5,
        )
        result.sum().backward()


def test_without_edges() -> None:
    adjacency = build_adjacency(torch.zeros(2, 0, dtype=torch.int64), 3)
    h = torch.randn(3, 4, requires_grad=True)
    weight = torch.ones(0, 2, requires_grad=True)
    (neighbor_sum(h, adjacency).sum() + neighbor_sum(h, adjacency, weight).sum()).backward()
    assert h.grad is not None
    assert not h.grad.any()


@pytest.mark.parametrize("heads", [1, 3])
def test_sums_of_both_ends(heads: int) -> None:
    edge_index, adjacency = directed()
    ends = [torch.randn(6, heads, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    torch.testing.assert_close(
        end_sum(*ends, adjacency), ends[0][edge_index[1]] + ends[1][edge_index[0]]
    )
    assert torch.autograd.gradcheck(lambda *e: end_sum(*e, adjacency), ends)


@pytest.mark.parametrize("heads", [1, 3])
def test_weighted_rows(heads: int) -> None:
    edge_index, adjacency = directed()
    rows, weight = (
        torch.randn(11, 4, dtype=torch.float64),
        torch.randn(11, heads, dtype=torch.float64, requires_grad=True),
    )
    expected = torch.zeros(6, heads, 4, dtype=torch.float64).index_add(
        0, edge_index[1], weight[:, :, None] * rows[:, None]
    )
    torch.testing.assert_close(weighted_rows(weight, rows, adjacency.offsets), expected)
    assert torch.autograd.gradcheck(lambda w: weighted_rows(w, rows, adjacency.offsets), weight)
    nothing = weighted_rows(weight[:0], rows[:0], torch.zeros(4, dtype=torch.int64))
    assert nothing.shape == (3, heads, 4)
    nothing.sum().backward()


def test_self_loops_equal_a_fresh_sort() -> None:
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
        looped.senders[back.edges], torch.repeat_interleave(node, back.offsets.diff())
    )
    assert torch.equal(looped.receivers[back.edges], back.receivers)
    assert back.edges.sort().values.tolist() == list(range(17))
