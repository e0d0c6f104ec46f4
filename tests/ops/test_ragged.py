"""Padding into buckets, and similarities within groups."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from encoder_support import offsets, seeded
from graphlog.ops.contrastive import cosine_similarity
from graphlog.ops.segment import filled, grouped_cosine, pad_values, plan_padding, unpad_values

group_sizes = st.lists(st.integers(1, 30), min_size=1, max_size=40)


@given(group_sizes)
def test_padding_keeps_every_row_once(sizes: list[int]) -> None:
    padding = plan_padding(offsets(sizes))
    assert len(padding.buckets) <= 6
    assert sum(b.groups for b in padding.buckets) == len(sizes)
    assert padding.slot.unique().numel() == sum(sizes)
    assert torch.equal(padding.rows[padding.slot], torch.arange(sum(sizes)))
    assert sum(int(m.sum()) for m in filled(padding)) == sum(sizes)
    values = torch.arange(sum(sizes)) + 1
    assert torch.equal(unpad_values(pad_values(values, padding), padding), values)


@given(group_sizes)
def test_few_sizes_waste_nothing(sizes: list[int]) -> None:
    padding = plan_padding(offsets(sizes))
    if len(set(sizes)) <= 6:
        assert padding.num_slots == sum(sizes)


def test_one_giant_does_not_inflate_the_others() -> None:
    padding = plan_padding(offsets([20] * 100 + [21] * 100 + [500]))
    assert padding.buckets[-1] == (1, 500)
    assert padding.num_slots < 5000


def test_within_group_cosines_are_those_of_the_full_matrix() -> None:
    sizes = (3, 1, 5, 5, 2)
    x, y = (torch.randn(sum(sizes), 4, generator=seeded(k)) for k in (1, 2))
    padding = plan_padding(offsets(sizes))
    full = cosine_similarity(x, y, 0.1)
    found = grouped_cosine(x, y, padding, 0.1)
    start = 0
    for similarity, mask in zip(found, filled(padding), strict=True):
        count = mask.numel()
        index = padding.rows[start : start + count].view(mask.shape)
        start += count
        wanted = full[index[:, :, None], index[:, None, :]]
        both = mask[:, :, None] & mask[:, None, :]
        assert torch.allclose(similarity[both], wanted[both], atol=1e-6)
