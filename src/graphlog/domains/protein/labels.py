"""Functions of proteins as labels: from GO annotations and an ontology, or from a table."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from graphlog.domains.protein.ontology import Ontology, choose_terms, parents_matrix, propagate
from graphlog.domains.protein.schema import ProteinOptions
from graphlog.domains.protein.tables import Block, open_columns, peek
from graphlog.errors import DataError
from graphlog.files import open_text

_GAF_FIELDS = 15
_ISOFORM = re.compile(r"(?<=\d)[a-z]$")


class Annotation(NamedTuple):
    """One statement about one gene product."""

    line: int
    """Line of the file."""
    names: tuple[str, ...]
    """Names of the gene product, the most telling first."""
    term: str
    """GO id."""
    evidence: str
    """Evidence code."""
    is_negated: bool
    """Whether the statement is that it does NOT have the function."""


def read_annotations(path: Path | str) -> Iterator[Annotation]:
    """Yield the annotations of a GAF file (2.x), or of a table with columns ``protein``, ``go_id``, ``evidence``, ``qualifier``.

    Raises:
        DataError: Naming file and line, if it is neither.
    """
    with open_text(path) as lines:
        first, every = peek(lines)
        if first.startswith("!"):
            yield from _gaf(every, str(path))
            return
    with open_columns(path) as table:
        names = ("protein", "go_id", "evidence", "qualifier")
        places = [table.place(name) for name in names]
        if None in places:
            raise DataError(
                f"{path}: is neither a GAF file (it would begin with !gaf-version) nor a table with {', '.join(names)}."
            )
        for block in table.blocks([p for p in places if p is not None]):
            for k, (protein, term, evidence, qualifier) in enumerate(
                zip(*block.columns, strict=True)
            ):
                yield Annotation(
                    block.first_line + k, (protein,), term, evidence, _negates(qualifier)
                )


def _gaf(lines: Iterator[str], where: str) -> Iterator[Annotation]:
    for number, line in enumerate(lines, start=1):
        if line.startswith("!") or not line.strip():
            continue
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) < _GAF_FIELDS:
            raise DataError(
                f"{where}, line {number}: has {len(fields)} fields, a GAF line has {_GAF_FIELDS} or more; fetch it again."
            )
        names = tuple(name for name in (fields[1], fields[2], *fields[10].split("|")) if name)
        yield Annotation(number, names, fields[4], fields[6], _negates(fields[3]))


def _negates(qualifier: str) -> bool:
    return "NOT" in qualifier.split("|")


def read_aliases(path: Path | str) -> dict[str, str]:
    """Return the protein of each alias in STRING's ``protein.aliases`` file; an alias of several proteins is left out."""
    found: dict[str, str] = {}
    shared: set[str] = set()
    with open_columns(path) as table:
        places = [table.place("string_protein_id", "protein"), table.place("alias")]
        if None in places:
            raise DataError(
                f"{path}: must have the columns string_protein_id and alias; give STRING's protein.aliases file."
            )
        for block in table.blocks([p for p in places if p is not None]):
            for protein, alias in zip(*block.columns, strict=True):
                if found.setdefault(alias, protein) != protein:
                    shared.add(alias)
    return {alias: protein for alias, protein in found.items() if alias not in shared}


class Names:
    """From names in annotations to proteins of a network: as written, through aliases, or without the letter of an isoform."""

    def __init__(self, proteins: Sequence[str], aliases: Mapping[str, str] | None = None) -> None:
        """Index ``proteins``, which are ``<taxon>.<name>``."""
        self._found: dict[str, tuple[int, ...]] = {}
        number = {name: k for k, name in enumerate(proteins)}
        bare = [name.partition(".")[2] for name in proteins]
        gene: dict[str, list[int]] = {}
        for k, name in enumerate(bare):
            gene.setdefault(_ISOFORM.sub("", name), []).append(k)
        self._found = {name: tuple(members) for name, members in gene.items()}
        self._found |= {name: (k,) for k, name in enumerate(bare)} | {
            name: (k,) for name, k in number.items()
        }
        for alias, protein in (aliases or {}).items():
            if protein in number:
                self._found.setdefault(alias, (number[protein],))

    def find(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the proteins of the first name that has any; a gene's name stands for all its isoforms."""
        return next((self._found[name] for name in names if name in self._found), ())


_COMPLEX = "GO:0032991"


@dataclass(frozen=True, slots=True)
class Stray:
    """Something in an annotation file that says nothing about the networks."""

    text: str
    """A protein's name or a term."""
    reason: str
    """Where it stands first and why it is not used."""


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """Labels of every protein of some networks."""

    tasks: tuple[str, ...]
    """Ids of the functions."""
    values: Float[np.ndarray, "N T"]
    """1 has it, 0 has not or not known to; NaN in the whole row of a protein without usable annotation."""
    strays: tuple[Stray, ...] = ()
    """What could not be used."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """What was left out on purpose, by name."""


class _Gatherer:
    """Collects (protein, function) pairs, and what does not fit."""

    def __init__(self, where: Sequence[Path | str]) -> None:
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.strays: dict[str, Stray] = {}
        self.counts = {
            "files": len(where),
            "with left-out evidence": 0,
            "negated (NOT)": 0,
            "used": 0,
        }

    def stray(self, text: str, where: str, reason: str) -> None:
        self.strays.setdefault(text, Stray(text, f"{where}: {reason}"))

    def matrix(self, proteins: int, functions: int) -> csr_matrix:
        ones = np.ones(len(self.rows), dtype=np.int32)
        return csr_matrix(
            (ones, (np.array(self.rows, np.int64), np.array(self.columns, np.int64))),
            shape=(proteins, functions),
        )


def annotated_functions(
    files: Sequence[Path | str],
    proteins: Sequence[str],
    names: Names,
    ontology: Ontology,
    options: ProteinOptions,
) -> Functions:
    """Return labels for the terms that :func:`~graphlog.domains.protein.ontology.choose_terms` chooses.

    Annotations of left-out evidence and those that say NOT count for nothing; the others hold for all broader terms too.

    Raises:
        DataError: If no term has enough positives.
    """
    found, number = _Gatherer(files), ontology.number
    for file in files:
        for annotation in read_annotations(file):
            if annotation.evidence in options.evidence:
                found.counts["with left-out evidence"] += 1
                continue
            if annotation.is_negated:
                found.counts["negated (NOT)"] += 1
                continue
            where = f"{file}, line {annotation.line}"
            term = number.get(annotation.term)
            if term is None:
                why = (
                    "is obsolete and has no single replacement"
                    if annotation.term in ontology.obsolete
                    else "is no term of the ontology"
                )
                found.stray(annotation.term, where, why)
                continue
            members = names.find(annotation.names)
            if not members:
                found.stray(
                    annotation.names[0] if annotation.names else "",
                    where,
                    "is annotated but in no network",
                )
            found.rows += members
            found.columns += [term] * len(members)
            found.counts["used"] += bool(members)
    holds = propagate(found.matrix(len(proteins), len(ontology.terms)), ontology.parents)
    chosen = choose_terms(holds, ontology, options)
    if not len(chosen):
        raise DataError(
            f"{files[0]}: no term has {options.min_positives} positive proteins; lower min_positives, or check its species."
        )
    values = holds[:, chosen].toarray().astype(np.float32)
    values[np.asarray(holds.sum(axis=1)).reshape(-1) == 0] = np.nan
    return Functions(
        tuple(ontology.terms[t] for t in chosen), values, tuple(found.strays.values()), found.counts
    )


def tabled_functions(
    file: Path | str, proteins: Sequence[str], names: Names, options: ProteinOptions
) -> Functions:
    """Return the labels of a table: ``protein`` and a 0/1 column each, or ``protein`` and a list of what it has.

    Of lists, those functions become labels that have enough positives and little overlap, as for annotations.

    Raises:
        DataError: Naming file and line, if a label is neither 0 nor 1, or a protein stands there twice.
    """
    found = _Gatherer([file])
    with open_columns(file) as table:
        place = table.place("protein", "gene")
        others = [k for k in range(len(table.header)) if k != place]
        if place is None or not others:
            raise DataError(
                f"{file}: must have the column protein and at least one of labels, found {', '.join(table.header[:6])}."
            )
        tasks = tuple(
            table.header[k].upper() if table.header[k].startswith("go:") else table.header[k]
            for k in others
        )
        if len(others) == 1 and tasks[0] in ("go_terms", "complexes", "terms"):
            lists = [(block, block.columns) for block in table.blocks([place, others[0]])]
            return _from_lists(lists, str(file), len(proteins), names, options, found)
        values = np.full((len(proteins), len(tasks)), np.nan, dtype=np.float32)
        for block in table.blocks([place, *others]):
            rows = _rows(block, str(file), names, found)
            labels = np.stack([_labels(block, k + 1, str(file)) for k in range(len(tasks))], axis=1)
            for k, members in enumerate(rows):
                for member in members:
                    if not np.isnan(values[member]).all():
                        line = block.first_line + k
                        raise DataError(
                            f"{file}, line {line}: '{block.columns[0][k]}' has labels already; give each protein one line."
                        )
                    values[member] = labels[k]
    return Functions(tasks, values, tuple(found.strays.values()), found.counts)


def complex_membership(annotated: Path, complexes: Path, proteins: Sequence[str]) -> Functions:
    """Return one label: whether a protein is known as part of a complex.

    Of the worm, whether the propagated terms of an annotated protein hold ``protein-containing complex``; of yeast, whether
    IntAct lists it in a complex. As with all functions, 0 is "no" or "not known".

    Args:
        annotated: Table ``protein go_terms`` of the worm.
        complexes: Table ``gene complexes`` of yeast.
        proteins: Every protein of both.
    """
    names = Names(proteins)
    yeast = np.array([name.startswith("4932.") for name in proteins])
    values = np.where(yeast, 0.0, np.nan).astype(np.float32)[:, None]
    found = _Gatherer([annotated, complexes])
    for file, wanted in ((annotated, _COMPLEX), (complexes, None)):
        with open_columns(file) as table:
            for block in table.blocks([0, 1]):
                for members, listed in zip(
                    _rows(block, str(file), names, found), block.columns[1], strict=True
                ):
                    values[list(members)] = (
                        1.0 if wanted is None else float(wanted in listed.split())
                    )
    return Functions(("in_complex",), values, tuple(found.strays.values()), found.counts)


def _rows(block: Block, where: str, names: Names, found: _Gatherer) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    for k, name in enumerate(block.columns[0]):
        rows.append(names.find((name,)))
        found.counts["used"] += bool(rows[-1])
        if not rows[-1]:
            found.stray(
                name, f"{where}, line {block.first_line + k}", "has labels but is in no network"
            )
    return rows


def _labels(block: Block, column: int, where: str) -> Float[np.ndarray, "B"]:
    known = {"0": 0.0, "1": 1.0, "": np.nan}
    values: list[float] = []
    for k, text in enumerate(block.columns[column]):
        value = known.get(text.strip())
        if value is None:
            raise DataError(
                f"{where}, line {block.first_line + k}: a label must be 0, 1 or empty, found {text!r}."
            )
        values.append(value)
    return np.array(values, dtype=np.float32)


def _from_lists(
    lists: list[tuple[Block, list[tuple[str, ...]]]],
    where: str,
    proteins: int,
    names: Names,
    options: ProteinOptions,
    found: _Gatherer,
) -> Functions:
    number: dict[str, int] = {}
    for block, (_, listed) in lists:
        for members, text in zip(_rows(block, where, names, found), listed, strict=True):
            has = [
                number.setdefault(one, len(number))
                for one in text.replace(",", " ").replace(";", " ").split()
            ]
            found.rows += [m for m in members for _ in has]
            found.columns += has * len(members)
    holds = propagate(found.matrix(proteins, len(number)), parents_matrix([], len(number)))
    flat = Ontology(
        tuple(number),
        (options.aspects[0],) * len(number),
        tuple(number),
        parents_matrix([], len(number)),
    )
    chosen: Int[np.ndarray, "T"] = choose_terms(holds, flat, options)
    if not len(chosen):
        raise DataError(
            f"{where}: no function has {options.min_positives} positive proteins; lower min_positives."
        )
    values = holds[:, chosen].toarray().astype(np.float32)
    values[np.asarray(holds.sum(axis=1)).reshape(-1) == 0] = np.nan
    return Functions(
        tuple(flat.terms[t] for t in chosen), values, tuple(found.strays.values()), found.counts
    )
