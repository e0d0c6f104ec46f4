"""Split row numbers into training, validation and test sets by fractions, groups or a file."""

import json
import math
import random
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int, Int64, Shaped
from pydantic import BaseModel, Field, ValidationError

from graphlog.config import read_json
from graphlog.errors import ConfigError, DataError, out_of_range, setting
from graphlog.files import write_text

Fractions = Sequence[float]
GroupRule = Literal["largest-first", "balanced", "random"]
DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


class Split(NamedTuple):
    """Disjoint arrays of row numbers; their order is part of the split."""

    train: Int[np.ndarray, "_"]
    """Rows of the training set."""
    valid: Int[np.ndarray, "_"]
    """Rows of the validation set."""
    test: Int[np.ndarray, "_"]
    """Rows of the test set."""

    @classmethod
    def of(cls, parts: Any, num_rows: int) -> "Split":
        """Return the split of three lists of row numbers or three boolean masks.

        Args:
            parts: Train, valid and test, in this order or by name: row numbers from 0, or a boolean
                for each row.
            num_rows: Number of rows of the input.

        Raises:
            DataError: If a row is out of range, or in more than one part.
            ConfigError: If ``parts`` are not three lists or masks.
        """
        if isinstance(parts, Mapping) and {*parts} <= {*cls._fields}:
            parts = [parts.get(name, ()) for name in cls._fields]
        try:
            arrays = [*map(np.asarray, parts if isinstance(parts, Iterable) else [parts])]
        except ValueError:  # a part of lists that differ in length
            arrays = []
        rows = [
            np.flatnonzero(a) if a.dtype == bool and a.shape == (num_rows,) else a for a in arrays
        ]
        fits = [r.ndim == 1 and (r.dtype.kind in "iu" or not r.size) for r in rows]
        if len(rows) != len(cls._fields) or not all(fits):
            found = ", ".join(f"{a.dtype} of shape {a.shape}" for a in arrays) or "no such lists"
            raise ConfigError(
                f"{setting('split')} must be train, valid and test, each as row numbers or a mask "
                f"of all {num_rows} rows; found {found}."
            )
        split = cls(*(r.astype(np.int64) for r in rows))
        _check_rows(split, num_rows, setting("split"))
        return split

    def save(self, path: Path | str, kind: str, fractions: Fractions, sha256: str) -> None:
        """Write the split as JSON.

        Args:
            path: File to write.
            kind: Method of splitting, such as ``scaffold``.
            fractions: Requested shares of train, valid and test.
            sha256: Hash of the input to which the row numbers refer.
        """
        lists = {name: part.tolist() for name, part in self._asdict().items()}
        fields = {"kind": kind, "fractions": list(fractions), "sha256": sha256, **lists}
        write_text(Path(path), json.dumps(fields) + "\n")

    @classmethod
    def load(
        cls,
        path: Path | str,
        num_rows: int | None = None,
        sha256: str | Collection[str] = (),
        strict: bool = True,
    ) -> "Split":
        """Read a split file, written by :meth:`save` or by hand.

        Args:
            path: JSON file with ``train``, ``test`` and, optionally, ``valid``.
            num_rows: Number of rows of the input; row numbers must be below it.
            sha256: Hashes of the input; that of the file must be among them.
            strict: Whether a file for another input is an error. If not, it causes a warning, since
                the same input read with other options has another hash.

        Raises:
            DataError: If the file is missing, damaged or for another input, or its parts overlap.
        """
        path = Path(path)
        try:
            fields = _SplitFile.model_validate(read_json(path))
        except ValidationError as e:
            problem = e.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise DataError(
                f"{path}: train, valid and test must be lists of row numbers from 0 (`{where}`: "
                f"{problem['msg'].lower()}); make a split file with `graphlog data split`."
            ) from None
        known = {sha256} if isinstance(sha256, str) else sha256
        if known and fields.sha256 and fields.sha256 not in known:
            belongs = (
                f"{path} belongs to a different file, or to this one with other targets or options"
            )
            if strict:
                raise DataError(
                    f"{belongs}; make a split with `graphlog data split`, or a file with nothing "
                    "but lists of rows: train, valid and test.",
                    option="split",
                    file=path,
                )
            warnings.warn(f"{belongs}; its row numbers are used as they are.", stacklevel=2)
        parts = (fields.train, fields.valid, fields.test)
        split = cls(*(np.array(part, dtype=np.int64) for part in parts))
        _check_rows(split, num_rows, str(path))
        return split


_Rows = list[Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]]


class _SplitFile(BaseModel):
    """Required content of a split file, which may hold other keys too."""

    train: _Rows
    valid: _Rows = Field(default_factory=list[int])
    test: _Rows
    sha256: str | None = None


def _check_rows(split: Split, num_rows: int | None, where: str) -> None:
    """Raise a DataError for a row that the input does not have, or that occurs more than once."""
    rows = np.concatenate(split)
    if num_rows is not None and len(outside := rows[(rows < 0) | (rows >= num_rows)]):
        raise DataError(
            f"{where}: row {outside[0]} is out of range; the input has rows 0 to {num_rows - 1}."
        )
    values, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        raise DataError(
            f"{where}: row {values[counts > 1][0]} is in the split more than once; each row "
            "belongs to one part."
        )


def check_fractions(fractions: Fractions) -> tuple[float, float, float]:
    """Return the shares of train, valid and test as floats.

    Raises:
        ConfigError: If they are not three numbers in [0, 1] with sum 1, or train is 0.
    """
    shares = tuple(fractions)
    is_valid = len(shares) == 3 and all(0 <= share <= 1 for share in shares) and shares[0] > 0
    if not is_valid or abs(math.fsum(shares) - 1) > 1e-6:
        allowed = "train, valid and test shares that sum to 1, train above 0"
        raise out_of_range("fractions", allowed, shares)
    train, valid, test = map(float, shares)
    return train, valid, test


def _rows(share: float, n: int) -> float:
    """Return a share of ``n`` rows without rounding errors: 0.29 * 100 is 28.999999999999996."""
    return round(share * n, 9)


def random_split(n: int, fractions: Fractions = DEFAULT_FRACTIONS, seed: int = 0) -> Split:
    """Split ``n`` rows at random; train and valid are rounded down (as in pre-train-GNNs)."""
    train, valid, _ = check_fractions(fractions)
    order = list(range(n))
    random.Random(seed).shuffle(order)
    rows = np.array(order, dtype=np.int64)
    first, second = int(_rows(train, n)), int(_rows(train, n)) + int(_rows(valid, n))
    return _with_training_rows(Split(rows[:first], rows[first:second], rows[second:]), n)


def stratified_split(
    classes: Int[np.ndarray, "N"], fractions: Sequence[float] = DEFAULT_FRACTIONS, seed: int = 0
) -> Split:
    """Split at random so that every set has the same shares of the classes, as far as possible.

    The shuffled members of a class are spread evenly over the positions 0 to 1, from an offset that
    depends on the class, and all rows are cut at the fractions in the order of their positions. The
    offsets are multiples of the golden ratio, so that neighboring classes, which may share labels,
    have distant ones. If the classes too small to be in every set have few members together, their
    offsets are 1/2, so that a single member is in train.
    """
    train, valid, test = check_fractions(fractions)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(classes))
    _, inverse, counts = np.unique(classes[order], return_inverse=True, return_counts=True)
    by_class = np.argsort(inverse, kind="stable")
    rank = np.empty(len(classes), dtype=np.int64)
    rank[by_class] = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = (rng.random() + np.arange(len(counts)) * _GOLDEN_RATIO) % 1.0
    smallest_share = min(filter(None, (valid, test)), default=0.0)
    is_rare = counts * smallest_share < 1
    if counts[is_rare].sum() * smallest_share < 1:
        offsets[is_rare] = 0.5
    position = (rank + offsets[inverse]) / counts[inverse]
    cuts = [round(len(classes) * share) for share in (train, train + valid)]
    parts = np.split(order[np.argsort(position, kind="stable")], cuts)
    return _with_training_rows(Split(*map(np.sort, parts)), len(classes))


def group_split(
    groups: Sequence[Any] | Shaped[np.ndarray, "n"],
    fractions: Fractions = DEFAULT_FRACTIONS,
    kind: GroupRule = "largest-first",
    seed: int = 0,
) -> Split:
    """Split so that all rows of a group are in the same set.

    - ``largest-first``: groups by decreasing size, ties by decreasing first row, fill train, then
      valid, then test; deterministic (the rule of pre-train-GNNs and its published scores).
    - ``balanced``: groups larger than half of valid or of test come first, then all others, both in
      random order; they fill train, then valid, then test.
    - ``random``: groups in random order fill valid, then test; the rest is train.

    Args:
        groups: Group of each row, such as its scaffold or species, as text or numbers; a row with
            None is a group of one row.
        fractions: Shares of train, valid and test.
        kind: One of the three rules.
        seed: Seed of the order; ``largest-first`` does not use it.
    """
    train, valid, test = check_fractions(fractions)
    number = group_numbers(groups.tolist() if isinstance(groups, np.ndarray) else groups)
    sizes = np.bincount(number).tolist()
    members = np.split(np.argsort(number, kind="stable"), np.cumsum(sizes)[:-1])
    n, order = len(number), list(range(len(sizes)))
    if kind == "largest-first":
        order.sort(key=lambda g: (sizes[g], int(members[g][0])), reverse=True)
        limits = _rows(train, n), _rows(train + valid, n)
        parts = _fill(order, sizes, limits, is_cumulative=True)
    elif kind == "balanced":
        limit, draw = min(valid, test) * n / 2, random.Random(seed)
        big, small = ([g for g in order if (sizes[g] > limit) == large] for large in (True, False))
        draw.shuffle(big)
        draw.shuffle(small)
        parts = _fill(big + small, sizes, (_rows(train, n), _rows(valid, n)))
    else:
        assert kind == "random"
        order = np.random.RandomState(seed).permutation(len(sizes)).tolist()
        in_valid, in_test, in_train = _fill(order, sizes, (_rows(valid, n), _rows(test, n)))
        parts = in_train, in_valid, in_test
    empty = np.empty(0, np.int64)
    split = Split(*(np.concatenate([empty, *(members[g] for g in part)]) for part in parts))
    return _with_training_rows(split, n)


def group_numbers(keys: Sequence[Any]) -> Int64[np.ndarray, "N"]:
    """Return a number for each distinct key, by first occurrence; each None gets its own number."""
    # not np.unique: an array of text takes as much memory for each key as for the longest one
    numbers: dict[object, int] = {}
    distinct = (object() if key is None else key for key in keys)
    return np.array([numbers.setdefault(key, len(numbers)) for key in distinct], dtype=np.int64)


def _fill(
    order: Sequence[int],
    sizes: Sequence[int],
    limits: tuple[float, float],
    is_cumulative: bool = False,
) -> tuple[list[int], list[int], list[int]]:
    """Add each group to the first of two parts that has room for it, otherwise to the third.

    The ``limits`` are the largest numbers of rows of the first two parts; if ``is_cumulative``, the
    second one is that of both together.
    """
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    filled = [0, 0]
    for g in order:
        used = (filled[0], filled[1] + filled[0] * is_cumulative)
        k = next((k for k in (0, 1) if used[k] + sizes[g] <= limits[k]), 2)
        parts[k].append(g)
        if k < 2:
            filled[k] += sizes[g]
    return parts


def _with_training_rows(split: Split, n: int) -> Split:
    """Return the split of ``n`` rows; raise a DataError if its training set is empty."""
    if not len(split.train):
        why = f"{n} rows are too few, or most of them share one group (such as a scaffold)"
        raise DataError(f"the split leaves nothing to train on: {why}; choose the split `random`.")
    return split
