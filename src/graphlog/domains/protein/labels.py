"""Protein functions as labels, from a table, or from annotations and the Gene Ontology."""

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from graphlog.data.tables import ABSENT, listed
from graphlog.domains.protein.schema import ProteinOptions
from graphlog.domains.protein.tables import ColumnTable, line_error, open_columns
from graphlog.errors import DataError
from graphlog.files import open_text

ROOTS = ("GO:0008150", "GO:0003674", "GO:0005575")
"""Roots of the three branches of the ontology, which hold for every protein."""
_BRANCHES = ("biological_process", "molecular_function")
"""Branches of the ontology from which labels are chosen."""
_GAF_FIELDS = 15
"""Smallest number of fields in a line of a GAF file."""
_ISOFORM = re.compile(r"(?<=\d)[a-z]$")
_WORM = "6239"
"""Species in which a letter at the end of a name means an isoform; in other species, such names are
different genes (hoxb1a, hoxb1b)."""
_STRAINS = {"559292": "4932", "83333": "511145"}
"""Species in STRING by the taxon of the strain in annotation files, of yeast and E. coli."""
_COMPLEX = "GO:0032991"
"""Term ``protein-containing complex``."""
_LIST_COLUMNS = ("go_terms", "complexes", "terms")
"""Names of a column that lists the functions of each protein."""


@dataclass(frozen=True, slots=True, eq=False)
class Ontology:
    """Terms and their broader terms, for which annotations hold too."""

    terms: tuple[str, ...]
    """Ids of the terms that are not obsolete."""
    branches: tuple[str, ...]
    """Branch of each term, such as ``biological_process``."""
    parents: csr_matrix
    """``parents[t, u]`` is true if term ``u`` is directly broader than term ``t``."""
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Index of the term of each id, including merged ids and obsolete ones with one replacement."""
    obsolete: frozenset[str] = frozenset()
    """Obsolete ids without a single replacement."""


def pair_matrix(pairs: Sequence[tuple[int, int]], shape: tuple[int, int]) -> csr_matrix:
    """Return a sparse Boolean matrix that is true at the given ``(row, column)`` pairs."""
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return csr_matrix((np.ones(len(rows), dtype=np.bool_), (rows, columns)), shape=shape)


def propagate(direct: csr_matrix, parents: csr_matrix) -> csr_matrix:
    """Return the annotations ``direct`` (a column for each term) with all broader terms added.

    ``parents`` is as in :class:`Ontology`, and may contain cycles.
    """
    known = fresh = direct
    while fresh.nnz:
        fresh = csr_matrix(fresh @ parents > known)  # Booleans: reached, and not yet known
        known = known + fresh
    return known


def choose_terms(
    holds: csr_matrix, ontology: Ontology, options: ProteinOptions
) -> Int[np.ndarray, "T"]:
    """Return the indices of the terms chosen as labels, by descending number of proteins.

    Column ``t`` of ``holds`` is true for the proteins with term ``t``. Candidates are the processes
    and functions that have enough positive proteins, and no narrower term that has enough. From the
    largest to the smallest, ties by id, a candidate is chosen if it overlaps little with all terms
    chosen before it.
    """
    positives = np.asarray(holds.sum(axis=0)).reshape(-1)
    allowed = np.isin(ontology.branches, _BRANCHES) & ~np.isin(ontology.terms, ROOTS)
    large = np.flatnonzero(allowed & (positives >= options.min_positives))
    if not len(large):
        return large
    is_broader = propagate(ontology.parents[large], ontology.parents)[:, large].toarray()
    np.fill_diagonal(is_broader, val=False)
    candidates = large[~is_broader.any(axis=0)].tolist()
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


def read_ontology(path: Path | str) -> Ontology:
    """Return the Gene Ontology of an OBO file such as ``go-basic.obo``."""
    branches: dict[str, str] = {}
    links: list[tuple[int, str, str]] = []
    renamed: dict[str, str] = {}
    obsolete: set[str] = set()
    with open_text(path) as lines:
        if not next(lines, "").startswith("format-version"):
            raise DataError(f"{path}: not an OBO file; use the Gene Ontology's go-basic.obo.")
        for line, tags in _term_stanzas(lines):
            if "id" not in tags:
                raise line_error(path, line, "a term has no id; download the file again")
            term, successors = tags["id"][0], tags.get("replaced_by", [])
            if tags.get("is_obsolete") != ["true"]:
                branches[term] = tags.get("namespace", [""])[0]
                renamed |= dict.fromkeys(tags.get("alt_id", []), term)
                related = (text.split() for text in tags.get("relationship", []))
                parts = [words[-1] for words in related if words[:1] == ["part_of"]]
                links += [(line, term, broader) for broader in tags.get("is_a", []) + parts]
            elif len(successors) == 1:
                renamed[term] = successors[0]
            else:
                obsolete.add(term)
    if not branches:
        raise DataError(f"{path}: holds no term; use the Gene Ontology's go-basic.obo.")
    numbers = {term: k for k, term in enumerate(branches)}
    for term in renamed:
        ids = [term]  # a replacement may be replaced too, even in a cycle
        while (following := renamed.get(ids[-1], "")) and following not in ids:
            ids.append(following)
        renamed[term] = ids[-1]
    for line, term, parent in links:
        if parent not in numbers:
            problem = f"{term!r} is below {parent!r}, which is not there or obsolete"
            raise line_error(path, line, f"{problem}; download the file again")
    edges = [(numbers[term], numbers[parent]) for _, term, parent in links]
    others = {other: numbers[term] for other, term in renamed.items() if term in numbers}
    obsolete |= renamed.keys() - others.keys()
    return Ontology(
        tuple(branches),
        tuple(branches.values()),
        pair_matrix(edges, (len(branches), len(branches))),
        others | numbers,
        frozenset(obsolete),
    )


def _term_stanzas(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, list[str]]]]:
    """Yield line number and tags of each ``[Term]`` without comments; ``lines`` start at line 2."""
    start, tags = 0, None
    for number, line in enumerate(chain(map(str.strip, lines), ["["]), start=2):
        if line.startswith("["):
            if tags is not None:
                yield start, tags
            start, tags = number, {} if line.partition("!")[0].strip() == "[Term]" else None
        elif tags is not None and ":" in line:
            tag, _, value = line.partition(":")
            tags.setdefault(tag, []).append(value.partition("!")[0].partition("{")[0].strip())


def read_aliases(paths: Sequence[Path | str]) -> dict[str, dict[str, str]]:
    """Return the proteins of STRING's ``protein.aliases`` files by species and alias.

    An alias of several proteins of a species is left out.
    """
    proteins: dict[str, dict[str, str]] = {}
    ambiguous: set[tuple[str, str]] = set()
    for path in paths:
        with open_columns(path) as table:
            names = ("string_protein_id|protein", "alias")
            indices = table.find_all(names, "use STRING's protein.aliases file")
            for _, columns in table.blocks(indices):
                for protein, alias in zip(*columns, strict=True):
                    species = protein.partition(".")[0]
                    if proteins.setdefault(species, {}).setdefault(alias, protein) != protein:
                        ambiguous.add((species, alias))
    for species, alias in ambiguous:
        del proteins[species][alias]
    return proteins


class Functions:
    """Labels of the proteins of some networks; functions such as :func:`read_labels` fill them in.

    Files of labels may name a protein in several ways. In each species, a name is looked up among
    the proteins of the network, then among the genes (of the worm only, where ``D1.2`` means all
    isoforms, ``D1.2a`` and ``D1.2b``), then among the aliases. A name that is found in several
    species is not used.
    """

    def __init__(
        self, proteins: Sequence[str], aliases: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.proteins, self._aliases = proteins, aliases or {}
        self.tasks: tuple[str, ...] = ()
        """Ids of the functions."""
        self.values: Float[np.ndarray, "N T"] = np.zeros((len(proteins), 0))
        """Labels: 1 if a protein has the function, 0 if it has not or this is unknown; NaN in the
        row of a protein without usable annotations."""
        self.unmatched: dict[str, str] = {}
        """Reason for each name and term that could not be used, with the line that has it first."""
        self.counts: dict[str, int] = {}
        """Number of files, and of annotations that are used or ignored on purpose, by reason."""

    @cached_property
    def indices(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Indices of the proteins of each name, by species."""
        indices: dict[str, dict[str, tuple[int, ...]]] = {}
        genes: dict[str, tuple[int, ...]] = {}
        for k, protein in enumerate(self.proteins):
            species, _, name = protein.partition(".")
            table = indices.setdefault(species, {})
            table[protein] = (k,)
            table.setdefault(name, (k,))
            if species == _WORM:
                gene = _ISOFORM.sub("", name)
                genes[gene] = (*genes.get(gene, ()), k)
        for species, table in indices.items():
            aliases = self._aliases.get(species, {}).items()
            others = {alias: table[protein] for alias, protein in aliases if protein in table}
            indices[species] = others | (genes if species == _WORM else {}) | table
        return indices

    def is_gene(self, name: str, members: Sequence[int]) -> bool:
        """Return whether ``name`` is that of the gene of ``members``, and not of one of them."""
        isoforms = [self.proteins[member].partition(".")[2] for member in members]
        return name not in isoforms and name in [_ISOFORM.sub("", isoform) for isoform in isoforms]

    def start_counts(self, files: int) -> None:
        """Set the number of files, and all numbers of annotations to 0."""
        kinds = ("with left-out evidence", "negated (NOT)", "used")
        self.counts = {"files": files, **dict.fromkeys(kinds, 0)}

    def find(self, names: Sequence[str], species: str | None = None) -> tuple[tuple[int, ...], str]:
        """Return the proteins of the first of ``names`` that fits one species, or else the reason.

        Without a ``species``, names are looked up in all of them.
        """
        tables = self.indices.values() if species is None else [self.indices.get(species, {})]
        problem = ""
        for name in names:
            matches = [table[name] for table in tables if name in table]
            if len(matches) == 1:
                return matches[0], ""
            if matches and not problem:
                choices = " or ".join(self.proteins[members[0]] for members in matches[:2])
                problem = f"fits {len(matches)} species; write {choices}"
        return (), problem or "is in no network"

    def rows(
        self, table: ColumnTable, indices: Sequence[int]
    ) -> Iterator[tuple[int, str, tuple[int, ...], tuple[str, ...]]]:
        """Yield line number, name, indices of its proteins and other columns of each line.

        The name is in the first of the columns ``indices``. Names that are not found are recorded.
        """
        for lines, (names, *columns) in table.blocks(indices):
            cells = zip(*columns, strict=True)
            for line, name, others in zip(lines.tolist(), names, cells, strict=True):
                members, problem = self.find((name,))
                if members:
                    self.counts["used"] += 1
                else:
                    self.skip(name, table.path, line, f"has labels but {problem}")
                yield line, name, members, others

    def skip(self, text: str, path: Path | str, line: int, reason: str) -> None:
        """Record a name or term that cannot be used."""
        self.unmatched.setdefault(text, f"{path}, line {line}: {reason}")

    def start_labels(self, tasks: Sequence[str]) -> Float[np.ndarray, "N T"]:
        """Set the names of the functions, and return their labels, which are all NaN."""
        self.tasks = tuple(tasks)
        self.values = np.full((len(self.proteins), len(tasks)), np.nan, dtype=np.float32)
        return self.values

    def label_terms(
        self,
        pairs: Sequence[tuple[int, int]],
        ontology: Ontology,
        options: ProteinOptions,
        path: Path | str,
    ) -> None:
        """Set the labels to the terms that :func:`choose_terms` chooses.

        ``pairs`` are the protein and the term of each annotation in the file ``path``.
        """
        shape = (len(self.proteins), len(ontology.terms))
        holds = propagate(pair_matrix(pairs, shape), ontology.parents)
        chosen = choose_terms(holds, ontology, options)
        if not len(chosen):
            raise DataError(
                f"{path}: no term has {options.min_positives} positive proteins; lower "
                "min_positives, or check that the species is the same."
            )
        is_annotated = np.asarray(holds.sum(axis=1)).reshape(-1) > 0
        values = self.start_labels([ontology.terms[t] for t in chosen])
        values[is_annotated] = holds[is_annotated][:, chosen].toarray()


def read_annotations(
    functions: Functions, files: Sequence[Path | str], ontology: Ontology, options: ProteinOptions
) -> None:
    """Set labels from GO annotation files (GAF 2.x), for the terms that are chosen.

    Annotations with evidence codes to ignore, and those that say NOT, are not used. A name is
    looked up in the species of its line. If no line of a file is of a species of the networks, all
    names of the file are looked up in every species, with a warning.
    """
    pairs: list[tuple[int, int]] = []
    functions.start_counts(len(files))
    for path in files:
        taxa = dict.fromkeys(_taxon(fields, functions.indices) for _, fields in _gaf_lines(path))
        has_species = not functions.indices.keys().isdisjoint(taxa)
        if taxa and not has_species:
            known, others = (listed(list(species)) for species in (functions.indices, taxa))
            warnings.warn(
                f"{path}: no line is of species {known}; its annotations of taxon {others} are "
                "taken for these where names agree; check that the file is of the same species",
                stacklevel=2,
            )
        for line, fields in _gaf_lines(path):
            species = _taxon(fields, functions.indices) if has_species else None
            names = [name for name in (fields[1], fields[2], *fields[10].split("|")) if name]
            go_id, (members, problem) = fields[4], functions.find(names, species)
            term = ontology.numbers.get(go_id)
            if fields[6].upper() in options.evidence:
                functions.counts["with left-out evidence"] += 1
            elif "NOT" in fields[3].split("|"):
                functions.counts["negated (NOT)"] += 1
            elif term is None:
                reason = "is not a term of the ontology"
                if go_id in ontology.obsolete:
                    reason = "is obsolete and has no single replacement"
                functions.skip(go_id, path, line, reason)
            elif not members:
                name = names[0] if names else ""
                functions.skip(name, path, line, f"is annotated but {problem}")
            else:
                pairs += [(member, term) for member in members]
                functions.counts["used"] += 1
    functions.label_terms(pairs, ontology, options, files[0])


def _taxon(fields: Sequence[str], known: Collection[str]) -> str:
    """Return the species of an annotation, that of STRING for a strain."""
    # a second taxon is that of an organism with which the first interacts
    taxon = fields[12].partition("|")[0].removeprefix("taxon:")
    species = _STRAINS.get(taxon, taxon)
    return species if species in known and taxon not in known else taxon


def _gaf_lines(path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of each line that is not a comment."""
    with open_text(path) as lines:
        if not next(lines, "").startswith("!"):
            raise DataError(f"{path}: not a GAF file (these begin with !gaf-version).")
        for number, line in enumerate(lines, start=2):
            if line.startswith("!") or not line.strip():
                continue
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) < _GAF_FIELDS:
                problem = f"has {len(fields)} fields, but a GAF line has at least {_GAF_FIELDS}"
                raise line_error(path, number, f"{problem}; download the file again")
            yield number, fields


def read_labels(functions: Functions, path: Path | str, options: ProteinOptions) -> None:
    """Set labels from a table with a column ``protein`` or ``gene``.

    Each other column holds the labels, 0 or 1, of one function. Instead, a single column
    ``go_terms``, ``complexes`` or ``terms`` may list the functions of each protein; some of them
    are chosen as for annotations.
    """
    functions.start_counts(1)
    with open_columns(path) as table:
        name_column = table.find("protein|gene")
        others = [k for k in range(len(table.header)) if k != name_column]
        columns = [table.header[k] for k in others]
        is_distinct = all(columns) and len(set(columns)) == len(columns)
        if name_column is None or not columns or not is_distinct:
            problem = "must have a column protein and one or more labels, each with its own name"
            raise DataError(f"{path}: {problem}, found {listed(table.header)}.")
        rows = functions.rows(table, (name_column, *others))
        if len(columns) == 1 and columns[0].lower() in _LIST_COLUMNS:
            pairs: list[tuple[int, int]] = []
            numbers: dict[str, int] = {}
            for _, _, members, (text,) in rows:
                if text.strip().lower() in ABSENT:
                    continue
                for function in re.findall(r"[^\s,;]+", text):
                    number = numbers.setdefault(function, len(numbers))
                    pairs += [(member, number) for member in members]
            shape = (len(numbers), len(numbers))
            flat = Ontology(tuple(numbers), _BRANCHES[:1] * len(numbers), pair_matrix([], shape))
            functions.label_terms(pairs, flat, options, path)
            return
        values = functions.start_labels(columns)
        is_from_gene: dict[int, bool] = {}  # whether the labels of a protein are those of its gene
        for line, name, members, texts in rows:
            labels = list(map(_label_of, texts))
            if None in labels:
                wrong = labels.index(None)
                problem = f"a label must be 0, 1 or empty, found {texts[wrong]!r}"
                problem += f" in column '{columns[wrong]}'"
                raise line_error(path, line, problem)
            if not {0.0, 1.0}.intersection(labels):
                continue
            is_gene = functions.is_gene(name, members)
            if any(is_from_gene.get(member) == is_gene for member in members):
                problem = f"'{name}' has labels already; give each protein one line"
                raise line_error(path, line, problem)
            # the line of a protein has priority over that of its gene
            members = [m for m in members if not is_gene or m not in is_from_gene]
            values[members] = labels
            is_from_gene |= dict.fromkeys(members, is_gene)


@lru_cache
def _label_of(text: str) -> float | None:
    """Return a label, NaN if it is missing, or None if it is not valid."""
    if text.strip().lower() in ABSENT:
        return float("nan")
    with suppress(ValueError):
        return value if (value := float(text)) in (0, 1) else None
    return None


def read_complexes(functions: Functions, annotated: Path, complexes: Path) -> None:
    """Set one label, ``in_complex``: whether a protein is known to be part of a complex.

    In the worm, it is whether the propagated terms of an annotated protein include
    ``protein-containing complex``. In yeast, it is whether IntAct lists the protein in a complex.
    As for all functions, 0 means "no" or "unknown".
    """
    functions.start_counts(2)
    values = functions.start_labels(("in_complex",))
    values[[name.startswith("4932.") for name in functions.proteins]] = 0.0
    for path, columns, term in (
        (annotated, ("protein", "go_terms"), _COMPLEX),
        (complexes, ("gene", "complexes"), None),
    ):
        with open_columns(path) as table:
            indices = table.find_all(columns, "use the file of the data set")
            for _, _, members, (text,) in functions.rows(table, indices):
                values[list(members)] = float(term is None or term in text.split())
