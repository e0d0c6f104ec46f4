"""Reading of SDF files as tables of SMILES, and writing of molecules as SDF records."""

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
from graphlog.errors import DataError, first_line
from graphlog.files import DAMAGED, LONGEST_LINE, open_bytes

_CONTINUED = re.compile(rb"-\r?\n *M  V30 ?")
_COUNTS = re.compile(rb"M  V30\s+COUNTS\s+([0-9]{1,18})\s+([0-9]{1,18})")
_END = re.compile(rb"(?m)^\$\$\$\$.*\n")
_FIELD = re.compile(rb"(?m)^>[^<\n]*<(.+)>.*\n((?:[^\r\n].*\n?)*)")
"""Pattern of a data field: its name, and its text up to an empty line."""
_WILDCARDS = frozenset({"AtomNull", "BondNull"})
"""RDKit's names of queries that are accepted: any atom, any bond."""
_BLOCK = 1 << 20
"""Number of bytes that are read at a time."""
_HEADER_PROPERTIES = ("_Name", "_MolFileInfo", "_MolFileComments", "_MolFileChiralFlag")
"""Properties in which RDKit stores the first lines of a record."""
_TITLES = ("name", "id", "compound_id", "molecule_id", "chembl_id", "title")
"""Lower-case names of columns whose text becomes the first line of a record, in this order."""


def smiles_of(mol: Chem.Mol) -> str:
    """Return the SMILES of an RDKit molecule; empty if RDKit cannot write one.

    Atoms are numbered as in the SMILES, not as in the molecule.
    """
    try:
        return Chem.MolToSmiles(mol)
    except Exception:  # RDKit raises errors of various types, such as for unsanitized molecules
        return ""


@contextmanager
def open_sdf(path: Path) -> Generator[Table]:
    """Open an SDF file as a table of SMILES, names and data fields.

    The file is read twice: first for the names of the data fields, since any record may have new
    ones.

    Raises:
        DataError: If the file cannot be read or holds no molecule.
    """
    if path.is_fifo():
        raise DataError(f"{path}: SDF is read twice; save it as a file, and name that.")
    with open_bytes(path) as stream:
        fields = (name for record in _records(stream, path) for name, _ in _fields_of(record))
        names = list(dict.fromkeys(fields))
    columns = distinct(["smiles", "name", *names])  # fields may be called smiles and name too
    with open_bytes(path) as stream:
        rows = _rows(_records(stream, path), dict(zip(names, columns[2:], strict=True)))
        first = next(rows, None)
        if first is None:
            raise DataError(f"{path}: holds no molecule.")
        yield Table(str(path), columns, 0, chain([first], rows))


def _records(stream: Any, path: Path) -> Iterator[bytes]:
    """Yield the records as UTF-8 without the line that ends them."""
    rest = b""
    try:
        if stream.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise DataError(f"{path}: UTF-16 text; save it as UTF-8.")
        while block := stream.read(_BLOCK):
            *complete, rest = _END.split(rest + block)
            yield from map(_as_utf8, complete)
            if len(rest) > LONGEST_LINE:
                raise OSError(f"a record of more than {LONGEST_LINE:,} bytes")
    except (OSError, *DAMAGED) as e:
        raise DataError(f"{path}: not a readable SDF file ({first_line(e)}).") from None
    if last := rest.rstrip().removesuffix(b"$$$$"):
        yield _as_utf8(last)


def _as_utf8(record: bytes) -> bytes:
    return record if record.isascii() else record.decode("utf-8", "graphlog.latin1").encode()


def _fields_of(record: bytes) -> list[tuple[str, str]]:
    """Return the names and texts of the data fields of a record."""
    fields = _FIELD.findall(record, max(record.find(b"\nM  END"), 0))
    return [
        (name.decode(), text.decode().replace("\r\n", "\n").rstrip("\n")) for name, text in fields
    ]


def _mol_of(record: bytes) -> Chem.Mol | str:
    """Return the molecule of a record without data fields, or the reason why it cannot be read."""
    counts = _COUNTS.search(_CONTINUED.sub(b"", record)) if b"V30" in record else None
    # RDKit reserves memory for the number of atoms in the header; each atom has a line
    is_false = counts is not None and max(int(counts[1]), int(counts[2])) > record.count(b"\n")
    mol = None if is_false else Chem.MolFromMolBlock(record)
    if mol is None:
        return "RDKit cannot parse this SDF record"
    if mol.HasQuery():
        parts = (*mol.GetAtoms(), *mol.GetBonds())
        if not _WILDCARDS.issuperset(x.DescribeQuery().strip() for x in parts if x.HasQuery()):
            return "a query (such as a list of elements), not a molecule"
    return mol


def _rows(records: Iterable[bytes], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of a table; ``columns`` has the column name of each data field."""
    empty = dict.fromkeys(columns.values(), "")
    for number, record in enumerate(records):
        with rdBase.BlockLogs():
            mol = _mol_of(record)
            smiles = "" if isinstance(mol, str) else smiles_of(mol)
        title = "" if isinstance(mol, str) else mol.GetProp("_Name")
        problem, fields = mol if isinstance(mol, str) else None, dict[str, str]()
        for name, text in _fields_of(record):
            if fields.setdefault(columns[name], text) != text:
                problem = problem or f"data field '{name}' is given more than once"
        yield Row(number, smiles, {"smiles": smiles, "name": title, **empty, **fields}, problem)


def records_like(path: Path, rows: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Yield the SDF records of a file with the data fields of ``rows``; molecules are kept.

    A record that RDKit cannot parse becomes a molecule without atoms, so that row i stays row i.
    """
    with rdBase.BlockLogs(), open_bytes(path) as stream:
        # there may be fewer rows than records, if the user limited them
        for (_, fields), record in zip(rows, _records(stream, path), strict=False):
            if isinstance(_mol_of(record), str):
                yield _drawn(Chem.Mol(), fields)
            else:
                block = record.replace(b"\r\n", b"\n").partition(b"\nM  END")[0].decode()
                yield f"{block}\nM  END\n{_data_fields(fields)}"


def drawn_records(rows: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Yield the SDF record of each SMILES with its data fields and coordinates in two dimensions.

    A text that RDKit cannot parse becomes a molecule without atoms, so that row i stays row i.
    """
    for text, fields in rows:
        (mol,) = parsed([text])
        with rdBase.BlockLogs():
            record = _drawn(Chem.Mol() if isinstance(mol, str) else Chem.Mol(mol), fields)
        yield record


def _drawn(mol: Chem.Mol, fields: Mapping[str, str]) -> str:
    """Return the SDF record of a molecule with these data fields; changes its coordinates."""
    rdDepictor.Compute2DCoords(mol)
    try:
        block = Chem.MolToMolBlock(mol)
    except Exception:  # RDKit raises errors of various types
        block = Chem.MolToMolBlock(Chem.Mol())
    lower = {name.lower(): value for name, value in fields.items()}
    title = next((lower[key] for key in _TITLES if lower.get(key)), "")
    line = _field_text(" ".join(title.split()))[:80]
    return line + block[block.index("\n") :] + _data_fields(fields)


def _data_fields(fields: Mapping[str, str]) -> str:
    """Return the end of an SDF record, with these data fields."""
    names = _names_in_file(tuple(fields))
    texts = map(_field_text, fields.values())
    lines = (f">  <{name}>\n{text}\n\n" for name, text in zip(names, texts, strict=True))
    return "".join(lines) + "$$$$\n"


@lru_cache
def _names_in_file(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return distinct names of data fields that are valid in a file, where > ends a name."""
    lines = (" ".join(name.replace(">", ")").replace("<", "(").splitlines()) for name in names)
    valid = [line.strip() or "unnamed" for line in lines]
    return distinct([*_HEADER_PROPERTIES, *valid])[len(_HEADER_PROPERTIES) :]


def _field_text(text: str) -> str:
    """Return a text without empty lines, which end a data field, and $$$$, which ends a record."""
    lines = (line for line in text.splitlines() if line.strip())
    return "\n".join(f" {line}" if line.startswith("$$$$") else line for line in lines)
