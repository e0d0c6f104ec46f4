"""Labels of graphs: numbers as they are, words as the numbers of their classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from graphlog.domains.generic import as_float
from graphlog.errors import DataError

_MOST_CLASSES = 1000
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class LabelSurvey:
    """What the labels of an input are; sees all before the first is written."""

    def __init__(
        self,
        names: Sequence[str],
        classes: Sequence[str] = (),
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Expect these columns; those in ``classes`` name classes even where they are numbers, those in ``known`` exactly these."""
        self.names = tuple(names)
        self._always = frozenset(classes)
        self._known = {
            name: list(texts) for name, texts in (known or {}).items() if name in self.names
        }
        self._values: list[set[Any]] = [set() for _ in names]
        self._has_words = [False] * len(self.names)

    def add(self, labels: Sequence[Any]) -> None:
        """Take in the labels of a graph."""
        for k, value in enumerate(labels):
            if value is None or (not isinstance(value, str) and not _fits(value)):
                continue
            self._has_words[k] |= isinstance(value, str)
            if len(self._values[k]) <= _MOST_CLASSES or self._has_words[k]:
                self._values[k].add(value)
            if self._has_words[k] and len(self._values[k]) > _MOST_CLASSES:
                raise DataError(
                    f"label '{self.names[k]}' has more than {_MOST_CLASSES:,} classes; leave it out if it is a name."
                )

    @property
    def classes(self) -> dict[str, list[str]]:
        """The classes of every label that names some, in the order of their numbers: numbers first, then words."""
        return self._known | {
            name: list(
                dict.fromkeys(
                    _text(v) for v in sorted(values, key=lambda v: (isinstance(v, str), v))
                )
            )
            for name, values, words in zip(self.names, self._values, self._has_words, strict=True)
            if name not in self._known and (words or name in self._always)
        }

    def wrong(self, labels: Sequence[Any]) -> str | None:
        """Return what is wrong with the labels of a graph; NaN is missing, as is None."""
        found = [
            (n, v)
            for n, v in zip(self.names, labels, strict=False)
            if not isinstance(v, str | None) and v == v
        ]
        infinite = next((name for name, value in found if not _fits(value)), None)
        if infinite is not None:
            return f"label '{infinite}' must be finite and below {_FLOAT32_MAX:.2g}, or left out"
        for name, value in zip(self.names, labels, strict=False):
            if (
                name in self._known
                and value is not None
                and value == value
                and _text(value) not in self._known[name]
            ):
                return f"label '{name}' is {_text(value)!r}, a class that the store to be like does not know"
        return None

    def values(self, labels: Sequence[Sequence[Any]]) -> Float32[np.ndarray, "N T"]:
        """Return the labels as numbers, NaN where missing."""
        number = {
            name: {text: k for k, text in enumerate(texts)} for name, texts in self.classes.items()
        }
        out = np.full((len(labels), len(self.names)), np.nan, dtype=np.float32)
        for row, found in enumerate(labels):
            for k, (name, value) in enumerate(zip(self.names, found, strict=False)):
                if value is not None and value == value:
                    out[row, k] = number[name][_text(value)] if name in number else value
        return out


def _fits(value: float) -> bool:
    """Return whether a number is finite once stored; NaN is not."""
    return abs(as_float(value)) <= _FLOAT32_MAX


def _text(value: Any) -> str:
    """Return the name of a class, the same however its number is written."""
    return (
        str(int(value))
        if isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
        else str(value)
    )
