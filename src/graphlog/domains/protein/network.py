"""Protein networks of interactions that reach thresholds, and the ego-networks in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int, Integer

from graphlog.data.graphs import GraphChunk, ragged_ranges
from graphlog.data.store import GraphStore
from graphlog.domains.protein.schema import CHANNELS, PROTEIN, ProteinOptions, species_of
from graphlog.domains.protein.tables import line_error, open_columns
from graphlog.errors import DataError, setting

EVIDENCE_CHANNELS: Mapping[str, str] = {
    "ppi": "experimental",
    "genetic_interaction": "experimental",
    "coexpression": "coexpression",
}
"""Channel of STRING for each kind of evidence in files that are not from STRING."""
_STRING_COLUMNS = tuple(
    (
        "protein1 protein2 neighborhood fusion cooccurence|cooccurrence coexpression "
        "experimental|experiments database textmining combined_score"
    ).split()
)
_EVIDENCE_COLUMNS = ("gene1|protein1", "gene2|protein2", "network", "weight")


class Interactions(NamedTuple):
    """All interactions that a file lists, one row per line, before any threshold."""

    species: str
    """NCBI taxon id."""
    proteins: tuple[str, ...]
    """Names of all proteins of the file, ``<taxon>.<name>``, sorted."""
    pairs: Integer[np.ndarray, "M 2"]
    """Indices of the two proteins of each line."""
    scores: Integer[np.ndarray, "M 8"]
    """Scores of the seven channels and the combined score of each line, from 0 to 1000."""


@dataclass(frozen=True, slots=True, eq=False)
class ProteinNetwork:
    """An undirected network without self-loops and repeated interactions."""

    species: str
    """NCBI taxon id."""
    proteins: tuple[str, ...]
    """Names, ``<taxon>.<name>``, sorted; proteins without partners are included."""
    offsets: Integer[np.ndarray, "Np1"]
    """Partners of protein ``p`` are ``partners[offsets[p]:offsets[p + 1]]``, in descending order of
    the combined score, ties by name."""
    partners: Integer[np.ndarray, "M2"]
    """Partners of all proteins, one protein after the other; contains each interaction twice."""
    once_offsets: Integer[np.ndarray, "Np1"]
    """Offsets of ``once_partners``, which contains each interaction once, at its protein of lower
    degree, so that no protein has many."""
    once_partners: Integer[np.ndarray, "M"]
    """Other protein of each interaction."""
    once_codes: Integer[np.ndarray, "M"]
    """Channels of each interaction as bits; the first channel is the lowest bit."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Number of lines, and of interactions that were dropped or kept, by reason."""

    @property
    def degrees(self) -> Integer[np.ndarray, "N"]:
        """Number of partners of each protein."""
        return np.diff(self.offsets)


def build_network(
    interactions: Interactions, options: ProteinOptions | None = None
) -> ProteinNetwork:
    """Return the network of the interactions that reach the thresholds.

    Self-loops are dropped. The two directions of an interaction and repeated lines are merged; if
    their scores differ, the largest of each channel is used.
    """
    options = options or ProteinOptions()
    n = len(interactions.proteins)
    low, high = np.sort(interactions.pairs.astype(np.int64), axis=1).T
    proper = low != high
    key, inverse, repeats = np.unique(
        (low * n + high)[proper], return_inverse=True, return_counts=True
    )
    forward = np.bincount(inverse, np.less(*interactions.pairs[proper].T))
    scores = interactions.scores[proper].astype(np.int16)
    if len(key):
        starts = np.cumsum(repeats) - repeats
        scores = np.maximum.reduceat(scores[np.argsort(inverse, kind="stable")], starts, axis=0)
    is_set = scores[:, :-1] >= options.channel_scores
    codes = (is_set << np.arange(len(CHANNELS))).sum(axis=1).astype(np.uint8)
    strong = (scores[:, -1] >= options.score) & (codes > 0)
    key, codes, strength = key[strong], codes[strong], scores[strong, -1].astype(np.int64)
    low, high = np.divmod(key, max(n, 1))
    here, there = np.concatenate([low, high]), np.concatenate([high, low])
    strongest_first = np.lexsort((there, -np.concatenate([strength, strength]), here))
    degree = np.bincount(here, minlength=n)
    low_keeps = degree[low] <= degree[high]  # ties go to the lower index
    keeper, other = np.where(low_keeps, low, high), np.where(low_keeps, high, low)
    once = np.lexsort((other, keeper))
    return ProteinNetwork(
        species=interactions.species,
        proteins=interactions.proteins,
        offsets=_offsets(degree),
        partners=there[strongest_first].astype(np.int32),
        once_offsets=_offsets(np.bincount(keeper, minlength=n)),
        once_partners=other[once].astype(np.int32),
        once_codes=codes[once],
        counts={
            "lines": len(interactions.pairs),
            "self-loops left out": int((~proper).sum()),
            "listed in one direction only": int(((forward == 0) | (forward == repeats)).sum()),
            "interactions below the thresholds": int((~strong).sum()),
            "interactions": int(strong.sum()),
        },
    )


def _offsets(counts: Integer[np.ndarray, "N"]) -> Integer[np.ndarray, "Np1"]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def read_interactions(
    path: Path | str, species: str | None = None, default_species: str | None = None
) -> Interactions:
    """Return the interactions of a network file, compressed or not.

    A table has either the columns ``protein1 protein2``, the seven channels and ``combined_score``
    (0 to 1000), such as STRING's ``protein.links.detailed``; or ``gene1 gene2 network weight``, a
    line for each kind of evidence, whose weight from 0 to 1 becomes the score of the channel given
    by :data:`EVIDENCE_CHANNELS`. If no ``species`` is given, it is found in the names of the
    proteins (``6239.2RSSE.1``) or else of the file (``6239.protein.links…``); if neither contains
    it, it is ``default_species``.
    """
    numbers: dict[str, int] = {}
    blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    with open_columns(path) as table:
        columns, parse, advice = (
            _STRING_COLUMNS,
            _string_scores,
            "use STRING's protein.links.detailed file (protein.links and protein.physical.links "
            "have no channels)",
        )
        if table.find("network") is not None and table.find("weight") is not None:
            columns, parse, advice = _EVIDENCE_COLUMNS, _evidence_scores, "rename the columns"
        for lines, (first, second, *scores) in table.blocks(table.find_all(columns, advice)):
            pairs = [
                [numbers.setdefault(n, len(numbers)) for n in names] for names in (first, second)
            ]
            blocks.append((lines, np.array(pairs).T, parse(path, lines, scores)))
    if not numbers:
        raise DataError(f"{path}: has a header but no interactions; name a file that has some.")
    lines, pairs, scores = map(np.concatenate, zip(*blocks, strict=True))
    taxon = species_of(next(iter(numbers)))
    file_taxon = species_of(Path(path).name) if ".protein." in Path(path).name else None
    species = species or taxon or file_taxon or default_species
    expected_taxon = species if taxon else None  # either all names contain their taxon, or none
    for name, number in numbers.items():
        name_taxon = species_of(name)
        if name_taxon != expected_taxon or not name.strip():
            line = int(lines[(pairs == number).any(axis=1).argmax()])
            found, expected = (
                f"of species {s}" if s else "of no species" for s in (name_taxon, expected_taxon)
            )
            problem = f"protein {name!a} is {found}, not {expected}; give each species its own file"
            if not name.strip():
                problem = "a protein has no name; fix the line"
            raise line_error(path, line, problem)
    if not species:
        raise DataError(
            f"{path}: does not tell the species; featurize it with its taxon id, as in "
            f"{setting('species', '6239')}, and use the store."
        )
    names = sorted(numbers)
    rank = np.empty(len(names), dtype=np.int64)
    rank[[numbers[name] for name in names]] = np.arange(len(names))
    proteins = tuple(names) if taxon else tuple(f"{species}.{name}" for name in names)
    return Interactions(species, proteins, rank[pairs], scores)


def _string_scores(
    path: Path | str, lines: Int[np.ndarray, "B"], columns: Sequence[tuple[str, ...]]
) -> Integer[np.ndarray, "B 8"]:
    scores = np.empty((len(lines), len(columns)), dtype=np.int16)
    for k, texts in enumerate(columns):
        try:
            values = np.fromiter(map(int, texts), dtype=np.int64, count=len(texts))
        except (ValueError, OverflowError):
            digits = [text.strip() for text in texts]
            values = np.array([int(d) if d.isdecimal() and len(d) < 9 else -1 for d in digits])
        wrong = (values < 0) | (values > 1000)
        if wrong.any():
            row = int(wrong.argmax())
            problem = f"a score must be a whole number from 0 to 1000, found {texts[row]!r}"
            raise line_error(path, int(lines[row]), problem)
        scores[:, k] = values
    return scores


def _evidence_scores(
    path: Path | str, lines: Int[np.ndarray, "B"], columns: Sequence[tuple[str, ...]]
) -> Integer[np.ndarray, "B 8"]:
    scores = np.zeros((len(lines), len(CHANNELS) + 1), dtype=np.int16)
    for row, (kind, text) in enumerate(zip(*columns, strict=True)):
        channel = EVIDENCE_CHANNELS.get(kind.lower(), kind.lower())
        if channel not in CHANNELS:
            known = ", ".join(sorted({*EVIDENCE_CHANNELS, *CHANNELS}))
            raise line_error(path, int(lines[row]), f"unknown evidence {kind!r}; known: {known}")
        try:
            weight = float(text)
        except ValueError:
            weight = -1.0
        if not 0 <= weight <= 1:
            problem = f"a weight must be a number from 0 to 1, found {text!r}"
            raise line_error(path, int(lines[row]), problem)
        scores[row, CHANNELS.index(channel)] = scores[row, -1] = round(1000 * weight)
    return scores


STATISTICS = (
    "proteins",
    "interactions",
    "partners of the center",
    "density",
    *(f"interactions by {name}" for name in CHANNELS),
    *(f"the center's by {name}" for name in CHANNELS),
)
"""Names of the columns of :func:`ego_statistics`; all except the density are log(1 + count)."""

_TABLE_ENTRIES = 1 << 22
"""Largest number of entries of the table in :func:`ego_networks`."""
_GRAPHS_PER_BATCH = 1024
_CODES = np.arange(1 << len(CHANNELS))[:, None]
_EDGE_ATTRIBUTES: Float[np.ndarray, "128 9"] = np.pad(
    (_CODES >> np.arange(len(CHANNELS)) & 1).astype(np.float32),
    ((0, 0), (0, len(PROTEIN.edge) - len(CHANNELS))),
)
"""Edge attributes of each code of channels (:attr:`ProteinNetwork.once_codes`)."""


def ego_networks(
    network: ProteinNetwork, centers: Integer[np.ndarray, "n"], options: ProteinOptions
) -> GraphChunk:
    """Return the ego-network of every center, with the center as node 0.

    The proteins of an ego-network are the center, then its partners in descending order of score,
    then the partners of these, and so on. ``options`` limit the partners followed from each
    protein, and then the number of proteins. All interactions between the proteins are kept.
    """
    n = len(network.proteins)
    # one row for each center that is cut at the same time; bounded in size for any network
    table = np.full((max(1, _TABLE_ENTRIES // max(n, 1)), n), -1, dtype=np.int32)
    parts = [
        _cut(network, centers[k : k + len(table)].astype(np.int64), options, table)
        for k in range(0, len(centers), len(table))
    ]
    node_counts, edge_counts, edge_index, codes = (
        np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)
    )
    return GraphChunk(
        node_counts=node_counts,
        edge_counts=edge_counts,
        x=np.ones((int(node_counts.sum()), 1), dtype=np.int64),
        edge_index=edge_index,
        edge_attr=_EDGE_ATTRIBUTES[codes],
        rows=centers.astype(np.int64),
        texts=[network.proteins[p] for p in centers.tolist()],
    )


def _cut(
    network: ProteinNetwork,
    centers: Int[np.ndarray, "b"],
    options: ProteinOptions,
    table: Integer[np.ndarray, "B N"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return node counts, edge counts, edges and their codes of the centers' ego-networks.

    ``table`` (centers by proteins) is scratch space, filled with -1 before and after the call.
    """
    n, position_at = table.shape[1], table.reshape(-1)
    member_graph, protein, position = _find_members(network, centers, options, position_at)
    entry = member_graph * n + protein
    position_at[entry] = position
    starts = network.once_offsets[protein]
    counts = network.once_offsets[protein + 1] - starts
    interactions = ragged_ranges(starts, counts)
    graph, here = np.repeat(member_graph, counts), np.repeat(position, counts)
    there = position_at[graph * n + network.once_partners[interactions]]
    position_at[entry] = -1
    inside = there >= 0
    here, there = here[inside], there[inside]
    return (
        np.bincount(member_graph, minlength=len(centers)),
        np.bincount(graph[inside], minlength=len(centers)),
        np.stack([np.minimum(here, there), np.maximum(here, there)]),
        network.once_codes[interactions[inside]],
    )


def _find_members(
    network: ProteinNetwork,
    centers: Int[np.ndarray, "b"],
    options: ProteinOptions,
    seen: Integer[np.ndarray, "C"],
) -> tuple[Int[np.ndarray, "V"], Int[np.ndarray, "V"], Int[np.ndarray, "V"]]:
    """Return graph, protein and position of each node; ``seen`` is scratch space as in _cut."""
    n = len(network.proteins)
    reached = [np.arange(len(centers)) * n + centers]
    seen[reached[0]] = 0
    for _ in range(options.radius):
        graph, protein = np.divmod(reached[-1], n)
        starts = network.offsets[protein]
        counts = np.minimum(network.offsets[protein + 1] - starts, options.neighbors)
        entry = np.repeat(graph, counts) * n + network.partners[ragged_ranges(starts, counts)]
        entry = entry[seen[entry] < 0]
        _, first = np.unique(entry, return_index=True)
        reached.append(entry[np.sort(first)])
        seen[reached[-1]] = 0
    entries = np.concatenate(reached)
    seen[entries] = -1
    entries = entries[np.argsort(entries // n, kind="stable")]
    graph, protein = np.divmod(entries, n)
    sizes = np.bincount(graph, minlength=len(centers))
    position = np.arange(len(entries)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = position < options.nodes
    return graph[kept], protein[kept], position[kept]


def ego_statistics(store: GraphStore) -> Float32[np.ndarray, "M 18"]:
    """Return the :data:`STATISTICS` of each ego-network."""
    parts = [np.empty((0, len(STATISTICS)), np.float32)]
    for start in range(0, len(store), _GRAPHS_PER_BATCH):
        batch = store[start : start + _GRAPHS_PER_BATCH]
        count = batch.num_graphs
        source, graph = batch.edge_index[0].numpy(), batch.batch.numpy()
        channels = batch.edge_attr.numpy()[:, : len(CHANNELS)].astype(np.float64)
        edge_graph = graph[source]
        is_center = source == batch.ptr[:-1].numpy()[edge_graph]
        nodes = batch.sizes.numpy().astype(np.float64)
        edges = np.bincount(edge_graph, minlength=count) / 2
        density = edges / np.maximum(nodes * (nodes - 1) / 2, 1)
        by_channel = [np.bincount(edge_graph, column, count) / 2 for column in channels.T]
        centers = edge_graph[is_center]
        of_center = [np.bincount(centers, column, count) for column in channels[is_center].T]
        partners = np.bincount(centers, minlength=count)
        counts = np.stack([nodes, edges, partners, *by_channel, *of_center], axis=1)
        parts.append(np.insert(np.log1p(counts), 3, density, axis=1).astype(np.float32))
    return np.concatenate(parts)
