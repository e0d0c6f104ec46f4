"""What every reader of graphs gives: the names of the columns, and the graphs as often as they are asked for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from graphlog.domains.generic import RawGraph

TEXT_KEPT = 200
"""Characters of a bad line that are kept beside the reason of its rejection."""


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """Graphs in a file or folder."""

    name: str
    """What to call it in messages."""
    node: tuple[str, ...]
    """Names of node attributes."""
    edge: tuple[str, ...]
    """Names of edge attributes."""
    labels: tuple[str, ...]
    """Names of labels."""
    read: Callable[[], Iterator[RawGraph]]
    """Goes over the graphs, from the first, each time."""
    classes: tuple[str, ...] = ()
    """Labels that name classes even where they are numbers."""
    matrices: bool = False
    """Whether attributes are nameless matrices, which may be one-hot."""


def cell(text: str) -> Any:
    """Return what is written: a whole number, a number, a word, or None for nothing.

    Example:
        >>> cell("3"), cell(" 3.0"), cell("C.ar"), cell("")
        (3, 3.0, 'C.ar', None)
    """
    text = text.strip()
    if not text:
        return None
    for kind in (int, float):
        try:
            # Python's own numbers may have underscores; data's may not
            return text if "_" in text else kind(text)
        except ValueError:
            continue
    return text
