"""Train, validation and test indices from fractions, groups or a file; pure functions of arrays."""

import json
import math
import random
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256 as hash_bytes
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
_GOLDEN = (math.sqrt(5) - 1) / 2


class Split(NamedTuple):
    """Disjoint index arrays; their order is part of the split."""

    train: Int[np.ndarray, "_"]
    """Rows to learn from."""
    valid: Int[np.ndarray, "_"]
    """Rows to choose by."""
    test: Int[np.ndarray, "_"]
    """Rows to report."""

    @classmethod
    def of(cls, parts: Any, num_rows: int) -> "Split":
        """Return the split of three lists of input rows, or of three masks of all rows.

        Args:
            parts: Train, valid and test, in this order or by name: row numbers from 0, or one true
                or false for each row.
            num_rows: Rows of the input.

        Raises:
            DataError: If a row is out of range, or in two parts.
            ConfigError: If these are not three lists of rows or masks.
        """
        if isinstance(parts, Mapping) and {*parts} <= {*cls._fields}:
            parts = [parts.get(name, ()) for name in cls._fields]
        arrays = [np.asarray(part) for part in (parts if isinstance(parts, Iterable) else [parts])]
        rows = [
            np.flatnonzero(a) if a.dtype == bool and a.shape == (num_rows,) else a for a in arrays
        ]
        fits = [r.ndim == 1 and (r.dtype.kind in "iu" or not r.size) for r in rows]
        if len(rows) != len(cls._fields) or not all(fits):
            found = ", ".join(f"{a.dtype} of shape {a.shape}" for a in arrays)
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
            path: Target file.
            kind: How it was made, ``scaffold`` for example.
            fractions: Asked-for shares.
            sha256: Hash of the input whose rows are meant.
        """
        lists = {name: part.tolist() for name, part in zip(self._fields, self, strict=True)}
        fields = {"kind": kind, "fractions": list(fractions), "sha256": sha256, **lists}
        fields["rows_sha256"] = _rows_sha256(self)
        write_text(Path(path), json.dumps(fields) + "\n")

    @classmethod
    def load(
        cls,
        path: Path | str,
        num_rows: int | None = None,
        sha256: str | Collection[str] = (),
        strict: bool = True,
    ) -> "Split":
        """Read what :meth:`save` wrote, or the same keys written by hand.

        Args:
            path: JSON file with ``train``, ``test`` and, perhaps, ``valid``.
            num_rows: Rows of the input, to check the indices against.
            sha256: Hashes of the input, to check that the split was made for it.
            strict: Refuse a split that was made for another input; otherwise warn, since the hashes
                may be of this one read in another way.

        Raises:
            DataError: If the file is missing, damaged or of another input, or its parts overlap.
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
            if strict:
                raise DataError(
                    f"{path} belongs to a different file; make a new split.",
                    option="split",
                    file=path,
                )
            warnings.warn(
                f"{path} belongs to a different file, or to this one read with other options; its "
                "row numbers are used as they are.",
                stacklevel=2,
            )
        parts = (fields.train, fields.valid, fields.test)
        split = cls(*(np.array(part, dtype=np.int64) for part in parts))
        if fields.rows_sha256 not in (None, _rows_sha256(split)):
            raise DataError(
                f"{path}: its rows were altered since it was written; make it again, or remove "
                "`rows_sha256` from the file if they were edited on purpose."
            )
        _check_rows(split, num_rows, str(path))
        return split


_Rows = list[Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]]


class _SplitFile(BaseModel):
    """What a split file must hold; it may hold more."""

    train: _Rows
    valid: _Rows = Field(default_factory=list[int])
    test: _Rows
    sha256: str | None = None
    rows_sha256: str | None = None


def _check_rows(split: Split, num_rows: int | None, where: str) -> None:
    """Refuse a row that the input does not have, or that is in two parts."""
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


def _rows_sha256(split: Split) -> str:
    lists = [part.tolist() for part in split]
    return hash_bytes(json.dumps(lists).encode()).hexdigest()


def check_fractions(fractions: Fractions) -> tuple[float, float, float]:
    """Return the three shares.

    Raises:
        ConfigError: If they are not three numbers in [0, 1] that sum to 1, the first above 0.
    """
    if (
        len(fractions) != 3
        or not all(0 <= f <= 1 for f in fractions)
        or abs(math.fsum(fractions) - 1) > 1e-6
        or fractions[0] <= 0
    ):
        raise out_of_range(
            "fractions",
            "train, valid and test shares that sum to 1, train above 0",
            tuple(fractions),
        )
    train, valid, test = fractions
    return float(train), float(valid), float(test)


def _rows(share: float, n: int) -> float:
    """Return a share of ``n`` rows; 0.29 * 100 is 28.999999999999996."""
    return round(share * n, 9)


def random_split(n: int, fractions: Fractions = DEFAULT_FRACTIONS, seed: int = 0) -> Split:
    """Shuffle ``range(n)`` and cut it; what rounding leaves goes to test (as in pre-train-GNNs)."""
    train, valid, _ = check_fractions(fractions)
    order = list(range(n))
    random.Random(seed).shuffle(order)
    rows = np.array(order, dtype=np.int64)
    first, second = int(_rows(train, n)), int(_rows(train, n)) + int(_rows(valid, n))
    return _with_training_rows(Split(rows[:first], rows[first:second], rows[second:]), n)


def stratified_split(
    classes: Int[np.ndarray, "N"], fractions: Sequence[float] = DEFAULT_FRACTIONS, seed: int = 0
) -> Split:
    """Return random folds with every class's share as in the whole, as near as graphs allow.

    Of classes too small for each fold, all are in train if they are few. If they are many, each
    starts at a place of its own: those next to each other, which may share labels, far apart
    (multiples of the golden ratio).
    """
    first, second, third = check_fractions(fractions)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(classes))
    _, inverse, counts = np.unique(classes[order], return_inverse=True, return_counts=True)
    by_class = np.argsort(inverse, kind="stable")
    rank = np.empty(len(classes), dtype=np.int64)
    rank[by_class] = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = (rng.random() + np.arange(len(counts)) * _GOLDEN) % 1.0
    least = min(filter(None, (second, third)), default=0.0)
    is_rare = counts * least < 1
    if counts[is_rare].sum() * least < 1:
        starts[is_rare] = 0.5
    dealt = order[np.argsort((rank + starts[inverse]) / counts[inverse], kind="stable")]
    cuts = [round(len(classes) * share) for share in (first, first + second)]
    split = Split(*(np.sort(part) for part in np.split(dealt, cuts)))
    return _with_training_rows(split, len(classes))


def group_split(
    groups: Sequence[Any] | Shaped[np.ndarray, "n"],
    fractions: Fractions = DEFAULT_FRACTIONS,
    kind: GroupRule = "largest-first",
    seed: int = 0,
) -> Split:
    """Split so that rows of one group stay together.

    - ``largest-first``: groups by decreasing size, ties by decreasing first row, fill train, then
      valid, then test; deterministic (the pre-train-GNNs rule, which its published scores use).
    - ``balanced``: groups of more than half of valid or of test come first, each half shuffled.
    - ``random``: groups in random order fill valid, then test; the rest is train.

    Args:
        groups: Group of each row: scaffold, species, … (text or numbers); None for a row alone.
        fractions: Train, valid and test shares.
        kind: One of the three rules.
        seed: Seed of the order; unused by ``largest-first``.
    """
    train, valid, test = check_fractions(fractions)
    number = group_numbers(groups.tolist() if isinstance(groups, np.ndarray) else groups)
    sizes = np.bincount(number).tolist()
    members = np.split(np.argsort(number, kind="stable"), np.cumsum(sizes)[:-1])
    n, order = len(number), list(range(len(sizes)))
    if kind == "largest-first":
        order.sort(key=lambda g: (sizes[g], int(members[g][0])), reverse=True)
        most = _rows(train, n), _rows(train + valid, n)
        parts = _fill(order, sizes, most, from_first=True)
    elif kind == "balanced":
        limit, draw = min(valid, test) * n / 2, random.Random(seed)
        big, small = ([g for g in order if (sizes[g] > limit) == large] for large in (True, False))
        draw.shuffle(big)
        draw.shuffle(small)
        parts = _fill(big + small, sizes, (_rows(train, n), _rows(valid, n)))
    else:
        order = np.random.RandomState(seed).permutation(len(sizes)).tolist()
        in_valid, in_test, in_train = _fill(order, sizes, (_rows(valid, n), _rows(test, n)))
        parts = in_train, in_valid, in_test
    none = np.empty(0, np.int64)
    split = Split(*(np.concatenate([none, *(members[g] for g in part)]) for part in parts))
    return _with_training_rows(split, n)


def group_numbers(keys: Sequence[Any]) -> Int64[np.ndarray, "N"]:
    """Number the keys by first appearance, equal keys alike; None is equal to nothing."""
    # a dictionary, since an array of text would be as wide as its longest scaffold
    numbers: dict[object, int] = {}
    apart = (object() if key is None else key for key in keys)
    return np.array([numbers.setdefault(key, len(numbers)) for key in apart], dtype=np.int64)


def _fill(
    order: Sequence[int],
    sizes: Sequence[int],
    limits: tuple[float, float],
    from_first: bool = False,
) -> tuple[list[int], list[int], list[int]]:
    """Give each group to the first of two parts it fits in, else to the third.

    The limit of the second part counts the rows of the first too where ``from_first``.
    """
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    filled = [0, 0]
    for g in order:
        used = (filled[0], filled[1] + filled[0] * from_first)
        k = next((k for k in (0, 1) if used[k] + sizes[g] <= limits[k]), 2)
        parts[k].append(g)
        if k < 2:
            filled[k] += sizes[g]
    return parts


def _with_training_rows(split: Split, n: int) -> Split:
    if not len(split.train):
        why = f"{n} rows are too few, or most of them share one group (such as a scaffold)"
        raise DataError(f"the split leaves nothing to train on: {why}; choose the split `random`.")
    return split
