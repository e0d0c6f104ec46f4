"""The Gene Ontology as a graph: which terms are broader than which, and what an annotation therefore says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_matrix

from graphlog.domains.protein.options import ProteinOptions

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
