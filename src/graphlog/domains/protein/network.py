"""A protein network as sorted rows: every partner of a protein, strongest first, and each interaction once."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Integer

from graphlog.domains.protein.options import ProteinOptions
from graphlog.domains.protein.schema import CHANNELS


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Interactions as listed by a file, before any threshold; one row a line."""

    species: str
    """NCBI taxon id."""
    proteins: tuple[str, ...]
    """Every protein the file names, sorted; ``<taxon>.<name>``."""
    pairs: Integer[np.ndarray, "M 2"]
    """The two proteins of each line."""
    channels: Integer[np.ndarray, "M 7"]
    """Scores of the seven channels, 0 to 1000."""
    combined: Integer[np.ndarray, "M"]
    """Combined score, 0 to 1000."""


@dataclass(frozen=True, slots=True, eq=False)
class ProteinNetwork:
    """An undirected network without self-loops or repeats. A channel set is a bit set in ``codes``."""

    species: str
    """NCBI taxon id."""
    proteins: tuple[str, ...]
    """``<taxon>.<name>``, sorted; those left without partners included."""
    offsets: Integer[np.ndarray, "Np1"]
    """Partners of protein ``p`` are ``partners[offsets[p]:offsets[p + 1]]``, strongest first, ties by name."""
    partners: Integer[np.ndarray, "M2"]
    """Both directions of every interaction."""
    once_offsets: Integer[np.ndarray, "Np1"]
    """The same for each interaction once, kept by its partner of lower degree: no protein keeps many."""
    once_partners: Integer[np.ndarray, "M"]
    """The other protein."""
    once_codes: Integer[np.ndarray, "M"]
    """Channels of the interaction, lowest bit first."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """What was left out or merged on the way, by name."""

    @property
    def degrees(self) -> Integer[np.ndarray, "N"]:
        """Number of partners of each protein."""
        return np.diff(self.offsets)


def build_network(found: Interactions, options: ProteinOptions | None = None) -> ProteinNetwork:
    """Return the network of the interactions that reach the thresholds.

    Self-loops are left out. The two directions of an interaction, and lines that repeat it, are one; where their
    scores differ the largest of each channel holds.
    """
    chosen = options or ProteinOptions()
    n = len(found.proteins)
    low, high = np.sort(found.pairs.astype(np.int64), axis=1).T
    proper = low != high
    key, inverse, repeats = np.unique(
        (low * n + high)[proper], return_inverse=True, return_counts=True
    )
    scores = np.zeros((len(key), len(CHANNELS) + 1), dtype=np.int16)
    listed = np.concatenate([found.channels, found.combined[:, None]], axis=1)[proper].astype(
        np.int16
    )
    order = np.argsort(inverse, kind="stable")
    if len(key):
        scores = np.maximum.reduceat(
            listed[order], np.concatenate([[0], np.cumsum(repeats)[:-1]]), axis=0
        )
    codes = (
        ((scores[:, :-1] >= chosen.channel_scores) << np.arange(len(CHANNELS)))
        .sum(axis=1)
        .astype(np.uint8)
    )
    kept = (scores[:, -1] >= chosen.score) & (codes > 0)
    low, high, codes, strength = (
        key[kept] // max(n, 1),
        key[kept] % max(n, 1),
        codes[kept],
        scores[kept, -1].astype(np.int64),
    )
    here, there = np.concatenate([low, high]), np.concatenate([high, low])
    rows = np.lexsort((there, -np.concatenate([strength, strength]), here))
    degree = np.bincount(here, minlength=n)
    lower_first = (degree[low] < degree[high]) | ((degree[low] == degree[high]) & (low < high))
    keeper, other = np.where(lower_first, low, high), np.where(lower_first, high, low)
    once = np.lexsort((other, keeper))
    return ProteinNetwork(
        species=found.species,
        proteins=found.proteins,
        offsets=_offsets(degree),
        partners=there[rows].astype(np.int32),
        once_offsets=_offsets(np.bincount(keeper, minlength=n)),
        once_partners=other[once].astype(np.int32),
        once_codes=codes[once],
        counts={
            "lines": len(found.pairs),
            "self-loops left out": int((~proper).sum()),
            "listed in one direction only": int((repeats == 1).sum()),
            "interactions below the thresholds": int((~kept).sum()),
            "interactions": int(kept.sum()),
        },
    )


def _offsets(counts: Integer[np.ndarray, "N"]) -> Integer[np.ndarray, "Np1"]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
