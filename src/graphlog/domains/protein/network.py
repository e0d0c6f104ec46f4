"""Protein networks: read from STRING's files or lists of evidence, thresholded, and indexed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Integer

from graphlog.datasets.catalogue_networks import NETWORKS, TAXA
from graphlog.datasets.download import fetch
from graphlog.domains.protein.schema import CHANNELS, ProteinOptions, species_of
from graphlog.domains.protein.tables import Block, Columns, open_columns
from graphlog.errors import DataError, unknown_name


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


_NETWORK_FILE = "protein.links"


class NetworkFile(NamedTuple):
    """One network."""

    path: Path
    """Its file."""
    species: str | None = None
    """Its taxon, where it is known although the file does not say."""
    options: Mapping[str, Any] = {}
    """How a named network is usually read."""


def network_files(
    source: str | Path | Sequence[str | Path], data_dir: Path | str | None = None
) -> list[NetworkFile]:
    """Return the network files of ``source``, names of data sets resolved, the files of a folder sorted.

    Raises:
        DataError: If a folder holds none, or there is nothing to read.
        ConfigError: If a name is unknown.
    """
    listed = [source] if isinstance(source, str | Path) else list(source)
    files = [file for one in listed for file in _files(one, data_dir)]
    if not files:
        raise DataError("there is no network to read; give at least one file.")
    return files


def _files(source: str | Path, data_dir: Path | str | None) -> list[NetworkFile]:
    path = Path(source)
    if path.is_dir():
        found = [NetworkFile(p) for p in sorted(path.iterdir()) if _NETWORK_FILE in p.name]
        if not found:
            raise DataError(
                f"{path}: holds no network file (*{_NETWORK_FILE}.detailed*); name the files themselves."
            )
        return found
    if str(source) in NETWORKS and not path.exists():
        spec = NETWORKS[str(source)]
        return [NetworkFile(fetch(spec, data_dir), TAXA.get(spec.name), spec.options)]
    if not path.exists() and not path.suffix:
        raise unknown_name("network file or data set", str(source), NETWORKS)
    return [NetworkFile(path)]


_OTHER_NAMES = {
    "cooccurence": ("cooccurence", "cooccurrence"),
    "experimental": ("experimental", "experiments"),
}
EVIDENCE_CHANNELS: Mapping[str, str] = {
    "ppi": "experimental",
    "genetic_interaction": "experimental",
    "coexpression": "coexpression",
}
"""Kinds of evidence outside STRING and the channel that STRING files them under: its experiments are physical and genetic."""


def read_interactions(path: Path | str, species: str | None = None) -> Interactions:
    """Return the interactions of a network file, gzip or not.

    Two kinds are read: ``protein1 protein2``, the seven channels and ``combined_score`` (0 to 1000; STRING's
    ``protein.links.detailed``, or any table with these columns); and ``gene1 gene2 network weight``, a line for each kind of
    evidence, whose weights from 0 to 1 become scores of the channel of :data:`EVIDENCE_CHANNELS`.

    Args:
        path: The file.
        species: NCBI taxon id. None takes that of the proteins' names (``6239.2RSSE.1``), else of the file's name
            (``6239.protein.links…``).

    Raises:
        DataError: Naming file and line, if the file is not such a table, a score is out of range, or species are mixed.
    """
    with open_columns(path) as table:
        reader = _Reader(table, species or _taxon_of_file(path))
        if table.place("network") is not None and table.place("weight") is not None:
            return reader.evidence()
        return reader.string()


class _Reader:
    def __init__(self, table: Columns, species: str | None) -> None:
        self._table, self._species, self._numbers = table, species, dict[str, int]()
        self._named: str | None = None

    def string(self) -> Interactions:
        """Read a line an interaction, a column a channel."""
        wanted = ["protein1", "protein2", *CHANNELS, "combined_score"]
        places = [self._table.place(*_OTHER_NAMES.get(name, (name,))) for name in wanted]
        missing = [name for name, place in zip(wanted, places, strict=True) if place is None]
        if missing:
            raise DataError(
                f"{self._table.where}: has no column {', '.join(missing)}; give STRING's protein.links.detailed file "
                "(protein.links and protein.physical.links have no channels)."
            )
        pairs, scores = [np.empty((0, 2), np.int64)], [np.empty((0, 8), np.int16)]
        for block in self._table.blocks([p for p in places if p is not None]):
            pairs.append(self._pairs(block))
            scores.append(np.stack([self._scores(block, k) for k in range(2, len(wanted))], axis=1))
        table = np.concatenate(scores)
        return self._finished(np.concatenate(pairs), table[:, :-1], table[:, -1])

    def evidence(self) -> Interactions:
        """Read a line an interaction and kind of evidence."""
        places = [self._table.place("gene1", "protein1"), self._table.place("gene2", "protein2")]
        places += [self._table.place("network"), self._table.place("weight")]
        if None in places:
            raise DataError(
                f"{self._table.where}: must have the columns gene1, gene2, network and weight."
            )
        pairs, scores = [np.empty((0, 2), np.int64)], [np.empty((0, 7), np.int16)]
        for block in self._table.blocks([p for p in places if p is not None]):
            pairs.append(self._pairs(block))
            channel = np.array(
                [
                    self._channel(kind, block.first_line + k)
                    for k, kind in enumerate(block.columns[2])
                ]
            )
            listed = np.zeros((len(channel), len(CHANNELS)), dtype=np.int16)
            listed[np.arange(len(channel)), channel] = self._weights(block)
            scores.append(listed)
        table = np.concatenate(scores)
        return self._finished(np.concatenate(pairs), table, table.max(axis=1, initial=0))

    def _pairs(self, block: Block) -> Integer[np.ndarray, "B 2"]:
        numbers, size = self._numbers, len(self._numbers)
        pairs = np.array(
            [[numbers.setdefault(name, len(numbers)) for name in block.columns[k]] for k in (0, 1)],
            dtype=np.int64,
        ).T
        fresh = list(numbers)[size:] if len(numbers) > size else []
        for name in fresh:
            self._check_name(name, block)
        return pairs

    def _check_name(self, name: str, block: Block) -> None:
        taxon = species_of(name)
        first = self._named is None
        if first:
            self._named = taxon or ""
        if not name.strip() or (taxon or "") != self._named:
            line = self._line_of(name, block)
            if not name.strip():
                raise DataError(
                    f"{self._table.where}, line {line}: a protein has no name; mend the line."
                )
            found = f"'{name}' is of {f'species {taxon}' if taxon else 'no species'} among proteins of {self._named or 'no species'}"
            raise DataError(
                f"{self._table.where}, line {line}: {found}; give each species a file of its own."
            )
        if taxon and self._species and taxon != self._species:
            line = self._line_of(name, block)
            raise DataError(
                f"{self._table.where}, line {line}: '{name}' is of species {taxon}, not {self._species} as told; correct one."
            )

    def _line_of(self, name: str, block: Block) -> int:
        return block.first_line + next(
            k for k, pair in enumerate(zip(*block.columns[:2], strict=True)) if name in pair
        )

    def _scores(self, block: Block, column: int) -> Integer[np.ndarray, "B"]:
        texts = block.columns[column]
        try:
            values = np.fromiter(map(int, texts), dtype=np.int64, count=len(texts))
            wrong = (values < 0) | (values > 1000)
        except (ValueError, OverflowError):
            wrong = np.array([not text.strip().isdecimal() for text in texts])
            values = np.zeros(len(texts), dtype=np.int64)
        if wrong.any():
            k = int(wrong.argmax())
            raise DataError(
                f"{self._table.where}, line {block.first_line + k}: a score must be a whole number from 0 to 1000, found {texts[k]!r}."
            )
        return values.astype(np.int16)

    def _weights(self, block: Block) -> Integer[np.ndarray, "B"]:
        values: list[float] = []
        for k, text in enumerate(block.columns[3]):
            try:
                values.append(float(text))
            except ValueError:
                values.append(-1.0)
            if not 0 <= values[-1] <= 1:
                raise DataError(
                    f"{self._table.where}, line {block.first_line + k}: a weight must be a number from 0 to 1, found {text!r}."
                )
        return np.rint(np.array(values) * 1000).astype(np.int16)

    def _channel(self, kind: str, line: int) -> int:
        channel = EVIDENCE_CHANNELS.get(kind.lower(), kind.lower())
        if channel not in CHANNELS:
            known = ", ".join(sorted({*EVIDENCE_CHANNELS, *CHANNELS}))
            raise DataError(
                f"{self._table.where}, line {line}: unknown evidence {kind!r}; known: {known}."
            )
        return CHANNELS.index(channel)

    def _finished(
        self,
        pairs: Integer[np.ndarray, "M 2"],
        channels: Integer[np.ndarray, "M 7"],
        combined: Integer[np.ndarray, "M"],
    ) -> Interactions:
        if not len(pairs):
            raise DataError(
                f"{self._table.where}: has a header and no interaction; give a file with some."
            )
        species = self._named or self._species
        if not species:
            raise DataError(
                f"{self._table.where}: says nothing of the species; name its taxon, as in --set species=6239."
            )
        names, place = _sorted_names(list(self._numbers), None if self._named else species)
        return Interactions(species, names, place[pairs], channels, combined)


def _sorted_names(
    names: Sequence[str], prefix: str | None
) -> tuple[tuple[str, ...], Integer[np.ndarray, "N"]]:
    order = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    return tuple(f"{prefix}.{names[k]}" if prefix else names[k] for k in order), place


def _taxon_of_file(path: Path | str) -> str | None:
    return species_of(Path(path).name)
