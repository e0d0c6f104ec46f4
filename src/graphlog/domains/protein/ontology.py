"""The Gene Ontology: read from OBO or tables; which terms hold together, which make good labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_matrix

from graphlog.domains.protein.schema import ProteinOptions
from graphlog.domains.protein.tables import line_error, open_columns
from graphlog.errors import DataError
from graphlog.files import open_text

ROOTS = frozenset({"GO:0008150", "GO:0003674", "GO:0005575", "all"})
"""Terms that hold for everything and carry no information."""
_ASPECTS = {
    **{"biological_process": "BP", "molecular_function": "MF", "cellular_component": "CC"},
    **{"p": "BP", "f": "MF", "c": "CC"},
}
_RELATIONS = {"isa": "is_a", "part of": "part_of"}


@dataclass(frozen=True, slots=True, eq=False)
class Ontology:
    """Terms, and the relations along which annotations also hold for broader terms."""

    terms: tuple[str, ...]
    """Ids of the terms in use."""
    aspects: tuple[str, ...]
    """``BP``, ``MF`` or ``CC`` of each."""
    names: tuple[str, ...]
    """Name of each."""
    parents: csr_matrix
    """``parents[t, u]`` is nonzero where ``u`` is directly broader than ``t``."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other ids of terms: merged ones, and obsolete ones with a single replacement."""
    obsolete: frozenset[str] = frozenset()
    """Ids out of use without a replacement."""

    @property
    def numbers(self) -> dict[str, int]:
        """Number of each id, including other ids of a term."""
        known = {term: k for k, term in enumerate(self.terms)}
        return {other: known[term] for other, term in self.renamed.items() if term in known} | known


def pair_matrix(pairs: Sequence[tuple[int, int]], shape: tuple[int, int]) -> csr_matrix:
    """Return the sparse matrix that counts ``(row, column)`` pairs."""
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return csr_matrix((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=shape)


def propagate(direct: csr_matrix, parents: csr_matrix) -> csr_matrix:
    """Return ``direct`` (rows of terms) with every broader term added; cycles are no problem."""
    known = fresh = _binary(direct)
    while fresh.nnz:
        reached = _binary(fresh @ parents)
        fresh = _binary(reached - reached.multiply(known).tocsr())
        known = _binary(known + fresh)
    return known


def _binary(matrix: csr_matrix) -> csr_matrix:
    made = csr_matrix(matrix, dtype=np.int32)
    made.eliminate_zeros()
    made.data[:] = 1
    return made


def choose_terms(
    holds: csr_matrix, ontology: Ontology, options: ProteinOptions
) -> Int[np.ndarray, "T"]:
    """Return the terms that make good labels, largest first, ties by id.

    Candidates are the terms of the requested branches that have enough positive proteins while no
    narrower term has. From the largest down, a candidate is chosen if it overlaps little with each
    one chosen before.

    Args:
        holds: Proteins by terms, after :func:`propagate`.
        ontology: The terms of the columns.
        options: Branches, fewest positives, largest overlap, number of terms.
    """
    positives = np.asarray(holds.sum(axis=0)).reshape(-1)
    terms = np.array(ontology.terms)
    allowed = np.isin(np.array(ontology.aspects), options.aspects) & ~np.isin(terms, list(ROOTS))
    large = np.flatnonzero(allowed & (positives >= options.min_positives))
    if not len(large):
        return large
    themselves = pair_matrix(list(enumerate(large.tolist())), (len(large), len(terms)))
    broader = propagate(themselves, ontology.parents) - themselves
    is_broader = np.asarray(broader[:, large].sum(axis=0)).reshape(-1) > 0
    candidates = large[~is_broader].tolist()
    order = sorted(candidates, key=lambda t: (-int(positives[t]), ontology.terms[t]))
    columns = holds[:, order].astype(np.int64)
    shared = (columns.T @ columns).toarray()
    sizes = np.diag(shared)
    overlap = shared / (sizes[:, None] + sizes[None, :] - shared)
    chosen: list[int] = []
    for k in range(len(order)):
        if len(chosen) < options.terms and (overlap[k, chosen] < options.max_overlap).all():
            chosen.append(k)
    return np.array(order, dtype=np.int64)[chosen]


def read_ontology(
    path: Path | str, terms: Path | str | None = None, options: ProteinOptions | None = None
) -> Ontology:
    """Return the Gene Ontology.

    Args:
        path: ``go-basic.obo``, or a table with the columns ``child parent relation``.
        terms: For such a table, one with the columns ``go_id aspect name``.
        options: Says which relations count.

    Raises:
        DataError: If a file is neither, or a relation refers to an unknown term.
    """
    relations = (options or ProteinOptions()).relations
    with open_text(path) as lines:
        if next(lines, "").startswith("format-version"):
            return _read_obo(lines, path, relations)
    if terms is None:
        raise DataError(
            f"{path}: not an OBO file; with a table of edges, give a table of terms (go_terms)."
        )
    return _read_tables(path, terms, relations)


def _read_tables(path: Path | str, terms: Path | str, relations: tuple[str, ...]) -> Ontology:
    rows: list[tuple[str, str, str]] = []
    with open_columns(terms) as table:
        for block in table.blocks(("go_id", "aspect", "name"), "list the terms in such a table"):
            rows += zip(*block.columns, strict=True)
    ids, aspects, names = zip(*rows, strict=True) if rows else ((), (), ())
    numbers = {term: k for k, term in enumerate(ids)}
    ignored = ROOTS - numbers.keys()
    edges: list[tuple[int, int]] = []
    with open_columns(path) as table:
        for block in table.blocks(("child", "parent", "relation"), "list the relations so"):
            for line, child, parent, relation in zip(
                block.lines.tolist(), *block.columns, strict=True
            ):
                if _RELATIONS.get(relation, relation) not in relations or parent in ignored:
                    continue
                for term in (child, parent):
                    if term not in numbers:
                        problem = f"unknown term {term}; {terms} does not list it"
                        raise line_error(path, line, problem)
                edges.append((numbers[child], numbers[parent]))
    branches = tuple(_ASPECTS.get(str(aspect).lower(), str(aspect)) for aspect in aspects)
    return Ontology(ids, branches, names, pair_matrix(edges, (len(ids), len(ids))))


def _read_obo(lines: Iterator[str], path: Path | str, relations: tuple[str, ...]) -> Ontology:
    terms: list[tuple[str, str, str]] = []
    links: list[tuple[int, str, str]] = []
    renamed: dict[str, str] = {}
    obsolete: set[str] = set()
    for line, tags in _term_stanzas(lines):
        if "id" not in tags:
            raise line_error(path, line, "a term has no id; download the file again")
        term = tags["id"][0]
        if tags.get("is_obsolete") == ["true"]:
            replacements = tags.get("replaced_by", [])
            if len(replacements) == 1:
                renamed[term] = replacements[0]
            else:
                obsolete.add(term)
            continue
        aspect = _ASPECTS.get(tags.get("namespace", [""])[0], "")
        terms.append((term, aspect, tags.get("name", [""])[0]))
        renamed |= dict.fromkeys(tags.get("alt_id", []), term)
        broader = [f"is_a {parent}" for parent in tags.get("is_a", [])]
        for relation, _, parent in (
            r.partition(" ") for r in broader + tags.get("relationship", [])
        ):
            if relation in relations:
                links.append((line, term, parent))
    if not terms:
        raise DataError(f"{path}: holds no term; use the Gene Ontology's go-basic.obo.")
    ids, aspects, names = zip(*terms, strict=True)
    numbers = {term: k for k, term in enumerate(ids)}
    for line, term, parent in links:
        if parent not in numbers:
            problem = f"{term} is below {parent}, which is not there or obsolete"
            raise line_error(path, line, f"{problem}; download the file again")
    edges = [(numbers[term], numbers[parent]) for _, term, parent in links]
    parents = pair_matrix(edges, (len(ids), len(ids)))
    return Ontology(ids, aspects, names, parents, renamed, frozenset(obsolete))


def _term_stanzas(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, list[str]]]]:
    """Yield line and tags of every ``[Term]`` after the first line; comments are cut off."""
    start, tags = 0, None
    for number, line in enumerate(map(str.strip, lines), start=2):
        if line.startswith("["):
            if tags is not None:
                yield start, tags
            start, tags = number, {} if line == "[Term]" else None
        elif tags is not None and ":" in line:
            tag, _, value = line.partition(":")
            tags.setdefault(tag, []).append(value.partition(" ! ")[0].partition(" {")[0].strip())
    if tags is not None:
        yield start, tags
