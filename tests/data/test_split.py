"""Splits are disjoint, complete, and those of the published protocols."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphlog.data.split import Split, group_split, random_split, stratified_split
from graphlog.errors import ConfigError, DataError, GraphLoGError

PARTS = ("train", "valid", "test")
KINDS = ("largest-first", "balanced", "random")


def assert_partition(split: Split, n: int) -> None:
    assert sorted(np.concatenate(split).tolist()) == list(range(n))
    assert all(part.dtype == np.int64 for part in split)


def test_random_is_the_published_split_of_proteins(golden: Path):
    files = sorted(golden.glob("bio_random_split_*.npz"))
    assert files
    for file in files:
        values = np.load(file)
        n, seed = int(file.stem.split("_n")[1].split("_")[0]), int(file.stem.split("_seed")[1])
        split = random_split(n, values["fractions"].tolist(), seed)
        for name, part in zip(PARTS, split, strict=True):
            np.testing.assert_array_equal(part, values[name])


@given(
    groups=st.lists(st.integers(0, 60), min_size=20, max_size=300),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1 << 31),
    fractions=st.sampled_from([(0.8, 0.1, 0.1), (0.6, 0.2, 0.2), (0.9, 0.0, 0.1), (0.5, 0.5, 0.0)]),
)
def test_groups_stay_together(groups: list, kind: str, seed: int, fractions: tuple):
    # one group of half the rows would leave no room in train
    groups = [(g, k % 4) for k, g in enumerate(groups)]
    try:
        split = group_split(groups, fractions, kind, seed)
    except DataError:
        return
    assert_partition(split, len(groups))
    where = [{groups[k] for k in part} for part in split]
    assert sum(map(len, where)) == len(set(groups))
    again = group_split(groups, fractions, kind, seed)
    assert all(map(np.array_equal, split, again))


@given(n=st.integers(2, 500), seed=st.integers(0, 1 << 31))
def test_random_split_is_a_partition(n: int, seed: int):
    split = random_split(n, (0.8, 0.1, 0.1), seed)
    assert_partition(split, n)
    assert len(split.train) == int(0.8 * n)


@pytest.mark.parametrize("n", [10, 20, 100, 1000])
def test_shares_are_of_tenths_not_of_binary_fractions(n: int):
    for fractions in ((0.7, 0.1, 0.2), (0.7, 0.2, 0.1), (0.6, 0.3, 0.1)):
        expected = [round(10 * share) * n // 10 for share in fractions]
        assert [len(part) for part in group_split(range(n), fractions)] == expected
        assert [len(part) for part in random_split(n, fractions)] == expected


def test_strata_keep_their_shares():
    classes = np.repeat([0, 1, 2], [50, 30, 20])
    split = stratified_split(classes, (0.8, 0.1, 0.1), 0)
    shares = [np.bincount(classes[part]).tolist() for part in split]
    assert shares == [[40, 24, 16], [5, 3, 2], [5, 3, 2]]
    assert_partition(split, 100)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_rare_strata_are_in_all_folds(size: int):
    """Several targets make many classes of few graphs; of all, each fold has its share."""
    rare = np.arange(300) // size
    classes = np.concatenate([rare, np.full(700, len(rare))])
    for seed in range(5):
        split = stratified_split(classes, (0.8, 0.1, 0.1), seed)
        shares = [np.mean(classes[part] < len(rare)) for part in split]
        # exact for classes of ten graphs; of these, each fold's count is one of two a class, whose
        # starts are spread evenly
        np.testing.assert_allclose(shares, 0.3, atol=0.05)
        assert_partition(split, 1000)


@pytest.mark.parametrize("rare", [1, 2, 3])
def test_a_class_too_small_for_all_folds_is_there_to_learn_from(rare: int):
    classes = np.concatenate([np.zeros(97, int), np.ones(rare, int)])
    for seed in range(8):
        assert classes[stratified_split(classes, seed=seed).train].max() == 1


@pytest.mark.parametrize("kind", ["balanced", "random"])
def test_seeded_kinds_depend_on_the_seed_and_keep_their_shares(kind: str):
    groups = np.random.default_rng(0).integers(0, 400, 2000)
    splits = [group_split(groups, kind=kind, seed=seed) for seed in (0, 1)]
    assert not np.array_equal(splits[0].train, splits[1].train)
    for split in splits:
        shares = [len(part) / 2000 for part in split]
        np.testing.assert_allclose(shares, (0.8, 0.1, 0.1), atol=0.02)


def test_balanced_puts_large_groups_into_train():
    groups = [0] * 300 + list(range(1, 701))
    for seed in range(5):
        train = group_split(groups, kind="balanced", seed=seed).train
        assert set(range(300)) <= set(train.tolist())


@pytest.mark.parametrize(
    "fractions",
    [(0.8, 0.2), (0.8, 0.3, 0.1), (1.1, -0.1, 0.0), (0.0, 0.5, 0.5), (float("nan"), 0.5, 0.5)],
)
def test_fractions_must_make_sense(fractions: tuple):
    with pytest.raises(ConfigError, match="sum to 1"):
        random_split(10, fractions)


@pytest.mark.parametrize(
    "split",
    [
        lambda: group_split([]),
        lambda: group_split(["one"] * 20),
        lambda: random_split(1),
        lambda: stratified_split(np.array([0, 1, 0]), (0.1, 0.45, 0.45)),
    ],
)
def test_nothing_to_train_on(split: Callable[[], Split]):
    with pytest.raises(DataError, match="nothing to train on"):
        split()


def test_rows_and_masks_are_the_same_split():
    rows = Split.of(([0, 3], [1], []), 5)
    masks = np.zeros((3, 5), dtype=bool)
    for mask, part in zip(masks, rows, strict=True):
        mask[part] = True
    again = Split.of(masks, 5)
    assert all(map(np.array_equal, rows, again))
    assert all(map(np.array_equal, rows, Split.of({"valid": [1], "train": [0, 3]}, 5)))
    assert [part.dtype for part in (*rows, *again)] == [np.int64] * 6


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (([0, 1], [1], [2]), DataError, "row 1 is in the split more than once"),
        (([0, -2], [1], [2]), DataError, "row -2 is out of range; the input has rows 0 to 4"),
        (([0], [5], [2]), DataError, "row 5 is out of range"),
        (([0.0], [1], [2]), ConfigError, r"5 rows; found float64 of shape \(1,\), int64"),
        (([True, False], [1], [2]), ConfigError, r"5 rows; found bool of shape \(2,\), int64"),
        (([0], [1]), ConfigError, "must be train, valid and test"),
        (([[0], [1, 2]], [3], [4]), ConfigError, "5 rows; found no such lists"),
        (5, ConfigError, "must be train, valid and test"),
        ({"train": [0], "validation": [1]}, ConfigError, "must be train, valid and test"),
    ],
)
def test_parts_that_are_no_split(parts: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        Split.of(parts, 5)


def test_a_file_gives_the_split_back(tmp_path: Path):
    split = random_split(50, seed=3)
    split.save(tmp_path / "split.json", "random", (0.8, 0.1, 0.1), "ab" * 32)
    fields = json.loads((tmp_path / "split.json").read_text())
    assert list(fields) == ["kind", "fractions", "sha256", *PARTS]
    assert [*fields.values()][:3] == ["random", [0.8, 0.1, 0.1], "ab" * 32]
    again = Split.load(tmp_path / "split.json", num_rows=50, sha256="ab" * 32)
    assert all(map(np.array_equal, split, again))
    with pytest.raises(DataError, match="belongs to a different file"):
        Split.load(tmp_path / "split.json", sha256="cd" * 32)
    with pytest.raises(DataError, match="row 49 is out of range; the input has rows 0 to 48"):
        Split.load(tmp_path / "split.json", num_rows=49)
    with pytest.raises(DataError, match="no such file"):
        Split.load(tmp_path / "missing.json")
    with pytest.raises(GraphLoGError, match=r"cannot write \S+split\.json: "):
        split.save(tmp_path / "none" / "split.json", "random", (0.8, 0.1, 0.1), "")


NO_SPLITS = [
    ("", "not a valid JSON file"),
    ("[]", "must be lists of row numbers"),
    ('{"train": [0], "valid": [1]}', "must be lists of row numbers"),
    *(
        (f'{{"train": [0], "valid": [1], "test": [{row}]}}', "must be lists of row numbers")
        for row in ('"a"', "true", "-1", "1e99")
    ),
    ('{"train": [0, 0], "valid": [1], "test": []}', "row 0 is in the split more than once"),
    ('{"train": [0], "valid": [1], "test": [1]}', "row 1 is in the split more than once"),
]


@pytest.mark.parametrize(("text", "message"), NO_SPLITS)
def test_files_that_are_no_splits(tmp_path: Path, text: str, message: str):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(DataError, match=message):
        Split.load(tmp_path / "split.json")
