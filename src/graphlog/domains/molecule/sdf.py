"""RDKit's molecules and files as SMILES, and molecules as SDF."""

import codecs
import re
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from io import BufferedIOBase
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor

from graphlog.data.tables import Row, Table, distinct
from graphlog.domains.molecule.parse import parsed
from graphlog.errors import DataError
from graphlog.files import DAMAGED, LONGEST_LINE, open_bytes

_LOOKED_AT = 200
"""Molecules whose data fields become the columns of the table."""
_CONTINUED = re.compile(rb"-\r?\n *M  V30 ?")
_COUNTS = re.compile(rb"M  V30\s+COUNTS\s+([0-9]{1,18})\s+([0-9]{1,18})")
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

    Raises:
        DataError: If it cannot be read or holds no molecule.
    """
    with open_bytes(path) as stream:
        rows = _rows(stream, path)
        first = list(islice(rows, _LOOKED_AT))
        if not first:
            raise DataError(f"{path}: holds no molecule.")
        columns = list(dict.fromkeys(chain(["smiles", "name"], *(row.fields for row in first))))
        yield Table(str(path), columns, 0, _filled(chain(first, rows), columns, path))


def _filled(rows: Iterable[Row], columns: Sequence[str], path: Path) -> Iterator[Row]:
    """Yield the rows with all columns and no other field; say which fields are left out."""
    empty, left_out = dict.fromkeys(columns, ""), set[str]()
    for row in rows:
        for name in row.fields.keys() - empty.keys() - left_out:
            left_out.add(name)
            warnings.warn(
                f"{path}: data field '{name}' is left out; none of the first {_LOOKED_AT} records "
                f"has it, record {row.row + 1} is the first",
                stacklevel=2,
            )
        kept = {name: value for name, value in row.fields.items() if name in empty}
        yield row._replace(fields={**empty, **kept})


def _molecules(stream: BufferedIOBase) -> Iterator[Chem.Mol | None]:
    """Yield the molecule of each record, its data fields as properties; None for a bad record."""
    supplier = Chem.SDMolSupplier()
    for record in _records(stream):
        counts = _COUNTS.search(_CONTINUED.sub(b"", record)) if b"V30" in record else None
        # RDKit reserves memory for as many atoms as are claimed; each has a line
        if counts is not None and max(int(counts[1]), int(counts[2])) > record.count(b"\n"):
            yield None
            continue
        supplier.SetData(record)  # pyright: ignore[reportArgumentType] - bytes as well as text
        yield supplier[0] if len(supplier) else None


def _records(stream: BufferedIOBase) -> Iterator[bytes]:
    """Yield the records; blank lines at the end are none."""
    lines, size = list[bytes](), 0
    while line := stream.readline(LONGEST_LINE):
        lines.append(line)
        size += len(line)
        if size > LONGEST_LINE:
            raise OSError(f"a record of more than {LONGEST_LINE:,} bytes")
        if line.startswith(b"$$$$"):
            yield b"".join(lines)
            lines, size = [], 0
    if last := b"".join(lines).rstrip():
        yield last


def _rows(stream: Any, path: Path) -> Iterator[Row]:
    own = dict[str, str]()
    try:
        if stream.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise DataError(f"{path}: UTF-16 text; save it as UTF-8.")
        with rdBase.BlockLogs():
            for number, mol in enumerate(_molecules(stream)):
                if mol is None:
                    yield Row(number, "", {}, "RDKit cannot parse this SDF record")
                    continue
                smiles, names = smiles_of(mol), _fields_of(mol)
                title = mol.GetProp(_NAME) if mol.HasProp(_NAME) else ""
                for name in names:  # fields may be called smiles and name too
                    taken = ["smiles", "name", *own.values(), name]
                    own[name] = own.get(name) or distinct(taken)[-1]
                fields = {own[name]: mol.GetProp(name) for name in names}
                yield Row(number, smiles, {"smiles": smiles, "name": title, **fields})
    except (OSError, RuntimeError, UnicodeDecodeError, *DAMAGED) as e:
        reason = str(e).partition("\n")[0]
        raise DataError(f"{path}: not a readable SDF file ({reason}).") from None


def _fields_of(mol: Chem.Mol) -> list[str]:
    return [name for name in mol.GetPropNames(includePrivate=True) if name not in _OF_RDKIT]


def records_like(path: Path, rows: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Yield the SDF records of a file with the data fields of ``rows``; coordinates are kept.

    A molecule that RDKit cannot parse becomes one without atoms, so that row i stays row i.
    """
    with rdBase.BlockLogs(), open_bytes(path) as stream:
        # as many rows as were asked for, which may be fewer than the file holds
        for (_, fields), mol in zip(rows, _molecules(stream), strict=False):
            yield _record(mol or Chem.Mol(), fields)


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
    for key in _fields_of(mol):
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
