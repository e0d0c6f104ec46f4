"""Draws within graphs: right numbers, no repeats, all equally likely."""

from collections import Counter
from itertools import pairwise
from math import comb

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphlog.views.sampling import choose_rows, draw_numbers, random_nodes
from graphlog_support import offsets, seeded


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6), st.integers(0, 99))
def test_numbers_are_different_and_in_range(pairs: list[tuple[int, int]], seed: int) -> None:
    counts = torch.tensor([min(a, b) for a, b in pairs], dtype=torch.long)
    totals = torch.tensor([max(a, b) for a, b in pairs], dtype=torch.long)
    number, graph = draw_numbers(counts, totals, seeded(seed))
    assert torch.bincount(graph, minlength=len(pairs)).tolist() == counts.tolist()
    assert len({(int(g), int(n)) for g, n in zip(graph, number, strict=True)}) == number.shape[0]
    assert bool(((number >= 0) & (number < totals[graph])).all())


def test_every_subset_is_equally_likely() -> None:
    for count, total in ((2, 6), (4, 6), (1, 3)):
        runs = 600 * comb(total, count)
        number, graph = draw_numbers(
            torch.full((runs,), count), torch.full((runs,), total), seeded()
        )
        subsets = [[] for _ in range(runs)]
        for g, n in zip(graph.tolist(), number.tolist(), strict=True):
            subsets[g].append(n)
        seen = Counter(tuple(sorted(s)) for s in subsets)
        assert len(seen) == comb(total, count)
        assert all(abs(n - 600) < 5 * 600**0.5 for n in seen.values())


def test_rows_are_chosen_among_the_allowed() -> None:
    ptr, counts = offsets([5, 0, 4, 3]), torch.tensor([2, 3, 0, 9])
    allowed = torch.tensor([1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 0]).bool()
    chosen = choose_rows(ptr, counts, seeded(), allowed)
    assert not (chosen & ~allowed).any()
    assert [int(chosen[a:b].sum()) for a, b in pairwise(ptr)] == [2, 0, 0, 1]


def test_random_nodes_lie_in_their_graph() -> None:
    ptr = offsets([3, 1, 4])
    drawn = torch.stack([random_nodes(ptr, seeded(k)) for k in range(200)])
    assert [set(column.tolist()) for column in drawn.T] == [{0, 1, 2}, {3}, {4, 5, 6, 7}]
