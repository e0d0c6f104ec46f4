"""The Gene Ontology from its OBO file, or from two tables: edges, and terms."""

from collections.abc import Iterator
from pathlib import Path

from graphlog.datasets.networks.lines import open_columns, peek
from graphlog.datasets.tables.streams import open_text
from graphlog.domains.protein.ontology import ROOTS, Ontology, parents_matrix
from graphlog.domains.protein.options import ProteinOptions
from graphlog.errors import DataError

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
