"""The Gene Ontology: read from OBO or tables; which terms hold with which, and which make labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_matrix

from graphlog.domains.protein.schema import ProteinOptions
from graphlog.domains.protein.tables import open_columns, peek
from graphlog.errors import DataError
from graphlog.files import open_text

ROOTS = frozenset({"GO:0008150", "GO:0003674", "GO:0005575", "all"})
"""Terms that hold for everything and say nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Ontology:
    """Terms and the relations along which annotations hold for broader terms."""

    terms: tuple[str, ...]
    """Ids of the terms in use."""
    aspects: tuple[str, ...]
    """``BP``, ``MF`` or ``CC`` of each."""
    names: tuple[str, ...]
    """What each is called."""
    parents: csr_matrix
    """``parents[t, u]`` is set where ``u`` is directly broader than ``t``."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other ids of terms: merged ones, and obsolete ones with a single replacement."""
    obsolete: frozenset[str] = frozenset()
    """Ids out of use without a replacement."""

    @property
    def number(self) -> dict[str, int]:
        """Place of each id, other ids of a term included."""
        known = {term: k for k, term in enumerate(self.terms)}
        return {other: known[term] for other, term in self.renamed.items() if term in known} | known


def parents_matrix(edges: Sequence[tuple[int, int]], size: int) -> csr_matrix:
    """Return the matrix of ``(narrower, broader)`` pairs."""
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return csr_matrix(
        (np.ones(len(pairs), dtype=np.int32), (pairs[:, 0], pairs[:, 1])), shape=(size, size)
    )


def propagate(direct: csr_matrix, parents: csr_matrix) -> csr_matrix:
    """Return, for rows of terms, all the terms that hold with them: every entry of ``direct`` and all that is broader.

    Ends also where terms are circular.
    """
    known = _binary(direct)
    fresh = known
    while fresh.nnz:
        reached = _binary(fresh @ parents)
        fresh = _binary(reached - reached.multiply(known).tocsr())
        known = _binary(known + fresh)
    return known


def choose_terms(
    holds: csr_matrix, ontology: Ontology, options: ProteinOptions
) -> Int[np.ndarray, "T"]:
    """Return the terms that make good labels, largest first, ties by id.

    Of the terms of the wanted branches with enough positive proteins, those are taken that have no narrower term with enough;
    from the largest down, a term is chosen if it overlaps little with each one chosen before.

    Args:
        holds: Proteins by terms, after :func:`propagate`.
        ontology: What the columns are.
        options: Branches, fewest positives, largest overlap, number of terms.
    """
    positives = np.asarray(holds.sum(axis=0)).reshape(-1)
    wanted = np.isin(np.array(ontology.aspects), options.aspects) & ~np.isin(
        np.array(ontology.terms), list(ROOTS)
    )
    able = np.flatnonzero(wanted & (positives >= options.min_positives))
    if not len(able):
        return able
    itself = csr_matrix(
        (np.ones(len(able), dtype=np.int32), (np.arange(len(able)), able)),
        shape=(len(able), len(ontology.terms)),
    )
    broader = propagate(itself, ontology.parents) - itself
    is_broader = np.asarray(broader[:, able].sum(axis=0)).reshape(-1) > 0
    narrowest = able[~is_broader]
    order = sorted(narrowest.tolist(), key=lambda t: (-int(positives[t]), ontology.terms[t]))
    columns = holds[:, order].astype(np.int64)
    shared = (columns.T @ columns).toarray()
    sizes = np.diag(shared)
    overlap = shared / (sizes[:, None] + sizes[None, :] - shared)
    chosen: list[int] = []
    for k in range(len(order)):
        if len(chosen) < options.terms and (overlap[k, chosen] < options.max_overlap).all():
            chosen.append(k)
    return np.array(order, dtype=np.int64)[chosen]


def _binary(matrix: csr_matrix) -> csr_matrix:
    made = csr_matrix(matrix, dtype=np.int32)
    made.eliminate_zeros()
    made.data[:] = 1
    return made


_ASPECTS = {
    "biological_process": "BP",
    "molecular_function": "MF",
    "cellular_component": "CC",
    "p": "BP",
    "f": "MF",
    "c": "CC",
}
_RELATIONS = {"isa": "is_a", "part of": "part_of"}
_Stanza = dict[str, list[str]]


def read_ontology(
    path: Path | str, terms: Path | str | None = None, options: ProteinOptions | None = None
) -> Ontology:
    """Return the Gene Ontology.

    Args:
        path: ``go-basic.obo``, or a table ``child parent relation``.
        terms: Beside such a table, one of ``go_id aspect name``.
        options: Says which relations count.

    Raises:
        DataError: If a file is neither, or a relation names a term that is not there.
    """
    relations = (options or ProteinOptions()).relations
    with open_text(path) as lines:
        first, every = peek(lines)
        if first.startswith("format-version"):
            return _from_stanzas(_stanzas(every), str(path), relations)
    if terms is None:
        raise DataError(
            f"{path}: is no OBO file; a table of edges needs one of terms beside it (go_terms)."
        )
    return _from_tables(path, terms, relations)


def _from_tables(path: Path | str, terms: Path | str, relations: tuple[str, ...]) -> Ontology:
    ids, aspects, names = ((),) * 3
    for _, (some_ids, some_aspects, some_names) in _rows(terms, ("go_id", "aspect", "name")):
        ids, aspects, names = ids + some_ids, aspects + some_aspects, names + some_names
    number = {term: k for k, term in enumerate(ids)}
    left_out = ROOTS - number.keys()
    edges: list[tuple[int, int]] = []
    for line, columns in _rows(path, ("child", "parent", "relation")):
        for k, (child, parent, relation) in enumerate(zip(*columns, strict=True)):
            if _RELATIONS.get(relation, relation) not in relations or parent in left_out:
                continue
            for term in (child, parent):
                if term not in number:
                    raise DataError(
                        f"{path}, line {line + k}: unknown term {term}; {terms} does not list it."
                    )
            edges.append((number[child], number[parent]))
    return Ontology(
        ids,
        tuple(_ASPECTS.get(a.lower(), a) for a in aspects),
        names,
        parents_matrix(edges, len(ids)),
    )


def _rows(path: Path | str, names: tuple[str, ...]) -> Iterator[tuple[int, list[tuple[str, ...]]]]:
    with open_columns(path) as table:
        places = [table.place(name) for name in names]
        if None in places:
            raise DataError(
                f"{path}: must have the columns {', '.join(names)}, found {', '.join(table.header[:6])}."
            )
        for block in table.blocks([p for p in places if p is not None]):
            yield block.first_line, block.columns


def _stanzas(lines: Iterator[str]) -> Iterator[tuple[int, _Stanza]]:
    """Yield every ``[Term]`` of an OBO file: values by tag, comments and qualifiers cut off."""
    stanza: _Stanza | None = None
    start = 0
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if line.startswith("["):
            if stanza is not None:
                yield start, stanza
            stanza, start = ({}, number) if line == "[Term]" else (None, number)
        elif stanza is not None and ":" in line:
            tag, _, value = line.partition(":")
            stanza.setdefault(tag, []).append(value.partition(" ! ")[0].partition(" {")[0].strip())
    if stanza is not None:
        yield start, stanza


def _from_stanzas(
    stanzas: Iterator[tuple[int, _Stanza]], where: str, relations: tuple[str, ...]
) -> Ontology:
    terms: list[tuple[str, str, str]] = []
    links: list[tuple[int, str, str]] = []
    renamed: dict[str, str] = {}
    obsolete: set[str] = set()
    for line, found in stanzas:
        if "id" not in found:
            raise DataError(f"{where}, line {line}: a term has no id; fetch the file again.")
        term = found["id"][0]
        if found.get("is_obsolete", ["false"])[0] == "true":
            replacements = found.get("replaced_by", [])
            if len(replacements) == 1:
                renamed[term] = replacements[0]
            else:
                obsolete.add(term)
            continue
        aspect = _ASPECTS.get(found.get("namespace", [""])[0], "")
        terms.append((term, aspect, found.get("name", [""])[0]))
        renamed |= dict.fromkeys(found.get("alt_id", []), term)
        broader = [("is_a", parent) for parent in found.get("is_a", [])]
        broader += [
            (kind, parent)
            for kind, _, parent in (r.partition(" ") for r in found.get("relationship", []))
        ]
        links += [(line, term, parent) for kind, parent in broader if kind in relations]
    if not terms:
        raise DataError(f"{where}: holds no term; give the Gene Ontology's go-basic.obo.")
    ids, aspects, names = zip(*terms, strict=True)
    number = {term: k for k, term in enumerate(ids)}
    for line, term, parent in links:
        if parent not in number:
            raise DataError(
                f"{where}, line {line}: {term} is below {parent}, which is not there or obsolete; fetch the file again."
            )
    edges = [(number[term], number[parent]) for _, term, parent in links]
    return Ontology(
        ids, aspects, names, parents_matrix(edges, len(ids)), renamed, frozenset(obsolete)
    )
