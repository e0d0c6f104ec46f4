"""RDKit's molecules and files as SMILES, and molecules as SDF."""

import codecs
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor

from graphlog.data.tables import Row, Table, distinct
from graphlog.domains.molecule.parse import parsed
from graphlog.errors import DataError
from graphlog.files import DAMAGED, LONGEST_LINE, open_bytes

_CONTINUED = re.compile(rb"-\r?\n *M  V30 ?")
_COUNTS = re.compile(rb"M  V30\s+COUNTS\s+([0-9]{1,18})\s+([0-9]{1,18})")
_END = re.compile(rb"(?m)^\$\$\$\$.*\n")
_FIELD = re.compile(rb"(?m)^>[^<\n]*<(.+)>.*\n((?:[^\r\n].*\n?)*)")
"""A data field: its name, and its text up to an empty line."""
_ANY = frozenset({"AtomNull", "BondNull"})
"""What RDKit calls the queries that a molecule may have: any atom, any bond."""
_BLOCK = 1 << 20
_NAME = "_Name"
_OF_RDKIT = (_NAME, "_MolFileInfo", "_MolFileComments", "_MolFileChiralFlag")
"""Properties of a molecule that are no data fields: its first lines."""
_TITLES = ("name", "id", "compound_id", "molecule_id", "chembl_id", "title")
"""Columns whose text becomes the first line of a record, in lower case."""


def smiles_of(mol: Chem.Mol) -> str:
    """Return the SMILES of an RDKit molecule; empty where RDKit cannot write one.

    Atoms are numbered as in the SMILES, not as in the molecule.
    """
    try:
        return Chem.MolToSmiles(mol)
    except Exception:  # RDKit raises errors of its own, among them for molecules it never sanitized
        return ""


@contextmanager
def open_sdf(path: Path) -> Generator[Table]:
    """Open an SDF file as a table of SMILES, names and data fields, all as they are written.

    It is read twice, first for the names of its data fields: any record may have new ones.

    Raises:
        DataError: If it cannot be read or holds no molecule.
    """
    if path.is_fifo():
        raise DataError(f"{path}: SDF is read twice; save it as a file, and name that.")
    with _opened(path) as records:
        names = list(dict.fromkeys(name for record in records for name, _ in _fields_of(record)))
    columns = distinct(["smiles", "name", *names])  # fields may be called smiles and name too
    with _opened(path) as records:
        rows = _rows(records, dict(zip(names, columns[2:], strict=True)))
        first = next(rows, None)
        if first is None:
            raise DataError(f"{path}: holds no molecule.")
        yield Table(str(path), columns, 0, chain([first], rows))


@contextmanager
def _opened(path: Path) -> Generator[Iterator[bytes]]:
    with open_bytes(path) as stream:
        yield _records(stream, path)


def _records(stream: Any, path: Path) -> Iterator[bytes]:
    """Yield the records as UTF-8, without the line that ends them; blanks at the end are none."""
    rest = b""
    try:
        if stream.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise DataError(f"{path}: UTF-16 text; save it as UTF-8.")
        while block := stream.read(_BLOCK):
            *whole, rest = _END.split(rest + block)
            yield from map(_as_utf8, whole)
            if len(rest) > LONGEST_LINE:
                raise OSError(f"a record of more than {LONGEST_LINE:,} bytes")
    except (OSError, *DAMAGED) as e:
        reason = str(e).partition("\n")[0]
        raise DataError(f"{path}: not a readable SDF file ({reason}).") from None
    if last := rest.rstrip().removesuffix(b"$$$$"):
        yield _as_utf8(last)


def _as_utf8(record: bytes) -> bytes:
    return record if record.isascii() else record.decode("utf-8", "graphlog.latin1").encode()


def _fields_of(record: bytes) -> list[tuple[str, str]]:
    """Return the names and texts of the data fields of a record."""
    found = _FIELD.findall(record, max(record.find(b"\nM  END"), 0))
    return [
        (name.decode(), text.decode().replace("\r\n", "\n").rstrip("\n")) for name, text in found
    ]


def _mol_of(record: bytes) -> Chem.Mol | str:
    """Return the molecule of a record, without data fields, or why there is none."""
    counts = _COUNTS.search(_CONTINUED.sub(b"", record)) if b"V30" in record else None
    # RDKit reserves memory for as many atoms as are claimed; each has a line
    is_false = counts is not None and max(int(counts[1]), int(counts[2])) > record.count(b"\n")
    mol = None if is_false else Chem.MolFromMolBlock(record)
    if mol is None:
        return "RDKit cannot parse this SDF record"
    if mol.HasQuery():
        parts = (*mol.GetAtoms(), *mol.GetBonds())
        if not _ANY.issuperset(x.DescribeQuery().strip() for x in parts if x.HasQuery()):
            return "a query (such as a list of elements), not a molecule"
    return mol


def _rows(records: Iterable[bytes], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows; ``columns`` says what the column of each data field is called."""
    empty = dict.fromkeys(columns.values(), "")
    for number, record in enumerate(records):
        with rdBase.BlockLogs():
            mol = _mol_of(record)
            smiles = "" if isinstance(mol, str) else smiles_of(mol)
        title = "" if isinstance(mol, str) else mol.GetProp(_NAME)
        problem, fields = mol if isinstance(mol, str) else None, dict[str, str]()
        for name, text in _fields_of(record):
            if fields.setdefault(columns[name], text) != text:
                problem = problem or f"data field '{name}' is given more than once"
        yield Row(number, smiles, {"smiles": smiles, "name": title, **empty, **fields}, problem)


def records_like(path: Path, rows: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Yield the SDF records of a file with the data fields of ``rows``; coordinates are kept.

    A molecule that RDKit cannot parse becomes one without atoms, so that row i stays row i.
    """
    with rdBase.BlockLogs(), _opened(path) as records:
        # as many rows as were asked for, which may be fewer than the file holds
        for (_, fields), mol in zip(rows, map(_mol_of, records), strict=False):
            yield _record(Chem.Mol() if isinstance(mol, str) else mol, fields)


def drawn_records(rows: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Yield the SDF record of each SMILES with its data fields, drawn in two dimensions.

    A text that RDKit cannot parse becomes a molecule without atoms, so that row i stays row i.
    """
    for text, fields in rows:
        (mol,) = parsed([text])
        drawn = Chem.Mol() if isinstance(mol, str) else Chem.Mol(mol)
        with rdBase.BlockLogs():
            rdDepictor.Compute2DCoords(drawn)
            record = _record(drawn, fields)
        yield record


def _record(mol: Chem.Mol, fields: Mapping[str, str]) -> str:
    for key in mol.GetPropNames(includePrivate=True):
        if key not in _OF_RDKIT:
            mol.ClearProp(key)
    lower = {name.lower(): value for name, value in fields.items()}
    title = next((lower[key] for key in _TITLES if lower.get(key)), "")
    mol.SetProp(_NAME, _one_line(title)[:80])
    for name, value in zip(_names_in_file(tuple(fields)), fields.values(), strict=True):
        mol.SetProp(name, _one_line(value))
    try:
        return Chem.SDWriter.GetText(mol)
    except Exception:  # RDKit raises errors of its own
        bare = Chem.Mol()
        for name in mol.GetPropNames(includePrivate=True):
            bare.SetProp(name, mol.GetProp(name))
        return Chem.SDWriter.GetText(bare)


@lru_cache
def _names_in_file(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return what data fields of these names are called in a file, where > would end a name."""
    lines = (" ".join(name.replace(">", ")").replace("<", "(").splitlines()) for name in names)
    return distinct([*_OF_RDKIT, *(line.strip() or "unnamed" for line in lines)])[len(_OF_RDKIT) :]


def _one_line(text: str) -> str:
    """Return a text without empty lines, which end a data field, nor what ends a record."""
    line = " ".join(text.split())
    return f" {line}" if line.startswith("$$$$") else line
