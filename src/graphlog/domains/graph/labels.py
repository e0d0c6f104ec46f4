"""Labels of graphs: numbers as they are, words as the numbers of their classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from graphlog.domains.graph.raw import as_float
from graphlog.domains.graph.schema import text_of
from graphlog.errors import DataError

_MAX_CLASSES = 1000
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class LabelSurvey:
    """Turns labels of graphs into numbers: numbers as they are, words as the numbers of classes.

    All labels must be added before the first is converted.

    Args:
        names: Names of the label columns.
        classes: Labels that are classes even if they are numbers.
        known: Classes of labels in the order of their numbers, if they are fixed.
    """

    def __init__(
        self,
        names: Sequence[str],
        classes: Sequence[str] = (),
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.names = tuple(names)
        self._always = frozenset(classes)
        self._known = {name: list(t) for name, t in (known or {}).items() if name in self.names}
        self._values: list[set[Any]] = [set() for _ in names]
        self._has_words = [False] * len(self.names)

    def add(self, labels: Sequence[Any]) -> None:
        """Include the labels of a graph.

        Raises:
            DataError: If a label has too many classes.
        """
        for k, value in enumerate(labels):
            if value is None or (not isinstance(value, str) and not _is_finite(value)):
                continue
            self._has_words[k] |= isinstance(value, str)
            if len(self._values[k]) <= _MAX_CLASSES or self._has_words[k]:
                self._values[k].add(value)
            if self._has_words[k] and len(self._values[k]) > _MAX_CLASSES:
                raise DataError(
                    f"label '{self.names[k]}' has more than {_MAX_CLASSES:,} classes; leave it out "
                    "if it is a name."
                )

    @property
    def classes(self) -> dict[str, list[str]]:
        """Classes of the labels that have any, in the order of their numbers.

        Numbers come first, then words.
        """
        classes = dict(self._known)
        for name, values, words in zip(self.names, self._values, self._has_words, strict=True):
            if name not in classes and (words or name in self._always):
                ordered = sorted(values, key=lambda value: (isinstance(value, str), value))
                classes[name] = list(dict.fromkeys(map(text_of, ordered)))
        return classes

    def problem(self, labels: Sequence[Any]) -> str | None:
        """Return what is wrong with the labels of a graph; None and NaN are missing labels."""
        present = [(n, v) for n, v in zip(self.names, labels, strict=False) if not _is_missing(v)]
        for name, value in present:
            if not isinstance(value, str) and not _is_finite(value):
                return f"label '{name}' must be finite and below {_FLOAT32_MAX:.2g}, or left out"
        for name, value in present:
            if name in self._known and text_of(value) not in self._known[name]:
                known = "a class that the store to be like does not know"
                return f"label '{name}' is {text_of(value)!r}, {known}"
        return None

    def values(self, labels: Sequence[Sequence[Any]]) -> Float32[np.ndarray, "N T"]:
        """Return the labels of graphs as numbers, NaN where missing."""
        numbers = {name: {t: k for k, t in enumerate(c)} for name, c in self.classes.items()}
        values = np.full((len(labels), len(self.names)), np.nan, dtype=np.float32)
        for row, graph_labels in enumerate(labels):
            for k, (name, value) in enumerate(zip(self.names, graph_labels, strict=False)):
                if not _is_missing(value):
                    is_class = name in numbers
                    values[row, k] = numbers[name][text_of(value)] if is_class else value
        return values


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _is_finite(value: float) -> bool:
    """Return whether a number is finite once stored as float32; NaN is not."""
    return abs(as_float(value)) <= _FLOAT32_MAX
