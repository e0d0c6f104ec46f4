"""Which protein has which function: GO annotation files (GAF), or a table of the same, and aliases of names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from graphlog.datasets.networks.lines import open_columns, peek
from graphlog.datasets.tables.streams import open_text
from graphlog.errors import DataError

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
