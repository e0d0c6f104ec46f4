"""Functions of proteins as labels: from a table, or from annotations and the Gene Ontology."""

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
"""Terms that hold for everything and carry no information."""
_BRANCHES = ("biological_process", "molecular_function")
"""Branches of the ontology that labels are chosen from."""
_GAF_FIELDS = 15
_ISOFORM = re.compile(r"(?<=\d)[a-z]$")
_WORM = "6239"
"""The species whose isoforms end in a letter; elsewhere such names are genes, as hoxb1a, hoxb1b."""
_STRAINS = {"559292": "4932", "83333": "511145"}
"""Taxa that annotations of yeast and E. coli tell, and those of STRING."""
_COMPLEX = "GO:0032991"
_LIST_COLUMNS = ("go_terms", "complexes", "terms")


@dataclass(frozen=True, slots=True, eq=False)
class Ontology:
    """Terms, and the relations along which annotations also hold for broader terms."""

    terms: tuple[str, ...]
    """Ids of the terms in use."""
    branches: tuple[str, ...]
    """Branch of each, such as ``biological_process``."""
    parents: csr_matrix
    """``parents[t, u]`` is true where ``u`` is directly broader than ``t``."""
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of each id, those of merged terms and of obsolete ones with one successor too."""
    obsolete: frozenset[str] = frozenset()
    """Ids out of use without a replacement."""


def pair_matrix(pairs: Sequence[tuple[int, int]], shape: tuple[int, int]) -> csr_matrix:
    """Return the sparse matrix that is true at ``(row, column)`` pairs."""
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return csr_matrix((np.ones(len(rows), dtype=np.bool_), (rows, columns)), shape=shape)


def propagate(direct: csr_matrix, parents: csr_matrix) -> csr_matrix:
    """Return ``direct`` (rows of terms) with every broader term added; cycles are no problem."""
    known = fresh = direct
    while fresh.nnz:
        fresh = csr_matrix(fresh @ parents > known)  # of Booleans: reached, and not known yet
        known = known + fresh
    return known


def choose_terms(
    holds: csr_matrix, ontology: Ontology, options: ProteinOptions
) -> Int[np.ndarray, "T"]:
    """Return the terms that make good labels, largest first, ties by id.

    Candidates are the processes and functions that have enough positive proteins while no
    narrower term has. From the largest down, a candidate is chosen if it overlaps little with each
    one chosen before.
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
    """Return the Gene Ontology of an OBO file, ``go-basic.obo``."""
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
        passed = [term]
        while (last := renamed.get(passed[-1], "")) and last not in passed:
            passed.append(last)
        renamed[term] = passed[-1]
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
    """Yield line and tags of every ``[Term]`` after the first line; comments are cut off."""
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
    """Return the protein of each alias that is clear within its species, by species.

    The files are STRING's ``protein.aliases``.
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
                    of_species = proteins.setdefault(species, {})
                    if of_species.setdefault(alias, protein) != protein:
                        ambiguous.add((species, alias))
    for species, alias in ambiguous:
        del proteins[species][alias]
    return proteins


class Functions:
    """Labels of the proteins of some networks, found by the names that other files use.

    In each species, a name is looked up as written, then among aliases. The name of a gene of the
    worm stands for all its isoforms (``D1.2`` for ``D1.2a`` and ``D1.2b``). A name that is known in
    several species stands for none.
    """

    def __init__(
        self, proteins: Sequence[str], aliases: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.proteins, self._aliases = proteins, aliases or {}
        self.tasks: tuple[str, ...] = ()
        """Ids of the functions."""
        self.values: Float[np.ndarray, "N T"] = np.zeros((len(proteins), 0))
        """1: has it; 0: has it not, or unknown; NaN rows: proteins without usable annotation."""
        self.unmatched: dict[str, str] = {}
        """Proteins and terms that no network or ontology has, and where they occur first."""
        self.counts: dict[str, int] = {}
        """Number of annotations used, and ignored on purpose, by reason."""

    @cached_property
    def numbers(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Numbers of the proteins that each name stands for, by species."""
        number = {name: k for k, name in enumerate(self.proteins)}
        of_species: dict[str, list[str]] = {}
        for name in self.proteins:
            of_species.setdefault(name.partition(".")[0], []).append(name)
        numbers: dict[str, dict[str, tuple[int, ...]]] = {}
        for species, names in of_species.items():
            genes: dict[str, tuple[int, ...]] = {}
            for name in names if species == _WORM else ():
                gene = _ISOFORM.sub("", name.partition(".")[2])
                genes[gene] = (*genes.get(gene, ()), number[name])
            exact = {name.partition(".")[2]: (number[name],) for name in names}
            exact |= {name: (number[name],) for name in names}
            aliases = self._aliases.get(species, {})
            others = {a: (number[p],) for a, p in aliases.items() if p in number}
            numbers[species] = others | genes | exact
        return numbers

    def is_gene(self, name: str, members: Sequence[int]) -> bool:
        """Return whether a name is that of a gene, and not the own name of one of its isoforms."""
        own = [self.proteins[member].partition(".")[2] for member in members]
        return name not in own and name in [_ISOFORM.sub("", isoform) for isoform in own]

    def count_files(self, files: int) -> None:
        """Begin to count what is used of so many files."""
        kinds = ("with left-out evidence", "negated (NOT)", "used")
        self.counts = {"files": files, **dict.fromkeys(kinds, 0)}

    def find(self, names: Sequence[str], species: str | None = None) -> tuple[int, ...]:
        """Return the numbers for the first name that is clear; empty if none is."""
        found = (self._fitting(name, species) for name in names)
        return next((fitting[0] for fitting in found if len(fitting) == 1), ())

    def why_unclear(self, names: Sequence[str], species: str | None = None) -> str:
        """Return why :meth:`find` finds nothing."""
        for name in names:
            if fitting := self._fitting(name, species):
                written = " or ".join(self.proteins[members[0]] for members in fitting[:2])
                return f"fits {len(fitting)} species; write {written}"
        return "is in no network"

    def _fitting(self, name: str, species: str | None) -> list[tuple[int, ...]]:
        """Return the numbers for a name in each species that has it, or in the one given."""
        tables = self.numbers.values() if species is None else [self.numbers.get(species, {})]
        return [table[name] for table in tables if name in table]

    def rows(
        self, table: ColumnTable, indices: Sequence[int]
    ) -> Iterator[tuple[int, str, tuple[int, ...], tuple[str, ...]]]:
        """Yield the lines of a table: number, name, the proteins it stands for, other columns."""
        for lines, (names, *columns) in table.blocks(indices):
            cells = zip(*columns, strict=True)
            for line, name, own in zip(lines.tolist(), names, cells, strict=True):
                members = self.find((name,))
                self.counts["used"] += bool(members)
                if not members:
                    reason = f"has labels but {self.why_unclear((name,))}"
                    self.skip(name, table.path, line, reason)
                yield line, name, members, own

    def skip(self, text: str, path: Path | str, line: int, reason: str) -> None:
        """Remember what cannot be used."""
        self.unmatched.setdefault(text, f"{path}, line {line}: {reason}")

    def begin(self, tasks: Sequence[str]) -> Float[np.ndarray, "N T"]:
        """Name the functions and return their labels, all of which are missing yet."""
        self.tasks = tuple(tasks)
        self.values = np.full((len(self.proteins), len(tasks)), np.nan, dtype=np.float32)
        return self.values

    def choose(
        self,
        pairs: Sequence[tuple[int, int]],
        ontology: Ontology,
        options: ProteinOptions,
        path: Path | str,
    ) -> None:
        """Take the terms that ``choose_terms`` chooses, of proteins and terms in pairs."""
        shape = (len(self.proteins), len(ontology.terms))
        holds = propagate(pair_matrix(pairs, shape), ontology.parents)
        chosen = choose_terms(holds, ontology, options)
        if not len(chosen):
            raise DataError(
                f"{path}: no term has {options.min_positives} positive proteins; lower "
                "min_positives, or check that the species is the same."
            )
        is_known = np.asarray(holds.sum(axis=1)).reshape(-1) > 0
        values = self.begin([ontology.terms[t] for t in chosen])
        values[is_known] = holds[is_known][:, chosen].toarray()


def read_annotations(
    functions: Functions, files: Sequence[Path | str], ontology: Ontology, options: ProteinOptions
) -> None:
    """Take labels from GO annotation files (GAF 2.x), for the best terms.

    Annotations with ignored evidence and those that say NOT do not count. A name is looked up in
    the species of its line, but in every species where no line of the file has a species of the
    networks: it may tell the taxon of a strain (yeast: 559292, not 4932).
    """
    pairs: list[tuple[int, int]] = []
    functions.count_files(len(files))
    for path in files:
        taxa = dict.fromkeys(_taxon(fields, functions.numbers) for _, fields in _gaf_lines(path))
        tells = not functions.numbers.keys().isdisjoint(taxa)
        if taxa and not tells:
            known, others = (listed(list(species)) for species in (functions.numbers, taxa))
            warnings.warn(
                f"{path}: no line is of species {known}; its annotations of taxon {others} are "
                "taken for these where names agree; check that the file is of the same species",
                stacklevel=2,
            )
        for line, fields in _gaf_lines(path):
            species = _taxon(fields, functions.numbers) if tells else None
            called = [name for name in (fields[1], fields[2], *fields[10].split("|")) if name]
            go_id, members = fields[4], functions.find(called, species)
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
                why = functions.why_unclear(called, species)
                functions.skip(next(iter(called), ""), path, line, f"is annotated but {why}")
            else:
                pairs += [(member, term) for member in members]
                functions.counts["used"] += 1
    functions.choose(pairs, ontology, options, files[0])


def _taxon(fields: Sequence[str], known: Collection[str]) -> str:
    """Return the species of an annotation; a second taxon is of what it interacts with."""
    taxon = fields[12].partition("|")[0].removeprefix("taxon:")
    species = _STRAINS.get(taxon, taxon)
    return species if species in known and taxon not in known else taxon


def _gaf_lines(path: Path | str) -> Iterator[tuple[int, list[str]]]:
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
    """Take the labels of a table: ``protein`` and a 0/1 column for each, or a list for each.

    Of lists (a column ``go_terms``, ``complexes`` or ``terms``), the best functions become labels.
    """
    functions.count_files(1)
    with open_columns(path) as table:
        place = table.find("protein|gene")
        others = [k for k in range(len(table.header)) if k != place]
        columns = [table.header[k] for k in others]
        if place is None or not all(columns) or len(set(columns)) < max(len(columns), 1):
            problem = "must have a column protein and one or more labels, each with its own name"
            raise DataError(f"{path}: {problem}, found {listed(table.header)}.")
        rows = functions.rows(table, (place, *others))
        if len(columns) == 1 and columns[0].lower() in _LIST_COLUMNS:
            pairs: list[tuple[int, int]] = []
            numbers: dict[str, int] = {}
            for _, _, members, (text,) in rows:
                for function in re.findall(r"[^\s,;]+", text):
                    number = numbers.setdefault(function, len(numbers))
                    pairs += [(member, number) for member in members]
            shape = (len(numbers), len(numbers))
            flat = Ontology(tuple(numbers), _BRANCHES[:1] * len(numbers), pair_matrix([], shape))
            functions.choose(pairs, flat, options, path)
            return
        values = functions.begin(columns)
        of_gene: dict[int, bool] = {}
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
            if any(of_gene.get(member) == is_gene for member in members):
                problem = f"'{name}' has labels already; give each protein one line"
                raise line_error(path, line, problem)
            # the line of a protein counts more than that of its gene
            members = [m for m in members if not is_gene or m not in of_gene]
            values[members] = labels
            of_gene |= dict.fromkeys(members, is_gene)


@lru_cache
def _label_of(text: str) -> float | None:
    """Return a label, NaN where it is missing, or None where it is none."""
    if text.strip().lower() in ABSENT:
        return float("nan")
    with suppress(ValueError):
        return value if (value := float(text)) in (0, 1) else None
    return None


def read_complexes(functions: Functions, annotated: Path, complexes: Path) -> None:
    """Take one label: whether a protein is known to be part of a complex.

    For the worm: whether the propagated terms of an annotated protein include ``protein-containing
    complex``; for yeast: whether IntAct lists it in a complex. As with all functions, 0 is "no" or
    "unknown".
    """
    functions.count_files(2)
    values = functions.begin(("in_complex",))
    values[[name.startswith("4932.") for name in functions.proteins]] = 0.0
    for path, columns, term in (
        (annotated, ("protein", "go_terms"), _COMPLEX),
        (complexes, ("gene", "complexes"), None),
    ):
        with open_columns(path) as table:
            indices = table.find_all(columns, "use the file of the data set")
            for _, _, members, (text,) in functions.rows(table, indices):
                values[list(members)] = float(term is None or term in text.split())
