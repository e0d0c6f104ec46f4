"""Functions of proteins as labels: from annotations and an ontology, or from a table made by others."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from graphlog.datasets.networks.annotations import Names, read_annotations
from graphlog.datasets.networks.lines import Block, open_columns
from graphlog.domains.protein.ontology import Ontology, choose_terms, parents_matrix, propagate
from graphlog.domains.protein.options import ProteinOptions
from graphlog.errors import DataError

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
