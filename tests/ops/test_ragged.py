"""How much padding into buckets wastes; that it changes no loss is tested with the losses."""

from hypothesis import given
from hypothesis import strategies as st

from encoder_support import offsets
from graphlog.ops.segment import plan_padding

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
