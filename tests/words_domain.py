"""A domain that the package does not know: a word of small letters is a path of letters."""

from typing import Any

import numpy as np

from graphlog.data.graphs import Attribute, FeatureSchema, GraphChunk
from graphlog.data.tables import RecordColumn
from graphlog.domains import Reading
from graphlog.domains.records import RecordDomain

PATH = FeatureSchema(
    "path", "path", node=(Attribute("letter", 27),), edge=(), masked="node", node_mask=(26,)
)


def paths(words: list[str], schema: FeatureSchema) -> tuple[GraphChunk, list[tuple[int, str]]]:
    """Return a path for each word of small letters."""
    good = [k for k, w in enumerate(words) if w.isascii() and w.isalpha() and w.islower()]
    bad = [(k, "not a word of small letters") for k in range(len(words)) if k not in good]
    kept = [words[k] for k in good]
    sizes = np.array([len(w) for w in kept], dtype=np.int64)
    steps = np.concatenate([np.arange(n - 1) for n in sizes] or [[]]).astype(np.int64)
    letters = np.array([[ord(c) - 97] for w in kept for c in w], dtype=np.int64).reshape(-1, 1)
    edges, none = np.stack([steps, steps + 1]), np.zeros((len(steps), 0), dtype=np.int64)
    return GraphChunk(sizes, sizes - 1, letters, edges, none, np.array(good, np.int64), kept), bad


class PathDomain(RecordDomain):
    """A word is a path of letters."""

    name, records, schemas = "path", "words", {"path": PATH}
    text_name = "word"
    column = RecordColumn(what="word", sure=frozenset({"word"}), word="word")

    def featurizer(self, reading: Reading) -> Any:
        """Return the function that turns words into graphs."""
        return paths


DOMAIN = PathDomain()
